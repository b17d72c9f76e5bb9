"""Lists that one damaged record does not end: it is logged and left out, and the others are given."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol, TypeVar

from keyplan.apps.runm.logs import LOGGER
from keyplan.errors import CorruptionError
from keyplan.layout import Damaged, Versioned, readable_rows

__all__ = ["log_damage", "readable", "readable_many", "readable_one"]

K = TypeVar("K")
V = TypeVar("V")
K_contra = TypeVar("K_contra", contravariant=True)
V_co = TypeVar("V_co", covariant=True)


class _Single(Protocol[K_contra, V_co]):
    def get(self, key: K_contra, /) -> V_co | None: ...


class _View(_Single[K_contra, V_co], Protocol[K_contra, V_co]):
    def get_many(self, keys: Iterable[K_contra], /) -> Sequence[V_co | None]: ...


def log_damage(error: CorruptionError) -> None:
    """Log that a record is left out of an answer."""
    LOGGER.error("a record cannot be read, and is left out: %s", error)


def readable(rows: Iterable[Versioned[K, V] | Damaged[K]]) -> Iterator[tuple[K, V]]:
    """Return the records among rows that can be read, with their keys; the others are logged."""
    return readable_rows(rows, lambda row: log_damage(row.error))


def readable_one(view: _Single[K, V], key: K) -> V | None:
    """Return one record; None when there is none, or it cannot be read, which is logged."""
    try:
        return view.get(key)
    except CorruptionError as error:
        log_damage(error)
        return None


def readable_many(view: _View[K, V], keys: Sequence[K]) -> Sequence[V | None]:
    """Return the record at each key, as `readable_one` does."""
    try:
        return view.get_many(keys)
    except CorruptionError:
        return [readable_one(view, key) for key in keys]
