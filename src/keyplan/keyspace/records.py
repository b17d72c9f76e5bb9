"""What the registry of key spaces stores. Where it stands: layout.py; what may be done with it is not here.

Times are RFC 3339 in UTC; bytes (prefixes, keys) are lower-case hexadecimal text, as the API shows them. What is not so cannot
be made of stored or given bytes: it does not decode, and so no code meets it.
"""

from datetime import datetime
from enum import StrEnum, auto
from typing import Annotated, Any, ClassVar, Final

import msgspec

from keyplan.codec import U64, TextForm, ValueForm
from keyplan.errors import CorruptionError, InvalidKeyError, InvalidRecordError
from keyplan.operations import Schema

__all__ = [
    "APPLICATION_PATTERN",
    "BOUND",
    "COUNT",
    "GENERATION_MAX",
    "HEX",
    "HEX_GIVEN_PATTERN",
    "NAME_PATTERN",
    "ORDERED",
    "PREFIX_TEXT_BYTES_MAX",
    "TIME",
    "UVARINT",
    "AuditEntry",
    "AuditHead",
    "Configuration",
    "Deletion",
    "Fence",
    "FenceForm",
    "Header",
    "KeySpaceRange",
    "KeySpaceRecord",
    "Mark",
    "MarkKind",
    "PrefixHolder",
    "Quota",
    "Session",
    "State",
    "Sweeping",
    "UsageCount",
]


GENERATION_MAX: Final = (1 << 53) - 1
"""Why: every reader of JSON has such numbers exactly, and no name is made anew so often."""

PREFIX_TEXT_BYTES_MAX: Final = 255
"""Why: a prefix stands in the registry's keys, and those fit LMDB's 511 bytes."""


APPLICATION_PATTERN: Final = r"^[^\s*\u0000-\u001f\u007f]+$"
"""What every new application's name is like. Why more than they are: no regular expression knows all that does not print."""
NAME_PATTERN: Final = "^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$"
"""Names of key spaces, as a regular expression of JSON Schema."""

UVARINT: Final = "uvarint"
ORDERED: Final = "ordered"
"""The names of the codecs that make prefixes of numbers."""

HEX_PATTERN: Final = "^([0-9a-f]{2})*$"
HEX_GIVEN_PATTERN: Final = "^([0-9A-Fa-f]{2})+$"
"""Bytes as the API shows them, and as it takes them."""

HEX = Annotated[str, Schema(pattern=HEX_PATTERN)]
TIME = Annotated[str, Schema("RFC 3339, UTC, whole seconds.", format="date-time")]
COUNT = Annotated[int, Schema(minimum=0)]
BOUND = Annotated[int | None, Schema(minimum=0, maximum=(1 << 63) - 1)]


def _check_hex(field: str, text: str) -> None:
    if bytes.fromhex(text).hex() != text:
        raise ValueError(f"{field} is not spelled in lower-case hex digits")


def _check_time(field: str, text: str | None) -> None:
    if text is not None and datetime.fromisoformat(text).tzinfo is None:
        raise ValueError(f"{field} is a time without a zone")


def _check_count(field: str, number: int | None) -> None:
    if number is not None and not 0 <= number < 1 << 63:
        raise ValueError(f"{field} is a number from 0 to 2^63-1")


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """What was decided when the registry was made, for ever: how numbers become prefixes, and for which kind of store."""

    schema_name: ClassVar[str] = "RegistryHeader"
    format_version: Annotated[int, Schema(minimum=1)]
    cluster: Annotated[str, Schema("The registry's own id.")]
    prefix_codec: Annotated[str, Schema(enum=[UVARINT, ORDERED])]
    profile: Annotated[str, Schema("Whose prefixes are not given out unasked.")]
    created_at: TIME

    def __post_init__(self) -> None:
        if not self.cluster:
            raise ValueError("a registry has an id")


class State(StrEnum):
    """Where a key space is in its life. Opens and writes are for ENABLED ones only."""

    ENABLED = "ENABLED"
    DISABLED = "DISABLED"
    DELETING = "DELETING"
    DELETED = "DELETED"
    RESTORING = "RESTORING"


class KeySpaceRange(msgspec.Struct, frozen=True):
    """The keys of a key space: from `start` up to, not including, `end`."""

    start: HEX
    end: HEX


class KeySpaceRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A key space as it is stored; what of it the API shows is `KeySpace`.

    `generation` counts the key spaces that have had this name, `prefix_epoch` those that have had this prefix, and `sequence`
    is the number of the act that made it: lists are in its order.
    """

    id: str
    name: str
    application: str
    description: str = ""
    prefix: str
    prefix_number: int | None
    range: KeySpaceRange
    state: State
    generation: int
    created_at: str
    deleted_at: str | None = None
    delete_completed_at: str | None = None
    sequence: int = 0
    prefix_epoch: int = 1

    def __post_init__(self) -> None:
        _check_hex("prefix", self.prefix)
        if not 1 <= len(self.prefix) // 2 <= PREFIX_TEXT_BYTES_MAX:
            raise ValueError(f"a prefix has 1 to {PREFIX_TEXT_BYTES_MAX} bytes")
        if not 1 <= self.generation <= GENERATION_MAX:
            raise ValueError(f"a generation is from 1 to {GENERATION_MAX}")
        _check_count("sequence", self.sequence)
        _check_count("prefix_epoch", self.prefix_epoch)


class PrefixHolder(msgspec.Struct, frozen=True):
    """Whose a prefix is."""

    name: str
    generation: int


class Fence(msgspec.Struct, frozen=True):
    """What every read and commit of a handle compares: changes when a key space is made, disabled or deleted, not otherwise.

    `cluster` is the id of the registry that wrote it, as its header says it: so one look tells whose key space it is as well.
    """

    generation: int
    state: State
    cluster: str

    def is_of(self, record: KeySpaceRecord) -> bool:
        """Tell whether it says what is due by a record; of which registry it is, is not asked."""
        return (self.generation, self.state) == (record.generation, record.state)


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One act on the registry. `previous` is the SHA-256 of the entry before, so that none can be taken out unseen."""

    at: str
    actor: str
    act: str
    name: str
    detail: dict[str, Any] = {}
    previous: str


class AuditHead(msgspec.Struct, frozen=True, kw_only=True):
    """The number and digest of the log's last entry: a last entry that was edited, or cut off, does not agree with it."""

    number: int
    digest: str


class MarkKind(StrEnum):
    """Why the allocator passes a prefix over."""

    COOLING_DOWN = auto()
    QUARANTINED = auto()
    LEGACY_CONTAINER = auto()


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """A prefix that is nobody's and yet not free: until a time, or for ever. `first_key` is what was found below it.

    A prefix that has cooled down keeps its mark until it is used again: `epoch` counts the key spaces that have had it.
    """

    kind: MarkKind
    until: str | None = None
    first_key: str | None = None
    epoch: int = 0

    def __post_init__(self) -> None:
        _check_time("until", self.until)
        _check_hex("first_key", self.first_key or "")
        _check_count("epoch", self.epoch)


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """A client that has the key space open."""

    application: str
    generation: int
    opened_at: str


class Deletion(msgspec.Struct, frozen=True, kw_only=True):
    """How far the deletion of a key space's data is: everything before `cursor` is gone.

    No key is removed before `not_before`, nor while clients have the key space open and it is before `clients_until`.
    `is_begun` once a key may have been removed: until then the deletion can be taken back, to `previous_state`. `number` is
    that of the act which began it, and names this deletion: one that is begun after it was taken back is another.
    """

    cursor: str
    number: int = 0
    deleted_keys: int = 0
    not_before: str
    clients_until: str
    is_begun: bool = False
    previous_state: State = State.ENABLED

    def __post_init__(self) -> None:
        _check_hex("cursor", self.cursor)
        _check_time("not_before", self.not_before)
        _check_time("clients_until", self.clients_until)
        _check_count("deleted_keys", self.deleted_keys)


class Quota(msgspec.Struct, frozen=True, kw_only=True):
    """How much a key space may hold; None: any amount. Bytes are those of its keys, without the prefix, and values."""

    keys: BOUND = None
    bytes: BOUND = None

    def __post_init__(self) -> None:
        _check_count("keys", self.keys)
        _check_count("bytes", self.bytes)


class UsageCount(msgspec.Struct, frozen=True, kw_only=True):
    """How much a key space held when it was last counted."""

    keys: int
    bytes: int
    generation: int
    counted_at: str


class Sweeping(msgspec.Struct, frozen=True, kw_only=True):
    """Who removes the data of deleted key spaces now; lives on the sweeper's lease."""

    by: str
    since: str


class Configuration(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", forbid_unknown_fields=True):
    """The registry's switches. The API is off until the prefixes in use are registered (KS-51).

    `reservations` are prefixes, in hex, that nobody gets; `skip_printable` keeps those that the keys of text applications
    begin with from being given out unasked. `protected` names key spaces that may not be deleted. A client that nobody can
    see has given up after `max_client_lease_seconds`. `reuse_cooldown_seconds` pass before a freed prefix is used again (None:
    for ever), `delete_grace_seconds` before the first key of a deleted key space is removed.
    """

    schema_name: ClassVar[str] = "RegistryConfiguration"
    keyspace_api_enabled: Annotated[bool, Schema("Whether clients are answered at all.")] = False
    self_registration_enabled: Annotated[bool, Schema("Whether clients may create.")] = True
    reservations: Annotated[
        list[Annotated[str, Schema(pattern=HEX_GIVEN_PATTERN)]], Schema("Prefixes that are not given out unasked.")
    ] = []
    skip_printable: bool = False
    protected: list[str] = []
    prefix_bytes_max: int = 4
    max_client_lease_seconds: float = 60
    reuse_cooldown_seconds: float | None = 60
    delete_grace_seconds: float = 0

    def __post_init__(self) -> None:
        for prefix in self.reservations:
            try:
                bytes.fromhex(prefix)
            except ValueError:
                raise ValueError(f"reservations: {prefix!r} is not spelled in hex digits") from None


# Why: numbers are for ever, they stand in stored fences.
_STATE_BYTES: Final = {
    State.ENABLED: b"\x01",
    State.DISABLED: b"\x02",
    State.DELETING: b"\x03",
    State.DELETED: b"\x04",
    State.RESTORING: b"\x05",
}
_STATES: Final = {raw: state for state, raw in _STATE_BYTES.items()}
_GENERATION: Final = U64()
_CLUSTER: Final = TextForm()


class FenceForm(ValueForm[Fence]):
    """A fence: the generation as u64, one byte for the state, and the registry's id as text to the end."""

    code: ClassVar[str] = "keyspace-fence"

    @property
    def value_type(self) -> type[Fence]:
        return Fence

    def encode(self, value: Fence) -> bytes:
        fence: object = value
        state = _STATE_BYTES.get(fence.state) if isinstance(fence, Fence) else None
        if state is None:
            self.refuse("not a fence with one of the states", type_found=type(value).__name__)
        if not value.cluster:
            self.refuse("a fence names its registry")
        try:
            return _GENERATION.encode(value.generation) + state + _CLUSTER.encode(value.cluster)
        except InvalidKeyError as error:
            raise InvalidRecordError(form=self.code, problem="the generation is no unsigned 64-bit number") from error

    def decode(self, raw: bytes) -> Fence:
        state, cluster = _STATES.get(raw[8:9]), raw[9:]
        if state is None or not cluster:
            problem = "a fence is a generation of 8 bytes, the byte of a state and the registry's id"
            raise CorruptionError(problem=problem, bytes_found=len(raw))
        return Fence(_GENERATION.decode(raw[:8]), state, _CLUSTER.decode(cluster))
