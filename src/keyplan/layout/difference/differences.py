"""All changes between two layouts, in the order of their codes within each item: what `keyplan diff` prints."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from keyplan.layout.declare import Layout
from keyplan.layout.describe import layout_of_description
from keyplan.layout.difference.change import Impact, LayoutChange
from keyplan.layout.difference.indexes import index_changes
from keyplan.layout.difference.intrusions import intrusions
from keyplan.layout.difference.key_fields import key_field_change
from keyplan.layout.difference.keys import KeyComparison, KeyRelation, compare_keys
from keyplan.layout.difference.likeness import is_likely_renamed
from keyplan.layout.difference.pairing import LayoutPairs, field_labels, pair_items, plain_shape
from keyplan.layout.difference.values import value_changes
from keyplan.layout.meaning import shown_key
from keyplan.layout.rules.decision import shortest_key
from keyplan.layout.rules.subject import bound_root
from keyplan.layout.spec import CounterSpec, LayoutSpec, TableSpec
from keyplan.layout.template import Template

__all__ = ["differences", "layout_spec_of"]

_MOVE: Final = (
    "`keyplan migrate` copies the records, keeps the copies up to date until programs are switched, and cleans up"
)
_NOTHING: Final = "nothing to do"

AnyLayout = type[Layout[Any]] | LayoutSpec | Mapping[str, Any]


def layout_spec_of(layout: AnyLayout) -> LayoutSpec:
    """Return the layout of a class, of a description (`describe`), or as it is. Raises what `layout_of_description` raises."""
    if isinstance(layout, LayoutSpec):
        return layout
    if isinstance(layout, Mapping):
        return layout_of_description(layout)
    return layout.spec


def differences(
    old: AnyLayout, new: AnyLayout, *, renames: Mapping[str, str] | None = None, drops: Collection[str] = ()
) -> Sequence[LayoutChange]:
    """Return every change that decides bytes, or what programs may do while both layouts are in use.

    See docs/reference/differences.md. `renames`: old names with new ones, for items that nobody can tell are the same. `drops`:
    tables and counters whose entries shall be removed, and fields (`table.field`) whose values shall be lost. The others are
    paired as `pair_items` says. Roots are taken with their parameters' defaults (the shortest value where there is none).
    Notes, waivers and names of record classes are no changes.

    Keys are compared by automata, as the lint does it: a witness is a verified key, and what stayed open is said to be. Raises
    UnknownNameError, InvalidInputError.
    """
    pairs = pair_items(layout_spec_of(old), layout_spec_of(new), renames)
    roots = bound_root(pairs.old), bound_root(pairs.new)
    changes = [
        *_layout_changes(pairs, roots),
        *_names(pairs),
        *_comings_and_goings(pairs, drops, roots[0]),
        *(change for pair in pairs.tables for change in _table_changes(*pair, roots, drops)),
        *index_changes(pairs),
        *_counter_changes(pairs),
        *intrusions(pairs, roots),
    ]
    return tuple(sorted(changes, key=lambda change: int(change.code[1:])))


def _layout_changes(pairs: LayoutPairs, roots: tuple[Template, Template]) -> Iterator[LayoutChange]:
    old, new = pairs.old, pairs.new
    if (old.name, old.version) != (new.name, new.version):
        message = f"{old.name} version {old.version} is {new.name} version {new.version}"
        yield LayoutChange("E1", "", Impact.COMPATIBLE, message, _NOTHING)
    if old.has_secrets and new.has_secrets and old.sealed_as != new.sealed_as:
        message = f"its secrets are sealed as {new.sealed_as}'s, no longer as {old.sealed_as}'s"
        advice = (
            f"declare sealed_as={old.sealed_as!r}, or leave none sealed: `keyplan secrets open` with the old layout"
        )
        yield LayoutChange("E22", "", Impact.BREAKING, message, advice)
    before, after = roots[0].literal_bytes, roots[1].literal_bytes
    if old.is_text != new.is_text:
        message = "keys are text" if new.is_text else "keys are binary"
        advice = "scalar keys and values are spelled otherwise: declare new tables, and write the records anew"
        yield LayoutChange("E2", "", Impact.BREAKING, message, advice)
    elif before != after:
        message = f"the root is {shown_key(after) or 'empty'}, no longer {shown_key(before) or 'empty'}"
        yield LayoutChange("E2", "", Impact.REWRITE, message, _MOVE, witness=before, second=after)
    elif plain_shape(old.root) != plain_shape(new.root):
        message = f"the root's parameters are others: {new.root.plain}, no longer {old.root.plain}"
        advice = (
            "nothing to do for the defaults; programs that give a parameter must give one that spells the same root"
        )
        yield LayoutChange("E2", "", Impact.COMPATIBLE, message, advice)


def _names(pairs: LayoutPairs) -> Iterator[LayoutChange]:
    for new_name, old_name in pairs.names.items():
        if new_name != old_name:
            message = f"it was called {old_name}"
            is_index = new_name in pairs.new.indexes
            advice = "nothing to do, provided that the index is readable" if is_index else _NOTHING
            yield LayoutChange("E3", new_name, Impact.COMPATIBLE, message, advice)


def _comings_and_goings(pairs: LayoutPairs, drops: Collection[str], root: Template) -> Iterator[LayoutChange]:
    for item in pairs.added:
        if isinstance(item, TableSpec):
            yield LayoutChange("E4", item.name, Impact.COMPATIBLE, f"table {item.template.plain} is new", _NOTHING)
        elif isinstance(item, CounterSpec):
            message = f"counter {item.template.plain} is new, from {item.start}"
            yield LayoutChange("E16", item.name, Impact.COMPATIBLE, message, _NOTHING)
    for item in pairs.gone:
        if not isinstance(item, TableSpec | CounterSpec):
            continue
        code, kind = ("E5", "table") if isinstance(item, TableSpec) else ("E16", "counter")
        message = f"{kind} {item.template.plain} is gone: no program of the new layout reads what is stored of it"
        if item.name in drops:
            advice = "upgrade all programs that read it; `keyplan migrate finish` removes what is stored"
            yield LayoutChange(code, item.name, Impact.READERS_FIRST, message, advice)
        else:
            likely = tuple(other.name for other in pairs.added if is_likely_renamed(item, other))
            asked = "".join(f"renamed to {name}? Then --rename {item.name}={name}; " for name in likely)
            known = "" if likely else f"say what it is called now (--rename {item.name}=NEW), or "
            advice = f"{asked}{known}{'else ' if likely else ''}say that it shall be removed (--drop {item.name})"
            yield LayoutChange(
                code,
                item.name,
                Impact.BREAKING,
                message,
                advice,
                witness=shortest_key(item.template.prefixed(root)).key,
                renamed_to=likely,
            )


def _sealing_changes(old: TableSpec, new: TableSpec, roots: tuple[Template, Template]) -> Iterator[LayoutChange]:
    """Changes by which what is sealed would not open where it stands: its table's name is sealed with it."""
    if not (old.is_sealed and old.form.secrets and new.form.secrets):
        return
    way = "leave none sealed: `keyplan secrets open` with the old layout"
    if not new.is_sealed:
        yield LayoutChange("E22", new.name, Impact.BREAKING, "its secrets are never sealed any more", way)
    elif old.name != new.name and _stays(old, new, roots):
        message = f"its secrets are sealed as those of {new.name}, no longer of {old.name}"
        yield LayoutChange("E22", new.name, Impact.BREAKING, message, f"keep the name {old.name}, or {way}")


def _stays(old: TableSpec, new: TableSpec, roots: tuple[Template, Template]) -> bool:
    """Whether no record is copied: a migration that copies one refuses it where a secret in it is sealed."""
    relation = compare_keys(old.template.prefixed(roots[0]), new.template.prefixed(roots[1])).relation
    return relation in {KeyRelation.SAME, KeyRelation.WIDER, KeyRelation.NARROWER}


def _table_changes(
    old: TableSpec, new: TableSpec, roots: tuple[Template, Template], drops: Collection[str]
) -> Iterator[LayoutChange]:
    yield from _key_changes(old, new, roots)
    yield from value_changes(old, new, drops)
    yield from _sealing_changes(old, new, roots)
    if old.has_lease != new.has_lease:
        if new.has_lease:
            message = "records hang on leases"
            advice = "upgrade all writers; records from before stay until they are written again"
            yield LayoutChange("E15", new.name, Impact.WRITERS_FIRST, message, advice)
        else:
            message = "records hang on leases no longer"
            advice = "upgrade all writers; records from before end with their leases unless they are written again"
            yield LayoutChange("E15", new.name, Impact.WRITERS_FIRST, message, advice)
    if old.place != new.place:
        message = f"records are placed by {', '.join(new.place) or 'nothing'}, no longer by {', '.join(old.place) or 'nothing'}"
        advice = "one database is not concerned; a ring looks for the records elsewhere: copy the store into a new ring"
        yield LayoutChange("E17", new.name, Impact.BREAKING, message, advice)


def _key_changes(old: TableSpec, new: TableSpec, roots: tuple[Template, Template]) -> Iterator[LayoutChange]:
    found = compare_keys(old.template.prefixed(roots[0]), new.template.prefixed(roots[1]))
    if found.relation is KeyRelation.MOVED and roots[0] != roots[1]:
        # Why: that the root is another one is one change, said once.
        below = compare_keys(old.template, new.template).relation
        found = KeyComparison(KeyRelation.SAME) if below is KeyRelation.SAME else found
    name, keys = new.name, (found.witness, found.second)
    respelled = f"its keys are {new.template.plain}, no longer {old.template.plain}"
    if old.template.plain == new.template.plain:
        respelled = f"its keys are {new.template.source}, no longer {old.template.source}"
    labels = field_labels(old.template, new.template) or {}
    # Why it is said: a field of other values in the place of one that went is taken for that one under another name.
    respelled += "".join(f"; {own} has the values of {other}" for own, other in labels.items() if own != other)
    match found.relation:
        case KeyRelation.SAME:
            if old.template.field_names != new.template.field_names or old.key.is_scalar != new.key.is_scalar:
                message = f"key fields are {_listed(new)}, no longer {_listed(old)}; the bytes are the same"
                yield LayoutChange("E7", name, Impact.COMPATIBLE, message, _NOTHING)
            elif plain_shape(old.template) != plain_shape(new.template):
                message = f"its keys are {new.template.source}, no longer {old.template.source}; the bytes are the same"
                yield LayoutChange("E7", name, Impact.COMPATIBLE, message, _NOTHING)
        case KeyRelation.WIDER:
            advice = "upgrade all readers before one writer makes such a key"
            yield LayoutChange("E6", name, Impact.READERS_FIRST, f"{respelled}: more keys fit", advice, "", *keys)
        case KeyRelation.NARROWER:
            advice = "`keyplan migrate` goes on only when no stored record has such a key; rename or remove those first"
            yield LayoutChange("E6", name, Impact.BREAKING, f"{respelled}: some keys fit no more", advice, "", *keys)
        case KeyRelation.UNSPELLABLE:
            advice = "`keyplan migrate` goes on only when no stored record has such a key; rename or remove those first"
            message = f"{respelled}: some records have no key any more"
            yield LayoutChange("E6", name, Impact.BREAKING, message, advice, "", *keys)
        case KeyRelation.MISREAD:
            advice = "a record could be taken for another one: move to a template of which no key is an old one"
            message = f"{respelled}: one key means one record before and another one after"
            yield LayoutChange("E6", name, Impact.BREAKING, message, advice, "", *keys)
        case KeyRelation.OTHER_FIELDS:
            yield key_field_change(old, new, roots)
        case KeyRelation.MOVED:
            yield LayoutChange("E6", name, Impact.REWRITE, respelled, _MOVE, "", *keys)
        case KeyRelation.UNDECIDED:
            message = f"{respelled}; undecided whether every old key is a new one"
            yield LayoutChange("E6", name, Impact.REWRITE, message, _MOVE, "", *keys)


def _listed(table: TableSpec) -> str:
    return ", ".join(table.template.field_names) or "none"


def _counter_changes(pairs: LayoutPairs) -> Iterator[LayoutChange]:
    for old, new in pairs.counters:
        if plain_shape(old.template) != plain_shape(new.template):
            message = f"the counter stands at {new.template.plain}, no longer at {old.template.plain}"
            advice = (
                "stop the programs that draw numbers, and run `keyplan migrate switch`, which takes the number along"
            )
            yield LayoutChange("E16", new.name, Impact.REWRITE, message, advice)
        if old.start != new.start:
            message = f"it starts at {new.start}, no longer at {old.start}"
            advice = (
                "nothing to do" if new.start < old.start else "`keyplan check --repair` brings a lower number up to it"
            )
            yield LayoutChange("E16", new.name, Impact.COMPATIBLE, message, advice)
