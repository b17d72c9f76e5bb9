"""Definitions as people write them, compiled to a JSON Schema and permissions: `property_definitions` of a YAML document."""

import json
from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

from keyplan.apps.runm.documents import require_known
from keyplan.apps.runm.formats import FORMAT_NAMES
from keyplan.apps.runm.identity import spelled_project
from keyplan.apps.runm.patterns import is_pattern, pattern_of_others
from keyplan.apps.runm.permission import READ, WRITE
from keyplan.apps.runm.records import ObjectDefinition, PropertyPermission, PropertyPermissions
from keyplan.apps.runm.refusal import invalid, property_named
from keyplan.apps.runm.start import default_schema

__all__ = ["compiled_definition"]

_TYPES: Final = ("string", "integer", "number", "boolean")

_PERMISSIONS: Final[Mapping[str, int]] = {"": 0, "r": READ, "w": WRITE, "rw": READ | WRITE}

_COUNTS: Final[Mapping[str, str]] = {"min_length": "minLength", "max_length": "maxLength"}
_NUMBERS: Final[Mapping[str, str]] = {"minimum": "minimum", "maximum": "maximum"}

_SPELLINGS: Final = {"minLength": "min_length", "maxLength": "max_length", "multipleOf": "multiple_of"}
"""Second spellings, which the original's own example files use."""


def compiled_definition(document: Mapping[str, Any], project: str) -> ObjectDefinition:
    """Return the definition that a document describes, for a session of this project. Its UUID is decided when it is set.

    The schema is the default one with what is said of each property. Keys of letters and digits that are not described stay
    allowed, as texts. A property without permissions may be written by the session's project, and read by everybody; given
    permissions are all kept, and the session's project may always write. Raises RefusedError, INVALID_ARGUMENT.
    """
    require_known(document, {"property_definitions"}, "definition")
    described = document.get("property_definitions") or {}
    if not isinstance(described, dict) or not all(isinstance(key, str) and key for key in described):
        raise invalid("property_definitions is a mapping of property keys.")
    schema = default_schema()
    own = schema["properties"]["properties"]
    own["properties"] = {}
    permissions = []
    for key, definition in described.items():
        given = _mapping(definition, key)
        require_known(given, {"required", "permissions", "schema"}, "property definition")
        if _flag(given, key):
            own["required"].append(key)
        own["properties"][key] = _property_schema(_mapping(given.get("schema"), key), key)
        permissions.append(PropertyPermissions(key, _permissions(given.get("permissions"), key, project)))
    own["patternProperties"] = {pattern_of_others(own["properties"]): {"type": "string"}}
    return ObjectDefinition(UUID(int=0), json.dumps(schema, indent=2), tuple(permissions))


def _mapping(value: Any, key: str) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise invalid(f"the definition of {key} is a mapping.")
    return value


def _flag(given: Mapping[str, Any], key: str) -> bool:
    required = given.get("required", False)
    if not isinstance(required, bool):
        raise invalid(f"required of {key} is true or false.")
    return required


# ---- one property's schema ---------------------------------------------------------------------------------------------


def _property_schema(written: Mapping[str, Any], key: str) -> dict[str, Any]:
    given = {_SPELLINGS.get(name, name): value for name, value in written.items() if value is not None}
    known = {"type", "enum", "multiple_of", "pattern", "format", *_NUMBERS, *_COUNTS}
    require_known(given, known, "property's schema")
    schema: dict[str, Any] = {"type": _types(given.get("type"), key)}
    if "enum" in given:
        schema["enum"] = _enum(given["enum"], key)
    if "multiple_of" in given:
        schema["multipleOf"] = _number(given["multiple_of"], f"multiple_of of {key}", least=1)
    for name, keyword in _NUMBERS.items():
        if name in given:
            schema[keyword] = _number(given[name], f"{name} of {key}", least=None)
    for name, keyword in _COUNTS.items():
        if name in given:
            schema[keyword] = _number(given[name], f"{name} of {key}", least=0)
    if "pattern" in given:
        schema["pattern"] = _pattern(given["pattern"], key)
    if "format" in given:
        if given["format"] not in FORMAT_NAMES:
            raise invalid(f"invalid format of {key}. valid formats are [{' '.join(FORMAT_NAMES)}]")
        schema["format"] = given["format"]
    return schema


def _types(given: Any, key: str) -> list[str]:
    """Always a list; without a type, every scalar."""
    if given is None:
        return list(_TYPES)
    names = given if isinstance(given, list) else [given]
    for name in names:
        if name not in _TYPES:
            raise invalid(f"invalid type '{name}'. valid types are [{' '.join(_TYPES)}] ({property_named(key)})")
    if not names or len(set(names)) < len(names):
        raise invalid(f"a type of {key} is named once.")
    return list(names)


def _enum(given: Any, key: str) -> list[Any]:
    is_well_formed = isinstance(given, list) and given and all(isinstance(one, str | int | float) for one in given)
    if not is_well_formed:
        raise invalid(f"enum of {key} is a list of texts, numbers or booleans.")
    return list(given)


def _number(given: Any, what: str, *, least: int | None) -> int | float:
    is_number = isinstance(given, int | float if least is None else int) and not isinstance(given, bool)
    if not is_number or (least is not None and given < least):
        raise invalid(f"{what} is a number" + ("." if least is None else f" of at least {least}."))
    number: int | float = given
    return number


def _pattern(given: Any, key: str) -> str:
    if not isinstance(given, str) or not is_pattern(given):
        raise invalid(f"pattern of {key} is no regular expression, or one that cannot be matched in linear time.")
    return given


# ---- permissions -------------------------------------------------------------------------------------------------------


def _permissions(given: Any, key: str, project: str) -> tuple[PropertyPermission, ...]:
    own = PropertyPermission(project=project, permission=READ | WRITE)
    if given is None:
        return own, PropertyPermission(permission=READ)
    if not isinstance(given, list):
        raise invalid(f"permissions of {key} are a list.")
    entries = tuple(_permission(_mapping(one, key), key) for one in given)
    covers = any(one.permission & WRITE and one.project in {"", project} for one in entries)
    return entries if covers else (*entries, own)


def _permission(given: Mapping[str, Any], key: str) -> PropertyPermission:
    require_known(given, {"project", "role", "permission"}, "permission")
    texts = {name: given.get(name) or "" for name in ("project", "role", "permission")}
    if not all(isinstance(text, str) for text in texts.values()):
        raise invalid(f"project, role and permission of {key} are texts.")
    code = texts["permission"]
    if code not in _PERMISSIONS:
        raise invalid(f"unknown permission string {code}. valid choices are [ r rw w] ({property_named(key)})")
    return PropertyPermission(spelled_project(texts["project"]), texts["role"], _PERMISSIONS[code])
