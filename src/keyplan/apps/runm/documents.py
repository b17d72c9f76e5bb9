"""The YAML documents that people write, JSON too: partitions, providers, objects and definitions, read and checked.

What they say that cannot be is refused with a RefusedError that names the place; keys that nobody knows are refused as well,
because they are misspelt ones. Nothing here reads a file or a store.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, NamedTuple

import yaml

from keyplan.apps.runm.records import Property
from keyplan.apps.runm.refusal import invalid, missing, property_named

__all__ = [
    "DOCUMENT_BYTES_MAX",
    "ObjectDocument",
    "PartitionDocument",
    "ProviderDocument",
    "object_document",
    "partition_document",
    "property_text",
    "provider_document",
    "read_document",
]

DOCUMENT_BYTES_MAX: Final = 1 << 20
"""Why: reading YAML takes a second for a MiB, and no document of people's is near it."""

_TIMESTAMP: Final = "tag:yaml.org,2002:timestamp"


class PartitionDocument(NamedTuple):
    """A partition: its name, and a UUID or nothing."""

    name: str
    uuid: str


class ProviderDocument(NamedTuple):
    """A provider. `partition` and `parent` are names or UUIDs; `values` is the whole document as it is to be validated."""

    partition: str
    provider_type: str
    name: str
    uuid: str
    parent: str
    properties: tuple[Property, ...]
    tags: tuple[str, ...]
    values: Mapping[str, Any]


class ObjectDocument(NamedTuple):
    """An object of any type."""

    partition: str
    object_type: str
    project: str
    uuid: str
    name: str
    properties: tuple[Property, ...]
    tags: tuple[str, ...]


class _Loader(yaml.SafeLoader):
    """YAML of plain values. Aliases are refused: a kilobyte of them can stand for gigabytes."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.events.AliasEvent):
            raise yaml.YAMLError("aliases are not allowed")
        return super().compose_node(parent, index)


# Why: a date is a text here, as it is in JSON, and JSON Schema has a format for it.
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != _TIMESTAMP]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def read_document(payload: bytes | str) -> Mapping[str, Any]:
    """Return the one mapping that a YAML or JSON text holds. Raises RefusedError, INVALID_ARGUMENT."""
    if len(payload) > DOCUMENT_BYTES_MAX:
        raise invalid(f"the document has more than {DOCUMENT_BYTES_MAX} bytes.")
    try:
        document = yaml.load(payload, Loader=_Loader)  # noqa: S506  # Why: a SafeLoader with less.
    except yaml.MarkedYAMLError as error:
        place = "" if error.problem_mark is None else f" at line {error.problem_mark.line + 1}"
        raise invalid(f"the document is not YAML{place}.") from error
    except (yaml.YAMLError, ValueError, RecursionError, UnicodeError) as error:
        raise invalid("the document is not YAML without aliases.") from error
    if not isinstance(document, dict) or not all(isinstance(key, str) for key in document):
        raise invalid("the document is no mapping of names.")
    return document


def partition_document(document: Mapping[str, Any]) -> PartitionDocument:
    """Read a partition."""
    require_known(document, {"name", "uuid"}, "partition")
    return PartitionDocument(_text(document, "name"), _text(document, "uuid"))


def provider_document(document: Mapping[str, Any]) -> ProviderDocument:
    """Read a provider. What must be there is asked for in the original's order and words."""
    known = {"partition", "provider_type", "name", "uuid", "parent", "properties", "tags"}
    require_known(document, known, "provider")
    for name in ("partition", "name", "provider_type"):
        if not _text(document, name):
            raise missing(f"{name} required")
    return ProviderDocument(
        partition=_text(document, "partition"),
        provider_type=_text(document, "provider_type"),
        name=_text(document, "name"),
        uuid=_text(document, "uuid"),
        parent=_text(document, "parent"),
        properties=_properties(document),
        tags=_tags(document),
        values={key: value for key, value in document.items() if value is not None},
    )


def object_document(document: Mapping[str, Any]) -> ObjectDocument:
    """Read an object."""
    require_known(document, set(ObjectDocument._fields), "object")
    return ObjectDocument(
        partition=_text(document, "partition"),
        object_type=_text(document, "object_type"),
        project=_text(document, "project"),
        uuid=_text(document, "uuid"),
        name=_text(document, "name"),
        properties=_properties(document),
        tags=_tags(document),
    )


def property_text(value: object, key: str) -> str:
    """Return a property's value as it is stored: texts as they are, numbers and booleans as JSON writes them (S23).

    Raises RefusedError, INVALID_ARGUMENT, for lists, mappings and null.
    """
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case int() | float():
            return repr(value)
        case _:
            raise invalid(f"the value of {property_named(key)} is a text, a number or a boolean.")


def require_known(document: Mapping[str, Any], known: Collection[str], what: str) -> None:
    """Raise RefusedError, INVALID_ARGUMENT, when a mapping has a key that nobody knows."""
    strangers = sorted(str(key) for key in document if key not in known)
    if strangers:
        raise invalid(f"a {what} has no {strangers[0]!r}; it has {', '.join(sorted(known))}.")


def _text(document: Mapping[str, Any], name: str) -> str:
    value = document.get(name)
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        # Why: a UUID or name of digits alone reads as a number; a number of leading zeros is lost by then, so say so.
        raise invalid(f"{name} is a text; put it in quotes.")
    raise invalid(f"{name} is a text.")


def _properties(document: Mapping[str, Any]) -> tuple[Property, ...]:
    found = _of_kind(document, "properties", dict, dict)
    return tuple(Property(_key(key), property_text(value, _key(key))) for key, value in found.items())


def _key(key: object) -> str:
    if not isinstance(key, str):
        raise invalid(f"a property's key is a text; put it in quotes: {property_named(str(key))}.")
    return key


def _tags(document: Mapping[str, Any]) -> tuple[str, ...]:
    found = _of_kind(document, "tags", list, list)
    if not all(isinstance(tag, str) for tag in found):
        raise invalid("tags are texts; put them in quotes.")
    return tuple(found)


def _of_kind(document: Mapping[str, Any], name: str, kind: type, empty: Callable[[], Any]) -> Any:
    value = document.get(name)
    if value is None:
        return empty()
    if not isinstance(value, kind):
        raise invalid(f"{name} is a {'mapping' if kind is dict else 'list'}.")
    return value
