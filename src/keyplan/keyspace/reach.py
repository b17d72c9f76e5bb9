"""What somebody who was granted something may reach of a store: the grants, and what the registry of key spaces says of them.

A grant on a key space is on its prefix while its fence is as it was found: one that is disabled may be read; one that is
deleted, restored, damaged or another application's gives nothing. What keyplan keeps for itself, below the byte 00, is
an administrator's alone.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from keyplan.access import EVERYTHING, Everything, Grant, OnApplication, OnKeySpace, OnPrefix
from keyplan.engine import ALL_KEYS, Area, AreaFence, Engine, KeyRange, Reach, Snapshot
from keyplan.errors import CorruptionError, InvalidKeyError, KeySpaceDisabledError
from keyplan.keyspace.fence import fence_key, refusal
from keyplan.keyspace.names import is_name
from keyplan.keyspace.prefixes import SYSTEM_BYTE, prefix_range
from keyplan.keyspace.records import FenceForm, KeySpaceRecord
from keyplan.keyspace.rows import key_of, rows_of, value_of
from keyplan.layout import Only
from keyplan.operations import Act

__all__ = ["DATA_KEYS", "GrantedReach", "reach_of"]

DATA_KEYS: Final = KeyRange(prefix_range(SYSTEM_BYTE).end or b"", None)
"""What is stored for others: everything but what keyplan keeps for itself."""

_FENCE_FORM: Final = FenceForm()
_HEAD_KEY: Final = key_of("audit_head", Only())
"""Every act on the registry writes it."""


class _Part(NamedTuple):
    """Keys that a grant is on: in a state in which the fence holds, and to be written unless `is_read_only`."""

    range: KeyRange
    fence: AreaFence | None = None
    is_read_only: bool = False


def reach_of(grants: Collection[Grant], state: Snapshot) -> Reach:
    """Return what may be read and written by these grants as the registry is in one state.

    What may be written and not read gives nothing: a commit says whether what it is guarded by holds.
    """
    is_administrator = Grant(Act.ADMINISTER, EVERYTHING, 0)[:2] in {grant[:2] for grant in grants}
    every = ALL_KEYS if is_administrator else DATA_KEYS
    applications = {grant.on.name for grant in grants if isinstance(grant.on, OnApplication)}
    owned = _records_of(applications, state) if applications else {}

    def parts(act: Act) -> set[_Part]:
        found: set[_Part] = set()
        records: dict[str, KeySpaceRecord] = {}
        for on in (grant.on for grant in grants if grant.act is act):
            match on:
                case Everything():
                    found.add(_Part(every))
                case OnPrefix():
                    found.add(_Part(_cut(KeyRange.of_prefix(on.prefix), every)))
                case OnApplication():
                    records |= {record.name: record for record in owned.get(on.name, ())}
                case OnKeySpace() if (record := _record_of(on.name, state)) is not None:
                    records[record.name] = record
                case _:
                    pass
        return {part for part in (*found, *_fenced(records.values(), state)) if not part.range.is_empty}

    return Reach(_areas(parts(Act.READ), parts(Act.WRITE)))


class _Held(NamedTuple):
    """A reach, the grants that it is of, and the head of the registry's log when it was made, if they depend on it."""

    grants: Sequence[Grant]
    is_of_registry: bool
    head: bytes | None
    reach: Reach


class GrantedReach:
    """The reach of one who is granted something: quick to ask, and made again when the grants or the registry have changed.

    `grants` returns the same object until they change. Asking looks at the grants alone; `renewed` at the registry too. Between
    the two the fences of the reach hold or not: what changed hands is refused, and what is new is not found yet.
    """

    def __init__(self, engine: Engine, grants: Callable[[], Sequence[Grant]]) -> None:
        self._engine = engine
        self._grants = grants
        self._held: _Held | None = None

    def __call__(self) -> Reach:
        """Return the reach as it is known."""
        held = self._held
        return held.reach if held is not None and held.grants is self._grants() else self.renewed()

    @property
    def must_look(self) -> bool:
        """True when a request has to begin with `renewed`: the reach depends on the registry, or the grants have changed."""
        held = self._held
        return held is None or held.is_of_registry or held.grants is not self._grants()

    def renewed(self) -> Reach:
        """Return the reach as grants and registry are now; the same object as before where nothing changed."""
        grants = self._grants()
        is_of_registry = _is_of_registry(grants)
        with self._engine.snapshot() as state:
            head = state.value(_HEAD_KEY) if is_of_registry else None
            held = self._held
            if held is not None and held.grants is grants and held.head == head:
                return held.reach
            reach = reach_of(grants, state)
        if held is not None and held.reach == reach:
            reach = held.reach
        self._held = _Held(grants, is_of_registry, head, reach)
        return reach


def _is_of_registry(grants: Iterable[Grant]) -> bool:
    return any(isinstance(grant.on, OnKeySpace | OnApplication) for grant in grants)


def _areas(reads: set[_Part], writes: set[_Part]) -> Iterator[Area]:
    """Yield what may be read; and of it, where what is written by a grant may be read by one, that this may be written."""
    by_fence: dict[AreaFence | None, list[_Part]] = {}
    for write in writes:
        if not write.is_read_only:
            by_fence.setdefault(write.fence, []).append(write)
    for read in reads:
        yield Area(read.range, can_write=False, fence=read.fence)
        # Why never two fences: an area has one. Two that overlap are of a registry that is not sound.
        beside = by_fence if read.fence is None else {None, read.fence}
        for fence in beside:
            for write in by_fence.get(fence, ()):
                yield Area(_cut(read.range, write.range), can_write=True, fence=read.fence or fence)


def _cut(one: KeyRange, other: KeyRange) -> KeyRange:
    """Return the keys that are in both."""
    ends = [key_range.end for key_range in (one, other) if key_range.end is not None]
    return KeyRange(max(one.start, other.start), min(ends, default=None))


# ---- what the registry says ------------------------------------------------------------------------------------------


def _record_of(name: str, state: Snapshot) -> KeySpaceRecord | None:
    """Return the record of a key space. Why None for a damaged one too: what cannot be read opens nothing."""
    row = value_of(state, "records", name) if is_name(name) else None
    found: KeySpaceRecord | None = row.value if row is not None and row.is_read else None
    return found


def _records_of(applications: Collection[str], state: Snapshot) -> dict[str, list[KeySpaceRecord]]:
    found: dict[str, list[KeySpaceRecord]] = {}
    for row in rows_of(state, "records"):
        if row.is_read and row.value.application in applications:
            found.setdefault(row.value.application, []).append(row.value)
    return found


def _fenced(records: Iterable[KeySpaceRecord], state: Snapshot) -> Iterator[_Part]:
    """Yield the keys of those key spaces that may be read, each with its fence as it is in this state."""
    asked = list(records)
    found = state.values([fence_key(record.name) for record in asked])
    for record, raw in zip(asked, found, strict=True):
        if raw is None:
            continue
        try:
            fence = _FENCE_FORM.decode(raw)
        except (CorruptionError, InvalidKeyError):
            continue
        refused = refusal(record.name, record.generation, fence)
        if not (refused is None or isinstance(refused, KeySpaceDisabledError)) or not _holds(record, state):
            continue
        # Why cut: a record that was edited by hand must not open what is nobody's.
        keys = _cut(prefix_range(bytes.fromhex(record.prefix)), DATA_KEYS)
        yield _Part(keys, (fence_key(record.name), raw), is_read_only=refused is not None)


def _holds(record: KeySpaceRecord, state: Snapshot) -> bool:
    """Tell whether the prefix of a record is this key space's."""
    row = value_of(state, "holders", bytes.fromhex(record.prefix))
    return (
        row is not None and row.is_read and (row.value.name, row.value.generation) == (record.name, record.generation)
    )
