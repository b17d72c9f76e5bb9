"""Which prefix a new key space gets: the lowest that is free (R7), or the one asked for, if nothing is in its way (R5, R6)."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from keyplan.engine import RangeEmpty
from keyplan.errors import (
    InvalidPrefixError,
    PrefixConflictError,
    PrefixExhaustedError,
    PrefixInUseError,
    PrefixNotEmptyError,
)
from keyplan.keyspace.names import seconds_of
from keyplan.keyspace.prefixes import PrefixCodec, prefix_range
from keyplan.keyspace.records import Configuration, Mark, MarkKind
from keyplan.keyspace.rows import prefixes_held, rows_of
from keyplan.keyspace.transactions import RegistryTransaction

__all__ = ["PROFILES", "Allotment", "allocate", "claim", "is_cooling", "refuse_held"]

PROFILES: Final[dict[str, tuple[str, ...]]] = {
    "tikv": ("6d", "74", "72", "78"),  # TiDB's m and t; API V2's raw and transactional keys
    "etcd": ("2f",),  # "/": nearly every application of etcd begins its keys with it
    "lmdb": (),
    "none": (),
}
"""R8: prefixes that are not given out unasked, by kind of store. One that is asked for may be among them."""

_PRINTABLE: Final = range(32, 127)
"""R8: a key of text occupies the one-byte prefix that is its first character."""

_QUARANTINED_AT_ONCE_MAX: Final = 32
"""Why: they join the commit of the key space, and an engine may take 128 operations; the others are found again."""


class Allotment(NamedTuple):
    """A prefix for a key space: its number where it has one, and how many key spaces have had it before."""

    prefix: bytes
    number: int | None
    epoch: int


class _Taken(NamedTuple):
    prefixes: frozenset[bytes]
    epochs: dict[bytes, int]


def is_cooling(mark: Mark, now: float) -> bool:
    """Tell whether the prefix was freed too short a time ago to be used again (R9)."""
    return mark.kind is MarkKind.COOLING_DOWN and (mark.until is None or seconds_of(mark.until) > now)


def allocate(
    transaction: RegistryTransaction, codec: PrefixCodec, configuration: Configuration, profile: str
) -> Allotment:
    """Return the lowest prefix that is free, and join to the act what proves it and what was found on the way.

    Prefixes with keys of nobody below them are marked as quarantined and passed over. Raises PrefixExhaustedError.
    """
    taken = _taken(transaction, codec)
    reserved = [bytes.fromhex(prefix) for prefix in (*PROFILES.get(profile, ()), *configuration.reservations)]
    quarantined = 0
    for number in range(1, codec.last_number(configuration.prefix_bytes_max) + 1):
        prefix = codec.encode(number)
        if prefix in taken.prefixes or (configuration.skip_printable and number in _PRINTABLE):
            continue
        if any(_nested(prefix, other) for other in reserved):
            continue
        first_key = _first_key(transaction, prefix)
        if first_key is None:
            transaction.guards.append(RangeEmpty(prefix_range(prefix)))
            if prefix in taken.epochs:
                transaction.registry.marks.delete(prefix)
            return Allotment(prefix, number, taken.epochs.get(prefix, 0) + 1)
        if quarantined < _QUARANTINED_AT_ONCE_MAX:
            quarantined += 1
            mark = Mark(kind=MarkKind.QUARANTINED, first_key=first_key.hex(), epoch=taken.epochs.get(prefix, 0))
            transaction.registry.marks.put(prefix, mark)
    raise PrefixExhaustedError(prefix_bytes_max=configuration.prefix_bytes_max)


def claim(
    transaction: RegistryTransaction,
    codec: PrefixCodec,
    configuration: Configuration,
    prefix: bytes,
    *,
    adopt_existing_data: bool,
    allow_legacy_prefix: bool,
) -> Allotment:
    """Return the prefix that was asked for, after making sure that nothing is in its way.

    Raises InvalidPrefixError, PrefixInUseError, PrefixConflictError, PrefixNotEmptyError.
    """
    number = _checked_number(codec, configuration, prefix, allow_legacy_prefix=allow_legacy_prefix)
    _refuse_conflicts(transaction, configuration, prefix)
    first_key = _first_key(transaction, prefix)
    if first_key is None:
        transaction.guards.append(RangeEmpty(prefix_range(prefix)))
    elif not adopt_existing_data:
        raise PrefixNotEmptyError(prefix=prefix.hex(), first_key=first_key.hex())
    mark = transaction.registry.marks.get(prefix)
    for other in list(transaction.seen.marks.keys(starts_with=prefix)):
        transaction.registry.marks.delete(
            other
        )  # it has cooled, or it would have been refused; who has the prefix has all in it
    if number is None:
        _mark_container(transaction, codec.container_of(prefix))
    return Allotment(prefix, number, (mark.epoch if mark else 0) + 1)


def _checked_number(
    codec: PrefixCodec, configuration: Configuration, prefix: bytes, *, allow_legacy_prefix: bool
) -> int | None:
    try:
        return codec.checked(prefix, bytes_max=configuration.prefix_bytes_max)
    except InvalidPrefixError:
        if not allow_legacy_prefix:
            raise
        codec.container_of(prefix)
        return None


def _mark_container(transaction: RegistryTransaction, container: bytes) -> None:
    mark = transaction.registry.marks.get(container)
    if mark is None or mark.kind is not MarkKind.LEGACY_CONTAINER:
        epoch = mark.epoch if mark else 0
        transaction.registry.marks.put(container, Mark(kind=MarkKind.LEGACY_CONTAINER, epoch=epoch))


def refuse_held(transaction: RegistryTransaction, prefix: bytes) -> None:
    """Raise PrefixInUseError or PrefixConflictError where a key space has the prefix, its beginning or its continuation.

    Neither byte string may be the beginning of the other: both neighbours are looked at (R5).
    """
    shorter = [prefix[:size] for size in range(1, len(prefix) + 1)]
    for other, holder in zip(shorter, transaction.seen.holders.get_many(shorter), strict=True):
        if holder is not None and other == prefix:
            raise PrefixInUseError(prefix=prefix.hex(), holder=holder.name)
        if holder is not None:
            raise PrefixConflictError(prefix=prefix.hex(), other=other.hex(), holder=holder.name)
    for other, holder in transaction.seen.holders.list(starts_with=prefix, limit=1):
        raise PrefixConflictError(prefix=prefix.hex(), other=other.hex(), holder=holder.name)


def _refuse_conflicts(transaction: RegistryTransaction, configuration: Configuration, prefix: bytes) -> None:
    """The general test, against key spaces, reservations and what cools down."""
    refuse_held(transaction, prefix)
    shorter = [prefix[:size] for size in range(1, len(prefix) + 1)]
    for other in map(bytes.fromhex, configuration.reservations):
        if other == prefix:
            raise PrefixInUseError(prefix=prefix.hex(), problem="the configuration reserves it")
        if _nested(prefix, other):
            raise PrefixConflictError(prefix=prefix.hex(), other=other.hex(), problem="the configuration reserves it")
    for other, mark in _nested_marks(transaction, prefix, shorter):
        if is_cooling(mark, transaction.now):
            until = mark.until or "for ever"
            raise PrefixInUseError(
                prefix=prefix.hex(), problem=f"{other.hex()} was freed by a deletion and is cooling down", until=until
            )


def _nested_marks(
    transaction: RegistryTransaction, prefix: bytes, shorter: list[bytes]
) -> Iterator[tuple[bytes, Mark]]:
    for other, mark in zip(shorter, transaction.seen.marks.get_many(shorter), strict=True):
        if mark is not None:
            yield other, mark
    yield from transaction.seen.marks.list(starts_with=prefix)


def _taken(transaction: RegistryTransaction, codec: PrefixCodec) -> _Taken:
    """Return the codewords that are somebody's or may not be given out, and the epochs of those that are free again."""
    taken = {_codeword(codec, prefix) for prefix in prefixes_held(transaction.state)}
    epochs: dict[bytes, int] = {}
    for row in rows_of(transaction.state, "marks"):
        if row.key is None:
            continue  # no mark of ours: no prefix is so spelled
        # Why taken when it cannot be read: it may say so.
        if row.value is None or row.value.kind is not MarkKind.COOLING_DOWN or is_cooling(row.value, transaction.now):
            taken.add(codec.codeword_of(row.key) or row.key)
        else:
            epochs[row.key] = row.value.epoch
    return _Taken(frozenset(taken), epochs)


def _codeword(codec: PrefixCodec, prefix: bytes) -> bytes:
    """Return the codeword that a registered prefix is, or lies in."""
    return prefix if codec.number_of(prefix) is not None else codec.codeword_of(prefix) or prefix


def _first_key(transaction: RegistryTransaction, prefix: bytes) -> bytes | None:
    for entry in transaction.state.scan(prefix_range(prefix), limit=1, keys_only=True):
        return entry.key
    return None


def _nested(one: bytes, other: bytes) -> bool:
    return one.startswith(other) or other.startswith(one)
