"""Filling a store by COPY: each batch one transaction, which asks once whether there is anything where the batch goes."""

from collections.abc import Iterable, Iterator
from typing import Final

from keyplan.engine.admission import admit_pair
from keyplan.engine.interface import Commit, KeyAbsent, Put
from keyplan.engine.postgres.commits import Transaction, Writer
from keyplan.engine.postgres.statements import Statements
from keyplan.engine.postgres.wire import copied_entries
from keyplan.engine.profile import Profile
from keyplan.errors import InvalidInputError

__all__ = ["load"]

Pair = tuple[bytes, bytes]

_BATCH_ENTRIES_MAX: Final = 10_000
_BATCH_BYTES_MAX: Final = 1 << 24
"""Why: batches of ten thousand entries or 16 MiB; larger ones are hardly faster, and keep other writers waiting."""


def load(entries: Iterable[Pair], profile: Profile, writer: Writer, statements: Statements) -> int:
    """Write ascending pairs that do not exist; return how many. See the contract."""
    loaded = 0
    for batch in _batches(entries, profile):
        if not _copy(batch, writer, statements):
            puts = tuple(Put(key, value) for key, value in batch)
            writer.commit(Commit(tuple(KeyAbsent(key) for key, _ in batch), puts))
        loaded += len(batch)
    return loaded


def _copy(batch: list[Pair], writer: Writer, statements: Statements) -> bool:
    """Copy a batch into a gap between the keys. Return False when there are keys in between."""
    ends = (batch[0][0], batch[-1][0])

    def copy(transaction: Transaction) -> bool:
        (result,) = transaction.begin((statements.has_any, ends))
        last, has_any = result.row()
        if not has_any:
            transaction.copy(copied_entries(batch, last + 1))
            transaction.run((statements.log_copied, ends))
            transaction.has_written(last + 1)
        transaction.end()
        return not has_any

    return writer.write(copy, mutations=len(batch))


def _batches(entries: Iterable[Pair], profile: Profile) -> Iterator[list[Pair]]:
    """Check the pairs and their order; yield them in batches."""
    batch: list[Pair] = []
    batch_bytes = 0
    previous = b""
    for pair in entries:
        key, value = pair
        admit_pair(profile, key, value)
        if key <= previous:
            raise InvalidInputError(source="load", problem="keys must ascend", raw_key=key.hex())
        previous = key
        batch.append(pair)
        batch_bytes += len(key) + len(value)
        if len(batch) >= _BATCH_ENTRIES_MAX or batch_bytes >= _BATCH_BYTES_MAX:
            yield batch
            batch, batch_bytes = [], 0
    if batch:
        yield batch
