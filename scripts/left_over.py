"""Prints the processes that carry a mark in their environment, and ends them: what a test run has left behind.

    python scripts/left_over.py NAME=VALUE

Exit code 1 when there were some. A process is told by what the system says of it, and ended by its id.
"""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path


def marked(mark: bytes) -> Iterator[tuple[int, str]]:
    """The ids and command lines of the processes that were started with the mark, other than this one."""
    for folder in Path("/proc").glob("[0-9]*"):
        if int(folder.name) == os.getpid():
            continue
        try:
            environment = (folder / "environ").read_bytes().split(b"\0")
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue  # it has ended, or is somebody else's
        if mark in environment and any(words):
            yield int(folder.name), b" ".join(words).decode(errors="replace").strip()


def main(mark: str) -> int:
    """Print and end what is left; return the exit code."""
    left = list(marked(mark.encode()))
    for process, command in left:
        print(f"left running: {process} {command[:200]}")
        try:
            os.kill(process, signal.SIGKILL)
        except ProcessLookupError:
            continue
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
