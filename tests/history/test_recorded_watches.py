"""A watch that loses, repeats, reorders or never brings an event is refused, and one that says falsely that history is gone."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from keyplan.engine import (
    ALL_KEYS,
    Commit,
    Engine,
    Event,
    KeyRange,
    MemoryEngine,
    Put,
    Watch,
    WrappedEngine,
    open_engine,
)
from keyplan.errors import HistoryCompactedError
from keyplan.testing.history import Compaction, History, Watched, Wrong, check_history
from tests.history.test_recorder import recorded

LOG_BEGINS = 1
"""The revision from which on `recorded` reads the log: nothing behind it may be forgotten."""
POLLS = 4
"""How often a wrong watch is polled: each of the three clients has written six times before."""


def watched(engine: Engine) -> None:
    """Write, compact, and watch what was written: what a poll may bring, and what there is after it."""
    name = engine._journal.client.encode()  # type: ignore[attr-defined]  # the recorder of this client
    own = KeyRange.of_prefix(name)
    start = engine.commit(Commit((), (Put(name, b"~%s~" % name),)))
    last = start
    for number in range(6):
        puts = [Put(name + b"%d" % key, b"~%s.%d~" % (name, number)) for key in range(2)]
        last = engine.commit(Commit((), tuple(puts)))
    watch = engine.watch(own, after=start)
    for _ in range(POLLS):
        watch.poll(1 if watch.revision < last else 0)
    watch.close()
    engine.compact(LOG_BEGINS)


class WrongWatch:
    """Hands on what another watch brings, but for what is changed by the way."""

    def __init__(self, inner: Watch, change: Callable[[list[Event]], Sequence[Event]]) -> None:
        self._inner = inner
        self._change = change

    def poll(self, timeout_seconds: float) -> Sequence[Event]:
        """Change what came."""
        return self._change(list(self._inner.poll(timeout_seconds)))

    @property
    def revision(self) -> int:
        """Where the watch says that it stands: as far as the right one is."""
        return self._inner.revision

    def close(self) -> None:
        """End it."""
        self._inner.close()


class SilentWatch:
    """Brings nothing and stays where it was opened."""

    def __init__(self, after: int) -> None:
        self.revision = after

    def poll(self, timeout_seconds: float) -> Sequence[Event]:
        """Nothing, at once."""
        return ()

    def close(self) -> None:
        """Nothing to end."""


class WrongWatches(WrappedEngine):
    """An engine whose watches change what they bring."""

    change: Callable[[list[Event]], Sequence[Event]]

    def watch(self, key_range: KeyRange, *, after: int) -> Watch:
        """A wrong one."""
        return WrongWatch(self.inner.watch(key_range, after=after), type(self).change)


class Losing(WrongWatches):
    """The last event of each batch is lost."""

    change = staticmethod(lambda events: events[:-1])


class Repeating(WrongWatches):
    """The first event of each batch comes twice."""

    change = staticmethod(lambda events: events[:1] + events)


class Reordering(WrongWatches):
    """Each batch comes backwards."""

    change = staticmethod(lambda events: events[::-1])


class Losers(WrongWatches):
    """Everything is lost, and the watch says that it stands behind it."""

    change = staticmethod(lambda events: ())


class Silent(WrappedEngine):
    """Its watches bring nothing, and stay where they are."""

    def watch(self, key_range: KeyRange, *, after: int) -> Watch:
        """One that brings nothing."""
        return SilentWatch(after)


class Again(WrappedEngine):
    """Its watches bring their first batch again with the second poll."""

    def watch(self, key_range: KeyRange, *, after: int) -> Watch:
        """One that repeats itself."""
        kept: list[list[Event]] = []

        def change(events: list[Event]) -> Sequence[Event]:
            kept.append(events)
            return kept[0] if len(kept) > 1 else events

        return WrongWatch(self.inner.watch(key_range, after=after), change)


class Forgetful(WrappedEngine):
    """Its watches say that what was not compacted is gone."""

    def watch(self, key_range: KeyRange, *, after: int) -> Watch:
        """One that cannot be had."""
        raise HistoryCompactedError(revision=after, compacted_revision=after + 1)


class ForgetfulLater(WrappedEngine):
    """Its watches say so when they are polled."""

    def watch(self, key_range: KeyRange, *, after: int) -> Watch:
        """One that fails at its first poll."""

        def change(events: list[Event]) -> Sequence[Event]:
            raise HistoryCompactedError(revision=after, compacted_revision=after + 1)

        return WrongWatch(self.inner.watch(KeyRange.of_key(b"never"), after=after), change)


def wrongs_of(engine: Engine, folder: Path, *, patience_seconds: float = 0.0) -> set[Wrong]:
    """What the checker finds of three clients on an engine that are ended by what it raises."""

    def work(recorder: Engine) -> None:
        try:
            watched(recorder)
        except HistoryCompactedError:
            return

    records = recorded(engine, folder, work)
    return {one.wrong for one in check_history(History(records), patience_seconds=patience_seconds)}


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        (Losing, Wrong.WATCH),
        (Repeating, Wrong.WATCH),
        (Reordering, Wrong.WATCH),
        (Losers, Wrong.WATCH),
        (Silent, Wrong.WATCH),
        (Again, Wrong.WATCH),
        (Forgetful, Wrong.COMPACTED),
        (ForgetfulLater, Wrong.COMPACTED),
    ],
)
def test_a_wrong_watch_is_refused(tmp_path: Path, kind: type[WrappedEngine], wrong: Wrong) -> None:
    with MemoryEngine() as inner:
        assert wrongs_of(Beside(inner, kind(inner)), tmp_path) == {wrong}


class Beside(WrappedEngine):
    """The engine as its clients have it; whoever keeps the log watches all keys, and has the right one."""

    def __init__(self, right: Engine, wrong: WrappedEngine) -> None:
        super().__init__(right, closes_inner=False)
        self._wrong = wrong

    def watch(self, key_range: KeyRange, *, after: int) -> Watch:
        """A wrong watch, unless it is of everything."""
        return (self.inner if key_range == ALL_KEYS else self._wrong).watch(key_range, after=after)


def test_a_silent_watch_is_refused_once_its_polls_were_given_the_time(tmp_path: Path) -> None:
    """Its four polls have a second each."""
    with MemoryEngine() as inner:
        (tmp_path / "patient").mkdir()
        assert wrongs_of(Beside(inner, Silent(inner)), tmp_path, patience_seconds=float(POLLS)) == {Wrong.WATCH}
    with MemoryEngine() as inner:
        assert wrongs_of(Beside(inner, Silent(inner)), tmp_path / "patient", patience_seconds=POLLS + 0.5) == set()


@pytest.mark.parametrize("scheme", ["memory:", "lmdb:"])
def test_right_watches_hold_without_patience(tmp_path: Path, scheme: str) -> None:
    url = scheme if scheme == "memory:" else f"lmdb:{tmp_path}/store?durability=none"
    with open_engine(url) as inner:
        records = recorded(inner, tmp_path, watched)
    assert check_history(History(records), patience_seconds=0) == []
    assert sum(isinstance(record, Watched) for record in records) == 3 * POLLS
    compacted = [record for record in records if isinstance(record, Compaction)]
    assert len(compacted) == 6, "each begins and ends"


def test_a_watch_may_be_told_that_what_was_compacted_is_gone(tmp_path: Path) -> None:
    def work(engine: Engine) -> None:
        if not engine._journal.client.endswith("0"):  # type: ignore[attr-defined]  # the recorder of this client
            return
        revisions = [engine.commit(Commit((), (Put(b"a", b"~%d~" % number),))) for number in range(3)]
        engine.compact(revisions[1])
        with pytest.raises(HistoryCompactedError):
            engine.watch(KeyRange.of_key(b"a"), after=revisions[0])

    def tracked(engine: Engine) -> list[Wrong]:
        return [finding.wrong for finding in check_history(History(recorded(engine, tmp_path, work)))]

    class Unforgetting(WrappedEngine):
        """Keeps what its log is read from."""

        def compact(self, revision: int) -> None:
            """Only the checks of it."""

        def watch(self, key_range: KeyRange, *, after: int) -> Watch:
            """Told to be gone, as after a compaction."""
            if key_range != ALL_KEYS:
                raise HistoryCompactedError(revision=after, compacted_revision=after + 1)
            return self.inner.watch(key_range, after=after)

    with MemoryEngine() as inner:
        assert tracked(Unforgetting(inner, closes_inner=False)) == []
