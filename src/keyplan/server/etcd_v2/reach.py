"""Whose what is: what of the v2 keys API goes with what a caller may reach of the raw keys. Pure.

The record of a file goes with its key. A directory is of whoever has all that is below it: with `/service/batman/`, granted by
its prefix, comes the directory `/service/batman`, and not `/service`, which is seen as far as it leads there.
"""

from collections.abc import Iterator

from keyplan.engine import Area, KeyRange, Reach
from keyplan.server.etcd_v2.operations import Operation
from keyplan.server.etcd_v2.records import (
    EVENTS,
    STATE_KEY,
    EventRecord,
    directories_of,
    directory_key,
    files_of,
)
from keyplan.server.etcd_v2.tree import below

__all__ = ["has_directory", "is_seen", "may_write", "part_shown", "with_books"]


def with_books(reach: Reach) -> Reach:
    """Return a reach with the books of what is in it, and with the counter and the history, which each write goes through."""
    shared = (KeyRange.of_key(STATE_KEY), EVENTS)
    return Reach(
        [
            *reach.areas,
            *(Area(part, area.can_write, area.fence) for area in reach.areas for part in _books_of(area.range)),
            *(Area(part, can_write=True) for part in shared),
        ]
    )


def _books_of(keys: KeyRange) -> Iterator[KeyRange]:
    yield files_of(keys)
    yield directories_of(keys)
    # The directories in front of the range with all that is below them in it: `/a` of the keys from `/a/` on.
    for size in range(1, len(keys.start)):
        directory = keys.start[:size]
        inside = KeyRange.of_prefix(directory + b"/")
        if keys.start <= inside.start and (keys.end is None or (inside.end is not None and inside.end <= keys.end)):
            yield directories_of(KeyRange.of_key(directory))


def is_seen(reach: Reach, path: str) -> bool:
    """Tell whether anything is at a path, or below it, that a caller might be shown."""
    return reach.at(path.encode()) is not None or next(reach.within(below(path)), None) is not None


def has_directory(reach: Reach, path: str) -> bool:
    """Tell whether a directory is a caller's, to be made and removed."""
    stretch = reach.at(directory_key(path))
    return stretch is not None and stretch.write is not None


def may_write(reach: Reach, operation: Operation) -> bool:
    """Tell whether a caller may do this where it is. Why before a look at what is there: the answer must tell nothing of it."""
    if operation.is_unique:
        path = f"{operation.path.rstrip('/')}/0"  # the first byte of a name that is made of an index
    else:
        path = operation.path
        if (operation.is_directory or operation.is_deletion) and has_directory(reach, path):
            return True
    stretch = reach.at(path.encode())
    return stretch is not None and stretch.write is not None


def part_shown(reach: Reach, record: EventRecord) -> KeyRange | None:
    """Return the keys by which a caller may be told of an event, one of which they must be able to read; None: by none.

    Of a directory that ends, everybody is told who has something below it.
    """
    raw_key = record.path.encode()
    if reach.at(raw_key) is not None:
        return KeyRange.of_key(raw_key)
    if record.is_of_directory and reach.at(directory_key(record.path)) is not None:
        return KeyRange.of_key(directory_key(record.path))
    inside = below(record.path)
    return inside if record.is_directory_end and next(reach.within(inside), None) is not None else None
