"""A header of an LMDB file that could not be written, once: LMDB refuses everything from then on, and the store goes on.

The header is the last thing that a commit writes, by a descriptor of its own. A test makes that one unwritable for a while, as
a disk is that filled up, or failed, right before.
"""

import math
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from fcntl import F_GETFL, fcntl
from pathlib import Path
from threading import Thread
from typing import Any

import lmdb
import pytest

from keyplan.engine import ALL_KEYS, Commit, Put
from keyplan.engine.group_commit import Ticket
from keyplan.engine.lmdb import LmdbEngine, LmdbOptions, environment, files
from keyplan.engine.lmdb.write import WriteTransaction
from keyplan.errors import CommitOutcomeUnknownError, EngineError, EngineOpenError, EngineUnavailableError
from keyplan.testing.engine_suite.promise import eventually
from tests.servers.full_disk import full_disk


@contextmanager
def unwritable_header(folder: Path) -> Iterator[None]:
    """Have every commit to a store of this process fail where it writes the header."""
    header = header_descriptor(folder / "data.mdb")
    kept, unwritable = os.dup(header), os.open(folder / "data.mdb", os.O_RDONLY)
    os.dup2(unwritable, header)
    try:
        yield
    finally:
        # Why asked: whoever opened the files again closed that descriptor, and its number may be another file's.
        if os.path.sameopenfile(unwritable, header) and not fcntl(header, F_GETFL) & os.O_ACCMODE:
            os.dup2(kept, header)
        os.close(kept)
        os.close(unwritable)


def header_descriptor(data: Path) -> int:
    """The descriptor by which LMDB writes the header: the one that waits for the disk."""
    numbers = [int(name) for name in os.listdir("/proc/self/fd")]
    (found,) = [
        number
        for number in numbers
        if os.path.exists(f"/proc/self/fd/{number}")
        and os.path.samefile(f"/proc/self/fd/{number}", data)
        and fcntl(number, F_GETFL) & os.O_DSYNC
    ]
    return found


THREADS = """
import sys
import threading
from itertools import count
from keyplan.engine import *
from keyplan.engine.group_commit import Ticket
from keyplan.engine.lmdb import LmdbEngine, LmdbOptions
from keyplan.errors import *

over, acknowledged, others = threading.Event(), [set() for _ in range(4)], []
with LmdbEngine(sys.argv[1], LmdbOptions()) as engine:

    def write(own):
        for step in count():
            if over.is_set():
                return
            key = b"%d/%d" % (id(own), step)
            try:
                engine.commit(Commit((), (Put(key, b""),)))
                own.add(key)
                with engine.snapshot() as snapshot:
                    snapshot.get(key)
            except (EngineUnavailableError, CommitOutcomeUnknownError):
                pass  # a snapshot that was open while the files were opened again; a header that was not written
            except EngineError as error:
                if "disk may be full" not in str(error):
                    others.append(str(error))

    threads = [threading.Thread(target=write, args=(own,)) for own in acknowledged]
    for thread in threads:
        thread.start()
    print("open", flush=True)
    sys.stdin.read()
    over.set()
    for thread in threads:
        thread.join()
    with engine.snapshot() as snapshot:
        print(set().union(*acknowledged) - set(snapshot.keys(ALL_KEYS)))
    print(others[:3])
"""


def put(key: bytes, value: bytes = b"") -> Commit:
    return Commit((), (Put(key, value),))


def keys(engine: LmdbEngine) -> list[bytes]:
    with engine.snapshot() as snapshot:
        return list(snapshot.keys(ALL_KEYS))


@pytest.fixture(params=["with history", "without"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LmdbEngine]:
    options = LmdbOptions() if request.param == "with history" else LmdbOptions(history_revisions_max=0)
    with LmdbEngine(tmp_path, options) as opened:
        opened.commit(put(b"before"))
        yield opened


def test_a_store_goes_on_after_a_commit_whose_header_could_not_be_written(engine: LmdbEngine, tmp_path: Path) -> None:
    with unwritable_header(tmp_path), pytest.raises(CommitOutcomeUnknownError):
        engine.commit(put(b"lost"))
    assert keys(engine) == [b"before"], "a read opens the files again"
    engine.commit(put(b"after"))
    assert keys(engine) == [b"after", b"before"]


def test_a_commit_opens_the_files_again_too(engine: LmdbEngine, tmp_path: Path) -> None:
    with unwritable_header(tmp_path), pytest.raises(CommitOutcomeUnknownError):
        engine.commit(put(b"lost"))
    engine.commit(put(b"after"))
    engine.commit(put(b"and again"))
    assert keys(engine) == [b"after", b"and again", b"before"]


def test_the_store_is_the_same_one_afterwards(engine: LmdbEngine, tmp_path: Path) -> None:
    lineage = engine.lineage
    with unwritable_header(tmp_path), pytest.raises(CommitOutcomeUnknownError):
        engine.commit(put(b"lost"))
    engine.commit(put(b"after"))
    assert engine.lineage == lineage


def test_a_snapshot_that_was_open_says_that_it_has_ended(engine: LmdbEngine, tmp_path: Path) -> None:
    with engine.snapshot() as snapshot:
        with unwritable_header(tmp_path), pytest.raises(CommitOutcomeUnknownError):
            engine.commit(put(b"lost"))
        assert snapshot.get(b"before") is not None, "until the files are opened again"
        engine.commit(put(b"after"))
        with pytest.raises(EngineUnavailableError):
            snapshot.get(b"before")


def test_a_watch_goes_on(tmp_path: Path) -> None:
    with LmdbEngine(tmp_path, LmdbOptions()) as engine:
        watch = engine.watch(ALL_KEYS, after=0)
        with unwritable_header(tmp_path), pytest.raises(CommitOutcomeUnknownError):
            engine.commit(put(b"lost"))
        engine.commit(put(b"after"))
        assert [event.key for event in watch.poll(10)] == [b"after"]


def test_a_commit_whose_header_was_not_written_is_not_undone_for_certain_where_no_reader_can_look(
    engine: LmdbEngine, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        with suppress(EngineError):
            while True:
                stack.enter_context(engine.snapshot())
        with unwritable_header(tmp_path), pytest.raises(CommitOutcomeUnknownError):
            engine.commit(put(b"lost"))


def test_an_interruption_while_it_is_asked_what_became_of_a_commit_does_not_let_it_be_carried_out_again(
    engine: LmdbEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> bool:
        raise KeyboardInterrupt

    begun: list[int] = []

    def write(target: WriteTransaction) -> None:
        begun.append(target.commit(put(b"lost")))

    ticket: Ticket[Any] = Ticket(write)
    own = engine._environment
    own._queue._waiting.append(ticket)  # of another thread, which waits behind the leader
    with unwritable_header(tmp_path), monkeypatch.context() as patched:
        patched.setattr(own, "_is_undone", interrupted)
        with pytest.raises(KeyboardInterrupt):
            engine.commit(put(b"own"))
    engine.commit(put(b"after"))
    assert isinstance(ticket.error, CommitOutcomeUnknownError)
    assert len(begun) == 1


def test_an_interruption_while_the_files_are_opened_again_keeps_nobody_from_opening_them(
    engine: LmdbEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with unwritable_header(tmp_path), pytest.raises(CommitOutcomeUnknownError):
        engine.commit(put(b"lost"))
    with monkeypatch.context() as patched:
        patched.setattr(environment, "open_databases", interrupted)
        with pytest.raises(KeyboardInterrupt) as kept:
            engine.commit(put(b"own"))
    engine.commit(put(b"after"))
    assert kept.type is KeyboardInterrupt, "and its frames were alive all the time"
    assert keys(engine) == [b"after", b"before"]


def test_a_file_that_was_put_in_its_place_before_it_is_opened_again_is_not_taken_for_it(
    engine: LmdbEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reopened(path: Path, options: LmdbOptions) -> tuple[lmdb.Environment, bool]:
        shutil.copyfile(path / "data.mdb", path / "copy")
        (path / "copy").replace(path / "data.mdb")
        return files.reopen_files(path, options)

    with unwritable_header(tmp_path), pytest.raises(CommitOutcomeUnknownError):
        engine.commit(put(b"lost"))
    monkeypatch.setattr(environment, "reopen_files", reopened)
    monkeypatch.setattr(engine._environment, "_place_look_at", math.inf)  # as for a moment where nothing is flushed
    with pytest.raises(EngineUnavailableError, match="another file stands at its path"):
        keys(engine)


def test_a_commit_that_fails_beside_a_watch_that_looks_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one tells of news while the other, which looks for news, finds that the files are to be opened again."""
    with LmdbEngine(tmp_path, LmdbOptions()) as engine:
        own = engine._environment
        attempt = own._attempt

        def attempted(batch: list[Ticket[Any]]) -> None:
            attempt(batch)
            try:
                own.lmdb.begin().abort()
            except lmdb.PanicError:
                eventually(lambda: len(own._queue._waiting) == 2)  # whoever reads waits for the files

        def commit() -> None:
            with unwritable_header(tmp_path), pytest.raises(CommitOutcomeUnknownError):
                engine.commit(put(b"lost"))
            engine.commit(put(b"after"))

        monkeypatch.setattr(own, "_attempt", attempted)
        watch, got = engine.watch(ALL_KEYS, after=0), list[bytes]()
        threads = [
            Thread(target=lambda: got.extend(event.key for event in watch.poll(60)), daemon=True),
            Thread(target=commit, daemon=True),
        ]
        threads[0].start()
        eventually(lambda: own.waiting_for_news == 1)
        threads[1].start()
        for thread in threads:
            thread.join(60)
        assert not any(thread.is_alive() for thread in threads)
        assert got == [b"after"]


def test_threads_of_a_process_whose_disk_is_full_again_and_again_go_on(tmp_path: Path) -> None:
    command = [sys.executable, "-c", THREADS, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        for _ in range(150):
            # Why 4096: the second of LMDB's two headers lies behind, and may be what is to be written at this moment.
            with full_disk(process.pid, file_bytes_max=4_096):
                time.sleep(0.002)  # Why: no condition tells that a commit has met the disk as it is now.
            time.sleep(0.005)  # Why: as above.
        process.stdin.close()
        lost, others = process.stdout.read().splitlines()
    assert (lost, others) == ("set()", "[]")
    assert process.returncode == 0


def test_where_the_files_cannot_be_opened_again_it_is_tried_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, _: LmdbOptions) -> tuple[lmdb.Environment, bool]:
        raise EngineOpenError(url=f"lmdb:{path}", problem="the disk is away")

    with LmdbEngine(tmp_path, LmdbOptions()) as engine:
        engine.commit(put(b"before"))
        with unwritable_header(tmp_path), pytest.raises(CommitOutcomeUnknownError):
            engine.commit(put(b"lost"))
        with monkeypatch.context() as patched:
            patched.setattr(environment, "reopen_files", refuse)
            for _ in range(2):
                with pytest.raises(EngineOpenError, match="the disk is away"):
                    engine.commit(put(b"lost"))
                with pytest.raises(EngineOpenError, match="the disk is away"):
                    keys(engine)
        assert keys(engine) == [b"before"]
        engine.commit(put(b"after"))
        assert keys(engine) == [b"after", b"before"]
