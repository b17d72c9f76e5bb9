"""The files of an audit log: a new one by size, older ones removed, kills at any moment, and what others do to files."""

import os
import shutil
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from errno import ENOSPC
from pathlib import Path
from typing import Any

import pytest

from keyplan.audit_log import AuditLog, Event, Notice, Rotation, read_lines, verified_files
from keyplan.errors import AuditLogError, AuditLogIncompleteError, InvalidInputError
from tests.servers.full_disk import full_disk

T0 = 1_795_225_800.0


class Watched:
    """Logs in one folder, and what they had to tell."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "log"
        self.notices: list[Notice] = []

    def opened(self, bytes_max: int | None = None, files_kept: int | None = None) -> AuditLog:
        rotation = Rotation(bytes_max, files_kept)
        return AuditLog(self.path, syncs=False, wall=lambda: T0, rotation=rotation, on_notice=self.notices.append)

    @property
    def problems(self) -> list[str]:
        return [f"{one.words}: {one.facts['problem']}" for one in self.notices if one.is_problem]

    @property
    def names(self) -> list[str]:
        """The files, in the order of their lines."""
        return sorted((path.name for path in self.path.parent.glob("log*")), key=lambda name: (name == "log", name))


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched(tmp_path)


def change(log: AuditLog, subject: str = "k") -> int:
    """Note a change; the number of its last line."""
    begun = log.append(Event.BEGUN, subject=subject).result()
    return log.append(Event.DONE, subject=subject, of=begun).result()


# ---- by size -------------------------------------------------------------------------------------------------------------


def test_a_file_that_is_large_enough_is_left_as_an_older_one_with_the_numbers_of_its_lines(watched: Watched) -> None:
    with watched.opened(bytes_max=700) as log:
        for number in range(4):
            change(log, f"key {number}")
    files = {
        name: [line.record.number for line in read_lines([watched.path]) if line.record and line.file.name == name]
        for name in watched.names
    }
    assert len(files) > 2
    assert [number for numbers in files.values() for number in numbers] == [*range(1, files["log"][-1] + 1)]
    for name, numbers in files.items():
        size = (watched.path.parent / name).stat().st_size
        assert name in {"log", f"log.{numbers[0]}-{numbers[-1]}"}
        assert (size >= 700) is (name != "log")
        # No larger than by the lines that were written together.
        assert size < 1_400
    verdict = verified_files([watched.path])
    assert (verdict.is_whole, verdict.first, verdict.head, verdict.removed) == (True, 1, log.head.digest, 0)
    assert verified_files([watched.path.parent / name for name in files]).head == log.head.digest
    assert not watched.problems


@pytest.mark.parametrize(("mode", "is_told"), [(0o600, False), (0o640, False), (0o644, True), (0o602, True)])
def test_a_file_that_everybody_may_read_or_write_is_told(watched: Watched, mode: int, *, is_told: bool) -> None:
    watched.path.touch()
    watched.path.chmod(mode)
    with watched.opened():
        assert bool(watched.problems) is is_told
    assert stat.S_IMODE(watched.path.stat().st_mode) == mode


def test_a_log_that_was_closed_goes_on_with_its_files(watched: Watched) -> None:
    last = 0
    for _ in range(3):
        with watched.opened(bytes_max=700) as log:
            change(log)
        last = log.head.number
    assert verified_files([watched.path])[:3] == (True, 1, last)


def test_a_missing_or_edited_older_file_is_found(watched: Watched) -> None:
    with watched.opened(bytes_max=500) as log:
        for _ in range(6):
            change(log)
    _, second, *_ = [
        watched.path.parent / name
        for name in sorted(watched.names, key=lambda name: int("0" + name[4:].partition("-")[0]))
    ][1:]
    content = second.read_bytes()
    second.write_bytes(content.replace(b'"begun"', b'"done"', 1))
    assert not verified_files([watched.path]).is_whole
    second.unlink()
    verdict = verified_files([watched.path])
    assert (verdict.is_whole, verdict.problem) == (False, "it is missing")
    assert f"log.{verdict.broken_at}-" in second.name


@pytest.mark.parametrize("kept", [0, 1, 3])
def test_older_files_beyond_those_that_are_kept_are_removed_and_a_line_says_so(watched: Watched, kept: int) -> None:
    with watched.opened(bytes_max=500, files_kept=kept) as log:
        for _ in range(12):
            change(log)
    older = [name for name in watched.names if name != "log"]
    assert len(older) == kept
    verdict = verified_files([watched.path])
    assert (verdict.is_whole, verdict.last, verdict.removed) == (True, log.head.number, verdict.first - 1)
    assert verdict.removed > 10
    # Only what such a line tells may lack: more is found.
    for name in older:
        (watched.path.parent / name).unlink()
    verdict = verified_files([watched.path])
    assert (verdict.is_whole, verdict.broken_at) == ((True, None) if kept == 0 else (False, 1))


def test_fewer_files_are_kept_from_the_next_one_on(watched: Watched) -> None:
    with watched.opened(bytes_max=500) as log:
        for _ in range(12):
            change(log)
    assert len(watched.names) > 5
    with watched.opened(bytes_max=500, files_kept=2) as log:
        for _ in range(3):
            change(log)
    assert len(watched.names) == 3
    assert verified_files([watched.path]).is_whole


def test_a_file_that_is_not_what_its_name_says_is_not_removed(watched: Watched) -> None:
    notes = watched.path.parent / "log.1-7"
    notes.write_text("notes of mine\n")
    with watched.opened(bytes_max=500, files_kept=0) as log:
        for _ in range(3):
            change(log)
    assert notes.read_text() == "notes of mine\n"
    assert watched.problems[0].startswith("an older file of the audit log is not removed: ")


def test_pages_go_over_all_files(watched: Watched) -> None:
    with watched.opened(bytes_max=600) as log:
        last = max(change(log) for _ in range(10))
        for after in range(-1, last + 2):
            for limit in (1, 4, 100):
                found = [record.number for record in log.lines_behind(after, limit=limit)]
                assert found == [*range(max(after, 0) + 1, last + 1)][:limit]


def test_pages_and_readers_see_every_line_while_files_are_left(watched: Watched) -> None:
    is_over = threading.Event()
    with watched.opened(bytes_max=500) as log:

        def write() -> None:
            for _ in range(150):
                change(log)
            is_over.set()

        writer = threading.Thread(target=write)
        writer.start()
        page: list[int] = []
        try:
            while not is_over.is_set() or page:
                after = page[-1] if page else 0
                page = [record.number for record in log.lines_behind(after, limit=50)]
                assert page == [*range(after + 1, after + 1 + len(page))]
                # Why twice: half of a line may be there when it is being written.
                assert verified_files([watched.path]).is_whole or verified_files([watched.path]).is_whole
        finally:
            writer.join()
    assert verified_files([watched.path]).last == log.head.number


def test_a_page_has_about_a_megabyte_however_long_its_lines_are(watched: Watched) -> None:
    with watched.opened() as log:
        waiting = [log.append(Event.BEGUN, subject="\x01" * 4_000) for _ in range(200)]
        last, numbers = waiting[-1].result(), [0]
        while page := log.lines_behind(numbers[-1], limit=1_000):
            assert len(page) < 60
            numbers += [record.number for record in page]
    assert numbers == [*range(last + 1)]


# ---- kills ---------------------------------------------------------------------------------------------------------------


class Moments:
    """Copies of a folder as it is before, in the middle of, and after each call that changes it: what a kill leaves."""

    def __init__(self, folder: Path, copies: Path, patch: pytest.MonkeyPatch) -> None:
        self._folder = folder
        self._copies = copies
        self.acknowledged = 0
        self.taken: list[tuple[Path, int]] = []
        for name in ("rename", "unlink", "ftruncate", "open"):
            patch.setattr(os, name, self._around(getattr(os, name)))
        patch.setattr(os, "write", self._halved(os.write))

    def _take(self) -> None:
        copy = self._copies / str(len(self.taken))
        shutil.copytree(self._folder, copy)
        self.taken.append((copy, self.acknowledged))

    def _around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def around(*arguments: Any, **named: Any) -> Any:
            self._take()
            found = call(*arguments, **named)
            self._take()
            return found

        return around

    def _halved(self, write: Callable[[int, bytes], int]) -> Callable[[int, bytes], int]:
        def halved(descriptor: int, content: bytes) -> int:
            half = len(content) // 2
            self._take()
            written = write(descriptor, content[:half])
            self._take()
            return written + write(descriptor, content[half:])

        return halved


def test_a_kill_at_any_moment_loses_no_line_that_was_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "live"
    folder.mkdir()
    with monkeypatch.context() as patch:
        moments = Moments(folder, tmp_path / "copies", patch)
        with Watched(folder).opened(bytes_max=700, files_kept=1) as log:
            for _ in range(8):
                moments.acknowledged = change(log)
    assert len(moments.taken) > 60
    assert any(not (copy / "log").exists() for copy, _ in moments.taken[4:]), "there is no moment between two files"
    for copy, acknowledged in moments.taken:
        again = Watched(copy)
        with again.opened(bytes_max=700, files_kept=1) as log:
            change(log)
        verdict = verified_files([again.path])
        assert verdict.is_whole, (copy, verdict)
        assert (verdict.last, verdict.head) == log.head
        assert verdict.last > acknowledged + 2
        assert not again.problems


@pytest.mark.slow
def test_a_process_that_is_killed_while_it_leaves_files_loses_no_line(tmp_path: Path) -> None:
    program = """
import sys, time
from pathlib import Path
from keyplan.audit_log import AuditLog, Event, Rotation
log = AuditLog(Path(sys.argv[1]), wall=time.time, syncs=False, rotation=Rotation(400, 2))
while True:
    print(log.append(Event.BEGUN, subject="k").result(), flush=True)
"""
    for _ in range(5):
        words = [sys.executable, "-c", program, str(tmp_path / "log")]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            numbers = [int(process.stdout.readline()) for _ in range(60)]
            process.send_signal(signal.SIGKILL)
            numbers += [int(line) for line in process.stdout]
            process.wait()
        with Watched(tmp_path).opened() as log:
            assert log.head.number > numbers[-1]
        assert verified_files([tmp_path / "log"]).is_whole


# ---- what others do to files ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["log.1", "log-20261123", "log.old"])
def test_a_file_that_was_renamed_while_nobody_wrote_is_gone_on_from(watched: Watched, name: str) -> None:
    with watched.opened() as log:
        change(log)
    watched.path.rename(watched.path.with_name(name))
    (watched.path.with_name("log.notes")).write_text("no line of a log\n")
    (watched.path.with_name("log.gz")).write_bytes(b"\x1f\x8b\0\0\n")
    with watched.opened() as log:
        change(log)
    files = [watched.path, watched.path.with_name(name)]
    assert verified_files(files)[:3] == (True, 1, log.head.number)


def test_an_empty_file_that_logrotate_made_is_gone_on_in(watched: Watched) -> None:
    with watched.opened():
        pass
    watched.path.rename(watched.path.with_name("log.1"))
    watched.path.touch()
    with watched.opened():
        pass
    assert verified_files([watched.path, watched.path.with_name("log.1")])[:3] == (True, 1, 4)


def test_a_file_that_was_removed_is_followed_by_a_new_one_before_the_next_line(watched: Watched) -> None:
    with watched.opened() as log:
        change(log)
        watched.path.unlink()
        last = change(log)
        assert verified_files([watched.path], after=None).broken_at == 1
        numbers = [line.record.number for line in read_lines([watched.path]) if line.record]
        assert numbers == [last - 2, last - 1, last]
    assert watched.problems == ["the audit log goes on in a new file: somebody removed the old one, with its lines"]


def test_a_removed_file_that_cannot_be_followed_refuses_changes_until_it_can(watched: Watched) -> None:
    with watched.opened() as log:
        change(log)
        watched.path.unlink()
        watched.path.mkdir()
        with pytest.raises(AuditLogError, match="Is a directory"):
            change(log)
        watched.path.rmdir()
        last = change(log)
    assert last in {line.record.number for line in read_lines([watched.path]) if line.record}


@pytest.mark.parametrize("kept", [0, 100])
def test_a_file_that_was_cut_is_noted_and_every_line_behind_can_be_read(watched: Watched, kept: int) -> None:
    with watched.opened() as log:
        change(log)
        size = watched.path.stat().st_size
        os.truncate(watched.path, kept)
        last = change(log)
        # A write that fails takes back its own half, and not more nor less.
        with full_disk(os.getpid(), file_bytes_max=watched.path.stat().st_size + 30), pytest.raises(AuditLogError):
            log.append(Event.BEGUN).result()
        change(log)
    assert b"\0" not in watched.path.read_bytes()
    numbers = [line.record.number for line in read_lines([watched.path]) if line.record]
    assert numbers == [*range(last - 1, last + 4)]
    assert not verified_files([watched.path]).is_whole
    assert watched.problems == [
        f"the audit log is not as it was written: somebody else changed it: it had {size} bytes, and has {kept}"
    ]


def test_what_somebody_else_writes_into_the_file_hides_no_line(watched: Watched) -> None:
    with watched.opened() as log:
        change(log)
        with watched.path.open("a") as file:
            file.write('{"number":4,"a')
        last = change(log)
    assert last in {line.record.number for line in read_lines([watched.path]) if line.record}
    verdict = verified_files([watched.path])
    assert (verdict.is_whole, verdict.broken_at, verdict.problem) == (False, 4, "it cannot be read")


def test_one_file_has_one_writer_under_whatever_name(watched: Watched, tmp_path: Path) -> None:
    with watched.opened() as log:
        (tmp_path / "link").symlink_to("log")
        os.link(watched.path, tmp_path / "other")
        (tmp_path / ".log.lock").unlink()
        for name in ("link", "other", "log"):
            with pytest.raises(InvalidInputError, match="another process writes this audit log"):
                AuditLog(tmp_path / name, wall=lambda: T0)
        change(log)
    assert verified_files([watched.path]).is_whole


def test_the_lock_is_no_file_of_the_log(watched: Watched) -> None:
    watched.opened().close()
    assert watched.names == ["log"]


def test_a_fork_writes_nothing(watched: Watched) -> None:
    with watched.opened() as log:
        child = os.fork()
        if child == 0:
            try:
                log.append(Event.BEGUN)
            except AuditLogError as error:
                log.close()
                os._exit(0 if "a fork" in str(error) else 2)
            os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        change(log)
    assert verified_files([watched.path])[:3] == (True, 1, 4)


def test_a_name_that_is_taken_leaves_the_log_in_its_file_and_it_is_tried_again(watched: Watched) -> None:
    taken = watched.path.with_name("log.1-2")
    taken.mkdir()
    with watched.opened(bytes_max=1) as log:
        log.append(Event.BEGUN, subject="k").result()
        log.append(Event.BEGUN, subject="k").result()
        assert watched.problems == ["the audit log stays in its old file: there is a file log.1-2: remove it"]
        taken.rmdir()
        for _ in range(4):
            log.append(Event.BEGUN, subject="k").result()
    assert len(watched.names) > 1
    assert verified_files([watched.path])[:3] == (True, 1, log.head.number)


def test_where_there_is_no_room_for_a_new_file_the_old_one_goes_on(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write

    def without_room(descriptor: int, content: bytes) -> int:
        if os.fstat(descriptor).st_size == 0:
            raise OSError(ENOSPC, os.strerror(ENOSPC))
        return write(descriptor, content)

    with watched.opened(bytes_max=400) as log:
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", without_room)
            for _ in range(3):
                change(log)
            assert watched.names == ["log"]
        # Not for every line: again when it has twice the size.
        assert watched.problems == 2 * ["the audit log stays in its old file: No space left on device"]
        for _ in range(6):
            change(log)
    assert len(watched.names) > 1
    assert verified_files([watched.path])[:3] == (True, 1, log.head.number)


def test_ends_that_never_found_room_are_noted_at_the_close(watched: Watched) -> None:
    log = watched.opened()
    begun = log.append(Event.BEGUN).result()
    with full_disk(os.getpid(), file_bytes_max=10):
        with pytest.raises(AuditLogIncompleteError):
            log.append(Event.DONE, of=begun).result()
        log.close()
    assert watched.problems == ["the audit log is incomplete: 1 lines that tell how changes ended could not be written"]


# ---- hostile texts -------------------------------------------------------------------------------------------------------

_FIELDS = ("who", "known_by", "address", "service", "operation", "act", "subject", "request", "code")


@pytest.mark.parametrize("character", ["\0", "\x1b", "\n", '"', "\u2028", "\U0001f511", "\udcff", "é"])
def test_a_line_is_bounded_and_one_line_whatever_stands_in_its_fields(watched: Watched, character: str) -> None:
    with watched.opened() as log:
        log.append(Event.BEGUN, **dict.fromkeys(_FIELDS, character * 100_000)).result()
        log.append(Event.BEGUN, **dict.fromkeys(_FIELDS, f"a{character}b")).result()
    *_, longest, _, _ = watched.path.read_bytes().split(b"\n")[:-1]
    assert len(longest) < 1 << 16
    assert b"(100000 characters, SHA-256 " in longest or b"(600000 characters, SHA-256 " in longest
    record = [line.record for line in read_lines([watched.path])][-2]
    assert record is not None
    shown = "a\\udcffb" if character == "\udcff" else f"a{character}b"
    assert {getattr(record, name) for name in _FIELDS} == {shown}
    assert verified_files([watched.path]).is_whole


def test_what_cannot_be_a_line_is_refused_and_the_next_is_written(watched: Watched) -> None:
    with watched.opened() as log:
        for event in (Event.BEGUN, Event.DONE):
            with pytest.raises(TypeError):
                log.append(event, revisions=(object(),))
            with pytest.raises(TypeError):
                log.append(event, whom="ada")
        change(log)
    assert verified_files([watched.path])[:3] == (True, 1, 4)
