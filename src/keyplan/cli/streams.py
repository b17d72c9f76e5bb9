"""Standard output and error of a command: whoever reads them may go away, and the command's work is done all the same.

A command that writes to a store, or whose exit code says what it found, goes on when its output has no reader any more; the
rest of the output is thrown away. A command that only prints what it reads has nothing left to do then: `ends_with_reader`.
"""

import errno
import io
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

__all__ = ["ReaderGone", "ends_with_reader", "standard_streams"]

_STREAMS: Final = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))


class ReaderGone(BaseException):
    """Nobody reads the output of a command that only prints. No error: it ends the command, like Ctrl-C."""


class _Output(io.RawIOBase):
    """A descriptor that takes everything, also when its reader is gone or its disk full. `failure`: why something was lost."""

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor
        self.is_all_there_is = False
        self.failure: OSError | None = None

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    def write(self, data: "bytes | bytearray | memoryview", /) -> int:  # type: ignore[override]  # any buffer, as io calls it
        if self.failure is None:
            try:
                return os.write(self._descriptor, data)
            except OSError as error:
                self.failure = error
        if self.is_all_there_is and self.failure.errno == errno.EPIPE:
            raise ReaderGone
        return len(data)


_output: _Output | None = None


def ends_with_reader() -> None:
    """Let the running command end, with exit code 0, when nobody reads its output any more: printing is all that it does."""
    if _output is not None:
        _output.is_all_there_is = True


@contextmanager
def standard_streams() -> Iterator["_Output | None"]:
    """Give the process its standard streams for a block, also those that its caller closed (`>&-`), as this module says.

    Yields what took the standard output, whose `failure` tells what was lost; None when the output is not the process's own.
    """
    global _output  # noqa: PLW0603  # Why: a process has one standard output.
    with ExitStack() as stack:
        for name, mode in _STREAMS:
            if getattr(sys, name) is None:
                nowhere = stack.enter_context(Path(os.devnull).open(mode, encoding="utf-8"))
                setattr(sys, name, nowhere)
                stack.callback(setattr, sys, name, None)
        _output = _replaced(stack, "stdout")
        _replaced(stack, "stderr")
        try:
            yield _output
        finally:
            _output = None


def _replaced(stack: ExitStack, name: str) -> _Output | None:
    """Put an `_Output` behind a standard stream until the stack ends. None when it is no file of the system's, as in tests."""
    stream = getattr(sys, name)
    if not isinstance(stream, io.TextIOWrapper):
        return None
    # Why: a record may hold text that the terminal's encoding has no bytes for; an escape says more than a failure.
    stream.reconfigure(errors="backslashreplace")
    try:
        descriptor = stream.fileno()
    except (OSError, ValueError):
        return None
    stream.flush()
    output = _Output(descriptor)
    is_line_wise = stream.line_buffering or name == "stderr"
    raw: Any = output  # Why: type checkers hold the write of a raw stream to types that have no name.
    buffer = io.BufferedWriter(raw)
    text = io.TextIOWrapper(buffer, encoding=stream.encoding, errors="backslashreplace", line_buffering=is_line_wise)
    setattr(sys, name, text)

    def restore() -> None:
        setattr(sys, name, stream)
        output.is_all_there_is = False  # what is left over is thrown away in silence
        text.close()

    stack.callback(restore)
    return output
