"""The explorer's part of the OpenAPI description: each page with its JSON twin. The schemas are made from the data's types."""

from inspect import cleandoc
from typing import Any, Final

import msgspec

from keyplan.server.explorer.answers import AreaPage, KeyPage, ListPage, LivePage, Overview, RawPage, TreePage
from keyplan.server.explorer.bounds import LIMIT_DEFAULT, LIMIT_MAX
from keyplan.server.explorer.links import BASE
from keyplan.server.openapi import FAILURE

__all__ = ["DESCRIPTION"]

_PAGES: Final = (Overview, AreaPage, TreePage, ListPage, KeyPage, RawPage, LivePage)
_SCHEMA_PREFIX: Final = "Explorer"


def _path(name: str, description: str) -> dict[str, Any]:
    schema = {"type": "string", "minLength": 1, "pattern": "^[^/]+$"}
    return {"name": name, "in": "path", "required": True, "description": description, "schema": schema}


def _query(name: str, description: str, schema: dict[str, Any] | None = None) -> dict[str, Any]:
    found = {"type": "string"} if schema is None else schema
    return {"name": name, "in": "query", "required": False, "description": description, "schema": found}


_HEX: Final = {"type": "string", "pattern": "^([0-9a-fA-F]{2})*$"}
_AREA: Final = _path("area", "`-`, the whole store, or the name of a key space.")
_LAYOUT: Final = _path("layout", "The label of a layout.")
_ITEM: Final = _path("item", "A table or index of it.")
_FORMAT: Final = _query("format", "The form of the answer; by default as `Accept` says.", {"enum": ["html", "json"]})
_FIELDS: Final = _query(
    "field", "The first fields of the keys, one each.", {"type": "array", "items": {"type": "string"}}
)
_NARROWED: Final = (
    _FIELDS,
    _query("starts_with", "How the field after them begins."),
    _query("page", "The token in the `next` of another page."),
    _query(
        "limit", "Lines at most.", {"type": "integer", "minimum": 1, "maximum": LIMIT_MAX, "default": LIMIT_DEFAULT}
    ),
)
_RAW_PREFIX: Final = _query("hex", "What the keys begin with.", _HEX)
_AFTER: Final = _query(
    "after", "The id of an event; the stream goes on behind it. The header `Last-Event-ID` comes first."
)


def _operation(
    name: str, summary: str, found: type[msgspec.Struct] | None, parameters: tuple[dict[str, Any], ...], *failures: int
) -> dict[str, Any]:
    if found is None:
        content: dict[str, Any] = {"text/event-stream": {"schema": {"type": "string"}}}
        described = "Events until the client goes or the server stops."
    else:
        described = str(found.__doc__).partition("\n")[0]
        content = {
            "application/json": {"schema": {"$ref": f"#/components/schemas/{_SCHEMA_PREFIX}{found.__name__}"}},
            "text/html": {"schema": {"type": "string"}},
        }
    responses: dict[str, Any] = {"200": {"description": described, "content": content}}
    responses |= {str(status): FAILURE for status in (*failures, 400, 401, 403)}
    own = parameters if found is None else (*parameters, _FORMAT)
    return {
        "get": {
            "operationId": name,
            "summary": summary,
            "tags": ["explorer"],
            "parameters": list(own),
            "responses": {**responses, "default": FAILURE},
        }
    }


def _find() -> dict[str, Any]:
    moved = {"Location": {"description": "The key's page.", "schema": {"type": "string"}}}
    parameters = [
        _query("key", "The raw key."),
        _query("as", "How it is spelled: text with \\xNN, or hexadecimal digits.", {"enum": ["text", "hex"]}),
        _query("area", "Where to look; the whole store by default."),
        _FORMAT,
    ]
    responses = {
        "303": {"description": "Where it is.", "headers": moved},
        **{str(status): FAILURE for status in (400, 401, 403, 404)},
        "default": FAILURE,
    }
    summary = "Find the page of a raw key."
    return {
        "get": {
            "operationId": "findKey",
            "summary": summary,
            "tags": ["explorer"],
            "parameters": parameters,
            "responses": responses,
        }
    }


_OF_ITEM: Final = (_AREA, _LAYOUT, _ITEM)
_IN: Final = f"{BASE}/in/{{area}}"

_PATHS: Final[dict[str, Any]] = {
    f"{BASE}/": _operation(
        "exploreStore", "Show the store, and who owns what of it.", Overview, (_query("page", "Of the key spaces."),)
    ),
    f"{BASE}/find": _find(),
    f"{_IN}/": _operation("exploreArea", "Show an area with its layouts and their items.", AreaPage, (_AREA,), 404),
    f"{_IN}/tree/{{layout}}/{{item}}": _operation(
        "exploreLevel", "List the values of the next field of keys.", TreePage, (*_OF_ITEM, *_NARROWED), 404
    ),
    f"{_IN}/list/{{layout}}/{{item}}": _operation(
        "exploreRecords", "List records, or index entries and their records.", ListPage, (*_OF_ITEM, *_NARROWED), 404
    ),
    f"{_IN}/key": _operation(
        "exploreKey",
        "Explain a raw key: its meaning, record, index entries, history.",
        KeyPage,
        (_AREA, _query("hex", "The key.", _HEX)),
        404,
    ),
    f"{_IN}/raw": _operation(
        "exploreRawKeys",
        "List raw keys, level by level of slashes.",
        RawPage,
        (_AREA, _RAW_PREFIX, _query("page", "Where the page begins.", _HEX), _NARROWED[3]),
        404,
    ),
    f"{_IN}/live/{{layout}}/{{item}}": _operation(
        "exploreLive", "Show the changes of records as they are committed.", LivePage, (*_OF_ITEM, _FIELDS), 404
    ),
    f"{_IN}/live": _operation(
        "exploreRawLive", "Show the changes of raw keys as they are committed.", LivePage, (_AREA, _RAW_PREFIX), 404
    ),
    f"{_IN}/changes/{{layout}}/{{item}}": _operation(
        "streamChanges",
        "Tell the changes of records as server-sent events.",
        None,
        (*_OF_ITEM, _FIELDS, _AFTER),
        404,
        410,
        501,
        503,
    ),
    f"{_IN}/changes": _operation(
        "streamRawChanges",
        "Tell the changes of raw keys as server-sent events.",
        None,
        (_AREA, _RAW_PREFIX, _AFTER),
        404,
        410,
        501,
        503,
    ),
}


def _schemas() -> dict[str, Any]:
    """The schemas of the data. Why under a name of their own: other services have a KeySpace, too."""
    _, found = msgspec.json.schema_components(_PAGES, ref_template=f"#/components/schemas/{_SCHEMA_PREFIX}{{name}}")
    return {
        f"{_SCHEMA_PREFIX}{name}": {**schema, "title": name, "description": cleandoc(schema["description"])}
        for name, schema in sorted(found.items())
    }


DESCRIPTION: Final[dict[str, Any]] = {"paths": _PATHS, "components": {"schemas": _schemas()}}
"""Paths and components, as `Service.openapi` takes them."""
