"""Files that a command line names, read and written whole. What is in the way is said of the file, by its name."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from keyplan.errors import InvalidInputError

__all__ = ["OutputOption", "file_or_output", "json_of", "named_file", "read_bytes", "read_text", "write_text"]


def file_or_output(path: Path | None) -> Path | None:
    """Return the file of an option for text, None for standard output: that is what `-` means."""
    return None if path == Path("-") else path


def named_file(path: Path | None) -> Path | None:
    """Return the file of an option. Raises InvalidInputError for `-`: a file of that name is hardly ever meant."""
    if path == Path("-"):
        problem = "standard input and output will not do here; give a file's name, and ./- for a file called -"
        raise InvalidInputError(source="-", problem=problem)
    return path


OutputOption = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o", metavar="FILE", help="Write to a file; - is standard output.", callback=file_or_output
    ),
]


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
