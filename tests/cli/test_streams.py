"""Who reads the output may go away: commands that write or examine finish, those that only print end, and exit codes stay."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

import keyplan
from keyplan.engine import Commit, DeleteRange, KeyRange
from tests.cli.conftest import SITE
from tests.cli.layouts import Box, Shelf, Site

PROGRAM: Final = "import sys; from keyplan.cli.main import main; sys.exit(main(sys.argv[1:]))"
ROOT: Final = Path(__file__).parents[2]


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-c", PROGRAM, *arguments]


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "KEYPLAN_STORE": "lmdb:store", "KEYPLAN_LAYOUT": SITE, **more}


def run_unread(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command whose output nobody reads: both ends of its pipes are closed before it begins to print."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        return subprocess.run(
            command(*arguments),
            cwd=folder,
            stdout=writing,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
            check=False,
        )
    finally:
        os.close(writing)


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    """A folder with a store of 3,000 notes: far more than a pipe holds."""
    with keyplan.open(f"lmdb:{tmp_path}/store?durability=none") as store:
        store.engine.load((b"/site/notes/%04d" % number, b"x" * 100) for number in range(3_000))
    return tmp_path


def test_a_repair_whose_output_nobody_reads_is_done_whole(tmp_path: Path) -> None:
    with keyplan.open(f"lmdb:{tmp_path}/store") as store:
        for number in range(50):
            Site(store).boxes.insert(Shelf("r", number), Box(f"n{number}"))
        store.engine.commit(Commit((), (DeleteRange(KeyRange.of_prefix(b"/site/by-name/")),)))
    ran = run_unread(tmp_path, "check", "--repair", "--yes")
    assert "Traceback" not in ran.stderr
    with keyplan.open(f"lmdb:{tmp_path}/store") as store:
        assert len(list(Site(store).by_name.list())) == 50


def test_findings_keep_their_exit_code_when_nobody_reads_them(tmp_path: Path) -> None:
    with keyplan.open(f"lmdb:{tmp_path}/store") as store:
        store.engine.load([(b"/site/by-name/%04d" % number, b"/site/boxes/r/1") for number in range(500)])
    assert run_unread(tmp_path, "check").returncode == 1
    assert run_unread(tmp_path, "check", "--json").returncode == 1


@pytest.mark.parametrize("arguments", [("list", "notes"), ("dump",), ("tree",), ("ls",)], ids=lambda words: words[0])
def test_a_command_that_only_prints_ends_with_its_reader(notes: Path, arguments: tuple[str, ...]) -> None:
    ran = run_unread(notes, *arguments)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_an_error_is_told_by_the_exit_code_when_nobody_reads_it(notes: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        ran = subprocess.run(
            command("get", "notes", "absent"), cwd=notes, stdout=writing, stderr=writing, env=environment(), check=False
        )
    finally:
        os.close(writing)
    assert ran.returncode == 3


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_json_is_json_whatever_the_output_can_spell(tmp_path: Path, encoding: str) -> None:
    text = "ä € \U0001f600"
    with keyplan.open(f"lmdb:{tmp_path}/store") as store:
        Site(store).notes.put("a", text)
    for words in (("get", "notes", "a"), ("get", "--json", "notes", "a"), ("dump",), ("list", "--json", "notes")):
        printed = subprocess.run(
            command(*words), cwd=tmp_path, capture_output=True, env=environment(PYTHONIOENCODING=encoding), check=True
        ).stdout
        assert text in json.dumps(json.loads(printed.decode(encoding)), ensure_ascii=False)


@pytest.mark.parametrize(
    "words",
    [
        ("list", "notes", "--limit", "9" * 20),
        ("watch", "notes", "--limit", "9" * 20),
        ("watch", "notes", "--after", "9" * 20),
        ("watch", "notes", "--after", "9" * 5_000),
        ("ls", "--limit", "9" * 20),
        ("tree", "--limit", "9" * 5_000),
        ("put", "notes", "a", "x", "--expected-revision", "9" * 20),
        ("put", "notes", "a", "x", "--lease", "9" * 20),
    ],
    ids=lambda words: " ".join(words)[:32],
)
def test_a_number_beyond_every_bound_is_refused_in_a_sentence(notes: Path, words: tuple[str, ...]) -> None:
    ran = subprocess.run(command(*words), cwd=notes, capture_output=True, text=True, env=environment(), check=False)
    assert ran.returncode in (2, 5), ran.stderr
    assert "Traceback" not in ran.stderr


def test_the_token_of_a_watch_is_that_of_the_last_line_that_was_read(tmp_path: Path) -> None:
    with keyplan.open(f"lmdb:{tmp_path}/store") as store:
        notes = Site(store).notes
        begin = notes.put("begin", "")
        for number in range(20):
            # Why so large: a pipe takes 64 KiB, so that the fourth change cannot leave before the first was read.
            notes.put(f"n{number:02}", "x" * 30_000)
    process = subprocess.Popen(
        command("watch", "notes", "--json", "--after", str(begin)),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    with process:
        assert process.stdout is not None
        assert process.stderr is not None
        read = [json.loads(process.stdout.readline()) for _ in range(2)]
        process.stdout.close()
        told = process.stderr.read()
    token = told.strip().rpartition(" ")[2]
    with keyplan.open(f"lmdb:{tmp_path}/store") as store:
        (change, *_) = Site(store).notes.watch(after=token).poll(1)
    # Why at most two more: what a pipe holds when its reader goes has left the writer.
    assert int(read[-1]["key"]["note"][1:]) + 1 <= int(change.key[1:]) <= int(read[-1]["key"]["note"][1:]) + 4
    assert process.returncode == 0


def test_a_watch_that_is_terminated_tells_where_it_ended(tmp_path: Path) -> None:
    with keyplan.open(f"lmdb:{tmp_path}/store") as store:
        begin = Site(store).notes.put("begin", "")
        Site(store).notes.put("a", "x")
    process = subprocess.Popen(
        command("watch", "notes", "--after", str(begin)),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    with process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert "inserted" in process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        told = process.stderr.read()
    assert "--after" in told
    assert process.returncode == 143


def test_a_dump_that_is_terminated_leaves_no_file(notes: Path) -> None:
    fifo = notes / "slow"
    os.mkfifo(fifo)
    program = (
        "import sys, keyplan.cli.keys as keys\n"
        "from keyplan.cli.main import main\n"
        "line = keys._dump_line\n"
        f"def slow(*words): open({str(fifo)!r}, 'w').close(); return line(*words)\n"
        "keys._dump_line = slow\n"
        "sys.exit(main(['dump', '-o', 'out.jsonl']))\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program], cwd=notes, env=environment())
    with fifo.open():  # the first entry is being written
        process.send_signal(signal.SIGTERM)
    with process:
        assert process.wait() == 143
    assert [path.name for path in notes.iterdir() if "out" in path.name] == []


@pytest.mark.parametrize(
    "words",
    [
        ("put", "mistyped", "a", "x"),
        ("put", "notes", "a"),
        ("put", "boxes", "r", "one", "{}"),
        ("put", "boxes", "r", "1", "{"),
    ],
    ids=" ".join,
)
def test_a_mistake_in_the_words_makes_no_store(tmp_path: Path, words: tuple[str, ...]) -> None:
    ran = subprocess.run(command(*words), cwd=tmp_path, capture_output=True, text=True, env=environment(), check=False)
    assert ran.returncode in (5, 6)
    assert list(tmp_path.iterdir()) == []
