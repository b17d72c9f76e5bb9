"""`keyplan watch`: changes as lines, tokens that continue, and an end by a number of changes or by Ctrl-C."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import keyplan
from keyplan.engine import Commit, Put, open_engine
from tests.cli.conftest import Keyplan
from tests.cli.layouts import Box, Shelf, Site

REPOSITORY = Path(__file__).parents[2]
FIRST_BOX = {
    "name": "cups",
    "size": 3,
    "label": None,
    "tags": ["red", "blue"],
    "place": {"room": "cellar", "height": 2},
}


def token_in(errors: str) -> str:
    """The token in what was printed at the end."""
    (line,) = [line for line in errors.splitlines() if "--after" in line]
    return line.rpartition(" ")[2]


def test_each_change_is_a_line_with_what_happened_the_revision_and_the_key(site: Keyplan) -> None:
    site("put", "notes", "hello", "again")
    site("delete", "notes", "hello")
    answer = site("watch", "notes", "--after", "1", "--limit", "2")
    assert answer.code == 0
    assert answer.lines == ["changed\t2\thello\tagain", "removed\t3\thello\t"]


def test_a_watch_continues_where_its_token_says(site: Keyplan) -> None:
    first = site("watch", "boxes", "a", "--after", "0", "-n", "1")
    second = site("watch", "boxes", "a", "--after", token_in(first.err), "-n", "1")
    assert [line.split("\t")[:4] for line in first.lines + second.lines] == [
        ["inserted", "1", "a", "1"],
        ["inserted", "1", "a", "2"],
    ]


def test_json_has_both_records_and_the_token(site: Keyplan) -> None:
    (document,) = site("watch", "by_tag", "blue", "--after", "0", "-n", "1", "--json").documents
    assert document["kind"] == "inserted"
    assert document["key"] == {"room": "a", "number": 1}
    assert document["old"] is None
    assert {name: document["new"][name] for name in FIRST_BOX} == FIRST_BOX
    assert document["revision"] == 1
    assert token_in(site("watch", "by_tag", "blue", "--after", "0", "-n", "1").err) == document["token"]


def test_following_begins_with_every_record(site: Keyplan) -> None:
    answer = site("watch", "notes", "--follow-from-start", "--limit", "2")
    assert answer.lines == ["inserted\t1\thello\tworld", "inserted\t1\thelp\tneeded"]


def test_following_has_no_other_begin_and_no_index(site: Keyplan) -> None:
    assert site("watch", "notes", "--follow-from-start", "--after", "1").code == 5
    assert site("watch", "by_tag", "--follow-from-start").code == 5


def test_a_token_of_another_list_is_refused(site: Keyplan) -> None:
    token = token_in(site("watch", "boxes", "--after", "0", "-n", "1").err)
    answer = site("watch", "notes", "--after", token, "--json")
    assert (answer.code, answer.error["code"]) == (5, "invalid-watch-token")


@pytest.mark.leaves("damaged-record", "missing-entry")
def test_a_record_that_cannot_be_read_is_reported_and_passed_over(site: Keyplan) -> None:
    with open_engine(os.environ["KEYPLAN_STORE"]) as engine:
        engine.commit(Commit((), (Put(b"/site/boxes/c/1", b"{"), Put(b"/site/boxes/c/2", b'{"name":"lids"}'))))
    answer = site("watch", "boxes", "c", "--after", "1", "-n", "1")
    assert [line.split("\t")[:4] for line in answer.lines] == [["inserted", "2", "c", "2"]]
    assert "stored bytes are damaged" in answer.err


def test_control_c_ends_it_with_the_token(site: Keyplan) -> None:
    program = "import sys; from keyplan.cli.main import main; sys.exit(main(sys.argv[1:]))"
    arguments = [sys.executable, "-c", program, "watch", "boxes", "--after", "1"]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    with subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as watching:
        with keyplan.open(os.environ["KEYPLAN_STORE"]) as store:
            Site(store).boxes.insert(Shelf("z", 9), Box("new"))
        assert watching.stdout is not None
        line = watching.stdout.readline()
        watching.send_signal(signal.SIGINT)
        _, errors = watching.communicate()
    assert line.split("\t")[:4] == ["inserted", "2", "z", "9"]
    assert watching.returncode == 130
    assert site("watch", "boxes", "--after", token_in(errors), "-n", "0").code == 0
