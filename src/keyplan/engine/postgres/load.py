"""Filling a store by COPY: each batch one transaction, which asks once whether there is anything where the batch goes."""

from collections.abc import Iterable

from keyplan.engine.admission import admitted_batches
from keyplan.engine.interface import Commit, KeyAbsent, Put
from keyplan.engine.postgres.commits import Transaction, Writer
from keyplan.engine.postgres.statements import Statements
from keyplan.engine.postgres.wire import copied_entries
from keyplan.engine.profile import Profile

__all__ = ["load"]

Pair = tuple[bytes, bytes]


def load(entries: Iterable[Pair], profile: Profile, writer: Writer, statements: Statements) -> int:
    """Write ascending pairs that do not exist; return how many. See the contract."""
    loaded = 0
    for batch in admitted_batches(entries, profile):
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
