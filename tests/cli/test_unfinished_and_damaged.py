"""What commands say of a store that is a part, and of what is damaged in it: the key and the command that helps."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shlex import quote, split

import pytest

import keyplan
from keyplan.engine import Commit, Delete, Put
from keyplan.keyspace.rows import key_of
from keyplan.layout import Only, shown_key
from keyplan.maintenance.claims import CLAIM_FORM, Claim, prefix_claim
from keyplan.maintenance.findings import FindingKind
from tests.cli.conftest import Keyplan


def write(*mutations: Put | Delete) -> None:
    with keyplan.open(os.environ["KEYPLAN_STORE"]) as store:
        store.engine.commit(Commit((), mutations))


@contextmanager
def claimed(prefix: bytes, kind: str = "restore", source: str = "backup-7") -> Iterator[None]:
    claim = Claim(kind=kind, source=source, run="r", begun_at="2026-11-22T00:00:00Z")
    write(Put(prefix_claim(prefix), CLAIM_FORM.encode(claim)))
    yield
    write(Delete(prefix_claim(prefix)))


READING = [
    ("ls",),
    ("list", "boxes"),
    ("count", "boxes"),
    ("tree",),
    ("get", "notes", "hello"),
    ("put", "notes", "x", "y", "--explain"),
    ("dump",),
    ("doctor",),
    ("explain", "/site/notes/hello"),
    ("raw", "get", "/site/notes/hello"),
    ("index", "list"),
    ("keyspace", "list"),
    ("audit-log",),
    ("infer",),
    ("audit",),
]


@pytest.mark.parametrize("command", READING, ids=" ".join)
def test_every_command_that_reads_a_part_says_so(site: Keyplan, command: tuple[str, ...]) -> None:
    before = site(*command)
    with claimed(b"/site/"):
        answer = site(*command)
    assert answer.code == before.code
    assert "keyplan: a restore into /site/, begun at 2026-11-22T00:00:00Z, is not finished" in answer.err
    assert (
        f"goes on with `keyplan restore FILE --prefix /site/ --store lmdb:{Path.cwd()}/site.kv` of the backup"
        in answer.err
    )
    assert "is not finished" not in before.err


WRITING = [
    ("put", "notes", "x", "y"),
    ("delete", "notes", "hello"),
    ("index", "build", "by_tag"),
    ("migrate", "run", "--from", "tests.cli.layouts:Site", "--to", "tests.cli.layouts:Site", "--yes"),
]


@pytest.mark.parametrize("command", WRITING, ids=lambda command: command[0])
def test_a_write_into_a_part_is_refused(site: Keyplan, command: tuple[str, ...]) -> None:
    with claimed(b"", "copy", "lmdb:./other.kv"):
        before = site("dump", "--raw").out
        answer = site(*command)
        assert answer.code == 4
        assert "these keys are a part of what they shall be: a copy into the whole store" in answer.err
        assert f"goes on with `keyplan copy --from lmdb:./other.kv --to lmdb:{Path.cwd()}/site.kv`" in answer.err
        assert site("dump", "--raw").out == before


def test_a_repair_of_a_part_and_a_key_space_in_one_are_refused(site: Keyplan) -> None:
    write(Put(b"/site/by-tag/gone/a/1", b""))
    with claimed(b""):
        assert site("check", "--repair", "--yes").code == 4
        assert site("keyspace", "create", "x", "--application", "y").code == 4
    assert site("check", "--repair", "--yes").code == 0


def test_a_write_is_made_when_it_is_said_or_is_beside_the_part(site: Keyplan) -> None:
    with claimed(b"/site/"):
        assert site("put", "notes", "x", "y", "--unfinished").code == 0
        assert site("delete", "notes", "x", "--unfinished").code == 0
    with claimed(b"/elsewhere/"):
        answer = site("put", "notes", "x", "y")
        assert (answer.code, answer.err) == (0, "")
    assert site("check").code == 0


def test_a_store_without_claims_is_opened_with_one_short_look(site: Keyplan) -> None:
    assert site("get", "notes", "hello").err == ""


# ---- damage ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["get", "put", "delete"])
def test_a_damaged_record_is_told_with_commands_alone(site: Keyplan, command: str) -> None:
    write(Put(b"/site/boxes/a b/1", b"{brok"))
    words = ("boxes", "a b", "1", *(['{"name": "x"}'] if command == "put" else []))
    answer = site(command, *words)
    assert answer.code == 8
    assert "damaged_ok" not in answer.err
    assert "(raw key /site/boxes/a b/1" in answer.err or "raw key /site/boxes/a b/1, " in answer.err
    assert f"`keyplan raw quarantine {quote('/site/boxes/a b/1')}` sets it aside" in answer.err
    assert "`keyplan extract BACKUP --key '/site/boxes/a b/1' --into-store --overwrite`" in answer.err
    assert site("raw", "quarantine", "/site/boxes/a b/1", "--yes").code == 0


def test_a_damaged_counter_is_told_with_its_key_and_the_command(site: Keyplan) -> None:
    write(Put(b"/site/tickets", b"many"))
    answer = site("get", "tickets")
    assert answer.code == 8
    assert "raw key /site/tickets" in answer.err
    assert "`keyplan raw put /site/tickets NUMBER`" in answer.err
    checked = site("check")
    assert "damaged-counter: `keyplan raw put /site/tickets NUMBER` writes the right number" in checked.err
    assert site("raw", "put", "/site/tickets", "102", "--yes").code == 0
    assert site("check").code == 0


def test_every_kind_of_finding_names_its_command_with_the_key_quoted(site: Keyplan) -> None:
    for kind in FindingKind:
        assert "`keyplan " in kind.advice or "--beside" in kind.advice, kind
    write(Put(b"/site/boxes/a b/1", b"{brok"))
    assert "`keyplan raw get '/site/boxes/a b/1'` shows the value" in site("check").err
    (finding,) = [one for one in site("check", "--json").documents if one.get("finding") == "damaged-record"]
    assert "`keyplan raw get '/site/boxes/a b/1'`" in finding["advice"]
    write(Delete(b"/site/boxes/a b/1"))


def test_exactly_these_bytes_are_written_whatever_the_layout_reads(site: Keyplan) -> None:
    answer = site("raw", "put", "/site/by-name/knives", "nonsense", "--yes")
    assert answer.code == 0
    assert "by_name cannot read this value" in answer.err
    assert site("raw", "get", "/site/by-name/knives").out == "nonsense"
    assert site("raw", "put", "/site/tickets", "many", "--dry-run").err.count("tickets cannot read this value") == 1
    assert site("check", "--repair", "--yes").code == 0


@pytest.mark.parametrize("table", ["strange", "marks", "configuration", "records", "header", "audit"])
def test_the_doctor_names_the_key_and_a_command_that_mends(site: Keyplan, table: str) -> None:
    site("keyspace", "create", "orders", "--application", "shop")
    keys = {"marks": b"\x05", "records": "orders", "audit": 1}
    raw_key = key_of("records", "orders") + b" \xff" if table == "strange" else key_of(table, keys.get(table, Only()))
    write(Put(raw_key, b"junk"))
    answer = site("doctor")
    assert answer.code == 1
    assert "Only()" not in answer.out
    shown = quote(shown_key(raw_key))
    assert f"key {shown};" in answer.out
    assert "; `keyplan " in answer.out
    for fault in site("doctor", "--json").document["faults"]:
        assert fault["remedy"]
        assert fault["raw_key"]
    if table == "strange":
        command = f"raw quarantine {shown} --past-fence"
        assert f"`keyplan {command}` sets it aside" in answer.out
        assert site(*split(command), "--yes").code == 0
    elif table != "audit":
        assert "`keyplan doctor --repair` puts it right" in answer.out
        site("doctor", "--repair", "--yes")
    if table != "audit":
        assert site("doctor").code == 0
