"""Pieces of generated Python that compiled keys and compiled index entries share. In it, f_NAME is the value of field NAME."""

import struct
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from keyplan.layout.template import Field, Literal, Template

__all__ = ["REFUSALS", "KeyExpression", "generated_function", "is_struct", "key_expression", "quoted"]

REFUSALS: Final = (struct.error, AttributeError, TypeError, ValueError)
"""What an expression raises for values that it was not made for; a codec then encodes them, or names the mistake."""


class KeyExpression(NamedTuple):
    """How generated code encodes the usual key: where `check` holds, `raw` is its bytes. `names` are the globals it needs."""

    check: str
    raw: str
    names: dict[str, object]


def key_expression(template: Template) -> KeyExpression | None:
    """Return the expressions for a template's keys; None when one of its codecs must be called."""
    return _packed_expression(template) if is_struct(template) else _text_expression(template)


def is_struct(template: Template) -> bool:
    """True when the keys are fixed-width items that one struct packs."""
    fields = [part for part in template.parts if isinstance(part, Field)]
    return bool(fields) and all(not field.is_derived and field.element.fast_struct() is not None for field in fields)


def _packed_expression(template: Template) -> KeyExpression:
    code, packed, checks = ">", [], []
    names: dict[str, object] = {}
    for number, part in enumerate(template.parts):
        if isinstance(part, Literal):
            code += f"{len(part.raw)}s"
            names[f"literal{number}"] = part.raw
            packed.append(f"literal{number}")
            continue
        fast = part.element.fast_struct()
        assert fast is not None
        code += fast.code
        names.update(fast.names)
        packed.append(fast.pack.format(v=f"f_{part.name}"))
        checks.append(fast.check.format(v=f"f_{part.name}"))
    names["pack"] = struct.Struct(code).pack
    return KeyExpression(" and ".join(checks), f"pack({', '.join(packed)})", names)


def _text_expression(template: Template) -> KeyExpression | None:
    spelled, checks = "", []
    names: dict[str, object] = {}
    for part in template.parts:
        if isinstance(part, Literal):
            spelled += quoted(part.raw.decode("utf-8" if template.is_text else "latin-1"))
            continue
        fast = part.element.fast_text() if template.is_text and not part.is_derived else None
        if fast is None:
            return None
        names.update(fast.names)
        checks.append(fast.check.format(v=f"f_{part.name}"))
        spelled += "{" + fast.format.format(v=f"f_{part.name}") + "}"
    return KeyExpression(" and ".join(checks) or "True", f'f"{spelled}".encode()', names)


def quoted(text: str) -> str:
    """Text as it stands inside a double-quoted f-string."""
    return text.replace("{", "{{").replace("}", "}}").encode("unicode_escape").decode().replace('"', '\\"')


def generated_function(name: str, source: str, scope: dict[str, object]) -> Callable[..., Any]:
    """Return the function `name` that `source` defines, with `scope` as its globals."""
    made: dict[str, Callable[..., Any]] = {}
    exec(compile(source, f"<keyplan {name}>", "exec"), scope, made)  # noqa: S102  # Why: see compile.py.
    return made[name]
