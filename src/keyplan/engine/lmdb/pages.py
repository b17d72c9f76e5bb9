"""Whether a data file holds all that its header leads to, found without LMDB, which would end the process by a bus error.

A file may well be shorter than its header says: pages at its end that a transaction took and gave back were never written. So
where it is shorter, the tree of free pages is read. It is small, and as a rule it names all that are missing; only where it
does not, the main tree is walked, page by page. LMDB 0.9's pages, little-endian:

    page         number u64 | pad u16 | flags u16 | lower u16 | upper u16 | node offsets u16 ...
    meta         magic u32 | version u32 | address u64 | map size u64 | free tree | main tree | last page u64 | transaction u64
    tree         pad u32 (of the free tree: the page size) | flags u16 | depth u16 | four counts u64 | root page u64
    node         low u16 | high u16 | flags u16 | key length u16 | key | value, or its first page, or a tree
    free pages   count u64 | page numbers u64 ...   (each value of the free tree)
"""

import os
from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

__all__ = ["Shortfall", "shortfall_of"]

_MAGIC: Final = 0xBEEFC0DE
_META: Final = Struct("<16xII8xQ48s48sQQ")
_TREE: Final = Struct("<IHH32xQ")
_PAGE: Final = Struct("<QHHHH")
_NODE: Final = Struct("<HHHH")
_NUMBER: Final = Struct("<Q")
_BRANCH, _LEAF, _LEAF_OF_KEYS = 0x01, 0x02, 0x20
_IS_BIG, _IS_TREE = 0x01, 0x02
_NO_PAGE: Final = (1 << 64) - 1
_PAGE_SIZES: Final = tuple(1 << bits for bits in range(9, 17))
_LOOKS_MAX: Final = 3


class Shortfall(NamedTuple):
    """A file that lacks pages that are in use."""

    size: int
    needed: int


class _Header(NamedTuple):
    page_size: int
    trees: tuple[bytes, bytes]
    last_page: int
    transaction: int


class _Run(NamedTuple):
    first: int
    pages: int = 1
    hold_value: bool = False


def shortfall_of(data: str | Path) -> Shortfall | None:
    """Return what a data file lacks, or None: it is whole, or no LMDB file of this machine's kind, as LMDB will say.

    Raises OSError when it cannot be read.
    """
    descriptor = os.open(data, os.O_RDONLY | os.O_CLOEXEC)
    try:
        for _ in range(_LOOKS_MAX):
            header = _header_of(descriptor)
            size = os.fstat(descriptor).st_size
            if header is None or size >= (header.last_page + 1) * header.page_size:
                return None
            is_whole = _File(descriptor, header.page_size, size).is_whole(header)
            # Why again: a writer may have used pages anew while they were walked.
            if header == _header_of(descriptor) and size == os.fstat(descriptor).st_size:
                return None if is_whole else Shortfall(size, (header.last_page + 1) * header.page_size)
        return None
    finally:
        os.close(descriptor)


def _header_of(descriptor: int) -> _Header | None:
    """Return the newer one of the two headers."""
    first = _header_at(descriptor, 0)
    if first is None:
        return None
    second = _header_at(descriptor, first.page_size)
    if second is None or second.transaction < first.transaction:
        return first
    return second._replace(page_size=first.page_size)


def _header_at(descriptor: int, offset: int) -> _Header | None:
    raw = os.pread(descriptor, _META.size, offset)
    if len(raw) < _META.size:
        return None
    magic, version, _, free, main, last_page, transaction = _META.unpack(raw)
    page_size = _TREE.unpack(free)[0]
    if magic != _MAGIC or version != 1 or page_size not in _PAGE_SIZES:
        return None
    return _Header(page_size, (free, main), last_page, transaction)


class _CutOffError(Exception):
    """A tree leads out of the file."""


class _File(NamedTuple):
    """A data file that is shorter than its header says."""

    descriptor: int
    page_size: int
    size: int

    def is_whole(self, header: _Header) -> bool:
        """Tell whether every page that is in use lies within the file."""
        free, main = header.trees
        try:
            given_back = self._free_pages(free)
            missing = range(self.size // self.page_size, header.last_page + 1)
            # Why the numbers first: a file that lost half of itself lacks more pages than can be free.
            if len(missing) > len(given_back) or not given_back.issuperset(missing):
                for _ in self._runs(main):
                    pass
        except _CutOffError:
            return False
        return True

    def _runs(self, tree: bytes) -> Iterator[tuple[_Run, bytes]]:
        """Yield what a tree, and the trees in it, are made of, and each page that is no value. Raises _CutOffError."""
        left = [_Run(_TREE.unpack(tree)[3])]
        while left:
            run = left.pop()
            if run.first == _NO_PAGE:
                continue
            if (run.first + run.pages) * self.page_size > self.size:
                raise _CutOffError
            page = b"" if run.hold_value else self._read(run.first, self.page_size)
            left += _pages_below(page, self.page_size) if page else ()
            yield run, page

    def _free_pages(self, tree: bytes) -> set[int]:
        """Return the pages that the tree of free pages names. Raises _CutOffError."""
        free: set[int] = set()
        for run, page in self._runs(tree):
            values = _values_in(page, self.page_size)
            if run.hold_value:
                values = iter([self._read(run.first, run.pages * self.page_size)[_PAGE.size :]])
            for value in values:
                count = int.from_bytes(value[: _NUMBER.size], "little")
                numbers = value[_NUMBER.size : _NUMBER.size * (count + 1)]
                free.update(number for (number,) in _NUMBER.iter_unpack(numbers[: len(numbers) // 8 * 8]))
        return free

    def _read(self, page: int, size: int) -> bytes:
        return os.pread(self.descriptor, size, page * self.page_size)


def _values_in(page: bytes, page_size: int) -> Iterator[bytes]:
    """Yield the values that stand in a leaf itself."""
    for node, offset, value in _nodes_of(page, page_size):
        if _PAGE.unpack_from(page)[2] & _LEAF and not node & (_IS_BIG | _IS_TREE):
            low, high, _, _ = _NODE.unpack_from(page, offset)
            yield page[value : value + (low | high << 16)]


def _pages_below(page: bytes, page_size: int) -> Iterator[_Run]:
    """Yield what a page leads to."""
    for node, offset, value in _nodes_of(page, page_size):
        low, high, _, _ = _NODE.unpack_from(page, offset)
        if _PAGE.unpack_from(page)[2] & _BRANCH:
            yield _Run(low | high << 16 | node << 32)
        elif node & _IS_BIG and value + _NUMBER.size <= page_size:
            count = (_PAGE.size + (low | high << 16) - 1) // page_size + 1
            yield _Run(_NUMBER.unpack_from(page, value)[0], count, hold_value=True)
        elif node & _IS_TREE and value + _TREE.size <= page_size:
            yield _Run(_TREE.unpack_from(page, value)[3])


def _nodes_of(page: bytes, page_size: int) -> Iterator[tuple[int, int, int]]:
    """Yield the flags of a page's nodes, where they begin, and where their values do; what is damaged is passed over."""
    if len(page) < _PAGE.size:
        return
    _, _, flags, lower, _ = _PAGE.unpack_from(page)
    if flags & _LEAF_OF_KEYS or not flags & (_BRANCH | _LEAF) or lower > page_size:
        return
    for at in range(_PAGE.size, lower, 2):
        offset = int.from_bytes(page[at : at + 2], "little")
        if offset + _NODE.size > page_size:
            continue  # damaged otherwise than by its length; LMDB will say
        _, _, node, key_bytes = _NODE.unpack_from(page, offset)
        yield node, offset, offset + _NODE.size + key_bytes
