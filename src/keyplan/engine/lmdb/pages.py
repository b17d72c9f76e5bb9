"""Whether a data file holds all that its header leads to, found without LMDB, which would end the process by a bus error.

A file may well be shorter than its header says: pages at its end that a transaction took and gave back were never written. So
where it is shorter, the trees are walked. LMDB 0.9's pages, little-endian:

    page         number u64 | pad u16 | flags u16 | lower u16 | upper u16 | node offsets u16 ...
    meta         magic u32 | version u32 | address u64 | map size u64 | free tree | main tree | last page u64 | transaction u64
    tree         pad u32 (of the free tree: the page size) | flags u16 | depth u16 | four counts u64 | root page u64
    node         low u16 | high u16 | flags u16 | key length u16 | key | value, or its first page, or a tree
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
            is_whole = all(_is_whole(descriptor, tree, header.page_size, size) for tree in header.trees)
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


def _is_whole(descriptor: int, tree: bytes, page_size: int, size: int) -> bool:
    """Tell whether every page of a tree, and of the trees in it, lies within the file."""
    left = [_Run(_TREE.unpack(tree)[3])]
    while left:
        run = left.pop()
        if run.first == _NO_PAGE:
            continue
        if (run.first + run.pages) * page_size > size:
            return False
        if not run.hold_value:
            left += _pages_below(os.pread(descriptor, page_size, run.first * page_size), page_size)
    return True


def _pages_below(page: bytes, page_size: int) -> Iterator[_Run]:
    """Yield what a page leads to."""
    _, _, flags, lower, _ = _PAGE.unpack_from(page)
    if flags & _LEAF_OF_KEYS or not flags & (_BRANCH | _LEAF) or lower > page_size:
        return
    for at in range(_PAGE.size, lower, 2):
        offset = int.from_bytes(page[at : at + 2], "little")
        if offset + _NODE.size > page_size:
            continue  # damaged otherwise than by its length; LMDB will say
        low, high, node, key_bytes = _NODE.unpack_from(page, offset)
        value = offset + _NODE.size + key_bytes
        if flags & _BRANCH:
            yield _Run(low | high << 16 | node << 32)
        elif node & _IS_BIG and value + _NUMBER.size <= page_size:
            count = (_PAGE.size + (low | high << 16) - 1) // page_size + 1
            yield _Run(_NUMBER.unpack_from(page, value)[0], count, hold_value=True)
        elif node & _IS_TREE and value + _TREE.size <= page_size:
            yield _Run(_TREE.unpack_from(page, value)[3])
