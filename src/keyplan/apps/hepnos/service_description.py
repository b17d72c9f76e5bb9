"""What the HEPnOS service says of its routes in the server's OpenAPI 3.1 description."""

from typing import Any, Final

from keyplan.apps.hepnos.packed import PACKED
from keyplan.server import FAILURE, answers

__all__ = ["DESCRIPTION"]

_PLACE: Final = "/hepnos/databases/{kind}/{number}"
_KIND: Final = {
    "name": "kind",
    "in": "path",
    "required": True,
    "description": "What the database holds.",
    "schema": {"enum": ["datasets", "runs", "subruns", "events", "products"]},
}
_NUMBER: Final = {
    "name": "number",
    "in": "path",
    "required": True,
    "description": "Its number among those of the kind, from 0.",
    "schema": {"type": "integer", "minimum": 0, "maximum": 65_535},
}
_RING: Final = {
    "name": "ring",
    "in": "query",
    "required": True,
    "description": "The BLAKE2b sum of the database's description, of 8 bytes, in hex: whoever knows another ring is refused.",
    "schema": {"type": "string", "pattern": "^[0-9a-f]{16}$"},
}


def _packed(columns: str) -> dict[str, Any]:
    return {"description": columns, "content": {PACKED: {"schema": {"type": "string", "format": "binary"}}}}


def _option(name: str, description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": False, "description": description, "schema": schema}


def _operation(
    summary: str, body: str, answer: Any, *options: dict[str, Any], failures: tuple[str, ...] = ("400", "404", "409")
) -> dict[str, Any]:
    return {
        "post": {
            "summary": summary,
            "tags": ["hepnos"],
            "parameters": [_KIND, _NUMBER, _RING, *options],
            "requestBody": {"required": True, **_packed(body)},
            "responses": {"200": answer, **dict.fromkeys((*failures, "413", "415"), FAILURE), "default": FAILURE},
        }
    }


_FLAG: Final = {"enum": ["0", "1"], "default": "0"}
_RANGE: Final = "One column: the range's first key, and the key that it ends before, or nothing."
_WHOLE: Final = {"type": "integer", "minimum": 0}

DESCRIPTION: Final[dict[str, Any]] = {
    "paths": {
        "/hepnos/databases": {
            "get": {
                "summary": "Say which databases there are, what each remembers of its ring, and its limits.",
                "tags": ["hepnos"],
                "responses": {
                    "200": answers(
                        "The databases of each kind, in order.", {"$ref": "#/components/schemas/HepnosStore"}
                    ),
                    "default": FAILURE,
                },
            }
        },
        f"{_PLACE}/get": _operation(
            "Read the values of keys, as of one state.",
            "One column: the keys.",
            _packed("One column: a value for each key, or nothing."),
        ),
        f"{_PLACE}/list": _operation(
            "Read a page of a range, as of one state.",
            _RANGE,
            {
                **_packed("A column of keys; with `values` a second one of their values."),
                "headers": {
                    "keyplan-more": {
                        "description": "1 when the range goes on behind the page, else 0.",
                        "schema": {"enum": ["0", "1"]},
                    }
                },
            },
            _option("limit", "At most so many keys.", {"type": "integer", "minimum": 1, "default": 65_536}),
            _option("reverse", "1: from the end of the range.", _FLAG),
            _option("values", "1: with values; a page then ends after 8 MiB.", _FLAG),
        ),
        f"{_PLACE}/count": _operation(
            "Count the keys of a range.",
            _RANGE,
            answers("How many.", {"type": "object", "required": ["count"], "properties": {"count": _WHOLE}}),
        ),
        f"{_PLACE}/put": _operation(
            "Write keys, in ascending order, durably, in one commit where the engine has no limits for commits.",
            "Two columns: the keys, and a value for each, or none when all are empty.",
            answers("How many are new.", {"type": "object", "required": ["new"], "properties": {"new": _WHOLE}}),
            _option(
                "mode",
                "`new` leaves what exists, `exist` writes nothing else.",
                {"enum": ["overwrite", "new", "exist"], "default": "overwrite"},
            ),
        ),
        f"{_PLACE}/commit": _operation(
            "Write and remove, all or nothing.",
            "Eight columns: keys that must be absent; keys to write; their values; keys to remove; the first keys of ranges "
            "to remove; the keys that these end before, or nothing; keys that must have the values that were read; for each "
            "the first eight bytes of its value's SHA-1, shifted right by a bit, or 1 for 0.",
            answers("It is done.", {"type": "object"}),
        ),
    },
    "components": {
        "schemas": {
            "HepnosStore": {
                "type": "object",
                "required": ["databases", "page_keys_max"],
                "properties": {
                    "databases": {
                        "type": "object",
                        "additionalProperties": {
                            "type": "array",
                            "items": {"$ref": "#/components/schemas/HepnosDatabase"},
                        },
                    },
                    "page_keys_max": _WHOLE,
                },
            },
            "HepnosDatabase": {
                "type": "object",
                "required": ["description", "value_bytes_max", "commit_bytes_max"],
                "properties": {
                    "description": {
                        "type": "string",
                        "description": "What the database remembers of its ring, as JSON.",
                    },
                    "key_bytes_max": {"type": ["integer", "null"]},
                    "value_bytes_max": _WHOLE,
                    "commit_bytes_max": _WHOLE,
                    "commit_operations_max": {"type": ["integer", "null"]},
                    "capabilities": {"type": "array", "items": {"type": "string"}},
                },
            },
        }
    },
}
