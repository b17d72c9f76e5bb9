"""What a store holds from the first start on: types, the default definition, the bootstrap token.

And the look at whether the property and tag indexes may be trusted.
"""

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final
from uuid import uuid4

from keyplan.access import sum_of_token
from keyplan.apps.runm.deployment import PROVIDER, Deployment, State
from keyplan.apps.runm.layout import IndexesKept, ObjectSubType
from keyplan.apps.runm.migrate import refuse_unserved
from keyplan.apps.runm.records import ObjectDefinition, ObjectType, ProviderType
from keyplan.apps.runm.well_known import WELL_KNOWN_OBJECT_TYPES, WELL_KNOWN_PROVIDER_TYPES, known_types
from keyplan.codec import Secret
from keyplan.errors import AlreadyExistsError
from keyplan.layout import Only
from keyplan.maintenance import list_indexes, prepare_index

__all__ = [
    "DEFAULT_SCHEMA",
    "SEARCH_INDEXES",
    "default_schema",
    "ensure_started",
    "is_untouched_default",
    "unreadable_indexes",
]

SEARCH_INDEXES: Final = ("objects_by_property", "objects_by_tag")
"""K13 and K14, which the original never wrote."""


def default_schema() -> dict[str, Any]:
    """Return a new copy of the schema of providers for which nobody has set one."""
    text = {"type": "string"}
    return {
        "$id": "https://runmachine.io/runm.provider.schema.json",
        "$schema": "http://json-schema.org/draft-07/schema#",
        "description": "A provider of resources",
        "type": "object",
        "properties": {
            "partition": dict(text),
            "provider_type": dict(text),
            "name": dict(text),
            "uuid": dict(text),
            "parent": dict(text),
            "tags": {"type": "array", "items": dict(text)},
            "properties": {
                "type": "object",
                "patternProperties": {"^[a-zA-Z0-9]*$": dict(text)},
                "required": [],
                "additionalProperties": False,
            },
        },
        "required": ["partition", "provider_type"],
        "additionalProperties": False,
    }


DEFAULT_SCHEMA: Final = json.dumps(default_schema(), indent=2)
"""The text that is stored at the first start."""


def is_untouched_default(definition: ObjectDefinition) -> bool:
    """Whether a definition is the one that the service made itself, here or in the original: nobody's explicit wish."""
    if definition.property_permissions:
        return False
    try:
        return bool(json.loads(definition.schema) == default_schema())
    except (ValueError, RecursionError):
        return False


def ensure_started(
    deployment: Deployment,
    *,
    object_types: tuple[ObjectType, ...] = (),
    provider_types: tuple[ProviderType, ...] = (),
) -> None:
    """Write what is missing, and nothing else. Raises InvalidInputError for a store of the original's that needs a migration.

    Any number of servers may start at once on one store. `object_types` and `provider_types` are an operator's own.
    """
    _look_at_indexes(deployment, known_types(deployment, object_types))
    _ensure_types(deployment, (*WELL_KNOWN_OBJECT_TYPES, *object_types), (*WELL_KNOWN_PROVIDER_TYPES, *provider_types))
    deployment.store.run(lambda transaction: _ensure_default_definition(deployment.over(transaction)))
    deployment.store.run(lambda transaction: _ensure_token(deployment, deployment.over(transaction)))


def _ensure_types(
    deployment: Deployment, object_types: tuple[ObjectType, ...], provider_types: tuple[ProviderType, ...]
) -> None:
    with deployment.reading() as state:
        known = set(state.runm.object_types.keys())
        known_sub_types = set(state.runm.sub_types.keys(PROVIDER))
    for kind in object_types:
        if kind.code not in known:
            _insert_unless_there(partial(deployment.runm.object_types.insert, kind.code, kind))
    for sub_kind in provider_types:
        key = ObjectSubType(PROVIDER, sub_kind.code)
        if key not in known_sub_types:
            _insert_unless_there(partial(deployment.runm.sub_types.insert, key, sub_kind))


def _insert_unless_there(insert: Callable[[], object]) -> None:
    # Why: another server that starts at the same time may be first, and writes the same.
    try:
        insert()
    except AlreadyExistsError:
        return


def _ensure_default_definition(state: State) -> None:
    # Why not by what it says: a damaged one is for an operator to set anew, and keeps nobody from starting.
    if not state.runm.type_definitions.exists(PROVIDER):
        uuid = uuid4()
        state.runm.type_definitions.insert(PROVIDER, uuid)
        state.runm.definitions.insert(uuid, ObjectDefinition(uuid, DEFAULT_SCHEMA))


def _ensure_token(deployment: Deployment, state: State) -> None:
    """K15 is there only while a token is configured that nobody has used yet: its sum, so that no copy of the store has it."""
    token = deployment.rulings.bootstrap_token
    stored = state.runm.bootstrap_token.get(Only())
    if token and state.is_empty:
        if stored != (given := Secret(sum_of_token(token))):
            state.runm.bootstrap_token.put(Only(), given)
    elif stored is not None:
        state.runm.bootstrap_token.delete(Only())


def _look_at_indexes(deployment: Deployment, types: Mapping[str, ObjectType]) -> None:
    """In a store with objects that keyplan did not write, K13 and K14 are not there: say so, before anybody reads them.

    In order: every key is looked at, the indexes are made write-only, then it is noted that somebody has looked.
    """
    # Why not what it says: that it stands there is what counts.
    if deployment.beside.indexes_kept.exists(Only()):
        return
    # Invariant: before the note. Where it stands, keyplan alone has written since somebody looked.
    refuse_unserved(deployment, types)

    def note_when_empty(state: State) -> bool:
        """Whether there was a note, or is one now. Why in a transaction: no object may come between the look and the note."""
        if state.beside.indexes_kept.exists(Only()):
            return True
        if next(state.runm.objects.keys(limit=1), None) is not None:
            return False
        state.beside.indexes_kept.insert(Only(), IndexesKept(is_kept=True))
        return True

    if deployment.store.run(lambda transaction: note_when_empty(deployment.over(transaction))):
        return
    for name in SEARCH_INDEXES:
        prepare_index(deployment.store, deployment.bound, name)
    _insert_unless_there(lambda: deployment.beside.indexes_kept.insert(Only(), IndexesKept(is_kept=False)))


def unreadable_indexes(deployment: Deployment) -> dict[str, str]:
    """Return the search indexes that may not be read, each with its state."""
    found = list_indexes(deployment.store, deployment.bound)
    return {status.name: status.stage for status in found if not status.is_readable}
