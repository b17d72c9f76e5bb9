"""The doctor: reads a registry as it stands, whatever is in it, says what is wrong, and puts right what can be."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Final, NamedTuple, Self

from keyplan.engine import Engine, Snapshot
from keyplan.keyspace.audit import Acts, AuditVerdict, verified
from keyplan.keyspace.evidence import Evidence, evidence_of
from keyplan.keyspace.layout import KeySpaceRegistry
from keyplan.keyspace.prefixes import PREFIX_CODECS, PrefixCodec, prefix_range
from keyplan.keyspace.records import AuditEntry, Header, Mark, MarkKind, PrefixHolder
from keyplan.keyspace.rows import Row, has_entries, prefixes_held, rows_of, value_of
from keyplan.keyspace.soundness import Fault, Tables, defects_of
from keyplan.keyspace.transactions import ONLY, RegistryTransaction, RegistryTransactions, codec_of
from keyplan.keyspace.unmanaged_keys import Unmanaged, gaps, unmanaged_in

__all__ = ["Diagnosis", "diagnose", "repair", "verified_in"]

_NOT_KEPT: Final = frozenset({"sessions", "sweeper", "leases"})
"""They hang on leases: a damaged one goes by itself."""

_COMPARED: Final = (
    "records",
    "holders",
    "fences",
    "history",
    "marks",
    "deletions",
    "order",
    "usage",
    "quotas",
    "floors",
)

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


def diagnose(engine: Engine, *, with_unmanaged: bool, now: str) -> Diagnosis:
    """Examine the whole registry in one state; and, if wanted, find in the same state the data that is nobody's."""
    with engine.snapshot() as snapshot:
        tables = _read(snapshot, now)
        found = list(unmanaged_in(snapshot, tables.codec)) if with_unmanaged else []
    entries = 0 if tables.audit is None else tables.audit.entries
    faults = [defect.fault for defect in defects_of(tables)]
    return Diagnosis(faults, found, len(tables.records), entries)


def verified_in(snapshot: Snapshot) -> AuditVerdict:
    """Go through the audit log of a state."""
    head = value_of(snapshot, "audit_head", ONLY)
    if head is not None and head.value is None:
        verdict = verified(_log_rows(snapshot))
        problem = "the log's head cannot be read: the next act writes it anew"
        return verdict._replace(is_whole=False, broken_at=verdict.broken_at or verdict.entries, problem=problem)
    verdict = verified(_log_rows(snapshot), None if head is None else head.value)
    # Why: the act that makes a registry has the first entry, so that a registry without a log has lost it.
    return _reaching(verdict, 1) if has_entries(snapshot, "header", "records", "holders") else verdict


def _reaching(verdict: AuditVerdict, number: int) -> AuditVerdict:
    """Return the verdict on a log that is known to have had an entry of this number: its end may be cut with its head."""
    if not verdict.is_whole or verdict.entries >= number:
        return verdict
    problem = f"it is missing: the registry has something of act {number}"
    return verdict._replace(is_whole=False, broken_at=verdict.entries + 1, problem=problem)


def _last_turn(content: Mapping[str, Mapping[Any, Any]]) -> int:
    """Return the highest number of an act that two entries speak of: one alone may have been put there by anybody."""
    records, fences, order = content["records"], content["fences"], content["order"]
    turns = [
        record.sequence
        for name, record in records.items()
        if PrefixHolder(name, record.generation) == order.get(record.sequence)
    ]
    held = set(content["holders"].values())
    turns += [
        number
        for number, place in order.items()
        if place.name not in records
        and (place in held or getattr(fences.get(place.name), "generation", 0) == place.generation)
    ]
    return max(turns, default=0)


def _log_rows(snapshot: Snapshot) -> Iterator[tuple[int, AuditEntry | None]]:
    return ((row.key, row.value) for row in rows_of(snapshot, "audit") if row.key is not None)


def repair(transactions: RegistryTransactions) -> list[Fault]:
    """Put right what can be, in commits with an entry in the audit log each; return what was wrong and is right now.

    What is right is taken from the records of the key spaces and from the log, never from an entry that was not read. Nothing
    outside the registry is touched.
    """
    repaired: list[Fault] = []
    while True:
        done = transactions.run(partial(_repair_some, repaired=tuple(repaired)))
        if not done:
            return repaired
        repaired += done


def _repair_some(transaction: RegistryTransaction, repaired: tuple[Fault, ...]) -> list[Fault]:
    done: list[Fault] = []
    written: set[tuple[str, object]] = set()
    for fault, fixes in defects_of(_read(transaction.state, transaction.at)):
        if fault in repaired:
            continue  # Why: it came back, so that its repair contradicts another; once is enough to end.
        places = {(fix.table, fix.key) for fix in fixes}
        if not places or places & written or len(written) + len(places) > _FIXES_AT_ONCE_MAX:
            continue
        written |= places
        for fix in fixes:
            transaction.write(fix.table, fix.key, fix.value)
        done.append(fault)
    if done:
        transaction.note(Acts.REPAIR, {"faults": [f"{fault.kind} {fault.name}: {fault.problem}" for fault in done]})
    return done


def _read(snapshot: Snapshot, now: str) -> Tables:
    """Read every table of the registry; what cannot be read is noted as that."""
    strange: dict[bytes, str] = {}
    unread: dict[str, dict[Any, str]] = {}
    content: dict[str, dict[Any, Any]] = {}
    for name in KeySpaceRegistry.spec.tables:
        if name in _NOT_KEPT:
            continue
        content[name], unread[name] = {}, {}
        for row in rows_of(snapshot, name):
            problem = row.problem or _contradiction(name, row)
            if row.key is None:
                strange[row.raw_key] = f"the entry {row.raw_key.hex()} of {name}: {problem}"
            elif problem:
                unread[name][row.key] = problem
            else:
                content[name][row.key] = row.value
    verdict = _reaching(verified_in(snapshot), _last_turn(content))
    evidence = evidence_of(content["audit"].items(), is_whole=verdict.is_whole)
    header: Header | None = content["header"].get(ONLY)
    tables = Tables(
        now=now,
        codec=_codec(header, evidence, has_header=header is not None or ONLY in unread["header"]),
        evidence=evidence,
        header=header,
        configuration=content["configuration"].get(ONLY),
        audit=verdict,
        unread=unread,
        strange=strange,
        **{name: content[name] for name in _COMPARED},
    )
    tables.stray = dict(_stray(snapshot, tables.marks))
    return tables


def _contradiction(table: str, row: Row) -> str:
    """Say what makes an entry that decodes as little worth as one that does not."""
    if table == "records" and row.value.name != row.key:
        return f"it is the record of {row.value.name!r}"
    if table == "history" and row.value.name != row.key.name:
        return f"it is the record of {row.value.name!r}"
    if table == "header" and row.value.prefix_codec not in PREFIX_CODECS:
        return f"it names the prefix code {row.value.prefix_codec!r}"
    return ""


def _codec(header: Header | None, evidence: Evidence, *, has_header: bool) -> PrefixCodec | None:
    """Return the prefix code; None where a header was lost and the log does not tell it: then nothing rests on one."""
    if header is not None:
        return codec_of(header)
    if evidence.is_whole and evidence.header is not None and evidence.header.prefix_codec in PREFIX_CODECS:
        return codec_of(evidence.header)
    return None if has_header or evidence.lives else codec_of(None)


def _stray(snapshot: Snapshot, marks: Mapping[bytes, Mark]) -> Iterator[tuple[bytes, bytes]]:
    """Yield prefixes that were freed, with the first key below each that is in no key space."""
    held = [prefix_range(prefix) for prefix in prefixes_held(snapshot)]
    for prefix, mark in marks.items():
        if mark.kind is not MarkKind.COOLING_DOWN:
            continue
        for gap in gaps(held, prefix_range(prefix)):
            first = next(iter(snapshot.scan(gap, limit=1, keys_only=True)), None)
            if first is not None:
                yield prefix, first.key
                break
