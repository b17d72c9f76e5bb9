r"""The blocks of a backup file: framed, checksummed, chained, so that no byte of a file can be lost or changed unseen.

    89 6b 70 62 0d 0a 1a 0a              the beginning of the file: \x89 k p b, as PNG does against text conversions
    01                                   the format's version: 02 for a file that holds a registry of key spaces
    kind, coding, length, size, content, checksum              a block; and so on, until the block of kind E

kind: H header, S section, D data, T trailer of a section, E end. coding: 0 as it is, 1 zlib. length (32 bits, big-endian): of
the content as stored; size: of the content as it was. checksum: 16 bytes of BLAKE2b over the checksum of the block before (of
the file's beginning, for the first) and all of this block, so that blocks can neither be left out nor change places.
"""

import zlib
from collections.abc import Iterator
from enum import Enum
from hashlib import blake2b
from typing import BinaryIO, Final, NamedTuple, NoReturn

from keyplan.errors import InvalidInputError

__all__ = ["BLOCK_BYTES_MAX", "FORMAT_VERSION", "REGISTRY_VERSION", "Block", "BlockKind", "BlockReader", "BlockWriter"]

MAGIC: Final = b"\x89kpb\r\n\x1a\n"
FORMAT_VERSION: Final = 1

REGISTRY_VERSION: Final = 2
"""The version of a file with a section for the registry: who does not know it must not bring the rest back without it."""

BLOCK_BYTES_MAX: Final = (1 << 30) + (1 << 16)
"""Why: the largest value that an engine of ours takes is 1 GiB, and a pair is in one block."""

NOTE_BYTES_MAX: Final = 4 << 20
"""Why: what is no data is JSON of one header, one section or one trailer, and becomes objects of many times its size."""

_UNPACKED_BYTES_FREE: Final = 64 << 20
_UNPACKED_TIMES_MAX: Final = 32
"""Why: a small file must not take the memory that it says. What packs better is stored as it is beyond the free bytes."""

_READ_BYTES: Final = 1 << 20
"""Why: a length in a damaged file must not make us allocate what it says; memory grows with what is really there."""

_CHECKSUM_BYTES: Final = 16
_HEAD_BYTES: Final = 10
_COMPRESSED: Final = 1


class BlockKind(Enum):
    """What a block holds."""

    HEADER = b"H"
    SECTION = b"S"
    DATA = b"D"
    TRAILER = b"T"
    END = b"E"


class Block(NamedTuple):
    """A block whose checksum held."""

    kind: BlockKind
    content: bytes


class BlockWriter:
    """Writes blocks to a file that is open for writing bytes."""

    def __init__(self, file: BinaryIO, *, is_compressed: bool, version: int = FORMAT_VERSION) -> None:
        self._file = file
        self._is_compressed = is_compressed
        beginning = MAGIC + bytes([version])
        self._chain = _checksum(b"", beginning)
        self._file.write(beginning)

    def write(self, kind: BlockKind, content: bytes) -> None:
        """Write a block, compressed when that makes it smaller."""
        if len(content) > BLOCK_BYTES_MAX:
            raise InvalidInputError(source="backup", problem=f"a pair of {len(content)} bytes does not fit a block")
        stored, coding = content, 0
        if self._is_compressed:
            packed = zlib.compress(content, level=6)
            if len(packed) < len(content) and _is_unpackable(len(packed), len(content)):
                stored, coding = packed, _COMPRESSED
        head = kind.value + bytes([coding]) + len(stored).to_bytes(4, "big") + len(content).to_bytes(4, "big")
        self._chain = _checksum(self._chain, head, stored)
        for part in (head, stored, self._chain):
            self._file.write(part)


class BlockReader:
    """Reads blocks from a file. Raises InvalidInputError with the place of the first byte that cannot be relied on."""

    def __init__(self, file: BinaryIO, *, source: str) -> None:
        self._file = file
        self._source = source
        self._position = 0
        beginning = self._read(len(MAGIC) + 1)
        if not beginning.startswith(MAGIC):
            self._refuse("not a backup of keyplan")
        if not FORMAT_VERSION <= beginning[-1] <= REGISTRY_VERSION:
            known = f"{FORMAT_VERSION} to {REGISTRY_VERSION}"
            self._refuse(f"a backup in version {beginning[-1]} of the format; this keyplan reads {known}")
        self._chain = _checksum(b"", beginning)

    @property
    def position(self) -> int:
        """How many bytes were read."""
        return self._position

    def blocks(self) -> Iterator[Block]:
        """Yield the blocks up to and including the one that ends the file."""
        while True:
            start = self._position
            head = self._read(_HEAD_BYTES)
            length, size = int.from_bytes(head[2:6], "big"), int.from_bytes(head[6:10], "big")
            if max(length, size) > BLOCK_BYTES_MAX or head[1] > _COMPRESSED or (not head[1] and length != size):
                self._refuse("the head of a block is damaged", start)
            if head[:1] != BlockKind.DATA.value and max(length, size) > NOTE_BYTES_MAX:
                self._refuse(f"a block without data of {max(length, size)} bytes: {NOTE_BYTES_MAX} are allowed", start)
            if head[1] and not _is_unpackable(length, size):
                self._refuse(
                    f"a block of {length} bytes that unpacks to {size}: no writer packs so much so small", start
                )
            stored = self._read(length)
            checksum = self._read(_CHECKSUM_BYTES)
            self._chain = _checksum(self._chain, head, stored)
            if checksum != self._chain:
                self._refuse("the checksum of a block does not hold", start)
            try:
                kind = BlockKind(head[:1])
            except ValueError:
                self._refuse("a block of a kind that this keyplan does not know", start)
            yield Block(kind, self._unpacked(stored, size, start) if head[1] else stored)
            if kind is BlockKind.END:
                if self._file.read(1):
                    self._refuse("there is more behind the end")
                return

    def _unpacked(self, stored: bytes, size: int, start: int) -> bytes:
        unpacking = zlib.decompressobj()
        try:
            content = unpacking.decompress(stored, size + 1)
        except zlib.error:
            self._refuse("a block cannot be unpacked", start)
        if len(content) != size or not unpacking.eof or unpacking.unused_data:
            self._refuse("a block unpacks to another size than it says", start)
        return content

    def _read(self, size: int) -> bytes:
        parts: list[bytes] = []
        missing = size
        while missing:
            part = self._file.read(min(missing, _READ_BYTES))
            if not part:
                self._refuse("the file ends in the middle: it was cut off", self._position + size - missing)
            parts.append(part)
            missing -= len(part)
        self._position += size
        return b"".join(parts)

    def _refuse(self, problem: str, position: int | None = None) -> NoReturn:
        place = self._position if position is None else position
        raise InvalidInputError(source=self._source, problem=problem, position=place)


def _is_unpackable(length: int, size: int) -> bool:
    return size <= _UNPACKED_BYTES_FREE or size <= _UNPACKED_TIMES_MAX * length


def _checksum(before: bytes, *parts: bytes) -> bytes:
    digest = blake2b(before, digest_size=_CHECKSUM_BYTES)
    for part in parts:
        digest.update(part)
    return digest.digest()
