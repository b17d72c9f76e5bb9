"""Lists of key spaces, filtered and paged, and whose a raw key is."""

from typing import Final

from keyplan.errors import InvalidArgumentError
from keyplan.keyspace.answers import KeySpace, KeySpacePage, Owner, OwnerKind
from keyplan.keyspace.layout import KeySpaceRegistry
from keyplan.keyspace.names import is_name
from keyplan.keyspace.prefixes import SYSTEM_BYTE, PrefixCodec
from keyplan.keyspace.records import KeySpaceRecord, State

__all__ = ["AUDIT_LIMIT_MAX", "LIST_LIMIT_DEFAULT", "LIST_LIMIT_MAX", "holder_of", "listed", "owner_in"]

LIST_LIMIT_DEFAULT: Final = 100
LIST_LIMIT_MAX: Final = 1_000
"""Why: a page is held in memory whole; a thousand key spaces with long descriptions are 4 MiB."""

AUDIT_LIMIT_MAX: Final = 1_000
"""As many entries of the audit log are read at once, for the same reason."""

_READ_AT_ONCE = 500
_NUMBER_DIGITS_MAX = 19


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
) -> KeySpacePage:
    """Return one page of the key spaces that agree with every filter. Raises InvalidArgumentError for limit and token."""
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
        )

    after = _place(page_token)
    if name is not None:
        record = registry.records.get(name) if is_name(name) else None
        found = [] if record is None or record.sequence <= after else [record]
        return KeySpacePage([KeySpace.of_record(record) for record in found if agrees(record)], "")
    page: list[KeySpaceRecord] = []
    while len(page) <= limit:
        names = list(registry.order.list(at_least=after + 1, limit=_READ_AT_ONCE))
        records = registry.records.get_many([holder.name for _, holder in names])
        page += [record for record in records if record is not None and agrees(record)]
        if len(names) < _READ_AT_ONCE:
            break
        after = names[-1][0]
    shown = page[:limit]
    token = str(shown[-1].sequence) if len(page) > limit else ""
    return KeySpacePage([KeySpace.of_record(record) for record in shown], token)


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
