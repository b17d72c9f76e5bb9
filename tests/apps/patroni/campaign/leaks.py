"""Where secrets stand that others may read: logs, command lines, environments, files. Only their names are told."""

import os
import stat
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Final, NamedTuple, Self

__all__ = ["CommandLines", "Leak", "in_files", "in_processes"]

_LOOK_SECONDS: Final = 0.4
_PIECE_BYTES: Final = 1 << 20


class Leak(NamedTuple):
    """A secret, by its name, and where it stands."""

    secret: str
    place: str


def _named(secrets: Mapping[str, str], raw: bytes, place: str) -> Iterator[Leak]:
    return (Leak(name, place) for name, value in secrets.items() if value and value.encode() in raw)


def in_files(secrets: Mapping[str, str], folder: Path) -> list[Leak]:
    """Search every log of a folder, whoever may read it; and every other file that more than its owner may read."""
    found: list[Leak] = []
    for path in sorted(folder.rglob("*")):
        with suppress(FileNotFoundError):
            mode = path.lstat().st_mode
            if not stat.S_ISREG(mode):
                continue
            is_log = path.name == "log" or path.suffix == ".log" or path.parent.name == "log"
            if is_log or mode & (stat.S_IRGRP | stat.S_IROTH):
                kind = "log" if is_log else f"file of mode {stat.S_IMODE(mode):o}"
                place = f"{kind} {path.relative_to(folder)}"
                with path.open("rb") as file:
                    found += sorted(
                        {leak for piece in _pieces(file, secrets) for leak in _named(secrets, piece, place)}
                    )
    return found


def _pieces(file: IO[bytes], secrets: Mapping[str, str]) -> Iterator[bytes]:
    """A file from its begin to its end, in pieces so that no secret stands in two halves."""
    longest = max((len(value.encode()) for value in secrets.values()), default=0)
    kept = b""
    while piece := file.read(_PIECE_BYTES):
        yield kept + piece
        kept = (kept + piece)[-longest:] if longest else b""


def in_processes(secrets: Mapping[str, str], *, also_environments: bool = True) -> list[Leak]:
    """Search the command lines, which everybody on a machine may read, and the environments, which the same user may."""
    found: list[Leak] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):  # it has ended
                command = (entry / "cmdline").read_bytes()
                program = os.path.basename(command.partition(b"\0")[0].decode(errors="replace"))
                found += _named(secrets, command, f"command line of {program}")
                if also_environments:
                    found += _named(secrets, (entry / "environ").read_bytes(), f"environment of {program}")
    return found


class CommandLines:
    """Looks at all command lines again and again for the length of a block: some programs run for a moment only."""

    def __init__(self, secrets: Mapping[str, str]) -> None:
        self._secrets = secrets
        self._found: set[Leak] = set()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    @property
    def found(self) -> Iterable[Leak]:
        """What was seen so far."""
        return sorted(self._found)

    def _look(self) -> None:
        while not self._ended.wait(_LOOK_SECONDS):
            self._found.update(in_processes(self._secrets, also_environments=False))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
