"""The files of an LMDB store: what opens, what is refused and how it is said, growth, fork, several engines on one path."""

import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import lmdb
import pytest

from keyplan.engine import ALL_KEYS, Capability, Commit, Delete, Engine, Put, open_engine
from keyplan.engine.lmdb import Durability, LmdbEngine, LmdbOptions, sharing
from keyplan.engine.lmdb.files import map_bytes_beside
from keyplan.errors import (
    EngineOpenError,
    EngineUnavailableError,
    KeyplanError,
    LeaseNotFoundError,
    UnsupportedByEngineError,
)


def put(engine: Engine, key: bytes, value: bytes = b"value") -> int:
    return engine.commit(Commit((), (Put(key, value),)))


def value_of(engine: Engine, key: bytes) -> bytes | None:
    with engine.snapshot() as snapshot:
        entry = snapshot.get(key)
        return None if entry is None else entry.value


def problem_of(url: str) -> str:
    with pytest.raises(EngineOpenError) as caught:
        open_engine(url)
    return str(caught.value.problem)


# ---- what opens, and what does not ----------------------------------------------------------------------------------------


def test_a_missing_folder_is_made_with_its_parents(tmp_path: Path) -> None:
    with open_engine(f"lmdb:{tmp_path}/new/deep") as engine:
        put(engine, b"a")
    assert sorted(path.name for path in (tmp_path / "new/deep").iterdir()) == [
        "data.mdb",
        "last-transaction",
        "lock.mdb",
        "turn.lock",
    ]


@pytest.mark.parametrize("options", ["create=false", "readonly=true"])
def test_a_missing_store_is_not_made_when_that_is_not_wanted(tmp_path: Path, options: str) -> None:
    assert "there is no store here" in problem_of(f"lmdb:{tmp_path}/absent?{options}")
    assert not (tmp_path / "absent").exists()


def test_a_plain_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("hello")
    assert "is a file" in problem_of(f"lmdb:{tmp_path}/plain")
    assert "cannot be used" in problem_of(f"lmdb:{tmp_path}/plain/below")


@pytest.mark.parametrize("garbage", [b"x", b"garbage " * 4096, b"\x00" * 8192], ids=["short", "long", "zeros"])
@pytest.mark.parametrize("options", ["", "?readonly=true"])
def test_garbage_is_refused_and_left_as_it_is(tmp_path: Path, garbage: bytes, options: str) -> None:
    (tmp_path / "data.mdb").write_bytes(garbage)
    assert "not an LMDB file" in problem_of(f"lmdb:{tmp_path}{options}")
    assert (tmp_path / "data.mdb").read_bytes() == garbage


def test_a_file_of_lmdb_1_0_is_refused_by_its_format(tmp_path: Path) -> None:
    with lmdb.open(str(tmp_path), lib_version=1) as other, other.begin(write=True) as transaction:
        transaction.put(b"a", b"b")
    assert "LMDB's format 3" in problem_of(f"lmdb:{tmp_path}")


def test_an_environment_variable_cannot_choose_lmdb_1_0(tmp_path: Path) -> None:
    program = f"from keyplan.engine import open_engine; open_engine('lmdb:{tmp_path}').close()"
    environment = {**os.environ, "LMDB_DEFAULT_LIB_VERSION": "1"}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)
    with lmdb.open(str(tmp_path), lib_version=0) as plain:
        assert plain.lib_version()[0] == 0


@pytest.mark.parametrize("name", [b"users", b"meta"], ids=["other name", "a pair named like our database"])
def test_an_lmdb_file_of_another_program_is_refused_and_left_as_it_is(tmp_path: Path, name: bytes) -> None:
    with lmdb.open(str(tmp_path), lib_version=0) as other, other.begin(write=True) as transaction:
        transaction.put(name, b"theirs")
    assert "another program" in problem_of(f"lmdb:{tmp_path}")
    with lmdb.open(str(tmp_path), lib_version=0) as other, other.begin() as transaction:
        assert list(transaction.cursor()) == [(name, b"theirs")]


def test_a_store_remembers_whether_it_has_history(tmp_path: Path) -> None:
    open_engine(f"lmdb:{tmp_path}/raw?history=off").close()
    open_engine(f"lmdb:{tmp_path}/full").close()
    assert "open it with ?history=off" in problem_of(f"lmdb:{tmp_path}/raw")
    assert "open it without history=off" in problem_of(f"lmdb:{tmp_path}/full?history=off")


def test_a_store_of_a_later_format_is_refused(tmp_path: Path) -> None:
    open_engine(f"lmdb:{tmp_path}").close()
    with lmdb.open(str(tmp_path), lib_version=0, max_dbs=8) as plain, plain.begin(write=True) as transaction:
        transaction.put(b"format", b"keyplan 2 history", db=plain.open_db(b"meta", txn=transaction))
    assert "'keyplan 2 history'" in problem_of(f"lmdb:{tmp_path}")


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("lmdb:", "needs the path"),
        ("lmdb:a%00b", "a character that no file name can have"),
        ("lmdb://host/path", "takes a path, not a host"),
        ("lmdb:x?durability=maybe", "one of full, meta, none"),
        ("lmdb:x?history=-1", "whole number"),
        (
            "lmdb:x?histroy=off",
            "the options of lmdb: are create, database, durability, history, mode, readonly, turn_seconds",
        ),
        ("lmdb:x?readonly=perhaps", "true or false"),
    ],
)
def test_a_wrong_url_says_what_is_right(url: str, problem: str) -> None:
    assert problem in problem_of(url)


def test_three_slashes_are_an_absolute_path(tmp_path: Path) -> None:
    open_engine(f"lmdb://{tmp_path}").close()
    assert (tmp_path / "data.mdb").exists()


def test_history_off_stores_raw_keys_and_values(tmp_path: Path) -> None:
    with open_engine(f"lmdb:{tmp_path}?history=off") as engine:
        put(engine, b"key", b"value")
        engine.load([(b"loaded", b"pair")])
    with (
        lmdb.open(str(tmp_path), lib_version=0, max_dbs=8) as plain,
        plain.begin(plain.open_db(b"data")) as transaction,
    ):
        assert list(transaction.cursor()) == [(b"key", b"value"), (b"loaded", b"pair")]


@pytest.mark.parametrize(
    ("durability", "is_durable"), [(Durability.FULL, True), (Durability.META, False), (Durability.NONE, False)]
)
def test_only_full_durability_claims_to_survive_the_loss_of_power(
    tmp_path: Path, durability: Durability, *, is_durable: bool
) -> None:
    with open_engine(f"lmdb:{tmp_path}?durability={durability.value}") as engine:
        assert engine.profile.claims(Capability.DURABLE) is is_durable
        put(engine, b"a", b"1")
        assert value_of(engine, b"a") == b"1"


# ---- reading only ---------------------------------------------------------------------------------------------------------


def test_a_read_only_engine_reads_and_refuses_to_write(tmp_path: Path) -> None:
    with open_engine(f"lmdb:{tmp_path}") as engine:
        put(engine, b"a", b"1")
    with open_engine(f"lmdb:{tmp_path}?readonly=true") as engine:
        assert value_of(engine, b"a") == b"1"
        assert [event.key for event in engine.watch(ALL_KEYS, after=0).poll(5)] == [b"a"]
        writes: list[Callable[[], object]] = [
            lambda: put(engine, b"b"),
            lambda: engine.lease(60),
            lambda: engine.compact(1),
            lambda: engine.load([(b"b", b"")]),
        ]
        for write in writes:
            with pytest.raises(UnsupportedByEngineError, match="open for reading only"):
                write()


def test_a_lease_can_be_looked_at_where_nothing_can_be_written(tmp_path: Path) -> None:
    url = f"lmdb:{tmp_path}/kv"
    with open_engine(url) as engine:
        lease = engine.lease(600).id
    with open_engine(f"{url}?readonly=true") as reading:
        seen = reading.lease(1, resume=lease)
        assert (seen.id, seen.ttl_seconds) == (lease, 600.0)
        assert 500 < seen.seconds_left() <= 600
        for act in (seen.keep_alive, seen.revoke):
            with pytest.raises(UnsupportedByEngineError, match="open for reading only"):
                act()
    with open_engine(url) as engine:
        engine.lease(1, resume=lease).revoke()
    with open_engine(f"{url}?readonly=true") as reading, pytest.raises(LeaseNotFoundError):
        reading.lease(1, resume=lease)


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """A folder that every user may enter; pytest's own are closed to others."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def as_ordinary_user(work: Callable[[], list[str]]) -> list[str]:
    """Do some work in a process of a user to whom permissions apply, and return what it reports."""
    reading_end, writing_end = os.pipe()
    child = os.fork()
    if child == 0:
        if os.getuid() == 0:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
        os.write(writing_end, "\n".join(work()).encode())
        os._exit(0)
    os.close(writing_end)
    with os.fdopen(reading_end) as report:
        lines = report.read().splitlines()
    os.waitpid(child, 0)
    return lines


def test_a_folder_without_write_permission_can_be_read_and_says_why_it_cannot_be_written(public_folder: Path) -> None:
    store = public_folder / "store"
    with open_engine(f"lmdb:{store}") as engine:
        put(engine, b"a", b"1")
    for path in store.iterdir():
        path.chmod(0o444)
    store.chmod(0o555)

    def work() -> list[str]:
        with open_engine(f"lmdb:{store}?readonly=true") as engine:
            report = [f"{value_of(engine, b'a')!r} {engine.profile.claims(Capability.SHARED)}"]
        for url in (f"lmdb:{store}", f"lmdb:{public_folder}/new"):
            try:
                open_engine(url)
            except EngineOpenError as error:
                report.append(str(error))
        return report

    read, refused, not_made = as_ordinary_user(work)
    assert read == "b'1' False", "without the lock file a reader must not claim to share the store"
    assert "it may not be written; open it with ?readonly=true" in refused
    assert "Permission denied" in not_made


# ---- one environment for a path -------------------------------------------------------------------------------------------


def test_engines_on_one_path_share_the_files_and_close_on_their_own(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "store")
    first, second = open_engine(f"lmdb:{tmp_path}/store"), open_engine(f"lmdb:{tmp_path}/link")
    put(first, b"a", b"1")
    assert value_of(second, b"a") == b"1"
    first.close()
    with pytest.raises(EngineUnavailableError):
        first.snapshot()
    put(second, b"a", b"2")
    second.close()
    with open_engine(f"lmdb:{tmp_path}/store") as again:
        assert value_of(again, b"a") == b"2"


def test_one_path_is_not_opened_twice_with_different_options(tmp_path: Path) -> None:
    with open_engine(f"lmdb:{tmp_path}"):
        assert "with other options" in problem_of(f"lmdb:{tmp_path}?durability=none")


def test_a_forked_child_must_open_the_store_itself(tmp_path: Path) -> None:
    engine = open_engine(f"lmdb:{tmp_path}")
    put(engine, b"a", b"parent")
    child = os.fork()
    if child == 0:
        os._exit(_child(engine, tmp_path))
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert value_of(engine, b"child") == b"1"
    put(engine, b"a", b"parent still writes")
    engine.close()


def test_a_fork_while_a_snapshot_is_open_harms_neither_process(tmp_path: Path) -> None:
    engine = open_engine(f"lmdb:{tmp_path}")
    put(engine, b"a", b"old")
    with engine.snapshot() as snapshot:
        child = os.fork()
        if child == 0:
            with pytest.raises(EngineOpenError, match="already open"):
                open_engine(f"lmdb:{tmp_path}")
            os._exit(0)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        for _ in range(20):
            put(engine, b"a", b"new" * 1_000)
        entry = snapshot.get(b"a")
        assert entry is not None
        assert entry.value == b"old"
    engine.close()


def _child(engine: Engine, path: Path) -> int:
    """Return 0 when all is as it should be in the child."""
    for call in (engine.snapshot, lambda: put(engine, b"a")):
        try:
            call()
        except EngineUnavailableError as error:
            if "forked" not in str(error):
                return 1
        else:
            return 2
    engine.close()
    with open_engine(f"lmdb:{path}") as own:
        put(own, b"child", b"1")
        return 0 if value_of(own, b"a") == b"parent" else 3


# ---- room -----------------------------------------------------------------------------------------------------------------


def test_a_map_that_is_full_grows_without_being_noticed(tmp_path: Path) -> None:
    with LmdbEngine(tmp_path, LmdbOptions(map_bytes=1 << 20, durability=Durability.NONE)) as engine:
        for number in range(40):
            put(engine, b"%d" % number, bytes([number]) * 200_000)
        with engine.snapshot() as snapshot:
            assert {entry.key: entry.value for entry in snapshot.scan(ALL_KEYS)} == {
                b"%d" % number: bytes([number]) * 200_000 for number in range(40)
            }
            assert snapshot.revision == 40


def test_a_process_with_a_small_map_follows_one_that_grew_it(tmp_path: Path) -> None:
    with LmdbEngine(tmp_path, LmdbOptions(map_bytes=1 << 20)) as engine:
        put(engine, b"a", b"1")
        program = f"""
from keyplan.engine import *
with open_engine("lmdb:{tmp_path}") as engine:
    for number in range(20):
        engine.commit(Commit((), (Put(b"%d" % number, b"x" * 300_000),)))
"""
        subprocess.run([sys.executable, "-c", program], check=True)
        assert value_of(engine, b"19") == b"x" * 300_000
        put(engine, b"a", b"2")
        assert value_of(engine, b"a") == b"2"


def test_where_address_space_is_scarce_the_map_begins_smaller(tmp_path: Path) -> None:
    program = f"""
import resource
resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
from keyplan.engine import *
with open_engine("lmdb:{tmp_path}") as engine:
    engine.commit(Commit((), (Put(b"a", b"1"),)))
    with engine.snapshot() as snapshot:
        print(snapshot.get(b"a").value)
"""
    assert resource.RLIMIT_AS is not None
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "b'1'\n"


def test_a_process_has_address_space_for_thousands_of_stores() -> None:
    options = LmdbOptions()
    maps = [map_bytes_beside(others, options) for others in range(10_000)]
    assert maps[0] == options.map_bytes
    assert sum(maps) < 1 << 47
    assert min(maps) >= 1 << 30
    assert map_bytes_beside(10_000, LmdbOptions(map_bytes=1 << 20)) == 1 << 20


def test_a_store_that_is_larger_than_its_share_is_opened_read_and_grows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sharing, "map_bytes_beside", lambda _others, _options: 1 << 20)
    options = LmdbOptions(durability=Durability.NONE)
    for opening in range(3):
        with LmdbEngine(tmp_path, options) as engine:
            with engine.snapshot() as before:
                assert len(list(before.scan(ALL_KEYS))) == 20 * opening
            for number in range(20):
                engine.commit(Commit(mutations=(Put(b"%d-%d" % (opening, number), bytes(1 << 17)),)))


def test_the_file_stays_small_when_one_key_is_written_often_and_history_is_short(tmp_path: Path) -> None:
    with LmdbEngine(tmp_path, LmdbOptions(history_revisions_max=10, durability=Durability.NONE)) as engine:
        for number in range(3_000):
            put(engine, b"a", b"%d" % number * 100)
        assert (tmp_path / "data.mdb").stat().st_size < 1 << 20
        with pytest.raises(KeyplanError):
            engine.watch(ALL_KEYS, after=2_980)
        assert [event.revision for event in engine.watch(ALL_KEYS, after=2_990).poll(5)] == list(range(2_991, 3_001))


def test_compaction_removes_the_log_from_the_file(tmp_path: Path) -> None:
    with open_engine(f"lmdb:{tmp_path}?durability=none") as engine:
        for _ in range(50):
            put(engine, b"a")
        engine.commit(Commit((), (Delete(b"a"),)))
        engine.compact(51)
    with lmdb.open(str(tmp_path), lib_version=0, max_dbs=8) as plain, plain.begin(plain.open_db(b"log")) as transaction:
        assert list(transaction.cursor()) == []


def test_a_full_disk_refuses_the_commit_keeps_the_others_and_can_still_be_read(tmp_path: Path) -> None:
    program = f"""
import resource
from keyplan.engine import *
from keyplan.errors import EngineError
with open_engine("lmdb:{tmp_path}") as engine:
    engine.commit(Commit((), (Put(b"kept", b"1", engine.lease(600).id),)))
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 19, resource.RLIM_INFINITY))
    try:
        engine.commit(Commit((), (Put(b"kept", b"2"), Put(b"large", b"x" * 1_000_000))))
    except EngineError as error:
        print(type(error).__name__, error.problem)
    with engine.snapshot() as snapshot:
        print([(entry.key, entry.value) for entry in snapshot.scan(ALL_KEYS)], snapshot.revision)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    print(engine.commit(Commit((), (Put(b"kept", b"3"),))))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    refused, read, went_on = done.stdout.splitlines()
    assert refused.startswith("EngineError ")
    assert refused.endswith("the disk may be full")
    assert (read, went_on) == ("[(b'kept', b'1')] 1", "2")
