"""What a check can find: kinds with codes that never change, and one finding at one key. Never a record's value."""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from keyplan.layout import shown_key

__all__ = ["Finding", "FindingKind"]


class FindingKind(Enum):
    """What is wrong; the value is the code, which scripts may rely on."""

    MISSING_ENTRY = "missing-entry"
    WRONG_ENTRY = "wrong-entry"
    CONTESTED_ENTRY = "contested-entry"
    ENTRY_LEASE = "entry-lease"
    DANGLING_ENTRY = "dangling-entry"
    STALE_ENTRY = "stale-entry"
    DAMAGED_ENTRY = "damaged-entry"
    DAMAGED_RECORD = "damaged-record"
    UNINDEXABLE_RECORD = "unindexable-record"
    UNLEASED_RECORD = "unleased-record"
    LEASED_RECORD = "leased-record"
    DAMAGED_COUNTER = "damaged-counter"
    COUNTER_BEHIND = "counter-behind"
    UNKNOWN_KEY = "unknown-key"
    NAMESPACE_KEY = "namespace-key"
    AMBIGUOUS_KEY = "ambiguous-key"
    OTHER_LAYOUT_KEY = "other-layout-key"

    @property
    def summary(self) -> str:
        """What is wrong, in a sentence that never varies."""
        return _SUMMARIES[self]

    @property
    def advice(self) -> str:
        """The command that mends it, KEY being the finding's key; for notes, what to do if it is not intended."""
        return _ADVICE[self]

    @property
    def is_repairable(self) -> bool:
        """Whether the records alone say what to do. Of the others, a person must decide."""
        return self in _REPAIRABLE

    @property
    def is_note(self) -> bool:
        """Whether it may be intended: it is told, and is no failure."""
        return self in {FindingKind.UNLEASED_RECORD, FindingKind.LEASED_RECORD, FindingKind.OTHER_LAYOUT_KEY}


_SUMMARIES: Final = {
    FindingKind.MISSING_ENTRY: "the record has no index entry here",
    FindingKind.WRONG_ENTRY: "the index entry does not point at the record that calls for it",
    FindingKind.CONTESTED_ENTRY: "two records call for this unique entry, which points at the other",
    FindingKind.ENTRY_LEASE: "the index entry hangs on another lease than its record",
    FindingKind.DANGLING_ENTRY: "the index entry points at a record that is not there",
    FindingKind.STALE_ENTRY: "the index entry points at a record that does not call for it",
    FindingKind.DAMAGED_ENTRY: "the index entry does not name a record",
    FindingKind.DAMAGED_RECORD: "the record's value cannot be read",
    FindingKind.UNINDEXABLE_RECORD: "the record's fields do not fit an index, so that it has no entries",
    FindingKind.UNLEASED_RECORD: "the record of a leased table hangs on no lease",
    FindingKind.LEASED_RECORD: "the record of a table without leases hangs on one, and will go with it",
    FindingKind.DAMAGED_COUNTER: "the counter's value is not a number",
    FindingKind.COUNTER_BEHIND: "the counter's next number is less than the declared start",
    FindingKind.UNKNOWN_KEY: "no template spells this key",
    FindingKind.NAMESPACE_KEY: "a key that only marks a place below which others lie",
    FindingKind.AMBIGUOUS_KEY: "the key can be read in two ways",
    FindingKind.OTHER_LAYOUT_KEY: "another layout of the same root can read the key",
}

_REPAIR: Final = "`keyplan check --repair` mends it"
_REWRITE: Final = "`keyplan put` writes the record again, and its entries with it"

_ADVICE: Final = {
    FindingKind.MISSING_ENTRY: _REPAIR,
    FindingKind.WRONG_ENTRY: _REPAIR,
    FindingKind.ENTRY_LEASE: _REPAIR,
    FindingKind.DANGLING_ENTRY: _REPAIR,
    FindingKind.STALE_ENTRY: _REPAIR,
    FindingKind.DAMAGED_ENTRY: _REPAIR,
    FindingKind.CONTESTED_ENTRY: "choose which record keeps it; change the other with `keyplan put`, or `keyplan delete` it",
    FindingKind.DAMAGED_RECORD: (
        "`keyplan raw get KEY` shows the value; `keyplan extract BACKUP --key KEY --into-store` takes it from a backup,"
        " `keyplan raw put KEY VALUE` writes another, `keyplan raw quarantine KEY` sets it aside"
    ),
    FindingKind.UNINDEXABLE_RECORD: (
        "`keyplan put` writes a record that fits; `keyplan delete`, or `keyplan raw quarantine KEY`, takes this one away"
    ),
    FindingKind.DAMAGED_COUNTER: "`keyplan raw put KEY NUMBER` writes the right number: one more than the largest handed out",
    FindingKind.COUNTER_BEHIND: "`keyplan raw put KEY NUMBER` writes the right number: one more than the largest handed out",
    FindingKind.UNKNOWN_KEY: "declare the key, or take it away with `keyplan raw quarantine KEY` or `keyplan raw delete KEY`",
    FindingKind.NAMESPACE_KEY: "`keyplan raw delete KEY` removes it",
    FindingKind.AMBIGUOUS_KEY: "change the layout (lint rule L1); `keyplan raw quarantine KEY` takes the key away",
    FindingKind.OTHER_LAYOUT_KEY: "check with that layout, `keyplan check --layout NAME`, or name it with --beside NAME",
    FindingKind.UNLEASED_RECORD: f"{_REWRITE}, with --lease ID",
    FindingKind.LEASED_RECORD: _REWRITE,
}

_REPAIRABLE: Final = frozenset(
    {
        FindingKind.MISSING_ENTRY,
        FindingKind.WRONG_ENTRY,
        FindingKind.ENTRY_LEASE,
        FindingKind.DANGLING_ENTRY,
        FindingKind.STALE_ENTRY,
        FindingKind.DAMAGED_ENTRY,
    }
)

_FOUND_AT_RECORD: Final = frozenset(
    {
        FindingKind.MISSING_ENTRY,
        FindingKind.WRONG_ENTRY,
        FindingKind.CONTESTED_ENTRY,
        FindingKind.ENTRY_LEASE,
    }
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong at one key.

    `raw_key` is the key that is wrong: for a missing entry, where it should be. `item` is the table, index or counter it is of;
    for an unknown key the nearest one, or None. `record_key` is the raw key of the record that the entry belongs to or points
    at; None where there is none. `detail` says more, in names, numbers and keys.
    """

    kind: FindingKind
    raw_key: bytes
    item: str | None = None
    record_key: bytes | None = None
    detail: str = ""

    @property
    def origin(self) -> bytes:
        """The key whose examination finds this: the record's for what its entries should be, else the key itself."""
        if self.kind in _FOUND_AT_RECORD and self.record_key is not None:
            return self.record_key
        return self.raw_key

    @property
    def identity(self) -> tuple[FindingKind, bytes, bytes | None]:
        """What stays the same of it while the store moves on."""
        return self.kind, self.raw_key, self.record_key

    def __str__(self) -> str:
        facts = []
        if self.item is not None:
            facts.append(self.item)
        if self.record_key is not None:
            facts.append(f"record {shown_key(self.record_key)}")
        if self.detail:
            facts.append(self.detail)
        told = f" ({', '.join(facts)})" if facts else ""
        return f"{self.kind.value}: {shown_key(self.raw_key)}: {self.kind.summary}{told}"
