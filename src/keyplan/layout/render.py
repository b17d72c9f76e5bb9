"""A layout as pages to read: the map, made to be checked in, and the Markdown reference. Both hold no clock and no place.

Neither is read back; `describe.py` writes what is.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from keyplan.codec import Element, shown_path
from keyplan.layout.rules.check import lint
from keyplan.layout.rules.finding import RULES, LintReport, abridged
from keyplan.layout.rules.refusals import EngineLimits
from keyplan.layout.spec import Component, CounterSpec, IndexSpec, ItemSpec, LayoutSpec, Origin, TableSpec
from keyplan.layout.template import Field, Literal, Template

__all__ = ["render_docs", "render_map"]


def render_map(spec: LayoutSpec) -> str:
    """Return the layout's map: every template in key order, with what its keys hold, as plain text of stable bytes.

    Two layouts that store the same in the same way differ in their maps in name, version, notes and waivers at most; a
    change of a template, codec, value form, index source, lease or place shows as a changed line.
    """
    lines = [f"layout   {spec.name}, version {spec.version}, {'text' if spec.is_text else 'binary'} keys"]
    lines += [f"root     {spec.root.plain or '(none)'}{_defaults(spec)}"]
    lines += [f"    field    {_field_name(field)}: {field.element.spec}" for field in _all_fields(spec.root)]
    items = sorted(spec.items, key=lambda item: _place_in_order(item.template))
    for item in items:
        lines += ["", f"{item.template.plain or '(the root itself)'}", *_mapped(spec, item)]
    templates = [spec.root, *(item.template for item in items)]
    elements = {field.element.spec: field.element for template in templates for field in _all_fields(template)}
    if elements:
        width = max(map(len, elements))
        lines += ["", "codecs"]
        lines += [f"    {name:<{width}}  {_element(element)}" for name, element in sorted(elements.items())]
    if spec.waivers:
        lines += ["", "waivers"]
        lines += [f"    {waiver.rule} {waiver.items}: {waiver.reason}" for waiver in spec.waivers]
    return "\n".join(lines) + "\n"


def render_docs(spec: LayoutSpec, *, others: Sequence[LayoutSpec] = (), limits: EngineLimits | None = None) -> str:
    """Return the layout's reference in Markdown: keys, fields and codecs, indexes, lists, findings and waivers.

    `others` and `limits` are passed to the lint.
    """
    sections = [
        _head(spec),
        _keys_section(spec),
        _fields_section(spec),
        _indexes_section(spec),
        _lists_section(spec),
        _findings_section(lint(spec, others=others, limits=limits)),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def _mapped(spec: LayoutSpec, item: ItemSpec) -> Iterator[str]:
    """What the map says about one item: a word and its facts a line."""
    yield f"    {_kind(item):<8} {item.name}{f', {_sentence(item.note)}' if item.note else ''}"
    match item:
        case TableSpec():
            yield f"    key      {item.key.type_name}"
            yield f"    value    {_form(item)}"
            if item.has_lease:
                yield "    lease    records end with their lease"
            if item.place:
                yield f"    place    {', '.join(item.place)}"
            if item.holds_keys:
                yield f"    holds    whole keys in {_held(item)}"
            if item.form.secrets:
                yield f"    secret   {', '.join(map(shown_path, item.form.secrets))}"
        case IndexSpec():
            yield f"    of       {item.of}"
            yield f"    key      {item.key.type_name}"
            yield from (f"    from     {line}" for line in _sources(item))
            if spec.tables[item.of].has_lease:
                yield "    lease    that of the record"
        case CounterSpec():
            yield f"    value    {_counter_form(spec)}, first {item.start}"
    yield from (f"    field    {_field_name(field)}: {field.element.spec}" for field in _all_fields(item.template))
    yield f"    longest  {_longest(spec, item)}"


def _head(spec: LayoutSpec) -> str:
    kind, root = "text" if spec.is_text else "binary", _code(spec.root.plain) or "nothing"
    facts = [f"- Keys are {kind}; every key begins with {root}{_defaults(spec)}.", f"- Version {spec.version}."]
    return "\n".join([f"# {spec.name}", *(["", spec.note.strip()] if spec.note.strip() else []), "", *facts])


def _keys_section(spec: LayoutSpec) -> str:
    rows = [
        (
            _code(item.template.plain),
            _kind(item),
            f"`{item.name}`",
            _value(spec, item),
            _longest(spec, item),
            _remarks(item),
        )
        for item in sorted(spec.items, key=lambda item: _place_in_order(item.template))
    ]
    return "## Keys\n\n" + _table(("Key, below the root", "Kind", "Name", "Value", "Longest key", "Remarks"), rows)


def _fields_section(spec: LayoutSpec) -> str:
    rows = [
        (f"`{item.name}`", f"`{_field_name(field)}`", _code(field.element.spec), _element(field.element))
        for item in spec.items
        for field in _all_fields(item.template)
    ]
    rows = [
        ("the root", f"`{field.name}`", _code(field.element.spec), _element(field.element))
        for field in spec.root.fields
    ] + rows
    return "## Fields\n\n" + _table(("Of", "Field", "Codec", "Bytes"), rows) if rows else ""


def _indexes_section(spec: LayoutSpec) -> str:
    rows = [
        (f"`{index.name}`", f"`{index.of}`", "unique" if index.is_unique else "any number", "; ".join(_sources(index)))
        for index in spec.indexes.values()
    ]
    return "## Indexes\n\n" + _table(("Index", "Of", "Records for one index key", "Fields from"), rows) if rows else ""


def _lists_section(spec: LayoutSpec) -> str:
    rows = [
        (
            f"`{item.name}.list({', '.join(item.template.field_names[:bound])})`",
            _code(_prefix(item.template, bound)) or "the root",
        )
        for item in spec.items
        if not isinstance(item, CounterSpec)
        for names in (item.template.field_names,)
        for bound in range(len(names))
    ]
    note = "A list returns exactly the records whose first fields are given, in key order."
    return f"## Lists\n\n{note}\n\n" + _table(("List", "Reads below"), rows) if rows else ""


def _findings_section(report: LintReport) -> str:
    rows = [
        (
            finding.rule,
            finding.severity.value,
            _cell(finding.subject),
            _cell(finding.message),
            ", ".join(_code(abridged(key)) for key in (finding.witness, finding.second) if key is not None),
            _cell(finding.reason) or "open",
        )
        for finding in report.findings
    ]
    if not rows:
        return "## Findings\n\nThe lint finds nothing."
    rules = [f"- {rule}: {RULES[rule].sentence}." for rule in RULES if report.of_rule(rule)]
    return (
        "## Findings\n\n"
        + _table(("Rule", "Severity", "About", "Finding", "Shown by", "Waived because"), rows)
        + "\n\n"
        + "\n".join(rules)
    )


def _kind(item: ItemSpec) -> str:
    match item:
        case TableSpec():
            return "table"
        case IndexSpec():
            return "unique" if item.is_unique else "index"
        case CounterSpec():
            return "counter"


def _value(spec: LayoutSpec, item: ItemSpec) -> str:
    match item:
        case TableSpec():
            return _cell(_form(item))
        case IndexSpec():
            return f"the primary key of `{item.of}`" if item.is_unique else "empty"
        case CounterSpec():
            return f"{_counter_form(spec)}, first {item.start}"


def _remarks(item: ItemSpec) -> str:
    remarks = [_sentence(item.note)] if item.note else []
    if isinstance(item, TableSpec):
        remarks += ["records hang on leases"] if item.has_lease else []
        remarks += [f"placed by {', '.join(item.place)}"] if item.place else []
        remarks += [f"whole keys stand in {_held(item)}"] if item.holds_keys else []
        remarks += [f"secret: {', '.join(map(shown_path, item.form.secrets))}"] if item.form.secrets else []
    return _cell("; ".join(remarks))


def _held(table: TableSpec) -> str:
    return ", ".join(".".join(held.path) or "the value itself" for held in table.holds_keys)


def _form(table: TableSpec) -> str:
    """The value form in words: its code, and the type or codec where it has one."""
    described: Mapping[str, Any] = table.form.describe()
    about = [str(described[name]) for name in ("type", "element", "message") if described.get(name)]
    return " ".join([str(described["form"]), *about])


def _counter_form(spec: LayoutSpec) -> str:
    return "decimal text" if spec.is_text else "u64"


def _sources(index: IndexSpec) -> Iterator[str]:
    """Where each field of an index comes from, and when there are entries at all."""
    if index.function is not None or index.version:
        yield f"a function, version {index.version}"
    for name, component in zip(index.template.field_names, index.components, strict=False):
        if component.origin is not Origin.FUNCTION:
            yield f"{name} = {_source(component)}"
    for condition in index.when:
        yield f"only when {condition.path} {'=' if condition.is_equal else 'is not'} {condition.constant!r}"


def _source(component: Component) -> str:
    match component.origin:
        case Origin.KEY:
            return f"key {component.path}"
        case Origin.EACH:
            part = "" if component.item is None else f"[{component.item}]"
            return f"each of {component.path}{part}"
        case _:
            return f"record {component.path}".rstrip()


def _element(element: Element[Any]) -> str:
    """A codec's bytes in words."""
    if element.width is not None:
        size = _bytes(element.width)
    elif element.bytes_max is None:
        size = f"at least {_bytes(element.bytes_min)}"
    else:
        size = f"{element.bytes_min} to {element.bytes_max} bytes"
    order = "in order" if element.is_ordered else f"not in order: {element.disorder}"
    return f"{getattr(element.value_type, '__name__', str(element.value_type))}, {size}, {order}"


def _bytes(count: int) -> str:
    return "1 byte" if count == 1 else f"{count} bytes"


def _longest(spec: LayoutSpec, item: ItemSpec) -> str:
    longest = item.template.prefixed(spec.root).language.bytes_max
    return "no longest key" if longest is None else _bytes(longest)


def _place_in_order(template: Template) -> tuple[tuple[bytes, str], ...]:
    """Where a template stands in key order: literals by their bytes, a field after every literal at its place."""
    return tuple((part.raw, "") if isinstance(part, Literal) else (b"\xff" * 8, part.source) for part in template.parts)


def _prefix(template: Template, bound: int) -> str:
    known = set(template.field_names[:bound])
    parts = []
    for part in template.parts:
        if isinstance(part, Field) and part.name not in known:
            break
        parts.append(part)
    return Template(tuple(parts), template.is_text).plain


def _all_fields(template: Template) -> tuple[Field, ...]:
    return tuple(part for part in template.parts if isinstance(part, Field))


def _field_name(field: Field) -> str:
    return f"{field.name}.{field.attribute}" if field.attribute else field.name


def _defaults(spec: LayoutSpec) -> str:
    known = [f"{name} = {value!r}" for name, value in spec.parameters.items() if value is not None]
    return f", unless told {', '.join(known)}" if known else ""


def _sentence(note: str) -> str:
    return " ".join(note.split()).rstrip(".")


def _code(text: str) -> str:
    return f"`{_cell(text)}`" if text else ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
