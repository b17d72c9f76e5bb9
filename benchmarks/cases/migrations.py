"""Migrations: a table moved, values rewritten where they stand, a key split; alone, and beside a program of the old layout.

Each is compared with a plain copy of the same keys into another store, verified as copies are, in the same round, with the pace
off. A store that lies in this process's memory or files is measured by the time that the process computes, and what its pace
rests, as long as nobody writes beside it; what asks a server, and what is beside a writer, by the clock. The plan, which
converts every record once beforehand, is not counted.
"""

import re
import shutil
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from time import monotonic, process_time, sleep
from typing import Final, NamedTuple
from urllib.request import urlopen

from benchmarks.extent import Extent
from benchmarks.measure import Result, of_rates, single
from benchmarks.old_writer import writing
from benchmarks.site import PREFIX, Moved, Rewritten, Site, Split, pairs, split
from keyplan.engine import Engine, MemoryEngine, open_engine
from keyplan.jobs import UNPACED, YieldingPace
from keyplan.layout import Layout
from keyplan.maintenance import Transform, copy_store, migrate, plan_migration
from keyplan.store import Store
from tests.servers.etcd import EtcdServer, why_no_etcd
from tests.servers.postgres import PostgresServer, why_no_postgres

__all__ = ["measure_etcd", "measure_lmdb", "measure_memory", "measure_postgres"]

_RECORDS: Final = 8_000
_RECORDS_ON_ETCD: Final = 2_000
_RECORDS_IN_MEMORY: Final = 2_000
"""Why so few: the writer shares the interpreter with the migration, and writes each of them again and again."""
_ALONE_SECONDS: Final = 4.0
"""How long a writer is alone, before and after, in a full run."""
_ALONE_SECONDS_MIN: Final = 0.1
_BATCH: Final = 64
"""How many records a migration decides about together."""
_AIM: Final = 0.85
_COPY: Final = "copy_store of the same"
_ALONE: Final = "alone, the pace off"
_AT_ITS_PACE: Final = "alone"
_BESIDE: Final = "beside a writer"
_WRITER: Final = "the writer beside it"
_WRITER_TO_RESTS: Final = "the writer beside it, at all times"
_AGAINST: Final = {_AT_ITS_PACE: "the same with the pace off", _WRITER: "the writer alone"}
"""What is compared with what; all else with a copy."""
_REQUESTS: Final = re.compile(r'^grpc_server_handled_total\{.*grpc_method="(?:Range|Txn)".*\} (\S+)$', re.MULTILINE)


class _Change(NamedTuple):
    """A new layout, what makes its records, whether it takes the switch, and the table that a writer uses meanwhile."""

    name: str
    new: type[Layout]
    transforms: tuple[Transform, ...] = ()
    is_switched: bool = False
    table: str = "machines"


_CHANGES: Final = (
    _Change("moved", Moved),
    # Why another table: programs that use one whose values are rewritten are stopped meanwhile.
    _Change("rewritten", Rewritten, is_switched=True, table="notes"),
    _Change("key split", Split, (split,)),
)


class _Pair(NamedTuple):
    """A store, and an empty one beside it. Without a URL no other process can write to it."""

    engine: Engine
    target: Engine
    url: str | None


class _Place(NamedTuple):
    """An engine. `opened` gives an empty pair of stores each time."""

    benchmark: str
    opened: Callable[[], AbstractContextManager[_Pair]]
    records: int
    is_here: bool = False
    requests: Callable[[], float] = float
    """How many requests a server has answered so far: none where there is none."""


class _Rests:
    """When a pace that gives way rests."""

    def __init__(self) -> None:
        self.spans: list[tuple[float, float]] = []

    @property
    def seconds(self) -> float:
        return sum(end - start for start, end in self.spans)

    def __call__(self, seconds: float) -> None:
        start = monotonic()
        sleep(seconds)
        self.spans.append((start, monotonic()))


class _Times(NamedTuple):
    by_clock: float
    by_work: float

    def counting(self, place: _Place) -> float:
        """The one that counts where nobody else writes."""
        return self.by_work if place.is_here else self.by_clock


def measure_memory(extent: Extent) -> Iterator[Result]:
    """Each change: records a second as a ratio to a copy, and a writer's speed beside it to its speed alone; in memory."""
    yield from _all(extent, _Place("migration-memory", _in_memory, extent.operations(_RECORDS_IN_MEMORY), is_here=True))


def measure_lmdb(extent: Extent) -> Iterator[Result]:
    """The same on LMDB, flushed to disk, with the writer in a process of its own."""
    yield from _all(
        extent, _Place("migration-lmdb", partial(_on_lmdb, extent), extent.operations(_RECORDS), is_here=True)
    )


def measure_etcd(extent: Extent) -> Iterator[Result]:
    """The same on etcd, and how often it is asked."""
    if (problem := why_no_etcd()) is not None:
        sys.stderr.write(f"etcd is left out: {problem}\n")
        return
    with EtcdServer() as server, EtcdServer() as other:
        records = extent.operations(_RECORDS_ON_ETCD)
        opened = partial(_on_etcd, server, other)
        yield from _all(extent, _Place("migration-etcd", opened, records, requests=partial(_requests, server)))


def measure_postgres(extent: Extent) -> Iterator[Result]:
    """The same on PostgreSQL."""
    if (problem := why_no_postgres()) is not None:
        sys.stderr.write(f"postgres is left out: {problem}\n")
        return
    with PostgresServer(arguments=["-c", "shared_buffers=128MB"]) as server:
        yield from _all(
            extent, _Place("migration-postgres", partial(_on_postgres, server), extent.operations(_RECORDS))
        )


def _all(extent: Extent, place: _Place) -> Iterator[Result]:
    for change in _CHANGES:
        yield from _measured(extent, place, change)


def _measured(extent: Extent, place: _Place, change: _Change) -> Iterator[Result]:
    found: dict[str, list[tuple[float, float]]] = {}
    requests: list[float] = []

    def note(variant: str, rate: float, other: float) -> None:
        found.setdefault(variant, []).append((rate, rate / other))

    # Why one that does not count: everything is new to the interpreter and the servers.
    _copied(place)
    _migrated(place, change, None)
    for number in range(extent.amount.processes):
        # Why: as in other benchmarks, what comes first is not always the same.
        copied = _copied(place) if number % 2 else None
        migrated, asked = _migrated(place, change, None)
        yielding, _ = _migrated(place, change, _Rests())
        copied = copied or _copied(place)
        note(_ALONE, place.records / migrated.counting(place), place.records / copied.counting(place))
        note(_AT_ITS_PACE, place.records / yielding.counting(place), place.records / migrated.counting(place))
        for rests, name in ((_Rests(), ""), (None, ", the pace off")):
            seconds, before, meanwhile, resting = _beside(extent, place, change, rests)
            note(f"{_BESIDE}{name}", place.records / seconds, place.records / copied.by_clock)
            note(f"{_WRITER}{name}", meanwhile, before)
            if resting:
                note(_WRITER_TO_RESTS, meanwhile, resting)
        requests.append(asked * _BATCH / place.records)
    for variant, taken in found.items():
        rates, ratios = (list(column) for column in zip(*taken, strict=True))
        yield of_rates(
            place.benchmark,
            f"{change.name}: {variant}",
            against=_against(variant),
            rates=rates,
            ratios=ratios,
            size=place.records,
            aim=_AIM if variant in (_WRITER, _WRITER_TO_RESTS) else None,
        )
    if any(requests):
        yield single(
            place.benchmark, f"{change.name}: requests for {_BATCH} records", requests, unit="", size=place.records
        )


def _against(variant: str) -> str:
    # Why the rests: they lie between the work, so that what else the machine does falls on both.
    own = {_ALONE: _COPY, _WRITER_TO_RESTS: "the writer in the rests"}
    return own.get(variant) or _AGAINST.get(variant.partition(",")[0], _COPY)


@contextmanager
def _filled(place: _Place) -> Generator[_Pair, None, None]:
    with place.opened() as pair:
        pair.engine.load(pairs(place.records))
        yield pair


def _copied(place: _Place) -> _Times:
    with _filled(place) as pair:
        return _timed(partial(copy_store, pair.engine, pair.target, source_name="site", prefix=PREFIX))


def _migrated(place: _Place, change: _Change, rests: _Rests | None) -> tuple[_Times, float]:
    """Migrate, and count what that asks a server."""
    with _filled(place) as pair:
        migration = _migration(change, pair.engine, rests)
        before = place.requests()
        times = _timed(migration)
        return _Times(times.by_clock, times.by_work + (rests.seconds if rests else 0)), place.requests() - before


def _beside(extent: Extent, place: _Place, change: _Change, rests: _Rests | None) -> tuple[float, ...]:
    """Migrate beside a writer: return the seconds, the writer's speed alone before and after, meanwhile, and in the rests."""
    seconds = max(_ALONE_SECONDS_MIN, _ALONE_SECONDS * extent.amount.share)
    with _filled(place) as pair:
        migration = _migration(change, pair.engine, rests)
        with writing(Store(pair.engine), pair.url, change.table, place.records) as writer:
            moments = [monotonic()]
            for act in (partial(sleep, seconds), migration, partial(sleep, seconds)):
                act()
                moments.append(monotonic())
    begun, start, end, ended = moments
    resting = writer.rate(*rests.spans) if rests is not None and rests.seconds else 0.0
    return end - start, writer.rate((begun, start), (end, ended)), writer.rate((start, end)), resting


def _migration(change: _Change, engine: Engine, rests: _Rests | None) -> Callable[[], object]:
    pace = UNPACED if rests is None else YieldingPace(engine, sleep=rests)
    plan = plan_migration(engine, Site.bound(), change.new.bound(), transforms=change.transforms)
    return partial(migrate, Store(engine), plan, is_switched=change.is_switched, pace=pace)


def _timed(act: Callable[[], object]) -> _Times:
    clock, work = monotonic(), process_time()
    act()
    return _Times(monotonic() - clock, process_time() - work)


# ---- engines ---------------------------------------------------------------------------------------------------------------


@contextmanager
def _in_memory() -> Generator[_Pair, None, None]:
    with MemoryEngine() as engine, MemoryEngine() as target:
        yield _Pair(engine, target, None)


@contextmanager
def _on_lmdb(extent: Extent) -> Generator[_Pair, None, None]:
    folders = [extent.stands.folder / f"migrated-{name}" for name in ("source", "target")]
    try:
        urls = [f"lmdb:{folder}" for folder in folders]
        with open_engine(urls[0]) as engine, open_engine(urls[1]) as target:
            yield _Pair(engine, target, urls[0])
    finally:
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _on_etcd(server: EtcdServer, other: EtcdServer) -> Generator[_Pair, None, None]:
    for one in (server, other):
        one.emptied()
    with open_engine(server.url) as engine, open_engine(other.url) as target:
        yield _Pair(engine, target, server.url)


@contextmanager
def _on_postgres(server: PostgresServer) -> Generator[_Pair, None, None]:
    names = [server.fresh_schema() for _ in range(2)]
    with server.opened(names[0]) as engine, server.opened(names[1]) as target:
        yield _Pair(engine, target, server.local_url(schema=names[0]))


def _requests(server: EtcdServer) -> float:
    """How many reads and transactions a server has answered."""
    with urlopen(f"{server.client_url}/metrics", timeout=10) as answer:  # noqa: S310  # Why: our own server.
        text = answer.read().decode()
    return sum(map(float, _REQUESTS.findall(text)))
