"""What the registry answers: key spaces, pages of them, usage, owners of keys. How they are found: registry.py."""

import re
from collections.abc import Mapping
from enum import StrEnum, auto
from typing import Annotated, Any, ClassVar, Final, NamedTuple, Self

import msgspec
from msgspec import structs

from keyplan.engine import KeyRange
from keyplan.errors import GenerationMismatchError, InvalidInputError, OwnerConflictError
from keyplan.keyspace.records import (
    COUNT,
    HEX,
    NAME_PATTERN,
    TIME,
    AuditEntry,
    KeySpaceRange,
    KeySpaceRecord,
    Quota,
    State,
)
from keyplan.operations import Schema

__all__ = [
    "IDENTITY_PATTERN",
    "AuditItem",
    "DeleteProgress",
    "Ensured",
    "KeySpace",
    "KeySpaceIdentity",
    "KeySpacePage",
    "Owner",
    "OwnerKind",
    "Usage",
]


IDENTITY_PATTERN: Final = r"^[1-9][0-9]{0,17}/[\s\S]{1,128}$"
"""Generation and application in one word. Why one: neither says anything without the other, and a description can say so."""


class KeySpaceIdentity(NamedTuple):
    """Which of the key spaces that have had a name is meant, and whose it is.

    A plan carries it, and the act that takes a step of the plan checks it: the name alone may be another's by then.
    """

    generation: int
    application: str

    @classmethod
    def parsed(cls, text: str) -> Self | None:
        """Return the identity that a text says, as in 3/orders; None when it says none."""
        if not re.fullmatch(IDENTITY_PATTERN, text, re.ASCII):
            return None
        generation, _, application = text.partition("/")
        return cls(int(generation), application)

    def require(self, found: "KeySpace | KeySpaceRecord") -> None:
        """Raise GenerationMismatchError, OwnerConflictError when what has the name now is another key space."""
        if found.generation != self.generation:
            raise GenerationMismatchError(name=found.name, generation=self.generation, current=found.generation)
        if found.application != self.application:
            raise OwnerConflictError(name=found.name, application=self.application, owner=found.application)


class DeleteProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far the removal of a key space's data is: how many keys are gone, and before which key, in hex, nothing is left."""

    deleted_keys: COUNT
    cursor: HEX


class KeySpace(msgspec.Struct, frozen=True, kw_only=True):
    """A key space, in exactly the fields of its JSON form. Times are RFC 3339 in UTC; bytes are lower-case hex.

    `delete_progress` is what a server adds to one that is being deleted.
    """

    id: Annotated[str, Schema("The name.", pattern=NAME_PATTERN)]
    name: Annotated[str, Schema(pattern=NAME_PATTERN)]
    application: Annotated[str, Schema("Who owns it.", minLength=1, maxLength=128)]
    description: Annotated[str, Schema(maxLength=4096)]
    prefix: Annotated[HEX, Schema("What its keys begin with, in hex.", minLength=2)]
    prefix_number: Annotated[int | None, Schema("null: a legacy prefix.", minimum=1)]
    range: KeySpaceRange
    state: State
    generation: Annotated[int, Schema("Counts those that have had the name.", minimum=1)]
    created_at: TIME
    deleted_at: TIME | None
    delete_completed_at: TIME | None
    delete_progress: DeleteProgress | msgspec.UnsetType = msgspec.UNSET

    @classmethod
    def of_record(cls, record: KeySpaceRecord) -> Self:
        """Return what the API shows of a stored record."""
        return cls(**{name: getattr(record, name) for name in cls.__struct_fields__ if name != "delete_progress"})

    @classmethod
    def from_json(cls, value: object) -> Self:
        """Return the key space that a JSON object describes; fields of later versions are left out.

        Raises InvalidInputError.
        """
        try:
            return msgspec.convert(value, cls)
        except msgspec.ValidationError as error:
            raise InvalidInputError(source="key space", problem=str(error)) from error

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object of the HTTP contract."""
        shown: dict[str, Any] = msgspec.to_builtins(self)
        return shown

    @property
    def identity(self) -> KeySpaceIdentity:
        """What tells this key space from others that have had, or will have, its name."""
        return KeySpaceIdentity(self.generation, self.application)

    @property
    def raw_prefix(self) -> bytes:
        """The prefix as bytes."""
        return bytes.fromhex(self.prefix)

    @property
    def key_range(self) -> KeyRange:
        """The keys of the store that are this key space's."""
        return KeyRange.of_prefix(self.raw_prefix)


class Ensured(NamedTuple):
    """A key space that there is now; `is_new` when it was made for this."""

    keyspace: KeySpace
    is_new: bool


class KeySpacePage(NamedTuple):
    """A part of the list, in the order in which they were made, and the token that continues it; empty on the last page.

    `damaged` names key spaces whose records cannot be read, and which may belong on the page; the doctor says what is wrong.
    """

    keyspaces: list[KeySpace]
    next_page_token: str
    damaged: tuple[str, ...] = ()

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Return the page that a JSON object describes. Raises InvalidInputError, KeyError."""
        found = [KeySpace.from_json(keyspace) for keyspace in value["keyspaces"]]
        return cls(found, str(value["next_page_token"]), tuple(map(str, value.get("damaged", ()))))

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object of the HTTP contract."""
        shown = [keyspace.to_json() for keyspace in self.keyspaces]
        told = {"damaged": list(self.damaged)} if self.damaged else {}
        return {"keyspaces": shown, "next_page_token": self.next_page_token, **told}


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """How much a key space holds, counted at `counted_at`: bytes are those of keys (without the prefix) and values."""

    schema_name: ClassVar[str] = "KeySpaceUsage"
    keys: COUNT
    bytes: COUNT
    quota: Quota
    counted_at: TIME

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object of the HTTP contract."""
        shown: dict[str, Any] = msgspec.to_builtins(self)
        return shown


class OwnerKind(StrEnum):
    """Whose a key is."""

    SYSTEM = auto()
    KEYSPACE = auto()
    UNMANAGED = auto()


class Owner(NamedTuple):
    """Whose a key is: the registry's, a key space's, or nobody's. `prefix` is the codeword or registered prefix it begins with.

    `number` is that of the codeword; both are None where the key begins with none.
    """

    kind: OwnerKind
    keyspace: KeySpace | None
    prefix: bytes | None
    number: int | None


class AuditItem(NamedTuple):
    """An entry of the audit log with its number; `digest` is what the entry after it names as its previous one.

    `revision` is the store's after the commit that wrote the entry: that of the act, or of the restore or copy that brought it.
    """

    number: int
    entry: AuditEntry
    digest: str
    revision: int

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Return the entry that a JSON object describes. Raises KeyError, ValueError, msgspec.ValidationError."""
        entry = msgspec.convert(value, AuditEntry)
        return cls(int(value["number"]), entry, str(value["digest"]), int(value["revision"]))

    def to_json(self) -> dict[str, Any]:
        """Return the entry as a JSON object with its number, digest and revision."""
        return {
            "number": self.number,
            **structs.asdict(self.entry),
            "digest": self.digest,
            "revision": self.revision,
        }
