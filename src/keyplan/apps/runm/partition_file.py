"""The file that a partition travels in: a line of JSON for each record, and a last line that proves it whole. Pure."""

import hashlib
from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias
from uuid import UUID

import msgspec
from msgspec import Struct

from keyplan.apps.runm.records import Object, ObjectDefinition, ObjectType, ProviderRecord
from keyplan.errors import InvalidInputError

__all__ = [
    "FORMAT",
    "DefinitionLine",
    "Line",
    "ObjectLine",
    "ObjectTypeLine",
    "PartitionLine",
    "lines_read",
    "lines_written",
]

FORMAT: Final = 1
"""The version of the file's form; another one is refused."""


class PartitionLine(Struct, frozen=True, forbid_unknown_fields=True, tag="partition", tag_field="kind"):
    """The first line: which partition it is."""

    format: int
    uuid: UUID
    name: str


class ObjectTypeLine(Struct, frozen=True, forbid_unknown_fields=True, tag="object-type", tag_field="kind"):
    """An object type of the deployment that the partition is from."""

    record: ObjectType


class DefinitionLine(Struct, frozen=True, forbid_unknown_fields=True, tag="definition", tag_field="kind"):
    """A definition of the partition's own, for an object type or one of its sub-types."""

    object_type: str
    sub_type: str
    record: ObjectDefinition


class ObjectLine(Struct, frozen=True, forbid_unknown_fields=True, tag="object", tag_field="kind"):
    """An object, and what stands beside a provider."""

    record: Object
    provider: ProviderRecord | None = None


class _EndLine(Struct, frozen=True, forbid_unknown_fields=True, tag="end", tag_field="kind"):
    lines: int
    sha256: str


Line: TypeAlias = PartitionLine | ObjectTypeLine | DefinitionLine | ObjectLine

_DECODER: Final = msgspec.json.Decoder(PartitionLine | ObjectTypeLine | DefinitionLine | ObjectLine | _EndLine)


def lines_written(records: Iterable[Line]) -> Iterator[bytes]:
    """Yield the lines of a file, each with its end."""
    digest, count = hashlib.sha256(), 0
    for record in records:
        line = msgspec.json.encode(record) + b"\n"
        digest.update(line)
        count += 1
        yield line
    yield msgspec.json.encode(_EndLine(count, digest.hexdigest())) + b"\n"


def lines_read(lines: Iterable[bytes], source: str) -> Iterator[Line]:
    """Yield the records of a file. Raises InvalidInputError where it is not one, and at its end when it is not whole."""
    digest = hashlib.sha256()
    for number, line in enumerate(lines, 1):
        try:
            record = _DECODER.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidInputError(source=source, problem=f"line {number} is no line of a partition's file") from error
        if isinstance(record, _EndLine):
            if record != _EndLine(number - 1, digest.hexdigest()):
                raise InvalidInputError(source=source, problem="the file is not as it was written: its digest differs")
            return
        _require_form(record, number, source)
        digest.update(line)
        yield record
    raise InvalidInputError(source=source, problem="the file is cut off: it has no last line")


def _require_form(record: Line, number: int, source: str) -> None:
    if (number == 1) != isinstance(record, PartitionLine):
        raise InvalidInputError(source=source, problem="the partition stands in the first line, and there alone")
    if isinstance(record, PartitionLine) and record.format != FORMAT:
        raise InvalidInputError(source=source, problem=f"the file has form {record.format}; {FORMAT} is known here")
