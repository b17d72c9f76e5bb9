"""Loops over records that one damaged record does not end: it is told of, and the others are read."""

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TypeVar

from keyplan.apps.patroni.logs import LOGGER
from keyplan.errors import CorruptionError
from keyplan.layout import Damaged, Versioned, readable_rows

__all__ = ["log_damage", "readable", "readable_of"]

K = TypeVar("K")
V = TypeVar("V")
K_contra = TypeVar("K_contra", contravariant=True)
V_co = TypeVar("V_co", covariant=True)


class _Readable(Protocol[K_contra, V_co]):
    def get(self, key: K_contra, /) -> V_co | None: ...


def log_damage(key: object, error: CorruptionError) -> None:
    """Log that a record is passed over."""
    LOGGER.error("the record %s cannot be read and is passed over: %s", key, error)


def readable(
    rows: Iterable[Versioned[K, V] | Damaged[K]],
    on_damage: Callable[[K | None, CorruptionError], None] = log_damage,
) -> Iterator[tuple[K, V]]:
    """Return the records of these rows that can be read, with their keys; `on_damage` is told of each of the others."""
    return readable_rows(rows, lambda row: on_damage(row.key, row.error))


def readable_of(
    view: _Readable[K, V], key: K, on_damage: Callable[[K, CorruptionError], None] = log_damage
) -> V | None:
    """Return one record; None when there is none, or it cannot be read, of which `on_damage` is told."""
    try:
        return view.get(key)
    except CorruptionError as error:
        on_damage(key, error)
        return None
