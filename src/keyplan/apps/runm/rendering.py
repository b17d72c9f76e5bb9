"""What the command line prints of messages: lines for one, rows for many."""

import json
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any, Final, NamedTuple

__all__ = [
    "DEFINITION",
    "DELETED",
    "OBJECT",
    "OBJECT_TYPE",
    "PARTITION",
    "PROVIDER",
    "PROVIDER_TYPE",
    "RESOLVED",
    "VERSION",
    "Shown",
    "permission_text",
]


class Shown(NamedTuple):
    """How messages of a kind are shown: one by its lines, many as a table; `identity` is what --quiet prints of one."""

    identity: Callable[[Any], str]
    lines: Callable[[Any], Iterator[str]]
    head: tuple[str, ...] = ()
    row: Callable[[Any], list[str]] = str.split


_SCOPES: Final = ("PARTITION", "PROJECT")
_PERMISSIONS: Final = {0: "NONE (Deny)", 1: "READ", 2: "WRITE", 3: "READ/WRITE"}


def _partition_lines(partition: Any) -> Iterator[str]:
    """A partition."""
    yield f"UUID: {partition.uuid}"
    yield f"Name: {partition.name}"


def _type_lines(kind: Any) -> Iterator[str]:
    """An object type or provider type."""
    yield f"Code: {kind.code}"
    yield f"Description: {kind.description}"
    if hasattr(kind, "scope"):
        yield f"Scope: {_SCOPES[kind.scope]}"


def _provider_row(provider: Any) -> list[str]:
    """A provider in a list."""
    return [
        provider.partition.name or provider.partition.uuid,
        provider.provider_type.code,
        provider.uuid,
        provider.name,
    ]


def _provider_lines(provider: Any) -> Iterator[str]:
    """A provider."""
    yield f"Partition: {provider.partition.name or provider.partition.uuid}"
    yield f"Provider Type: {provider.provider_type.code}"
    yield f"UUID: {provider.uuid}"
    yield f"Name: {provider.name}"
    yield f"Generation: {provider.generation}"
    if provider.HasField("parent"):
        yield f"Parent: {provider.parent.name or provider.parent.uuid}"
    yield from _decoration_lines(provider)


def _object_row(found: Any) -> list[str]:
    """An object in a list."""
    return [found.partition, found.object_type, found.uuid, found.name, found.project]


def _deleted_row(deleted: Any) -> list[str]:
    """A deleted object in a list; times are UTC."""
    found = deleted.object
    return [_when(deleted.deleted_at), deleted.user, found.object_type, found.uuid, found.name, found.project]


def _object_lines(found: Any) -> Iterator[str]:
    """An object."""
    yield f"Partition: {found.partition}"
    yield f"Object Type: {found.object_type}"
    yield f"UUID: {found.uuid}"
    yield f"Name: {found.name}"
    if found.project:
        yield f"Project: {found.project}"
    if found.generation:
        yield f"Generation: {found.generation}"
    yield from _decoration_lines(found)


def _definition_lines(definition: Any) -> Iterator[str]:
    """A definition: its schema as JSON, its permissions by property."""
    yield "Schema:"
    yield from _schema_lines(definition.schema)
    yield "Property permissions:"
    for one in definition.property_permissions:
        yield f"   {one.key}:"
        yield from (f"      {permission_text(entry)}" for entry in one.permissions)


def permission_text(entry: Any) -> str:
    """Who may do what: `PROJECT(x) READ/WRITE`."""
    who = [f"{word}({name})" for word, name in (("PROJECT", entry.project), ("ROLE", entry.role)) if name]
    return f"{' '.join(who) or 'GLOBAL'} {_PERMISSIONS.get(entry.permission, entry.permission)}"


def _version_row(version: Any) -> list[str]:
    """An earlier version of a definition in a list; times are UTC."""
    return [str(version.number), _when(version.replaced_at), version.user, version.object_definition.uuid]


def _when(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _decoration_lines(found: Any) -> Iterator[str]:
    if found.properties:
        yield "Properties:"
        yield from (f"   {one.key}={one.value}" for one in found.properties)
    if found.tags:
        yield f"Tags: {','.join(found.tags)}"


def _schema_lines(text: str) -> Iterable[str]:
    try:
        return json.dumps(json.loads(text), indent=2).splitlines()
    except ValueError:
        return text.splitlines()


# ---- the kinds ---------------------------------------------------------------------------------------------------------

_UUID: Final = attrgetter("uuid")

PARTITION: Final = Shown(_UUID, _partition_lines, ("UUID", "Name"), lambda one: [one.uuid, one.name])
PROVIDER_TYPE: Final = Shown(
    attrgetter("code"), _type_lines, ("Code", "Description"), lambda one: [one.code, one.description]
)
OBJECT_TYPE: Final = Shown(
    attrgetter("code"),
    _type_lines,
    ("Code", "Scope", "Description"),
    lambda one: [one.code, _SCOPES[one.scope], one.description],
)
PROVIDER: Final = Shown(_UUID, _provider_lines, ("Partition", "Provider Type", "UUID", "Name"), _provider_row)
OBJECT: Final = Shown(_UUID, _object_lines, ("Partition", "Object Type", "UUID", "Name", "Project"), _object_row)
DELETED: Final = Shown(
    attrgetter("object.uuid"),
    lambda one: _object_lines(one.object),
    ("Deleted", "User", "Object Type", "UUID", "Name", "Project"),
    _deleted_row,
)
DEFINITION: Final = Shown(_UUID, _definition_lines)
RESOLVED: Final = Shown(attrgetter("object_definition.uuid"), lambda one: _definition_lines(one.object_definition))
VERSION: Final = Shown(
    lambda one: str(one.number),
    lambda one: _definition_lines(one.object_definition),
    ("Version", "Replaced", "User", "UUID"),
    _version_row,
)
