"""Disks without room: the commit is refused or its writer dies, nothing is half written, and reading goes on."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from keyplan.engine import open_engine
from tests.crash.cycles import ROOT

DISK_BYTES = 2 << 20


def run(program: str, folder: Path, *, before: str = "") -> dict[str, Any]:
    """Run a program of small_disk.py, after the shell commands `before` in a mount namespace of its own if there are any."""
    command = [sys.executable, "-m", "tests.crash.small_disk", program, str(folder)]
    if before:
        command = ["unshare", "--mount", "sh", "-c", f"{before} && exec {shlex.join(command)}"]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True)
    answer: dict[str, Any] = msgspec.json.decode(done.stdout)
    return answer


def test_a_commit_without_room_is_refused_at_every_page_and_leaves_nothing(tmp_path: Path) -> None:
    seen = run("refusing_disk", tmp_path)
    assert seen["refused"] > 10, "the commit has many pages, and the disk ended at each of them once"
    assert seen["changed"], "with room for all of them it went through"
    assert seen["revision"] == 3 + 2
    for error in seen["errors"]:
        assert error.startswith("EngineError: ")
        assert error.endswith("the disk may be full")


def test_a_writer_killed_in_the_middle_of_its_pages_leaves_nothing_of_its_commit(tmp_path: Path) -> None:
    seen = run("killing_disk", tmp_path)
    assert seen["killed"] > 5
    assert seen["revisions"] == 1, "the one commit that had room"


def test_a_full_file_system_can_be_read_and_be_written_again_when_there_is_room(tmp_path: Path) -> None:
    if shutil.which("unshare") is None:
        pytest.skip("needs the command unshare")
    mount = f"mount -t tmpfs -o size={DISK_BYTES} none {shlex.quote(str(tmp_path))}"
    tried = subprocess.run(["unshare", "--mount", "sh", "-c", mount], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        pytest.skip(f"needs the right to mount a small file system: {tried.stderr.strip()}")
    seen = run("full_file_system", tmp_path, before=mount)
    assert seen["written"] > 100
    # Why either: LMDB calls a write of which a part fitted an input/output error.
    failures = ("No space left on device", "Input/output error")
    assert seen["problem"] in [f"EngineError: mdb_txn_commit: {failure}; the disk may be full" for failure in failures]
    assert (seen["read"], seen["read again"], seen["writable"]) == (True, True, True)


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="this system cannot allocate the room of a file")
def test_the_lock_file_has_room_on_the_disk_for_every_reader_from_the_start(tmp_path: Path) -> None:
    # Why: on a full disk, the first reader in a hole of the file would be ended by a bus error.
    with open_engine(f"lmdb:{tmp_path}") as engine:
        file = (tmp_path / "lock.mdb").stat()
        assert file.st_blocks * 512 >= file.st_size >= 1_024 * 64
        snapshots = [engine.snapshot() for _ in range(1_024)]
        for snapshot in snapshots:
            snapshot.close()
