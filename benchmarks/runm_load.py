"""The load that runm-metadata was asked to bear: objects made, found, listed and deleted through the service, in one partition.

`python -m benchmarks.runm_load [--engine lmdb|etcd] [--objects N] [--in-flight N]` prints a line for each part. Each object has
4 properties and 2 tags; ten objects share a value of one property, a tag and the beginning of a name.
"""

import argparse
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any, Final

from benchmarks.cases.runm import serving_process
from keyplan.apps.runm.client import Connection, RunmClient
from tests.servers.etcd import EtcdServer

__all__ = ["load", "main"]

_PARTITION: Final = "d79706e01fbd4e48aae89209061cdb71"
_PROJECT: Final = "proj0"
_IMAGES: Final = {"code_filter": {"code": "runm.image"}}
_FEW: Final = 10
_SEARCHES: Final = 100
_DELETED_AT_ONCE: Final = 100


def main(arguments: list[str] | None = None) -> int:
    """Start a service on an empty store, put the load on it, and print what it took. Return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.runm_load", description=__doc__)
    parser.add_argument("--engine", choices=("lmdb", "etcd"), default="lmdb")
    parser.add_argument("--objects", type=int, default=100_000, metavar="N")
    parser.add_argument("--in-flight", type=int, default=32, metavar="N", help="calls at once while objects are made")
    parser.add_argument("--folder", type=Path, help="where the store is made, and removed")
    given = parser.parse_args(arguments)
    with ExitStack() as stack:
        if given.engine == "etcd":
            url = stack.enter_context(EtcdServer()).url
        else:
            url = f"lmdb:{stack.enter_context(TemporaryDirectory(prefix='keyplan-load-', dir=given.folder))}/store"
        host, _, port = stack.enter_context(serving_process(url)).rpartition(":")
        client = stack.enter_context(RunmClient(Connection(host, int(port), "bench", _PROJECT, _PARTITION)))
        client.metadata("partition_create", partition={"uuid": _PARTITION, "name": "bench"})
        for line in load(client, given.objects, given.in_flight):
            print(f"{given.engine}, {given.objects:,} objects: {line}", flush=True)
    return 0


def load(client: RunmClient, objects: int, in_flight: int) -> Iterator[str]:
    """Yield a line for each part of the load. Raises AssertionError when an answer is not what was stored."""
    begun = perf_counter()
    with ThreadPoolExecutor(in_flight) as workers:
        uuids = list(workers.map(lambda number: _made(client, number, objects), range(objects)))
    yield f"{objects / (perf_counter() - begun):,.0f} created/s, {in_flight} in flight"
    groups = max(1, objects // _FEW)
    searches: dict[str, Callable[[int], dict[str, Any]]] = {
        "by property": lambda group: {"property_filter": {"require_items": [{"key": "serial", "value": f"s{group}"}]}},
        "by tag": lambda group: {"tag_filter": {"require": [f"t{group}"]}},
        "by name prefix": lambda group: {"name_filter": {"name": f"image-{group:06}-", "use_prefix": True}},
    }
    for name, given in searches.items():
        yield f"{_milliseconds(client, given, groups, objects):.1f} ms to find {min(_FEW, objects)} {name}"
    begun = perf_counter()
    listed = _found(client, {"name_filter": {"name": "image-", "use_prefix": True}})
    assert len(listed) == objects, len(listed)
    yield f"{objects / (perf_counter() - begun):,.0f} listed/s by name prefix"
    begun = perf_counter()
    deleted = 0
    for start in range(0, objects, _DELETED_AT_ONCE):
        deleted += client.metadata("object_delete_by_uuids", uuids=uuids[start : start + _DELETED_AT_ONCE]).num_deleted
    assert deleted == objects, deleted
    yield f"{objects / (perf_counter() - begun):,.0f} deleted/s, {_DELETED_AT_ONCE} a call"
    assert not _found(client, {})


def _made(client: RunmClient, number: int, objects: int) -> str:
    groups = max(1, objects // _FEW)
    group = number % groups
    properties = {
        "architecture": ("x86_64", "arm64")[number % 2],
        "os": f"os{number % 7}",
        "site": f"site{number % 20}",
        "serial": f"s{group}",
    }
    given = {
        "partition": _PARTITION,
        "object_type": "runm.image",
        "project": _PROJECT,
        "name": f"image-{group:06}-{number}",
        "properties": [{"key": key, "value": value} for key, value in properties.items()],
        "tags": ["all", f"t{group}"],
    }
    uuid: str = client.metadata("object_create", object=given).object.uuid
    return uuid


def _milliseconds(client: RunmClient, given: Callable[[int], dict[str, Any]], groups: int, objects: int) -> float:
    figures = []
    for number in range(_SEARCHES):
        begun = perf_counter()
        found = _found(client, given(number * 37 % groups))
        figures.append((perf_counter() - begun) * 1_000)
        assert len(found) >= min(_FEW, objects), len(found)
    return median(figures)


def _found(client: RunmClient, given: dict[str, Any]) -> list[Any]:
    return list(client.metadata("object_find", any=[{"object_type_filter": _IMAGES, **given}]))


if __name__ == "__main__":
    sys.exit(main())
