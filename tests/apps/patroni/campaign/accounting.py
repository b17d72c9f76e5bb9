"""What acknowledged rows tell: which are lost and how much log that is, and whether two leaders acknowledged. Values alone."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

__all__ = ["Acknowledged", "Loss", "leaders_at_once", "losses", "lost_rows", "stale", "wal_position"]


class Acknowledged(NamedTuple):
    """A row that a client was told is committed; `position` is where the log ended when it was written, times are seconds."""

    writer: int
    sequence: int
    asked_at: float
    acknowledged_at: float
    server: str
    timeline: int
    position: int

    @property
    def key(self) -> tuple[int, int]:
        """What names the row in the table."""
        return self.writer, self.sequence


class Loss(NamedTuple):
    """Rows that a timeline acknowledged and the leader does not have; `log_bytes` of log behind what the next one took over."""

    timeline: int
    rows: int
    log_bytes: int
    log_bytes_max: int

    @property
    def is_within_bound(self) -> bool:
        """Whether it is no more than Patroni's lag bound allows."""
        return self.log_bytes <= self.log_bytes_max


def wal_position(text: str) -> int:
    """The byte that PostgreSQL's `16/B374D848` names."""
    high, _, low = text.partition("/")
    return (int(high, 16) << 32) + int(low, 16)


def lost_rows(acknowledged: Iterable[Acknowledged], found: frozenset[tuple[int, int]]) -> list[Acknowledged]:
    """The acknowledged rows that are not among those found."""
    return [each for each in acknowledged if each.key not in found]


def losses(
    lost: Sequence[Acknowledged],
    acknowledged: Sequence[Acknowledged],
    forks: Mapping[int, int],
    *,
    lag_bytes_max: int,
    ttl_seconds: float,
) -> list[Loss]:
    """Measure what each timeline lost.

    `forks` says at which position a timeline was left for the next. A row lost of a timeline that was not left is lost by
    nothing that the lag bound speaks of: then nothing is allowed.

    Why the bound is not `maximum_lag_on_failover` alone: a replica is compared with what the leader last wrote into the store,
    so Patroni's documentation adds what was written in the last TTL.
    """
    found = []
    for timeline in sorted({each.timeline for each in lost}):
        own = [each for each in lost if each.timeline == timeline]
        last = max(own, key=lambda each: each.acknowledged_at)
        end = max(each.position for each in own)
        if timeline not in forks:
            found.append(Loss(timeline, len(own), 0, -1))
            continue
        recent = [
            each.position
            for each in acknowledged
            if each.timeline == timeline and each.acknowledged_at >= last.acknowledged_at - ttl_seconds
        ]
        written = end - min(recent, default=end)
        found.append(Loss(timeline, len(own), max(0, end - forks[timeline]), lag_bytes_max + written))
    return found


def stale(acknowledged: Iterable[Acknowledged]) -> list[Acknowledged]:
    """The rows that an earlier timeline acknowledged, and that were asked for when a later one had acknowledged already."""
    found: list[Acknowledged] = []
    known = sorted(acknowledged, key=lambda each: each.acknowledged_at)
    asked = sorted(known, key=lambda each: each.asked_at)
    newest, place = 0, 0
    for each in asked:
        while place < len(known) and known[place].acknowledged_at < each.asked_at:
            newest = max(newest, known[place].timeline)
            place += 1
        if each.timeline < newest:
            found.append(each)
    return found


def leaders_at_once(acknowledged: Iterable[Acknowledged]) -> dict[int, list[str]]:
    """The timelines on which more than one server acknowledged: there each has one leader for good."""
    servers: dict[int, set[str]] = {}
    for each in acknowledged:
        servers.setdefault(each.timeline, set()).add(each.server)
    return {timeline: sorted(found) for timeline, found in servers.items() if len(found) > 1}
