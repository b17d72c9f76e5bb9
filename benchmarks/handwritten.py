"""The comparator: what a careful programmer writes on py-lmdb for this one layout, without any library.

It writes the bytes that keyplan writes: keys, values and, with history, the header of each entry, the log and the state row;
a test compares the files. It refuses taken ids and names, and nothing else: names are not looked at, and a value's types
are not checked.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from struct import Struct
from types import TracebackType
from typing import Final, Self

import lmdb
import msgspec

from benchmarks.inventory import Item

__all__ = ["HistoryStore", "RawStore", "open_by_hand"]

_HEADER: Final = Struct(">4Q")
_HEADER_BYTES: Final = _HEADER.size
_LOG_KEY: Final = Struct(">QI")
_EVENT: Final = Struct(">HII")
_STATE: Final = Struct(">4Q")

_encode: Final = msgspec.json.Encoder(order="deterministic").encode
_decode: Final = msgspec.json.Decoder(Item).decode

_ITEMS: Final = b"/inventory/items/"
_ITEMS_BYTES: Final = len(_ITEMS)


def _pairs(key: str, item: Item) -> Iterable[tuple[bytes, bytes]]:
    yield f"/inventory/items/{key}".encode(), _encode(item)
    yield f"/inventory/names/{item.project}/{item.name}".encode(), key.encode()
    yield f"/inventory/projects/{item.project}/{key}".encode(), b""
    for tag in item.tags:
        yield f"/inventory/tags/{tag}/{key}".encode(), b""


class RawStore:
    """Keys and values alone, as with `history=off`."""

    header_bytes = 0

    def __init__(self, environment: lmdb.Environment) -> None:
        self.environment = environment
        self.data = environment.open_db(b"data", create=False)

    def get(self, key: str) -> Item | None:
        with self.environment.begin(self.data) as transaction:
            raw = transaction.get(f"/inventory/items/{key}".encode())
        return None if raw is None else _decode(raw)

    def list(self) -> Iterator[tuple[str, Item]]:
        with self.environment.begin(self.data) as transaction:
            cursor = transaction.cursor()
            if cursor.set_range(_ITEMS):
                for raw_key, raw in cursor:
                    if not raw_key.startswith(_ITEMS):
                        break
                    yield raw_key[_ITEMS_BYTES:].decode(), _decode(raw)

    def keys(self) -> Iterator[str]:
        with self.environment.begin(self.data) as transaction:
            cursor = transaction.cursor()
            if cursor.set_range(_ITEMS):
                for raw_key in cursor.iternext(values=False):
                    if not raw_key.startswith(_ITEMS):
                        break
                    yield raw_key[_ITEMS_BYTES:].decode()

    def by_name(self, project: str, name: str) -> Item | None:
        with self.environment.begin(self.data) as transaction:
            pointer = transaction.get(f"/inventory/names/{project}/{name}".encode())
            raw = None if pointer is None else transaction.get(_ITEMS + pointer[self.header_bytes :])
        return None if raw is None else _decode(raw[self.header_bytes :])

    def by_project(self, project: str) -> Iterator[tuple[str, Item]]:
        prefix = f"/inventory/projects/{project}/".encode()
        start, header_bytes = len(prefix), self.header_bytes
        with self.environment.begin(self.data) as transaction:
            cursor = transaction.cursor()
            if cursor.set_range(prefix):
                for raw_key in cursor.iternext(values=False):
                    if not raw_key.startswith(prefix):
                        break
                    raw = transaction.get(_ITEMS + raw_key[start:])
                    if raw is not None:
                        yield raw_key[start:].decode(), _decode(raw[header_bytes:])

    def insert(self, records: Iterable[tuple[str, Item]]) -> None:
        """Insert in one transaction. Raises KeyError for a taken id or name."""
        with self.environment.begin(self.data, write=True) as transaction:
            for key, item in records:
                for raw_key, value in _pairs(key, item):
                    if not transaction.put(raw_key, value, overwrite=False):
                        raise KeyError(raw_key)

    def close(self) -> None:
        self.environment.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class HistoryStore(RawStore):
    """With revisions and a log, as keyplan keeps them by default."""

    header_bytes = _HEADER_BYTES

    def __init__(self, environment: lmdb.Environment) -> None:
        super().__init__(environment)
        self.log = environment.open_db(b"log", create=False)
        self.meta = environment.open_db(b"meta", create=False)

    def get(self, key: str) -> Item | None:
        with self.environment.begin(self.data) as transaction:
            raw = transaction.get(f"/inventory/items/{key}".encode())
        return None if raw is None else _decode(raw[_HEADER_BYTES:])

    def list(self) -> Iterator[tuple[str, Item]]:
        with self.environment.begin(self.data) as transaction:
            cursor = transaction.cursor()
            if cursor.set_range(_ITEMS):
                for raw_key, raw in cursor:
                    if not raw_key.startswith(_ITEMS):
                        break
                    yield raw_key[_ITEMS_BYTES:].decode(), _decode(raw[_HEADER_BYTES:])

    def insert(self, records: Iterable[tuple[str, Item]]) -> None:
        with self.environment.begin(self.data, write=True) as transaction:
            revision, compacted, granted, living = _STATE.unpack(transaction.get(b"state", bytes(32), db=self.meta))
            revision += 1
            header = _HEADER.pack(revision, revision, 1, 0)
            events: list[bytes] = []
            for raw_key, value in sorted([pair for key, item in records for pair in _pairs(key, item)]):
                stored = header + value
                if not transaction.put(raw_key, stored, overwrite=False):
                    raise KeyError(raw_key)
                events.append(_EVENT.pack(len(raw_key), len(stored), 0) + raw_key + stored)
            transaction.put(_LOG_KEY.pack(revision, 0), b"".join(events), db=self.log)
            transaction.put(b"state", _STATE.pack(revision, compacted, granted, living), db=self.meta)


def open_by_hand(folder: Path, *, has_history: bool, durability: str) -> RawStore:
    """Open a store that keyplan made, as keyplan opens it, without keyplan."""
    environment = lmdb.open(
        str(folder),
        map_size=1 << 40,
        max_dbs=8,
        sync=durability != "none",
        metasync=durability == "full",
        lib_version=0,
    )
    return HistoryStore(environment) if has_history else RawStore(environment)
