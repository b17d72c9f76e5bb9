"""What stands in a layout class: tables, indexes, counters, parameters of the root; and how each becomes data.

Read declare.py first. Each item is a descriptor: on the class it is the declaration, on a bound instance its operations.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final, Generic, NamedTuple, Protocol, Self, TypeVar, cast, overload

from keyplan.codec import Element, ValueForm, value_form_of
from keyplan.errors import LayoutError, UnknownNameError
from keyplan.layout.access import CounterView, IndexView, TableView, UniqueView
from keyplan.layout.async_access import AsyncCounterView, AsyncIndexView, AsyncTableView, AsyncUniqueView
from keyplan.layout.components import index_components, index_conditions
from keyplan.layout.embedded_keys import embedded_keys_of
from keyplan.layout.fields import FieldType, key_shape_of, key_types, resolve_template
from keyplan.layout.modes import Async, Sync, Use_co
from keyplan.layout.spec import CounterSpec, IndexSpec, ItemSpec, KeyShape, TableSpec, fields_as_they_are
from keyplan.layout.template import Template

__all__ = ["RESERVED_NAMES", "Counter", "Index", "Item", "Only", "Parameter", "Table", "Unique"]

K = TypeVar("K")
V = TypeVar("V")
Q = TypeVar("Q")
OwnKey = TypeVar("OwnKey")

RESERVED_NAMES: Final = frozenset(
    {"bound", "meaning", "over", "revision", "run", "snapshot", "spec", "transaction", "view", "waivers"}
)
"""What a layout instance has of its own."""


class BoundInstance(Protocol[Use_co]):
    """A layout bound to something, as its items see it: the use decides what they answer."""

    @property
    def _use(self) -> type[Use_co]:
        """Sync or Async."""
        ...

    @property
    def _binding(self) -> Any:
        """What makes its views."""
        ...

    @property
    def _bound(self) -> Any:
        """The layout, compiled under its root."""
        ...

    def view(self, name: str, /) -> Any:
        """Return the operations on the item of that name."""
        ...


class Only(NamedTuple):
    """The key of a template without fields: `Table("bootstrap", key=Only, value=bytes)`, read with `get(Only())`."""


class Parameter:
    """A field of a layout's root, with its default: `namespace = Parameter("", Text(...))` for a root with `{namespace}`.

    Without a default the parameter must be given when the layout is bound. The codec may stand in the root's template instead.
    """

    def __init__(self, default: object = None, element: Element[Any] | None = None) -> None:
        self.default = default
        self.element = element


class Item(ABC):
    """What tables, indexes and counters have in common: a template, and the name they are declared under."""

    name: str
    template: str | bytes
    note: str

    def __set_name__(self, _owner: type, name: str) -> None:
        self.name = name

    @abstractmethod
    def make_spec(self, tables: Mapping[str, TableSpec], *, is_text: bool) -> ItemSpec:
        """Return the item as data. `tables` are those declared before it. Raises LayoutError, TemplateError."""


class Table(Item, Generic[K, V]):
    """Records of one kind: one key, one value each.

    template: the key below the layout's root, `"rack/{rack}/blades/{blade}"`; a bytes template for binary keys.
    key: a NamedTuple whose fields are the template's in order, or the type of its only field, or Only.
    value: the type of the records; None for keys without a value.
    form: how records are stored: "json" (the default for classes), "msgpack", or a ValueForm of your own.
    lease: True when each record lives as long as its holder; index entries hang on the same lease.
    place: the key fields by which a ring of databases places the records.
    holds_keys: attributes that hold whole keys, dotted for nested ones, "" for the value itself: text, bytes, or collections of
        them. A restore below another prefix rewrites them.
    sealed: False when programs that know nothing of keyplan read or write the records: their secrets are masked, and never
        sealed in the store.
    """

    @overload
    def __init__(
        self,
        template: str | bytes,
        *,
        key: type[K],
        value: type[V],
        form: str | ValueForm[V] | None = None,
        lease: bool = False,
        place: str | tuple[str, ...] = (),
        note: str = "",
        holds_keys: str | tuple[str, ...] = (),
        sealed: bool = True,
    ) -> None: ...

    @overload
    def __init__(
        self: "Table[OwnKey, None]",
        template: str | bytes,
        *,
        key: type[OwnKey],
        value: None,
        form: None = None,
        lease: bool = False,
        place: str | tuple[str, ...] = (),
        note: str = "",
        holds_keys: str | tuple[str, ...] = (),
        sealed: bool = True,
    ) -> None: ...

    def __init__(
        self,
        template: str | bytes,
        *,
        key: object,
        value: object,
        form: str | ValueForm[Any] | None = None,
        lease: bool = False,
        place: str | tuple[str, ...] = (),
        note: str = "",
        holds_keys: str | tuple[str, ...] = (),
        sealed: bool = True,
    ) -> None:
        self.template = template
        self.key = key
        self.value = value
        self.holds_keys = (holds_keys,) if isinstance(holds_keys, str) else holds_keys
        self.form = form
        self.has_lease = lease
        self.place = (place,) if isinstance(place, str) else place
        self.note = note
        self.is_sealed = sealed

    @overload
    def __get__(self, layout: None, owner: type) -> Self: ...

    @overload
    def __get__(self, layout: BoundInstance[Sync], owner: type) -> TableView[K, V]: ...

    @overload
    def __get__(self, layout: BoundInstance[Async], owner: type) -> AsyncTableView[K, V]: ...

    def __get__(self, layout: BoundInstance[Any] | None, owner: type) -> object:
        if layout is None:
            return self
        # Why not by the layout's `view`, as others: a service binds a layout anew for each request, and its tables with it.
        made = vars(layout)[self.name] = layout._binding.table_view(layout._bound.tables[self.name])  # noqa: SLF001
        return made

    def make_spec(self, tables: Mapping[str, TableSpec], *, is_text: bool) -> TableSpec:  # Why: an index needs it.
        template = resolve_template(
            self.template, lambda names: key_types(self.key, names, item=self.name), is_text=is_text, item=self.name
        )
        for placed in self.place:
            _check_place(placed, template, self.name)
        form = value_form_of(self.value, form=self.form, is_text=is_text)
        held = embedded_keys_of(self.holds_keys, form, self.name)
        shape = key_shape_of(self.key)
        return TableSpec(
            self.name, template, shape, form, self.has_lease, self.place, self.note, held, is_sealed=self.is_sealed
        )


class _AnyIndex(Item, Generic[Q, K, V]):
    """The declaration that Unique and Index share.

    template: the entry's key below the root. Its fields are attributes of the record, or fields of the primary key, of the
        same name.
    of: the table. key: the type of the index's own fields: a NamedTuple in template order, or a scalar.
    bind: where a field comes from when its name is not the attribute's: {"condition": "details.condition"}.
    each: fields that take each item of a collection, with an entry for each: {"tag": "tags"}; {("name", "value"): "labels"}
        for a mapping or pairs; {"name": "labels[].key", "value": "labels[].text"} for records.
    when: entries exist only while these attributes have these values: {"project": None}, {"project": Unlike("")}.
    on: a function (key, record) -> index fields, a list of them, or None, in place of attributes. It needs a `version`, to be
        raised whenever the function's answers change, because a function cannot be compared.

    There is no entry while any of its fields is None.
    """

    is_unique: ClassVar[bool]

    def __init__(
        self,
        template: str | bytes,
        *,
        of: Table[K, V],
        key: type[Q],
        bind: Mapping[str, str] | None = None,
        each: Mapping[str | tuple[str, ...], str] | None = None,
        when: Mapping[str, object] | None = None,
        on: Callable[[K, V], object] | None = None,
        version: int = 0,
        note: str = "",
    ) -> None:
        self.template = template
        self.of = of
        self.key = key
        self.bind = dict(bind or {})
        self.each = dict(each or {})
        self.when = dict(when or {})
        self.on = on
        self.version = version
        self.note = note

    def make_spec(self, tables: Mapping[str, TableSpec], *, is_text: bool) -> IndexSpec:
        table = tables.get(getattr(self.of, "name", ""))
        if table is None:
            raise UnknownNameError(
                kind="table",
                name=getattr(self.of, "name", "?"),
                item=self.name,
                known=list(tables),
                problem="declare the table first",
            )
        if self.on is not None and self.version < 1:
            raise LayoutError(
                item=self.name, problem="an index with a function needs version=1, raised when the function changes"
            )
        if self.on is not None and (self.when or self.each):
            raise LayoutError(
                item=self.name,
                problem="an index with a function takes no when= and no each=: let the function return None, or a list",
            )
        template = resolve_template(
            self.template, lambda names: self._field_types(names, table), is_text=is_text, item=self.name
        )
        return IndexSpec(
            self.name,
            template,
            table.name,
            self.is_unique,
            self._shape(),
            index_components(self, template, table),
            index_conditions(self, table),
            self.version,
            cast("Callable[[object, object], object] | None", self.on),
            self.note,
        )

    def _field_types(self, names: list[str], table: TableSpec) -> dict[str, FieldType]:
        primary = {field.name: FieldType(field.element.value_type, field.element) for field in table.template.fields}
        own = self._own_names(names, list(primary))
        return {
            **{name: kind for name, kind in primary.items() if name not in own},
            **key_types(self.key, own, item=self.name),
        }

    @abstractmethod
    def _own_names(self, names: list[str], primary: list[str]) -> list[str]:
        """The fields that `key` declares, out of the template's. Raises LayoutError."""

    @abstractmethod
    def _shape(self) -> KeyShape:
        """The shape of the entry's whole key."""


class Unique(_AnyIndex[Q, K, V]):
    """An index with at most one record for each key; the entry's value is the record's primary key.

    See the parameters at the class it extends; `key` has all the template's fields.
    """

    is_unique = True

    @overload
    def __get__(self, layout: None, owner: type) -> Self: ...

    @overload
    def __get__(self, layout: BoundInstance[Sync], owner: type) -> UniqueView[Q, K, V]: ...

    @overload
    def __get__(self, layout: BoundInstance[Async], owner: type) -> AsyncUniqueView[Q, K, V]: ...

    def __get__(self, layout: BoundInstance[Any] | None, owner: type) -> object:
        return self if layout is None else layout.view(self.name)

    def _own_names(self, names: list[str], primary: list[str]) -> list[str]:  # Why: Index needs it.
        return names

    def _shape(self) -> KeyShape:
        return key_shape_of(self.key)


class Index(_AnyIndex[Q, K, V]):
    """An index with any number of records for each key; entries have no value.

    See the parameters at the class it extends; the template ends in the primary key's fields, and `key` has those before them:
    what `list` takes, in order.
    """

    is_unique = False

    @overload
    def __get__(self, layout: None, owner: type) -> Self: ...

    @overload
    def __get__(self, layout: BoundInstance[Sync], owner: type) -> IndexView[K, V]: ...

    @overload
    def __get__(self, layout: BoundInstance[Async], owner: type) -> AsyncIndexView[K, V]: ...

    def __get__(self, layout: BoundInstance[Any] | None, owner: type) -> object:
        return self if layout is None else layout.view(self.name)

    def _own_names(self, names: list[str], primary: list[str]) -> list[str]:
        own = len(names) - len(primary)
        if own < 0 or names[own:] != primary:
            raise LayoutError(
                item=self.name,
                problem="the template of an Index ends in the primary key's fields, in order",
                primary_key=primary,
                template=names,
            )
        return names[:own]

    def _shape(self) -> KeyShape:
        return KeyShape("tuple", is_scalar=False, make=fields_as_they_are)


class Counter(Item):
    """A number handed out in order: `Counter("routing/nextport", start=33000)`. The template has no fields."""

    def __init__(self, template: str | bytes, *, start: int = 0, note: str = "") -> None:
        self.template = template
        self.start = start
        self.note = note

    @overload
    def __get__(self, layout: None, owner: type) -> Self: ...

    @overload
    def __get__(self, layout: BoundInstance[Sync], owner: type) -> CounterView: ...

    @overload
    def __get__(self, layout: BoundInstance[Async], owner: type) -> AsyncCounterView: ...

    def __get__(self, layout: BoundInstance[Any] | None, owner: type) -> object:
        return self if layout is None else layout.view(self.name)

    def make_spec(self, tables: Mapping[str, TableSpec], *, is_text: bool) -> CounterSpec:  # Why: an index needs it.
        template = resolve_template(self.template, lambda _names: {}, is_text=is_text, item=self.name)
        if template.fields:
            raise LayoutError(item=self.name, problem="a counter's template has no fields")
        start: object = self.start
        if not isinstance(start, int) or isinstance(start, bool) or not 0 <= start < 1 << 63:
            raise LayoutError(
                item=self.name, problem="a counter starts between 0 and 2^63 - 1, at a whole number", start=self.start
            )
        return CounterSpec(self.name, template, self.start, self.note)


def _check_place(placed: str, template: Template, item: str) -> None:
    name, _, attribute = placed.partition(".")
    elements = {field.name: field.element for field in template.fields}
    if name not in elements:
        raise UnknownNameError(kind="field", name=name, item=item, known=list(elements))
    if attribute and attribute not in elements[name].attributes:
        raise UnknownNameError(kind="attribute", name=placed, item=item, known=sorted(elements[name].attributes))
