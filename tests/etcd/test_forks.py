"""A forked child of a process that has an etcd engine open: it is refused, and its parent goes on."""

import os
from collections.abc import Callable

import pytest

from keyplan.engine import ALL_KEYS, Commit, Engine, Put
from keyplan.errors import EngineUnavailableError

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning"),
]


@pytest.mark.parametrize(
    "act",
    [
        lambda engine: engine.value(b"a"),
        lambda engine: engine.commit(Commit((), (Put(b"a", b"child"),))),
        lambda engine: engine.watch(ALL_KEYS, after=0),
        lambda engine: engine.lease(60),
    ],
    ids=["read", "commit", "watch", "lease"],
)
def test_a_forked_child_is_refused_at_once(etcd: Engine, act: Callable[[Engine], object]) -> None:
    # Why not from the beginning: the history of a server that several tests share may be compacted.
    watch = etcd.watch(ALL_KEYS, after=etcd.commit(Commit((), (Put(b"a", b"1"),))))
    child = os.fork()
    if child == 0:
        try:
            act(etcd)
        except EngineUnavailableError as error:
            watch.close()
            etcd.close()
            os._exit(0 if "forked" in str(error) else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert etcd.value(b"a") == b"1"
    watch.close()
