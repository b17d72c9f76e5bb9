"""L13: an index over a field whose default it cannot spell; found exactly where a record without the field is refused."""

from collections.abc import Callable, Iterator
from random import Random
from typing import Any, NamedTuple, TypedDict
from uuid import UUID

import msgspec
import pytest

from keyplan.codec import value_form_of
from keyplan.errors import RecordError
from keyplan.layout import (
    Component,
    Condition,
    Index,
    IndexSpec,
    Layout,
    LayoutSpec,
    Origin,
    Table,
    Unlike,
    Waiver,
    describe,
    layout_class_of,
    layout_of_description,
    lint,
)
from keyplan.layout.rules.refusals import refused_defaults
from tests.layout.rules.builders import SHAPE, layout, table, text


class Address(msgspec.Struct):
    city: str = ""
    street: str = "main"


class Line(msgspec.Struct):
    sku: str
    note: str = ""


class Order(msgspec.Struct):
    number: int
    state: str = "open"
    city: str = ""
    home: Address | None = None
    work: Address = msgspec.field(default_factory=Address)
    lines: list[Line] = []
    tags: list[str] = msgspec.field(default_factory=lambda: ["a", ""])
    owner: UUID | None = None
    priority: int = -1


class StateKey(NamedTuple):
    state: str
    city: str


class Orders(Layout, root="o/"):
    orders = Table("orders/{id}", key=str, value=Order)
    by_city = Index("by-city/{city}/{id}", of=orders, key=str)
    by_state = Index("by-state/{state}/{id}", of=orders, key=str)
    by_home = Index("by-home/{city}/{id}", of=orders, key=str, bind={"city": "home.city"})
    by_work = Index("by-work/{city}/{id}", of=orders, key=str, bind={"city": "work.city"})
    by_note = Index("by-note/{note}/{id}", of=orders, key=str, each={"note": "lines[].note"})
    by_tag = Index("by-tag/{tag}/{id}", of=orders, key=str, each={"tag": "tags"})
    by_priority = Index("by-priority/{priority}/{id}", of=orders, key=int)
    named_city = Index("named-city/{city}/{id}", of=orders, key=str, when={"city": Unlike("")})
    closed_city = Index("closed-city/{state}/{city}/{id}", of=orders, key=StateKey, when={"state": "closed"})


def told(spec: LayoutSpec) -> list[tuple[str, ...]]:
    return [finding.items for finding in refused_defaults(spec)]


EXPECTED = [
    ("by_city", "city"),
    ("by_home", "home.city"),
    ("by_work", "work"),
    ("by_work", "work.city"),
    ("by_note", "lines[].note"),
    ("by_tag", "tags"),
    ("by_priority", "priority"),
    ("closed_city", "city"),
]


def test_each_default_that_an_index_refuses_is_found_and_no_other() -> None:
    assert [finding.items for finding in lint(Orders.spec).of_rule("L13")] == EXPECTED


def test_a_description_tells_the_defaults_that_no_function_makes() -> None:
    described = layout_of_description(describe(Orders.spec))
    assert told(described) == [one for one in EXPECTED if one not in {("by_tag", "tags"), ("by_work", "work")}]


def test_the_finding_says_the_value_and_the_remedy() -> None:
    finding = next(one for one in lint(Orders.spec).of_rule("L13") if one.items == ("by_city", "city"))
    assert str(finding) == (
        "L13 warning by_city, city: a record stored without city is read with '', which city cannot spell: empty; "
        "take None as the default, which has no entry, or a codec that spells it"
    )


def test_a_waiver_of_a_default_that_a_description_cannot_carry_is_not_stale() -> None:
    class Waived(Layout):
        orders = Table("orders/{id}", key=str, value=Order)
        by_tag = Index("by-tag/{tag}/{id}", of=orders, key=str, each={"tag": "tags"})
        waivers = (Waiver("L13", "by_tag, tags", "no such order is left"),)

    lint(Waived.spec).check()
    lint(layout_of_description(describe(Waived.spec))).check()


class Described(TypedDict, total=False):
    city: str


class Placed(NamedTuple):
    number: int
    city: str = ""


@pytest.mark.parametrize(("kind", "is_found"), [(Described, False), (Placed, True), (dict[str, str], False)])
def test_other_kinds_of_records(kind: Any, is_found: bool) -> None:  # noqa: FBT001  # Why: a parameter.
    class Others(Layout):
        records = Table("records/{id}", key=str, value=kind)
        by_city = Index("by-city/{city}/{id}", of=records, key=str)

    assert bool(told(Others.spec)) == is_found


def test_a_models_default_is_found() -> None:
    pydantic = pytest.importorskip("pydantic")
    inner = pydantic.create_model("Inner", city=(str, ""))
    model = pydantic.create_model("Model", number=(int, ...), city=(str, ""), home=(inner | None, None))

    class Models(Layout):
        records = Table("records/{id}", key=str, value=model)
        by_city = Index("by-city/{city}/{id}", of=records, key=str)
        by_home = Index("by-home/{city}/{id}", of=records, key=str, bind={"city": "home.city"})

    assert told(Models.spec) == [("by_city", "city"), ("by_home", "home.city")]


def test_an_absent_field_of_a_message_is_found() -> None:
    descriptor = pytest.importorskip("google.protobuf.descriptor_pb2")

    class Messages(Layout):
        files = Table("files/{id}", key=str, value=descriptor.FileDescriptorProto)
        by_package = Index("by-package/{package}/{id}", of=files, key=str)
        by_option = Index("by-option/{name}/{id}", of=files, key=str, bind={"name": "options.go_package"})
        by_message = Index("by-message/{name}/{id}", of=files, key=str, each={"name": "message_type[].name"})

    assert told(Messages.spec) == [
        ("by_package", "package"),
        ("by_option", "options.go_package"),
        ("by_message", "message_type[].name"),
    ]


# ---- against records that lack a field ----------------------------------------------------------------------------------

SEEDS = 160

GOOD = {"text": "ok", "number": 7, "texts": ["ok"]}
"""A value of each kind that every index of these tests takes."""

CODECS = {
    "text": ("text", "text(empty=true)", "text(allow='ok-',empty=true)", "text(reserved='no')"),
    "number": ("decimal", "decimal(most=9)", "decimal(least=1)"),
    "texts": ("text", "text(empty=true)"),
}
DEFAULTS: dict[str, tuple[object, ...]] = {
    "text": ("", "no", "ok", "a/b", None),
    "number": (-1, 0, 10, None),
    "texts": ([], [""], ["ok", ""], ["a/b"]),
}
TYPES: dict[str, Any] = {"text": str | None, "number": int | None, "texts": list[str]}


def random_case(seed: int) -> tuple[LayoutSpec, dict[str, Any]]:
    """A table with an index, and a stored record in which nothing is missing."""
    rng = Random(seed)
    kinds = {f"a{number}": rng.choice(("text", "number")) for number in range(3)} | {"list": "texts"}
    drawn = [(name, TYPES[kind], msgspec.field(default_factory=_maker(rng, kind))) for name, kind in kinds.items()]
    inner = msgspec.defstruct(f"Inner{seed}", [*drawn[:2]])
    record = msgspec.defstruct(f"Record{seed}", [*drawn[1:], ("inner", inner, msgspec.field(default_factory=inner))])
    whole = {name: GOOD[kinds[name]] for name in ("a1", "a2", "list")} | {
        "inner": {name: GOOD[kinds[name]] for name in ("a0", "a1")}
    }
    paths = {"a1": kinds["a1"], "a2": kinds["a2"], "inner.a0": kinds["a0"], "inner.a1": kinds["a1"]}
    used = rng.sample(sorted(paths), rng.randint(1, 3))
    components = [Component(Origin.RECORD, path) for path in used]
    codecs = [rng.choice(CODECS[paths[path]]) for path in used]
    if rng.random() < 0.4:
        components.append(Component(Origin.EACH, "list"))
        codecs.append(rng.choice(CODECS["texts"]))
    conditions = []
    if rng.random() < 0.5:
        path = rng.choice(sorted(paths))
        is_equal = rng.random() < 0.5
        constant = GOOD[paths[path]] if is_equal else rng.choice(DEFAULTS[paths[path]])
        if is_equal or constant != GOOD[paths[path]]:
            conditions.append(Condition(path, constant, is_equal=is_equal))  # type: ignore[arg-type]  # Why: of both kinds.
    template = text("i/" + "/".join(f"{{f{number}:{codec}}}" for number, codec in enumerate(codecs)))
    index = IndexSpec("i", template, "t", True, SHAPE, tuple(components), tuple(conditions))
    form = value_form_of(record, is_text=True)
    made = table("t", text("t/{id:text}"))
    return layout(type(made)(made.name, made.template, made.key, form), index), whole


def _maker(rng: Random, kind: str) -> Any:
    chosen = rng.choice(DEFAULTS[kind])
    return lambda: list(chosen) if isinstance(chosen, list) else chosen


def lacking(whole: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for name in whole:
        yield name, {other: value for other, value in whole.items() if other != name}
    for name in whole["inner"]:
        rest = {other: value for other, value in whole["inner"].items() if other != name}
        yield f"inner.{name}", {**whole, "inner": rest}


def refusals(spec: LayoutSpec) -> Callable[[dict[str, Any]], bool]:
    """A function that tells whether the index refuses a stored record."""
    entries, decode = layout_class_of(spec).bound().indexes["i"].entries, spec.tables["t"].form.decode

    def is_refused(stored: dict[str, Any]) -> bool:
        try:
            entries(("k",), decode(msgspec.json.encode(stored)))
        except RecordError:
            return True
        return False

    return is_refused


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_default_is_found_exactly_where_a_record_without_the_field_is_refused(seed: int) -> None:
    spec, whole = random_case(seed)
    is_refused = refusals(spec)
    assert not is_refused(whole)
    expected = {("i", path) for path, stored in lacking(whole) if is_refused(stored)}
    assert set(told(spec)) == expected, (spec.indexes["i"], spec.tables["t"].form.describe())


def test_the_random_cases_are_of_both_sorts() -> None:
    found = [bool(told(random_case(seed)[0])) for seed in range(SEEDS)]
    assert SEEDS / 5 < sum(found) < SEEDS * 4 / 5
