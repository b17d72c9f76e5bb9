"""Runs a command and ends whatever it leaves running: its children, and theirs, also in sessions of their own.

    python scripts/contained.py [--grace-seconds N] COMMAND...

The exit code is the command's; 1 when it succeeded and left processes running, which are named. A signal that asks to end
(SIGINT, SIGTERM, SIGHUP) is handed on as SIGINT, to the command's process group, as Ctrl-C in a terminal; a second one ends all
at once. The exit code is then 128 and the signal's number.

On Linux this process adopts the orphans of its descendants, so that none can leave, whatever session or environment it is in.
On other systems the process group alone is ended.
"""

import argparse
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

GRACE_SECONDS: Final = 20.0
"""Why: fixtures stop their servers when a run is interrupted; on a busy machine that takes its time."""
END_SECONDS: Final = 5.0
"""Why: a server that is told to end flushes, and gives back what the system would keep."""
SETTLE_SECONDS: Final = 5.0
"""Why: what was told to end just now is not left behind, also on a busy machine; nobody waits where nothing is left."""
PR_SET_CHILD_SUBREAPER: Final = 36
ENDINGS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
AWAITED: Final = (*ENDINGS, signal.SIGCHLD)


def descendants() -> dict[int, str]:
    """The ids and command lines of all processes below this one, but for those that have ended."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            # Why from the last parenthesis on: the name before it may hold anything.
            state, parent = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()[:2]
        except OSError:
            continue  # it has ended meanwhile
        if state != "Z":
            children.setdefault(int(parent), []).append(int(folder.name))
    return {process: _command_of(process) for process in _below(os.getpid(), children)}


def _below(process: int, children: dict[int, list[int]]) -> Iterator[int]:
    for child in children.get(process, ()):
        yield child
        yield from _below(child, children)


def _command_of(process: int) -> str:
    try:
        words = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return ""
    return b" ".join(words).decode(errors="replace").strip()


class Contained:
    """A command, and what came of it."""

    def __init__(self, words: list[str], grace_seconds: float) -> None:
        if sys.platform == "linux":
            ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        for number in ENDINGS:
            signal.signal(number, lambda _number, _frame: None)  # it may have been ignored: in the background it is
        signal.pthread_sigmask(signal.SIG_BLOCK, AWAITED)
        self._command = subprocess.Popen(words, process_group=0, preexec_fn=_as_in_a_terminal)  # noqa: S603, PLW1509  # Why: one thread; the command is the caller's.
        self._grace_seconds = grace_seconds
        self._code: int | None = None

    def run(self) -> int:
        """Wait for the command's end, end what is left, and return the exit code."""
        asked = self._wait(None)
        if asked:
            self._interrupt()
            self._end_all()
            return 128 + asked
        assert self._code is not None
        left = self._left()
        for process, words in left.items():
            print(f"left running: {process} {words[:200]}", flush=True)
        self._end_all()
        return self._code or (1 if left else 0)

    def _wait(self, seconds: float | None) -> int:
        """Wait for the command; return the signal that came before its end, else 0. Orphans that ended are taken leave of."""
        give_up_at = None if seconds is None else time.monotonic() + seconds
        while True:
            self._reap()
            if self._code is not None:
                return 0
            left = 3_600.0 if give_up_at is None else give_up_at - time.monotonic()
            if left <= 0:
                return 0
            told = signal.sigtimedwait(AWAITED, left)
            if told is not None and told.si_signo in ENDINGS:
                return told.si_signo

    def _interrupt(self) -> None:
        try:
            os.killpg(self._command.pid, signal.SIGINT)
        except ProcessLookupError:
            return
        self._wait(self._grace_seconds)

    def _left(self) -> dict[int, str]:
        """What is left when the command has ended, but for what is ending itself at this moment."""
        give_up_at = time.monotonic() + SETTLE_SECONDS
        while (left := descendants()) and time.monotonic() < give_up_at:
            signal.sigtimedwait([signal.SIGCHLD], 0.05)
            self._reap()
        return left

    def _end_all(self) -> None:
        """End all that is left: first by asking, then by force."""
        began = time.monotonic()
        number = signal.SIGTERM
        while (left := descendants()) and time.monotonic() < began + 2 * END_SECONDS:
            for process in left:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(process, number)
            told = signal.sigtimedwait(AWAITED, 0.1)
            if (told is not None and told.si_signo in ENDINGS) or time.monotonic() > began + END_SECONDS:
                number = signal.SIGKILL
            self._reap()

    def _reap(self) -> None:
        while True:
            try:
                process, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if process == 0:
                return
            if process == self._command.pid:
                code = os.waitstatus_to_exitcode(status)
                self._code = code if code >= 0 else 128 - code


def _as_in_a_terminal() -> None:
    """In the command before it begins: signals reach it, also when this process was started in the background."""
    for number in ENDINGS:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, AWAITED)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--grace-seconds", type=float, default=GRACE_SECONDS, help="how long an interrupted command may take"
    )
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    sys.exit(Contained(options.command, options.grace_seconds).run())
