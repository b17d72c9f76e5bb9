"""One store brought into another: a snapshot of all keys below a prefix, verified; then, if wanted, every change that follows.

What was stopped goes on when it is begun again: the target is compared with a new snapshot, and only what differs is written.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any, Final, TypeVar

from msgspec import structs

from keyplan.engine import (
    NO_LEASE,
    SYSTEM_CLOCK,
    Capability,
    Clock,
    Delete,
    Engine,
    Entry,
    Event,
    KeyRange,
    Put,
    Snapshot,
)
from keyplan.errors import HistoryCompactedError, UnsupportedByEngineError
from keyplan.jobs import Progress, Stop, StopCheck, Teller
from keyplan.layout import shown_key
from keyplan.maintenance.beside import Transfer
from keyplan.maintenance.claims import refuse_unfinished
from keyplan.maintenance.index_states_kept import has_index_states, index_states_below, put_index_states
from keyplan.maintenance.migrations_kept import (
    has_migrations,
    migrations_below,
    put_migrations,
    refuse_half_converted,
    rerooted,
)
from keyplan.maintenance.pair_digest import Tally
from keyplan.maintenance.transfers import Target, Written, check_fits, held_exactly, pairs_of
from keyplan.store import TRANSFER_AREA

__all__ = ["CopyReport", "copy_store"]

R = TypeVar("R")

_SNAPSHOTS_MAX: Final = 8
"""Why: a source that forgets its history faster than it can be read once never ends; then the error is told."""

_POLL_SECONDS: Final = 0.25
"""Why: somebody who ends the following waits for so long before it begins to end."""


@dataclass(frozen=True, slots=True)
class CopyReport:
    """What the target holds now: the tally of the source's state at `revision`, verified by reading it back.

    `leased`: entries that were left out because they hang on a lease. `followed`: revisions of the source that were applied one
    by one. `is_resumed`: an earlier copy of the same source was stopped here. `was_complete`: the target held exactly this
    before, and nothing was written.
    """

    revision: int
    tally: Tally
    written: Written
    leased: int
    followed: int
    is_resumed: bool
    was_complete: bool = False


def copy_store(
    source: Engine,
    target: Engine,
    *,
    source_name: str,
    prefix: bytes = b"",
    is_overwriting: bool = False,
    keeps_leased: bool = False,
    takes_unfinished: bool = False,
    follow_until: Stop | None = None,
    stop: Stop | None = None,
    command: Sequence[str] = (),
    clock: Clock = SYSTEM_CLOCK,
    progress: Callable[[Progress], None] | None = None,
) -> CopyReport:
    """Make the target hold below `prefix` exactly what the source holds there, and verify count and digest.

    First everything is read: pairs that the target does not take are told before anything is written. The source is only read.
    A copy that was stopped, by whatever, is finished by the same call with the same `source_name`; a target that holds exactly
    what the source does is told to be complete, unless the copy is to follow. Indexes below the prefix
    that are not readable in the source are not readable in the target.

    is_overwriting: the target may hold keys below the prefix; those that the source does not have are removed.
    keeps_leased: entries on a lease are copied as if they hung on none. Otherwise they are left out: a lease lives in the store
        that granted it, and its holder makes its entries again when it comes to the new one.
    takes_unfinished: what a restore or a copy has brought into the source so far is copied although it has not ended.
    progress: told of its stage: checking, copying, verifying, following.
    follow_until: after the snapshot apply each revision of the source as it comes, in order and each in one commit as far as
        the target's limits allow, until this is set; then bring the target to the source's latest state, and verify that. What
        somebody else has written into the target meanwhile ends it with TargetNotEmptyError, unless it is overwriting.
    stop: when this is set the copy ends between two commits, with StoppedError, and goes on when it is called again.
    command: the words behind `keyplan` that go on with this copy when it is stopped, for who looks at the target's jobs.

    Raises EngineLimitError, TargetNotEmptyError, MigrationUnderWayError, UnsupportedByEngineError before anything is written;
    SourceUnfinishedError then, and when a restore or a copy into the source begins before this copy ends;
    TargetTakenError when another process takes the copy over, or copies across it; TargetNotEmptyError or CorruptionError when
    somebody else writes into the target, also between a stop and the call that goes on; HistoryCompactedError when the source
    forgets its state faster than it is read.
    """
    if follow_until is not None and not source.profile.claims(Capability.WATCH):
        raise UnsupportedByEngineError(engine=source.profile.name, capability=Capability.WATCH.value)
    stops = StopCheck(stop, f"the copy into {shown_key(prefix) or 'the whole store'}")
    copying = _Copying(
        source, target, source_name, prefix, keeps_leased, takes_unfinished, stops, command, clock, progress
    )
    return copying.run(follow_until, is_overwriting=is_overwriting)


class _Copying:
    def __init__(
        self,
        source: Engine,
        target: Engine,
        source_name: str,
        prefix: bytes,
        keeps_leased: bool,  # noqa: FBT001  # Why: private, one caller.
        takes_unfinished: bool,  # noqa: FBT001  # Why: as above.
        stops: StopCheck,
        command: Sequence[str],
        clock: Clock,
        progress: Callable[[Progress], None] | None,
    ) -> None:
        self._source = source
        self._engine = target
        self._name = source_name
        self._prefix = prefix
        self._keeps_leased = keeps_leased
        self._stops = stops
        self._command = command
        self._clock = clock
        self._tell = Teller(progress)
        self._leased = 0
        self._followed = 0
        self._written = Written()
        self._takes_unfinished = takes_unfinished

    def run(self, follow_until: Stop | None, *, is_overwriting: bool) -> CopyReport:
        """Copy, follow, verify."""
        transfer = Transfer(
            self._engine, self._prefix, "copy", self._name, is_overwriting=is_overwriting, stops=self._stops
        )
        complete = transfer.found_complete(partial(self._complete, is_followed=follow_until is not None))
        if complete is not None:
            return complete
        before = transfer.before
        self._tell("checking")
        self._as_of_one_state(self._checked)
        facts: dict[str, Any] = {} if before is None else {"followed": before.followed, "is_copied": before.is_copied}
        target = transfer.begin(self._clock, self._command, **facts)
        copied = partial(self._copied, target)
        tally, revision = self._as_of_one_state(copied)
        if follow_until is not None:
            self._follow(target, revision, follow_until)
            tally, revision = self._as_of_one_state(copied)
        target.verified(tally)
        target.finish()
        return CopyReport(revision, tally, self._written, self._leased, self._followed, transfer.is_resumed)

    def _as_of_one_state(self, act: Callable[[Snapshot], R]) -> R:
        """Do something with a snapshot of the source, with a later one when the source compacts its history meanwhile.

        What was written is not written again, so that a later try is mostly reading.
        """
        for _ in range(_SNAPSHOTS_MAX - 1):
            with self._source.snapshot() as snapshot, suppress(HistoryCompactedError):
                return act(snapshot)
        with self._source.snapshot() as snapshot:
            return act(snapshot)

    def _complete(self, *, is_followed: bool) -> CopyReport | None:
        """Report a target that holds exactly what the source does."""
        # Why none for a copy that follows: it would go on, and take what somebody writes there next for its own.
        return None if is_followed else self._as_of_one_state(self._compared)

    def _compared(self, snapshot: Snapshot) -> CopyReport | None:
        """Compare the target with the source, in one state of each; None when they differ."""
        self._require_whole(snapshot)
        tally = held_exactly(self._engine, self._prefix, self._stops.each(self._pairs(snapshot)))
        if tally is None or not has_index_states(
            self._engine, self._prefix, index_states_below(snapshot, self._prefix)
        ):
            return None
        if not has_migrations(self._engine, self._prefix, self._remembered(snapshot)):
            return None
        written = Written(unchanged=tally.count, tally=tally)
        return CopyReport(
            snapshot.revision, tally, written, self._leased, followed=0, is_resumed=False, was_complete=True
        )

    def _checked(self, snapshot: Snapshot) -> None:
        self._require_whole(snapshot)
        pairs = self._stops.each(self._pairs(snapshot))
        check_fits(self._engine, self._prefix, pairs, source=self._name, command=self._command)

    def _copied(self, target: Target, snapshot: Snapshot) -> tuple[Tally, int]:
        """Bring the target to the state of the snapshot, and verify it."""
        self._leased = 0
        self._require_whole(snapshot)
        if target.claim.is_copied:
            # Why: while it is brought to another state, it is no copy of the one that the claim tells.
            target.commit((), claim=structs.replace(target.claim, is_copied=False))
        put_index_states(target, index_states_below(snapshot, self._prefix))
        put_migrations(target, self._remembered(snapshot))
        written = target.reconcile(
            self._pairs(snapshot),
            only_adds=False,
            progress=partial(self._tell, "copying"),
        )
        self._tell("verifying", written.tally.count)
        target.read_back(written.tally)
        self._written.puts += written.puts
        self._written.deletes += written.deletes
        self._written.unchanged = written.unchanged
        self._written.tally = written.tally
        return written.tally, snapshot.revision

    def _remembered(self, snapshot: Snapshot) -> dict[bytes, bytes]:
        """What the source remembers of migrations of roots below the prefix."""
        return rerooted(migrations_below(snapshot, self._prefix), self._prefix, self._prefix)

    def _require_whole(self, snapshot: Snapshot) -> None:
        if not self._takes_unfinished:
            refuse_unfinished(snapshot, [self._prefix], store=self._name)
            refuse_half_converted(snapshot, self._prefix)

    def _pairs(self, snapshot: Snapshot) -> Iterator[tuple[bytes, bytes]]:
        self._leased = 0
        return pairs_of(snapshot, self._prefix, on_leased=self._on_leased)

    def _on_leased(self, _entry: Entry) -> bool:
        self._leased += not self._keeps_leased
        return self._keeps_leased

    # ---- following ---------------------------------------------------------------------------------------------------------

    def _follow(self, target: Target, revision: int, until: Stop) -> None:
        """Apply what is committed to the source after `revision`, until told to end."""
        target.commit((), claim=structs.replace(target.claim, followed=revision, is_copied=True))
        while not until.is_set():
            try:
                revision = self._followed_on(target, revision, until)
            except HistoryCompactedError:
                # Why: the changes in between are gone, but their outcome is not.
                _, revision = self._as_of_one_state(partial(self._copied, target))
                target.commit((), claim=structs.replace(target.claim, followed=revision, is_copied=True))

    def _followed_on(self, target: Target, revision: int, until: Stop) -> int:
        watch = self._source.watch(KeyRange.of_prefix(self._prefix), after=revision)
        try:
            while not until.is_set():
                self._stops.check()
                events = watch.poll(_POLL_SECONDS)
                for number, changes in groupby(events, key=lambda event: event.revision):
                    self._applied(target, number, list(changes))
                self._tell("following", self._written.tally.count, revision=watch.revision)
        finally:
            watch.close()
        return watch.revision

    def _applied(self, target: Target, revision: int, events: Sequence[Event]) -> None:
        mutations = [self._mutation(event) for event in events if event.key not in TRANSFER_AREA]
        target.job.tell("following", self._written.tally.count)
        target.apply(mutations, structs.replace(target.claim, followed=revision))
        self._followed += 1

    def _mutation(self, event: Event) -> Put | Delete:
        entry = event.entry
        if entry is None or (entry.lease != NO_LEASE and not self._keeps_leased):
            return Delete(event.key)
        return Put(event.key, entry.value)
