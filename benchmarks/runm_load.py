"""The load that runm-metadata was asked to bear, through the service, in one partition: made, got, found, listed and deleted.

`python -m benchmarks.runm_load [--store lmdb|etcd] [--objects N] [--folder PATH]` prints a line for each part. Each object has
4 properties and 2 tags; ten share a value of one property, a tag and the beginning of a name, however many there are.
"""

import argparse
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any, Final

from benchmarks.cases.runm import calling, echoing, serving_process
from benchmarks.measure import compared
from keyplan.apps.runm.client import Connection, RunmClient
from tests.servers.etcd import EtcdServer

__all__ = ["Load", "main"]

_PARTITION: Final = "d79706e01fbd4e48aae89209061cdb71"
_PROJECT: Final = "proj0"
_IMAGES: Final = {"code_filter": {"code": "runm.image"}}
_FEW: Final = 10
_SEARCHES: Final = 100
_DELETED_AT_ONCE: Final = 100
_PAGE: Final = 50
_SIZE_FIRST: Final = 1_000
_CREATORS: Final = 16
_GETS: Final = {1: 1_000, 32: 4_000}


def main(arguments: list[str] | None = None) -> int:
    """Start a service on an empty store, put the load on it, and print what it took. Return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.runm_load", description=__doc__)
    parser.add_argument("--store", choices=("lmdb", "etcd"), default="lmdb")
    parser.add_argument("--objects", type=int, default=100_000, metavar="N")
    parser.add_argument("--folder", type=Path, help="where the LMDB store is made, and removed")
    given = parser.parse_args(arguments)
    with ExitStack() as stack:
        if given.store == "etcd":
            url = stack.enter_context(EtcdServer()).url
        else:
            url = f"lmdb:{stack.enter_context(TemporaryDirectory(prefix='keyplan-load-', dir=given.folder))}/store"
        host, _, port = stack.enter_context(serving_process(url)).address.rpartition(":")
        client = stack.enter_context(RunmClient(Connection(host, int(port), "bench", _PROJECT, _PARTITION)))
        client.metadata.partition_create(partition={"uuid": _PARTITION, "name": "bench"})
        for line in Load(client, given.objects).lines():
            print(f"{given.store}: {line}", flush=True)
    return 0


@dataclass
class Load:
    """The load on one service with an empty partition. Raises AssertionError when an answer is not what was stored."""

    client: RunmClient
    objects: int
    uuids: list[str] = field(default_factory=list)

    def lines(self) -> Iterator[str]:
        """Yield a line for each part: searches after each tenfold number of objects, the rest with all of them."""
        size = min(_SIZE_FIRST, self.objects)
        yield self._created(size, creators=1)
        yield from self._searched()
        while size < self.objects:
            size = min(10 * size, self.objects)
            yield self._created(size, creators=_CREATORS)
            yield from self._searched()
        yield from self._got()
        yield self._listed()
        yield self._paged()
        yield self._deleted()

    def _created(self, until: int, *, creators: int) -> str:
        numbers = range(len(self.uuids), until)
        begun = perf_counter()
        with ThreadPoolExecutor(creators) as workers:
            self.uuids += workers.map(self._made, numbers)
        rate = len(numbers) / (perf_counter() - begun)
        return f"{len(numbers):,} objects by {creators} creator{'s' if creators > 1 else ''}: {rate:,.0f} created/s"

    def _made(self, number: int) -> str:
        group = number // _FEW
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
        uuid: str = self.client.metadata.object_create(object=given).object.uuid
        return uuid

    def _searched(self) -> Iterator[str]:
        searches: dict[str, Callable[[int], dict[str, Any]]] = {
            "property": lambda group: {"property_filter": {"require_items": [{"key": "serial", "value": f"s{group}"}]}},
            "tag": lambda group: {"tag_filter": {"require": [f"t{group}"]}},
            "name prefix": lambda group: {"name_filter": {"name": f"image-{group:06}-", "use_prefix": True}},
        }
        for name, given in searches.items():
            yield f"{self._milliseconds(given):.1f} ms to find {_FEW} by {name} among {len(self.uuids):,}"

    def _milliseconds(self, given: Callable[[int], dict[str, Any]]) -> float:
        groups = max(1, len(self.uuids) // _FEW)
        figures = []
        for number in range(_SEARCHES):
            begun = perf_counter()
            found = self._found(given(number * 37 % groups))
            figures.append((perf_counter() - begun) * 1_000)
            assert len(found) == min(_FEW, len(self.uuids)), len(found)
        return median(figures)

    def _got(self) -> Iterator[str]:
        bytes_each = self.client.metadata.object_get_by_uuid(uuid=self.uuids[0]).ByteSize()
        with echoing(bytes_each) as echo, ThreadPoolExecutor(max(_GETS)) as workers:
            for in_flight, calls in _GETS.items():
                result = compared(
                    "get",
                    f"{in_flight} in flight",
                    against="echo",
                    subject=calling(workers, in_flight, self._one),
                    comparator=calling(workers, in_flight, lambda _: echo.call(b"")),
                    operations=calls,
                    rounds=5,
                )
                yield (
                    f"{result.rate:,.0f} object_get_by_uuid/s, {in_flight} in flight, among {len(self.uuids):,}: "
                    f"{result.ratio:.2f} of a bare grpcio server's {bytes_each} bytes"
                )

    def _one(self, number: int) -> object:
        return self.client.metadata.object_get_by_uuid(uuid=self.uuids[number * 7_919 % len(self.uuids)])

    def _listed(self) -> str:
        begun = perf_counter()
        listed = self._found({"name_filter": {"name": "image-", "use_prefix": True}})
        assert len(listed) == len(self.uuids), len(listed)
        return f"{len(listed):,} objects by name prefix: {len(listed) / (perf_counter() - begun):,.0f} listed/s"

    def _paged(self) -> str:
        """Pages at the beginning, in the middle and at the end of the list of all."""
        ordered = sorted(self.uuids)
        figures = []
        for start in [len(ordered) * part // 50 for part in range(50)]:
            options = {"limit": _PAGE, "marker": ordered[start - 1] if start else ""}
            begun = perf_counter()
            page = self._found({}, options=options)
            figures.append((perf_counter() - begun) * 1_000)
            assert [one.uuid for one in page] == ordered[start : start + _PAGE]
        return f"{median(figures):.1f} ms for a page of {_PAGE} of all {len(ordered):,}, {max(figures):.1f} at most"

    def _deleted(self) -> str:
        begun = perf_counter()
        deleted = 0
        for start in range(0, len(self.uuids), _DELETED_AT_ONCE):
            batch = self.uuids[start : start + _DELETED_AT_ONCE]
            deleted += self.client.metadata.object_delete_by_uuids(uuids=batch).num_deleted
        assert deleted == len(self.uuids), deleted
        rate = deleted / (perf_counter() - begun)
        assert not self._found({})
        return f"{deleted:,} objects, {_DELETED_AT_ONCE} a call: {rate:,.0f} deleted/s"

    def _found(self, given: dict[str, Any], **fields: Any) -> list[Any]:
        return list(self.client.metadata.object_find(any=[{"object_type_filter": _IMAGES, **given}], **fields))


if __name__ == "__main__":
    sys.exit(main())
