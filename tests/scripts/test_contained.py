"""A command that is run contained leaves nothing running: not in another session or environment, not when it is interrupted."""

import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.processes import is_running

ROOT: Final = Path(__file__).parents[2]
SECONDS_MAX: Final = 100

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets a process adopt the orphans below it")

STRAY = """
import os, signal, sys, time
for number in (signal.SIGINT, signal.SIGHUP, *([signal.SIGTERM] if "stubborn" in sys.argv else ())):
    signal.signal(number, signal.SIG_IGN)
os.setsid()
with open(sys.argv[1], "a") as file:
    file.write(f"{os.getpid()}\\n")
time.sleep(1_000)
"""
"""A process in a session of its own that hears no interruption; a stubborn one only the signal that cannot be ignored."""

STARTING = """
import subprocess, sys, time
# Why a shell between: it ends at once, and the stray is nobody's child.
subprocess.run(["/bin/sh", "-c", '"$@" &', "sh", sys.executable, "-c", STRAY, *sys.argv[1:]], env={}, check=True)
while not open(sys.argv[1], "a+").tell():
    time.sleep(0.01)
"""
"""A command that starts it, in an empty environment, and goes on when it runs."""


def contained(program: str, folder: Path, *more: str, **options: object) -> "subprocess.Popen[str]":
    """Run a program contained, with no bound on how long it may take to end; what it prints goes into a pipe."""
    words = [sys.executable, str(ROOT / "scripts" / "contained.py"), "--grace-seconds=3600", sys.executable, "-c"]
    whole = f"STRAY = {STRAY!r}\n{STARTING}{program}"
    return subprocess.Popen([*words, whole, str(folder / "stray"), *more], stdout=subprocess.PIPE, text=True, **options)  # type: ignore[call-overload, no-any-return]  # options are those of Popen


def stray_of(folder: Path) -> int:
    """The id of the stray."""
    return int((folder / "stray").read_text())


def test_what_a_command_leaves_running_is_named_and_ended(tmp_path: Path) -> None:
    with contained("", tmp_path, "stubborn") as process:
        printed, _ = process.communicate(timeout=SECONDS_MAX)
    assert process.returncode == 1
    stray = stray_of(tmp_path)
    assert printed.startswith(f"left running: {stray} ")
    assert not is_running(stray)


@pytest.mark.parametrize("code", [0, 3])
def test_a_command_that_leaves_nothing_has_its_own_exit_code(tmp_path: Path, code: int) -> None:
    words = [sys.executable, str(ROOT / "scripts" / "contained.py"), "/bin/sh", "-c", f"echo said; exit {code}"]
    ran = subprocess.run(words, capture_output=True, text=True, check=False, timeout=SECONDS_MAX)
    assert (ran.returncode, ran.stdout, ran.stderr) == (code, "said\n", "")


WAITING = """
try:
    print("ready", flush=True)
    time.sleep(1_000)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
def test_a_signal_interrupts_the_command_and_ends_all_of_it(tmp_path: Path, number: signal.Signals) -> None:
    """It does also where SIGINT was ignored from the beginning, as in the background of a script."""
    ignoring = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_IGN)}
    with contained(WAITING, tmp_path, **ignoring) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        printed, _ = process.communicate(timeout=SECONDS_MAX)
    assert (process.returncode, printed) == (128 + number, "interrupted\n")
    assert not is_running(stray_of(tmp_path))


def test_a_second_signal_does_not_wait_for_a_command_that_goes_on(tmp_path: Path) -> None:
    program = """
import signal
signal.signal(signal.SIGINT, lambda number, frame: print("heard", flush=True))
print("ready", flush=True)
while True:
    time.sleep(1_000)
"""
    with contained(program, tmp_path) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        assert process.stdout.readline() == "heard\n"
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=SECONDS_MAX)
    assert process.returncode == 128 + signal.SIGTERM
    assert not is_running(stray_of(tmp_path))
