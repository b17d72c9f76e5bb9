"""Filters as people type them: `type=runm.compute name=east1* location.site=east1`, words that must all hold. Pure."""

import shlex
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from keyplan.errors import InvalidInputError

__all__ = ["Expression", "object_expression", "provider_expression", "search_of"]

_SOURCE: Final = "--filter"


class Expression(NamedTuple):
    """The fields of a filter as the service knows it, and the beginnings of property values that the client must look at."""

    fields: dict[str, Any]
    property_prefixes: tuple[tuple[str, str], ...]

    def fits(self, found: Any) -> bool:
        """Whether the properties of what the service found begin as they should."""
        values = {one.key: one.value for one in found.properties}
        return all(key in values and values[key].startswith(prefix) for key, prefix in self.property_prefixes)


def search_of(text: str) -> dict[str, Any]:
    """Return a SearchFilter: a star at the end asks for the beginning."""
    return {"search": text.removesuffix("*"), "use_prefix": text.endswith("*")}


def provider_expression(text: str) -> Expression:
    """Read a filter of providers: `partition`, `type`, `uuid`, `name`; any other word is a property's key.

    Raises InvalidInputError, so that a filter that is not understood never becomes one that fits everything.
    """
    built_in, properties = _read(text, {"partition", "type", "uuid", "name"})
    if "uuid" in built_in and "name" in built_in:
        raise InvalidInputError(source=_SOURCE, problem="name either a uuid or a name")
    fields: dict[str, Any] = {}
    for name, field in (("partition", "partition_filter"), ("type", "provider_type_filter")):
        if name in built_in:
            fields[field] = search_of(built_in[name])
    for name in ("uuid", "name"):
        if name in built_in:
            fields["primary_filter"] = search_of(built_in[name])
    property_filter, prefixes = _property_filter(properties)
    if property_filter:
        fields["property_filter"] = property_filter
    return Expression(fields, prefixes)


def object_expression(text: str) -> Expression:
    """Read a filter of objects: `partition` (UUIDs with commas), `type`, `project`, `uuid`, `name`, `tag`; else a property.

    `tag=-x` forbids a tag. Raises InvalidInputError.
    """
    built_in, properties = _read(text, {"partition", "type", "project", "uuid", "name"}, repeated="tag")
    fields: dict[str, Any] = {}
    if "partition" in built_in:
        fields["partition_filter"] = {"uuids": built_in["partition"].split(",")}
    if "type" in built_in:
        fields["object_type_filter"] = {"code_filter": _named("code", built_in["type"])}
    if "project" in built_in:
        fields["project"] = built_in["project"]
    for name in ("uuid", "name"):
        if name in built_in:
            fields[f"{name}_filter"] = _named(name, built_in[name])
    tags = [value for key, value in properties if key == "tag"]
    if tags:
        required = [tag for tag in tags if not tag.startswith("-")]
        fields["tag_filter"] = {"require": required, "forbid": [tag[1:] for tag in tags if tag.startswith("-")]}
    property_filter, prefixes = _property_filter([pair for pair in properties if pair[0] != "tag"])
    if property_filter:
        fields["property_filter"] = property_filter
    return Expression(fields, prefixes)


def _read(text: str, built_in: set[str], repeated: str = "") -> tuple[dict[str, str], list[tuple[str, str]]]:
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise InvalidInputError(source=_SOURCE, problem="a quote is not closed") from error
    if not words:
        raise InvalidInputError(source=_SOURCE, problem="the filter is empty")
    named: dict[str, str] = {}
    others: list[tuple[str, str]] = []
    for word in words:
        key, equals, value = word.partition("=")
        is_named = key in built_in or key == repeated
        if not key or (is_named and not value) or key in named:
            raise InvalidInputError(source=_SOURCE, problem=f"{word!r} is not FIELD=VALUE, each field once")
        if key in built_in:
            named[key] = value
        else:
            others.append((key, value if equals else ""))
    return named, others


def _property_filter(pairs: Sequence[tuple[str, str]]) -> tuple[dict[str, Any], tuple[tuple[str, str], ...]]:
    items = [{"key": key, "value": value} for key, value in pairs if value and not value.endswith("*")]
    prefixes = tuple((key, value.removesuffix("*")) for key, value in pairs if value.endswith("*"))
    keys = [key for key, value in pairs if not value or value.endswith("*")]
    made = {name: value for name, value in (("require_items", items), ("require_keys", keys)) if value}
    return made, prefixes


def _named(field: str, text: str) -> dict[str, Any]:
    return {field: text.removesuffix("*"), "use_prefix": text.endswith("*")}
