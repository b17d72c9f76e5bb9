"""What the audit log tells of the registry: the lives of every name, the switches, the header, quotas. Pure.

A damaged or lost entry is made again from here, and an entry that nothing else speaks of is shown to have never been: both only
while the log is whole.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from msgspec import structs

from keyplan.errors import KeyplanError
from keyplan.keyspace.audit import Acts
from keyplan.keyspace.configuration import checked_configuration
from keyplan.keyspace.prefixes import PrefixCodec, prefix_range
from keyplan.keyspace.records import (
    AuditEntry,
    Configuration,
    Deletion,
    Header,
    KeySpaceRange,
    KeySpaceRecord,
    Quota,
    State,
)

__all__ = ["Evidence", "Life", "evidence_of", "history_records"]

_FOUNDINGS: Final = frozenset({Acts.INIT.act, Acts.CREATE.act, Acts.RESTORE.act, Acts.CONFIGURE.act})
_BEGINNINGS: Final = frozenset({Acts.CREATE.act, Acts.RESTORE.act, Acts.OVERWRITE.act})


@dataclass
class Life:
    """One key space of a name, as the log tells of it."""

    number: int
    """Of the act that made it: its place in the list."""
    detail: dict[str, Any]
    state: State
    deleted_at: str | None = None
    completed_at: str | None = None
    deletion: tuple[int, Mapping[str, Any]] | None = None
    """The number and detail of the act that began its deletion."""
    quota: Quota = field(default_factory=Quota)

    def record(self, name: str, codec: PrefixCodec) -> KeySpaceRecord | None:
        """Return its record; None when the log does not have all of it."""
        try:
            prefix = bytes.fromhex(self.detail["prefix"])
            return KeySpaceRecord(
                id=name,
                name=name,
                application=str(self.detail["application"]),
                description=str(self.detail.get("description", "")),
                prefix=prefix.hex(),
                prefix_number=codec.number_of(prefix),
                range=KeySpaceRange(prefix.hex(), (prefix_range(prefix).end or b"").hex()),
                state=self.state,
                generation=int(self.detail["generation"]),
                created_at=str(self.detail["created_at"]),
                deleted_at=self.deleted_at,
                delete_completed_at=self.completed_at,
                sequence=self.number,
                prefix_epoch=int(self.detail.get("prefix_epoch", 1)),
            )
        except (KeyError, TypeError, ValueError):
            return None

    def rebuilt_deletion(self, record: KeySpaceRecord, now_text: str) -> Deletion | None:
        """Return the entry of its deletion, from its start and with the times that were given; None when they are not told.

        Begun, once the grace is over: then a key may be gone, and it is not taken back. It waits for clients nevertheless.
        """
        if self.deletion is None:
            return None
        number, detail = self.deletion
        try:
            return Deletion(
                cursor=record.prefix,
                number=number,
                not_before=detail["not_before"],
                clients_until=detail["clients_until"],
                is_begun=now_text >= detail["not_before"],
                previous_state=State(detail["previous_state"]),
            )
        except (KeyError, TypeError, ValueError):
            return None


@dataclass
class Evidence:
    """What a log tells. `is_whole`: no entry is missing, damaged or edited; otherwise nothing follows from what it lacks."""

    is_whole: bool
    lives: dict[str, list[Life]] = field(default_factory=dict)
    header: Header | None = None
    configuration: Configuration | None = None

    def last_life(self, name: str) -> Life | None:
        """Return the last key space of the name; None when the log is not whole, or knows none."""
        lives = self.lives.get(name) if self.is_whole else None
        return lives[-1] if lives else None

    def was_never(self, name: str) -> bool:
        """Tell whether it is certain that there never was a key space of the name."""
        return self.is_whole and name not in self.lives


def evidence_of(entries: Iterable[tuple[int, AuditEntry]], *, is_whole: bool) -> Evidence:
    """Read a log."""
    found = Evidence(is_whole)
    for number, entry in entries:
        if entry.act in _FOUNDINGS:
            _read_founding(found, entry)
        if entry.act == Acts.CONFIGURE.act:
            _read_switches(found, entry)
        elif entry.name:
            _read_life(found, number, entry)
    return found


def _read_founding(found: Evidence, entry: AuditEntry) -> None:
    made = entry.detail.get("founded")
    if isinstance(made, dict):
        try:
            found.header = msgspec.convert(made, Header)
            found.configuration = Configuration(skip_printable=bool(made.get("skip_printable")))
        except msgspec.ValidationError:
            return


def _read_switches(found: Evidence, entry: AuditEntry) -> None:
    changes = {name: value for name, value in entry.detail.items() if name != "founded"}
    if found.configuration is not None:
        try:
            found.configuration = checked_configuration(found.configuration, changes)
        except KeyplanError:
            found.configuration = None


def _read_life(found: Evidence, number: int, entry: AuditEntry) -> None:
    lives = found.lives.setdefault(entry.name, [])
    detail = entry.detail
    if entry.act in _BEGINNINGS:
        before = lives[-1].detail if lives and entry.act == Acts.OVERWRITE.act else {}
        if entry.act == Acts.OVERWRITE.act and lives:
            lives[-1] = _ended(lives[-1], entry.at)
        state = _first_state(entry)
        gone = (detail.get("deleted_at"), detail.get("delete_completed_at")) if state is State.DELETED else (None, None)
        lives.append(Life(number, {**before, **detail}, state, *gone))
        return
    life = lives[-1] if lives else None
    if life is None:
        return
    if entry.act == Acts.UPDATE.act and "description" in detail:
        life.detail = {**life.detail, "description": detail["description"]}
    elif entry.act == Acts.QUOTA.act:
        life.quota = Quota(keys=detail.get("keys"), bytes=detail.get("bytes"))
    elif detail.get("state") in set(State):
        life.state = State(detail["state"])
        if life.state is State.DELETING:
            life.deleted_at, life.deletion = entry.at, (number, detail)
        elif life.state is State.DELETED:
            life.completed_at = max(entry.at, life.deleted_at or "")
        else:
            life.deleted_at = life.deletion = None


def _first_state(entry: AuditEntry) -> State:
    if entry.act == Acts.CREATE.act:
        return State.ENABLED
    stated = entry.detail.get("state")
    return State(stated) if stated in set(State) else State.RESTORING


def _ended(life: Life, at: str) -> Life:
    """A key space that was overwritten: history."""
    return Life(life.number, life.detail, State.DELETED, at, at, None, life.quota)


def history_records(found: Evidence, name: str, codec: PrefixCodec) -> Iterator[KeySpaceRecord]:
    """Yield the records of those that had the name before the last one, as history keeps them."""
    for life in found.lives.get(name, [])[:-1]:
        record = life.record(name, codec)
        if record is not None:
            yield structs.replace(record, sequence=0)
