"""Areas: the whole store, and each key space as a store of its own; the layouts by which each is read.

All as somebody sees it who may not see everything: what is outside is not there.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from keyplan.engine import Engine, PrefixedEngine, ReadOnlyEngine
from keyplan.errors import CorruptionError, KeySpaceDeletedError, KeySpaceNotFoundError, UnknownNameError
from keyplan.keyspace import (
    KeySpace,
    KeySpacePage,
    KeySpaceRegistry,
    KeySpaces,
    Owner,
    OwnerKind,
    Quota,
    Sees,
    State,
    Unmanaged,
    UsageCount,
    share_for_care,
    unmanaged,
)
from keyplan.layout import BoundIndex, BoundLayout, BoundTable, holds_secrets
from keyplan.maintenance import Quarantine
from keyplan.server.confined import CallerStore
from keyplan.server.explorer.layouts import LayoutBook, ShownLayout, registry_layout
from keyplan.server.explorer.links import WHOLE_STORE, AreaLinks

__all__ = ["Area", "Areas", "SeenKeySpaces"]


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


_OWN_LAYOUT: Final = registry_layout()
_SET_ASIDE: Final = Quarantine.bound()
"""What was set aside, of any record: as keyplan keeps it in each store and each key space."""

_RAW_HEADER: Final = _OWN_LAYOUT.bound.table("header").keys.prefix(())


class SeenKeySpaces:
    """The registry of key spaces as far as somebody sees it: others' are not there. Each call sees it as it is then."""

    def __init__(self, engine: Engine, sees: Sees) -> None:
        """Read a registry, which is all that need be reached of the store. `sees` is as for KeySpaces."""
        self._engine: Engine = ReadOnlyEngine(engine, closes_inner=False)
        self._all = KeySpaces(self._engine, sees=sees)
        self._sees = sees

    def is_there(self) -> bool:
        """Tell whether key spaces are registered in the store."""
        # Why not read: who looks for what is wrong with a damaged registry must get to its keys.
        return self._engine.value(_RAW_HEADER) is not None

    def get(self, name: str) -> KeySpace:
        """Return a key space. Raises KeySpaceNotFoundError, KeySpaceDeletedError."""
        if not self.is_there():
            raise KeySpaceNotFoundError(name=name, problem="no key spaces are registered in this store")
        keyspace = self._all.get(name)
        if not self._sees(name, keyspace.application):
            raise KeySpaceNotFoundError(name=name)
        if keyspace.state is State.DELETED:
            raise KeySpaceDeletedError(name=name)
        return keyspace

    def page(self, token: str, *, limit: int) -> KeySpacePage:
        """Return a page of them. Raises InvalidArgumentError for the token."""
        return self._all.list(limit=limit, page_token=token)

    def owner_of(self, raw_key: bytes) -> Owner | None:
        """Return whose a key is; None where the registry cannot tell, and where it is another's."""
        try:
            owner = self._owner_at(raw_key)
        except CorruptionError:
            return None
        if owner is None or owner.keyspace is None:
            return owner
        return owner if self._sees(owner.keyspace.name, owner.keyspace.application) else None

    def keyspace_at(self, raw_key: bytes) -> KeySpace | None:
        """Return the key space that a key lies in, seen or not: for what is masked, and not for what is shown.

        Raises CorruptionError where the registry cannot tell.
        """
        owner = self._owner_at(raw_key)
        return None if owner is None else owner.keyspace

    def _owner_at(self, raw_key: bytes) -> Owner | None:
        return self._all.owner_of(raw_key) if self.is_there() else None

    def figures_of(self, keyspace: KeySpace) -> tuple[UsageCount | None, Quota | None]:
        """Return the registry's own count of what a key space holds, and its quota."""
        registry = KeySpaceRegistry(self._all.store)
        kept = registry.usage.get(keyspace.name)
        if kept is not None and kept.generation != keyspace.generation:
            kept = None
        return kept, registry.quotas.get(keyspace.name)

    def unmanaged(self, shown: Engine) -> Iterator[Unmanaged]:
        """Yield what `shown` has of the keys that are in no key space."""
        return unmanaged(self._engine, shown=shown)


class Areas:
    """The areas of one store, as somebody sees it whose store this is."""

    def __init__(self, store: CallerStore, registry: SeenKeySpaces, book: LayoutBook) -> None:
        self.engine: Engine = ReadOnlyEngine(store.shown, closes_inner=False)
        self.book = book
        self.registry = registry
        self._store = store

    def whole(self) -> Area:
        """Return the area of all keys: with the registry's own layout where there is one, and may be seen."""
        layouts = list(self.book.given)
        is_shown = self._store.reach().at(_RAW_HEADER) is not None and self.registry.is_there()
        if is_shown and not any(shown.bound.name == _OWN_LAYOUT.bound.name for shown in layouts):
            layouts.append(_OWN_LAYOUT)
        return Area(WHOLE_STORE, self.engine, layouts)

    def of_keyspace(self, keyspace: KeySpace) -> Area:
        """Return the area of a key space."""
        share: Engine
        if self._store.is_whole:
            # Why of the caller's store all the same: a stream goes on after their grants were taken away.
            share = share_for_care(self.engine, keyspace, closes_engine=False)
        else:
            # Why without its own fence: the store that is confined judges the fences of all that it shows.
            share = PrefixedEngine(self.engine, keyspace.raw_prefix, closes_inner=False)
        layouts = self.book.of_keyspace(keyspace.name, keyspace.application)
        return Area(keyspace.name, share, layouts, keyspace)

    def named(self, name: str) -> Area:
        """Return the area of that name. Raises KeySpaceNotFoundError, KeySpaceDeletedError."""
        return self.whole() if name == WHOLE_STORE else self.of_keyspace(self.registry.get(name))

    def unmanaged(self) -> Iterator[Unmanaged]:
        """Yield what is in no key space. Raises CorruptionError when the registry's header is lost."""
        return self.registry.unmanaged(self.engine)

    def owner_of(self, raw_key: bytes) -> Owner | None:
        """Say whose a key of the whole store is; None where nothing tells, or it is not to be seen."""
        return None if self._store.reach().at(raw_key) is None else self.registry.owner_of(raw_key)

    def is_masked(self, area: Area, raw_key: bytes) -> bool:
        """Tell whether the bytes at a key of an area hold secrets by any layout that is known here, its key space's too.

        True where the registry cannot tell whose a key is that may be a key space's.
        """
        if holds_secrets((*area.bounds, _SET_ASIDE), raw_key):
            return True
        if area.keyspace is not None or raw_key.startswith(_OWN_LAYOUT.bound.root):
            return False
        try:
            keyspace = self.registry.keyspace_at(raw_key)
        except CorruptionError:
            return True
        if keyspace is None:
            return False
        layouts = [shown.bound for shown in self.book.of_keyspace(keyspace.name, keyspace.application)]
        return holds_secrets((*layouts, _SET_ASIDE), raw_key[len(keyspace.raw_prefix) :])

    def home_of(self, raw_key: bytes) -> tuple[Area, bytes]:
        """Return where a key of the whole store is best looked at: in its key space, when no layout knows it as it stands."""
        whole = self.whole()
        if any(bound.meaning(raw_key).is_known for bound in whole.bounds):
            return whole, raw_key
        owner = self.owner_of(raw_key)
        if owner is None or owner.kind is not OwnerKind.KEYSPACE or owner.keyspace is None:
            return whole, raw_key
        return self.of_keyspace(owner.keyspace), raw_key[len(owner.keyspace.raw_prefix) :]
