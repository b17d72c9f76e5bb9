"""A disk that is full for one process: the system lets it make no file larger than so much, which needs no rights."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["full_disk", "largest_file_bytes"]


def largest_file_bytes(folder: Path) -> int:
    """The size of the largest file below a folder."""
    return max(path.stat().st_size for path in folder.rglob("*") if path.is_file())


@contextmanager
def full_disk(pid: int, *, file_bytes_max: int) -> Iterator[None]:
    """Let a process write nothing behind so many bytes of any file, for the length of a block (RLIMIT_FSIZE).

    With fewer bytes than its files have, it can rewrite nothing either. Python takes no notice of the signal: writes fail.
    """
    before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (file_bytes_max, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, before)
