"""The commands backup, restore, copy, keyspace backup and keyspace restore."""

import json
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import keyplan
from keyplan.engine import ALL_KEYS, Commit, KeyRange, Put, open_engine
from keyplan.keyspace import KeySpaces, State
from keyplan.maintenance.claims import CLAIM_FORM, Claim, prefix_claim
from keyplan.testing.checked import assert_healthy
from tests.cli.conftest import Keyplan
from tests.cli.layouts import Site
from tests.maintenance.backups import content_of


def stored(url: str) -> dict[bytes, bytes]:
    with open_engine(url) as engine:
        return content_of(engine)


@pytest.mark.slow
def test_a_store_is_backed_up_looked_at_and_restored(site: Keyplan, tmp_path: Path) -> None:
    before = stored(f"lmdb:{tmp_path}/site.kv")
    wrote = site("backup", "site.kpb")
    assert wrote.code == 0
    assert wrote.lines[1].startswith(f"wrote site.kpb: {len(before)} pairs as of revision ")
    assert site("restore", "site.kpb", "--look").lines[0] == wrote.lines[0]
    answer = site("restore", "site.kpb", "--store", "lmdb:again.kv")
    assert answer.code == 0
    assert answer.lines[0] == wrote.lines[0]
    assert "indexes: 0 entries put right, 0 findings remain" in answer.lines
    assert stored(f"lmdb:{tmp_path}/again.kv") == before


def test_what_a_backup_and_a_restore_say_as_json(site: Keyplan) -> None:
    wrote = site("backup", "site.kpb", "--json").document
    (section,) = wrote["sections"]
    restored = site("restore", "site.kpb", "--store", "lmdb:again.kv", "--json").document
    assert (restored["count"], restored["sha256"]) == (section["count"], section["sha256"])
    assert restored["written"] == restored["count"]
    assert restored["indexes"] == {"repaired": 0, "remaining": []}


def test_a_file_that_is_there_is_not_written_over_and_a_damaged_one_not_restored(site: Keyplan, tmp_path: Path) -> None:
    path = tmp_path / "site.kpb"
    path.write_bytes(b"mine")
    assert site("backup", "site.kpb").code == 5
    assert path.read_bytes() == b"mine"
    answer = site("restore", "site.kpb", "--store", "lmdb:again.kv")
    assert answer.code == 5
    assert "the file ends in the middle" in answer.err


def test_a_part_of_something_is_not_backed_up_for_the_whole(site: Keyplan, tmp_path: Path) -> None:
    claim = Claim(kind="restore", source="s", run="r", begun_at="2026-01-01T00:00:00Z")
    with open_engine(f"lmdb:{tmp_path}/site.kv") as engine:
        engine.commit(Commit((), (Put(prefix_claim(b""), CLAIM_FORM.encode(claim)),)))
    for command in (["copy", "--from", "lmdb:site.kv", "--to", "lmdb:again.kv"], ["backup", "part.kpb"]):
        answer = site(*command)
        assert answer.code == 4
        assert "a restore into the whole store, begun at 2026-01-01T00:00:00Z, is not finished" in answer.err
        assert "--unfinished" in answer.err
        assert not list(tmp_path.glob("part*"))
        assert site(*command, "--unfinished").code == 0
    checked = site("check")
    assert checked.code == 1
    assert "keys that it has not brought yet are missing here" in checked.err
    assert len(site("check", "--json").document["unfinished"]) == 1


def test_a_place_that_is_not_empty_is_told_and_overwritten_when_asked(site: Keyplan, tmp_path: Path) -> None:
    site("backup", "site.kpb")
    with keyplan.open(f"lmdb:{tmp_path}/site.kv") as store:
        Site(store).notes.put("hello", "changed")
    answer = site("restore", "site.kpb")
    assert answer.code == 4
    assert "the target is not empty" in answer.err
    assert site("restore", "site.kpb", "--overwrite").code == 0
    assert site("get", "notes", "hello").out.strip() == '"world"'


def test_a_store_is_copied_and_checked(site: Keyplan, tmp_path: Path) -> None:
    source = f"lmdb:{tmp_path}/site.kv"
    answer = site("copy", "--from", source, "--to", "lmdb:second.kv", "--json").document
    assert (answer["count"], answer["is_resumed"]) == (len(stored(source)), False)
    with keyplan.open(f"lmdb:{tmp_path}/second.kv") as store:
        assert_healthy(store, Site)
    again = site("copy", "--from", source, "--to", "lmdb:second.kv")
    assert (again.code, again.lines[-1].rpartition(": ")[2]) == (0, "already complete, nothing was written")
    site("backup", "site.kpb")
    restored = site("restore", "site.kpb", "--store", "lmdb:second.kv").lines
    assert "verified: already complete, nothing was written" in restored
    site("put", "notes", "another", "x")
    assert site("copy", "--from", source, "--to", "lmdb:second.kv").code == 4
    assert "into itself" in site("copy", "--from", source, "--to", source).err


@pytest.mark.slow
def test_a_copy_that_follows_ends_with_the_signal_and_a_verified_state(site: Keyplan, tmp_path: Path) -> None:
    source = f"lmdb:{tmp_path}/site.kv"
    arguments = ["copy", "--from", source, "--to", "lmdb:second.kv", "--follow", "--json"]
    command = [sys.executable, "-c", f"import sys; from keyplan.cli.main import main; sys.exit(main({arguments!r}))"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        watchdog = threading.Timer(120.0, process.kill)
        watchdog.start()
        assert process.stderr is not None
        assert "following changes" in process.stderr.readline()
        with keyplan.open(source) as store:
            Site(store).notes.insert("later", "change")
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate()
        watchdog.cancel()
    assert process.returncode == 0, err
    assert json.loads(out)["count"] == len(stored(source))
    assert stored(f"lmdb:{tmp_path}/second.kv") == stored(source)


@pytest.fixture
def shared_store(tmp_path: Path) -> str:
    """A registry with orders at 01 and users at 02."""
    url = f"lmdb:{tmp_path}/shared.kv"
    with open_engine(url) as engine:
        spaces = KeySpaces(engine)
        spaces.create("orders", "shop")
        spaces.create("users", "shop")
        engine.commit(Commit((), (Put(b"\x01a", b"1"), Put(b"\x02b", b"2"))))
    return url


def test_key_spaces_are_backed_up_and_restored(run: Keyplan, shared_store: str, tmp_path: Path) -> None:
    assert (
        run("keyspace", "backup", "full.kpb", "--store", shared_store).lines[-1].startswith("wrote full.kpb: 2 pairs")
    )
    looked = run("keyspace", "restore", "full.kpb", "--look", "--json").document
    assert [(section["name"], section["count"]) for section in looked["sections"]] == [("orders", 1), ("users", 1)]
    answer = run("keyspace", "restore", "full.kpb", "--store", "lmdb:again.kv")
    assert answer.code == 0
    assert answer.lines[0].startswith("orders  01  1 pairs")
    with open_engine(f"lmdb:{tmp_path}/again.kv") as engine:
        assert content_of(engine, KeyRange(b"\x01", ALL_KEYS.end)) == {b"\x01a": b"1", b"\x02b": b"2"}
        assert [space.state for space in KeySpaces(engine).all()] == [State.ENABLED, State.ENABLED]


def test_a_damaged_record_is_told_and_the_other_key_spaces_are_in_the_backup(
    run: Keyplan, shared_store: str, tmp_path: Path
) -> None:
    with open_engine(f"lmdb:{tmp_path}/shared.kv") as engine:
        engine.commit(Commit((), (Put(b"\x00kp\x01orders\x00", b"{brok"),)))
    answer = run("keyspace", "backup", "full.kpb", "--store", shared_store)
    assert answer.code == 8
    assert "damaged: key space orders, which is left out" in answer.err
    assert [line.split()[0] for line in answer.lines] == ["users", "wrote"]
    assert run("keyspace", "restore", "full.kpb", "users", "--store", "lmdb:again.kv").code == 0


def test_a_restore_is_logged_with_who_called_for_it(
    run: Keyplan, shared_store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("keyspace", "backup", "full.kpb", "--store", shared_store)
    kept = run("audit-log", "--store", shared_store, "--json").documents
    monkeypatch.setenv("LOGNAME", "ann")
    assert run("keyspace", "restore", "full.kpb", "--store", "lmdb:again.kv").code == 0
    entries = run("audit-log", "--store", "lmdb:again.kv", "--json").documents
    # Why without the revision: it is that of the store in which an entry stands.
    assert [one | {"revision": 0} for one in entries[: len(kept)]] == [one | {"revision": 0} for one in kept]
    assert {entry["actor"] for entry in entries[len(kept) :]} == {"ann"}


def test_every_conflict_is_told_apart_from_the_next(run: Keyplan, shared_store: str) -> None:
    run("keyspace", "backup", "full.kpb", "--store", shared_store)
    error = run("keyspace", "restore", "full.kpb", "--store", shared_store).err
    orders, users = error.split("; ")
    assert "name='orders'" in orders
    assert "name='users'" in users


def test_conflicts_are_told_and_options_decide(run: Keyplan, shared_store: str) -> None:
    run("keyspace", "backup", "orders.kpb", "orders", "--store", shared_store)
    answer = run("keyspace", "restore", "orders.kpb", "--store", shared_store)
    assert answer.code == 4
    assert "there is a key space of this name" in answer.err
    words = ("keyspace", "restore", "orders.kpb", "--store", shared_store)
    moved = run(*words, "--on-conflict", "relocate", "--rename-to", "orders2", "--json").document
    assert (moved["keyspace"]["name"], moved["keyspace"]["prefix"]) == ("orders2", "03")
    assert run(*words, "--on-conflict", "overwrite").code == 0
    with open_engine(shared_store) as engine:
        assert KeySpaces(engine).get("orders").generation == 2
        assert content_of(engine, KeyRange.of_prefix(b"\x03")) == {b"\x03a": b"1"}


@pytest.mark.parametrize(
    ("words", "code", "problem"),
    [
        (("full.kpb", "nobody"), 3, "there is no key space"),
        (("full.kpb", "--rename-to", "x"), 5, "pass OLD=NEW"),
        (("full.kpb", "--rename-to", "nobody=x"), 5, "nobody is not in this backup"),
        (("full.kpb", "--on-conflict", "odd"), 2, "odd"),
        (("none.kpb",), 5, "No such file"),
    ],
)
def test_a_restore_that_cannot_be_meant_is_refused(
    run: Keyplan, shared_store: str, words: tuple[str, ...], code: int, problem: str
) -> None:
    run("keyspace", "backup", "full.kpb", "--store", shared_store)
    answer = run("keyspace", "restore", *words, "--store", "lmdb:again.kv")
    assert answer.code == code
    assert problem in answer.err
