"""Areas: the whole store, and each key space as a store of its own; the layouts by which each is read."""

from collections.abc import Sequence
from typing import NamedTuple

from keyplan.engine import Engine, ReadOnlyEngine
from keyplan.errors import CorruptionError, KeySpaceDeletedError, KeySpaceNotFoundError, UnknownNameError
from keyplan.keyspace import KeySpace, KeySpaces, Owner, OwnerKind, State, share_for_care
from keyplan.layout import BoundIndex, BoundLayout, BoundTable
from keyplan.server.explorer.layouts import LayoutBook, ShownLayout, registry_layout
from keyplan.server.explorer.links import WHOLE_STORE, AreaLinks

__all__ = ["Area", "Areas"]


class Area(NamedTuple):
    """A part of the store that is looked at by itself: keys are those within it. Nothing can be written through `engine`."""

    name: str
    engine: Engine
    layouts: Sequence[ShownLayout]
    keyspace: KeySpace | None = None

    @property
    def links(self) -> AreaLinks:
        """Where its pages are."""
        return AreaLinks(self.name)

    @property
    def title(self) -> str:
        """What people call it."""
        return "the whole store" if self.keyspace is None else f"key space {self.name}"

    @property
    def bounds(self) -> list[BoundLayout]:
        """The layouts without their labels."""
        return [shown.bound for shown in self.layouts]

    def layout(self, label: str) -> BoundLayout:
        """Return the layout of that label. Raises UnknownNameError."""
        for shown in self.layouts:
            if shown.label == label:
                return shown.bound
        raise UnknownNameError(kind="layout", name=label, known=[shown.label for shown in self.layouts])

    def label_of(self, bound: BoundLayout) -> str:
        """Return the label of one of its layouts."""
        return next(shown.label for shown in self.layouts if shown.bound is bound)

    def listable(self, label: str, name: str) -> BoundTable | BoundIndex:
        """Return a table or index. Raises UnknownNameError."""
        bound = self.layout(label)
        item = bound.tables.get(name) or bound.indexes.get(name)
        if item is None:
            raise UnknownNameError(
                kind="table or index", name=name, known=[*bound.tables, *bound.indexes], layout=bound.name
            )
        return item


class Areas:
    """The areas of one store. Each call sees the registry as it is then."""

    def __init__(self, engine: Engine, book: LayoutBook) -> None:
        self.engine: Engine = ReadOnlyEngine(engine, closes_inner=False)
        self.book = book
        self.registry = KeySpaces(self.engine)
        self._own_layout = registry_layout()
        self._raw_header = self._own_layout.bound.table("header").keys.prefix(())

    def has_registry(self) -> bool:
        """Tell whether key spaces are registered in the store."""
        # Why not read: who looks for what is wrong with a damaged registry must get to its keys.
        return self.engine.value(self._raw_header) is not None

    def whole(self) -> Area:
        """Return the area of all keys: with the registry's own layout where there is one."""
        layouts = list(self.book.given)
        if self.has_registry() and not any(shown.bound.name == self._own_layout.bound.name for shown in layouts):
            layouts.append(self._own_layout)
        return Area(WHOLE_STORE, self.engine, layouts)

    def of_keyspace(self, keyspace: KeySpace) -> Area:
        """Return the area of a key space."""
        share = share_for_care(self.engine, keyspace, closes_engine=False)
        layouts = self.book.of_keyspace(keyspace.name, keyspace.application)
        return Area(keyspace.name, share, layouts, keyspace)

    def named(self, name: str) -> Area:
        """Return the area of that name. Raises KeySpaceNotFoundError, KeySpaceDeletedError."""
        if name == WHOLE_STORE:
            return self.whole()
        if not self.has_registry():
            raise KeySpaceNotFoundError(name=name, problem="no key spaces are registered in this store")
        keyspace = self.registry.get(name)
        if keyspace.state is State.DELETED:
            raise KeySpaceDeletedError(name=name)
        return self.of_keyspace(keyspace)

    def owner_of(self, raw_key: bytes) -> Owner | None:
        """Say whose a key of the whole store is; None where nothing is registered, or the registry cannot be read."""
        if not self.has_registry():
            return None
        try:
            return self.registry.owner_of(raw_key)
        except CorruptionError:
            return None

    def home_of(self, raw_key: bytes) -> tuple[Area, bytes]:
        """Return where a key of the whole store is best looked at: in its key space, when no layout knows it as it stands."""
        whole = self.whole()
        if any(bound.meaning(raw_key).is_known for bound in whole.bounds):
            return whole, raw_key
        owner = self.owner_of(raw_key)
        if owner is None or owner.kind is not OwnerKind.KEYSPACE or owner.keyspace is None:
            return whole, raw_key
        return self.of_keyspace(owner.keyspace), raw_key[len(owner.keyspace.raw_prefix) :]
