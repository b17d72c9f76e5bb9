"""runm-metadata as its callers meet it: gRPC calls to a server process, beside a bare grpcio server that answers as many bytes.

Objects have 4 properties and 2 tags, in one partition and project, on LMDB with durable commits and on etcd where it is
installed. One property has 10 objects for each of its values, however many objects there are.
"""

import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any, Final
from uuid import UUID

import grpc

import keyplan
from benchmarks.extent import Extent
from benchmarks.measure import Result, Work, compared, single
from keyplan.apps.runm import Object, Partition, Property, Runm
from keyplan.apps.runm.client import Connection, RunmClient
from keyplan.store import index_entries_of
from tests.servers.etcd import EtcdServer, why_no_etcd

__all__ = ["calling", "echoing", "measure", "serving_process"]

_PARTITION: Final = UUID("d79706e01fbd4e48aae89209061cdb71")
_PROJECT: Final = "proj0"
_IMAGE: Final = {"code_filter": {"code": "runm.image"}}
_IN_FLIGHT: Final = 32
_CALLS: Final = {1: 2_000, _IN_FLIGHT: 6_000}
_CREATES: Final = {"lmdb": 4_000, "etcd": 2_000}
_SEARCHES: Final = 200
_FEW: Final = 10
_DELETED_AT_ONCE: Final = 100


def measure(extent: Extent) -> Iterator[Result]:
    """Create and get against the echo, by calls in flight; searches and deletes in milliseconds, by the store's size."""
    for engine in ("lmdb", "etcd"):
        if engine == "etcd" and why_no_etcd() is not None:
            continue
        for size in [size for size in extent.sizes if size <= 100_000]:
            with ExitStack() as stack:
                url = _filled(engine, size, stack)
                address = stack.enter_context(serving_process(url))
                yield from _measured(extent, engine, size, address, stack)


_SERVE: Final = "from keyplan.cli.start import run; run()"
_SERVE_OPTIONS: Final = ("--listen", "127.0.0.1:0", "--no-register")


def _measured(extent: Extent, engine: str, size: int, address: str, stack: ExitStack) -> Iterator[Result]:
    host, _, port = address.rpartition(":")
    client = stack.enter_context(RunmClient(Connection(host, int(port), "bench", _PROJECT, _PARTITION.hex)))
    answer_bytes = client.metadata.object_get_by_uuid(uuid=_uuid(0).hex).ByteSize()
    echo = stack.enter_context(echoing(answer_bytes))
    workers = stack.enter_context(ThreadPoolExecutor(_IN_FLIGHT))
    for in_flight, calls in _CALLS.items():
        yield compared(
            "runm-get",
            f"{engine}, {in_flight} in flight",
            against=f"bare grpcio, {answer_bytes} bytes",
            subject=calling(
                workers, in_flight, lambda number: client.metadata.object_get_by_uuid(uuid=_uuid(number % size).hex)
            ),
            comparator=calling(workers, in_flight, lambda _: echo(b"")),
            operations=extent.operations(calls),
            rounds=extent.rounds,
            size=size,
        )
    numbers = count(size)
    yield compared(
        "runm-create",
        f"{engine}, {_IN_FLIGHT} in flight",
        against="bare grpcio",
        subject=calling(workers, _IN_FLIGHT, lambda _: client.metadata.object_create(object=_given(next(numbers)))),
        comparator=calling(workers, _IN_FLIGHT, lambda _: echo(b"")),
        operations=extent.operations(_CREATES[engine]),
        rounds=extent.rounds,
        size=size,
    )
    for name, search in _searches(client, size):
        yield single("runm-find", f"{engine}, {name}", _milliseconds(extent, search), unit="ms", size=size)
    made = iter(range(size, next(numbers)))
    yield single("runm-delete", f"{engine}, {_DELETED_AT_ONCE} a call", _deletes(client, made), unit="ms", size=size)


def _searches(client: RunmClient, size: int) -> Iterator[tuple[str, Callable[[int], object]]]:
    groups = max(1, size // _FEW)

    def find(**given: Any) -> list[Any]:
        return list(client.metadata.object_find(any=[{"object_type_filter": _IMAGE, **given}]))

    def by_property(number: int) -> object:
        item = {"key": "serial", "value": f"s{number % groups}"}
        found = find(property_filter={"require_items": [item]})
        assert len(found) <= _FEW + 1
        return found

    yield f"{_FEW} by property", by_property
    yield f"{_FEW} by tag", lambda number: find(tag_filter={"require": [f"t{number % groups}"]})
    yield (
        f"{_FEW} by name prefix",
        lambda number: find(name_filter={"name": f"image-{number % groups:06}", "use_prefix": True}),
    )


def _milliseconds(extent: Extent, search: Callable[[int], object]) -> list[float]:
    figures = []
    for number in range(extent.operations(_SEARCHES)):
        begun = perf_counter()
        search(number * 37)
        figures.append((perf_counter() - begun) * 1_000)
    return figures


def _deletes(client: RunmClient, made: Iterator[int]) -> list[float]:
    figures = []
    pending = list(made)
    for start in range(0, len(pending), _DELETED_AT_ONCE):
        uuids = [_uuid(number).hex for number in pending[start : start + _DELETED_AT_ONCE]]
        begun = perf_counter()
        client.metadata.object_delete_by_uuids(uuids=uuids)
        figures.append((perf_counter() - begun) * 1_000)
    return figures or [0.0]


def calling(workers: ThreadPoolExecutor, in_flight: int, call: Callable[[int], object]) -> Work:
    """Work that makes calls, by number, so many at once."""

    def repeated(first: int, calls: int) -> None:
        for number in range(first, first + calls):
            call(number)

    def work(operations: int) -> None:
        if in_flight == 1:
            repeated(0, operations)
            return
        share = max(1, operations // in_flight)
        running = [workers.submit(repeated, place * share, share) for place in range(in_flight)]
        for one in running:
            one.result()

    return work


# ---- what is measured ----------------------------------------------------------------------------------------------------


def _uuid(number: int) -> UUID:
    # Why multiplied: UUIDs of clients come in no order.
    return UUID(int=(number + 1) * 0x9E3779B97F4A7C15F39CC0605CEDC835 % 2**128)


def _object(number: int, size: int) -> Object:
    groups = max(1, size // _FEW)
    properties = {
        "architecture": ("x86_64", "arm64")[number % 2],
        "os": f"os{number % 7}",
        "site": f"site{number % 20}",
        "serial": f"s{number % groups}",
    }
    return Object(
        _PARTITION,
        "runm.image",
        _uuid(number),
        f"image-{number % groups:06}-{number}",
        _PROJECT,
        tuple(Property(key, value) for key, value in properties.items()),
        ("all", f"t{number % groups}"),
    )


def _given(number: int) -> dict[str, Any]:
    record = _object(number, 1_000_000)
    return {
        "partition": record.partition.hex,
        "object_type": record.object_type,
        "project": record.project,
        "uuid": record.uuid.hex,
        "name": f"made-{number}",
        "properties": [{"key": one.key, "value": one.value} for one in record.properties],
        "tags": record.tags,
    }


def _filled(engine: str, size: int, stack: ExitStack) -> str:
    """The URL of a store with so many objects, loaded at once; the service finds the note that its indexes are kept."""
    if engine == "etcd":
        url = stack.enter_context(EtcdServer()).url
    else:
        folder = stack.enter_context(TemporaryDirectory(prefix="keyplan-runm-"))
        url = f"lmdb:{Path(folder) / 'store'}?history=64"
    with serving_process(url) as address:
        assert address  # the keys of the first start are written
    with keyplan.open(url) as store:
        runm = Runm(store)
        runm.partitions.insert(_PARTITION, Partition(_PARTITION, "bench"))
        table = Runm.bound().table("objects")
        pairs: dict[bytes, bytes] = {}
        for number in range(size):
            record = _object(number, size)
            pairs[table.keys.encode(record.uuid)] = table.form.encode(record)
            pairs.update((key, one.raw_value) for key, one in index_entries_of(table, record.uuid, record).items())
        store.engine.load(sorted(pairs.items()))
    return url


def serving_process(url: str) -> AbstractContextManager[str]:
    """A process that serves the store; gives its address."""
    return _process("-c", _SERVE, "runm", "serve", "--store", url, *_SERVE_OPTIONS)


@contextmanager
def _process(*arguments: str) -> Iterator[str]:
    """A process that prints its address; ended with the block."""
    words = [sys.executable, *arguments]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603  # Why: our own words.
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


@contextmanager
def echoing(size: int) -> Iterator[Callable[[bytes], object]]:
    """A bare grpcio server in a process of its own, which answers with so many bytes; gives the call."""
    with _process("-m", "benchmarks.echo", str(size)) as address, grpc.insecure_channel(address) as channel:
        call: Any = channel.unary_unary("/echo/call", request_serializer=bytes, response_deserializer=bytes)
        yield call
