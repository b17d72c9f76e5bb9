"""Functions that workers of other processes import."""

import os
from pathlib import Path

from keyplan.apps import hepnos

__all__ = [
    "die_at_one",
    "die_once",
    "fail_at_seven",
    "number_of",
    "numbers_of",
    "preloaded",
    "rows_of",
    "slices_of",
    "slowly",
]


def number_of(event: hepnos.Event) -> int:
    """Return the number of the event."""
    return event.number


def numbers_of(event: hepnos.Event) -> tuple[int, ...]:
    """Return what the event is."""
    return event.numbers


def preloaded(event: hepnos.Event, products: hepnos.PreloadedProducts) -> tuple[int, int | None, str | None]:
    """Return the event's number, its product "a", and "odd", which only odd events have."""
    return event.number, event.load("a", "int64", source=products), event.load("odd", str, source=products)


def rows_of(batch: hepnos.EventBatch) -> tuple[int, int]:
    """Return how many events the batch has, and the sum of their products."""
    return len(batch), sum(value for value in batch.product("a", "int64") if value is not None)


def slices_of(event: hepnos.Event, products: hepnos.PreloadedProducts) -> tuple[int, list[float], int]:
    """Return the event's number, the energies of its slices, and how many of them were read ahead."""
    rows = hepnos.Tables(event.dataset)["rec_slc"].of(event, ["calE"], source=products)
    return event.number, rows["calE"].tolist(), products.hits


def fail_at_seven(event: hepnos.Event) -> None:
    """Fail for one event."""
    if event.number == 7:
        raise ArithmeticError


def slowly(event: hepnos.Event) -> str:
    """Compute for some hundred microseconds; return which process did."""
    sum(number * number for number in range(3_000))
    return str(os.getpid())


def die_once(event: hepnos.Event) -> int:
    """End the process the first time that event 100 comes, as the kernel does when memory is short."""
    marker = Path(os.environ["HEPNOS_TEST_MARKER"])
    if event.number == 100 and not marker.exists():
        marker.touch()
        os._exit(9)
    return event.number


def die_at_one(event: hepnos.Event) -> int:
    """End the process whenever event 1 comes."""
    if event.number == 1:
        os._exit(9)
    return event.number
