"""Exploring schedules: how many a second, by greenlets and by threads, and how long until a defect is told."""

from collections.abc import Callable, Iterator
from time import perf_counter_ns
from typing import Final

import msgspec

from benchmarks.extent import Extent
from benchmarks.measure import Result, compared, single
from keyplan.layout import Index, Layout, Table, Unique
from keyplan.maintenance import build_index, prepare_index
from keyplan.store import Store
from keyplan.testing.schedules import Scenario, as_in_some_order, explore

__all__ = ["measure"]

_SCHEDULES: Final = 2_000
_REPORTS: Final = 20


class _Blade(msgspec.Struct, frozen=True):
    serial: str
    tags: list[str] = []


class _Site(Layout, root="/site/"):
    blades = Table("blades/{blade}", key=str, value=_Blade)
    by_serial = Unique("by-serial/{serial}", of=blades, key=str)
    by_tag = Index("by-tag/{tag}/{blade}", of=blades, key=str, each={"tag": "tags"})


def _one_blade(store: Store) -> None:
    _Site(store).blades.insert("1", _Blade("s1", ["red"]))


def _unbuilt(store: Store) -> None:
    _one_blade(store)
    prepare_index(store, _Site(store), "by_serial")


def _modify(store: Store) -> None:
    _Site(store).blades.modify("1", lambda blade: _Blade(blade.serial, [*blade.tags, "new"]))


def _careless(store: Store) -> None:
    blade = _Site(store).blades.require("1")
    _Site(store).blades.put("1", _Blade(blade.serial, [*blade.tags, "new"]))


def _build(store: Store) -> None:
    build_index(store, _Site(store), "by_serial")


def measure(extent: Extent) -> Iterator[Result]:
    """Schedules a second, and the milliseconds from `explore` to a report."""
    schedules = extent.operations(_SCHEDULES)
    writers = Scenario(*[_modify] * 4, setup=_one_blade, layouts=[_Site])
    unjudged = Scenario(*[_modify] * 4, setup=_one_blade, invariants=[])
    built = Scenario(_modify, _build, _modify, setup=_unbuilt, layouts=[_Site])
    yield compared(
        "schedules",
        "four writers, healthy",
        against="the same, not judged",
        subject=_explores(writers, "greenlets"),
        comparator=_explores(unjudged, "greenlets"),
        operations=schedules,
        rounds=extent.rounds,
    )
    yield compared(
        "schedules",
        "two writers and a build, greenlets",
        against="threads",
        subject=_explores(built, "greenlets"),
        comparator=_explores(built, "threads"),
        operations=max(1, schedules // 10),
        rounds=extent.rounds,
    )
    lost = Scenario(_careless, _careless, setup=_one_blade, invariants=[as_in_some_order])
    delays: list[float] = []
    for _ in range(extent.operations(_REPORTS)):
        begun = perf_counter_ns()
        assert explore(lost).failures
        delays.append((perf_counter_ns() - begun) / 1e6)
    yield single("schedules", "a lost update, to its report", delays, unit="ms", size=None)


def _explores(scenario: Scenario, baton: str) -> Callable[[int], object]:
    def work(schedules: int) -> None:
        explore(
            scenario, schedules_max=schedules, seconds_max=600, baton="threads" if baton == "threads" else "greenlets"
        )

    return work
