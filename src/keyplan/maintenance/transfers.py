"""Writing a stream of pairs into a target so that it can be stopped anywhere and done again: what is not as wanted is changed.

The claim (claims.py) stands in the target for as long as the work is not done, and every commit of the work is guarded by it:
who takes the work over writes it anew, and the other one ends. Whatever reads the target meanwhile sees a part of it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, zip_longest
from typing import Any, Final, NamedTuple, Self

import msgspec
from msgspec import structs

from keyplan.engine import (
    NO_LEASE,
    Delete,
    Engine,
    Entry,
    Guard,
    KeyAbsent,
    KeyRange,
    KeyUnchanged,
    Mutation,
    Put,
    RangeEmpty,
    Snapshot,
)
from keyplan.errors import (
    CommitConflictError,
    CorruptionError,
    EngineLimitError,
    TargetNotEmptyError,
    TargetTakenError,
)
from keyplan.jobs import (
    JOB_BYTES_MAX,
    NO_CONDITIONS,
    UNSTOPPED,
    CommitRoom,
    Conditions,
    Job,
    Seen,
    StopCheck,
    cut,
    kept_command,
    size_of,
)
from keyplan.maintenance.claims import CLAIM_FORM, Claim
from keyplan.maintenance.pair_digest import PairDigest, PairSum, Tally
from keyplan.store import TRANSFER_AREA

__all__ = [
    "Target",
    "Written",
    "check_fits",
    "emptiness",
    "held_exactly",
    "pairs_of",
    "refuse_occupied",
    "require_untouched",
]

_STRANGER_ADVICE: Final = "somebody else has written here: keep it and name an empty place, or overwrite what is there"


@dataclass
class Written:
    """What was changed to make the target as wanted, and the tally of what was wanted."""

    puts: int = 0
    deletes: int = 0
    unchanged: int = 0
    tally: Tally = field(default_factory=lambda: Tally(0, 0, ""))


def pairs_of(
    snapshot: Snapshot,
    prefix: bytes,
    *,
    on_leased: Callable[[Entry], bool] | None = None,
    is_space: bool = False,
) -> Iterator[tuple[bytes, bytes]]:
    """Yield the pairs below a prefix in key order, the keys without it; claims are left out.

    on_leased: asked about each entry that hangs on a lease; False leaves it out. None keeps them.
    is_space: the prefix is that of a key space, which has claims of its own.
    """
    size = len(prefix)
    for entry in snapshot.scan(KeyRange.of_prefix(prefix)):
        if is_space and entry.key[size:] in TRANSFER_AREA:
            continue
        if entry.key in TRANSFER_AREA or (on_leased is not None and entry.lease != NO_LEASE and not on_leased(entry)):
            continue
        yield entry.key[size:], entry.value


_CLAIM_BYTES: Final = 1_200
"""Why: a claim without its command and its source, and the guards of a commit, beside their keys."""


def _claim_bytes(source: str, command: Sequence[str]) -> int:
    """How long a claim can become that holds these, which are as long as somebody makes them."""
    return _CLAIM_BYTES + len(msgspec.json.encode((source, kept_command(command))))


def check_fits(
    engine: Engine, prefix: bytes, pairs: Iterable[tuple[bytes, bytes]], *, source: str, command: Sequence[str] = ()
) -> None:
    """Go through pairs that are to be written below `prefix`, to see whether the target takes them.

    `source` and `command` are what the claim will hold, which is written beside each of them.

    Raises EngineLimitError when the target does not take one of them, with the first one's key, the limit, and how many there
    are; nothing is written here.
    """
    profile = engine.profile
    key_max = profile.key_bytes_max
    value_max = profile.value_bytes_max
    if profile.commit_bytes_max is not None:
        value_max = min(value_max or profile.commit_bytes_max, profile.commit_bytes_max)
    beside = _claim_bytes(source, command) + 2 * len(prefix)
    first: dict[str, object] = {}
    count = 0
    for key, value in pairs:
        key_bytes = len(prefix) + len(key)
        # Why: where the bound is on a commit, key and claim count as well.
        value_bytes = len(value) + (key_bytes + beside if value_max == profile.commit_bytes_max else 0)
        if key_max is not None and key_bytes > key_max:
            limit, allowed, actual = "key_bytes_max", key_max, key_bytes
        elif value_max is not None and value_bytes > value_max:
            limit, allowed, actual = "value_bytes_max", value_max, value_bytes
        elif not key_bytes and not profile.empty_key:
            limit, allowed, actual = "key_bytes_min", 1, 0
        else:
            continue
        count += 1
        first = first or {"limit": limit, "allowed": allowed, "actual": actual, "raw_key": (prefix + key).hex()}
    if count:
        raise EngineLimitError(**first, engine=profile.name, pairs_refused=count)


class _Change(NamedTuple):
    """What is to be done at a key, and what was seen there. Without a mutation the key is as wanted."""

    mutation: Put | Delete | None
    before: Entry | None


class _Batch:
    """Changes for one commit, with guards of what was seen at their keys.

    Keys that appear one behind the other, with nothing between them, are guarded as one range: a stranger's key between them
    is seen as well, and a batch of them takes one guard.
    """

    def __init__(self) -> None:
        self.mutations: list[Mutation] = []
        self.changes: list[_Change] = []
        self.size = 0
        self._guards: list[Guard] = []
        self._run: tuple[bytes, bytes] | None = None

    @property
    def operations(self) -> int:
        return len(self.mutations) + len(self._guards) + (self._run is not None)

    def add(self, mutation: Put | Delete, before: Entry | None) -> None:
        key = mutation.key
        self.mutations.append(mutation)
        self.changes.append(_Change(mutation, before))
        self.size += size_of(mutation)
        if before is not None:
            self.end_run()
            self._guards.append(KeyUnchanged(key, before.mod_revision))
            return
        # Why: claims stand there, and are none of the pairs.
        if self._run is not None and self._run[1] < TRANSFER_AREA.start <= key:
            self.end_run()
        self._run = (key if self._run is None else self._run[0], key)

    def end_run(self) -> None:
        """There is a key behind the last one, or the batch ends."""
        if self._run is not None:
            first, last = self._run
            absent = KeyAbsent(first) if first == last else RangeEmpty(KeyRange(first, last + b"\x00"))
            self._guards.append(absent)
            self._run = None

    @property
    def guards(self) -> list[Guard]:
        """The guards of a batch that is complete."""
        self.end_run()
        return self._guards


class Target:
    """The share of a store below a prefix, while this process brings something into it: a job, by its claim.

    Each method raises TargetTakenError when somebody else has taken the work over, or the conditions do not hold; StoppedError,
    but for the last, when the work is told to stop.
    """

    def __init__(self, job: Job[Claim], prefix: bytes) -> None:
        self.engine = job.engine
        self.prefix = prefix
        self.job = job

    @classmethod
    def claimed(
        cls,
        engine: Engine,
        prefix: bytes,
        seen: Seen[Claim],
        claim: Claim,
        *,
        guards: Iterable[Guard] = (),
        conditions: Conditions = NO_CONDITIONS,
        stops: StopCheck = UNSTOPPED,
    ) -> Self:
        """Write the claim over the one that was read; the last one to do so has the work. `guards` hold in that commit."""
        stops.check()
        lost = partial(_taken, prefix)
        options: dict[str, Any] = {"lost": lost, "guards": guards, "conditions": conditions, "stops": stops}
        try:
            return cls(Job.begin(engine, seen, claim, CLAIM_FORM, **options), prefix)
        except CommitConflictError as error:
            raise lost("another process does this work now") from error

    @property
    def claim(self) -> Claim:
        """The claim as it stands."""
        return self.job.record

    def commit(
        self, mutations: Iterable[Mutation], *, claim: Claim | None = None, guards: Iterable[Guard] = ()
    ) -> None:
        """Write, guarded by the claim; with `claim`, which replaces it in the same commit.

        `guards`: of what is written over. Raises TargetNotEmptyError when one of these does not hold.
        """
        try:
            self.job.commit(mutations, guards=guards, record=claim)
        except CommitConflictError as error:
            raise self.not_empty(error) from error

    def not_empty(self, conflict: CommitConflictError) -> TargetNotEmptyError:
        """Return the error that says that somebody else has written what a commit was to write over."""
        failed: Any = conflict.facts.get("failed", ())
        first = min((guard.key for guard in failed if guard.key is not None), default=self.prefix)
        return TargetNotEmptyError(prefix=self.prefix, first_key=first, advice=_STRANGER_ADVICE)

    def verified(self, tally: Tally, *, is_mending: bool = False) -> None:
        """Write into the claim what was read back. What is found otherwise when the work goes on is somebody else's.

        Unless `is_mending`: then this work goes on to put indexes right.
        """
        self.job.tell("verified", tally.count)
        facts = {"stage": "verified", "done": tally.count, "verified": tally.sha256, "is_mending": is_mending}
        self.commit((), claim=structs.replace(self.claim, **facts))

    def finish(self) -> None:
        """Take the claim away: the work is done."""
        self.job.end()

    # ---- pairs -------------------------------------------------------------------------------------------------------------

    def reconcile(
        self,
        wanted: Iterable[tuple[bytes, bytes]],
        *,
        only_adds: bool,
        progress: Callable[[int], None] | None = None,
    ) -> Written:
        """Make the share hold exactly these pairs, given in key order without the prefix, on no lease.

        What is there already and as wanted is not written again: so that work that was stopped goes on. Every write is guarded
        by what was seen at its key; with `only_adds` nothing that is there is changed. Memory does not grow with the share.
        Where the claim keeps account of what this work has written (`Claim.written`), a share that holds anything else is
        refused, and each commit goes on with the account. Raises TargetNotEmptyError at the first key that somebody else has
        written.
        """
        written = Written()
        digest = PairDigest()
        with self.engine.snapshot() as snapshot:
            if self.claim.written:
                # Invariant: looked at in the state that the guards below are of, so that nothing else is changed or removed.
                self._require_own(snapshot)
            changes = self._differences(self.job.stops.each(wanted), snapshot, written, digest, progress)
            for batch in self._guarded(changes, only_adds=only_adds):
                self.job.tell("writing", written.puts + written.unchanged)
                self.commit(batch.mutations, guards=batch.guards, claim=self._accounted(batch))
        written.tally = digest.tally()
        return written

    def _require_own(self, snapshot: Snapshot) -> None:
        found, count = PairSum(), 0
        for key, value in self.job.stops.each(pairs_of(snapshot, self.prefix)):
            found.add(key, value)
            count += 1
        if found.text != self.claim.written:
            advice = f"a {self.claim.kind} was stopped here, and {_STRANGER_ADVICE}"
            raise TargetNotEmptyError(prefix=self.prefix.hex(), pairs=count, advice=advice)

    def _accounted(self, batch: _Batch) -> Claim | None:
        """Return the claim with the account behind the batch; None where none is kept."""
        if not self.claim.written:
            return None
        account, size = PairSum(self.claim.written), len(self.prefix)
        for mutation, before in batch.changes:
            if before is not None:
                account.remove(before.key[size:], before.value)
            if isinstance(mutation, Put):
                account.add(mutation.key[size:], mutation.value)
        return structs.replace(self.claim, written=account.text)

    def _differences(
        self,
        wanted: Iterable[tuple[bytes, bytes]],
        snapshot: Snapshot,
        written: Written,
        digest: PairDigest,
        progress: Callable[[int], None] | None,
    ) -> Iterator[_Change]:
        stored = (entry for entry in snapshot.scan(KeyRange.of_prefix(self.prefix)) if entry.key not in TRANSFER_AREA)
        current = next(stored, None)
        done = 0
        for key, value in wanted:
            raw_key = self.prefix + key
            while current is not None and current.key < raw_key:
                written.deletes += 1
                yield _Change(Delete(current.key), current)
                current = next(stored, None)
            digest.add(key, value)
            before = None
            if current is not None and current.key == raw_key:
                before = current
                current = next(stored, None)
                if before.value == value and before.lease == NO_LEASE:
                    written.unchanged += 1
                    yield _Change(None, before)
                    continue
            written.puts += 1
            yield _Change(Put(raw_key, value), before)
            done += 1
            if progress is not None and done % 256 == 0:
                progress(done + written.unchanged)
        for entry in chain(() if current is None else (current,), stored):
            written.deletes += 1
            yield _Change(Delete(entry.key), entry)

    def _guarded(self, changes: Iterable[_Change], *, only_adds: bool) -> Iterator[_Batch]:
        """Yield the changes in order, as many at a time as one commit takes, with guards of what was seen at their keys.

        Keys that appear one behind the other, with nothing between them, are guarded by one range.
        """
        room = self._room
        batch = _Batch()
        for change in changes:
            if change.mutation is None:
                batch.end_run()
                continue
            if only_adds and change.before is not None:
                key = change.before.key
                raise TargetNotEmptyError(prefix=self.prefix, first_key=key, advice=_STRANGER_ADVICE)
            # Why two: the change and its guard.
            if batch.mutations and not room.takes(batch.operations + 2, batch.size + size_of(change.mutation)):
                yield batch
                batch = _Batch()
            batch.add(change.mutation, change.before)
        if batch.mutations:
            yield batch

    def apply(self, mutations: Sequence[Put | Delete], claim: Claim) -> None:
        """Write these, each key once, as many at a time as one commit takes.

        Every write is guarded by what was seen at its key; the last commit writes `claim`, with the account where one is kept.
        Raises TargetNotEmptyError when somebody else writes there at this moment.
        """
        with self.engine.snapshot() as snapshot:
            seen = snapshot.get_many([mutation.key for mutation in mutations])
        changes = (_Change(*pair) for pair in zip(mutations, seen, strict=True) if pair[1] or isinstance(pair[0], Put))
        # Why one behind each: what lies between the keys is not looked at, and is in no guard.
        apart = chain.from_iterable((change, _Change(None, None)) for change in changes)
        *parts, last = list(self._guarded(apart, only_adds=False)) or [_Batch()]
        for part in parts:
            self.commit(part.mutations, guards=part.guards, claim=self._accounted(part))
        account = self._accounted(last) or self.claim
        self.commit(last.mutations, guards=last.guards, claim=structs.replace(claim, written=account.written))

    def batches(self, mutations: Iterable[Mutation]) -> Iterator[list[Mutation]]:
        """Yield the mutations in order, as many at a time as one commit takes beside the claim."""
        return cut(mutations, self._room)

    @property
    def _room(self) -> CommitRoom:
        beside = JOB_BYTES_MAX + len(msgspec.json.encode(self.claim.source))
        return CommitRoom.of(self.engine.profile, operations=3, size=beside)

    def read_back(self, expected: Tally) -> None:
        """Read the share from the start and compare it with what was brought. Raises CorruptionError when it differs."""
        with self.engine.snapshot() as snapshot:
            actual = PairDigest.of(self.job.stops.each(pairs_of(snapshot, self.prefix)))
        if actual != expected:
            raise CorruptionError(
                problem="what was read back is not what was written: somebody else writes below the prefix",
                prefix=self.prefix,
                pairs_expected=expected.count,
                pairs_found=actual.count,
            )


def _taken(prefix: bytes, problem: str) -> TargetTakenError:
    return TargetTakenError(prefix=prefix, problem=problem)


def require_untouched(engine: Engine, prefix: bytes, claim: Claim, stops: StopCheck) -> None:
    """Raise TargetNotEmptyError when work that was verified and not ended finds other pairs than it left."""
    with engine.snapshot() as snapshot:
        found = PairDigest.of(stops.each(pairs_of(snapshot, prefix)))
    if found.sha256 != claim.verified:
        advice = (
            f"a {claim.kind} was verified here, and somebody has written since: keep it, or overwrite what is there"
        )
        raise TargetNotEmptyError(prefix=prefix, pairs=found.count, advice=advice)


def held_exactly(engine: Engine, prefix: bytes, wanted: Iterable[tuple[bytes, bytes]]) -> Tally | None:
    """Return the tally of what stands below the prefix, where that is exactly these pairs, on no lease; None otherwise.

    The pairs come in key order, without the prefix, and are read up to the first difference.
    """
    digest = PairDigest()
    with engine.snapshot() as snapshot:
        stored = (entry for entry in snapshot.scan(KeyRange.of_prefix(prefix)) if entry.key not in TRANSFER_AREA)
        for pair, entry in zip_longest(wanted, stored):
            if pair is None or entry is None or entry.lease != NO_LEASE:
                return None
            if (prefix + pair[0], pair[1]) != (entry.key, entry.value):
                return None
            digest.add(*pair)
    return digest.tally()


def emptiness(prefix: bytes) -> tuple[Guard, ...]:
    """Return the guards that there is no key below the prefix but claims."""
    whole = KeyRange.of_prefix(prefix)
    if TRANSFER_AREA.start not in whole:
        return (RangeEmpty(whole),)
    beside = KeyRange(whole.start, TRANSFER_AREA.start), KeyRange(TRANSFER_AREA.end or b"", whole.end)
    return tuple(RangeEmpty(each) for each in beside if not each.is_empty)


def refuse_occupied(engine: Engine, prefix: bytes) -> None:
    """Raise TargetNotEmptyError when there is a key below the prefix that is no claim."""
    with engine.snapshot() as snapshot:
        for entry in snapshot.scan(KeyRange.of_prefix(prefix), keys_only=True):
            if entry.key not in TRANSFER_AREA:
                advice = "name an empty place, or overwrite what is there"
                raise TargetNotEmptyError(prefix=prefix, first_key=entry.key, advice=advice)
