"""A layout as data: what a Layout class declares, complete enough to encode, decode, lint and document without the class.

`declare.py` makes a LayoutSpec from a class, `describe.py` turns it to JSON and back, everything else reads it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Any, TypeAlias

from keyplan.codec import ValueForm
from keyplan.errors import UnknownNameError
from keyplan.layout.template import Template

__all__ = [
    "Component",
    "Condition",
    "CounterSpec",
    "EmbeddedKey",
    "IndexSpec",
    "ItemSpec",
    "KeyShape",
    "LayoutSpec",
    "Origin",
    "TableSpec",
    "Waiver",
    "fields_as_they_are",
]


@dataclass(frozen=True)
class KeyShape:
    """How key fields become a Python key: one scalar, or a NamedTuple of the fields in template order.

    `make` builds the key from its fields' values; `split` is its inverse. A template without fields has the empty tuple as key.
    """

    type_name: str
    is_scalar: bool
    make: Callable[..., object] = field(compare=False)

    def split(self, key: object) -> tuple[object, ...]:
        """Return the values of the key's fields, in template order."""
        return (key,) if self.is_scalar else tuple(key)  # type: ignore[arg-type]  # Why: a NamedTuple, checked on use.


def fields_as_they_are(*fields: object) -> tuple[object, ...]:
    """Make a plain tuple: the keys of an index entry that has no class of its own."""
    return fields


@dataclass(frozen=True)
class EmbeddedKey:
    """A place in stored values where whole keys stand: names as they are stored, none for the value as a whole.

    In JSON bytes are text in base64.
    """

    path: tuple[str, ...]
    is_base64: bool = False


@dataclass(frozen=True)
class TableSpec:
    """Records of one kind, one key each.

    `place` names the key fields (perhaps with an attribute) by which a ring of databases places a record. `has_lease` says
    that records hang on leases. `holds_keys` are the places in values where whole keys stand. Without `is_sealed`, secrets are
    masked and stay in clear in the store.
    """

    name: str
    template: Template
    key: KeyShape
    form: ValueForm[Any]
    has_lease: bool = False
    place: tuple[str, ...] = ()
    note: str = ""
    holds_keys: tuple[EmbeddedKey, ...] = ()
    is_sealed: bool = True


class Origin(Enum):
    """Where the value of an index field comes from."""

    KEY = "key"
    RECORD = "record"
    EACH = "each"
    FUNCTION = "function"


@dataclass(frozen=True)
class Component:
    """The source of one index field.

    KEY: the primary key's field `path`. RECORD: the record's attribute `path`, dotted for nested ones; an empty path is the
    whole record (a scalar). EACH: one item of the record's collection at `path`: the whole item when `item` is None, else the
    part of a pair at that place (items of a mapping are pairs) or the item's attribute of that name. FUNCTION: the next part
    of what the index's function returns.
    """

    origin: Origin
    path: str
    item: int | str | None = None


@dataclass(frozen=True)
class Condition:
    """A record has entries only while its attribute at `path` equals `constant`, or does not when `is_equal` is False."""

    path: str
    constant: str | int | bool | None
    is_equal: bool = True


@dataclass(frozen=True)
class IndexSpec:
    """Index entries that are kept in the commit of the record they point at.

    `components` gives a source for every template field, in template order. A unique entry's value is the primary key: its only
    field encoded as in the table's template or, for a key of several fields, the bytes of the table's key below the root. Other
    entries end in the primary key's fields and have no value. There is no entry when a component is None, nor when a
    condition in `when` does not hold.

    `function` with its `version` replaces declared components; only the version is part of the description.
    """

    name: str
    template: Template
    of: str
    is_unique: bool
    key: KeyShape
    components: tuple[Component, ...]
    when: tuple[Condition, ...] = ()
    version: int = 0
    function: Callable[[object, object], object] | None = field(default=None, compare=False)
    note: str = ""


@dataclass(frozen=True)
class CounterSpec:
    """A number handed out in order, stored as decimal text (text layout) or u64 (binary layout): the next one to give."""

    name: str
    template: Template
    start: int
    note: str = ""


ItemSpec: TypeAlias = TableSpec | IndexSpec | CounterSpec


@dataclass(frozen=True)
class Waiver:
    """One lint finding that is known and accepted: the rule, the items it is about in the order the finding names them, why.

    `items` is written as the finding prints it, e.g. "racks, blades".
    """

    rule: str
    items: str
    reason: str


@dataclass(frozen=True)
class LayoutSpec:
    """A layout as data. Templates of items are relative to `root`; `parameters` are the root's fields with their defaults.

    `sealed_as` is the name that its secrets are sealed with: the layout's own, unless several layouts have the same records.
    """

    name: str
    root: Template
    items: tuple[ItemSpec, ...]
    version: int = 1
    parameters: Mapping[str, object] = field(default_factory=dict)
    waivers: tuple[Waiver, ...] = ()
    note: str = ""
    sealed_as: str = ""

    def __post_init__(self) -> None:
        if not self.sealed_as:
            object.__setattr__(self, "sealed_as", self.name)

    @property
    def has_secrets(self) -> bool:
        """True when records of one of its tables hold secrets."""
        return any(table.form.secrets for table in self.tables.values())

    @property
    def is_text(self) -> bool:
        """Whether keys are text: str templates. Then scalar values are text as well."""
        return self.root.is_text

    @cached_property
    def tables(self) -> dict[str, TableSpec]:
        return {item.name: item for item in self.items if isinstance(item, TableSpec)}

    @cached_property
    def indexes(self) -> dict[str, IndexSpec]:
        return {item.name: item for item in self.items if isinstance(item, IndexSpec)}

    @cached_property
    def counters(self) -> dict[str, CounterSpec]:
        return {item.name: item for item in self.items if isinstance(item, CounterSpec)}

    def item(self, name: str) -> ItemSpec:
        """Return the table, index or counter of that name. Raises UnknownNameError listing those there are."""
        for item in self.items:
            if item.name == name:
                return item
        raise UnknownNameError(kind="item", name=name, known=[item.name for item in self.items], layout=self.name)
