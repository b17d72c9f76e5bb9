"""What became of the indexes: those to build, those to leave behind, and those whose entries stay as they are."""

from collections.abc import Iterator
from typing import Any, Final

from keyplan.codec import ValueForm
from keyplan.layout.defaults import defaults_along, defaults_of_items
from keyplan.layout.difference.change import Impact, LayoutChange
from keyplan.layout.difference.keys import KeyRelation, compare_keys
from keyplan.layout.difference.pairing import LayoutPairs, plain_shape
from keyplan.layout.spec import IndexSpec, Origin, TableSpec
from keyplan.layout.template import Template

__all__ = ["has_same_entries", "index_changes"]

_BUILD: Final = "`keyplan migrate` refuses its readers; upgrade all writers; then `keyplan migrate switch` builds it"
_WITH_RECORDS: Final = "its entries are written with the records, as these are copied to their new keys"
_RIVALS: Final = "; where two records claim one entry, the build names both, and one of them is to be changed"
_SHARED: Final = (
    "programs of both layouts cannot look up by it at once: spell its keys otherwise, or stop them for the switch"
)


def index_changes(pairs: LayoutPairs) -> Iterator[LayoutChange]:
    """Changes E12 to E14. Templates are taken below one root."""
    for item in pairs.added:
        if isinstance(item, IndexSpec):
            kind = "unique index" if item.is_unique else "index"
            advice = (_WITH_RECORDS if _is_moved(item, pairs) else _BUILD) + _RIVALS * item.is_unique
            yield LayoutChange("E12", item.name, Impact.BUILD, f"{kind} of {item.of} is new", advice)
    for item in pairs.gone:
        if isinstance(item, IndexSpec):
            advice = "upgrade all programs that read by it, then those that write; `keyplan migrate finish` removes its entries"
            yield LayoutChange("E13", item.name, Impact.READERS_FIRST, f"index of {item.of} is gone", advice)
    empty = Template((), pairs.new.is_text)
    for old, new in pairs.indexes:
        reason = _other_entries(old, new, pairs, (empty, empty))
        if reason and not _is_moved(new, pairs):
            shared = " (readers of the old layout are refused as well; another name would spare them)"
            advice = f"{_BUILD}{shared * (old.name == new.name)}{_RIVALS * new.is_unique}"
            yield LayoutChange("E14", new.name, Impact.BUILD, reason, advice)
        elif reason:
            is_shared = plain_shape(old.template) == plain_shape(new.template) and new.is_unique
            advice = _SHARED if is_shared else _WITH_RECORDS
            yield LayoutChange("E14", new.name, Impact.REWRITE, reason, advice)


def has_same_entries(old: IndexSpec, new: IndexSpec, pairs: LayoutPairs, roots: tuple[Template, Template]) -> bool:
    """Tell whether every record has the same entries of both indexes: raw keys and raw values."""
    return not _other_entries(old, new, pairs, roots)


def _is_moved(index: IndexSpec, pairs: LayoutPairs) -> bool:
    old = pairs.names.get(index.of)
    if old is None:
        return False
    relation = compare_keys(pairs.old.tables[old].template, pairs.new.tables[index.of].template).relation
    return relation not in {KeyRelation.SAME, KeyRelation.WIDER, KeyRelation.NARROWER}


def _other_entries(old: IndexSpec, new: IndexSpec, pairs: LayoutPairs, roots: tuple[Template, Template]) -> str:
    """Why entries differ; empty when they do not."""
    if pairs.names.get(new.of) != old.of:
        return f"it is of {new.of}, no longer of {old.of}"
    if old.is_unique != new.is_unique:
        return "it is unique" if new.is_unique else "it is not unique any more"
    if plain_shape(old.template.prefixed(roots[0])) != plain_shape(new.template.prefixed(roots[1])):
        return "its entries' keys are spelled otherwise"
    tables = pairs.old.tables[old.of], pairs.new.tables[new.of]
    if _sources(old, tables[0]) != _sources(new, tables[1]) or old.when != new.when:
        return "its fields come from elsewhere, or under other conditions"
    field = _other_default(new, tables[0].form, tables[1].form)
    if field:
        return f"records stored without {field} have another default there, and so other entries"
    if old.version != new.version:
        return f"its function's version is {new.version}, no longer {old.version}"
    if old.is_unique and _pointer(tables[0]) != _pointer(tables[1]):
        return "its entries name their records otherwise, as the records' keys are spelled otherwise"
    return ""


def _sources(index: IndexSpec, table: TableSpec) -> list[object]:
    """The components; fields of the primary key by their place, since their names may change."""
    places = table.template.field_names
    return [places.index(part.path) if part.origin is Origin.KEY else part for part in index.components]


def _other_default(index: IndexSpec, old: ValueForm[Any], new: ValueForm[Any]) -> str:
    """A field that the index reads and whose default is another one, as the descriptions say; empty where there is none."""
    paths = [part.path for part in index.components if part.origin in {Origin.RECORD, Origin.EACH}]
    for path in dict.fromkeys([*paths, *(condition.path for condition in index.when)]):
        before, after = (
            {one.path: one.default for one in defaults_along(form, path, is_described=True)} for form in (old, new)
        )
        for place in before:
            if place in after and repr(before[place]) != repr(after[place]):
                return ".".join(place)
    for part in index.components:
        if part.origin is Origin.EACH and isinstance(part.item, str):
            ours, theirs = (
                list(defaults_of_items(form, part.path, part.item, is_described=True)) for form in (old, new)
            )
            if ours and theirs and repr(ours) != repr(theirs):
                return f"{part.path}[].{part.item}"
    return ""


def _pointer(table: TableSpec) -> object:
    """What decides how a unique entry names a record: the codec of the only field, or all of the key below the root."""
    if table.key.is_scalar:
        return table.template.fields[0].element.spec
    return plain_shape(table.template)
