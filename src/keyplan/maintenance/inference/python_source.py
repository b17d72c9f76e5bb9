"""The inferred layout as a Python module: a Layout class, NamedTuple keys and record classes, ready for a type checker."""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Final

from keyplan.layout import Field, Literal, Template
from keyplan.maintenance.inference.assembly import NamedTable

__all__ = ["python_source"]

_LINE_MAX: Final = 120

_DEFAULTS: Final = {
    True: {"str": "text", "int": "decimal", "UUID": "hex_uuid"},
    False: {"int": "u64", "UUID": "raw_uuid", "bytes": "tail", "str": "text_tail"},
}
"""The codec that a field of a type has when the template does not say, in text layouts and in binary ones."""


def python_source(
    name: str, root: bytes, tables: Sequence[NamedTable], classes: Sequence[str], table_notes: dict[str, str], note: str
) -> str:
    """Return a module that declares the layout. It describes itself as the inference does."""
    is_text = tables[0].template.is_text if tables else True
    keys = [_key_class(table) for table in tables if not table.is_scalar and table.found.fields]
    body = [_table(table, table_notes.get(table.name, "")) for table in tables]
    root_source = _template(Template((Literal(root),) if root else (), is_text))
    layout = [f"class {name}(Layout, root={root_source}):", f'    """{note}"""']
    declared = ["\n".join([*layout, *(("", *body) if body else ())])]
    code = "\n\n\n".join([*classes, *keys, *declared])
    return f'"""{note}"""\n\n' + "\n".join(_imports(code)) + f"\n\n\n{code}\n"


def _imports(code: str) -> Iterator[str]:
    typing = [name for name in ("Any", "NamedTuple") if re.search(rf"\b{name}\b", code)]
    if typing:
        yield f"from typing import {', '.join(typing)}"
    if re.search(r"\bUUID\b", code):
        yield "from uuid import UUID"
    if typing or re.search(r"\bUUID\b", code):
        yield ""
    if "msgspec." in code:
        yield "import msgspec"
        yield ""
    names = ["Layout", *(name for name in ("Only", "Table") if re.search(rf"\b{name}\b", code))]
    yield f"from keyplan.layout import {', '.join(names)}"


def _key_class(table: NamedTable) -> str:
    fields = [f"    {field.name}: {field.element.value_type.__name__}" for field in table.found.fields]
    return "\n".join([f"class {table.key_type}(NamedTuple):", *fields])


def _table(table: NamedTable, note: str) -> str:
    arguments = [_template(table.template), f"key={table.key_type}", f"value={table.value.source}"]
    arguments += [f"form={_quoted(table.form)}"] if table.form else []
    arguments += ["lease=True"] if table.has_lease else []
    arguments += [f"note={_quoted(note)}"] if note else []
    line = f"    {table.name} = Table({', '.join(arguments)})"
    if len(line) <= _LINE_MAX:
        return line
    return "\n".join([f"    {table.name} = Table(", *(f"        {argument}," for argument in arguments), "    )"])


def _template(template: Template) -> str:
    """The template as a Python literal; codecs that are a type's own are left out."""
    defaults = _DEFAULTS[template.is_text]
    source = template.source
    for field in (part for part in template.parts if isinstance(part, Field) and not part.is_derived):
        if defaults.get(field.element.value_type.__name__) == field.element.spec:
            source = source.replace(field.source, field.reference, 1)
    if template.is_text:
        return _quoted(source)
    return 'b"' + source.replace('"', '\\"') + '"'


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
