"""Whatever an engine does by methods of its own is recorded and judged: true answers hold, and each wrong one is found."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from keyplan.engine import (
    ALL_KEYS,
    Commit,
    Delete,
    DeleteRange,
    Engine,
    KeyAbsent,
    KeyRange,
    MemoryEngine,
    Put,
    memory,
    memory_snapshot,
    open_engine,
)
from keyplan.errors import KeyplanError, LeaseNotFoundError
from keyplan.testing.history import (
    History,
    HistoryEngine,
    Journal,
    Record,
    Truth,
    Wrong,
    check_history,
    read_records,
)

KEYS = [b"k%03d" % number for number in range(150)]


def everything(engine: Engine, name: bytes) -> None:
    """Call every method that reads or writes; what is put is nobody else's."""
    values = [b"~%s.%s~" % (name, key) for key in KEYS]
    engine.put_sorted([name + key for key in KEYS], values)
    engine.put_sorted([name + key for key in KEYS], values, overwrite=False)
    engine.load((b"l" + name + key, value) for key, value in zip(KEYS, values, strict=True))
    engine.commit(Commit((KeyAbsent(b"f" + name),), (Put(b"f" + name, b"~fence " + name + b"~"),)))
    engine.value(b"f" + name)
    engine.fenced_value(name + KEYS[0], ((b"f" + name, b"~fence " + name + b"~"),))
    engine.fenced_value(name + KEYS[0], ((b"f" + name, b"another"),))
    with engine.snapshot() as snapshot:
        snapshot.value(name + KEYS[1])
        snapshot.values([name + KEYS[1], b"absent", b"f" + name])
        snapshot.count(ALL_KEYS)
        snapshot.count(KeyRange.of_prefix(b"l"))
        list(snapshot.keys(KeyRange.of_prefix(name), limit=7))
        list(snapshot.keys(ALL_KEYS, reverse=True))
        list(snapshot.pairs(KeyRange.of_prefix(name), limit=3, reverse=True))
        next(snapshot.pairs(ALL_KEYS))
        snapshot.get_many([name + KEYS[1], b"absent"])
    lease = engine.lease(600)
    engine.commit(
        Commit((), tuple(Put(name + b"leased %d" % number, b"~%s.%d~" % (name, number), lease.id) for number in (1, 2)))
    )
    assert 0 < lease.keep_alive() <= 600
    assert 0 < engine.lease(600, resume=lease.id).seconds_left() <= 600
    lease.revoke()
    with suppress(LeaseNotFoundError):
        lease.keep_alive()
    engine.commit(Commit((), (Delete(name + KEYS[5]), DeleteRange(KeyRange.of_prefix(b"l" + name)))))


def recorded(inner: Engine, folder: Path, work: Callable[[Engine], None]) -> list[Record]:
    """Do some work on an engine, and return the history of it with the log before and after."""
    path = folder / "history.jsonl"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    start = inner.commit(Commit((), (Put(b"begin", b""),)))
    watch = inner.watch(ALL_KEYS, after=start)
    with inner.snapshot() as snapshot:
        before = tuple(snapshot.scan(ALL_KEYS))
    threads = [
        Thread(target=work, args=(HistoryEngine(inner, Journal(descriptor, f"client {number}"), closes_inner=False),))
        for number in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    os.close(descriptor)
    with inner.snapshot() as snapshot:
        end, after = snapshot.revision, tuple(snapshot.scan(ALL_KEYS))
    events: list[Any] = []
    while watch.revision < end:
        events += watch.poll(5)
    return [Truth(start, entries=before), Truth(end, tuple(events)), Truth(end, entries=after), *read_records(path)]


def worker() -> Callable[[Engine], None]:
    """Everything, under another name in each thread."""
    names = iter([b"a", b"b", b"c"])
    return lambda engine: everything(engine, next(names))


@pytest.mark.parametrize("scheme", ["memory:", "lmdb:"])
def test_what_an_engine_does_right_holds(tmp_path: Path, scheme: str) -> None:
    url = scheme if scheme == "memory:" else f"lmdb:{tmp_path}/store?durability=none"
    with open_engine(url) as inner:
        assert check_history(History(recorded(inner, tmp_path, worker()))) == []


# ---- engines that are wrong in one method ---------------------------------------------------------------------------------


SNAPSHOT: Any = memory_snapshot.MemorySnapshot


def wrong_count(patch: pytest.MonkeyPatch) -> None:
    count = SNAPSHOT.count
    patch.setattr(SNAPSHOT, "count", lambda snapshot, key_range: count(snapshot, key_range) + 1)


def wrong_value(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MemoryEngine, "value", lambda engine, key: b"stale")


def wrong_snapshot_value(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SNAPSHOT, "value", lambda snapshot, key: None)


def wrong_values(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SNAPSHOT, "values", lambda snapshot, keys: [None for _ in keys])


def wrong_fence(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MemoryEngine, "fenced_value", lambda engine, key, fences: (True, engine.value(key)))


def wrong_keys(patch: pytest.MonkeyPatch) -> None:
    def keys(snapshot: Any, key_range: KeyRange, **options: Any) -> Iterator[bytes]:
        found = [entry.key for entry in snapshot.scan(key_range, **options)]
        return iter(found[1:])

    patch.setattr(SNAPSHOT, "keys", keys)


def wrong_pairs(patch: pytest.MonkeyPatch) -> None:
    def pairs(snapshot: Any, key_range: KeyRange, **options: Any) -> Iterator[tuple[bytes, bytes]]:
        return ((entry.key, b"") for entry in snapshot.scan(key_range, **options))

    patch.setattr(SNAPSHOT, "pairs", pairs)


def lost_put(patch: pytest.MonkeyPatch) -> None:
    def put_sorted(engine: Any, keys: Sequence[bytes], values: Any = None, **options: Any) -> int:
        return len(keys)

    patch.setattr(MemoryEngine, "put_sorted", put_sorted)


def halved_load(patch: pytest.MonkeyPatch) -> None:
    load = MemoryEngine.load

    def half(engine: Any, entries: Any) -> int:
        pairs = list(entries)
        load(engine, pairs[: len(pairs) // 2])
        return len(pairs)

    patch.setattr(MemoryEngine, "load", half)


def halved_lease(patch: pytest.MonkeyPatch) -> None:
    def end(state: Any, lease: int) -> None:
        held = state.leases.get(lease)
        if held is not None:
            state.apply([Delete(key) for key in sorted(held.keys)[:1]])
            held.keys.clear()

    patch.setattr(memory.Memory, "end_lease", end)


@pytest.mark.parametrize(
    ("plant", "wrong"),
    [
        (wrong_count, Wrong.READ),
        (wrong_value, Wrong.READ),
        (wrong_snapshot_value, Wrong.READ),
        (wrong_values, Wrong.READ),
        (wrong_fence, Wrong.READ),
        (wrong_keys, Wrong.READ),
        (wrong_pairs, Wrong.READ),
        (lost_put, Wrong.LOST),
        (halved_load, Wrong.HALF),
        (halved_lease, Wrong.STRANGER),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_wrong_answer_of_any_method_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plant: Callable[[pytest.MonkeyPatch], None], wrong: Wrong
) -> None:
    def work(engine: Engine) -> None:
        everything(engine, engine._journal.client[-1:].encode())  # type: ignore[attr-defined]  # the recorder of this client

    with MemoryEngine() as inner:
        plant(monkeypatch)
        records = recorded(inner, tmp_path, work)
        monkeypatch.undo()
        assert wrong in {finding.wrong for finding in check_history(History(records))}


def test_what_the_engine_refuses_is_refused_by_the_recorder(tmp_path: Path) -> None:
    def work(engine: Engine) -> None:
        with pytest.raises(KeyplanError):
            engine.load([(b"b", b""), (b"a", b"")])
        with pytest.raises(KeyplanError):
            engine.put_sorted([b"b", b"a"])
        with pytest.raises(KeyplanError):
            engine.load((key, b"") for key in [*KEYS, KEYS[0]])

    with MemoryEngine() as inner:
        findings = check_history(History(recorded(inner, tmp_path, lambda engine: None)))
        assert findings == []
        work(HistoryEngine(inner, Journal(os.open(os.devnull, os.O_WRONLY), "alone"), closes_inner=False))
