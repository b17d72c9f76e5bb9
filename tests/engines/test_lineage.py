"""A store that went back: what an engine on LMDB's files notices. Of servers: tests/postgres and tests/etcd."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import lmdb
import pytest

from keyplan.engine import ALL_KEYS, LEAP, Commit, Engine, KeyUnchanged, MemoryEngine, Put, open_engine
from keyplan.engine.lmdb import identity
from keyplan.engine.lmdb.format import Databases, LineageRecord
from keyplan.errors import (
    CommitConflictError,
    CorruptionError,
    EngineOpenError,
    EngineUnavailableError,
    HistoryCompactedError,
)
from keyplan.testing.engine_suite import eventually


def put(engine: Engine, key: bytes, value: bytes = b"") -> int:
    return engine.commit(Commit((), (Put(key, value),)))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "store"


def opened(folder: Path, options: str = "") -> Engine:
    return open_engine(f"lmdb:{folder}{options}")


@pytest.fixture(params=["another folder", "the same file"])
def restore(request: pytest.FixtureRequest, folder: Path, tmp_path: Path) -> "Restore":
    return Restore(folder, tmp_path / "copy", is_in_place=request.param == "the same file")


class Restore:
    """Copies the store, and puts the copy back."""

    def __init__(self, folder: Path, copy: Path, *, is_in_place: bool) -> None:
        self.folder = folder
        self.copy = copy
        self.is_in_place = is_in_place

    def keep(self) -> None:
        shutil.copytree(self.folder, self.copy)

    def put_back(self) -> None:
        if self.is_in_place:
            shutil.copyfile(self.copy / "data.mdb", self.folder / "data.mdb")
        else:
            shutil.rmtree(self.folder)
            shutil.copytree(self.copy, self.folder)


def test_memories_are_different_stores() -> None:
    assert MemoryEngine().lineage().store != MemoryEngine().lineage().store


def test_a_copy_that_was_put_back_is_the_same_store_in_another_epoch(folder: Path, restore: Restore) -> None:
    with opened(folder) as engine:
        put(engine, b"a")
        restore.keep()
        put(engine, b"b")
        before = engine.lineage()
    restore.put_back()
    with opened(folder) as engine:
        assert engine.lineage().store == before.store
        assert engine.lineage().epoch != before.epoch
        after = engine.lineage()
    with opened(folder) as engine:
        assert engine.lineage() == after


def test_no_revision_is_given_out_twice(folder: Path, restore: Restore) -> None:
    with opened(folder) as engine:
        kept = put(engine, b"a")
        restore.keep()
        lost = put(engine, b"a", b"lost")
    restore.put_back()
    with opened(folder) as engine:
        assert put(engine, b"a", b"after") > lost + LEAP - 1
        with pytest.raises(CommitConflictError):
            engine.commit(Commit((KeyUnchanged(b"a", lost),), (Put(b"a", b"over what was never seen"),)))
        for revision in (kept, lost):
            with pytest.raises(HistoryCompactedError):
                engine.watch(ALL_KEYS, after=revision)


def test_an_entry_that_was_not_lost_keeps_its_revision(folder: Path, restore: Restore) -> None:
    with opened(folder) as engine:
        kept = put(engine, b"a")
        restore.keep()
        put(engine, b"b")
    restore.put_back()
    with opened(folder) as engine:
        engine.commit(Commit((KeyUnchanged(b"a", kept),), (Put(b"a", b"again"),)))


def test_who_only_reads_is_told_another_epoch_and_changes_nothing(folder: Path, restore: Restore) -> None:
    with opened(folder) as engine:
        kept = put(engine, b"a")
        restore.keep()
        put(engine, b"b")
        before = engine.lineage()
    restore.put_back()
    with opened(folder, "?readonly=true") as engine, engine.snapshot() as snapshot:
        assert engine.lineage().store == before.store
        assert engine.lineage().epoch != before.epoch
        assert snapshot.revision == kept


def test_a_store_without_history_has_a_lineage(folder: Path, restore: Restore) -> None:
    with opened(folder, "?history=off") as engine:
        put(engine, b"a")
        restore.keep()
        put(engine, b"b")
        before = engine.lineage()
    restore.put_back()
    with opened(folder, "?history=off") as engine:
        assert engine.lineage().store == before.store
        assert engine.lineage().epoch != before.epoch


def test_a_folder_that_is_replaced_while_it_is_open_takes_no_commit(folder: Path, tmp_path: Path) -> None:
    with opened(folder) as engine:
        put(engine, b"a")
        shutil.copytree(folder, tmp_path / "copy")
        watch = engine.watch(ALL_KEYS, after=put(engine, b"b"))
        folder.rename(tmp_path / "aside")
        (tmp_path / "copy").rename(folder)
        with pytest.raises(EngineUnavailableError, match="replaced while it was open"):
            put(engine, b"lost")
        with pytest.raises(EngineUnavailableError, match="replaced while it was open"):
            watch.poll(0)
        with opened(folder) as again, again.snapshot() as snapshot:
            assert [entry.key for entry in snapshot.scan(ALL_KEYS)] == [b"a"]
            put(again, b"c")


COMMITS_ON_COMMAND = """
import sys
from keyplan.engine import *
with open_engine(sys.argv[1]) as engine:
    for line in sys.stdin:
        print(engine.commit(Commit((), (Put(b"a", line.encode()),))), flush=True)
"""


def test_who_opens_a_store_while_another_process_commits_is_told_its_lineage(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(folder) as engine:
        put(engine, b"a")
        before = engine.lineage()
    command = [sys.executable, "-c", COMMITS_ON_COMMAND, f"lmdb:{folder}"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
        writer_in, writer_out = writer.stdin, writer.stdout
        assert writer_in is not None
        assert writer_out is not None
        look = identity._record_of

        def look_late(transaction: "lmdb.Transaction[bytes]", databases: Databases) -> LineageRecord | None:
            print("once more", file=writer_in, flush=True)
            assert writer_out.readline()
            return look(transaction, databases)

        monkeypatch.setattr(identity, "_record_of", look_late)
        with opened(folder, "?readonly=true") as reader:
            assert reader.lineage() == before
        writer_in.close()


def test_a_store_that_flushes_nothing_soon_refuses_commits_when_it_is_replaced(folder: Path, tmp_path: Path) -> None:
    with opened(folder, "?durability=none") as engine:
        put(engine, b"a")
        shutil.copytree(folder, tmp_path / "copy")
        folder.rename(tmp_path / "aside")
        (tmp_path / "copy").rename(folder)

        def is_refused() -> bool:
            try:
                put(engine, b"b")
            except EngineUnavailableError:
                return True
            return False

        eventually(is_refused)


def test_a_store_that_was_replaced_leaves_no_files_open(folder: Path) -> None:
    engine = opened(folder)
    put(engine, b"a")
    shutil.rmtree(folder)
    with pytest.raises(EngineUnavailableError, match="replaced while it was open"):
        put(engine, b"lost")
    engine.close()
    held = [os.readlink(link) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    assert not [path for path in held if str(folder) in path]


def damage(folder: Path, table: bytes, key: bytes, raw: bytes) -> None:
    with lmdb.open(str(folder), lib_version=0, max_dbs=8) as plain, plain.begin(write=True) as transaction:
        transaction.put(key, raw, db=plain.open_db(table, txn=transaction))


@pytest.mark.parametrize("raw", [b"{brok", b"[]", b"\xff", b'{"store": 1}'])
def test_a_store_that_does_not_say_which_it_is_can_be_read_alone(folder: Path, raw: bytes) -> None:
    with opened(folder) as engine:
        put(engine, b"a", b"1")
    damage(folder, b"meta", b"lineage", raw)
    with pytest.raises(EngineOpenError, match="which store it is cannot be read: `keyplan backup` reads the rest"):
        opened(folder)
    with opened(folder, "?readonly=true") as reader:
        assert reader.value(b"a") == b"1"


def test_damaged_rows_of_the_engines_own_are_told(folder: Path) -> None:
    with opened(folder) as engine:
        put(engine, b"a", b"1")
    damage(folder, b"data", b"a", b"short")
    with opened(folder) as engine, engine.snapshot() as snapshot:
        for read in (
            lambda: snapshot.get(b"a"),
            lambda: snapshot.get_many([b"a"]),
            lambda: list(snapshot.scan(ALL_KEYS)),
            lambda: list(snapshot.scan(ALL_KEYS, keys_only=True)),
            lambda: put(engine, b"a", b"2"),
        ):
            with pytest.raises(CorruptionError, match="shorter than the header"):
                read()
    damage(folder, b"meta", b"state", b"short")
    with (
        pytest.raises(CorruptionError, match="the row of the store's revision cannot be read"),
        opened(folder) as engine,
    ):
        put(engine, b"b")
