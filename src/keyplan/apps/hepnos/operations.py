"""The operations of a HEPnOS server, each declared once: the server's routes and their description are made of it.

As in HEPnOS itself, a server has databases and knows nothing of events: whoever uses it makes the keys and places them. All but
one are packed operations on many keys at once, in columns (packed.py). Both sides take paths, words and columns from here.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Final

import msgspec

from keyplan.apps.hepnos.errors import DeletedError
from keyplan.apps.hepnos.keys import Kind
from keyplan.apps.hepnos.packed import PACKED, JoinedColumn, pack, unpack, whole
from keyplan.apps.hepnos.queue_operations import NEEDS as QUEUE_NEEDS
from keyplan.apps.hepnos.queue_operations import Done
from keyplan.engine import KeyRange
from keyplan.errors import CommitConflictError, InvalidInputError
from keyplan.operations import (
    NOTHING,
    Act,
    Answered,
    AnswerForm,
    BodyForm,
    Change,
    Contract,
    In,
    Need,
    Schema,
    WordForm,
    needs_of,
    operation,
)

__all__ = [
    "COLUMNS_BYTES_MAX",
    "CONTRACT",
    "MODES",
    "MORE_HEADER",
    "NEEDS",
    "PAGE_KEYS_MAX",
    "Changes",
    "Columns",
    "Counted",
    "Database",
    "DatabaseOperations",
    "Store",
    "Written",
    "checked_mode",
    "digest_of",
]

Columns = Sequence[Sequence[bytes | None] | JoinedColumn]

PAGE_KEYS_MAX: Final = 65_536

COLUMNS_BYTES_MAX: Final = 64 << 20
"""Of a request. Why: a commit of ten thousand products of 4 KiB fits. How many are read at once, their caller's share says."""

_DIGITS_MAX: Final = 18

MORE_HEADER: Final = "keyplan-more"
"""Of a page: `1` when its range goes on behind it, else `0`."""

CONTRACT: Final = Contract("hepnos", always=())

MODES: Final = ("overwrite", "new", "exist")
"""What a write does with a key that is there, or that is not."""


def checked_mode(mode: str) -> str:
    """Return a mode of writing. Raises InvalidInputError."""
    if mode not in MODES:
        raise InvalidInputError(source="mode", problem=f"a mode is one of {', '.join(MODES)}, not {mode!r}")
    return mode


def digest_of(description: bytes) -> str:
    """Return what requests name a database's ring by."""
    return hashlib.blake2b(description, digest_size=8).hexdigest()


# ---- what is answered ------------------------------------------------------------------------------------------------------


class Database(msgspec.Struct, frozen=True, kw_only=True):
    """A database of a server, with its limits."""

    schema_name = "HepnosDatabase"

    description: Annotated[str, Schema("What the database remembers of its ring, as JSON.")]
    key_bytes_max: int | None = None
    value_bytes_max: Annotated[int, msgspec.Meta(ge=1), Schema(minimum=0)]
    commit_bytes_max: Annotated[int, msgspec.Meta(ge=1), Schema(minimum=0)]
    commit_operations_max: int | None = None
    capabilities: tuple[str, ...] = ()


class Store(msgspec.Struct, frozen=True, kw_only=True):
    """The databases of each kind, in order."""

    schema_name = "HepnosStore"

    databases: dict[str, list[Database]]
    page_keys_max: Annotated[int, Schema(minimum=0)] = PAGE_KEYS_MAX


class Counted(msgspec.Struct, frozen=True):
    """How many keys there are."""

    schema_name = "HepnosCount"

    count: Annotated[int, Schema(minimum=0)]


class Written(msgspec.Struct, frozen=True):
    """How many of the keys that were written are new."""

    schema_name = "HepnosWritten"

    new: Annotated[int, Schema(minimum=0)]


# ---- how it stands in requests -----------------------------------------------------------------------------------------------


def _range(body: bytes) -> KeyRange:
    (ends,) = unpack(body, 1)
    if len(ends) != 2 or ends[0] is None:
        raise InvalidInputError(source="body", problem="a range is given by its start, and its end or nothing")
    return KeyRange(ends[0], ends[1])


def _body(
    words: str, read: Callable[[bytes], Mapping[str, Any]], write: Callable[[Mapping[str, Any]], bytes]
) -> BodyForm:
    return BodyForm(bytes, read, write, schema=Annotated[bytes, Schema(words)], content_type=PACKED)


def _whole_columns(words: str, *names: str) -> BodyForm:
    return _body(
        words,
        lambda body: dict(zip(names, map(whole, unpack(body, len(names))), strict=True)),
        lambda fields: pack(*(fields[name] for name in names)),
    )


def _one(argument: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or not text.strip("0"):
        raise InvalidInputError(source=argument, problem="it is a whole number from 1 on")
    # Why: a page has its own bound, and Python reads no number of thousands of digits.
    return int(text) if len(text) <= _DIGITS_MAX else PAGE_KEYS_MAX


def _flag(argument: str, text: str) -> bool:
    if text not in {"0", "1"}:
        raise InvalidInputError(source=argument, problem="it is 0 or 1")
    return text == "1"


_FLAG: Final = WordForm(_flag, lambda is_on: str(int(is_on)), {"enum": ["0", "1"], "default": "0"})
_LIMIT: Final = WordForm(_one, str, {"type": "integer", "minimum": 1, "default": PAGE_KEYS_MAX})
_MODE: Final = WordForm(lambda _argument, text: checked_mode(text), str, {"enum": [*MODES], "default": MODES[0]})

InKind = Annotated[Kind, Schema("What the database holds.")]
InNumber = Annotated[int, Schema("Its number among those of the kind, from 0.", minimum=0, maximum=65_535)]
InRing = Annotated[
    str,
    In(form=WordForm(lambda _argument, text: text, str, {"pattern": "^[0-9a-f]{16}$"})),
    Schema("The BLAKE2b sum of the database's description, of 8 bytes, in hex: whoever knows another ring is refused."),
]

# Why on nothing: who asks has databases of what they are granted, in which the rest is not there.
_TO_READ: Final = Need(Act.READ, NOTHING)
_TO_WRITE: Final = Need(Act.WRITE, NOTHING)

_PLACE: Final = "/hepnos/databases/{kind}/{number}"
_FAILURES: Final[dict[str, Any]] = {
    "raises": (InvalidInputError, CommitConflictError, DeletedError),
    "failures": (404, 413, 415),
}

_KEYS: Final = _whole_columns("One column: the keys.", "keys")
_RANGE: Final = _body(
    "One column: the range's first key, and the key that it ends before, or nothing.",
    lambda body: {"key_range": _range(body)},
    lambda fields: pack([fields["key_range"].start, fields["key_range"].end]),
)
_PAIRS: Final = _whole_columns(
    "Two columns: the keys, and a value for each, or none when all are empty.", "keys", "values"
)


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """The eight columns of a commit."""

    absent: Sequence[bytes | None]
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    removed: Sequence[bytes | None]
    starts: Sequence[bytes | None]
    ends: Sequence[bytes | None]
    unchanged: Sequence[bytes | None]
    fingerprints: Sequence[bytes | None]


_CHANGES: Final = _body(
    "Eight columns: keys that must be absent; keys to write; their values; keys to remove; the first keys of ranges "
    "to remove; the keys that these end before, or nothing; keys that must have the values that were read; for each "
    "the first eight bytes of its value's SHA-1, shifted right by a bit, or 1 for 0.",
    lambda body: {"changes": Changes(**dict(zip(Changes.__struct_fields__, unpack(body, 8), strict=True)))},
    lambda fields: pack(*msgspec.structs.astuple(fields["changes"])),
)


class DatabaseOperations:
    """What a server does: one operation tells which databases there are, all others are on one of them."""

    @operation(
        "GET",
        "/hepnos/databases",
        name="listHepnosDatabases",
        needs=_TO_READ,
        answers="The databases of each kind, in order.",
    )
    def databases(self) -> Store:
        """Say which databases there are, what each remembers of its ring, and its limits."""
        raise NotImplementedError

    @operation(
        "POST",
        f"{_PLACE}/get",
        name="getHepnosValues",
        needs=_TO_READ,
        answers="A value for each key, or nothing.",
        body=_KEYS,
        answer=AnswerForm(
            pack,
            lambda body: unpack(body, 1)[0],
            Annotated[bytes, Schema("One column: a value for each key, or nothing.")],
            PACKED,
        ),
        is_quick=True,
        **_FAILURES,
    )
    def get_values(
        self, kind: InKind, number: InNumber, *, ring: InRing, keys: Sequence[bytes]
    ) -> Sequence[bytes | None]:
        """Read the values of keys, as of one state."""
        raise NotImplementedError

    @operation(
        "POST",
        f"{_PLACE}/list",
        name="listHepnosKeys",
        needs=_TO_READ,
        answers="A page.",
        headers={MORE_HEADER: "1 when the range goes on behind the page, else 0."},
        body=_RANGE,
        answer=AnswerForm(
            lambda columns: pack(*columns),
            bytes,  # Why unread: who asked knows how many columns it has.
            Annotated[bytes, Schema("A column of keys; with `values` a second one of their values.")],
            PACKED,
        ),
        is_quick=True,
        **_FAILURES,
    )
    def page(
        self,
        kind: InKind,
        number: InNumber,
        *,
        ring: InRing,
        key_range: KeyRange,
        limit: Annotated[int, In(form=_LIMIT), Schema("At most so many keys.")] = PAGE_KEYS_MAX,
        reverse: Annotated[bool, In(form=_FLAG), Schema("1: from the end of the range.")] = False,
        values: Annotated[bool, In(form=_FLAG), Schema("1: with values; a page then ends after 8 MiB.")] = False,
    ) -> Answered[Columns]:
        """Read a page of a range, as of one state."""
        raise NotImplementedError

    @operation(
        "POST",
        f"{_PLACE}/count",
        name="countHepnosKeys",
        needs=_TO_READ,
        answers="How many.",
        body=_RANGE,  # Why not quick: a count goes through all keys of the range.
        **_FAILURES,
    )
    def count(self, kind: InKind, number: InNumber, *, ring: InRing, key_range: KeyRange) -> Counted:
        """Count the keys of a range."""
        raise NotImplementedError

    @operation(
        "POST",
        f"{_PLACE}/put",
        name="putHepnosPairs",
        change=Change("put", "{kind}/{number}"),
        needs=_TO_WRITE,
        answers="How many are new.",
        body=_PAIRS,
        **_FAILURES,
    )
    def put(
        self,
        kind: InKind,
        number: InNumber,
        *,
        ring: InRing,
        keys: Sequence[bytes],
        values: Sequence[bytes],
        mode: Annotated[str, In(form=_MODE), Schema("`new` leaves what exists, `exist` writes nothing else.")] = MODES[
            0
        ],
    ) -> Written:
        """Write keys, in ascending order, durably, in one commit where the engine has no limits for commits."""
        raise NotImplementedError

    @operation(
        "POST",
        f"{_PLACE}/commit",
        name="commitHepnos",
        change=Change("commit", "{kind}/{number}"),
        needs=_TO_WRITE,
        answers="It is done.",
        body=_CHANGES,
        **_FAILURES,
    )
    def commit(self, kind: InKind, number: InNumber, *, ring: InRing, changes: Changes) -> Done:
        """Write and remove, all or nothing."""
        raise NotImplementedError


NEEDS: Final = {**needs_of(DatabaseOperations), **QUEUE_NEEDS}
"""What each operation of the service needs, those on queues included, for `keyplan.access`."""
