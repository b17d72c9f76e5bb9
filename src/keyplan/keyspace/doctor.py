"""The doctor: reads a registry as it stands, whatever is in it, says what is wrong, and puts right what can be."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Final, NamedTuple, Self

from keyplan.engine import Engine, KeyRange, Snapshot
from keyplan.errors import CorruptionError, InvalidKeyError
from keyplan.keyspace.acts import Act, ActRunner, codec_of
from keyplan.keyspace.audit import verified
from keyplan.keyspace.layout import KeySpaceRegistry
from keyplan.keyspace.prefixes import prefix_range
from keyplan.keyspace.records import AuditEntry, MarkKind
from keyplan.keyspace.soundness import Fault, Fix, Tables, defects_of
from keyplan.keyspace.unmanaged import Unmanaged, unmanaged

__all__ = ["Diagnosis", "diagnose", "repair"]

_FIXES_AT_ONCE_MAX: Final = 40
"""Why: each may be guarded and written, and an engine may take 128 operations."""


class Diagnosis(NamedTuple):
    """What the doctor found: faults of the registry, and data of nobody, which is no fault."""

    faults: list[Fault]
    unmanaged: list[Unmanaged]
    keyspaces: int
    audit_entries: int

    @property
    def is_sound(self) -> bool:
        """True when the registry has no fault."""
        return not self.faults

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Return the diagnosis that a JSON object describes. Raises KeyError, ValueError."""
        faults = [Fault.from_json(fault) for fault in value["faults"]]
        found = [Unmanaged.from_json(one) for one in value["unmanaged"]]
        return cls(faults, found, int(value["keyspaces"]), int(value["audit_entries"]))

    def to_json(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return {
            "is_sound": self.is_sound,
            "keyspaces": self.keyspaces,
            "audit_entries": self.audit_entries,
            "faults": [fault.to_json() for fault in self.faults],
            "unmanaged": [found.to_json() for found in self.unmanaged],
        }


def diagnose(engine: Engine, *, with_unmanaged: bool) -> Diagnosis:
    """Examine the whole registry in one state; and, if wanted, find the data that is nobody's."""
    with engine.snapshot() as snapshot:
        tables = _read(snapshot)
    found = list(unmanaged(engine)) if with_unmanaged else []
    entries = 0 if tables.audit is None else tables.audit.entries
    faults = [defect.fault for defect in defects_of(tables)]
    return Diagnosis(faults, found, len(tables.records), entries)


def repair(acts: ActRunner) -> list[Fault]:
    """Put right what can be, in commits with an entry in the audit log each; return what was wrong and is right now.

    What is right is taken from the records of the key spaces. Nothing outside the registry is touched.
    """
    repaired: list[Fault] = []
    while True:
        done = acts.run(partial(_repair_some, repaired=tuple(repaired)))
        if not done:
            return repaired
        repaired += done


def _repair_some(act: Act, repaired: tuple[Fault, ...]) -> list[Fault]:
    done: list[Fault] = []
    written: set[tuple[str, object]] = set()
    for fault, fixes in defects_of(_read(act.state)):
        if fault in repaired:
            continue  # Why: it came back, so that its repair contradicts another; once is enough to end.
        places = {(fix.table, fix.key) for fix in fixes}
        if not places or places & written or len(written) + len(places) > _FIXES_AT_ONCE_MAX:
            continue
        written |= places
        for fix in fixes:
            _carry_out(act, fix)
        done.append(fault)
    if done:
        act.note("repair", "", {"faults": [f"{fault.kind} {fault.name}: {fault.problem}" for fault in done]})
    return done


def _carry_out(act: Act, fix: Fix) -> None:
    table = act.registry.view(fix.table)
    if fix.value is None:
        table.delete(fix.key)
    else:
        table.put(fix.key, fix.value)


def _read(snapshot: Snapshot) -> Tables:
    """Read every table of the registry; what does not decode is noted and left out."""
    unreadable: list[str] = []
    content = {name: dict(_rows(snapshot, name, unreadable)) for name in KeySpaceRegistry.spec.tables}
    header = next(iter(content["header"].values()), None)
    audit: dict[int, AuditEntry] = content["audit"]
    marks = content["marks"]
    tables = Tables(
        codec=codec_of(header),
        header=header,
        records=content["records"],
        holders=content["holders"],
        fences=content["fences"],
        history=content["history"],
        marks=marks,
        deletions=content["deletions"],
        order=content["order"],
        usage=set(content["usage"]),
        quotas=set(content["quotas"]),
        unreadable=unreadable,
        audit=verified(audit.items()),
    )
    for prefix, mark in marks.items():
        if mark.kind is MarkKind.COOLING_DOWN:
            for entry in snapshot.scan(prefix_range(prefix), limit=1, keys_only=True):
                tables.stray[prefix] = entry.key
    return tables


def _rows(snapshot: Snapshot, name: str, unreadable: list[str]) -> Iterator[tuple[Any, Any]]:
    table = KeySpaceRegistry.bound().tables[name]
    start, end = table.keys.range(())
    for entry in snapshot.scan(KeyRange(start, end)):
        try:
            yield table.keys.decode(entry.key), table.form.decode(entry.value)
        except (CorruptionError, InvalidKeyError) as error:
            unreadable.append(f"the entry {entry.key.hex()} of {name}: {error.summary}")
