"""Readers that hold a snapshot and die, or do not: what becomes of the size of the file."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from keyplan.engine import Commit, Engine, Put, open_engine

OPTIONS = "durability=none&history=5"
"""Why: a short history, so that the log does not grow; and speed, since nothing is killed that writes."""
VALUE = b"v" * 2_000
PAGES_OF_DRIFT = 64 * 1_024
"""Why: which pages are free changes from commit to commit, and the list of them takes some itself."""

READER = """
import sys
from keyplan.engine import open_engine
engine = open_engine(sys.argv[1])
snapshot = engine.snapshot()
snapshot.get(b"a")
print("reading", flush=True)
sys.stdin.read()
"""


@contextmanager
def reader(url: str) -> Iterator["subprocess.Popen[str]"]:
    """A process that holds a snapshot for the length of the block, unless it is killed before."""
    process = subprocess.Popen(
        [sys.executable, "-c", READER, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "reading\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def write(engine: Engine, *, commits: int) -> None:
    for number in range(commits):
        engine.commit(Commit((), (Put(b"a", b"%d" % number + VALUE),)))


def size(folder: Path) -> int:
    return (folder / "data.mdb").stat().st_size


def kill(process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.wait()


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    """A store that has reached the size that it keeps when nobody reads."""
    with open_engine(f"lmdb:{tmp_path}?{OPTIONS}") as engine:
        write(engine, commits=500)
        yield engine


def test_without_readers_the_file_keeps_its_size(engine: Engine, tmp_path: Path) -> None:
    before = size(tmp_path)
    write(engine, commits=1_000)
    assert size(tmp_path) - before < PAGES_OF_DRIFT


def test_a_killed_reader_makes_the_file_grow_for_256_commits_at_most(engine: Engine, tmp_path: Path) -> None:
    with reader(f"lmdb:{tmp_path}?{OPTIONS}") as process:
        kill(process)
        write(engine, commits=256)
        grown = size(tmp_path)
        write(engine, commits=2_000)
        assert size(tmp_path) - grown < PAGES_OF_DRIFT, (
            "the writer stays open all the while, and finds out that the reader is dead"
        )


def test_a_living_old_reader_makes_the_file_grow_with_every_commit(engine: Engine, tmp_path: Path) -> None:
    with reader(f"lmdb:{tmp_path}?{OPTIONS}"):
        before = size(tmp_path)
        write(engine, commits=1_000)
        grown = size(tmp_path)
        assert grown - before > 1_000 * len(VALUE), "what the old snapshot sees cannot be overwritten"
    write(engine, commits=256)
    grown = size(tmp_path)
    write(engine, commits=1_000)
    assert 0 <= size(tmp_path) - grown < PAGES_OF_DRIFT, "the room is used again; but a file never shrinks"
