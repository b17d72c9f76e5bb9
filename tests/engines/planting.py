"""Engines that are wrong in one way each: the memory engine with one fault planted, as a real engine could have it.

A mutant is a function of pytest's monkeypatch, which takes the fault out again; `MUTANTS` says which tests of the engine suite
must refuse it. Where a fault is a gap between two steps, the mutant sleeps in it: a real gap is found by chance, this one
always. The mutants stand in `mutants_of_events`, `mutants_of_reads` and `mutants_of_writes`.
"""

import time
from collections.abc import Callable
from typing import Any, Final

import pytest

from keyplan.engine import memory, memory_snapshot

__all__ = ["MUTANTS", "Plant", "SnapshotOf", "WatchOf", "gap", "refused_by", "replace"]

Plant = Callable[[pytest.MonkeyPatch], None]
SnapshotOf: Final[Any] = memory_snapshot.MemorySnapshot
WatchOf: Final[Any] = memory._MemoryWatch


MUTANTS: Final[dict[str, tuple[Plant, tuple[str, ...]]]] = {}


def refused_by(*tests: str) -> Callable[[Plant], Plant]:
    """Note a mutant, with the tests of the suite of which at least one must fail."""

    def note(plant: Plant) -> Plant:
        MUTANTS[plant.__name__] = plant, tests
        return plant

    return note


def replace(patch: pytest.MonkeyPatch, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    """Replace a method by what `make` gives for the present one."""
    patch.setattr(owner, name, make(getattr(owner, name)))


def gap(seconds: float = 0.002) -> None:
    """Leave others the time to come between two steps."""
    time.sleep(seconds)  # Why: the planted fault is this gap.
