"""Backups for tests: stores with known content, and files of them."""

import io
from collections.abc import Mapping
from pathlib import Path

from keyplan.engine import ALL_KEYS, Commit, Engine, KeyRange, Put, open_engine
from keyplan.files import new_file
from keyplan.maintenance import BackupHeader, BackupSection, BackupWriter, back_up_store

__all__ = ["HEADER", "content_of", "file_of", "filled", "section_file", "write_backup"]

HEADER = BackupHeader(id="b-1", kind="store", created_at="2026-11-21T12:00:00Z", engine="memory", revision=7)


def filled(url: str, content: Mapping[bytes, bytes]) -> Engine:
    """An engine with this content."""
    engine = open_engine(url)
    put_all(engine, content)
    return engine


def put_all(engine: Engine, content: Mapping[bytes, bytes]) -> None:
    items = list(content.items())
    for start in range(0, len(items), 100):
        engine.commit(Commit((), tuple(Put(key, value) for key, value in items[start : start + 100])))


def content_of(engine: Engine, key_range: KeyRange = ALL_KEYS) -> dict[bytes, bytes]:
    """What the engine holds, by an ordinary scan."""
    with engine.snapshot() as snapshot:
        return {entry.key: entry.value for entry in snapshot.scan(key_range)}


def section_file(content: Mapping[bytes, bytes], *, is_compressed: bool = True) -> bytes:
    """A plain backup of this content as bytes."""
    file = io.BytesIO()
    writer = BackupWriter(file, HEADER, is_compressed=is_compressed)
    writer.begin(BackupSection(prefix=""))
    for key, value in sorted(content.items()):
        writer.add(key, value)
    writer.finish()
    writer.end()
    return file.getvalue()


def write_backup(engine: Engine, path: Path, *, prefix: bytes = b"") -> Path:
    """Back a store up into a file."""
    with new_file(path) as file:
        back_up_store(engine, file, prefix=prefix)
    return path


def file_of(path: Path, raw: bytes) -> Path:
    """A file with these bytes."""
    path.write_bytes(raw)
    return path
