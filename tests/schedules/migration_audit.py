"""The history of a store through a migration, commit by commit: what its runs did, judged by hand.

Whoever wrote which revision is known. Of what a run of the migration wrote, the audit says whether it may:

    it writes new records       they are what the old ones become, over what it had written itself, or over nothing
    it marks a record           both sides are then as the model has them
    it forgets a record         nothing of it is left on one side alone
    it removes old records      they are what was carried over, and that stands, or a program of the new layout took it away
    it converts in place        once after each write by the old layout
    it takes new records back   the old ones are then what it would make just these of again; only then do they go
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, NamedTuple

from keyplan.engine import Event
from keyplan.maintenance import Migrations
from tests.maintenance.goods import Way, raw_name

__all__ = ["MIGRATION", "NEW", "OLD", "PERSON", "RESTORE", "ROLLBACK", "SECOND", "Audit", "Change"]

MIGRATION, ROLLBACK, SECOND = "migration", "rollback", "second"
OLD, NEW, PERSON, RESTORE = "old", "new", "person", "restore"
"""Who writes: runs of the migration, of its rollback, or of a second one; programs of either layout, somebody who decides, a
restore or a copy."""

_MARKS = Migrations.bound().tables["marks"]

Stored = dict[bytes, Any]
"""JSON and lease by raw key."""


class Base(NamedTuple):
    """Both sides when they were last brought together."""

    old: Mapping[bytes, Any]
    new: Mapping[bytes, Any]


class Change(NamedTuple):
    """What one commit did to a unit: both sides before and after it, and what became of its mark; None: it stayed."""

    name: str
    old: Mapping[bytes, Any]
    new: Mapping[bytes, Any]
    old_after: Mapping[bytes, Any]
    new_after: Mapping[bytes, Any]
    is_marked: bool | None

    @property
    def changed(self) -> set[bytes]:
        """The new keys at which something else stands."""
        return {key for key in {*self.new, *self.new_after} if self.new.get(key) != self.new_after.get(key)}


@dataclass
class Audit:
    """Follows a history. `ways`: by who writes, on which way a migration is. `takes_loss`: somebody has consented to losses."""

    ways: Mapping[str, Way]
    takes_loss: bool = False
    stored: Stored = field(default_factory=dict)
    writers: dict[bytes, str] = field(default_factory=dict)
    bases: dict[tuple[str, str], Base] = field(default_factory=dict)
    marks: dict[bytes, str] = field(default_factory=dict)

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

    def _one(self, events: list[Event], label: str) -> None:
        way = self.ways.get(label)
        marked = self._marked(events)
        names = {name for event in events if way and (name := self._name_of(way, event.key)) is not None} | {*marked}
        before = {name: self._sides(way, name) for name in sorted(names) if way}
        stored, writers = dict(self.stored), dict(self.writers)
        for event in events:
            if event.key.startswith(b"/g/"):
                self._apply(event, label)
        brings = label == RESTORE and any(event.key.startswith(b"/g/") for event in events)
        assert not (brings and self.bases), f"it came between, and {sorted(self.bases)} are being carried over"
        if way is None:
            return
        if way.is_in_place:
            for event in events:
                if self._name_of(way, event.key) is not None:
                    self._converted(way, event, stored, writers)
            return
        for name, (old, new) in before.items():
            change = Change(name, old, new, *self._sides(way, name), marked.get(name))
            if label == ROLLBACK:
                self._taken_back(way, change)
            else:
                self._merged(way, change, writers)

    def _apply(self, event: Event, label: str) -> None:
        self.writers[event.key] = label
        if event.entry is None:
            self.stored.pop(event.key, None)
        elif event.key.split(b"/")[2] in {b"goods", b"stocks", b"wares", b"cases"}:
            self.stored[event.key] = {"record": json.loads(event.entry.value), "lease": event.entry.lease}

    def _marked(self, events: list[Event]) -> dict[str, bool]:
        """The units that were marked, and those whose mark went."""
        marked = {}
        for event in events:
            if _MARKS.keys.decode(event.key) is not None:
                if event.entry is not None:
                    self.marks[event.key] = _MARKS.form.decode(event.entry.value).key.decode().split("/")[3]
                marked[self.marks[event.key]] = event.entry is not None
        return marked

    # ---- records that get other keys -----------------------------------------------------------------------------------

    def _merged(self, way: Way, change: Change, writers: Mapping[bytes, str]) -> None:
        """What a run of the migration did to a unit in one commit."""
        name, old, new, old_after, new_after, is_marked = change
        unit = way.new.__name__, name
        base = self.bases.get(unit)
        carried = {} if base is None else dict(base.new)
        if changed := change.changed:
            converted = [key for key in old if writers[key] in {MIGRATION, SECOND}]
            assert not converted, f"{name}: it makes {new_after} of {converted}, which a migration has converted before"
            made = self._made(way, name, old)
            assert {key: value for key, value in new_after.items() if key in {*changed, *made}} == made, (
                f"{name}: it wrote {new_after}, the old records become {made}"
            )
            stood = {key: value for key, value in new.items() if key in {*changed, *carried}}
            assert stood == carried, f"{name}: it wrote over {stood}, and had carried over {carried}"
        if old_after != old:
            assert not old_after, f"{name}: it changed old records {old} to {old_after}"
            assert base is not None, f"{name}: it removed {old}, and it is not marked"
            assert dict(base.old) == old, f"{name}: it removed {old}, which it had not carried over"
            gone = [key for key in carried if key not in new]
            if not self.takes_loss or any(writers.get(key) not in {NEW, PERSON} for key in gone):
                assert not gone, f"{name}: it removed {old}, and {gone} are not there"
        if is_marked is False:
            left = [key for key in carried if key in new_after]
            assert old_after != old or not (left or old), f"{name}: it is forgotten, and {[*left, *old]} are there"
        self._remember(way, change)

    def _taken_back(self, way: Way, change: Change) -> None:
        """What a rollback did to a unit in one commit."""
        name, old, new, old_after, new_after, _ = change
        base = self.bases.get((way.new.__name__, name))
        carried = {} if base is None else dict(base.new)
        if old_after != old:
            assert old == ({} if base is None else base.old), f"{name}: it wrote over {old}, which was not carried over"
            made = self._made(way, name, old_after)
            assert made == {key: value for key, value in new.items() if key in {*made, *carried}}, (
                f"{name}: it took {new} back as {old_after}, which becomes {made}"
            )
        if change.changed and not self.takes_loss:
            left = {key: value for key, value in new_after.items() if key in change.changed}
            assert not left, f"{name}: it changed {new} to {new_after}"
            stood = {key: value for key, value in new.items() if key in {*change.changed, *carried}}
            assert stood == carried, f"{name}: it removed {stood}, and had carried over {carried}"
        self._remember(way, change)

    def _remember(self, way: Way, change: Change) -> None:
        unit = way.new.__name__, change.name
        if change.is_marked:
            base = self.bases.get(unit)
            made = self._made(way, change.name, change.old_after)
            known = {*made, *({} if base is None else base.new)}
            standing = {key: value for key, value in change.new_after.items() if key in known}
            assert standing == made, f"{change.name}: it is marked, and {standing} stands where {made} should"
            self.bases[unit] = Base(change.old_after, made)
        elif change.is_marked is False:
            self.bases.pop(unit, None)

    # ---- records that stay where they are --------------------------------------------------------------------------------

    def _converted(self, way: Way, event: Event, stored: Stored, writers: Mapping[bytes, str]) -> None:
        name = self._name_of(way, event.key)
        before = stored.get(event.key)
        assert name is not None
        assert before is not None, f"{event.key!r}: it wrote a record that was not there"
        assert writers[event.key] in {OLD, RESTORE}, (
            f"{event.key!r}: it converted what {writers[event.key]} had written"
        )
        assert self.stored.get(event.key) == self._made(way, name, {event.key: before})[event.key], (
            f"{event.key!r}: it made {self.stored.get(event.key)} of {before}"
        )

    # ---- in the end -----------------------------------------------------------------------------------------------

    def finish(self, label: str) -> None:
        """Nothing is left of the old layout, and nothing is half done."""
        way = self.ways[label]
        if way.is_in_place:
            left = [key for key in self.stored if self._name_of(way, key) and self.writers[key] in {OLD, RESTORE}]
        else:
            left = [key for key in self.stored if any(raw_name(key, place, 2) for place in way.sources)]
        assert not left, f"{left} are left as the old layout had them"
        assert not self.bases, f"{sorted(self.bases)} are marked in the end"

    # ---- sides ----------------------------------------------------------------------------------------------------

    def _name_of(self, way: Way, raw_key: bytes) -> str | None:
        for place in way.sources:
            if name := raw_name(raw_key, place, 2):
                return name
        return raw_name(raw_key, way.target, way.name_at)

    def _sides(self, way: Way, name: str) -> tuple[dict[bytes, Any], dict[bytes, Any]]:
        old = {
            key: value for key, value in self.stored.items() if any(raw_name(key, p, 2) == name for p in way.sources)
        }
        new = {key: value for key, value in self.stored.items() if raw_name(key, way.target, way.name_at) == name}
        return old, new

    def _made(self, way: Way, name: str, old: Mapping[bytes, Any]) -> dict[bytes, Any]:
        records = {key.decode().split("/")[2]: value["record"] for key, value in old.items()}
        lease = next((old[key]["lease"] for key in sorted(old)), 0)
        return {key: {"record": record, "lease": lease} for key, record in way.made(name, records).items()}
