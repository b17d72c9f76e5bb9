"""Writing a file whole or not at all."""

import os
from pathlib import Path
from typing import Final

from keyplan.errors import InvalidInputError

__all__ = ["FOR_ALL", "FOR_OWNER", "write_whole_file"]

FOR_ALL: Final = 0o666
"""As the process's umask narrows it."""
FOR_OWNER: Final = 0o600


def write_whole_file(path: Path, content: bytes, *, mode: int, is_replacing: bool = False) -> None:
    """Write the file, and return when it is on disk.

    Raises FileExistsError when it is there and not to be replaced, InvalidInputError when it cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if is_replacing:
            temporary.replace(path)
        else:
            # Why: a link, unlike a rename, refuses to take the place of a file, also of one that came this moment.
            os.link(temporary, path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except FileExistsError:
        raise
    except OSError as error:
        raise InvalidInputError(source=str(path), problem=f"the file cannot be written: {error.strerror}") from error
    finally:
        temporary.unlink(missing_ok=True)
