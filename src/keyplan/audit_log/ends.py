"""Where an audit log ends: the last whole line of a file, and what a loss of power left behind it."""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from keyplan.audit_log.chain import FIRST_PREVIOUS, Head
from keyplan.audit_log.records import LINE_BYTES_MAX, TornEnd, digest_of_line, record_in
from keyplan.errors import InvalidInputError

__all__ = ["NOTHING_BEFORE", "End", "end_of"]

NOTHING_BEFORE: Final = Head(0, FIRST_PREVIOUS)
"""The head of a log without lines."""

_TAIL_BYTES_MAX: Final = 8 * LINE_BYTES_MAX
"""Why: what was not on disk yet is a few lines, or the zeros in their place; more than this no loss of power leaves."""


class End(NamedTuple):
    """The last whole line, and what stands behind it; None where nothing does. `is_line_open`: that has no line's end."""

    head: Head
    torn: TornEnd | None
    is_line_open: bool


def end_of(descriptor: int, path: Path, *, earlier: Callable[[], Head] = lambda: NOTHING_BEFORE) -> End:
    """Return where the log in an open file ends. `earlier` gives the head of the older files, for one without a whole line.

    Behind the last whole line there may be a part of one, or zeros: a loss of power leaves them. Raises InvalidInputError where
    something else is there, which no server wrote.
    """
    size = os.fstat(descriptor).st_size
    start = max(0, size - _TAIL_BYTES_MAX)
    tail = os.pread(descriptor, size - start, start)
    after = tail.rfind(b"\n") + 1
    if (record := record_in(tail[after:])) is not None:
        return End(Head(record.number, digest_of_line(tail[after:])), None, is_line_open=True)
    while True:
        before = tail.rfind(b"\n", 0, max(0, after - 1)) + 1
        line = tail[before : max(0, after - 1)]
        if after and (record := record_in(line)) is not None:
            return _end(Head(record.number, digest_of_line(line)), tail[after:])
        if after and b"\0" not in line:
            raise InvalidInputError(
                source=str(path), problem="its last line is none of an audit log: give another file"
            )
        if not before:
            break
        after = before
    if start:
        raise InvalidInputError(source=str(path), problem="no line of an audit log is at its end: give another file")
    head = earlier()
    first = b'{"number":%d,' % (head.number + 1)
    if not after and tail and not first.startswith(tail[: len(first)].rstrip(b"\0")):
        raise InvalidInputError(source=str(path), problem="it is not an audit log: give another file")
    return _end(head, tail)


def _end(head: Head, rest: bytes) -> End:
    if not rest:
        return End(head, None, is_line_open=False)
    torn = rest.removesuffix(b"\n")
    return End(head, TornEnd(len(torn), hashlib.sha256(torn).hexdigest()), is_line_open=not rest.endswith(b"\n"))
