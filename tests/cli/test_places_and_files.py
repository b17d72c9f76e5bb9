"""Where commands read from and write to: stores that are made, folders of others, files called -, keys in what is said."""

import os
from pathlib import Path

import pytest

import keyplan
from keyplan.engine import Commit, Put, open_engine
from keyplan.maintenance.claims import CLAIM_FORM, Claim, prefix_claim
from tests.cli.conftest import Keyplan


@pytest.mark.parametrize("content", [None, b"no backup at all", b"cut"])
@pytest.mark.parametrize("command", ["restore", "keyspace"])
def test_a_file_that_is_no_backup_makes_no_store(
    site: Keyplan, tmp_path: Path, command: str, content: bytes | None
) -> None:
    path = tmp_path / "site.kpb"
    if content == b"cut":
        assert site("backup", "site.kpb").code == 0
        path.write_bytes(path.read_bytes()[:-10])
    elif content is not None:
        path.write_bytes(content)
    words = ("restore",) if command == "restore" else ("keyspace", "restore")
    answer = site(*words, "site.kpb", "--store", "lmdb:new.kv")
    assert answer.code == 5
    assert not (tmp_path / "new.kv").exists()


def test_a_backup_of_the_other_kind_or_without_the_name_makes_no_store(site: Keyplan, tmp_path: Path) -> None:
    assert site("backup", "site.kpb").code == 0
    answer = site("keyspace", "restore", "site.kpb", "--store", "lmdb:new.kv")
    assert (answer.code, "`keyplan restore` brings it back" in answer.err) == (5, True)
    assert site("restore", "site.kpb", "--store", "lmdb:new.kv", "--prefix", "\\xZZ").code == 5
    site("keyspace", "create", "orders", "--application", "shop", "--store", "lmdb:spaces.kv")
    assert site("keyspace", "backup", "spaces.kpb", "--store", "lmdb:spaces.kv").code == 0
    answer = site("restore", "spaces.kpb", "--store", "lmdb:new.kv")
    assert (answer.code, "`keyplan keyspace restore` brings them back" in answer.err) == (5, True)
    answer = site("keyspace", "restore", "spaces.kpb", "ordres", "--store", "lmdb:new.kv")
    assert (answer.code, "ordres" in answer.err) == (3, True)
    assert not (tmp_path / "new.kv").exists()


def test_a_copy_that_is_refused_makes_no_store(site: Keyplan, tmp_path: Path) -> None:
    claim = Claim(kind="restore", source="x", run="r", begun_at="2026-11-22T00:00:00Z")
    with open_engine(f"lmdb:{tmp_path}/site.kv") as engine:
        engine.commit(Commit((), (Put(prefix_claim(b"/site/"), CLAIM_FORM.encode(claim)),)))
    answer = site("copy", "--from", f"lmdb:{tmp_path}/site.kv", "--to", "lmdb:new.kv")
    assert answer.code == 4
    assert not (tmp_path / "new.kv").exists()
    assert site("copy", "--from", f"lmdb:{tmp_path}/site.kv", "--to", "lmdb:new.kv", "--unfinished").code == 0


@pytest.mark.parametrize("command", ["restore", "keyspace restore", "copy"])
def test_what_the_engine_cannot_hold_makes_no_store(site: Keyplan, tmp_path: Path, command: str) -> None:
    """A key that fits below no prefix of LMDB's: of a store that had it in memory."""
    key = b"/site/" + b"k" * 600
    with open_engine("memory:long-keys") as engine:
        engine.commit(Commit((), (Put(b"/site/note/a", b"b"), Put(key, b""))))
        if command == "copy":
            answer = site("copy", "--from", "memory:long-keys", "--to", "lmdb:new.kv")
        else:
            source = ("--store", "memory:long-keys")
            words = tuple(command.split())
            if command == "keyspace restore":
                name = ("orders", "--application", "shop", "--prefix", b"/site/".hex(), "--legacy")
                assert site("keyspace", "adopt", *name, *source).code == 0
            assert site(*words[:-1], "backup", "long.kpb", *source).code == 0
            answer = site(*words, "long.kpb", "--store", "lmdb:new.kv")
    assert (answer.code, "key_bytes_max" in answer.err) == (7, True), answer.err
    assert not (tmp_path / "new.kv").exists()


@pytest.mark.parametrize("other", ["lmdb:../here/site.kv", "lmdb:link.kv", "lmdb:site.kv?durability=meta"])
def test_a_store_is_not_copied_into_itself_by_another_name(
    site: Keyplan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "site.kv").symlink_to(tmp_path / "site.kv")
    (tmp_path / "link.kv").symlink_to(tmp_path / "site.kv")
    monkeypatch.chdir(tmp_path)
    if other == "lmdb:../here/site.kv":
        monkeypatch.chdir(tmp_path / "here")
    answer = site("copy", "--from", f"lmdb:{tmp_path}/site.kv", "--to", other, "--overwrite")
    assert answer.code == 5
    assert "a store is not copied into itself" in answer.err


@pytest.mark.parametrize(
    "command",
    [("restore", "site.kpb"), ("put", "notes", "a", "b"), ("keyspace", "create", "x", "--application", "y")],
)
def test_no_store_is_made_among_files_of_others(site: Keyplan, tmp_path: Path, command: tuple[str, ...]) -> None:
    assert site("backup", "site.kpb").code == 0
    (tmp_path / "others").mkdir()
    (tmp_path / "others" / "report.txt").write_text("mine")
    answer = site(*command, "--store", "lmdb:others")
    assert answer.code == 7
    assert "the folder holds other files, as 'report.txt'" in answer.err
    assert [path.name for path in (tmp_path / "others").iterdir()] == ["report.txt"]


def test_a_store_is_made_in_an_empty_folder_and_at_the_root_of_a_disk(tmp_path: Path) -> None:
    (tmp_path / "disk" / "lost+found").mkdir(parents=True)
    (tmp_path / "disk" / ".gitkeep").touch()
    (tmp_path / "disk" / "turn.lock").touch()
    for name in ("disk", "disk"):
        keyplan.open(f"lmdb:{tmp_path / name}").close()
    (tmp_path / "disk" / "notes.txt").write_text("beside a store that is there, anything may stand")
    keyplan.open(f"lmdb:{tmp_path / 'disk'}").close()


@pytest.mark.parametrize(
    "command",
    [
        ("backup", "-"),
        ("restore", "-"),
        ("keyspace", "backup", "-"),
        ("keyspace", "restore", "-"),
        ("extract", "-", "--key", "x"),
        ("infer", "-o", "-"),
    ],
)
def test_a_file_called_minus_is_not_meant(site: Keyplan, tmp_path: Path, command: tuple[str, ...]) -> None:
    before = {path.name for path in tmp_path.iterdir()}
    answer = site(*command)
    assert answer.code == 5
    assert "./-" in answer.err
    assert {path.name for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("command", [("dump", "-o"), ("docs", "-o"), ("map", "--write")])
def test_minus_is_standard_output_for_text(site: Keyplan, tmp_path: Path, command: tuple[str, ...]) -> None:
    answer = site(*command, "-")
    assert (answer.code, answer.out) == (0, site(command[0]).out)
    assert not (tmp_path / "-").exists()


def test_keys_are_told_as_commands_take_them(site: Keyplan) -> None:
    assert site("backup", "site.kpb").code == 0
    assert site("backup", "notes.kpb", "--prefix", "/site/notes/").code == 0
    assert site("put", "notes", "late", "written after the backups").code == 0
    answer = site("restore", "site.kpb")
    assert "(first key /site/boxes/a/1, advice " in answer.err
    answer = site("restore", "site.kpb", "--json")
    assert answer.error["facts"]["first_key"] == b"/site/boxes/a/1".hex()
    answer = site("restore", "notes.kpb")
    assert "(prefix /site/notes/, first key /site/notes/hello, " in answer.err
    answer = site("raw", "get", "/site/notes/none")
    assert "(raw key /site/notes/none)" in answer.err


def test_a_store_may_lie_at_a_path_that_is_no_text(site: Keyplan, tmp_path: Path) -> None:
    url = "lmdb:" + os.fsdecode(b"caf\xe9.db")
    assert site("put", "notes", "a", "b", "--store", url).code == 0
    assert site("get", "notes", "a", "--store", url).out == '"b"\n'
    assert "no process has the store open" in site("who", "--store", url).out
    assert site("dump", "--raw", "--store", url + "?database=data").code == 0
    assert b"caf\xe9.db" in os.listdir(os.fsencode(tmp_path))
