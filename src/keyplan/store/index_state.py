"""Whether an index may be read: its state while it is not, in the same store, below the bytes `00 ki` of the system area.

    00 6b 69  "/site/" 00  "by_serial"     {"stage": "building", ...}

No record means readable, so that a store whose indexes were always kept holds nothing but what its layout says. Writers keep
an index in every state; readers ask here. What changes the states is keyplan.maintenance.
"""

from enum import Enum
from functools import cache, lru_cache
from typing import Annotated, Final, NamedTuple

import msgspec

from keyplan.codec import EscapedBytes, TextTail
from keyplan.engine import Entry, KeyRange
from keyplan.errors import IndexNotReadyError
from keyplan.layout import BoundIndex, BoundTable, Layout, Table, Waiver
from keyplan.store.decoding import decode_record

__all__ = [
    "TRANSFER_AREA",
    "IndexStage",
    "IndexState",
    "IndexStateKey",
    "IndexStates",
    "index_state_key",
    "index_state_of",
    "index_state_value",
    "refuse_unreadable",
]


class IndexStage(Enum):
    """How far an index is that may not be read yet."""

    WRITE_ONLY = "write-only"
    """Writers keep it; records from before have no entries yet, or its entries were dropped."""
    BUILDING = "building"
    """The records are being gone through, and their entries made."""
    VERIFYING = "verifying"
    """All records were given entries once; whether each has them is being looked at."""
    SWEEPING = "sweeping"
    """All records have their entries; entries that no record calls for are being removed."""


class IndexState(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The state of an index that is not readable.

    `fingerprint` is that of the index's definition by which the stage was begun. Everything up to and including the raw key
    `cursor` is taken by some builder (BUILDING) or is done (VERIFYING, SWEEPING); `records` counts the keys up to there.
    `unresolved` counts what the verification could not put right. `command` are the words behind `keyplan` that build it, but
    for the store; none when a program began it. `run` is the drop that wrote the state: no two drops write
    the same bytes, so that a guard on the state names one of them, on engines without revisions too.
    """

    stage: IndexStage
    fingerprint: str = ""
    cursor: bytes = b""
    records: int = 0
    unresolved: int = 0
    run: str = ""
    command: tuple[str, ...] = ()


class IndexStateKey(NamedTuple):
    """An index of a layout under a root: two roots of one layout have indexes of their own."""

    root: Annotated[bytes, EscapedBytes()]
    name: Annotated[str, TextTail()]


class IndexStates(Layout, root=b"\x00ki"):
    """The states of all indexes of a store that are not readable."""

    states = Table(b"{root}{name}", key=IndexStateKey, value=IndexState)

    waivers = (Waiver("L10", "states", "a root that leaves no room for this key leaves none for keys of its own"),)


@cache
def _states() -> BoundTable:
    return IndexStates.bound().tables["states"]


@lru_cache(maxsize=1_024)
def index_state_key(index: BoundIndex) -> bytes:
    """Return the raw key at which the state of the index stands."""
    return _states().keys.encode(IndexStateKey(index.table.layout.root, index.name))


def index_state_of(entry: Entry | None) -> IndexState | None:
    """Return the state that is stored in the entry at `index_state_key`; None: readable. Raises CorruptionError."""
    if entry is None:
        return None
    state = decode_record(_states(), entry.key, entry.value)
    assert isinstance(state, IndexState)
    return state


def index_state_value(state: IndexState) -> bytes:
    """Return the bytes to store for a state."""
    return _states().form.encode(state)


def refuse_unreadable(index: BoundIndex, entry: Entry | None) -> None:
    """Raise IndexNotReadyError unless the index is readable, as the entry at its `index_state_key` says."""
    state = index_state_of(entry)
    if state is not None:
        raise IndexNotReadyError(
            layout=index.table.layout.name, index=index.name, state=state.stage.value, records=state.records
        )


# ---- beside it in the system area: the claims of restores and copies. One look tells whether something is brought in ---

TRANSFER_AREA: Final = KeyRange.of_prefix(b"\x00kt")
"""They are of this store alone, and in no backup and no copy. What they say: keyplan.maintenance.claims."""
