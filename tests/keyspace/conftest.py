"""Engines that the registry is tested on: memory, LMDB with and without history, and etcd, each empty."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

import pytest

from keyplan.engine import ALL_KEYS, Commit, DeleteRange, Engine, known_schemes, open_engine
from keyplan.keyspace import Founding, KeySpaceRegistry, KeySpaces
from keyplan.store import Store
from tests.store.engines import no_waiting

ENGINES: Final = ("memory", "lmdb", "lmdb-raw", "etcd")

Opener = Callable[[], Engine]
CheckAfter = Callable[..., AbstractContextManager[Store]]


@pytest.fixture(params=ENGINES)
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    """Opens one store, empty at first, as often as it is called."""
    if request.param == "etcd":
        if "etcd" not in known_schemes():
            pytest.skip("the etcd engine is not there")
        url = str(request.getfixturevalue("etcd_server").url)
        with open_engine(url) as engine:
            engine.commit(Commit((), (DeleteRange(ALL_KEYS),)))
    elif request.param == "memory":
        url = f"memory:{tmp_path}"
    else:
        history = "&history=off" if request.param == "lmdb-raw" else ""
        url = f"lmdb:{tmp_path / 'store'}?durability=none{history}"
    return lambda: open_engine(url)


@pytest.fixture
def engine(opener: Opener, check_after: CheckAfter) -> Iterator[Engine]:
    """An empty store, whose registry is checked when the test is over."""
    with opener() as opened:
        yield opened
        with check_after(Store(opener()), KeySpaceRegistry, has_others=True):
            pass


@pytest.fixture
def registry(engine: Engine) -> KeySpaces:
    """A fresh registry as the specification's acceptance cases have it: no reservations, nothing skipped."""
    founding = Founding(prefix_codec="uvarint", profile="none", skip_printable=False)
    return KeySpaces(engine, founding=founding, backoff=no_waiting())


@pytest.fixture
def memory(check_after: CheckAfter) -> Iterator[Engine]:
    """An empty store in memory, for what does not depend on the engine; its registry is checked when the test is over."""
    with open_engine("memory:") as opened:
        yield opened
        with check_after(Store(opened), KeySpaceRegistry, has_others=True):
            pass
