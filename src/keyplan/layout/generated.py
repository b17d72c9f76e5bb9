"""Pieces of generated Python that compiled keys and compiled index entries share. In it, f_NAME is the value of field NAME."""

import struct
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from keyplan.layout.template import Field, Literal, Template

__all__ = ["REFUSALS", "KeyExpression", "generated_function", "is_struct", "key_expression", "quoted"]

REFUSALS: Final = (struct.error, AttributeError, TypeError, ValueError)
"""What an expression raises for values that it was not made for; a codec then encodes them, or names the mistake."""


class KeyExpression(NamedTuple):
    """How generated code encodes the usual key: where all `checks` hold, `raw` is its bytes. `names` are its globals."""

    checks: tuple[str, ...]
    raw: str
    names: dict[str, object]

    @property
    def check(self) -> str:
        """All checks as one expression."""
        return " and ".join(self.checks) or "True"


def key_expression(
    template: Template,
    variable: Callable[[str], str] = "f_{}".format,
    *,
    tag: str = "",
    spelling: Callable[[str, str], str] | None = None,
) -> KeyExpression | None:
    """Return the expressions for a template's keys; None when one of its codecs must be called.

    `variable` names the variable that holds a field's value. `tag` tells the globals of several templates apart. `spelling`
    is given what an f-string has between the braces for a value that is not spelled as it is, with the check of that value,
    and gives what shall stand there.
    """
    if all(isinstance(part, Literal) for part in template.parts):
        return KeyExpression((), repr(template.literal_bytes), {})
    if is_struct(template):
        return _packed_expression(template, variable, tag)
    return _text_expression(template, variable, spelling)


def is_struct(template: Template) -> bool:
    """True when the keys are fixed-width items that one struct packs."""
    fields = [part for part in template.parts if isinstance(part, Field)]
    return bool(fields) and all(not field.is_derived and field.element.fast_struct() is not None for field in fields)


def _packed_expression(template: Template, variable: Callable[[str], str], tag: str) -> KeyExpression:
    code, packed, checks = ">", [], []
    names: dict[str, object] = {}
    for number, part in enumerate(template.parts):
        if isinstance(part, Literal):
            code += f"{len(part.raw)}s"
            names[f"literal{tag}_{number}"] = part.raw
            packed.append(f"literal{tag}_{number}")
            continue
        fast = part.element.fast_struct()
        assert fast is not None
        code += fast.code
        names.update(fast.names)
        packed.append(fast.pack.format(v=variable(part.name)))
        checks.append(fast.check.format(v=variable(part.name)))
    names[f"pack{tag}"] = struct.Struct(code).pack
    return KeyExpression(tuple(checks), f"pack{tag}({', '.join(packed)})", names)


def _text_expression(
    template: Template, variable: Callable[[str], str], spelling: Callable[[str, str], str] | None
) -> KeyExpression | None:
    if not template.is_text:
        return None
    spelled, checks = "", []
    names: dict[str, object] = {}
    for part in template.parts:
        if isinstance(part, Literal):
            spelled += quoted(part.raw.decode())
            continue
        fast = None if part.is_derived else part.element.fast_text()
        if fast is None:
            return None
        names.update(fast.names)
        checks.append(fast.check.format(v=variable(part.name)))
        field = fast.format.format(v=variable(part.name))
        spelled += "{" + (field if spelling is None or fast.format == "{v}" else spelling(field, checks[-1])) + "}"
    return KeyExpression(tuple(checks), f'f"{spelled}".encode()', names)


def quoted(text: str) -> str:
    """Text as it stands inside a double-quoted f-string."""
    return text.replace("{", "{{").replace("}", "}}").encode("unicode_escape").decode().replace('"', '\\"')


def generated_function(name: str, source: str, scope: dict[str, object]) -> Callable[..., Any]:
    """Return the function `name` that `source` defines, with `scope` as its globals."""
    made: dict[str, Callable[..., Any]] = {}
    exec(compile(source, f"<keyplan {name}>", "exec"), scope, made)  # noqa: S102  # Why: see compile.py.
    return made[name]
