"""`python -m benchmarks.gateway`: requests a second of the v2 gateway beside etcd 3.4's own v2 API, in turn, on one machine.

Both are processes of their own with durable writes; the client is one lean process, so that the servers are what is measured.
A Patroni cluster of two nodes makes 4 writes and 3 reads in each loop of 10 s: the mixed figure tells how many clusters one
gateway carries.
"""

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, Final
from urllib.parse import quote_plus

from tests.servers.etcd import EtcdServer
from tests.servers.keyplan_server import KeyplanServer

__all__ = ["WORKLOADS", "main", "measured"]

Request = Callable[[int], bytes]

CLUSTERS: Final = 300
REQUESTS_A_SECOND_OF_A_CLUSTER: Final = 0.7
MEMBER: Final = quote_plus(
    '{"conn_url":"postgres://127.0.0.1:25432/postgres","api_url":"http://127.0.0.1:28008/patroni","state":"running",'
    '"role":"primary","version":"4.1.5","xlog_location":53417672,"timeline":6}'
)


def _get(path: str) -> bytes:
    return f"GET /v2/keys{path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


def _put(path: str, form: str) -> bytes:
    body = form.encode()
    head = f"PUT /v2/keys{path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\n"
    return head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body


def _loop_of_patroni(number: int) -> bytes:
    """One of the seven requests that a cluster of two nodes makes in each loop; every cluster in its turn."""
    scope = f"/service/c{number // 7 % CLUSTERS}"
    step = number % 7
    if step in {0, 2, 5}:
        return _get(f"{scope}/?recursive=true&quorum=false")
    if step == 1:
        return _put(f"{scope}/leader?prevExist=true", "value=n1&ttl=300")
    if step == 3:
        return _put(f"{scope}/status", f"value={number}")
    return _put(f"{scope}/members/n{step // 3}", f"value={MEMBER}&ttl=300")


WORKLOADS: Final[dict[str, Request]] = {
    "read one key": lambda number: _get(f"/service/c{number % CLUSTERS}/leader"),
    "list a cluster": lambda number: _get(f"/service/c{number % CLUSTERS}/?recursive=true"),
    "write a key": lambda number: _put(f"/service/c{number % CLUSTERS}/status", f"value={number}"),
    "write with a TTL": lambda number: _put(f"/service/c{number % CLUSTERS}/members/n1", f"value={MEMBER}&ttl=300"),
    "a Patroni loop": _loop_of_patroni,
}


async def _connection(port: int, request: Request, numbers: "count[int]", end_at: float) -> int:
    """Ask one request after the other. Return how many were answered with success."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    answered = 0
    while perf_counter() < end_at:
        writer.write(request(next(numbers)))
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        await reader.readexactly(int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0]))
        assert head[9:11] == b"20", head
        answered += 1
    writer.close()
    return answered


def measured(port: int, request: Request, *, connections: int, seconds: float) -> float:
    """Return requests a second."""

    async def run() -> float:
        numbers, began = count(), perf_counter()
        tasks = [_connection(port, request, numbers, began + seconds) for _ in range(connections)]
        return sum(await asyncio.gather(*tasks)) / (perf_counter() - began)

    return asyncio.run(run())


def _fill(port: int) -> None:
    """Write every cluster's keys once, so that each request finds what it asks for."""

    async def run() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for number in range(CLUSTERS):
            for key in ("leader", "members/n1", "members/n2", "status", "config"):
                writer.write(_put(f"/service/c{number}/{key}", "value=n1&ttl=3000"))
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                await reader.readexactly(int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0]))
        writer.close()

    asyncio.run(run())


def _rows(ports: Sequence[int], *, rounds: int, seconds: float) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for name, request in WORKLOADS.items():
        for connections in (1, 32):
            pairs = [
                [measured(port, request, connections=connections, seconds=seconds) for port in ports]
                for _ in range(rounds)
            ]
            ours, theirs = (median(pair[side] for pair in pairs) for side in (0, 1))
            ratio = median(pair[0] / pair[1] for pair in pairs)
            rows.append(
                {
                    "workload": name,
                    "connections": connections,
                    "gateway": round(ours),
                    "etcd": round(theirs),
                    "ratio": round(ratio, 2),
                }
            )
            clusters = f", {ours / REQUESTS_A_SECOND_OF_A_CLUSTER:.0f} clusters" if name == "a Patroni loop" else ""
            sys.stdout.write(
                f"{name:18} {connections:3} connections  gateway {ours:7.0f}/s  etcd {theirs:7.0f}/s"
                f"  ratio {ratio:.2f}{clusters}\n"
            )
            sys.stdout.flush()
    return rows


def main(arguments: list[str] | None = None) -> int:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gateway", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="the median of so many is told")
    parser.add_argument("--seconds", type=float, default=2.0, help="how long each measurement takes")
    parser.add_argument("--folder", type=Path, help="where the stores are made: a disk, if flushes are to count")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results")
    given = parser.parse_args(arguments)
    with (
        tempfile.TemporaryDirectory(dir=given.folder) as folder,
        KeyplanServer(f"lmdb:{folder}/store", "--app", "etcd-v2") as gateway,
        EtcdServer(has_v2=True, arguments=["--wal-dir", f"{folder}/wal"]) as etcd,
    ):
        ports = (int(gateway.url.rpartition(":")[2]), etcd.client_port)
        for port in ports:
            _fill(port)
        rows = _rows(ports, rounds=given.rounds, seconds=given.seconds)
    if given.json:
        given.json.write_text(json.dumps(rows, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
