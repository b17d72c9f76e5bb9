"""Single entries out of a backup: one key, a prefix, or the records of one table. The whole file is verified first."""

from pathlib import Path
from typing import Final, NamedTuple

from keyplan.errors import InvalidInputError
from keyplan.layout import BoundLayout, Kind
from keyplan.maintenance.backup import open_backup
from keyplan.maintenance.backup_file import BackupSection

__all__ = ["EXTRACT_BYTES_MAX", "Selection", "extract"]

EXTRACT_BYTES_MAX: Final = 64 << 20
"""Why: what is taken out is held in memory and looked at; whoever wants more restores below another prefix, and copies."""


_PAIR_BYTES: Final = 200
"""Why: what a pair takes in memory beside its bytes; millions of small ones would take gigabytes."""


class Selection(NamedTuple):
    """What to take out: the keys below `prefix`, or `key` alone; of these the records of `table`, as `layout` reads them."""

    key: bytes | None = None
    prefix: bytes = b""
    layout: BoundLayout | None = None
    table: str | None = None

    def takes(self, raw_key: bytes) -> bool:
        """Tell whether the key is selected. With a layout, index entries are not: a record brings its own."""
        if self.key is not None and raw_key != self.key:
            return False
        if not raw_key.startswith(self.prefix):
            return False
        if self.layout is None:
            return True
        meanings = self.layout.meanings(raw_key)
        if self.table is None:
            return not meanings or meanings[0].kind is not Kind.INDEX_ENTRY
        return any(meaning.kind is Kind.RECORD and meaning.item == self.table for meaning in meanings)


def extract(path: Path, selection: Selection, *, keyspace: str | None = None) -> list[tuple[bytes, bytes]]:
    """Return the selected pairs of a backup in key order, after every checksum and digest of the file was verified.

    keyspace: of a backup of key spaces, which one; keys are then those within it. Raises InvalidInputError for a file that
    cannot be relied on, a key space that it does not hold, and more than EXTRACT_BYTES_MAX.
    """
    found: list[tuple[bytes, bytes]] = []
    size = 0
    names: list[str] = []
    with open_backup(path) as reader:
        for section in reader.sections():
            name = _name_of(section)
            names.append(name)
            if name != (keyspace or ""):
                continue
            prefix = b"" if keyspace is not None else bytes.fromhex(section.prefix)
            for key, value in reader.pairs():
                if selection.takes(prefix + key):
                    size += len(prefix) + len(key) + len(value) + _PAIR_BYTES
                    if size > EXTRACT_BYTES_MAX:
                        problem = (
                            f"more than {EXTRACT_BYTES_MAX >> 20} MiB are selected: select less, or restore the backup"
                        )
                        raise InvalidInputError(source=str(path), problem=problem)
                    found.append((prefix + key, value))
    if (keyspace or "") not in names:
        held = ", ".join(sorted(filter(None, names))) or "none"
        problem = (
            "the backup is of key spaces: name one" if keyspace is None else f"the backup has no key space {keyspace}"
        )
        raise InvalidInputError(source=str(path), problem=f"{problem}; it holds: {held}")
    return found


def _name_of(section: BackupSection) -> str:
    return "" if section.keyspace is None else str(section.keyspace.get("name", ""))
