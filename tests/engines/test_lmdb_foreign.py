"""An LMDB file that another program writes is read, whole or one of its databases, and never written."""

from collections.abc import Iterator
from pathlib import Path

import lmdb
import pytest

from keyplan.engine import ALL_KEYS, Commit, Engine, KeyRange, Put, open_engine
from keyplan.errors import EngineOpenError, EngineUnavailableError, UnsupportedByEngineError

PAIRS = {b"a/1": b"x", b"a/2": b"", b"b\x00": b"\xff"}


def write(path: Path, *, is_folder: bool = True) -> None:
    """What another program leaves: its main database, and one with a name."""
    with lmdb.open(str(path), subdir=is_folder, max_dbs=2, lib_version=0) as environment:
        named = environment.open_db(b"jobs")
        duplicates = environment.open_db(b"tags", dupsort=True)
        with environment.begin(write=True) as transaction:
            for key, value in PAIRS.items():
                transaction.put(key, value)
            transaction.put(b"j1", b"named", db=named)
            transaction.put(b"t", b"1", db=duplicates)


@pytest.fixture(params=["folder", "file"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "foreign.mdb"
    write(path, is_folder=request.param == "folder")
    return path


@pytest.fixture
def engine(path: Path) -> Iterator[Engine]:
    with open_engine(f"lmdb:{path}?database=") as engine:
        yield engine


def test_keys_and_values_are_read_in_order(engine: Engine) -> None:
    with engine.snapshot() as snapshot:
        found = {entry.key: entry.value for entry in snapshot.scan(ALL_KEYS)}
        assert {key: found[key] for key in PAIRS} == PAIRS
        assert [entry.key for entry in snapshot.scan(KeyRange.of_prefix(b"a/"))] == [b"a/1", b"a/2"]
        assert [entry is None for entry in snapshot.get_many([b"a/2", b"a/3"])] == [False, True]


def test_a_database_is_read_by_its_name(path: Path) -> None:
    with open_engine(f"lmdb:{path}?database=jobs") as engine, engine.snapshot() as snapshot:
        assert [(entry.key, entry.value) for entry in snapshot.scan(ALL_KEYS)] == [(b"j1", b"named")]


def test_nothing_is_written(engine: Engine) -> None:
    with pytest.raises(UnsupportedByEngineError):
        engine.commit(Commit((), (Put(b"a/1", b"y"),)))
    with pytest.raises(UnsupportedByEngineError):
        engine.load([(b"c", b"y")])
    with pytest.raises(UnsupportedByEngineError):
        engine.watch(ALL_KEYS, after=0)
    with pytest.raises(UnsupportedByEngineError):
        engine.lease(5)
    with pytest.raises(UnsupportedByEngineError):
        engine.compact(1)


def test_what_cannot_be_read_is_refused_with_the_reason(path: Path, tmp_path: Path) -> None:
    with pytest.raises(EngineOpenError, match="there is no LMDB file here"):
        open_engine(f"lmdb:{tmp_path / 'nowhere'}?database=")
    with pytest.raises(EngineOpenError, match="the database 'none' cannot be read"):
        open_engine(f"lmdb:{path}?database=none")
    with pytest.raises(EngineOpenError, match="several values for a key"):
        open_engine(f"lmdb:{path}?database=tags")
    (tmp_path / "text").write_text("not a database, however long it may be" * 200)
    with pytest.raises(EngineOpenError):
        open_engine(f"lmdb:{tmp_path / 'text'}?database=")


def test_after_close_nothing_is_read(path: Path) -> None:
    engine = open_engine(f"lmdb:{path}?database=")
    engine.close()
    engine.close()
    with pytest.raises(EngineUnavailableError, match="the engine was closed"):
        engine.snapshot()
