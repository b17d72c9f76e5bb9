"""One deployment that is served: its store with the layouts on it, what it was told, and the types that it knows."""

from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, NamedTuple
from uuid import UUID

from keyplan.apps.runm.bounds import UNBOUNDED, Bounds, SeenPartitions
from keyplan.apps.runm.identity import parsed_uuid
from keyplan.apps.runm.layout import ObjectSubType, Runm, RunmBeside
from keyplan.apps.runm.read_ahead import ReadAhead
from keyplan.apps.runm.readable import log_damage
from keyplan.apps.runm.records import Object, ObjectType, ObjectTypeScope, ProviderType
from keyplan.apps.runm.refusal import missing
from keyplan.apps.runm.settings import ROOT_CONSTANT
from keyplan.engine import SYSTEM_CLOCK, Clock
from keyplan.errors import CorruptionError, InvalidKeyError
from keyplan.jobs import command_line
from keyplan.layout import BoundLayout, Damaged, readable_rows
from keyplan.store import KeyRef, PinnedState, Store, Transaction

__all__ = ["GENERATION_MAX", "PROVIDER", "Deployment", "Rulings", "State", "Stored", "generation_of"]

PROVIDER: Final = "runm.provider"
"""The object type that has sub-types."""

GENERATION_MAX: Final = 2**32 - 1


@dataclass(frozen=True, slots=True)
class Rulings:
    """What an operator may decide.

    has_enforced_definitions: whether `object_create` and updates check properties by definitions that somebody has set.
    is_isolated: whether a session reaches its own partition and project alone, and nothing that concerns all partitions.
    deleted_kept_seconds: how long what is deleted can be restored; 0: not at all.
    bootstrap_token: the token that makes the first partition; empty: no token is asked for, and none is stored.
    """

    has_enforced_definitions: bool = False
    is_isolated: bool = False
    bootstrap_token: str = field(default="", repr=False)
    deleted_kept_seconds: int = 0


class Stored(NamedTuple):
    """An object with its generation, which is the engine's count of its writes, and the revision of the last of them."""

    record: Object
    generation: int
    revision: int


class State(NamedTuple):
    """Both layouts bound to one thing: a snapshot, or a transaction; and what is known of what will be read.

    `partitions` are those within the bounds of the call that looks at it: what clients are answered is read there, never from
    `runm`. `looked_at` are the keys that were read at once when it was bound.
    """

    runm: Runm
    beside: RunmBeside
    ahead: ReadAhead
    binding: PinnedState | Transaction
    partitions: SeenPartitions
    looked_at: tuple[KeyRef, ...] = ()

    def within(self, bounds: Bounds) -> "State":
        """Return the same state for a call with these bounds."""
        return self._replace(partitions=SeenPartitions(self.runm, bounds))

    def bound_to(self, binding: PinnedState) -> "State":
        """Return this very state, read by another binding."""
        return self._replace(runm=self.runm.over(binding), beside=self.beside.over(binding), binding=binding)

    def read_ahead(self, refs: Iterable[KeyRef]) -> None:
        """Read what stands at these keys at once. A place that cannot be a key is for the call to find out."""
        if isinstance(self.binding, PinnedState) and not self.binding.reads_ahead:
            return
        try:
            self.binding.read_ahead(*refs)
        except InvalidKeyError:
            return

    def required_partition(self, text: str) -> UUID:
        """Return the UUID of a partition that is named by its UUID. Raises RefusedError, FAILED_PRECONDITION."""
        uuid = parsed_uuid(text)
        if uuid is None or not self.partitions.exists(uuid):
            raise missing(f"Partition {text} not found")
        return uuid

    @property
    def is_empty(self) -> bool:
        """Whether there is no partition yet."""
        return next(self.runm.partitions.keys(limit=1), None) is None


@dataclass
class Deployment:
    """A store with the metadata of one deployment below `prefix`, the root's parameter. Safe for use by several threads.

    `url` names the store in commands that people are told to run, without its secrets; empty where it is not known.
    """

    store: Store
    prefix: str = ""
    rulings: Rulings = field(default_factory=Rulings)
    clock: Clock = SYSTEM_CLOCK
    url: str = ""

    def __post_init__(self) -> None:
        self.runm = Runm(self.store, prefix=self.prefix)
        self.beside = RunmBeside(self.store, prefix=self.prefix)
        self.bound: BoundLayout = Runm.bound(prefix=self.prefix)
        self.ahead = ReadAhead(self.bound, RunmBeside.bound(prefix=self.prefix))
        self._object_types: dict[str, ObjectType] = {}
        self._damaged_types: dict[str, CorruptionError] = {}

    def command(self, *words: str) -> str:
        """Return a command of `keyplan runm` on this very deployment, as a shell reads it; see `command_line`."""
        return command_line(("runm", *words, "--root", self.prefix + ROOT_CONSTANT), self.url)

    def over(self, binding: PinnedState | Transaction, *refs: KeyRef) -> State:
        """Return the layouts bound to a snapshot or a transaction, which reads what the places hold at once."""
        # Why even without places: views find what is read ahead later only if they were bound after the first time.
        try:
            binding.read_ahead(*refs)
        except InvalidKeyError:
            refs = ()
            binding.read_ahead()
        runm = self.runm.over(binding)
        return State(runm, self.beside.over(binding), self.ahead, binding, SeenPartitions(runm, UNBOUNDED), refs)

    @contextmanager
    def reading(self, *refs: KeyRef) -> Generator[State, None, None]:
        """Pin one state of the store for the length of a block; what the places hold is read at once."""
        with self.store.snapshot() as pinned:
            yield self.over(pinned, *refs)

    # ---- types: immutable once made, so that they are kept --------------------------------------------------------------

    def object_type(self, code: str) -> ObjectType | None:
        """Return the object type of that code; None also for one that cannot be read."""
        known = self._object_types.get(code)
        return self.object_types().get(code) if known is None else known

    def required_type(self, code: str) -> ObjectType:
        """Return the object type of that code. Raises RefusedError, FAILED_PRECONDITION; CorruptionError for a damaged one."""
        kind = self.object_type(code)
        if kind is None:
            self.refuse_damaged_type(code)
            raise missing(f"Object type {code} not found")
        return kind

    def refuse_damaged_type(self, code: str) -> None:
        """Raise CorruptionError for a code whose type was there when types were read last, and could not be read."""
        if code in self._damaged_types:
            raise self._damaged_types[code]

    def known_type(self, code: str) -> ObjectType | None:
        """Return the object type of that code if it was read before; reads nothing."""
        return self._object_types.get(code)

    def object_types(self) -> Mapping[str, ObjectType]:
        """Return every object type by code, those that can be read."""
        damaged: dict[str, CorruptionError] = {}

        def note(row: Damaged[str]) -> None:
            log_damage(row.error)
            if row.key is not None:
                damaged[row.key] = row.error

        # Why: new dictionaries take the old ones' places at once, so that no other thread sees half of one.
        types = dict(readable_rows(self.runm.object_types.rows(), note))
        self._object_types, self._damaged_types = types, damaged
        return types

    def provider_type(self, code: str) -> ProviderType | None:
        """Return the provider type of that code."""
        return self.runm.sub_types.get(ObjectSubType(PROVIDER, code))

    def has_project(self, record: Object) -> bool:
        """Whether names of this object's type belong to projects; by the object itself where there is no type to read."""
        kind = self.object_type(record.object_type)
        return bool(record.project) if kind is None else kind.scope is ObjectTypeScope.PROJECT


def generation_of(version: int, revision: int) -> int:
    """Return the generation that clients see of an object that was written so often.

    An engine that counts no writes gives a fingerprint of the value as its revision, which serves as well: it stays equal
    while the object is as it was.
    """
    return version or revision % GENERATION_MAX + 1
