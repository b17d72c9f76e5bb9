"""Record types for JSON values: made as classes for a layout's description, and as the source that declares them."""

import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final

import msgspec

from keyplan.maintenance.inference.json_shape import JsonType
from keyplan.maintenance.inference.naming import attribute_name, unused

__all__ = ["RecordType", "RecordTypes"]

_SCALARS: Final[dict[str, Any]] = {"bool": bool, "int": int, "float": float, "str": str}


@dataclass(frozen=True, slots=True)
class RecordType:
    """A type, and the words for it in source."""

    made: Any
    source: str


class RecordTypes:
    """Makes types, and collects the source of the classes among them: inner ones first."""

    def __init__(self) -> None:
        self.classes: list[str] = []
        self._names: set[str] = set()

    def reserve(self, names: Iterable[str]) -> None:
        """Keep names for other classes."""
        self._names.update(names)

    def of(self, kind: JsonType, name: str) -> RecordType:
        """Return the type of values of a kind; a class is called `name`."""
        if kind.is_anything:
            return RecordType(Any, "Any")
        found = [RecordType(_SCALARS[scalar], scalar) for scalar in kind.scalars]
        if kind.item is not None:
            inner = self.of(kind.item, f"{name}Item")
            found.append(RecordType(list[inner.made], f"list[{inner.source}]"))  # type: ignore[name-defined]  # Why: made here.
        if kind.value is not None:
            inner = self.of(kind.value, f"{name}Value")
            found.append(RecordType(dict[str, inner.made], f"dict[str, {inner.source}]"))  # type: ignore[name-defined]  # Why: as above.
        if kind.fields is not None:
            found.append(self._record(kind.fields, name))
        if kind.has_null:
            found.append(RecordType(None, "None"))
        made = found[0].made if len(found) == 1 else reduce(operator.or_, (one.made for one in found))
        return RecordType(made, " | ".join(one.source for one in found))

    def _record(self, fields: Mapping[str, tuple[JsonType, bool]], name: str) -> RecordType:
        name = unused(name, self._names)
        self._names.add(name)
        attributes: dict[str, tuple[Any, Any]] = {}
        lines: list[str] = []
        for stored, (kind, is_always) in fields.items():
            attribute = attribute_name(stored, attributes)
            typed = self.of(kind, f"{name}{attribute.title().replace('_', '')}")
            options: dict[str, Any] = {} if attribute == stored else {"name": stored}
            made, source = typed.made, typed.source
            if not is_always:
                options["default"] = None
                is_nullable = made is Any or kind.has_null
                made, source = (made, source) if is_nullable else (made | None, f"{source} | None")
            attributes[attribute] = (made, msgspec.field(**options))
            lines.append(f"    {attribute}: {source}{_spelled(options)}")
        made_class = msgspec.defstruct(
            name, [(attribute, *both) for attribute, both in attributes.items()], kw_only=True, omit_defaults=True
        )
        head = f"class {name}(msgspec.Struct, kw_only=True, omit_defaults=True):"
        self.classes.append("\n".join([head, *lines]))
        return RecordType(made_class, name)


def _spelled(options: Mapping[str, Any]) -> str:
    if not options:
        return ""
    if list(options) == ["default"]:
        return " = None"
    return f" = msgspec.field({', '.join(f'{name}={value!r}' for name, value in options.items())})"
