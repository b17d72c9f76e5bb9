"""What a migration carries aside: the file, and what it says. Which entries go into it, migration.py decides.

    {"format": "keyplan cloudchamber aside", "version": 1, "from": "go", "to": "document",
     "racks": [{"id": "rack1", "region": "standard", "zone": "standard", "rack": "rack1"}], "users": {"alice": "Alice"},
     "entries": [{"key": "inventory/definition/data/region/standard", "value": "{...}", "why": "..."}], "absent": []}

Keys are relative to the root of `from`. Keys and values are texts, byte for byte; what is no UTF-8 is {"base64": "..."}.
"""

import base64
import binascii
from pathlib import Path
from typing import Final

import msgspec

from keyplan.apps.cloudchamber.layout import LayoutSide
from keyplan.errors import InvalidInputError
from keyplan.files import write_whole

__all__ = ["MigrationSidecar", "RackName", "SidecarEntry", "read_sidecar", "write_sidecar"]

_FORMAT: Final = "keyplan cloudchamber aside"
_VERSION: Final = 1
FILE_BYTES_MAX: Final = 1 << 30
"""Why: a gibibyte is the whole of a store as large as an import may be."""


class RackName(msgspec.Struct, frozen=True):
    """One rack by both layouts' names; those of the Go program as its list keys have them, in their own case."""

    id: str
    region: str
    zone: str
    rack: str

    @property
    def path(self) -> str:
        """`region/zone/rack`."""
        return f"{self.region}/{self.zone}/{self.rack}"


class SidecarEntry(msgspec.Struct, frozen=True):
    """An entry that the other layout has no place for: its key without the root, its bytes, and why."""

    key: bytes
    value: bytes
    why: str


class MigrationSidecar(msgspec.Struct, frozen=True):
    """What the way back needs besides the store: names, entries, and keys that it would make and that were not there."""

    source: LayoutSide
    racks: tuple[RackName, ...] = ()
    users: dict[str, str] = {}
    entries: tuple[SidecarEntry, ...] = ()
    absent: tuple[bytes, ...] = ()


class _Bytes(msgspec.Struct, frozen=True):
    base64: str


class _FileEntry(msgspec.Struct, frozen=True):
    key: str | _Bytes
    value: str | _Bytes
    why: str


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: str
    version: int
    source: LayoutSide = msgspec.field(name="from")
    target: LayoutSide = msgspec.field(name="to")
    racks: tuple[RackName, ...]
    users: dict[str, str]
    entries: tuple[_FileEntry, ...]
    absent: tuple[str | _Bytes, ...]


def write_sidecar(path: Path, sidecar: MigrationSidecar) -> bool:
    """Write the file, for its owner alone, whole or not at all; False when it is there already with this very content.

    Raises InvalidInputError when there is something else, which is never replaced, or when the file cannot be written.
    """
    spelled = _spelled(sidecar)
    try:
        write_whole(path, spelled, replace=False)
    except FileExistsError as error:
        if _is_content(path, spelled):
            return False
        problem = "the file is there, and holds something else than this migration carries aside"
        raise InvalidInputError(source=str(path), problem=problem) from error
    return True


def _is_content(path: Path, spelled: bytes) -> bool:
    try:
        return path.read_bytes() == spelled
    except OSError as error:
        raise InvalidInputError(source=str(path), problem=f"the file cannot be read: {error.strerror}") from error


def read_sidecar(path: Path) -> MigrationSidecar:
    """Read such a file. Raises InvalidInputError for anything else."""
    try:
        with path.open("rb") as opened:
            raw = opened.read(FILE_BYTES_MAX + 1)
        if len(raw) > FILE_BYTES_MAX:
            raise InvalidInputError(source=str(path), problem=f"the file is longer than {FILE_BYTES_MAX} bytes")
        file = msgspec.json.decode(raw, type=_File)
        if (file.format, file.version) != (_FORMAT, _VERSION) or file.target is not file.source.other:
            problem = "the file is not what a migration of this version carries aside"
            raise InvalidInputError(source=str(path), problem=problem)
        entries = tuple(SidecarEntry(_raw(entry.key), _raw(entry.value), entry.why) for entry in file.entries)
        return MigrationSidecar(file.source, file.racks, file.users, entries, tuple(_raw(key) for key in file.absent))
    except OSError as error:
        raise InvalidInputError(source=str(path), problem=f"the file cannot be read: {error.strerror}") from error
    except (msgspec.MsgspecError, binascii.Error, UnicodeError, RecursionError) as error:
        problem = "the file is not what a migration carries aside, or it is damaged"
        raise InvalidInputError(source=str(path), problem=problem) from error


def _spelled(sidecar: MigrationSidecar) -> bytes:
    # Why: sorted, and without the time, so that a migration that is run again makes the same file.
    file = _File(
        _FORMAT,
        _VERSION,
        sidecar.source,
        sidecar.source.other,
        tuple(sorted(sidecar.racks, key=lambda rack: rack.id)),
        dict(sorted(sidecar.users.items())),
        tuple(
            _FileEntry(_text(entry.key), _text(entry.value), entry.why)
            for entry in sorted(sidecar.entries, key=lambda entry: entry.key)
        ),
        tuple(_text(key) for key in sorted(sidecar.absent)),
    )
    return msgspec.json.format(msgspec.json.encode(file), indent=1) + b"\n"


def _text(raw: bytes) -> str | _Bytes:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return _Bytes(base64.b64encode(raw).decode())


def _raw(spelled: str | _Bytes) -> bytes:
    return spelled.encode() if isinstance(spelled, str) else base64.b64decode(spelled.base64, validate=True)
