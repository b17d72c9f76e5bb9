"""One deployment that is served: its store with the layouts on it, what it was told, and the types that it knows."""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, NamedTuple
from uuid import UUID

from keyplan.apps.runm.layout import ObjectSubType, Runm, RunmBeside
from keyplan.apps.runm.records import Object, ObjectType, ObjectTypeScope, ProviderType
from keyplan.errors import CorruptionError
from keyplan.layout import Binding, BoundLayout
from keyplan.store import Store

__all__ = ["GENERATION_MAX", "PROVIDER", "Deployment", "Rulings", "State", "Stored", "generation_of"]

PROVIDER: Final = "runm.provider"
"""The object type that has sub-types."""

GENERATION_MAX: Final = 2**32 - 1


@dataclass(frozen=True, slots=True)
class Rulings:
    """What an operator may decide.

    has_enforced_definitions: whether `object_create` and updates check properties by definitions that somebody has set.
    is_isolated: whether a session can search and write in its own partition and project alone.
    bootstrap_token: the token that makes the first partition; empty: no token is asked for, and none is stored.
    """

    has_enforced_definitions: bool = False
    is_isolated: bool = False
    bootstrap_token: str = ""


class Stored(NamedTuple):
    """An object with its generation, which is the engine's count of its writes, and the revision of the last of them."""

    record: Object
    generation: int
    revision: int


class State(NamedTuple):
    """Both layouts bound to one thing: a snapshot, or a transaction."""

    runm: Runm
    beside: RunmBeside

    @property
    def is_empty(self) -> bool:
        """Whether there is no partition yet."""
        return next(self.runm.partitions.keys(limit=1), None) is None


@dataclass
class Deployment:
    """A store with the metadata of one deployment below `prefix`, the root's parameter. Safe for use by several threads."""

    store: Store
    prefix: str = ""
    rulings: Rulings = field(default_factory=Rulings)

    def __post_init__(self) -> None:
        self.runm = Runm(self.store, prefix=self.prefix)
        self.beside = RunmBeside(self.store, prefix=self.prefix)
        self.bound: BoundLayout = Runm.bound(prefix=self.prefix)
        self._object_types: dict[str, ObjectType] = {}

    def over(self, binding: Binding) -> State:
        """Return the layouts bound to a snapshot or a transaction."""
        return State(self.runm.over(binding), self.beside.over(binding))

    @contextmanager
    def reading(self) -> Generator[State, None, None]:
        """Pin one state of the store for the length of a block."""
        with self.store.snapshot() as pinned:
            yield self.over(pinned)

    # ---- types: immutable once made, so that they are kept --------------------------------------------------------------

    def object_type(self, code: str) -> ObjectType | None:
        """Return the object type of that code."""
        known = self._object_types.get(code)
        if known is None:
            self._object_types = self._read_types()
            known = self._object_types.get(code)
        return known

    def object_types(self) -> Mapping[str, ObjectType]:
        """Return every object type by code."""
        self._object_types = self._read_types()
        return self._object_types

    def _read_types(self) -> dict[str, ObjectType]:
        # Why: a new dictionary takes the old one's place at once, so that no other thread sees half of it.
        return dict(self.runm.object_types.list())

    def provider_type(self, code: str) -> ProviderType | None:
        """Return the provider type of that code."""
        return self.runm.sub_types.get(ObjectSubType(PROVIDER, code))

    def has_project(self, record: Object) -> bool:
        """Whether names of this object's type belong to projects; by the object itself where the type is gone."""
        kind = self.object_type(record.object_type)
        return bool(record.project) if kind is None else kind.scope is ObjectTypeScope.PROJECT

    # ---- objects with their generation ----------------------------------------------------------------------------------

    def stored_objects(self, uuids: Sequence[UUID]) -> list[Stored | CorruptionError | None]:
        """Return each object, None where there is none, or the error in the place of one that cannot be read."""
        table = self.bound.table("objects")
        with self.store.engine.snapshot() as snapshot:
            entries = snapshot.get_many([table.keys.encode(uuid) for uuid in uuids])
        found: list[Stored | CorruptionError | None] = []
        for entry in entries:
            if entry is None:
                found.append(None)
                continue
            try:
                record = table.form.decode(entry.value)
            except CorruptionError as error:
                found.append(error)
            else:
                found.append(Stored(record, generation_of(entry.version, entry.mod_revision), entry.mod_revision))
        return found


def generation_of(version: int, revision: int) -> int:
    """Return the generation that clients see of an object that was written so often.

    An engine that counts no writes gives a fingerprint of the value as its revision, which serves as well: it stays equal
    while the object is as it was.
    """
    return version or revision % GENERATION_MAX + 1
