"""Judges a recorded history against its log: `check_history` replays it in the order of revisions and returns what is wrong.

What makes it sound: no two commits that write do the same (each puts a value that nobody else puts), so that a revision of
the log tells which commit made it.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

from keyplan.engine import ALL_KEYS, NO_LEASE, Event, EventKind, Put
from keyplan.testing.history.clockwork import Patience, Times
from keyplan.testing.history.findings import Finding, Wrong, difference
from keyplan.testing.history.leases import lease_findings
from keyplan.testing.history.records import (
    Act,
    Failure,
    History,
    Outcome,
    Read,
    Seen,
    SeenCount,
    SeenFence,
    SeenPairs,
    Write,
)
from keyplan.testing.history.replay import Replay, Written, written_of
from keyplan.testing.history.watches import watch_findings

__all__ = ["check_history"]

_MARK: Final = re.compile(rb"~[^~\s]+~")


def check_history(history: History, *, patience_seconds: float = 30.0, kept_revisions: int = 100_000) -> list[Finding]:
    """Return everything that is wrong; empty when the history holds.

    The history's truths must have the entries before the log and those after it, and the log between them without a gap.
    Whoever writes, compacts or has leases must have recorded it.

    `patience_seconds`: how late what must come may come. A watch must have brought an event when its polls were given so
    much time since the event was acknowledged; a lease must be gone so long after its time. With 0 the next poll must bring
    it, as those of an engine in this process do; over a network an answer takes its time. `kept_revisions`: how many
    revisions the engine keeps when nobody compacts.
    """
    patience = Patience(patience_seconds, kept_revisions)
    states = [truth for truth in history.truths if truth.entries is not None]
    if len(states) != 2:
        return [Finding(Wrong.LOG, "a history needs what was stored before and after")]
    before, after = states
    events = [event for truth in history.truths for event in truth.events]
    replay = Replay(before.revision, before.entries or (), events)
    findings = [Finding(Wrong.LOG, problem) for problem in replay.problems]
    if (replay.last, replay.entries(ALL_KEYS, replay.last)) != (after.revision, list(after.entries or ())):
        findings.append(Finding(Wrong.LOG, f"it leads to revision {replay.last}, and not to what is stored"))
    return [*findings, *_Checker(history, replay, patience).findings()]


class _Checker:
    def __init__(self, history: History, replay: Replay, patience: Patience) -> None:
        self._history = history
        self._replay = replay
        self._times = Times(history, first=replay.first, last=replay.last)
        self._patience = patience
        self._makers: dict[int, Write] = {}
        self._lease_ends: dict[int, int] = {}

    def findings(self) -> Iterator[Finding]:
        for write in self._history.writes:
            if write.outcome is Outcome.ACKNOWLEDGED:
                yield from self._acknowledged(write)
        yield from self._unclaimed()
        for write in self._history.writes:
            if write.outcome is Outcome.CONFLICT:
                yield from self._conflict(write)
        yield from self._unfound()
        for read in self._history.reads:
            yield from self._read(read)
        for seen in self._history.seen:
            yield from self._seen(seen)
        yield from watch_findings(self._history, self._replay, self._times, self._patience)
        yield from lease_findings(self._history, self._replay, self._times, self._patience, self._lease_ends)
        yield from self._acts()

    # ---- commits ---------------------------------------------------------------------------------------------------------

    def _acknowledged(self, write: Write) -> Iterator[Finding]:
        revision, replay = write.revision, self._replay
        is_idle = not _puts(write) and not replay.effect(write.mutations, revision)
        found = written_of(replay.by_revision.get(revision, []))
        if found and replay.effect(write.mutations, revision - 1) == found and revision not in self._makers:
            self._makers[revision] = write
            state, least = revision - 1, self._times.floor(write.begin) + 1
        elif is_idle:
            state, least = revision, self._times.floor(write.begin)
        else:
            yield Finding(Wrong.LOST, f"{_name(write)} was told revision {revision}, which does not hold it")
            return
        yield from self._guards(write, state)
        if not least <= revision <= self._times.ceiling(write.end):
            bounds = f"{least} to {self._times.ceiling(write.end)}"
            yield Finding(Wrong.TIME, f"{_name(write)} was told revision {revision}; the clock says {bounds}")

    def _guards(self, write: Write, state: int) -> Iterator[Finding]:
        for guard in write.guards:
            if not self._replay.holds(guard, state):
                yield Finding(Wrong.GUARD, f"{_name(write)} at revision {state + 1}: {guard}")

    def _unclaimed(self) -> Iterator[Finding]:
        """Find out who made each revision that nobody was told of."""
        unknown, others = _Index(), _Index()
        for write in self._history.writes:
            (unknown if write.outcome in (Outcome.UNKNOWN, Outcome.APPLIED) else others).add(write)
        for revision, events in self._replay.by_revision.items():
            if revision in self._makers:
                continue
            found = written_of(events)
            makers = [one for one in unknown.candidates(found) if self._has_made(one, revision, found)]
            if not makers and (lease := self._ended_lease(events)) is not None:
                self._lease_ends.setdefault(lease, revision)
                continue
            if not makers:
                yield self._explained(revision, found, [*unknown.candidates(found), *others.candidates(found)])
                continue
            write = makers[0]
            self._makers[revision] = write
            unknown.remove(write)
            others.add(write)  # a second time would be one too many
            yield from self._guards(write, revision - 1)
            if revision <= self._times.floor(write.begin):
                yield Finding(Wrong.TIME, f"{_name(write)} is at revision {revision}, older than its beginning")

    def _has_made(self, write: Write, revision: int, found: Written) -> bool:
        effect = self._replay.effect(write.mutations, revision - 1)
        if write.only_absent:
            effect = {key: written for key, written in effect.items() if self._replay.at(key, revision - 1) is None}
        return effect == found

    def _ended_lease(self, events: Sequence[Event]) -> int | None:
        """Nobody commits the end of a lease: it takes every entry that hangs on it, and nothing else."""
        leases = {event.previous.lease if event.previous is not None else NO_LEASE for event in events}
        if any(event.kind is not EventKind.DELETED for event in events) or len(leases) != 1 or leases == {NO_LEASE}:
            return None
        held = self._replay.entries(ALL_KEYS, events[0].revision - 1)
        is_all = {event.key for event in events} == {entry.key for entry in held if entry.lease in leases}
        return leases.pop() if is_all else None

    def _unfound(self) -> Iterator[Finding]:
        """Find the writes that were acknowledged without a revision and are nowhere."""
        made = {(write.client, write.number) for write in self._makers.values()}
        for write in self._history.writes:
            is_told = write.outcome is Outcome.APPLIED and _puts(write)
            if is_told and (write.client, write.number) not in made and not self._was_there(write):
                yield Finding(Wrong.LOST, f"{_name(write)} was acknowledged, and is at no revision")

    def _was_there(self, write: Write) -> bool:
        """Whether every key that was to be made, if it was absent, existed at some time meanwhile."""
        times = range(self._times.floor(write.begin), self._times.ceiling(write.end) + 1)
        keys = [put.key for put in write.mutations if isinstance(put, Put)]
        return write.only_absent and any(all(self._replay.at(key, at) is not None for key in keys) for at in times)

    def _explained(self, revision: int, found: Written, candidates: Sequence[Write]) -> Finding:
        for write in candidates:
            if self._has_made(write, revision, found):
                is_told = write.outcome in (Outcome.ACKNOWLEDGED, Outcome.UNKNOWN)
                wrong = Wrong.TWICE if is_told else Wrong.REFUSED
                return Finding(wrong, f"{_name(write)}, {write.outcome.value}, is at revision {revision}")
        for write in candidates:
            if _puts(write) & _puts_in(found):
                return Finding(Wrong.HALF, f"revision {revision} has a part of {_name(write)}, or more than it")
        return Finding(Wrong.STRANGER, f"revision {revision} writes {sorted(found)}")

    def _conflict(self, write: Write) -> Iterator[Finding]:
        first, last = self._times.floor(write.begin), self._times.ceiling(write.end)
        if not any(self._fails_so(write, revision) for revision in range(first, last + 1)):
            told = ", ".join(str(write.guards[failure.guard]) for failure in write.failed)
            yield Finding(Wrong.CONFLICT, f"{_name(write)}: at no revision from {first} to {last} failed just {told}")

    def _fails_so(self, write: Write, revision: int) -> bool:
        told = {failure.guard: failure for failure in write.failed}
        for number, guard in enumerate(write.guards):
            failure = told.get(number)
            if self._replay.holds(guard, revision) is not (failure is None):
                return False
            if failure is not None and not self._is_actual(failure, revision):
                return False
        return bool(told)

    def _is_actual(self, failure: Failure, revision: int) -> bool:
        if failure.key is None:
            return True
        entry = self._replay.at(failure.key, revision)
        return failure.actual_revision == (0 if entry is None else entry.mod_revision)

    # ---- reads -----------------------------------------------------------------------------------------------------------

    def _read(self, read: Read) -> Iterator[Finding]:
        expected = self._replay.entries(read.range, read.revision)
        if read.is_reversed:
            expected.reverse()
        expected = expected[: read.limit] if read.is_whole else expected[: len(read.entries)]
        found = list(read.entries)
        if read.is_keys_only:
            expected = [entry._replace(value=b"") for entry in expected]
        if found != expected:
            yield Finding(Wrong.READ, f"{read.client} at revision {read.revision}: {difference(found, expected)}")
        first, last = self._times.floor(read.begin), self._times.ceiling(read.end)
        if not first <= read.revision <= last:
            at = f"{read.begin:.6f} to {read.end:.6f}"
            detail = (
                f"{read.client} read {read.range} at revision {read.revision} ({at}); the clock says {first} to {last}"
            )
            yield Finding(Wrong.TIME, detail)

    def _seen(self, seen: Seen) -> Iterator[Finding]:
        first, last = self._times.floor(seen.begin), self._times.ceiling(seen.end)
        told = seen.revision
        revisions = range(first, last + 1) if told is None else (told,)
        if not any(all(self._shows(part, revision) for part in seen.parts) for revision in revisions):
            at = f"at any revision from {first} to {last}" if told is None else f"at revision {told}"
            yield Finding(Wrong.READ, f"{seen.client} read what is not there {at}: {_kinds(seen)}")
        if told is not None and not first <= told <= last:
            yield Finding(Wrong.TIME, f"{seen.client} read at revision {told}; the clock says {first} to {last}")

    def _shows(self, part: SeenPairs | SeenCount | SeenFence, revision: int) -> bool:
        match part:
            case SeenCount(key_range, count):
                return len(self._replay.entries(key_range, revision)) == count
            case SeenFence(key, value, holds):
                entry = self._replay.at(key, revision)
                return (entry is not None and entry.value == value) is holds
            case SeenPairs():
                expected = self._replay.entries(part.range, revision)
                if part.is_reversed:
                    expected.reverse()
                expected = expected[: part.limit] if part.is_whole else expected[: len(part.pairs)]
                if [entry.key for entry in expected] != [key for key, _ in part.pairs]:
                    return False
                return all(value in (None, entry.value) for entry, (_, value) in zip(expected, part.pairs, strict=True))

    # ---- typed operations --------------------------------------------------------------------------------------------------

    def _acts(self) -> Iterator[Finding]:
        places: defaultdict[bytes, list[int]] = defaultdict(list)
        for revision, events in self._replay.by_revision.items():
            for mark in {mark for event in events for mark in _new_marks(event)}:
                places[mark].append(revision)
        for act in self._history.acts:
            found = places[act.mark.encode()]
            if not _is_as_told(act, found):
                told = f"{act.outcome.value} at revision {act.revision}"
                yield Finding(Wrong.ACT, f"{act.kind} {act.mark}, {told}, is at revisions {found}")


def _is_as_told(act: Act, found: Sequence[int]) -> bool:
    match act.outcome:
        case Outcome.ACKNOWLEDGED:
            return list(found) == [act.revision]
        case Outcome.UNKNOWN:
            return len(found) <= 1
        case _:
            return not found


def _new_marks(event: Event) -> set[bytes]:
    after = set() if event.entry is None else set(_MARK.findall(event.entry.value))
    return after - (set() if event.previous is None else set(_MARK.findall(event.previous.value)))


class _Index:
    """Writes by what they put, or delete: so that those which may have made a revision are found at once."""

    def __init__(self) -> None:
        self._by_put: defaultdict[tuple[bytes, bytes], list[Write]] = defaultdict(list)
        self._without_put: list[Write] = []

    def add(self, write: Write) -> None:
        """Take a write up."""
        for place in _puts(write):
            self._by_put[place].append(write)
        if not _puts(write):
            self._without_put.append(write)

    def remove(self, write: Write) -> None:
        """Leave a write out from now on."""
        for place in _puts(write):
            self._by_put[place].remove(write)
        if not _puts(write):
            self._without_put.remove(write)

    def candidates(self, found: Written) -> list[Write]:
        """Return the writes that put something of what was found; for a revision that only deletes, those that only delete."""
        puts = _puts_in(found)
        named = {(write.client, write.number): write for place in sorted(puts) for write in self._by_put.get(place, ())}
        return list(named.values()) if puts else list(self._without_put)


def _puts(write: Write) -> set[tuple[bytes, bytes]]:
    return {(put.key, put.value) for put in write.mutations if isinstance(put, Put)}


def _puts_in(found: Written) -> set[tuple[bytes, bytes]]:
    return {(key, written[0]) for key, written in found.items() if written is not None}


def _kinds(seen: Seen) -> str:
    return ", ".join(type(part).__name__.removeprefix("Seen").lower() for part in seen.parts)


def _name(write: Write) -> str:
    return f"{write.client}'s commit {write.number}"
