"""Objects as those who ask are shown them: messages, made of the stored bytes by protobuf's own code.

Bytes that are not the one spelling of an object go by its record, which says what is wrong with them, or spells it.
"""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, Final
from uuid import UUID

from google.protobuf.message import DecodeError

from keyplan.apps.runm.answers import object_message
from keyplan.apps.runm.deployment import Deployment, State, generation_of
from keyplan.apps.runm.objects import stored_objects
from keyplan.apps.runm.readable import log_damage
from keyplan.apps.runm.wire_table import messages
from keyplan.errors import CorruptionError
from keyplan.store import PinnedState, entries_in

__all__ = ["is_spelled", "object_messages", "spelled_generation", "whole_object"]

_Object: Final = messages.Object

is_spelled: Final = re.compile(r"[0-9a-f]{32}").fullmatch
"""Whether a text is the one spelling of a UUID."""


def object_messages(deployment: Deployment, state: State, uuids: Sequence[UUID]) -> Iterator[Any]:
    """Yield the objects of these UUIDs that there are, whole, with their generations; one that cannot be read is logged."""
    assert isinstance(state.binding, PinnedState)
    entries = entries_in(state.binding, deployment.bound.table("objects"), uuids)
    for uuid, entry in zip(uuids, entries, strict=True):
        if entry is None:
            continue
        message = whole_object(entry.value)
        if message is not None and message.uuid == uuid.hex and is_spelled(message.partition):
            message.generation = generation_of(entry.version, entry.mod_revision)
        else:
            message = _by_record(state, uuid)
        if message is not None:
            yield message


def whole_object(raw_value: bytes) -> Any:
    """Return the message that these bytes are the one spelling of; None for others, and for those that have a generation."""
    try:
        message = _Object.FromString(raw_value)
    except DecodeError:
        return None
    message.DiscardUnknownFields()
    # Why no generation: it is never stored, and an answer has that of the entry.
    return None if message.generation or message.SerializeToString() != raw_value else message


@lru_cache(1_024)
def spelled_generation(generation: int) -> bytes:
    """Return what an object's stored bytes are followed by in its answer. Invariant: its number is the last of the fields."""
    raw: bytes = _Object(generation=generation).SerializeToString()
    return raw


def _by_record(state: State, uuid: UUID) -> Any:
    (stored,) = stored_objects(state, [uuid])
    if isinstance(stored, CorruptionError):
        log_damage(stored)
        return None
    return None if stored is None else object_message(stored)
