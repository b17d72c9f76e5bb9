"""An audit: how much of a store a layout explains. Every key is decoded and counted, and what is unknown grouped.

A check judges records against index entries; an audit says what share of a store is known, before one trusts a layout with it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from keyplan.engine import NO_LEASE, Entry, KeyRange, Snapshot
from keyplan.errors import KeyplanError
from keyplan.layout import BoundLayout, IndexSpec, Kind, Layout, Meaning, TableSpec, bound_layout_of
from keyplan.maintenance.departures import Departure, Departures
from keyplan.maintenance.examine import SYSTEM_AREA, NestedRoots, primary_of

__all__ = ["AuditReport", "ItemTally", "audit"]

SAMPLES_DEFAULT: Final = 3
"""Why: three keys show what a group has in common; `keyplan dump PREFIX` shows them all."""

_PROGRESS_EVERY_KEYS: Final = 1024


@dataclass(slots=True)
class ItemTally:
    """What an audit counted of one table, index or counter.

    `unreadable` are the keys whose value does not decode, which are not explained; `samples` the first of them. `leased` hang
    on a lease. `ambiguous` can be read as another item as well, and count for the first one.
    """

    item: str
    kind: str
    template: str
    keys: int = 0
    key_bytes: int = 0
    value_bytes: int = 0
    unreadable: int = 0
    ambiguous: int = 0
    leased: int = 0
    samples: list[bytes] = field(default_factory=list)


@dataclass(slots=True)
class AuditReport:
    """What an audit found. A key is explained when it is a record, an index entry or a counter, and its value can be read.

    `keys` and the bytes are of all keys that were looked at, those `elsewhere` and `own` left out: `elsewhere` counts keys of
    layouts beside, by name, and of other roots of the same layout; `own` is what keyplan itself keeps in a store.
    `departures` are the unknown keys in groups, largest first; `namespace_keys` mark a place and are no records.
    """

    layout: str
    prefix: bytes
    keys: int = 0
    key_bytes: int = 0
    value_bytes: int = 0
    unknown: int = 0
    namespace_keys: int = 0
    own: int = 0
    items: dict[str, ItemTally] = field(default_factory=dict)
    elsewhere: dict[str, int] = field(default_factory=dict)
    departures: tuple[Departure, ...] = ()
    groups_left_out: int = 0

    @property
    def unreadable(self) -> int:
        """The keys that are known and whose value does not decode."""
        return sum(tally.unreadable for tally in self.items.values())

    @property
    def explained(self) -> int:
        """The keys that the layout explains, values included."""
        return sum(tally.keys for tally in self.items.values()) - self.unreadable

    @property
    def percent(self) -> float:
        """The explained share of all keys, 100.0 of an empty store. It is 100.0 only when every key is explained."""
        return 100.0 if self.is_explained else 100.0 * self.explained / self.keys

    @property
    def is_explained(self) -> bool:
        """Whether every key is."""
        return self.explained == self.keys


def audit(
    snapshot: Snapshot,
    layout: Layout | BoundLayout,
    *,
    prefix: bytes = b"",
    beside: Sequence[Layout | BoundLayout] = (),
    samples: int = SAMPLES_DEFAULT,
    progress: Callable[[int], None] | None = None,
) -> AuditReport:
    """Decode every key of a snapshot, or below a prefix, and count what the layout explains. Nothing is written.

    The keys are read once, in order; memory grows with the layout and with the number of groups of unknown keys, which is
    bounded, and not with the store. `beside` are other layouts in the store, whose keys are counted apart. `samples` is how
    many keys are kept of each group. `progress` is told now and then how many keys were read.
    """
    bound = bound_layout_of(layout)
    auditor = _Auditor(bound, [bound_layout_of(other) for other in beside], prefix, samples)
    number = 0
    for number, entry in enumerate(snapshot.scan(KeyRange.of_prefix(prefix)), start=1):
        auditor.take(entry)
        if progress is not None and number % _PROGRESS_EVERY_KEYS == 0:
            progress(number)
    if progress is not None:
        progress(number)
    return auditor.report()


class _Auditor:
    """Counts entries of one store."""

    def __init__(self, bound: BoundLayout, beside: Sequence[BoundLayout], prefix: bytes, samples: int) -> None:
        self._bound = bound
        self._beside = beside
        self._samples = samples
        self._nested = NestedRoots(bound)
        self._departures = Departures(bound, samples)
        self._report = AuditReport(bound.name, prefix, items=_empty_tallies(bound))

    def report(self) -> AuditReport:
        self._report.departures, self._report.groups_left_out = self._departures.largest_first()
        return self._report

    def take(self, entry: Entry) -> None:
        """Count one entry."""
        meanings = self._bound.meanings(entry.key)
        if not meanings and self._is_elsewhere(entry.key):
            return
        report = self._report
        report.keys += 1
        report.key_bytes += len(entry.key)
        report.value_bytes += len(entry.value)
        if meanings:
            self._count(meanings, entry)
            return
        meaning = self._bound.meaning(entry.key)
        if meaning.kind is Kind.NAMESPACE:
            report.namespace_keys += 1
        else:
            report.unknown += 1
        self._departures.add(meaning, entry)

    def _is_elsewhere(self, raw_key: bytes) -> bool:
        if raw_key.startswith(SYSTEM_AREA) and not self._bound.root.startswith(SYSTEM_AREA):
            self._report.own += 1
            return True
        for name in self._owners(raw_key):
            self._report.elsewhere[name] = self._report.elsewhere.get(name, 0) + 1
            return True
        return False

    def _owners(self, raw_key: bytes) -> Iterator[str]:
        for layout in self._beside:
            if layout.meanings(raw_key):
                yield layout.name
        if self._nested.root_of(raw_key) is not None:
            yield f"{self._bound.name} below another root"

    def _count(self, meanings: Sequence[Meaning], entry: Entry) -> None:
        meaning = meanings[0]
        tally = self._report.items[str(meaning.item)]
        tally.keys += 1
        tally.key_bytes += len(entry.key)
        tally.value_bytes += len(entry.value)
        tally.ambiguous += len(meanings) > 1
        tally.leased += entry.lease != NO_LEASE
        if not self._is_readable(meaning, entry):
            tally.unreadable += 1
            if len(tally.samples) < self._samples:
                tally.samples.append(entry.key)

    def _is_readable(self, meaning: Meaning, entry: Entry) -> bool:
        name = str(meaning.item)
        try:
            match meaning.kind:
                case Kind.RECORD:
                    self._bound.tables[name].form.decode(entry.value)
                case Kind.COUNTER:
                    self._bound.counters[name].decode(entry.value)
                case _:
                    return primary_of(self._bound.indexes[name], entry) is not None
        except KeyplanError:
            return False
        return True


def _empty_tallies(bound: BoundLayout) -> dict[str, ItemTally]:
    tallies = {}
    for spec in bound.spec.items:
        kind = "table" if isinstance(spec, TableSpec) else "counter"
        if isinstance(spec, IndexSpec):
            kind = "unique" if spec.is_unique else "index"
        tallies[spec.name] = ItemTally(spec.name, kind, spec.template.plain)
    return tallies
