"""The threads that gRPC's calls are made in."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event, Thread, current_thread
from threading import enumerate as running_threads

import pytest

from keyplan.apps.runm.call_pool import CallPool

PATIENCE_SECONDS = 60.0


def test_each_listener_is_told_once_that_its_call_has_ended_however_soon_it_does() -> None:
    ended: list[object] = []
    with CallPool(3, "pool") as pool:
        calls = []
        for _ in range(2_000):
            call = pool.submit(int)
            call.add_done_callback(ended.append)
            calls.append(call)
    assert len(ended) == len(calls)
    assert set(map(id, ended)) == set(map(id, calls))


@pytest.mark.parametrize("listens_first", [True, False])
def test_a_listener_hears_of_the_end_and_not_before(listens_first: bool) -> None:  # noqa: FBT001
    may_end, has_ended, told = Event(), Event(), Event()

    def work() -> None:
        assert may_end.wait(PATIENCE_SECONDS)
        has_ended.set()

    with CallPool(1, "pool") as pool:
        call = pool.submit(work)
        if listens_first:
            call.add_done_callback(lambda _: told.set() if has_ended.is_set() else None)
            assert not told.is_set()
            may_end.set()
        else:
            may_end.set()
            pool.submit(int)
            assert has_ended.wait(PATIENCE_SECONDS)
            call.add_done_callback(lambda _: told.set())
        assert told.wait(PATIENCE_SECONDS)


def test_calls_are_made_side_by_side_up_to_the_number_of_threads_and_one_after_the_other_by_one() -> None:
    together = Barrier(4)
    with CallPool(4, "pool") as pool:
        for _ in range(8):
            pool.submit(together.wait, PATIENCE_SECONDS)
    assert not together.broken
    names: list[str] = []

    def note(done: Event) -> None:
        names.append(current_thread().name)
        done.set()

    with CallPool(4, "lone") as pool:
        for _ in range(20):
            done, free = Event(), Event()
            pool.submit(note, done).add_done_callback(lambda _, free=free: free.set())
            assert done.wait(PATIENCE_SECONDS)
            assert free.wait(PATIENCE_SECONDS)
    assert len(set(names)) <= 2, "a thread is not started for each call"


def test_a_call_that_fails_ends_and_its_thread_makes_the_next(caplog: pytest.LogCaptureFixture) -> None:
    ended: list[object] = []

    def failing() -> None:
        raise SystemExit(3)

    with CallPool(1, "pool") as pool:
        pool.submit(failing).add_done_callback(ended.append)
        pool.submit(int).add_done_callback(ended.append)
    assert len(ended) == 2
    assert "SystemExit" in caplog.text


def test_the_end_waits_for_calls_that_were_handed_over_and_leaves_no_thread() -> None:
    made: list[int] = []
    release = Event()
    pool = CallPool(1, "ending-pool")
    pool.submit(release.wait, PATIENCE_SECONDS)
    for number in range(50):
        pool.submit(made.append, number)
    pool.shutdown(wait=False)
    with pytest.raises(RuntimeError, match="closed"):
        pool.submit(int)
    release.set()
    pool.shutdown()
    assert made == list(range(50))
    assert not [one for one in running_threads() if one.name.startswith("ending-pool")]


def test_calls_wait_for_the_threads_that_there_are_when_the_system_has_no_other(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(_self: Thread) -> None:
        raise RuntimeError("can't start new thread")

    ended: list[object] = []
    with CallPool(4, "pool") as pool:
        with monkeypatch.context() as scarce:
            scarce.setattr(Thread, "start", refused)
            release = Event()
            for _ in range(3):
                pool.submit(release.wait, PATIENCE_SECONDS).add_done_callback(ended.append)
            assert "a call waits for one of 1 threads: can't start new thread" in caplog.text
            with pytest.raises(RuntimeError, match="new thread"):
                CallPool(4, "none")
        together = Barrier(2)
        for _ in range(2):
            pool.submit(together.wait, PATIENCE_SECONDS).add_done_callback(ended.append)
        release.set()
    assert len(ended) == 5
    assert not together.broken


def test_it_is_what_grpc_takes_for_a_pool() -> None:
    pools: list[Callable[..., ThreadPoolExecutor]] = [lambda: CallPool(1, "pool")]
    with pools[0]() as pool:
        assert isinstance(pool, ThreadPoolExecutor)
