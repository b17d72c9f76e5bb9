"""Engines that the registry is tested on: memory, LMDB with and without history, and etcd, each empty."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from keyplan.engine import ALL_KEYS, Commit, DeleteRange, Engine, known_schemes, open_engine
from keyplan.keyspace import Founding, KeySpaces
from tests.store.engines import no_waiting

ENGINES: Final = ("memory", "lmdb", "lmdb-raw", "etcd")

Opener = Callable[[], Engine]


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
def engine(opener: Opener) -> Iterator[Engine]:
    """An empty store."""
    with opener() as opened:
        yield opened


@pytest.fixture
def registry(engine: Engine) -> KeySpaces:
    """A fresh registry as the specification's acceptance cases have it: no reservations, nothing skipped."""
    founding = Founding(prefix_codec="uvarint", profile="none", skip_printable=False)
    return KeySpaces(engine, founding=founding, backoff=no_waiting())


@pytest.fixture
def memory() -> Iterator[Engine]:
    """An empty store in memory, for what does not depend on the engine."""
    with open_engine("memory:") as opened:
        yield opened
