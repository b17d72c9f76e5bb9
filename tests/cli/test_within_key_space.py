"""`--keyspace`: records of one key space, by the commands for every store; and raw keys, which say whose they are."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import keyplan
from keyplan.engine import KeyRange, open_engine
from tests.cli.conftest import SITE, Keyplan, check_registry
from tests.cli.layouts import Box, Shelf, Site


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"lmdb:{tmp_path / 'shared.kv'}"


@pytest.fixture
def within(run: Keyplan, url: str) -> Iterator[Keyplan]:
    """Keyplan on a store where `orders` has the prefix 01 and two boxes, and `users` the prefix 02 and one."""
    for name, boxes in (("orders", 2), ("users", 1)):
        assert run("keyspace", "create", name, "--application", "shop", "--store", url).code == 0
        with keyplan.open(url, keyspace=name, application="shop") as store:
            for number in range(boxes):
                Site(store).boxes.insert(Shelf("a", number), Box(f"{name}-{number}"))
    yield lambda *words: run(*words, "--store", url)
    check_registry(url)


def test_reading_shows_the_key_spaces_records_and_no_others(within: Keyplan) -> None:
    options = ("--layout", SITE, "--keyspace", "orders")
    assert within("count", "boxes", *options).out == "2\n"
    assert within("list", "by_name", *options).out.count("orders-") == 2
    assert json.loads(within("get", "boxes", "a", "1", *options).out)["name"] == "orders-1"
    assert within("check", *options).code == 0
    dumped = [json.loads(line)["key"] for line in within("dump", *options).lines]
    assert dumped == ["/site/boxes/a/0", "/site/boxes/a/1", "/site/by-name/orders-0", "/site/by-name/orders-1"]


def test_writing_stays_below_the_prefix_and_behind_the_fence(within: Keyplan, url: str) -> None:
    options = ("--layout", SITE, "-k", "orders")
    assert within("put", "notes", "n1", "hello", *options).code == 0
    with open_engine(url) as engine, engine.snapshot() as snapshot:
        keys = [entry.key for entry in snapshot.scan(KeyRange.of_prefix(b"\x01/site/notes/"))]
    assert keys == [b"\x01/site/notes/n1"]
    assert within("keyspace", "disable", "orders").code == 0
    refused = within("delete", "notes", "n1", *options, "--json")
    assert (refused.code, refused.error["code"]) == (4, "keyspace_disabled")
    assert within("get", "notes", "n1", *options).out == '"hello"\n'


def test_a_watch_that_was_stopped_shows_nothing_of_the_next_owner_s(within: Keyplan, url: str) -> None:
    program = "import sys; from keyplan.cli.main import main; sys.exit(main(sys.argv[1:]))"
    words = ("watch", "boxes", "--follow-from-start", "--store", url, "--layout", SITE, "--keyspace", "users")
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen(
        [sys.executable, "-c", program, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    ) as watching:
        try:
            assert watching.stdout is not None
            assert "users-0" in watching.stdout.readline()
            watching.send_signal(signal.SIGSTOP)
            assert within("keyspace", "config", "reuse-cooldown-seconds=0").code == 0
            assert within("keyspace", "delete", "users", "--yes").code == 0
            assert within("keyspace", "sweep").code == 0
            assert within("keyspace", "create", "bank", "--application", "bank", "--prefix", "02").code == 0
            with keyplan.open(url, keyspace="bank", application="bank") as store:
                Site(store).boxes.insert(Shelf("a", 0), Box("theirs"))
            watching.send_signal(signal.SIGCONT)
            lines, errors = watching.communicate(timeout=60)
        finally:
            watching.kill()
    assert "theirs" not in lines
    assert "the key space was deleted" in errors
    assert watching.returncode == 4


def test_a_key_space_that_is_not_there_or_no_more_is_an_error(within: Keyplan) -> None:
    options = ("--layout", SITE, "--json", "--keyspace")
    unknown = within("count", "boxes", *options, "stock")
    assert (unknown.code, unknown.error["code"]) == (3, "keyspace_not_found")
    assert within("keyspace", "delete", "users", "--yes").code == 0
    assert within("count", "boxes", *options, "users").out == '{"item": "boxes", "count": 1}\n'
    assert within("keyspace", "sweep").code == 0
    gone = within("count", "boxes", *options, "users")
    assert gone.error["code"] == "keyspace_deleted"


def test_without_it_a_hint_says_that_the_keys_may_be_in_a_key_space(within: Keyplan) -> None:
    assert "or no --keyspace" in within("ls", "--layout", SITE).err


def test_a_raw_key_is_explained_within_the_key_space_whose_it_is(within: Keyplan) -> None:
    pasted = within("explain", "--layout", SITE, "--json", "--hex", b"\x02/site/boxes/a/0".hex()).document
    assert (pasted["owner"], pasted["keyspace"]) == ("keyspace", "users")
    assert (pasted["key"], pasted["item"]) == ("/site/boxes/a/0", "boxes")
    assert pasted["stored"]["record"]["name"] == "users-0"
    assert [entry["state"] for entry in pasted["stored"]["index_entries"]] == ["present"]


def test_keys_of_the_registry_and_of_nobody_are_told_from_the_others(within: Keyplan) -> None:
    header = within("explain", "--layout", SITE, "--json", "--hex", b"\x00kp\x00header".hex()).document
    assert (header["owner"], header["keyspace"], header["item"]) == ("system", None, "header")
    assert header["stored"]["record"]["prefix_codec"] == "uvarint"
    nobody = within("explain", "--layout", SITE, "--json", "--hex", "09").document
    assert (nobody["owner"], nobody["keyspace"], nobody["stored"]) == ("unmanaged", None, None)


def test_a_key_that_the_layout_knows_as_it_stands_is_not_stripped(run: Keyplan, url: str) -> None:
    with keyplan.open(url) as store:
        Site(store).notes.insert("n1", "hello")
    adopt = ("keyspace", "adopt", "site", "--application", "site", "--prefix", b"/site/".hex(), "--legacy")
    assert run(*adopt, "--store", url).code == 0
    found = run("explain", "/site/notes/n1", "--layout", SITE, "--store", url, "--json").document
    assert (found["key"], found["keyspace"], found["stored"]["record"]) == ("/site/notes/n1", "site", "hello")
