r"""Where entries are set aside that no program can read: out of everybody's way, and not lost.

00 6b 71 <digest of the key>       what stood at one key, with the key itself, when it was set aside, and why
"""

import hashlib
from typing import Final

import msgspec

from keyplan.engine import Clock, Engine, Entry, KeyRange
from keyplan.layout import BoundTable, Layout, Table
from keyplan.maintenance.backup_file import utc_text

__all__ = ["Quarantine", "Quarantined", "list_quarantined", "quarantined_at", "quarantined_value"]

_PLACE_BYTES: Final = 16


class Quarantined(msgspec.Struct, frozen=True):
    """An entry that was set aside. The lease that it hung on is not kept: it may end."""

    raw_key: bytes
    value: bytes
    set_aside_at: str
    reason: str = ""


class Quarantine(Layout, root=b"\x00kq"):
    """What was set aside in this store."""

    entries = Table(f"{{place:fixed(width={_PLACE_BYTES})}}".encode(), key=bytes, value=Quarantined, form="msgpack")


def _table() -> BoundTable:
    return Quarantine.bound().tables["entries"]


def quarantined_at(raw_key: bytes) -> bytes:
    """Return the raw key at which the entry of a raw key is kept. Why a digest: the key may be too long for a longer one."""
    return _table().keys.encode(hashlib.sha256(raw_key).digest()[:_PLACE_BYTES])


def quarantined_value(entry: Entry, reason: str, clock: Clock) -> bytes:
    """Return the bytes that keep an entry."""
    return _table().form.encode(Quarantined(entry.key, entry.value, utc_text(clock), reason))


def list_quarantined(engine: Engine) -> list[Quarantined]:
    """Return what was set aside in the store, or in the key space."""
    table = _table()
    with engine.snapshot() as snapshot:
        return [table.form.decode(entry.value) for entry in snapshot.scan(KeyRange(*table.keys.range(())))]
