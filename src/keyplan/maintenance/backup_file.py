"""A backup file as what it holds: a header, and sections of pairs in key order, each with its tally. Frames: backup_blocks.py.

Header, sections, trailers and the end are JSON, data blocks are pairs as the digest spells them. A key stands without the
prefix of its section.
"""

import io
import struct
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, BinaryIO, Final, NoReturn

import msgspec

from keyplan.engine import Clock
from keyplan.errors import CorruptionError, InvalidInputError
from keyplan.maintenance.backup_blocks import (
    FORMAT_VERSION,
    REGISTRY_VERSION,
    Block,
    BlockKind,
    BlockReader,
    BlockWriter,
)
from keyplan.maintenance.index_states_kept import KeptState
from keyplan.maintenance.migrations_kept import KeptMigration, rerooted
from keyplan.maintenance.pair_digest import PairDigest, Tally, spelled_pair

__all__ = [
    "KIND_FULL",
    "KIND_SINGLE",
    "KIND_STORE",
    "BackupHeader",
    "BackupReader",
    "BackupSection",
    "BackupTrailer",
    "BackupWriter",
    "kept_migrations",
    "kept_states",
    "section_migrations",
    "section_states",
    "utc_text",
]

KIND_STORE: Final = "store"
KIND_FULL: Final = "full"
KIND_SINGLE: Final = "single"

_length_at: Final = struct.Struct(">I").unpack_from

_DATA_BYTES: Final = 1 << 18
"""Why: zlib's window is 32 KiB, so that larger blocks pack no better, and a damaged block is named within 256 KiB."""


class BackupHeader(msgspec.Struct, frozen=True, kw_only=True):
    """What a backup is of. `kind`: store (all keys below one prefix), full (all key spaces), single (one key space).

    `id` is the backup's own; `revision` that of the snapshot, 0 where the engine has none. `cluster`, `prefix_codec` and
    `profile` are the registry's.
    """

    id: str
    kind: str
    created_at: str
    engine: str
    revision: int
    registry_format: int | None = None
    cluster: str | None = None
    prefix_codec: str | None = None
    profile: str | None = None


class SectionIndexState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of an index that was not readable: its root behind the prefix in hexadecimal digits, its name, the state."""

    root: str
    name: str
    state: msgspec.Raw


class SectionMigration(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is remembered of a migration: the table of it, its number or id there, and the value as it is stored."""

    table: str
    number: str = ""
    value: msgspec.Raw


SECTIONS_BYTES_MAX: Final = 16 << 20
"""What all sections of a file may take to describe. Why: a restore plans with all of them in memory; 40,000 key spaces fit."""
_TOO_MANY_SECTIONS: Final = f"its sections take more than {SECTIONS_BYTES_MAX >> 20} MiB to describe"


class BackupSection(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the pairs that follow are: the keys below `prefix`, in hexadecimal digits, and the key space that has it.

    `has_data` is False for a key space whose metadata alone is kept. `quota` is its bounds, `history` those that had its name
    before. With `is_registry` the pairs are the registry itself (switches, marks, history, audit log): first in a full backup.
    `index_states`: of the indexes below the prefix that were not readable; `migrations`: what is remembered of those of roots
    below it. Both stand outside of it.
    """

    prefix: str
    keyspace: dict[str, Any] | None = None
    quota: dict[str, int | None] | None = None
    has_data: bool = True
    history: list[dict[str, Any]] = []
    is_registry: bool = False
    index_states: tuple[SectionIndexState, ...] = ()
    migrations: tuple[SectionMigration, ...] = ()


class BackupTrailer(msgspec.Struct, frozen=True, kw_only=True):
    """What the section held; `leased` counts entries that were left out, because they hang on a lease."""

    count: int
    bytes: int
    sha256: str
    leased: int = 0

    @property
    def tally(self) -> Tally:
        """The trailer as a tally."""
        return Tally(self.count, self.bytes, self.sha256)


def section_states(kept: Iterable[KeptState]) -> tuple[SectionIndexState, ...]:
    """Return states of indexes as a section holds them."""
    return tuple(
        SectionIndexState(root=state.root.hex(), name=state.name, state=msgspec.Raw(state.value)) for state in kept
    )


def kept_states(section: BackupSection) -> list[KeptState]:
    """Return the states of indexes that a section holds."""
    return [KeptState(bytes.fromhex(state.root), state.name, bytes(state.state)) for state in section.index_states]


def section_migrations(kept: Iterable[KeptMigration]) -> tuple[SectionMigration, ...]:
    """Return what is remembered of migrations as a section holds it."""
    return tuple(SectionMigration(table=one.table, number=one.number, value=msgspec.Raw(one.value)) for one in kept)


def kept_migrations(section: BackupSection) -> list[KeptMigration]:
    """Return what a section holds of migrations."""
    return [KeptMigration(one.table, one.number, bytes(one.value)) for one in section.migrations]


class _End(msgspec.Struct, frozen=True, kw_only=True):
    sections: int
    count: int


def utc_text(clock: Clock, *, later_seconds: float = 0) -> str:
    """Return the time, or a later one, as backups write it: RFC 3339 in UTC, whole seconds."""
    return datetime.fromtimestamp(int(clock.wall() + later_seconds), UTC).isoformat().replace("+00:00", "Z")


class BackupWriter:
    """Writes a backup: the header at once, then section by section, then `end`. A file without its end is no backup."""

    def __init__(self, file: BinaryIO, header: BackupHeader, *, is_compressed: bool = True) -> None:
        version = REGISTRY_VERSION if header.kind == KIND_FULL else FORMAT_VERSION
        self._blocks = BlockWriter(file, is_compressed=is_compressed, version=version)
        self._blocks.write(BlockKind.HEADER, msgspec.json.encode(header))
        self._sections = 0
        self._count = 0
        self._pending = io.BytesIO()
        self._pending_count = 0
        self._digest = PairDigest()
        self._described_bytes = 0

    def begin(self, section: BackupSection) -> None:
        """Begin a section. Raises InvalidInputError when nobody would read so many of them."""
        self._digest = PairDigest()
        described = msgspec.json.encode(section)
        self._described_bytes += len(described)
        if self._described_bytes > SECTIONS_BYTES_MAX:
            raise InvalidInputError(
                source="backup", problem=f"{_TOO_MANY_SECTIONS}: back up fewer key spaces in one file"
            )
        self._blocks.write(BlockKind.SECTION, described)

    def add(self, key: bytes, value: bytes) -> None:
        """Add the next pair in key order; the key without the section's prefix."""
        self._pending_count += 1
        if self._pending.write(spelled_pair(key, value)) and self._pending.tell() >= _DATA_BYTES:
            self._flush()

    def finish(self, *, leased: int = 0) -> BackupTrailer:
        """End the section, and return its trailer."""
        self._flush()
        tally = self._digest.tally()
        trailer = BackupTrailer(count=tally.count, bytes=tally.bytes, sha256=tally.sha256, leased=leased)
        self._blocks.write(BlockKind.TRAILER, msgspec.json.encode(trailer))
        self._sections += 1
        self._count += tally.count
        return trailer

    def end(self) -> None:
        """End the backup."""
        self._blocks.write(BlockKind.END, msgspec.json.encode(_End(sections=self._sections, count=self._count)))

    def _flush(self) -> None:
        if self._pending.tell():
            content = self._pending.getvalue()
            self._digest.add_spelled(content, count=self._pending_count)
            self._blocks.write(BlockKind.DATA, content)
            self._pending = io.BytesIO()
            self._pending_count = 0


class BackupReader:
    """Reads a backup once, from its beginning. Everything raises InvalidInputError when the file cannot be relied on.

        reader = BackupReader(file, source="site.kpb")
        for section in reader.sections():
            for key, value in reader.pairs():
                ...
            reader.trailer

    Pairs are given as they come: what they are worth is known when the section's pairs have ended, which compares them with the
    trailer. Memory holds one block.
    """

    def __init__(self, file: BinaryIO, *, source: str) -> None:
        self._source = source
        self._reader = BlockReader(file, source=source)
        self._blocks = self._reader.blocks()
        first = next(self._blocks)
        if first.kind is not BlockKind.HEADER:
            self._refuse("the first block is no header")
        self.header: BackupHeader = self._decoded(first, BackupHeader)
        self.trailer: BackupTrailer | None = None
        self._pairs: Iterator[tuple[bytes, bytes]] = iter(())
        self._described_bytes = 0
        if self.header.kind not in (KIND_STORE, KIND_FULL, KIND_SINGLE):
            self._refuse(f"a backup of the kind {self.header.kind!r}, which this keyplan does not know")

    @property
    def position(self) -> int:
        """How many bytes of the file were read."""
        return self._reader.position

    def sections(self, *, with_registry: bool = False) -> Iterator[BackupSection]:
        """Yield the sections, without that of the registry unless it is wanted.

        Pairs that were not taken are gone through before the next one.
        """
        found = (0, 0)  # sections, pairs
        for block in self._blocks:
            if block.kind is BlockKind.END:
                end = self._decoded(block, _End)
                if (end.sections, end.count) != found:
                    self._refuse("the end counts other sections or pairs than there are")
                # Why: the generator looks behind the end when it is asked for more.
                next(self._blocks, None)
                return
            if block.kind is not BlockKind.SECTION:
                self._refuse("a block that is out of place")
            self._described_bytes += len(block.content)
            if self._described_bytes > SECTIONS_BYTES_MAX:
                self._refuse(_TOO_MANY_SECTIONS)
            section = self._decoded(block, BackupSection)
            self._check_prefix(section)
            self._pairs = self._section_pairs()
            if with_registry or not section.is_registry:
                yield section
            for _ in self._pairs:
                pass
            found = (found[0] + 1, found[1] + (0 if self.trailer is None else self.trailer.count))
        self._refuse("there is no end")

    def pairs(self) -> Iterator[tuple[bytes, bytes]]:
        """The pairs of the section that were not taken yet; behind the last they are compared with the trailer."""
        return self._pairs

    def _section_pairs(self) -> Iterator[tuple[bytes, bytes]]:
        digest = PairDigest()
        previous: bytes | None = None
        for block in self._blocks:
            if block.kind is BlockKind.TRAILER:
                trailer: BackupTrailer = self._decoded(block, BackupTrailer)
                self.trailer = trailer
                if trailer.tally != digest.tally():
                    self._refuse("the pairs of a section are not those that its trailer counts")
                return
            if block.kind is not BlockKind.DATA:
                self._refuse("a block that is out of place")
            count = 0
            for pair in self._split(block.content):
                if previous is not None and pair[0] <= previous:
                    self._refuse("keys are not in ascending order")
                previous = pair[0]
                count += 1
                yield pair
            digest.add_spelled(block.content, count=count)

    def _split(self, content: bytes) -> Iterator[tuple[bytes, bytes]]:
        position, size = 0, len(content)
        try:
            while position < size:
                if position >= _DATA_BYTES:
                    self._refuse(
                        f"a block in which a pair begins behind {_DATA_BYTES} bytes: no writer fills one so far"
                    )
                key_end = position + 4 + _length_at(content, position)[0]
                value_end = key_end + 4 + _length_at(content, key_end)[0]
                if value_end > size:
                    self._refuse("a pair ends beyond its block")
                yield content[position + 4 : key_end], content[key_end + 4 : value_end]
                position = value_end
        except struct.error:
            self._refuse("a pair ends beyond its block")

    def _check_prefix(self, section: BackupSection) -> None:
        try:
            bytes.fromhex(section.prefix)
            for state in section.index_states:
                bytes.fromhex(state.root)
        except ValueError:
            self._refuse("the prefix of a section, or the root of an index, is not hexadecimal")
        try:
            rerooted(kept_migrations(section), b"", b"")
        except (CorruptionError, ValueError, KeyError):
            self._refuse("what a section says of migrations cannot be read")
        is_whole = section.is_registry and self.header.kind == KIND_FULL and section.keyspace is None
        if not is_whole and (section.is_registry or (section.keyspace is None) != (self.header.kind == KIND_STORE)):
            self._refuse("a section that does not belong into a backup of this kind")

    def _decoded(self, block: Block, kind: Any) -> Any:
        try:
            return msgspec.json.decode(block.content, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            self._refuse("a block cannot be read")

    def _refuse(self, problem: str) -> NoReturn:
        raise InvalidInputError(source=self._source, problem=problem, position=self._reader.position)
