"""Layouts that are drawn: a table in one of many shapes, changes from one to the next, and what each does to a record."""

import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final, NamedTuple

import msgspec

from keyplan.layout import Index, Layout, Table, Unique
from keyplan.maintenance import Conversion, Keyed, MigrationPlan, Transform, plan_migration
from keyplan.store import Store

__all__ = ["CHANGES", "FIRST", "Change", "Record", "Shape", "changed", "key_of", "layout_of", "record_class"]

Record = dict[str, Any]
"""A record as the model has it: its fields."""


class Filed(NamedTuple):
    kind: str
    name: str


@dataclass(frozen=True)
class Shape:
    """What a layout is like. `fields`: those with a default, which come and go."""

    root: str = "/c/"
    place: str = "goods"
    fields: tuple[str, ...] = ()
    form: str = "json"
    is_filed: bool = False
    has_listing: bool = False
    has_codes: bool = True
    has_extras: bool = True

    def record(self, name: str, price: int, kind: str) -> Record:
        """A record as a program writes it."""
        return {
            "price": price,
            "kind": kind,
            "code": f"{name}-{price}",
            **{one: f"{one} of {name}" for one in self.fields},
        }


@cache
def record_class(shape: Shape) -> Any:
    """The class of the records."""
    optional = [(one, str, f"no {one}") for one in shape.fields]
    return msgspec.defstruct("Record", [("price", int), ("kind", str), ("code", str), *optional], frozen=True)


@cache
def layout_of(shape: Shape) -> type[Layout]:
    """The layout of a shape."""
    record = record_class(shape)
    key: Any = Filed if shape.is_filed else str
    fields = "{kind}/{name}" if shape.is_filed else "{name}"
    goods = Table(f"{shape.place}/{fields}", key=key, value=record, form=shape.form)
    items: dict[str, Any] = {"goods": goods}
    if shape.has_listing:
        items["listing"] = Index(f"by-code/{{code}}/{fields}", of=goods, key=str)
    if shape.has_codes:
        # Why another place: a unique entry that names another key serves one layout at a time.
        codes = f"{shape.place}-codes/{{code}}" if shape.is_filed else "codes/{code}"
        items["by_code"] = Unique(codes, of=goods, key=str)
    if shape.has_extras:
        items["extras"] = Table("extras/{extra}", key=str, value=str)
    return types.new_class("Drawn", (Layout,), {"root": shape.root}, lambda namespace: namespace.update(items))


def key_of(shape: Shape, name: str, record: Mapping[str, Any]) -> Any:
    """The key of a record."""
    return Filed(record["kind"], name) if shape.is_filed else name


# ---- changes ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Change:
    """From one shape to the next. `carried`: what becomes of a record. `is_moving`: old and new records stand side by side."""

    old: Shape
    new: Shape
    options: Mapping[str, Any]
    carried: Callable[[Record], Record]
    is_moving: bool

    def plan(self, store: Store) -> MigrationPlan:
        """Plan it."""
        return plan_migration(store.engine, layout_of(self.old).bound(), layout_of(self.new).bound(), **self.options)


def _same(record: Record) -> Record:
    return record


def _typed(shape: Shape, function: Callable[[Record], Record]) -> Callable[[Any], Any]:
    return lambda record: record_class(shape)(**function(msgspec.structs.asdict(record)))


def _simple(old: Shape, new: Shape, *, is_moving: bool, **options: Any) -> Change:
    return Change(old, new, options, _same, is_moving)


def _move(old: Shape, _number: int) -> Change:
    place = "wares" if old.place == "goods" else "goods"
    return _simple(old, replace(old, place=place), is_moving=True)


def _root(old: Shape, _number: int) -> Change:
    return _simple(old, replace(old, root="/d/" if old.root == "/c/" else "/c/"), is_moving=True)


def _add(old: Shape, number: int) -> Change:
    field = f"f{number}"
    new = replace(old, fields=(*old.fields, field))
    return Change(old, new, {}, lambda record: {**record, field: f"no {field}"}, is_moving=False)


def _remove(old: Shape, _number: int) -> Change | None:
    if not old.fields:
        return None
    field = old.fields[-1]

    def carried(record: Record) -> Record:
        return {name: value for name, value in record.items() if name != field}

    new = replace(old, fields=old.fields[:-1])
    return Change(old, new, {"drops": [f"goods.{field}"]}, carried, is_moving=False)


def _rename(old: Shape, number: int) -> Change | None:
    if not old.fields:
        return None
    before, after = old.fields[-1], f"r{number}"

    def carried(record: Record) -> Record:
        return {after if name == before else name: value for name, value in record.items()}

    new = replace(old, fields=(*old.fields[:-1], after))
    return Change(old, new, {"conversions": _conversions(new, carried, "rename")}, carried, is_moving=False)


def _conversions(new: Shape, function: Callable[[Record], Record], name: str) -> dict[str, Conversion]:
    return {"goods": Conversion(_typed(new, function), f"tests:{name}")}


def _seven(record: Record) -> Record:
    return {**record, "price": record["price"] * 7}


def _raise(old: Shape, number: int) -> Change:
    """The price is multiplied, where it stands; a field tells the layouts apart."""
    field = f"s{number}"

    def carried(record: Record) -> Record:
        return {**_seven(record), field: "raised"}

    new = replace(old, fields=(*old.fields, field))
    return Change(old, new, {"conversions": _conversions(new, carried, "raise")}, carried, is_moving=False)


def _move_and_raise(old: Shape, number: int) -> Change:
    new = _move(old, number).new
    return Change(old, new, {"conversions": _conversions(new, _seven, "move-and-raise")}, _seven, is_moving=True)


def _form(old: Shape, _number: int) -> Change:
    return _simple(old, replace(old, form="msgpack" if old.form == "json" else "json"), is_moving=False)


def _file(old: Shape, _number: int) -> Change:
    """The key gets a field of the record, or loses it."""
    place = "filed" if not old.is_filed else "goods"
    new = replace(old, is_filed=not old.is_filed, place=place)

    def filed(key: Any, record: Any) -> Keyed:
        carried = record_class(new)(**_seven(msgspec.structs.asdict(record)))
        return Keyed(key.name if old.is_filed else Filed(record.kind, key), carried)

    options = {"transforms": [Transform(filed, "tests:file", of=("goods",), into=("goods",))]}
    return Change(old, new, options, _seven, is_moving=True)


def _listing(old: Shape, _number: int) -> Change:
    return _simple(old, replace(old, has_listing=not old.has_listing), is_moving=False)


def _codes(old: Shape, _number: int) -> Change:
    return _simple(old, replace(old, has_codes=not old.has_codes), is_moving=False)


def _extras(old: Shape, _number: int) -> Change | None:
    return _simple(old, replace(old, has_extras=False), is_moving=False, drops=["extras"]) if old.has_extras else None


CHANGES: Final[Mapping[str, Callable[[Shape, int], Change | None]]] = {
    "move": _move,
    "root": _root,
    "add": _add,
    "remove": _remove,
    "rename": _rename,
    "raise": _raise,
    "move and raise": _move_and_raise,
    "form": _form,
    "file": _file,
    "listing": _listing,
    "codes": _codes,
    "extras": _extras,
}
FIRST: Final = Shape(fields=("note",))


def changed(shape: Shape, name: str, number: int) -> Change | None:
    """The change of that name from a shape; None where there is nothing to change. `number` makes names of fields new ones."""
    return CHANGES[name](shape, number)
