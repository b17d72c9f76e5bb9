"""What became of the leases of a history: each lives as long as it was promised to, takes its entries along, and stays gone."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from keyplan.engine import ALL_KEYS, NO_LEASE, Put
from keyplan.errors import LeaseNotFoundError
from keyplan.testing.history.clockwork import Patience, Times
from keyplan.testing.history.findings import Finding, Wrong
from keyplan.testing.history.records import NEVER, History, LeaseAct, LeaseCall
from keyplan.testing.history.replay import Replay

__all__ = ["lease_findings"]

_SLACK_SECONDS: Final = 0.05
"""Why: the store's clock may go a little faster than that of its clients."""
_ROUNDING_SECONDS: Final = 1.0
"""Why: an engine that counts in whole seconds may tell up to one less than there are."""
_RENEWALS: Final = (LeaseAct.GRANT, LeaseAct.KEEP_ALIVE)
_FOREVER: Final = 1 << 64


def lease_findings(
    history: History, replay: Replay, times: Times, patience: Patience, ends: Mapping[int, int]
) -> Iterator[Finding]:
    """Yield what is wrong with the leases. `ends`: the revision, of each lease that ended, which nobody else made."""
    calls: defaultdict[int, list[LeaseCall]] = defaultdict(list)
    for call in sorted(history.leases, key=lambda call: call.begin):
        if call.lease != NO_LEASE or _is_done(call):
            calls[call.lease].append(call)
    spans = _spans(replay)
    reads = _reads(history)
    refused = _refused_puts(history)
    for lease, its in calls.items():
        check = _LeaseCheck(its, times, ends.get(lease))
        yield from check.calls()
        yield from check.refusals(refused[lease])
        yield from check.entries(spans[lease], reads, patience)


class _LeaseCheck:
    """One lease: its calls by their beginnings, and when it was known to have ended."""

    def __init__(self, calls: Sequence[LeaseCall], times: Times, ended_at: int | None) -> None:
        self._calls = calls
        self._times = times
        self._renewals = [call for call in calls if call.act in _RENEWALS]
        self._revokes = [call for call in calls if call.act is LeaseAct.REVOKE]
        self._ended_at = ended_at
        self._end = NEVER if ended_at is None else times.told_at(ended_at)
        self._gone = min([self._end, *(call.end for call in self._revokes if _is_done(call))])
        self._who = f"lease {calls[0].lease}"

    def calls(self) -> Iterator[Finding]:
        """Judge what its calls answered."""
        grants = [call for call in self._calls if call.act is LeaseAct.GRANT and _is_done(call)]
        if len(grants) > 1 or (grants and grants[0].lease == NO_LEASE):
            yield self._wrong(f"granted {len(grants)} times")
        if self._end < NEVER and self._must_live_at(self._end):
            yield self._wrong("it ended before its time, and nobody revoked it")
        for call in self._calls:
            if call.error == LeaseNotFoundError.code and self._must_live_at(call.end):
                yield self._wrong(f"{call.act.value}: it was said to be gone before its time")
            elif _is_done(call) and call.act is not LeaseAct.REVOKE and call.begin > self._gone:
                yield self._wrong(f"{call.act.value}: answered although it is gone")
            elif _is_done(call) and call.seconds is not None:
                yield from self._seconds(call, call.seconds)

    def refusals(self, ends: Sequence[float]) -> Iterator[Finding]:
        """Judge the writes that were refused for want of the lease, by their ends."""
        if any(map(self._must_live_at, ends)):
            yield self._wrong("a write on it was refused before its time")

    def entries(
        self, spans: Sequence[tuple[int, int]], reads: Sequence[tuple[float, int]], patience: Patience
    ) -> Iterator[Finding]:
        """Judge by the log when its entries were there. A span has the first revision with some, and the next without."""
        for call in self._revokes:
            last = self._times.ceiling(call.end)
            if _is_done(call) and any(until > last for _, until in spans):
                yield self._wrong("revoked, and entries were on it afterwards")
        if self._ended_at is not None and any(first > self._ended_at for first, _ in spans):
            yield self._wrong(f"it ended at revision {self._ended_at}, and entries were put on it afterwards")
        if not any(_is_done(call) for call in self._renewals):
            return  # nobody knows until when it was to live
        tried = [call.end + call.ttl_seconds for call in self._renewals if call.error != LeaseNotFoundError.code]
        over = max(tried) + patience.seconds + _SLACK_SECONDS
        late = [at for begin, at in reads if begin > over and any(first <= at < until for first, until in spans)]
        if late:
            yield self._wrong(f"its time was over, and at revision {late[0]} its entries were there")

    def _seconds(self, call: LeaseCall, seconds: float) -> Iterator[Finding]:
        renewed = [one for one in self._renewals if _is_done(one) and (one is call or one.end <= call.begin)]
        least = max((one.begin for one in renewed), default=-NEVER) + call.ttl_seconds - call.end
        if not least - _ROUNDING_SECONDS - _SLACK_SECONDS <= seconds <= call.ttl_seconds + _SLACK_SECONDS:
            yield self._wrong(f"{call.act.value}: {seconds} seconds of {call.ttl_seconds}")

    def _must_live_at(self, moment: float) -> bool:
        """Tell whether the lease was renewed for that long, and nobody had begun to revoke it."""
        is_promised = any(
            _is_done(one) and one.begin + one.ttl_seconds - _SLACK_SECONDS > moment for one in self._renewals
        )
        return is_promised and not any(call.begin <= moment for call in self._revokes)

    def _wrong(self, detail: str) -> Finding:
        return Finding(Wrong.LEASE, f"{self._who}: {detail}")


def _is_done(call: LeaseCall) -> bool:
    return not call.error and call.end < NEVER


def _spans(replay: Replay) -> defaultdict[int, list[tuple[int, int]]]:
    """Return for each lease from which revision to which one it had entries."""
    held: defaultdict[int, set[bytes]] = defaultdict(set)
    spans: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)

    def change(lease: int, key: bytes, revision: int, *, is_there: bool) -> None:
        if lease == NO_LEASE:
            return
        keys = held[lease]
        if is_there and not keys:
            spans[lease].append((revision, _FOREVER))
        (keys.add if is_there else keys.discard)(key)
        if not keys and spans[lease]:
            spans[lease][-1] = (spans[lease][-1][0], min(spans[lease][-1][1], revision))

    for entry in replay.entries(ALL_KEYS, replay.first):
        change(entry.lease, entry.key, replay.first, is_there=True)
    for revision, events in replay.by_revision.items():
        for event in events:
            if event.previous is not None:
                change(event.previous.lease, event.key, revision, is_there=False)
        for event in events:
            if event.entry is not None:
                change(event.entry.lease, event.key, revision, is_there=True)
    return spans


def _reads(history: History) -> list[tuple[float, int]]:
    """Return when reads began, and at which revision they read."""
    reads = [(read.begin, read.revision) for read in history.reads]
    return sorted(reads + [(seen.begin, seen.revision) for seen in history.seen if seen.revision is not None])


def _refused_puts(history: History) -> defaultdict[int, list[float]]:
    """Return for each lease the ends of the writes that were refused because a lease was gone, and that name no other one."""
    refused: defaultdict[int, list[float]] = defaultdict(list)
    for write in history.writes:
        leases = {put.lease for put in write.mutations if isinstance(put, Put)} - {NO_LEASE}
        if write.error == LeaseNotFoundError.code and len(leases) == 1:
            refused[leases.pop()].append(write.end)
    return refused
