"""Reads and watches of a store that show a caller's reach alone, each judged in the state that it shows.

A fence that part of the reach depends on is read in the snapshot of the read itself, together with what was asked for. Where it
does not hold the reach is asked for once more; what is not in that one either lies outside.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from enum import Enum
from itertools import chain, islice
from typing import Final, TypeVar

from keyplan.engine.clock import SYSTEM_CLOCK
from keyplan.engine.fences import Fences
from keyplan.engine.interface import Engine, Entry, Event, KeyRange, Snapshot, Watch
from keyplan.engine.reach import AreaFence, Reach, Stretch, Terms
from keyplan.errors import AccessDeniedError, EngineUnavailableError, HistoryCompactedError, KeyplanError

__all__ = ["READ", "WRITE", "Border", "ConfinedSnapshot", "ConfinedWatch", "Outside"]

READ: Final = "read"
WRITE: Final = "write"

Found = TypeVar("Found")

_NO_KEYS: Final = KeyRange(b"", b"")
"""Asked of the inner snapshot where nothing may be read. Why asked at all: it says when it is closed."""


class Outside(Enum):
    """What a read outside the reach gives. A write there is refused in either case."""

    REFUSED = "refused"
    """AccessDeniedError, also where a range is not wholly within."""
    ABSENT = "absent"
    """Nothing: as if the store held the reach alone."""


class Border:
    """Where a caller's reach ends, and what is said of what lies beyond.

    `reach` returns the reach as it is now; `renewed` returns it once more after a fence did not hold, and may look for it.
    """

    def __init__(self, reach: Callable[[], Reach], renewed: Callable[[], Reach], outside: Outside, who: str) -> None:
        self.reach = reach
        self.renewed = renewed
        self._who = who
        self.is_refusing = outside is Outside.REFUSED

    def reaches(self) -> Iterator[Reach]:
        """Yield the reach, and then the renewed one."""
        yield self.reach()
        yield self.renewed()

    def denied(self, act: str, where: bytes | KeyRange | str) -> AccessDeniedError:
        """Return the error for an act outside. It says what was asked for, and never what is there."""
        return AccessDeniedError(who=self._who, act=act, where=where if isinstance(where, str) else _shown(where))

    def shut(self, engine: str) -> None:
        """Refuse everything from now on: the engine was closed."""

        def refuse() -> Reach:
            raise EngineUnavailableError(engine=engine, problem="the engine was closed")

        self.reach = self.renewed = refuse


def _shown(where: bytes | KeyRange) -> str:
    if isinstance(where, bytes):
        return f"key {where.hex()}"
    return f"keys from {where.start.hex() or 'the first'} to {'the last' if where.end is None else where.end.hex()}"


class ConfinedSnapshot(Snapshot):
    """What a snapshot has of a caller's reach. The fences are those of its own state."""

    __slots__ = ("_along", "_border", "_held", "_inner", "_is_local")

    def __init__(self, inner: Snapshot, border: Border, *, is_local: bool = False) -> None:
        self._inner = inner
        self._border = border
        self._is_local = is_local
        """True where to read is no call over a network, so that nothing need come along with anything."""
        self._held: dict[Terms, bool] = {}
        """What is known of this state: whether terms hold in it."""
        self._along: tuple[bytes, ...] = ()

    @property
    def revision(self) -> int:
        return self._inner.revision

    @property
    def epoch(self) -> str:
        return self._inner.epoch

    # ---- single keys -----------------------------------------------------------------------------------------------------

    def get(self, key: bytes) -> Entry | None:
        stretch = self._border.reach().at(key)
        if stretch is not None and (not stretch.read or self._held.get(stretch.read)):
            return self._inner.get(key)
        return self._of_many((key,), self._inner.get_many)[0]

    def get_many(self, keys: Sequence[bytes]) -> list[Entry | None]:
        return self._of_many(keys, self._inner.get_many)

    def value(self, key: bytes) -> bytes | None:
        stretch = self._border.reach().at(key)
        if stretch is not None and (not stretch.read or self._held.get(stretch.read)):
            return self._inner.value(key)
        return self._of_many((key,), self._inner.values)[0]

    def values(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return self._of_many(keys, self._inner.values)

    def values_within(self, keys: Sequence[bytes], bytes_max: int) -> list[bytes | None]:
        # Why the default way: it asks `values`, which goes no further than the reach.
        return Snapshot.values_within(self, keys, bytes_max)

    def holds(self, fences: Fences) -> bool:
        # Why the default way: the caller's fences are keys like any other, and may be outside.
        return Snapshot.holds(self, fences)

    def read_along(self, keys: Sequence[bytes]) -> None:
        reach = self._border.reach()
        self._along = tuple(key for key in keys if reach.at(key) is not None)
        self._inner.read_along(self._along)

    def _of_many(
        self, keys: Sequence[bytes], read: Callable[[Sequence[bytes]], list[Found | None]]
    ) -> list[Found | None]:
        """Return what `read` finds at those of the keys that are in reach."""
        stretch = self._border.reach().holding(keys)
        if stretch is not None:
            # Why apart: nearly all reads are of one stretch whose terms hold, and need no more than this.
            if stretch.read:
                self._bring_fences((stretch,))
            found = read(keys)
            if not stretch.read or self._is_open(stretch):
                return found
        shut: list[int] = []
        answers: list[Found | None] = []
        for reach in self._border.reaches():
            stretches = [reach.at(key) for key in keys]
            if self._border.is_refusing and None in stretches:
                raise self._border.denied(READ, keys[stretches.index(None)])
            wanted = [at for at, stretch in enumerate(stretches) if stretch is not None]
            self._bring_fences(stretches)
            found = read([keys[at] for at in wanted])
            answers, shut = [None] * len(keys), []
            for at, answer in zip(wanted, found, strict=True):
                if self._is_open(stretches[at]):
                    answers[at] = answer
                else:
                    shut.append(at)
            if not shut:
                return answers
        if self._border.is_refusing:
            raise self._border.denied(READ, keys[shut[0]])
        return answers

    # ---- ranges ----------------------------------------------------------------------------------------------------------

    def scan(
        self, key_range: KeyRange, *, limit: int | None = None, reverse: bool = False, keys_only: bool = False
    ) -> Iterator[Entry]:
        def read(part: KeyRange, limit: int | None) -> Iterator[Entry]:
            return self._inner.scan(part, limit=limit, reverse=reverse, keys_only=keys_only)

        return self._in_order(key_range, read, limit, reverse=reverse)

    def keys(self, key_range: KeyRange, *, limit: int | None = None, reverse: bool = False) -> Iterator[bytes]:
        def read(part: KeyRange, limit: int | None) -> Iterator[bytes]:
            return self._inner.keys(part, limit=limit, reverse=reverse)

        return self._in_order(key_range, read, limit, reverse=reverse)

    def pairs(
        self, key_range: KeyRange, *, limit: int | None = None, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        def read(part: KeyRange, limit: int | None) -> Iterator[tuple[bytes, bytes]]:
            return self._inner.pairs(part, limit=limit, reverse=reverse)

        return self._in_order(key_range, read, limit, reverse=reverse)

    def columns(
        self, key_range: KeyRange, *, limit: int | None = None, reverse: bool = False
    ) -> Iterator[tuple[list[bytes], list[bytes]]]:
        # Why the default way: it asks `pairs`, which goes no further than the reach.
        return Snapshot.columns(self, key_range, limit=limit, reverse=reverse)

    def count(self, key_range: KeyRange) -> int:
        ahead = self._ahead(key_range)
        counted = {part: self._inner.count(part) for part in ahead[:1]}
        parts = self.readable(key_range) or [_NO_KEYS]
        return sum(counted[part] if part in counted else self._inner.count(part) for part in parts)

    def readable(self, key_range: KeyRange) -> list[KeyRange]:
        """Return what of a range may be read in this state: ranges in order that do not touch.

        Raises AccessDeniedError where that is not all of it and what lies outside is refused.
        """
        found: list[Stretch] = []
        for reach in self._border.reaches():
            covering = self._in_reach(reach, key_range)
            if covering is None:
                break
            self._bring_fences(covering)
            found = [stretch for stretch in covering if self._is_open(stretch)]
            if len(found) == len(covering):
                return _joined(stretch.range for stretch in found)
        if self._border.is_refusing:
            raise self._border.denied(READ, key_range)
        return _joined(stretch.range for stretch in found)

    def readable_since(self, key_range: KeyRange) -> int | None:
        """Return the least revision since which some of a range can be read, as of this state; None: nothing of it can be."""
        for reach in self._border.reaches():
            terms = {stretch.read for stretch in reach.within(key_range)}
            if () in terms:
                return 0
            since = _held_since(self._inner, terms)
            if since:
                return min(since.values())
        return None

    def _in_reach(self, reach: Reach, key_range: KeyRange) -> list[Stretch] | None:
        return reach.covering(key_range) if self._border.is_refusing else list(reach.within(key_range))

    def _in_order(
        self,
        key_range: KeyRange,
        read: Callable[[KeyRange, int | None], Iterator[Found]],
        limit: int | None,
        *,
        reverse: bool,
    ) -> Iterator[Found]:
        """Return what `read` yields of the readable parts of a range, as one stream."""
        forward = -1 if reverse else 1
        ahead = self._ahead(key_range)[::forward]
        begun = iter(read(ahead[0], limit)) if ahead and limit != 0 else None
        first = [] if begun is None else list(islice(begun, 1))
        # Judged before anything is given out, of what came along with the first page.
        parts = self.readable(key_range)[::forward] or [_NO_KEYS]
        if begun is not None and parts[0] == ahead[0]:
            head: Iterator[Found] | None = chain(first, begun)
        else:
            head = None
        if len(parts) > 1:
            return _one_after_the_other(parts, read, limit, head)
        return read(parts[0], limit) if head is None else head

    def _ahead(self, key_range: KeyRange) -> list[KeyRange]:
        """Return what may be read before the fences are, which then come along; nothing where all are known.

        Why: over a network the first page and the fences are one call.
        """
        stretches = self._in_reach(self._border.reach(), key_range)
        if not stretches or all(not stretch.read or stretch.read in self._held for stretch in stretches):
            return []
        self._bring_fences(stretches)
        return _joined(stretch.range for stretch in stretches)

    # ---- fences ----------------------------------------------------------------------------------------------------------

    def _bring_fences(self, stretches: Iterable[Stretch | None]) -> None:
        """Let the next read bring the fences that decide about these stretches, as far as they are not known."""
        if self._is_local:
            return
        terms = {stretch.read for stretch in stretches if stretch is not None and stretch.read} - self._held.keys()
        if terms:
            self._inner.read_along((*{key for fences in terms for key, _ in fences}, *self._along))

    def _is_open(self, stretch: Stretch | None) -> bool:
        """Return whether the terms of a stretch hold in this state. May read the fences."""
        if stretch is None:
            return False
        terms = stretch.read
        if not terms:
            return True
        known = self._held.get(terms)
        if known is None:
            # Why the terms themselves, where they are one fence: an engine knows the tuple again that it has seen hold.
            holds = self._inner.holds
            known = holds(terms) if len(terms) == 1 else any(holds((fence,)) for fence in terms)
            self._held[terms] = known
        return known

    def close(self) -> None:
        self._inner.close()


def _held_since(state: Snapshot, terms: Collection[Terms]) -> dict[Terms, int]:
    """Return, of the terms that hold in a state, since which revision they do."""
    fences = sorted({fence for alternatives in terms for fence in alternatives})
    found = state.get_many([key for key, _ in fences])
    since: dict[AreaFence, int] = {
        fence: entry.mod_revision
        for fence, entry in zip(fences, found, strict=True)
        if entry is not None and entry.value == fence[1]
    }
    return {
        alternatives: min(since[fence] for fence in alternatives if fence in since)
        for alternatives in terms
        if any(fence in since for fence in alternatives)
    }


def _joined(ranges: Iterable[KeyRange]) -> list[KeyRange]:
    """Return the ranges, those that touch as one."""
    joined: list[KeyRange] = []
    for key_range in ranges:
        if joined and joined[-1].end == key_range.start:
            joined[-1] = KeyRange(joined[-1].start, key_range.end)
        else:
            joined.append(key_range)
    return joined


def _one_after_the_other(
    parts: Sequence[KeyRange],
    read: Callable[[KeyRange, int | None], Iterator[Found]],
    limit: int | None,
    head: Iterator[Found] | None,
) -> Iterator[Found]:
    """Yield what `read` yields of each part, together at most `limit`; `head` is that of the first part, where it was begun."""
    left = limit
    for part in parts:
        if left == 0:
            return
        for found in head if head is not None else read(part, left):
            yield found
            left = None if left is None else left - 1
        head = None


class ConfinedWatch:
    """The changes of a caller's reach: of the keys that it had when the watch was opened.

    A change is delivered when what the reach depends on held before it and still does. Where the reach has no longer all of
    those keys, the watch ends with AccessDeniedError; where a fence was written since a change, so that nobody can tell whether
    it held then, with HistoryCompactedError: list again, and watch from there.
    """

    def __init__(
        self, engine: Engine, inner: Watch, border: Border, parts: Sequence[KeyRange], asked: KeyRange
    ) -> None:
        self._engine = engine
        self._inner = inner
        self._border = border
        self._parts = parts
        self._asked = asked
        self._revision = inner.revision
        self._pending: list[Event] = []
        self._ended: KeyplanError | None = None

    @property
    def revision(self) -> int:
        return self._revision

    def poll(self, timeout_seconds: float) -> Sequence[Event]:
        # Why: waiting takes real time, whatever clock the leases go by.
        give_up_at = SYSTEM_CLOCK.monotonic() + timeout_seconds
        while True:
            if self._ended is not None:
                raise type(self._ended)(**self._ended.facts)
            if not self._pending:
                remaining = max(give_up_at - SYSTEM_CLOCK.monotonic(), 0)
                found = self._inner.poll(remaining)
                # Why kept until they were judged: the inner watch brings them once, and to look at the fences may fail.
                self._pending = [event for event in found if any(event.key in part for part in self._parts)]
            if not self._is_judged():
                return []
            self._revision = self._inner.revision
            events, self._pending = self._pending, []
            if events or SYSTEM_CLOCK.monotonic() >= give_up_at:
                return events

    def _is_judged(self) -> bool:
        """Judge what is pending; False where the state that was read is too old to. Raises what ends the watch."""
        for reach in self._border.reaches():
            covering = [reach.covering(part) for part in self._parts]
            if None in covering:
                break
            terms = {stretch.read for stretches in covering for stretch in stretches or () if stretch.read}
            held = self._held_since(terms)
            if held is None:
                return False
            if terms <= held.keys():
                self._refuse_doubtful(reach, held)
                return True
        self._ended = self._border.denied(READ, self._asked)
        raise self._ended

    def _held_since(self, terms: Collection[Terms]) -> dict[Terms, int] | None:
        """Return the revision since which each of the terms holds that do; None from a state before what is pending."""
        if not terms:
            return {}
        with self._engine.snapshot() as snapshot:
            since = _held_since(snapshot, terms)
            return None if self._pending and snapshot.revision < self._pending[-1].revision else since

    def _refuse_doubtful(self, reach: Reach, held: dict[Terms, int]) -> None:
        """End the watch when something pending may be of a state in which the reach did not have it."""
        for event in self._pending:
            stretch = reach.at(event.key)
            # Why also in the fence's own revision: an event shows what was there before.
            if stretch is not None and event.revision <= (since := held.get(stretch.read, -1)):
                self._ended = HistoryCompactedError(revision=self._revision, compacted_revision=since)
                raise self._ended

    def close(self) -> None:
        self._inner.close()
