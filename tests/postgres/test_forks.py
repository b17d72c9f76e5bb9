"""A forked child has the connections, threads and locks of its parent, who must not notice how the child leaves them."""

import gc
import os
from collections.abc import Callable

import pytest

from keyplan.engine import ALL_KEYS, Commit, Engine, Put
from keyplan.engine.postgres import PostgresEngine
from keyplan.engine.postgres.failures import ConnectionLostError
from keyplan.engine.postgres.session import Statement
from keyplan.store import Store

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning"),
]


def in_child(act: Callable[[], object]) -> int:
    """Do something in a forked child and return its exit code: 0, or 1 when it raised."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            act()
            code = 0
        finally:
            os._exit(code)  # Why: whatever happens, the child must not go on with the tests.
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_child_that_closes_a_snapshot_leaves_the_parent_its_answers(engine: PostgresEngine) -> None:
    engine.commit(Commit((), (Put(b"a", b"A"), Put(b"b", b"B"))))
    with engine.snapshot() as snapshot:
        assert snapshot.value(b"a") == b"A"
        assert in_child(snapshot.close) == 0
        assert [snapshot.value(key) for key in (b"a", b"b", b"c", b"a")] == [b"A", b"B", None, b"A"]


def test_a_child_in_which_a_snapshot_is_collected_says_nothing(engine: PostgresEngine) -> None:
    engine.commit(Commit((), (Put(b"a", b"A"),)))
    held = [engine.snapshot()]
    assert held[0].value(b"a") == b"A"

    def collect() -> None:
        held.clear()
        gc.collect()

    assert in_child(collect) == 0
    assert held[0].value(b"a") == b"A"
    held[0].close()


def test_a_child_may_close_everything_while_the_parent_holds_every_lock(engine: PostgresEngine) -> None:
    engine.commit(Commit((), (Put(b"a", b"A"),)))
    watch = engine.watch(ALL_KEYS, after=0)
    snapshot = engine.snapshot()
    assert snapshot.value(b"a") == b"A"

    def leave() -> None:
        snapshot.close()
        watch.close()
        engine.close()

    locks = (engine._readers._changed, engine._workers._changed, engine._notifier._changed, engine._unread._lock)
    for lock in locks:
        lock.acquire()
    try:
        assert in_child(leave) == 0
    finally:
        for lock in locks:
            lock.release()
    assert engine.value(b"a") == snapshot.value(b"a") == b"A"
    snapshot.close()
    watch.close()


def test_a_child_that_leaves_the_block_of_a_lease_does_not_revoke_it(engine: Engine) -> None:
    store = Store(engine)
    with store.lease(60) as lease:
        assert in_child(lease.revoke) == 0
        assert in_child(store.close) == 0
        assert lease.keep_alive() == 60


def test_an_answer_that_nobody_asked_for_ends_the_connection(engine: PostgresEngine) -> None:
    engine.commit(Commit((), (Put(b"a", b"A"),)))
    session = engine._workers.take(engine._workers.deadline())
    try:
        # As another process would write to the socket: the server answers, and nobody waits for it.
        session._raw.send_query_prepared(b"settings", (), (), 1)
        session._raw.pipeline_sync()
        session._raw.flush()
        while not session._poll_for(1, 10):
            pass
        with pytest.raises(ConnectionLostError, match="not asked"):
            session.run((Statement(b"one", b"SELECT 1"), ()), give_up_at=engine._workers.deadline())
    finally:
        engine._workers.give(session, is_clean=True)
    assert engine.value(b"a") == b"A"


def test_a_snapshot_that_is_collected_under_the_lock_of_its_kind_gives_its_connection_back(
    engine: PostgresEngine,
) -> None:
    engine.commit(Commit((), (Put(b"a", b"A"),)))
    held = [engine.snapshot()]
    assert held[0].value(b"a") == b"A"
    with engine._unread._lock, engine._readers._changed:
        held.clear()  # Why: a collection comes at any moment, here while its own thread notes another snapshot.
    with engine.snapshot() as again:
        assert again.value(b"a") == b"A"
    assert len(engine._readers._idle) == 1
