"""What the system tells of processes that may end at any moment: one that has ended is told as such, and is no error."""

from pathlib import Path

__all__ = ["children_of", "command_of", "is_running", "state_of", "waits_in"]


def state_of(pid: int) -> str:
    """The letter of its state, as proc(5) has it; empty when there is no such process."""
    return _state_and_parent(pid)[0]


def is_running(pid: int) -> bool:
    """Whether it is there, and not only its exit code."""
    return state_of(pid) not in {"", "Z", "X"}


def children_of(pid: int) -> list[int]:
    """The processes that it has started, and that are its own still."""
    # Why not /proc/PID/task/*/children: a thread may end before its file is read, and its children are another's then.
    numbers = [int(entry.name) for entry in Path("/proc").glob("[0-9]*")]
    return [number for number in numbers if _state_and_parent(number)[1] == str(pid)]


def command_of(pid: int) -> list[str]:
    """The words of its command line; none when it has ended."""
    return _text(Path(f"/proc/{pid}/cmdline")).split("\0")[:-1]


def waits_in(pid: int) -> str:
    """Where in the system its threads wait, as far as the system tells: for a lock (futex) or for its disk."""
    # Why a list first: a folder that goes while it is read is an error of the search.
    try:
        files = [file for name in ("wchan", "syscall") for file in Path(f"/proc/{pid}/task").glob(f"*/{name}")]
    except OSError:
        files = []
    return ", ".join(filter(None, map(_text, files))) or "an unknown place"


def _state_and_parent(pid: int) -> tuple[str, str]:
    # Why behind the last parenthesis: the command's name stands in parentheses, and may hold some.
    words = _text(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()
    return (words[0], words[1]) if words else ("", "")


def _text(file: Path) -> str:
    try:
        return file.read_text(errors="replace")
    except OSError:
        return ""
