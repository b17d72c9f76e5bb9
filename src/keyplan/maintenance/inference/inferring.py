"""A layout for a store that somebody else's program fills: read twice, in bounded memory, with a reason for each decision.

First what the keys are made of, then the keys with their values. Nothing is written. Text keys become a tree (key_tree.py,
decisions.py, text_keys.py), binary keys templates of a sample (binary_keys.py); assembly.py makes a layout of what was found.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from keyplan.engine import Entry, KeyRange, Snapshot
from keyplan.layout import (
    CompiledKeys,
    Finding,
    KeyShape,
    LayoutSpec,
    Template,
    bind_layout,
    collisions_of,
    compile_keys,
    layout_of_description,
)
from keyplan.maintenance.inference.assembly import NamedTable, assembled, description_of, root_of
from keyplan.maintenance.inference.binary_keys import binary_templates
from keyplan.maintenance.inference.decisions import Confidence
from keyplan.maintenance.inference.found import Found, Note
from keyplan.maintenance.inference.key_tree import KeyTree
from keyplan.maintenance.inference.python_source import python_source
from keyplan.maintenance.inference.record_types import RecordTypes
from keyplan.maintenance.inference.stored_values import ValueProfile
from keyplan.maintenance.inference.suggestions import Suggestion, suggestions
from keyplan.maintenance.inference.survey import PROGRESS_EVERY_KEYS, Scanned, Survey, is_own, is_text_key, take_survey
from keyplan.maintenance.inference.text_keys import TextTemplates

__all__ = ["Inference", "infer", "infer_keys"]

_LEFT_OUT_SHOWN = 5

Progress = Callable[[int], None]


@dataclass(frozen=True)
class Inference:
    """An inferred layout, and what it rests on.

    `description` is what `describe` gives and `--layout FILE.json` reads. `notes` are the decisions with their evidence, in the
    order of keys; `suggestions` what tables may be beyond tables, confirmed in the store and not declared. `keys` were looked
    at, `table_keys` in each table, keyplan's `own` not counted; `left_out` of them no template spells, `left_out_keys` are the
    first. `errors` are lint findings of the rules L1 and L2, which a layout must not have: then the evidence does not part two
    kinds of keys.
    """

    description: dict[str, Any]
    python: str
    notes: tuple[Note, ...]
    suggestions: tuple[Suggestion, ...]
    keys: int
    table_keys: dict[str, int]
    own: int
    left_out: int
    left_out_keys: tuple[bytes, ...]
    errors: tuple[Finding, ...]

    @cached_property
    def spec(self) -> LayoutSpec:
        """The layout as data."""
        return layout_of_description(self.description)

    @property
    def doubts(self) -> tuple[Note, ...]:
        """The decisions that the evidence would bear otherwise as well."""
        return tuple(note for note in self.notes if note.confidence is Confidence.LOW)


@dataclass(slots=True)
class _Gathered:
    """What was found, before it is a layout."""

    found: list[Found]
    notes: list[Note]
    left_out: int = 0
    left_out_keys: list[bytes] = field(default_factory=list)

    def leave_out(self, key: bytes) -> None:
        self.left_out += 1
        if len(self.left_out_keys) < _LEFT_OUT_SHOWN:
            self.left_out_keys.append(key)


def infer(
    snapshot: Snapshot, *, prefix: bytes = b"", name: str = "Inferred", progress: Progress | None = None
) -> Inference:
    """Infer a layout from the keys of a snapshot, or of those below a prefix.

    The keys are read twice, the values once, and a few hundred are looked up at the end. Memory is bounded, however large the
    store: some 20,000 places of text keys with the fields of their JSON values (typically a few megabytes, at the worst some
    hundred), or 4,096 binary keys. The same store gives the same layout. `name` is that of the layout's class. `progress` is
    told how many keys were read, of both times together.

    What two kinds of keys are is evidence, not knowledge: see `notes`, and audit the layout before it is trusted.
    """
    return _inferred(snapshot, prefix, name, progress, look_up=snapshot)


def infer_keys(keys: Iterable[bytes], *, name: str = "Inferred") -> Inference:
    """Infer a layout from keys alone: values are taken as bytes, and nothing can be looked up. The keys are held in memory."""
    return _inferred(_KeysAlone(sorted(set(keys))), b"", name, None, look_up=None)


def _inferred(
    source: Scanned, prefix: bytes, name: str, progress: Progress | None, look_up: Snapshot | None
) -> Inference:
    survey = take_survey(source, prefix, progress)
    is_text = survey.is_text
    gather = _gathered_text if is_text else _gathered_binary
    gathered = gather(_entries(source, prefix, survey, progress), survey, has_values=look_up is not None)
    records = RecordTypes()
    root = root_of(gathered.found, survey.separator, is_text=is_text) if gathered.found else b""
    tables = assembled(gathered.found, root, is_text=is_text, records=records)
    note = f"Inferred from {survey.keys} keys."
    plain = description_of(name, root, tables, {}, is_text=is_text, note=note)
    spec = layout_of_description(plain)
    hints = suggestions(bind_layout(spec), tables, look_up) if look_up is not None else []
    table_notes = {hint.table: str(hint) for hint in hints}
    return Inference(
        description_of(name, root, tables, table_notes, is_text=is_text, note=note),
        python_source(name, root, tables, records.classes, table_notes, note),
        (*_overview(survey), *gathered.notes, *_table_notes(tables)),
        tuple(hints),
        survey.keys,
        {table.name: table.found.values.count for table in tables},
        survey.own,
        gathered.left_out,
        tuple(gathered.left_out_keys),
        collisions_of(spec),
    )


def _entries(source: Scanned, prefix: bytes, survey: Survey, progress: Progress | None) -> Iterator[Entry]:
    """The entries for the second look, keyplan's own left out."""
    number = 0
    for number, entry in enumerate(source.scan(KeyRange.of_prefix(prefix)), start=1):
        if progress is not None and number % PROGRESS_EVERY_KEYS == 0:
            progress(survey.keys + survey.own + number)
        if not is_own(entry.key, prefix):
            yield entry
    if progress is not None:
        progress(survey.keys + survey.own + number)


def _gathered_text(entries: Iterable[Entry], survey: Survey, *, has_values: bool) -> _Gathered:
    tree = KeyTree(survey.separator, has_values=has_values)
    gathered = _Gathered([], [])
    for entry in entries:
        if is_text_key(entry.key):
            tree.add(entry)
        else:
            gathered.leave_out(entry.key)
    if survey.text_keys:
        templates = TextTemplates(survey.separator)
        gathered.found = templates.found(tree.finish())
        gathered.notes = templates.notes
    return gathered


def _gathered_binary(entries: Iterable[Entry], survey: Survey, *, has_values: bool) -> _Gathered:
    notes: list[Note] = []
    sample = sorted({*survey.binary, *survey.text})
    found = [Found(parts, ValueProfile(), 0) for parts in binary_templates(sample, notes)]
    gathered = _Gathered(found, notes)
    compiled = [_compiled(one) for one in found]
    for entry in entries:
        for one, keys in zip(found, compiled, strict=True):
            if keys.decode(entry.key) is not None:
                one.keys += 1
                one.values.add(entry.key, entry.value if has_values else None, entry.lease)
                break
        else:
            gathered.leave_out(entry.key)
    gathered.found = [one for one in found if one.keys]
    return gathered


def _compiled(found: Found) -> CompiledKeys:
    shape = KeyShape("tuple", is_scalar=False, make=lambda *fields: fields)
    return compile_keys(Template(found.parts, is_text=False), shape)


def _overview(survey: Survey) -> Iterator[Note]:
    if not survey.keys:
        yield Note("(all keys)", "nothing", "there are no keys", Confidence.LOW)
        return
    text, keys = survey.text_keys, survey.keys
    if not survey.is_text:
        sureness = Confidence.HIGH if not text else Confidence.FAIR
        yield Note("(all keys)", "binary keys", f"{keys - text} of {keys} are no text", sureness)
        return
    yield Note("(all keys)", "text keys", f"{text} of {keys} are", Confidence.HIGH if text == keys else Confidence.FAIR)
    number = survey.with_separator[survey.separator]
    sureness = Confidence.HIGH if number == text else Confidence.FAIR if number else Confidence.LOW
    yield Note(
        "(all keys)", f"segments divided by {survey.separator!r}", f"{number} of {text} text keys have it", sureness
    )


def _table_notes(tables: Sequence[NamedTable]) -> Iterator[Note]:
    for table in tables:
        yield from table.found.notes


class _KeysAlone:
    """Keys without a store, read like a snapshot of one."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        self._keys = keys

    def scan(self, key_range: KeyRange, *, keys_only: bool = False) -> Iterator[Entry]:
        del keys_only
        return (Entry(key, b"", 0, 0, 0, 0) for key in self._keys if key in key_range)
