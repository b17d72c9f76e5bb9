"""What an application writes: a Layout class with tables, indexes and counters.

Everything is checked when the class is made; each mistake is an error that names the item and the place. The instance side,
`CloudChamber(store).racks`, gives the operations of access.py.
"""

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from types import TracebackType
from typing import Any, ClassVar, Generic, Self, TypeVar, overload

from keyplan.codec import SecretCipher
from keyplan.errors import KeyplanError, LayoutError
from keyplan.layout.bound import BoundLayout, bind_layout
from keyplan.layout.fields import FieldType, resolve_template
from keyplan.layout.items import RESERVED_NAMES, Item, Parameter
from keyplan.layout.meaning import Meaning
from keyplan.layout.modes import Async, Bindable, Mode, Sync
from keyplan.layout.spec import ItemSpec, LayoutSpec, TableSpec, Waiver
from keyplan.layout.template import Template
from keyplan.limits import COMPILED_ROOTS_MAX

__all__ = ["Layout", "bound_layout_of", "layout_class_of"]

R = TypeVar("R")
SyncLayout = TypeVar("SyncLayout", bound="Layout[Sync]")
AsyncLayout = TypeVar("AsyncLayout", bound="Layout[Async]")


class _Revision:
    """The attribute `revision` of a layout instance: a number, or one that is awaited."""

    @overload
    def __get__(self, layout: None, owner: type) -> Self: ...

    @overload
    def __get__(self, layout: "Layout[Sync]", owner: type) -> int: ...

    @overload
    def __get__(self, layout: "Layout[Async]", owner: type) -> Awaitable[int]: ...

    def __get__(self, layout: "Layout[Any] | None", owner: type) -> object:
        return self if layout is None else layout._binding.revision  # noqa: SLF001  # Why: its own module.


class Layout(Generic[Mode]):
    """A key layout, declared once: subclass it, give the root, and assign tables, indexes and counters.

        class CloudChamber(Layout, root="/CloudChamber/V0.1/"):
            racks = Table("racks/{rack}", key=str, value=Rack)

    Class keywords: `root`, the template that every key begins with (str for text, bytes for binary layouts); `version`, a
    number that you raise with each change; `sealed_as`, the name that secrets are sealed with, where it is not that of the
    class or of the layout with secrets that it extends. A class attribute `waivers` lists the lint findings that are accepted.
    Raises LayoutError and TemplateError when the class is made.

    An instance is the layout bound to a store, a snapshot or a transaction: `CloudChamber(store)`; further keywords are the
    root's parameters. Raises InvalidKeyError when a parameter does not fit, LayoutMismatchError where the store refuses layouts
    that are not its own; see `Store`.

    Declared as `class CloudChamber(Layout[Mode], ...)` it is for stores of keyplan and of keyplan.aio, and type checkers know
    which: `CloudChamber[Async]` has awaited operations. Without `[Mode]` they take it for the synchronous use.
    """

    spec: ClassVar[LayoutSpec]
    _compiled: ClassVar[dict[tuple[SecretCipher | None, tuple[tuple[str, type, object], ...]], BoundLayout]]
    waivers: ClassVar[tuple[Waiver, ...]] = ()
    _binding: Any
    _bound: BoundLayout

    revision = _Revision()
    """The latest revision of the store, the snapshot's own, or that of the transaction's commit (0 before it)."""

    def __init_subclass__(
        cls,
        *,
        root: str | bytes | None = None,
        version: int | None = None,
        sealed_as: str | None = None,
        **keywords: object,
    ) -> None:
        super().__init_subclass__(**keywords)
        _refuse_reserved_names(cls)
        cls._compiled = {}
        inherited = getattr(cls, "spec", None)
        if root is None and inherited is None:
            root = b"" if _is_binary(cls) else ""
        cls.spec = _layout_spec(cls, root, version, sealed_as, inherited)

    def __init__(self, binding: Bindable[Mode], /, **parameters: object) -> None:
        self._binding = binding
        self._bound = self.bound(binding.secrets, **parameters)
        if binding.known_layouts is not None and self._bound not in binding.known_layouts:
            binding.check_layout(self._bound)

    def over(self, binding: Bindable[Mode]) -> Self:
        """Return this layout, under the same root, bound to something else: a transaction that several layouts share."""
        other = object.__new__(type(self))
        other._binding, other._bound = binding, self._bound
        return other

    @property
    def _use(self) -> type[Mode]:
        use: type[Mode] = self._binding.use
        return use

    @classmethod
    def bound(cls, secrets: SecretCipher | None = None, /, **parameters: object) -> BoundLayout:
        """Return the layout compiled under its root, without a store: to build, read and explain raw keys.

        `secrets` are the keys that its instances on a store with keys seal with.
        Compiling takes milliseconds, so that the layouts of the roots used last are kept.
        """
        # Why: with the types, because 1 and True are equal and not the same parameter.
        root = tuple((name, type(value), value) for name, value in sorted(parameters.items())) if parameters else ()
        known = (secrets, root)
        try:
            kept = cls._compiled.pop(known, None)
        except TypeError:
            # Why: what cannot be hashed fits no codec; binding says which.
            return bind_layout(cls.spec, parameters, cipher=secrets)
        cls._compiled[known] = compiled = kept or bind_layout(cls.spec, parameters, cipher=secrets)
        if len(cls._compiled) > COMPILED_ROOTS_MAX:
            cls._compiled.pop(next(iter(cls._compiled)), None)
        return compiled

    @overload
    def transaction(self: SyncLayout) -> AbstractContextManager[SyncLayout]: ...

    @overload
    def transaction(self: AsyncLayout) -> AbstractAsyncContextManager[AsyncLayout]: ...

    def transaction(self) -> Any:
        """Begin a transaction: the block gets this layout bound to it, and it commits when the block ends without an error.

        Raises CommitConflictError when another writer came between; `run` tries again instead.
        """
        return _Block(self, self._binding.begin())

    @overload
    def snapshot(self: SyncLayout) -> AbstractContextManager[SyncLayout]: ...

    @overload
    def snapshot(self: AsyncLayout) -> AbstractAsyncContextManager[AsyncLayout]: ...

    def snapshot(self) -> Any:
        """Pin one state of the store: within the block all reads see it. Writes raise UnsupportedByEngineError."""
        return _Block(self, self._binding.pinned())

    @overload
    def run(self: SyncLayout, work: Callable[[SyncLayout], R]) -> R: ...

    @overload
    def run(self: AsyncLayout, work: Callable[[AsyncLayout], Awaitable[R]]) -> Coroutine[Any, Any, R]: ...

    def run(self, work: Callable[[Any], Any]) -> Any:
        """Run `work` in a transaction and commit it, again and again while it loses races, with bounded, growing waits.

        `work` may be called several times: it must do nothing but read and write through what it is given. Raises what `work`
        raises, CommitConflictError when the bound is reached, CommitOutcomeUnknownError at once.
        """
        return self._binding.attempt(lambda binding: work(self.over(binding)))

    def meaning(self, raw_key: bytes) -> Meaning:
        """Say what a raw key is in this layout. Never fails."""
        return self._bound.meaning(raw_key)

    def view(self, name: str) -> Any:
        """Return the operations on the table, index or counter of that name. Raises UnknownNameError.

        The answer is kept in the instance, where it hides the descriptor from then on.
        """
        bound = self._bound
        view: object
        if name in bound.tables:
            view = self._binding.table_view(bound.tables[name])
        elif name in bound.counters:
            view = self._binding.counter_view(bound.counters[name])
        elif name not in bound.indexes:
            return self.spec.item(name)  # which raises, and names the items there are
        elif bound.indexes[name].spec.is_unique:
            view = self._binding.unique_view(bound.indexes[name])
        else:
            view = self._binding.index_view(bound.indexes[name])
        self.__dict__[name] = view
        return view


class _Block:
    """A block of a binding, in either use: it gives the layout over what the block gives."""

    def __init__(self, layout: Layout[Any], block: Any) -> None:
        self._layout = layout
        self._block = block

    def __enter__(self) -> Layout[Any]:
        return self._layout.over(self._block.__enter__())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        answer: bool | None = self._block.__exit__(kind, error, trace)
        return answer

    async def __aenter__(self) -> Layout[Any]:
        return self._layout.over(await self._block.__aenter__())

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        answer: bool | None = await self._block.__aexit__(kind, error, trace)
        return answer


def _items_of(cls: type) -> dict[str, Item]:
    """The items of a layout class and its bases, in the order declared. A class that sets a name to None has no such item."""
    found: dict[str, Item] = {}
    for kind in reversed(cls.__mro__):
        for name, value in vars(kind).items():
            if isinstance(value, Item):
                found[name] = value
            elif value is None:
                found.pop(name, None)
    return found


def _refuse_reserved_names(cls: type) -> None:
    # Why: not in __set_name__, whose errors Python 3.11 hides in a RuntimeError.
    for name in _items_of(cls):
        if name in RESERVED_NAMES or name.startswith("_"):
            raise LayoutError(
                layout=cls.__name__, item=name, problem="the name is one of keyplan's own; choose another"
            )


def _is_binary(cls: type) -> bool:
    return any(isinstance(item.template, bytes) for item in _items_of(cls).values())


def _layout_spec(
    cls: type[Layout[Any]],
    root: str | bytes | None,
    version: int | None,
    sealed_as: str | None,
    inherited: LayoutSpec | None,
) -> LayoutSpec:
    parameters = {
        name: value
        for kind in reversed(cls.__mro__)
        for name, value in vars(kind).items()
        if isinstance(value, Parameter)
    }
    try:
        root_template = _root_template(root, parameters) if root is not None or inherited is None else inherited.root
        specs: list[ItemSpec] = []
        tables: dict[str, TableSpec] = {}
        for item in _items_of(cls).values():
            spec = item.make_spec(tables, is_text=root_template.is_text)
            specs.append(spec)
            if isinstance(spec, TableSpec):
                tables[spec.name] = spec
    except KeyplanError as error:
        if "layout" not in error.facts:
            error.facts = {"layout": cls.__name__, **error.facts}
        raise
    return LayoutSpec(
        name=cls.__name__,
        root=root_template,
        items=tuple(specs),
        version=version if version is not None else inherited.version if inherited is not None else 1,
        parameters={name: given.default for name, given in parameters.items() if given.default is not None},
        waivers=tuple(cls.waivers),
        note=(cls.__doc__ or "").strip().split("\n\n")[0] if cls.__doc__ else "",
        # Why the base's: a class that adds to a layout has its records. Why not of one without secrets: two applications may
        # share it, and what one of them seals must not open in the other.
        sealed_as=sealed_as or (inherited.sealed_as if inherited and _names_secrets(inherited) else cls.__name__),
    )


def _names_secrets(spec: LayoutSpec) -> bool:
    """Whether a layout says what those that extend it seal with: it has secrets, or was given a name for them."""
    return spec.has_secrets or spec.sealed_as != spec.name


def _root_template(root: str | bytes | None, parameters: Mapping[str, Parameter]) -> Template:
    source = root if root is not None else ""

    def types(names: list[str]) -> dict[str, FieldType]:
        for name in parameters:
            if name not in names:
                raise LayoutError(item=name, problem="the root has no field of this parameter's name", root=source)
        default_type = str if isinstance(source, str) else bytes
        elements = {name: parameters.get(name, Parameter()).element for name in names}
        return {name: FieldType(object if element else default_type, element) for name, element in elements.items()}

    return resolve_template(source, types, is_text=isinstance(source, str), item="root")


def bound_layout_of(layout: Layout[Any] | BoundLayout) -> BoundLayout:
    """Return the compiled layout of an instance, under the instance's root; a compiled layout as it is."""
    return layout._bound if isinstance(layout, Layout) else layout  # noqa: SLF001  # Why: its own module.


def layout_class_of(spec: LayoutSpec) -> type[Layout]:
    """Return a Layout class for a layout that came as data: its items are reached by `view(name)`, records are plain values."""
    kind: type[Layout] = type(spec.name, (Layout,), {})
    kind.spec = spec
    return kind
