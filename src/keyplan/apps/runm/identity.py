"""What clients write, as what is stored: UUIDs and projects in their one spelling, type codes, and objects within their limits.

Pure: rulings S8, S13, S19, S20, S24 and S26.
"""

import re
from collections.abc import Iterable
from typing import Final
from uuid import UUID

from msgspec import structs

from keyplan.apps.runm.records import Object, ObjectType, ObjectTypeScope
from keyplan.apps.runm.refusal import RefusedError, invalid, missing, property_named
from keyplan.codec import uuid_of_number
from keyplan.errors import InvalidKeyError, RecordError
from keyplan.layout import BoundLayout, BoundTable
from keyplan.store import index_entries_of

__all__ = [
    "DECORATIONS_MAX",
    "KEY_BYTES_MAX",
    "checked_code",
    "checked_object",
    "checked_uuid",
    "decorated_object",
    "parsed_uuid",
    "partition_name_problem",
    "require_key_lengths",
    "spelled_project",
]

DECORATIONS_MAX: Final = 60
"""Properties and tags of one object together. Why: an update that replaces all of them is 124 operations; etcd takes 128."""

KEY_BYTES_MAX: Final = 511
"""The whole of a key. Why: LMDB takes no more, and a store shall be movable from any engine to any other."""

_HEX: Final = re.compile(r"[0-9a-fA-F]{32}")
_CODE: Final = re.compile(r"[a-z0-9_]+(\.[a-z0-9_]+)*")
_RESERVED: Final = frozenset({"object", "default"})
_CODE_BYTES_MAX: Final = 64


def parsed_uuid(text: str) -> UUID | None:
    """Return the UUID that a text spells, in any case, with or without hyphens; None when it spells none."""
    digits = text.replace("-", "") if len(text) == 36 else text
    return uuid_of_number(int(digits, 16)) if _HEX.fullmatch(digits) else None


def checked_uuid(text: str, what: str = "UUID") -> UUID:
    """Return the UUID that a text spells. Raises RefusedError, INVALID_ARGUMENT."""
    uuid = parsed_uuid(text)
    if uuid is None:
        raise invalid(f"{what} is not a UUID.")
    return uuid


def spelled_project(text: str) -> str:
    """Return a project as it is stored: a UUID in its one spelling, anything else as it is."""
    uuid = parsed_uuid(text)
    return text if uuid is None else uuid.hex


def checked_code(code: str) -> str:
    """Return a type's code. Raises RefusedError, INVALID_ARGUMENT, for what cannot be one."""
    if code in _RESERVED or len(code) > _CODE_BYTES_MAX or not _CODE.fullmatch(code):
        raise invalid("a type code is made of words of a-z, 0-9 and _ with dots between them.")
    return code


def partition_name_problem(runm: BoundLayout, name: str) -> str:
    """Why a text cannot be a partition's new name; empty where it can. The rule of every call and command that gives one."""
    if not name:
        return "a partition's name is not empty"
    if parsed_uuid(name) is not None:
        return "a partition's name is no UUID: a session names its partition by either, and must not be ambiguous"
    try:
        size = len(runm.indexes["partitions_by_name"].keys.encode(name))
    except InvalidKeyError as error:
        problem = error.facts.get("problem")
        return "a partition's name fits into a key" + (f": {problem}" if isinstance(problem, str) else "")
    if size > KEY_BYTES_MAX:
        return f"the key of a partition's name has at most {KEY_BYTES_MAX} bytes, and this one would have {size}"
    return ""


def checked_object(runm: BoundLayout, record: Object, object_type: ObjectType) -> Object:
    """Return the object as it is to be stored: each tag once. Raises RefusedError before anything is written."""
    kept = decorated_object(record, object_type)
    table = runm.table("objects")
    try:
        raw_keys = index_entries_of(table, kept.uuid, kept)
    except RecordError as error:
        raise _unfit(table, kept, error) from error
    require_key_lengths(raw_keys)
    return kept


def decorated_object(record: Object, object_type: ObjectType) -> Object:
    """Return the object with each tag once, whose keys are still to be looked at. Raises RefusedError."""
    _check_place(record, object_type)
    properties, tags = record.properties, record.tags
    if len({one.key for one in properties}) < len(properties):
        keys = [one.key for one in properties]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise invalid(f"two properties have the same key: {property_named(twice)}.")
    if len(set(tags)) < len(tags):
        record = structs.replace(record, tags=tuple(dict.fromkeys(tags)))
    if len(properties) + len(record.tags) > DECORATIONS_MAX:
        raise invalid(f"an object has at most {DECORATIONS_MAX} properties and tags together.")
    return record


def require_key_lengths(raw_keys: Iterable[bytes]) -> None:
    """Raise RefusedError, INVALID_ARGUMENT, for index keys of an object of which one is too long."""
    longest = max(map(len, raw_keys), default=0)
    if longest > KEY_BYTES_MAX:
        raise invalid(f"an index key of the object would have {longest} bytes; at most {KEY_BYTES_MAX} are allowed.")


def _check_place(record: Object, object_type: ObjectType) -> None:
    if not record.name:
        raise missing("name is required.")
    if object_type.scope is ObjectTypeScope.PROJECT and not record.project:
        raise missing("project is required.")
    if object_type.scope is ObjectTypeScope.PARTITION and record.project:
        raise invalid("objects of this type belong to their partition, not to a project.")


def _unfit(table: BoundTable, record: Object, error: RecordError) -> RefusedError:
    """Why not the error's facts: they may quote what was given."""
    problem = error.facts.get("problem")
    reason = f": {problem}" if isinstance(problem, str) else ""
    bare = structs.replace(record, properties=(), tags=())
    alone = {property_named(one.key): structs.replace(bare, properties=(one,)) for one in record.properties}
    if not _fits(table, bare):
        what = "the name or project"
    else:
        what = next((named for named, one in alone.items() if not _fits(table, one)), "a tag")
    return invalid(f"{what} does not fit into a key{reason}.")


def _fits(table: BoundTable, record: Object) -> bool:
    try:
        index_entries_of(table, record.uuid, record)
    except RecordError:
        return False
    return True
