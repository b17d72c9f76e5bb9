"""What a layout may declare beyond tables: tables that look like indexes of others, or like counters. Said, never declared.

A value or the end of a key that names a record elsewhere is looked up: what the store does not confirm is not suggested.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from keyplan.engine import Snapshot
from keyplan.errors import RecordError
from keyplan.layout import BoundLayout, BoundTable, Literal
from keyplan.maintenance.inference.assembly import NamedTable

__all__ = ["Suggestion", "suggestions"]

_SAMPLED_MIN: Final = 2
"""Why: one key that stands in one value may do so by chance."""

_FOUND_SHARE_MIN: Final = 0.9
"""Why: some entries may dangle in a store whose program keeps its indexes by hand."""


@dataclass(frozen=True, slots=True)
class Suggestion:
    """That a table may be something else: `kind` is unique, index or counter, `of` the table that it would point at."""

    table: str
    kind: str
    of: str | None
    evidence: str

    def __str__(self) -> str:
        return f"{_WORDS[self.kind].format(of=self.of)}: {self.evidence}"


_WORDS: Final = {
    "counter": "may be a counter",
    "index": "may be an index of {of}",
    "unique": "may be a unique index of {of}, or refer to it",
}


@dataclass(frozen=True, slots=True)
class _Candidate:
    """What a table may be. `pointed` are the keys that its sampled entries would point at, `own` their fields' spellings."""

    table: str
    kind: str
    of: str
    pointed: tuple[bytes, ...]
    own: tuple[tuple[bytes, ...], ...]
    evidence: str


def suggestions(bound: BoundLayout, tables: Sequence[NamedTable], snapshot: Snapshot) -> list[Suggestion]:
    """Return what tables of a layout may be, for the sampled entries that the snapshot confirms."""
    counters = [
        Suggestion(table.name, "counter", None, "one key, whose value is a number")
        for table in tables
        if not table.found.fields and table.found.values.main_kind == "decimal"
    ]
    candidates = [candidate for table in tables for candidate in _candidates(bound, table, tables)]
    asked = sorted({raw_key for candidate in candidates for raw_key in candidate.pointed})
    there = {entry.key: entry.value for entry in snapshot.get_many(asked) if entry is not None} if asked else {}
    best: dict[str, tuple[tuple[float, float, int, int], Suggestion]] = {}
    for candidate in candidates:
        found = [raw_key in there for raw_key in candidate.pointed]
        share = found.count(True) / len(found)
        if share < _FOUND_SHARE_MIN:
            continue
        told = [
            all(word in there.get(raw_key, b"") for word in words)
            for raw_key, words in zip(candidate.pointed, candidate.own, strict=True)
        ]
        is_told = told.count(True) >= _FOUND_SHARE_MIN * len(told)
        evidence = candidate.evidence.format(found=found.count(True), sampled=len(found))
        evidence += ", whose values hold the other fields" if is_told else ""
        # Why: of tables that all have the keys, one whose records hold the fields of the entry calls for it; then the one with
        # most key fields is the most telling, then that with fewest literals: `robots/{robot}` is the robot.
        template = bound.tables[candidate.of].keys.template
        merit = share, float(is_told), len(template.fields), -len(template.literal_bytes)
        if candidate.table not in best or best[candidate.table][0] < merit:
            best[candidate.table] = merit, Suggestion(candidate.table, candidate.kind, candidate.of, evidence)
    return counters + [suggestion for _, suggestion in best.values()]


def _candidates(bound: BoundLayout, table: NamedTable, tables: Sequence[NamedTable]) -> Iterator[_Candidate]:
    sample = table.found.values.sample.items()
    if len(sample) < _SAMPLED_MIN or not table.found.fields:
        return
    kind = table.found.values.main_kind
    for other in tables:
        if other is table or not other.found.fields or other.found.values.main_kind == "empty":
            continue
        own, target = bound.tables[table.name], bound.tables[other.name]
        if kind == "empty":
            yield from _by_key(own, target, sample)
        elif kind in ("uuid", "raw_uuid", "decimal", "text", "bytes"):
            yield from _by_value(bound.root, own, target, sample)


def _by_value(
    root: bytes, own: BoundTable, target: BoundTable, sample: Sequence[tuple[bytes, bytes]]
) -> Iterator[_Candidate]:
    """Values that hold the key of another table: its one field, or all of it below the root."""
    if target.spec.key.is_scalar:
        start, last = target.keys.prefix(()), target.keys.template.parts[-1]
        end = last.raw if isinstance(last, Literal) else b""
        pointed = [start + value + end for _, value in sample]
    else:
        pointed = [root + value for _, value in sample]
    if all(target.keys.decode(raw_key) is not None for raw_key in pointed):
        words = tuple(_words(own, raw_key) for raw_key, _ in sample)
        evidence = f"the values of {{found}} of {{sampled}} sampled keys are keys of {target.name}"
        yield _Candidate(own.name, "unique", target.name, tuple(pointed), words, evidence)


def _by_key(own: BoundTable, target: BoundTable, sample: Sequence[tuple[bytes, bytes]]) -> Iterator[_Candidate]:
    """Keys without values whose last fields are the key of another table."""
    number = len(target.keys.template.fields)
    if len(own.keys.template.fields) <= number:
        return
    pointed = []
    for raw_key, _ in sample:
        fields: tuple[Any, ...] = tuple((own.keys.values(raw_key) or {}).values())[-number:]
        try:
            key = fields[0] if target.spec.key.is_scalar else target.spec.key.make(*fields)
            pointed.append(target.keys.encode(key))
        except (RecordError, IndexError):
            return
    words = tuple(_words(own, raw_key)[:-number] for raw_key, _ in sample)
    evidence = f"no values, and {{found}} of {{sampled}} sampled keys end in a key of {target.name}"
    yield _Candidate(own.name, "index", target.name, tuple(pointed), words, evidence)


def _words(table: BoundTable, raw_key: bytes) -> tuple[bytes, ...]:
    """How a key's fields are spelled."""
    values = table.keys.values(raw_key) or {}
    return tuple(
        field.element.encode(values[field.name]) for field in table.keys.template.fields if field.name in values
    )
