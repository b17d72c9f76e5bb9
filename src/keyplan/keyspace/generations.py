"""Generations of a name: which comes next, and what a restored key space was where it comes from.

A generation is never given twice: handles, fences and plans tell two key spaces of one name apart by it, and by nothing else.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from keyplan.engine import Commit
from keyplan.errors import CorruptionError, InvalidArgumentError
from keyplan.keyspace.answers import KeySpace
from keyplan.keyspace.layout import HistoryKey
from keyplan.keyspace.records import GENERATION_MAX, KeySpaceRecord
from keyplan.keyspace.transactions import RegistryTransaction

__all__ = [
    "NO_PAST",
    "JoinedWrites",
    "Past",
    "is_generation",
    "join",
    "keep_history",
    "next_generation",
]

JoinedWrites = Callable[[KeySpace], Commit]
"""What is written in one commit with an act, about the key space that the act makes or moves."""


class Past(NamedTuple):
    """What a key space that is restored was: its generation, when it was made, and those of its name before it."""

    generation: int = 1
    created_at: str | None = None
    history: tuple[KeySpaceRecord, ...] = ()


NO_PAST: Final = Past()


def is_generation(number: int) -> bool:
    """Tell whether a key space can have this generation."""
    return 1 <= number <= GENERATION_MAX


def next_generation(transaction: RegistryTransaction, name: str, past: Past = NO_PAST) -> int:
    """Return the generation of the next key space of a name: above every one that is known here, and not below `past`.

    All that may know of one is asked: record, fence and history. Raises CorruptionError when there is none left.
    """
    record, fence = transaction.registry.records.get(name), transaction.registry.fences.get(name)
    known = [0 if record is None else record.generation, 0 if fence is None else fence.generation]
    known += [key.generation for key, _ in transaction.seen.history.list(name, reverse=True, limit=1)]
    generation = max(max(known) + 1, past.generation)
    if not is_generation(generation):
        problem = "the last generation that there can be is stored; the doctor says where"
        raise CorruptionError(problem=problem, name=name)
    return generation


def keep_history(transaction: RegistryTransaction, name: str, past: Past) -> None:
    """Keep the generations of the name that are no more where it comes from; what is here stays as it is."""
    for record in past.history:
        if not is_generation(record.generation) or record.name != name:
            raise InvalidArgumentError(argument="past", problem="its history is not that of the name")
        key = HistoryKey(name, record.generation)
        if transaction.seen.history.get(key) is None:
            transaction.registry.history.insert(key, record)


def join(transaction: RegistryTransaction, record: KeySpaceRecord, joined: JoinedWrites | None) -> None:
    """Add to the act's commit what belongs to it."""
    if joined is not None:
        transaction.join(joined(KeySpace.of_record(record)))
