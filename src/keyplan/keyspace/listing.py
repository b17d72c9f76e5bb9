"""Lists of key spaces, filtered and paged, what of others a conflict tells, and whose a raw key is."""

from collections.abc import Callable, Mapping
from typing import Final

from keyplan.errors import (
    CorruptionError,
    InvalidArgumentError,
    KeySpaceConflictError,
    KeySpaceDeletingError,
    KeySpaceExistsError,
    KeySpaceRestoringError,
    OwnerConflictError,
    PrefixConflictError,
    PrefixInUseError,
)
from keyplan.keyspace.answers import KeySpace, KeySpacePage, Owner, OwnerKind
from keyplan.keyspace.layout import KeySpaceRegistry
from keyplan.keyspace.names import is_name
from keyplan.keyspace.prefixes import SYSTEM_BYTE, PrefixCodec
from keyplan.keyspace.records import KeySpaceRecord, State

__all__ = [
    "AUDIT_LIMIT_MAX",
    "LIST_LIMIT_DEFAULT",
    "LIST_LIMIT_MAX",
    "Sees",
    "holder_of",
    "listed",
    "owner_in",
    "sees_all",
    "told_to",
]

Sees = Callable[[str, str | None], bool]
"""Of a key space's name and its application, whether it is shown; the application of a damaged one is not known: None."""

LIST_LIMIT_DEFAULT: Final = 100
LIST_LIMIT_MAX: Final = 1_000
"""Why: a page is held in memory whole; a thousand key spaces with long descriptions are 4 MiB."""

AUDIT_LIMIT_MAX: Final = 1_000
"""As many entries of the audit log are read at once, for the same reason."""

_ASKED_FOR: Final[Mapping[type[KeySpaceConflictError], tuple[str, ...]]] = {
    KeySpaceExistsError: ("name",),
    OwnerConflictError: ("name", "application"),
    PrefixInUseError: ("prefix",),
    PrefixConflictError: ("prefix",),
}
"""What a conflict says that whoever asked has said themselves."""

_READ_AT_ONCE = 500
_NUMBER_DIGITS_MAX = 19


def sees_all(_name: str, _application: str | None) -> bool:
    """Show every key space."""
    return True


def told_to(sees: Sees, registry: KeySpaceRegistry, error: KeySpaceConflictError) -> KeySpaceConflictError:
    """Return a conflict as it is told to who is not shown the key space: that the name or prefix is taken, and no more."""
    name = error.facts.get("holder", error.facts.get("name"))
    record = registry.records.get(name) if isinstance(name, str) else None
    if record is None or sees(record.name, record.application):
        return error
    is_name_taken = isinstance(error, (KeySpaceDeletingError, KeySpaceRestoringError))
    kind = KeySpaceExistsError if is_name_taken else type(error)
    return kind(**{fact: error.facts[fact] for fact in _ASKED_FOR.get(kind, ())})


def listed(
    registry: KeySpaceRegistry,
    *,
    name: str | None,
    prefix: bytes | None,
    key: bytes | None,
    application: str | None,
    state: State | None,
    is_deleted_shown: bool,
    limit: int = LIST_LIMIT_DEFAULT,
    page_token: str,
    sees: Sees = sees_all,
) -> KeySpacePage:
    """Return one page of the key spaces that agree with every filter, as if there were none but those that `sees` shows.

    Raises InvalidArgumentError for limit and token.
    """
    if not 1 <= limit <= LIST_LIMIT_MAX:
        raise InvalidArgumentError(argument="limit", problem=f"from 1 to {LIST_LIMIT_MAX}")

    def agrees(record: KeySpaceRecord) -> bool:
        return (
            (is_deleted_shown or record.state is not State.DELETED)
            and (name is None or record.name == name)
            and (prefix is None or record.prefix == prefix.hex())
            and (key is None or (record.state is not State.DELETED and key.startswith(bytes.fromhex(record.prefix))))
            and (application is None or record.application == application)
            and (state is None or record.state is state)
            # Why here, and not of the page: that another page follows would tell of those that are left out.
            and sees(record.name, record.application)
        )

    after = _place(page_token)
    if name is not None:
        record = registry.records.get(name) if is_name(name) else None
        found = [] if record is None or record.sequence <= after else [record]
        return KeySpacePage([KeySpace.of_record(record) for record in found if agrees(record)], "")
    page: list[KeySpaceRecord] = []
    damaged: list[str] = []
    while len(page) <= limit:
        names, is_last = _names(registry, after)
        page += [record for record in _records(registry, names, damaged) if agrees(record)]
        if is_last:
            break
        after = names[-1][0]
    shown = page[:limit]
    token = str(shown[-1].sequence) if len(page) > limit else ""
    unread = tuple(name for name in damaged if sees(name, None))
    return KeySpacePage([KeySpace.of_record(record) for record in shown], token, unread)


def _names(registry: KeySpaceRegistry, after: int) -> tuple[list[tuple[int, str]], bool]:
    """Return places and names behind a place, and whether they are the last."""
    try:
        found = [
            (number, holder.name) for number, holder in registry.order.list(at_least=after + 1, limit=_READ_AT_ONCE)
        ]
    except CorruptionError:
        # Why by name: a damaged place hides a name, and the records have them all. Slower; until it is repaired.
        known = []
        for name in registry.records.keys():  # noqa: SIM118  # Why: a view, no dict.
            record = _record(registry, name, [])
            known.append((after + 1 if record is None else record.sequence, name))
        return sorted(place for place in known if place[0] > after), True
    return found, len(found) < _READ_AT_ONCE


def _records(registry: KeySpaceRegistry, names: list[tuple[int, str]], damaged: list[str]) -> list[KeySpaceRecord]:
    try:
        found: list[KeySpaceRecord | None] = list(registry.records.get_many([name for _, name in names]))
    except CorruptionError:
        found = [_record(registry, name, damaged) for _, name in names]
    return [record for record in found if record is not None]


def _record(registry: KeySpaceRegistry, name: str, damaged: list[str]) -> KeySpaceRecord | None:
    try:
        return registry.records.get(name)
    except CorruptionError:
        damaged.append(name)
        return None


def _place(page_token: str) -> int:
    """Return the number after which the page begins."""
    if not page_token:
        return 0
    if not (page_token.isascii() and page_token.isdigit() and len(page_token) <= _NUMBER_DIGITS_MAX):
        raise InvalidArgumentError(argument="page_token", problem="it is not one that a list has given")
    return int(page_token)


def holder_of(registry: KeySpaceRegistry, codec: PrefixCodec, key: bytes) -> tuple[bytes, str] | None:
    """Return the longest registered prefix that the key begins with, and the name of the key space that has it."""
    codeword = codec.codeword_of(key)
    if codeword is None:
        return None
    # Why: only a legacy container has prefixes that are longer than its codeword, and those are few.
    nested = registry.holders.list(starts_with=codeword)
    found = [(prefix, holder.name) for prefix, holder in nested if key.startswith(prefix)]
    return max(found, key=lambda item: len(item[0]), default=None)


def owner_in(registry: KeySpaceRegistry, codec: PrefixCodec, key: bytes) -> Owner:
    """Say whose a raw key is (R10)."""
    if not key or key.startswith(SYSTEM_BYTE):
        return Owner(OwnerKind.SYSTEM, None, SYSTEM_BYTE, 0)
    found = holder_of(registry, codec, key)
    record = None if found is None else registry.records.get(found[1])
    if found is not None and record is not None:
        return Owner(OwnerKind.KEYSPACE, KeySpace.of_record(record), found[0], record.prefix_number)
    codeword = codec.codeword_of(key)
    return Owner(OwnerKind.UNMANAGED, None, codeword, None if codeword is None else codec.number_of(codeword))
