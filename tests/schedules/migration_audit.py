"""The history of a store through a migration, commit by commit: what its runs did, judged by hand.

Whoever wrote which revision is known. Of what a run of the migration wrote, the audit says whether it may:

    it writes new records       they are what the old ones become, over what it had written itself, or over nothing
    it marks a record           both sides are then as the model has them
    it forgets a record         nothing of it is left on one side alone
    it removes old records      they are what was carried over, and that stands, or a program of the new layout took it away
    it converts in place        once after each write by the old layout
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, NamedTuple

from keyplan.engine import Event
from keyplan.maintenance import Migrations
from tests.maintenance.goods import Way, raw_name

__all__ = ["MIGRATION", "NEW", "OLD", "PERSON", "RESTORE", "SECOND", "Audit"]

MIGRATION, SECOND, OLD, NEW, PERSON, RESTORE = "migration", "second", "old", "new", "person", "restore"
"""Who writes: runs of the migration or of a second one, programs of either layout, somebody who decides, a restore or a copy."""

_MARKS = Migrations.bound().tables["marks"]

Stored = dict[bytes, Any]
"""JSON and lease by raw key."""


class Base(NamedTuple):
    """Both sides when they were last brought together."""

    old: Mapping[bytes, Any]
    new: Mapping[bytes, Any]


@dataclass
class Audit:
    """Follows a history. `ways`: by who writes, on which way a migration is."""

    ways: Mapping[str, Way]
    stored: Stored = field(default_factory=dict)
    writers: dict[bytes, str] = field(default_factory=dict)
    bases: dict[tuple[str, str], Base] = field(default_factory=dict)
    units: dict[bytes, str] = field(default_factory=dict)

    def follow(self, events: Iterable[Event], labels: Mapping[int, str]) -> None:
        """Judge the changes of each revision. Raises AssertionError."""
        for revision, group in groupby(events, key=lambda event: event.revision):
            changes = list(group)
            label = labels.get(revision, "nobody")
            assert label != "nobody", f"revision {revision} is nobody's: {[event.key for event in changes]}"
            try:
                self._one(changes, label)
            except AssertionError as error:
                raise AssertionError(f"revision {revision} of {label}: {error}") from error

    def _one(self, changes: list[Event], label: str) -> None:
        way = self.ways.get(label)
        touched = {
            (who, name)
            for who, each in self.ways.items()
            for event in changes
            if (name := self._name_of(each, event.key)) is not None
        }
        before = {unit: self._sides(self.ways[unit[0]], unit[1]) for unit in touched}
        own = dict(self.stored), dict(self.writers)
        for event in changes:
            if event.key.startswith(b"/g/"):
                self._apply(event, label)
        marked = self._marks(changes, label)
        if way is None:
            return
        for event in changes:
            if way.is_in_place and self._name_of(way, event.key) is not None:
                self._converted(way, event, *own)
        if not way.is_in_place:
            for unit in sorted({*touched, *marked}):
                if unit[0] == label:
                    old, new = before.get(unit) or self._sides(way, unit[1])
                    self._merged(way, unit, old, new, marked)

    def _apply(self, event: Event, label: str) -> None:
        self.writers[event.key] = label
        if event.entry is None:
            self.stored.pop(event.key, None)
        elif event.key.split(b"/")[2] in {b"goods", b"stocks", b"wares", b"cases"}:
            self.stored[event.key] = {"record": json.loads(event.entry.value), "lease": event.entry.lease}

    # ---- records that get other keys -----------------------------------------------------------------------------------

    def _merged(
        self,
        way: Way,
        unit: tuple[str, str],
        old: Mapping[bytes, Any],
        new: Mapping[bytes, Any],
        marked: Mapping[tuple[str, str], bool],
    ) -> None:
        """What a run of the migration did to a unit in one commit."""
        name = unit[1]
        old_after, new_after = self._sides(way, name)
        base = self.bases.get(unit)
        carried = {} if base is None else dict(base.new)
        if changed := {key for key in {*new, *new_after} if new.get(key) != new_after.get(key)}:
            made = self._made(way, name, old)
            assert {key: value for key, value in new_after.items() if key in {*changed, *made}} == made, (
                f"{name}: it wrote {new_after}, the old records become {made}"
            )
            stood = {key: value for key, value in new.items() if key in {*changed, *carried}}
            assert stood == carried, f"{name}: it wrote over {stood}, and had carried over {carried}"
        if old_after != old:
            assert not old_after, f"{name}: it changed old records {old} to {old_after}"
            assert base is not None and dict(base.old) == old, f"{name}: it removed {old}, which it had not carried over"
            gone = [key for key in carried if key not in new and self.writers.get(key) not in {NEW, PERSON}]
            assert not gone, f"{name}: it removed {old}, and {gone} are not there"
        if marked.get(unit):
            made = self._made(way, name, old_after)
            standing = {key: value for key, value in new_after.items() if key in {*made, *carried}}
            assert standing == made, f"{name}: it is marked, and {standing} stands where {made} should"
            self.bases[unit] = Base(old_after, made)
        elif unit in marked:
            left = [key for key in carried if key in new_after]
            assert old_after != old or not (left or old), f"{name}: it is forgotten, and {[*left, *old]} are there"
            self.bases.pop(unit, None)

    def _marks(self, changes: list[Event], label: str) -> dict[tuple[str, str], bool]:
        """The units that were marked, and those whose mark went."""
        marked = {}
        for event in changes:
            if _MARKS.keys.decode(event.key) is None:
                continue
            if event.entry is not None:
                self.units[event.key] = _MARKS.form.decode(event.entry.value).key.decode().split("/")[3]
            unit = label, self.units[event.key]
            # Why: marks of a run that died are removed by whoever comes, a second migration, too.
            marked[unit] = event.entry is not None
        return marked

    # ---- records that stay where they are --------------------------------------------------------------------------------

    def _converted(self, way: Way, event: Event, stored: Stored, writers: Mapping[bytes, str]) -> None:
        name = self._name_of(way, event.key)
        before = stored.get(event.key)
        assert name is not None
        assert before is not None, f"{event.key!r}: it wrote a record that was not there"
        assert writers[event.key] in {OLD, RESTORE}, f"{event.key!r}: it converted what {writers[event.key]} had written"
        assert self.stored.get(event.key) == self._made(way, name, {event.key: before})[event.key], (
            f"{event.key!r}: it made {self.stored.get(event.key)} of {before}"
        )

    # ---- in the end ----------------------------------------------------------------------------------------------------------

    def finish(self, label: str) -> None:
        """Nothing is left of the old layout, and nothing is half done."""
        way = self.ways[label]
        if way.is_in_place:
            left = [key for key in self.stored if self._name_of(way, key) and self.writers[key] in {OLD, RESTORE}]
        else:
            left = [key for key in self.stored if any(raw_name(key, place, 2) for place in way.sources)]
        assert not left, f"{left} are left as the old layout had them"
        assert not self.bases, f"{sorted(self.bases)} are marked in the end"

    # ---- sides ----------------------------------------------------------------------------------------------------------------

    def _name_of(self, way: Way, raw_key: bytes) -> str | None:
        for place in way.sources:
            if name := raw_name(raw_key, place, 2):
                return name
        return raw_name(raw_key, way.target, way.name_at)

    def _sides(self, way: Way, name: str) -> tuple[dict[bytes, Any], dict[bytes, Any]]:
        old = {key: value for key, value in self.stored.items() if any(raw_name(key, p, 2) == name for p in way.sources)}
        new = {key: value for key, value in self.stored.items() if raw_name(key, way.target, way.name_at) == name}
        return old, new

    def _made(self, way: Way, name: str, old: Mapping[bytes, Any]) -> dict[bytes, Any]:
        records = {key.decode().split("/")[2]: value["record"] for key, value in old.items()}
        lease = next((old[key]["lease"] for key in sorted(old)), 0)
        return {key: {"record": record, "lease": lease} for key, record in way.made(name, records).items()}
