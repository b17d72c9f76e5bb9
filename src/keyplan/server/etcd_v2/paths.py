"""Paths of the v2 keys API and the raw keys that they are: `/service/f1/leader` is the key of the same bytes.

A key that no cleaned path spells (no slash in front, empty segments, no UTF-8) is not seen through v2.
"""

import posixpath
from collections.abc import Iterator
from typing import Final

from keyplan.engine import KeyRange

__all__ = [
    "DEPTH_MAX",
    "ROOT",
    "ancestors",
    "below",
    "clean",
    "is_hidden_below",
    "is_within",
    "name_of",
    "parent_of",
    "path_of",
]

ROOT: Final = "/"

DEPTH_MAX: Final = 200
"""Why: a listing is built level by level; no layout comes near it."""

_ODD: Final = frozenset({b"", b".", b".."})


def clean(path: str) -> str:
    """Return the shortest spelling of a path, always with one slash in front."""
    return posixpath.normpath("/" + path.lstrip("/"))


def path_of(key: bytes) -> str | None:
    """Return the path of a raw key, or None when v2 has no path for it."""
    if (
        not key.startswith(b"/")
        or key == b"/"
        or key.count(b"/") > DEPTH_MAX
        or not _ODD.isdisjoint(key.split(b"/")[1:])
    ):
        return None
    try:
        return key.decode()
    except UnicodeDecodeError:
        return None


def parent_of(path: str) -> str:
    """Return the directory that a path is in."""
    return path.rpartition("/")[0] or ROOT


def name_of(path: str) -> str:
    """Return the last segment of a path."""
    return path.rpartition("/")[2]


def ancestors(path: str) -> Iterator[str]:
    """Yield the directories above a path, from the one just below the root down to its parent."""
    end = path.find("/", 1)
    while end > 0:
        yield path[:end]
        end = path.find("/", end + 1)


def below(path: str) -> KeyRange:
    """Return the range of the raw keys below a directory."""
    return KeyRange.of_prefix(_slashed(path).encode())


def is_within(path: str, directory: str) -> bool:
    """Tell whether a path is below a directory, at any depth."""
    return path.startswith(_slashed(directory)) and path != directory


def is_hidden_below(path: str, watched: str) -> bool:
    """Tell whether a segment of `path` after `watched` hides it from who watches there."""
    return len(path) >= len(watched) and "/_" in clean(path[len(watched) :])


def _slashed(path: str) -> str:
    return path if path == ROOT else path + "/"
