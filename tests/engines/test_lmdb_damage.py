"""LMDB files that were cut off or emptied, whose modes are chosen, and maps that threads enlarge at once."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from threading import Thread

import pytest

from keyplan.engine import ALL_KEYS, Commit, Delete, Put, open_engine
from keyplan.engine.lmdb import LmdbEngine, LmdbOptions
from keyplan.engine.lmdb.options import Durability
from keyplan.engine.lmdb.pages import shortfall_of
from keyplan.engine.lmdb.write import WriteTransaction
from keyplan.errors import EngineOpenError, KeyplanError
from keyplan.testing.faults import FakeClock

READ_ALL = """
import sys
from keyplan.engine import *
from keyplan.errors import *
try:
    with open_engine(sys.argv[1]) as engine, engine.snapshot() as snapshot:
        print(snapshot.count(ALL_KEYS), len(list(snapshot.scan(ALL_KEYS))))
except EngineOpenError as error:
    print(error.facts["problem"])
"""


GROWS = """
import sys
from keyplan.engine import *
from keyplan.engine.lmdb import LmdbEngine, LmdbOptions
from keyplan.engine.lmdb.options import Durability
with LmdbEngine(sys.argv[1], LmdbOptions(map_bytes=1 << 17, durability=Durability.NONE)) as engine:
    print("open", flush=True)
    for number in range(150):
        engine.commit(Commit((), (Put(b"%d/%s" % (number, sys.argv[2].encode()), bytes(20_000)),)))
"""


def filled(folder: Path) -> Path:
    with LmdbEngine(folder, LmdbOptions(durability=Durability.NONE)) as engine:
        engine.load((b"%06d" % number, bytes(500)) for number in range(2_000))
        engine.commit(Commit((), (Put(b"large", bytes(100_000)),)))
    return folder / "data.mdb"


@pytest.mark.parametrize("options", ["", "?readonly=true"])
@pytest.mark.parametrize("part", [0.1, 0.5, 0.9])
def test_a_file_that_was_cut_off_is_refused_in_words(tmp_path: Path, part: float, options: str) -> None:
    data = filled(tmp_path / "store")
    size = data.stat().st_size
    os.truncate(data, int(size * part) // 4096 * 4096)
    command = [sys.executable, "-c", READ_ALL, f"lmdb:{tmp_path}/store{options}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, "no signal ended it"
    assert "data.mdb was cut off" in done.stdout
    assert "restore it from a backup" in done.stdout


@pytest.mark.parametrize("options", ["", "?readonly=true"])
def test_an_empty_file_does_not_become_a_new_store(tmp_path: Path, options: str) -> None:
    (tmp_path / "data.mdb").touch()
    with pytest.raises(EngineOpenError, match=r"data\.mdb is empty"):
        open_engine(f"lmdb:{tmp_path}{options}")
    assert (tmp_path / "data.mdb").stat().st_size == 0


def test_what_a_short_file_lacks_is_told_by_its_free_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its tree has hundreds of pages, of which none is looked at."""
    data = filled(tmp_path / "store")
    with LmdbEngine(tmp_path / "store") as engine:
        engine.compact(engine.commit(Commit((), (Delete(b"large"),))))
    os.truncate(data, data.stat().st_size - 4096)
    looked: list[int] = []
    read = os.pread

    def counted(descriptor: int, size: int, offset: int) -> bytes:
        looked.append(offset)
        return read(descriptor, size, offset)

    monkeypatch.setattr(os, "pread", counted)
    assert shortfall_of(data) is None
    assert data.stat().st_size > 200 * 4096
    assert len(looked) < 10


def test_a_whole_file_that_lacks_pages_that_nothing_leads_to_is_opened(tmp_path: Path) -> None:
    data = filled(tmp_path / "store")
    with LmdbEngine(tmp_path / "store") as engine:
        engine.compact(engine.commit(Commit((), (Delete(b"large"),))))
    page = 4096
    size = data.stat().st_size
    shortest = size
    while shortest > page:
        os.truncate(shutil.copyfile(data, tmp_path / "cut"), shortest - page)
        if shortfall_of(tmp_path / "cut") is not None:
            break
        shortest -= page
    os.truncate(data, shortest)
    done = subprocess.run(
        [sys.executable, "-c", READ_ALL, f"lmdb:{tmp_path}/store?readonly=true"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout.split()) == (0, ["2000", "2000"]), "every page that is read is there"


def test_what_a_killed_process_left_of_a_new_file_is_in_nobodys_way(tmp_path: Path) -> None:
    (tmp_path / ".data.mdb.new").write_bytes(b"half")
    with open_engine(f"lmdb:{tmp_path}") as engine:
        assert engine.commit(Commit((), (Put(b"a", b""),))) == 1
    assert not (tmp_path / ".data.mdb.new").exists()


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077], ids=oct)
@pytest.mark.parametrize(
    ("options", "file_mode", "folder_mode"),
    [("", 0o600, 0o700), ("?mode=0640", 0o640, 0o750), ("?mode=0660", 0o660, 0o770), ("?history=off", 0o600, 0o700)],
)
def test_a_new_store_has_the_modes_asked_for_whatever_the_umask_is(
    tmp_path: Path, mask: int, options: str, file_mode: int, folder_mode: int
) -> None:
    before = os.umask(mask)
    try:
        with open_engine(f"lmdb:{tmp_path}/a/b{options}") as engine:
            engine.commit(Commit((), (Put(b"a", b""),)))
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "a/b").iterdir()}
    assert modes == dict.fromkeys(["data.mdb", "last-transaction", "lock.mdb", "turn.lock"], file_mode)
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "a", tmp_path / "a/b")} == {folder_mode}


@pytest.mark.parametrize("mode", ["", "600", "0400", "0602", "0755", "rw", "00600", "\u0660600"])
def test_a_mode_that_no_store_can_have_is_refused(tmp_path: Path, mode: str) -> None:
    if mode == "600":
        open_engine(f"lmdb:{tmp_path}/x?mode={mode}").close()
        return
    with pytest.raises(KeyplanError, match="mode must be one of"):
        open_engine(f"lmdb:{tmp_path}/x?mode={mode}")
    assert not (tmp_path / "x").exists()


def test_threads_and_processes_that_need_a_larger_map_at_once_all_get_it(tmp_path: Path) -> None:
    options = LmdbOptions(map_bytes=1 << 17, durability=Durability.NONE)
    with LmdbEngine(tmp_path, options) as engine:
        command = [sys.executable, "-c", GROWS, str(tmp_path)]
        others = [
            subprocess.Popen([*command, name], stdout=subprocess.PIPE, stderr=subprocess.PIPE) for name in ("a", "b")
        ]
        for other in others:
            assert other.stdout is not None
            assert other.stdout.readline() == b"open\n"
        failures: list[BaseException] = []

        def write(name: int) -> None:
            try:
                for number in range(60):
                    engine.commit(Commit((), (Put(b"%d/%d" % (name, number), bytes(4_000)),)))
            except KeyplanError as error:
                failures.append(error)

        def read() -> None:
            try:
                for _ in range(300):
                    with engine._environment.reading():
                        pass  # a short read transaction, and nothing else
            except KeyplanError as error:
                failures.append(error)

        threads = [Thread(target=write, args=(name,)) for name in range(6)] + [Thread(target=read) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [other.communicate()[1] for other in others] == [b"", b""]
        assert failures == []
        with engine.snapshot() as snapshot:
            assert snapshot.count(ALL_KEYS) == 360 + 300


def test_a_commit_looks_at_the_leases_only_when_one_may_be_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FakeClock()
    with LmdbEngine(tmp_path, LmdbOptions(clock=clock, durability=Durability.NONE)) as engine:
        leases = [engine.lease(60) for _ in range(50)]
        looks: list[float] = []

        expire = WriteTransaction.expire_leases

        def counted(target: WriteTransaction) -> float:
            looks.append(clock.monotonic())
            return expire(target)

        monkeypatch.setattr(WriteTransaction, "expire_leases", counted)
        clock.advance(2)  # the time at which another process's lease is looked for is over
        for number in range(100):
            engine.commit(Commit((), (Put(b"%d" % number, b""),)))
        assert len(looks) == 1
        clock.advance(60)
        engine.commit(Commit((), (Put(b"last", b"", 0),)))
        assert len(looks) == 2
        for lease in leases:
            lease.revoke()  # what is over is no error


@pytest.mark.parametrize("name", ["turn.lock", "last-transaction", "lock.mdb"])
def test_a_file_that_comes_later_has_the_mode_of_the_store(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "store"
    open_engine(f"lmdb:{folder}?mode=0660").close()
    (folder / name).unlink()
    open_engine(f"lmdb:{folder}").close()
    assert (folder / name).stat().st_mode & 0o777 == 0o660


@pytest.mark.skipif(os.geteuid() != 0, reason="only the superuser may give files away")
@pytest.mark.parametrize("name", ["turn.lock", "last-transaction", "lock.mdb"])
def test_the_superuser_shuts_the_owner_of_a_store_out_of_no_file(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "store"
    open_engine(f"lmdb:{folder}").close()
    (folder / name).unlink()
    os.chown(folder / "data.mdb", 12_345, 23_456)
    open_engine(f"lmdb:{folder}").close()
    made = (folder / name).stat()
    assert (made.st_uid, made.st_gid) == (12_345, 23_456)
