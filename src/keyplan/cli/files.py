"""Files that a command line names, read and written whole. What is in the way is said of the file, by its name."""

import json
from pathlib import Path
from typing import Any

from keyplan.errors import InvalidInputError

__all__ = ["json_of", "read_bytes", "read_text", "write_text"]


def read_bytes(path: Path) -> bytes:
    """Return what a file holds. Raises InvalidInputError."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidInputError(source=str(path), problem=error.strerror or "cannot be read") from error


def read_text(path: Path) -> str:
    """Return the text that a file holds. Raises InvalidInputError, also for what is not UTF-8."""
    try:
        return read_bytes(path).decode()
    except UnicodeDecodeError as error:
        raise InvalidInputError(source=str(path), problem="not text in UTF-8") from error


def json_of(content: str | bytes, *, source: str) -> Any:
    """Return the JSON value that was read from `source`. Raises InvalidInputError."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(source=source, problem=f"not JSON: {error}") from error


def write_text(path: Path, text: str) -> None:
    """Write a file that a command was asked to write, over what is there. Raises InvalidInputError."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidInputError(source=str(path), problem=error.strerror or "cannot be written") from error
