"""Whether a value that was written reads back as the one that was given, and where it does not."""

import math
from collections.abc import Mapping, Set
from typing import Any

import msgspec

__all__ = ["difference"]


def difference(given: Any, read_back: Any, place: str = "$") -> str | None:
    """Return where and how a value read back is another one than was given, without its content; None: nowhere.

    Equal numbers and texts are the same whatever their class, and NaN is NaN. Collections and records are compared by class and
    by what is in them, so that it does not matter how an application's class defines equality.
    """
    if given is read_back:
        return None
    if _is_nan(given) and _is_nan(read_back):
        return None
    fields = _fields(given)
    if fields is not None:
        if type(given) is not type(read_back):
            return _another(given, read_back, place)
        return _first(fields, _fields(read_back) or {}, place, ".{}")
    if isinstance(given, Mapping):
        if not isinstance(read_back, Mapping) or given.keys() != read_back.keys():
            return _another(given, read_back, place)
        return _first(given, read_back, place, "[...]")
    if isinstance(given, (list, tuple)):
        if isinstance(given, list) != isinstance(read_back, list) or len(given) != len(read_back):
            return _another(given, read_back, place)
        return _first(dict(enumerate(given)), dict(enumerate(read_back)), place, "[{}]")
    if isinstance(given, Set) and not isinstance(read_back, Set):
        return _another(given, read_back, place)
    return None if given == read_back else _another(given, read_back, place)


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _first(given: Mapping[Any, Any], read_back: Mapping[Any, Any], place: str, step: str) -> str | None:
    for name, value in given.items():
        if name not in read_back:
            return f"{place}{step.format(name)} is not stored"
        found = difference(value, read_back[name], place + step.format(name))
        if found is not None:
            return found
    return None


def _fields(value: Any) -> Mapping[str, Any] | None:
    """The fields of a record; None for anything else."""
    if isinstance(value, msgspec.Struct):
        return {name: getattr(value, name) for name in value.__struct_fields__}
    names = getattr(value, "_fields", None)
    if isinstance(value, tuple) and names is not None:
        return dict(zip(names, value, strict=True))
    declared = getattr(type(value), "__pydantic_fields__", None)
    if declared is not None:
        # Why not all that the instance holds: what a cached property remembers is no field.
        fields = {name: getattr(value, name) for name in declared if hasattr(value, name)}
        return fields | (getattr(value, "__pydantic_extra__", None) or {})
    names = getattr(type(value), "__dataclass_fields__", None)
    return None if names is None else {name: getattr(value, name, None) for name in names}


def _another(given: Any, read_back: Any, place: str) -> str:
    kinds = type(given).__name__, type(read_back).__name__
    how = f"a {kinds[0]} as a {kinds[1]}" if kinds[0] != kinds[1] else f"a {kinds[0]} as another one"
    return f"{place} reads back as another value: {how}"
