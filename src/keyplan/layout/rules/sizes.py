"""L10: keys, values and commits that an engine can refuse, computed from the layout alone."""

from collections.abc import Iterator, Sequence

from keyplan.layout.rules.decision import shortest_key
from keyplan.layout.rules.engine_limits import EngineLimits
from keyplan.layout.rules.finding import Finding, Severity
from keyplan.layout.rules.reading import readings
from keyplan.layout.rules.samples import key_with, member_of_length
from keyplan.layout.rules.subject import Subject
from keyplan.layout.spec import IndexSpec, LayoutSpec, Origin, TableSpec
from keyplan.layout.template import Template

__all__ = ["exceeded_limits"]


def exceeded_limits(spec: LayoutSpec, own: Sequence[Subject], limits: EngineLimits) -> Iterator[Finding]:
    """Findings of L10. Sizes count the root with its longest parameters; a witness has the default ones.

    An update writes the record and, for each index entry that changes, removes one key and puts another.
    """
    for subject in own:
        yield from _long_keys(spec, subject, limits.key_bytes_max)
    for table in spec.tables.values():
        indexes = [index for index in spec.indexes.values() if index.of == table.name]
        yield from _long_values(table, indexes, limits.value_bytes_max)
        yield from _long_commits(table, indexes, limits.commit_operations_max)
        yield from _heavy_commits(spec, table, indexes, limits.commit_bytes_max)


def _long_keys(spec: LayoutSpec, subject: Subject, allowed: int | None) -> Iterator[Finding]:
    longest = _longest(spec, subject.spec.template)
    if allowed is not None and (longest is None or longest > allowed):
        size = "of any length" if longest is None else f"of up to {longest} bytes"
        message = f"keys can be {size}, the engine takes {allowed}"
        yield Finding("L10", (subject.name,), message, _key_longer_than(subject.template, allowed))


def _long_values(table: TableSpec, indexes: Sequence[IndexSpec], allowed: int | None) -> Iterator[Finding]:
    """A unique entry's value is the primary key, without the root."""
    longest = table.template.language.bytes_max
    if allowed is not None and (longest is None or longest > allowed):
        for index in indexes:
            if index.is_unique:
                size = "of any length" if longest is None else f"of up to {longest} bytes"
                message = f"entries hold primary keys that can be {size}, the engine takes values of {allowed}"
                yield Finding("L10", (index.name, "value"), message, _key_longer_than(table.template, allowed))


def _long_commits(table: TableSpec, indexes: Sequence[IndexSpec], allowed: int | None) -> Iterator[Finding]:
    if allowed is None:
        return
    spreading = [index for index in indexes if _is_spreading(index)]
    fixed = 1 + 2 * (len(indexes) - len(spreading))
    if fixed > allowed:
        message = f"an update can need {fixed} operations, the engine takes {allowed} in a commit"
        yield Finding("L10", (table.name, *(index.name for index in indexes)), message)
    elif spreading:
        sources = ", ".join(dict.fromkeys(_source(index) for index in spreading))
        message = (
            f"an update needs up to {fixed} operations and two for each changed item of {sources}, "
            f"the engine takes {allowed} in a commit"
        )
        yield Finding("L10", (table.name, *(index.name for index in spreading)), message, severity=Severity.NOTE)


def _heavy_commits(
    spec: LayoutSpec, table: TableSpec, indexes: Sequence[IndexSpec], allowed: int | None
) -> Iterator[Finding]:
    sizes = [_longest(spec, table.template), *(_longest(spec, index.template) for index in indexes for _ in range(2))]
    known = [size for size in sizes if size is not None]
    if allowed is not None and len(known) == len(sizes) and sum(known) > allowed:
        message = f"the keys of an update alone can be {sum(known)} bytes, the engine takes {allowed} in a commit"
        yield Finding("L10", (table.name, "commit"), message)


def _is_spreading(index: IndexSpec) -> bool:
    return index.function is not None or any(
        component.origin in (Origin.EACH, Origin.FUNCTION) for component in index.components
    )


def _source(index: IndexSpec) -> str:
    return next((one.path for one in index.components if one.origin is Origin.EACH), f"the function of {index.name}")


def _longest(spec: LayoutSpec, template: Template) -> int | None:
    return template.prefixed(spec.root).language.bytes_max


def _key_longer_than(template: Template, allowed: int) -> bytes | None:
    """A key just longer than `allowed`, made by lengthening the fields in order; None when the root must be longer for it."""
    key = shortest_key(template).key
    if key is None:
        return None
    fields = next(readings(template, key))
    missing = allowed + 1 - len(key)
    for field in template.fields:
        if missing <= 0:
            break
        before = len(fields[field.name])
        wanted = before + missing if field.element.bytes_max is None else min(field.element.bytes_max, before + missing)
        fields[field.name] = member_of_length(field.element, wanted) or fields[field.name]
        missing -= len(fields[field.name]) - before
    longer = key_with(template, fields)
    return longer if longer is not None and len(longer) > allowed else None
