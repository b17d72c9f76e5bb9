"""runm-metadata as its callers meet it: gRPC calls to a server process, beside a bare grpcio server that answers the same.

The same is: as many messages, of as many bytes, over the same transport; they are serialized before the call.

Objects have 4 properties and 2 tags, in one partition and project, on LMDB with durable commits and on etcd where it is
installed. One property has 10 objects for each of its values, however many objects there are.
"""

import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any, Final, NamedTuple
from uuid import UUID

import grpc

import keyplan
from benchmarks.extent import Extent
from benchmarks.measure import Result, Work, compared, single
from keyplan.apps.runm import Object, Partition, Property, Runm
from keyplan.apps.runm.client import Connection, RunmClient
from keyplan.apps.runm.wire_table import messages
from keyplan.store import index_entries_of
from tests.servers.etcd import EtcdServer, why_no_etcd

__all__ = [
    "PARTITION",
    "PROJECT",
    "SERVE",
    "calling",
    "echoing",
    "filled",
    "given_object",
    "measure",
    "object_uuid",
    "serving_process",
]

PARTITION: Final = UUID("d79706e01fbd4e48aae89209061cdb71")
PROJECT: Final = "proj0"
_IMAGE: Final = {"code_filter": {"code": "runm.image"}}
_IN_FLIGHT: Final = 32
_CALLS: Final = {1: 2_000, _IN_FLIGHT: 6_000}
_CREATES: Final = {"lmdb": 4_000, "etcd": 2_000}
_SEARCHES: Final = 200
_FEW: Final = 10
_DELETED_AT_ONCE: Final = 100


def measure(extent: Extent) -> Iterator[Result]:
    """Create, get and find against the echo, by calls in flight; searches and deletes in milliseconds, by the store's size."""
    for engine in ("lmdb", "etcd"):
        if engine == "etcd" and why_no_etcd() is not None:
            continue
        for size in [size for size in extent.sizes if size <= 100_000]:
            with ExitStack() as stack:
                url = filled(engine, size, stack)
                serving = stack.enter_context(serving_process(url))
                yield from _measured(extent, engine, size, serving, stack)


SERVE: Final = "from keyplan.cli.start import run; run()"
_SERVE_OPTIONS: Final = ("--listen", "127.0.0.1:0", "--no-register")


class Serving(NamedTuple):
    """A server process that was started."""

    address: str
    pid: int

    def processor_seconds(self) -> float:
        """The processor time that its threads have taken. Why not a process's `stat`: that counts hundredths of a second."""
        return sum(int(one.read_text().split()[0]) for one in Path(f"/proc/{self.pid}/task").glob("*/schedstat")) / 1e9


class Echo(NamedTuple):
    """A bare server, and its two calls."""

    serving: Serving
    call: Callable[[bytes], object]
    stream: Callable[[bytes], Iterable[bytes]]


def _measured(extent: Extent, engine: str, size: int, serving: Serving, stack: ExitStack) -> Iterator[Result]:
    host, _, port = serving.address.rpartition(":")
    client = stack.enter_context(RunmClient(Connection(host, int(port), "bench", PROJECT, PARTITION.hex)))
    answer_bytes = client.metadata.object_get_by_uuid(uuid=object_uuid(0).hex).ByteSize()
    echo = stack.enter_context(echoing(answer_bytes))
    workers = stack.enter_context(ThreadPoolExecutor(_IN_FLIGHT))
    for in_flight, calls in _CALLS.items():
        yield compared(
            "runm-get",
            f"{engine}, {in_flight} in flight",
            against=f"bare grpcio, {answer_bytes} bytes",
            subject=calling(
                workers,
                in_flight,
                lambda number: client.metadata.object_get_by_uuid(uuid=object_uuid(number % size).hex),
            ),
            comparator=calling(workers, in_flight, lambda _: echo.call(b"")),
            operations=extent.operations(calls),
            rounds=extent.rounds,
            size=size,
        )
    yield from _finds(extent, engine, size, serving, echo, workers, stack)
    numbers = count(size)
    yield compared(
        "runm-create",
        f"{engine}, {_IN_FLIGHT} in flight",
        against="bare grpcio",
        subject=calling(
            workers, _IN_FLIGHT, lambda _: client.metadata.object_create(object=given_object(next(numbers)))
        ),
        comparator=calling(workers, _IN_FLIGHT, lambda _: echo.call(b"")),
        operations=extent.operations(_CREATES[engine]),
        rounds=extent.rounds,
        size=size,
    )
    for name, search in _searches(client, size):
        yield single("runm-find", f"{engine}, {name}", _milliseconds(extent, search), unit="ms", size=size)
    made = iter(range(size, next(numbers)))
    yield single("runm-delete", f"{engine}, {_DELETED_AT_ONCE} a call", _deletes(client, made), unit="ms", size=size)


def _finds(
    extent: Extent,
    engine: str,
    size: int,
    serving: Serving,
    echo: Echo,
    workers: ThreadPoolExecutor,
    stack: ExitStack,
) -> Iterator[Result]:
    """Finds of one object to a thousand, by the processor time of the servers, beside a stream of as many messages.

    Why bytes are sent and taken: what the client's own code costs would be measured on both sides, and blur the ratio.
    """
    channel = stack.enter_context(grpc.insecure_channel(serving.address))
    send: Any = channel.unary_stream(
        "/runm.RunmMetadata/object_find", request_serializer=bytes, response_deserializer=bytes
    )
    for name, found, request in _FINDS:
        if found > size:
            continue
        requests = [_find_request(request(number * 37 % size, size)) for number in range(_REQUESTS)]
        bare = str(found).encode()

        def find(number: int, requests: list[bytes] = requests, found: int = found) -> None:
            answers = list(send(requests[number % _REQUESTS]))
            assert len(answers) == found, (len(answers), found)

        def stream(_: int, bare: bytes = bare) -> None:
            list(echo.stream(bare))

        for in_flight in (1, _IN_FLIGHT):
            yield compared(
                "runm-find",
                f"{engine}, {name}, {in_flight} in flight",
                against=f"bare grpcio, {found} messages, processor time",
                subject=calling(workers, in_flight, find),
                comparator=calling(workers, in_flight, stream),
                operations=extent.operations(max(_IN_FLIGHT, _FOUND_A_ROUND // (found + 9))),
                rounds=extent.rounds,
                size=size,
                aim=_FIND_AIM,
                clocks=(serving.processor_seconds, echo.serving.processor_seconds),
            )


_FOUND_A_ROUND: Final = 10_000
_REQUESTS: Final = 200
_FIND_AIM: Final = 0.6

_FINDS: Final[tuple[tuple[str, int, Callable[[int, int], dict[str, Any]]], ...]] = (
    ("by name", 1, lambda number, size: {"name_filter": {"name": _object(number, size).name}}),
    (
        f"{_FEW} by property",
        _FEW,
        lambda number, size: {"property_filter": {"require_items": [_item(_object(number, size).properties[-1])]}},
    ),
    (f"{_FEW} by tag", _FEW, lambda number, size: {"tag_filter": {"require": [_object(number, size).tags[-1]]}}),
    ("a page of 100 by tag", 100, lambda _number, _size: {"limit": 100, "tag_filter": {"require": ["all"]}}),
    ("a page of 1000 by type", 1_000, lambda _number, _size: {"limit": 1_000}),
)
"""Finds that have a ratio: their name, how many objects they find, and what their one filter asks for beside the type."""


def _item(one: Property) -> dict[str, str]:
    return {"key": one.key, "value": one.value}


def _find_request(given: dict[str, Any]) -> bytes:
    request = messages.ObjectFindRequest(
        session={"user": "bench", "project": PROJECT, "partition": PARTITION.hex},
        options={"limit": given.pop("limit", 0)},
        any=[{"object_type_filter": _IMAGE, **given}],
    )
    raw: bytes = request.SerializeToString()
    return raw


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
        uuids = [object_uuid(number).hex for number in pending[start : start + _DELETED_AT_ONCE]]
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


def object_uuid(number: int) -> UUID:
    """The UUID of an object."""
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
        PARTITION,
        "runm.image",
        object_uuid(number),
        f"image-{number % groups:06}-{number}",
        PROJECT,
        tuple(Property(key, value) for key, value in properties.items()),
        ("all", f"t{number % groups}"),
    )


def given_object(number: int) -> dict[str, Any]:
    """A new object, as a client gives it."""
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


def filled(engine: str, size: int, stack: ExitStack) -> str:
    """The URL of a store with so many objects, loaded at once; the service finds the note that its indexes are kept."""
    if engine == "etcd":
        url = stack.enter_context(EtcdServer()).url
    else:
        folder = stack.enter_context(TemporaryDirectory(prefix="keyplan-runm-"))
        url = f"lmdb:{Path(folder) / 'store'}?history=64"
    with serving_process(url) as serving:
        assert serving.address  # the keys of the first start are written
    with keyplan.open(url) as store:
        runm = Runm(store)
        runm.partitions.insert(PARTITION, Partition(PARTITION, "bench"))
        table = Runm.bound().table("objects")
        pairs: dict[bytes, bytes] = {}
        for number in range(size):
            record = _object(number, size)
            pairs[table.keys.encode(record.uuid)] = table.form.encode(record)
            pairs.update((key, one.raw_value) for key, one in index_entries_of(table, record.uuid, record).items())
        store.engine.load(sorted(pairs.items()))
    return url


def serving_process(url: str) -> AbstractContextManager[Serving]:
    """A process that serves the store."""
    return _process("-c", SERVE, "runm", "serve", "--store", url, *_SERVE_OPTIONS)


@contextmanager
def _process(*arguments: str) -> Iterator[Serving]:
    """A process that prints its address; ended with the block."""
    words = [sys.executable, *arguments]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603  # Why: our own words.
        assert process.stdout is not None
        try:
            yield Serving(process.stdout.readline().strip(), process.pid)
        finally:
            process.terminate()


@contextmanager
def echoing(size: int) -> Iterator[Echo]:
    """A bare grpcio server in a process of its own, which answers with so many bytes."""
    with _process("-m", "benchmarks.echo", str(size)) as serving, grpc.insecure_channel(serving.address) as channel:
        call: Any = channel.unary_unary("/echo/call", request_serializer=bytes, response_deserializer=bytes)
        stream: Any = channel.unary_stream("/echo/stream", request_serializer=bytes, response_deserializer=bytes)
        yield Echo(serving, call, stream)
