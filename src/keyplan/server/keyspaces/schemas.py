"""The objects of the key space registry's HTTP contract, as JSON schemas. What is done with them: description.py."""

from typing import Any, Final

from keyplan.keyspace import PREFIX_CODECS, PROFILES, FaultKind, Stage, State

__all__ = ["BYTES_IN_HEX", "COUNT", "SCHEMAS", "reference"]

_NAME: Final = "^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$"
_TIME: Final = {"type": "string", "format": "date-time", "description": "RFC 3339, UTC, whole seconds."}
_HEX: Final = {"type": "string", "pattern": "^([0-9a-f]{2})*$"}
BYTES_IN_HEX: Final = {"type": "string", "pattern": "^([0-9A-Fa-f]{2})+$"}
COUNT: Final = {"type": "integer", "minimum": 0}
_BOUND: Final = {"type": ["integer", "null"], "minimum": 0, "maximum": (1 << 63) - 1}


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    return {**schema, "type": [schema["type"], "null"]}


def _object(properties: dict[str, Any], *, optional: tuple[str, ...] = (), is_closed: bool = True) -> dict[str, Any]:
    required = [name for name in properties if name not in optional]
    return {"type": "object", "required": required, "properties": properties, "additionalProperties": not is_closed}


def reference(name: str) -> dict[str, Any]:
    """Return the reference to a schema by its name."""
    return {"$ref": f"#/components/schemas/{name}"}


SCHEMAS: Final[dict[str, Any]] = {
    "KeySpace": _object(
        {
            "id": {"type": "string", "pattern": _NAME, "description": "The name."},
            "name": {"type": "string", "pattern": _NAME},
            "application": {"type": "string", "minLength": 1, "maxLength": 128, "description": "Who owns it."},
            "description": {"type": "string", "maxLength": 4096},
            "prefix": {**_HEX, "minLength": 2, "description": "What its keys begin with, in hex."},
            "prefix_number": {"type": ["integer", "null"], "minimum": 1, "description": "null: a legacy prefix."},
            "range": _object({"start": _HEX, "end": _HEX}),
            "state": {"type": "string", "enum": [*State]},
            "generation": {"type": "integer", "minimum": 1, "description": "Counts those that have had the name."},
            "created_at": _TIME,
            "deleted_at": _or_null(_TIME),
            "delete_completed_at": _or_null(_TIME),
            "delete_progress": _object({"deleted_keys": COUNT, "cursor": _HEX}),
        },
        optional=("delete_progress",),
    ),
    "KeySpaceList": _object(
        {
            "keyspaces": {"type": "array", "items": reference("KeySpace")},
            "next_page_token": {"type": "string", "description": "Empty on the last page."},
            "damaged": {
                "type": "array",
                "items": {"type": "string"},
                "description": "Key spaces whose records cannot be read; left out where there are none.",
            },
        },
        optional=("damaged",),
    ),
    "KeySpaceCreation": {
        **_object(
            {
                "name": {"type": "string", "pattern": _NAME},
                "application": {"type": "string", "minLength": 1, "maxLength": 128},
                "description": {"type": "string", "maxLength": 4096, "default": ""},
                "prefix": {
                    **_or_null(BYTES_IN_HEX),
                    "description": "Only for a prefix that is in use or wanted; chosen otherwise.",
                },
                "if_not_exists": {
                    "type": "boolean",
                    "default": False,
                    "description": "Answer 200 with the one of this name and application that there is.",
                },
                "adopt_existing_data": {
                    "type": "boolean",
                    "default": False,
                    "description": "For administrators: the prefix may have keys already.",
                },
                "allow_legacy_prefix": {
                    "type": "boolean",
                    "default": False,
                    "description": "For administrators: the prefix may be any bytes.",
                },
            },
            optional=("description", "prefix", "if_not_exists", "adopt_existing_data", "allow_legacy_prefix"),
        ),
        "description": "`application_name` is taken for `application` too.",
    },
    "KeySpaceUpdate": {
        **_object({"description": {"type": "string", "maxLength": 4096}}, is_closed=False),
        "description": "Other fields may be sent as they are stored, so that an object that was read can be sent back.",
    },
    "Quota": _object({"keys": _BOUND, "bytes": _BOUND}),
    "KeySpaceUsage": _object({"keys": COUNT, "bytes": COUNT, "quota": reference("Quota"), "counted_at": _TIME}),
    "RegistryConfiguration": _object(
        {
            "keyspace-api-enabled": {"type": "boolean", "description": "Whether clients are answered at all."},
            "self-registration-enabled": {"type": "boolean", "description": "Whether clients may create."},
            "reservations": {
                "type": "array",
                "items": BYTES_IN_HEX,
                "description": "Prefixes that are not given out unasked.",
            },
        },
        is_closed=False,
    ),
    "AuditEntries": _object(
        {
            "entries": {
                "type": "array",
                "items": _object(
                    {
                        "number": {"type": "integer", "minimum": 1},
                        "at": _TIME,
                        "actor": {"type": "string"},
                        "act": {"type": "string"},
                        "name": {"type": "string"},
                        "detail": {"type": "object"},
                        "previous": _HEX,
                        "digest": _HEX,
                    }
                ),
            }
        }
    ),
    "AuditVerdict": _object(
        {
            "is_whole": {"type": "boolean"},
            "entries": COUNT,
            "broken_at": {"type": ["integer", "null"]},
            "problem": {"type": "string"},
            "head": _HEX,
        }
    ),
    "RegistryHeader": _object(
        {
            "format_version": {"type": "integer", "minimum": 1},
            "cluster": {"type": "string", "description": "The registry's own id."},
            "prefix_codec": {"type": "string", "enum": [*PREFIX_CODECS]},
            "profile": {"type": "string", "description": "Whose prefixes are not given out unasked."},
            "created_at": _TIME,
        }
    ),
    "RegistryFounding": {
        **_object(
            {
                "prefix_codec": {"enum": [*PREFIX_CODECS, None]},
                "profile": {"enum": [*sorted(PROFILES), None]},
                "skip_printable": _or_null({"type": "boolean"}),
            },
            optional=("prefix_codec", "profile", "skip_printable"),
        ),
        "description": "What is not given is as the store suggests, or as it is in the registry that there is.",
    },
    "SweepProgress": _object(
        {
            "name": {"type": "string", "pattern": _NAME},
            "stage": {"type": "string", "enum": [*Stage]},
            "deleted_keys": {**COUNT, "description": "Removed since the deletion began."},
            "removed_keys": {**COUNT, "description": "Removed by this request."},
            "waits_for": {"type": "string", "description": "What a waiting one waits for."},
        }
    ),
    "Fault": _object(
        {
            "kind": {"type": "string", "enum": [*FaultKind]},
            "name": {"type": "string", "description": "The key space; empty for the registry's own."},
            "problem": {"type": "string"},
            "is_repairable": {"type": "boolean"},
            "raw_key": {"type": "string", "description": "The entry that is wrong or missing, in hexadecimal digits."},
            "remedy": {"type": "string", "description": "The command that mends it."},
        }
    ),
    "Diagnosis": _object(
        {
            "is_sound": {"type": "boolean"},
            "keyspaces": COUNT,
            "audit_entries": COUNT,
            "faults": {"type": "array", "items": reference("Fault")},
            "unmanaged": {
                "type": "array",
                "description": "Keys that are nobody's.",
                "items": _object(
                    {
                        "prefix": _HEX,
                        "prefix_number": {"type": ["integer", "null"], "minimum": 0},
                        "first_key": _HEX,
                        "keys": {**COUNT, "maximum": 1000},
                        "is_more": {"type": "boolean"},
                    }
                ),
            },
        }
    ),
    "Repaired": _object({"repaired": {"type": "array", "items": reference("Fault")}}),
}
"""The schemas by name."""
