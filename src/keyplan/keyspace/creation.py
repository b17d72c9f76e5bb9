"""Making: the registry itself, and key spaces in it. Each is one act, in which name, prefix and proofs are decided together."""

from collections.abc import Mapping
from typing import Any, NamedTuple, Self
from uuid import uuid4

from msgspec import structs

from keyplan.engine import ALL_KEYS, KeyRange
from keyplan.errors import (
    ImmutableFieldError,
    InvalidArgumentError,
    KeySpaceDeletingError,
    KeySpaceExistsError,
    KeySpaceRestoringError,
    OwnerConflictError,
    SelfRegistrationDisabledError,
)
from keyplan.keyspace.allocation import PROFILES, Allotment, allocate, claim
from keyplan.keyspace.audit import Acts
from keyplan.keyspace.generations import NO_PAST, JoinedWrites, Past, join, keep_history, next_generation
from keyplan.keyspace.layout import HistoryKey
from keyplan.keyspace.names import checked_application, checked_description, checked_name
from keyplan.keyspace.prefixes import PREFIX_CODECS, SYSTEM_BYTE, bytes_of_hex, prefix_codec, prefix_range
from keyplan.keyspace.records import (
    Configuration,
    Fence,
    Header,
    KeySpaceRange,
    KeySpaceRecord,
    PrefixHolder,
    State,
)
from keyplan.keyspace.transactions import ONLY, RegistryTransaction, configuration_of, header_of

__all__ = [
    "FORMAT_VERSION",
    "Founding",
    "Request",
    "check_self_registration",
    "create",
    "found",
    "founded_detail",
    "init",
    "occupied",
]

FORMAT_VERSION = 1


class Founding(NamedTuple):
    """How a registry is made: decided once. `skip_printable` None: as the store's content suggests (R8)."""

    prefix_codec: str = PREFIX_CODECS[0]
    profile: str = "none"
    skip_printable: bool | None = None


class Request(NamedTuple):
    """A key space to be made; checked already, but for its prefix."""

    name: str
    application: str
    description: str = ""
    prefix: bytes | None = None
    adopt_existing_data: bool = False
    allow_legacy_prefix: bool = False
    state: State = State.ENABLED
    past: Past = NO_PAST
    joined: JoinedWrites | None = None

    @classmethod
    def checked(cls, name: str, application: str, description: str, prefix: str | None, **more: Any) -> Self:
        """Return what was asked for, `prefix` in hex. Raises InvalidNameError, InvalidArgumentError, InvalidPrefixError."""
        owner, text = checked_application(application), checked_description(description)
        return cls(checked_name(name), owner, text, None if prefix is None else bytes_of_hex(prefix), **more)


def init(transaction: RegistryTransaction, founding: Founding, asked: Mapping[str, object]) -> Header:
    """Make the registry as `founding` says, and return its header; or that of the one there is.

    Raises InvalidArgumentError for what no registry is made with, and for one that was made otherwise than was `asked`.
    """
    if founding.profile not in PROFILES:
        raise InvalidArgumentError(argument="profile", problem=f"it is one of {', '.join(sorted(PROFILES))}")
    header, configuration, is_new = found(transaction, founding)
    if is_new:
        transaction.note(Acts.INIT, {"founded": founded_detail(header, configuration)})
        return header
    made = Founding(header.prefix_codec, header.profile, configuration.skip_printable)._asdict()
    for argument, wanted in asked.items():
        if wanted != made[argument]:
            problem = f"the registry that there is has {made[argument]!r}, not {wanted!r}"
            raise InvalidArgumentError(argument=argument, problem=problem)
    return header


def founded_detail(header: Header, configuration: Configuration) -> dict[str, Any]:
    """Return what the log keeps of how a registry was made."""
    return {**structs.asdict(header), "skip_printable": configuration.skip_printable}


def found(transaction: RegistryTransaction, founding: Founding) -> tuple[Header, Configuration, bool]:
    """Return the registry's header and configuration, and whether they were made just now."""
    header = header_of(transaction.registry)
    if header is not None:
        return header, configuration_of(transaction.registry), False
    prefix_codec(founding.prefix_codec)
    header = Header(
        format_version=FORMAT_VERSION,
        cluster=str(uuid4()),
        prefix_codec=founding.prefix_codec,
        profile=founding.profile,
        created_at=transaction.at,
    )
    is_printable_skipped = founding.skip_printable
    if is_printable_skipped is None:
        data = KeyRange(SYSTEM_BYTE + b"\xff", ALL_KEYS.end)
        is_printable_skipped = any(True for _ in transaction.state.scan(data, limit=1, keys_only=True))
    configuration = Configuration(skip_printable=is_printable_skipped)
    transaction.registry.header.insert(ONLY, header)
    transaction.registry.configuration.insert(ONLY, configuration)
    return header, configuration, True


def check_self_registration(transaction: RegistryTransaction, request: Request, *, if_not_exists: bool) -> None:
    """Say whether a client may have its key space made. Raises SelfRegistrationDisabledError unless it is there already."""
    if configuration_of(transaction.registry).self_registration_enabled:
        return
    before = transaction.registry.records.get(request.name)
    if not if_not_exists or before is None or before.state is State.DELETED:
        raise SelfRegistrationDisabledError(name=request.name)


def occupied(record: KeySpaceRecord) -> KeySpaceExistsError | KeySpaceDeletingError | KeySpaceRestoringError:
    """Return the error for a name that a key space has already."""
    if record.state is State.DELETING:
        return KeySpaceDeletingError(name=record.name)
    if record.state is State.RESTORING:
        return KeySpaceRestoringError(name=record.name)
    facts = {"state": str(record.state), "application": record.application, "prefix": record.prefix}
    return KeySpaceExistsError(name=record.name, **facts)


def create(
    transaction: RegistryTransaction, founding: Founding, request: Request, *, if_not_exists: bool
) -> tuple[KeySpaceRecord, bool]:
    """Make the key space; return its record and whether it is new.

    With `if_not_exists` an existing one of the same application is the answer. Raises KeySpaceExistsError,
    KeySpaceDeletingError, KeySpaceRestoringError, OwnerConflictError, and what `claim` and `allocate` raise.
    """
    before = transaction.registry.records.get(request.name)
    if before is not None and before.state is not State.DELETED:
        if if_not_exists and before.state in {State.ENABLED, State.DISABLED}:
            return _agreed(before, request), False
        raise occupied(before)
    header, configuration, is_founded = found(transaction, founding)
    codec = prefix_codec(header.prefix_codec)
    if request.prefix is None:
        allotment = allocate(transaction, codec, configuration, header.profile)
    else:
        allotment = claim(
            transaction,
            codec,
            configuration,
            request.prefix,
            adopt_existing_data=request.adopt_existing_data,
            allow_legacy_prefix=request.allow_legacy_prefix,
        )
    record = _record(
        transaction, request, allotment, generation=next_generation(transaction, request.name, request.past)
    )
    keep_history(transaction, request.name, request.past)
    if before is not None:
        transaction.registry.history.insert(
            HistoryKey(before.name, before.generation), structs.replace(before, sequence=0)
        )
        transaction.registry.order.delete(before.sequence)
    for table in (transaction.registry.quotas, transaction.registry.usage, transaction.registry.floors):
        table.delete(request.name)  # Why: nothing of a name's last owner is the next one's.
    transaction.registry.records.put(request.name, record)
    transaction.registry.order.insert(record.sequence, PrefixHolder(record.name, record.generation))
    transaction.registry.holders.insert(allotment.prefix, PrefixHolder(record.name, record.generation))
    transaction.registry.fences.put(record.name, Fence(record.generation, record.state, header.cluster))
    join(transaction, record, request.joined)
    # Why so much: from the log a damaged record, header or switch can be made again.
    fields = ("prefix", "application", "generation", "description", "created_at", "prefix_epoch")
    detail: dict[str, Any] = {field: getattr(record, field) for field in fields}
    if is_founded:
        detail["founded"] = founded_detail(header, configuration)
    change = Acts.RESTORE if request.state is State.RESTORING else Acts.CREATE
    transaction.note(change, detail, name=record.name)
    return record, True


def _agreed(before: KeySpaceRecord, request: Request) -> KeySpaceRecord:
    if before.application != request.application:
        raise OwnerConflictError(name=before.name, application=request.application, owner=before.application)
    if request.prefix is not None and request.prefix.hex() != before.prefix:
        raise ImmutableFieldError(name=before.name, fields=["prefix"])
    return before


def _record(
    transaction: RegistryTransaction, request: Request, allotment: Allotment, *, generation: int
) -> KeySpaceRecord:
    end = prefix_range(allotment.prefix).end
    return KeySpaceRecord(
        id=request.name,
        name=request.name,
        application=request.application,
        description=request.description,
        prefix=allotment.prefix.hex(),
        prefix_number=allotment.number,
        range=KeySpaceRange(allotment.prefix.hex(), (end or b"").hex()),
        state=request.state,
        generation=generation,
        created_at=request.past.created_at or transaction.at,
        sequence=transaction.number,
        prefix_epoch=allotment.epoch,
    )
