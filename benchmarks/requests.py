"""`python -m benchmarks.requests`: what a small read costs a server, beside a bare handler of the same HTTP stack.

Each server is a process of its own: the bare handler (`benchmarks.bare`), `keyplan serve` without an access file, with one, and
with one and an audit log; with `--beside FOLDER`, also the server of another checkout, without an access file. They are asked
in turn, a few hundred requests each. What counts is the time that a server computes for one request, in all its threads:
whoever else uses the machine is not in it, but for the caches.
"""

import argparse
import asyncio
import sys
import tempfile
from base64 import b64encode
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple, Protocol

import httpx

import keyplan
from benchmarks.bare import BareServer
from benchmarks.measure import processor_seconds
from keyplan.access import sum_of_token
from keyplan.apps.cloudchamber import CloudChamber, Workload
from keyplan.apps.hepnos.operations import digest_of
from keyplan.apps.hepnos.packed import PACKED, pack
from keyplan.engine import Commit, Put
from tests.servers.keyplan_server import KeyplanServer

__all__ = ["main"]

_WORKLOADS: Final = ("etcd-v3", "hepnos", "cloudchamber")
_TOKEN: Final = "benchmarks-" + "0123456789abcdef" * 3
_ACCESS: Final = f"""[principals.program]
tokens = ["sha256:{sum_of_token(_TOKEN).hex()}"]
read = ["prefix:bench/", "prefix:hepnos/", "operation:getWorkloadsName"]
write = ["prefix:bench/", "prefix:hepnos/"]
"""
_SETTINGS: Final = "webServer:\n  systemAccount: admin\n  systemAccountPassword: adminPassword\n"
_WORKLOAD: Final = "benchmark"
_PRODUCT: Final = bytes(40) + b"p#bytes"  # of the first event of a data set
_KEY: Final = b"bench/key"
_CONNECTIONS: Final = 8
_VALUE: Final = bytes(1_000)


class _Process(Protocol):
    @property
    def pid(self) -> int: ...


class _Server(NamedTuple):
    name: str
    process: _Process
    port: int
    requests: Mapping[str, bytes]


def main(arguments: list[str] | None = None) -> int:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.requests", description=__doc__)
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help=f"of {', '.join(_WORKLOADS)}; by default all")
    parser.add_argument("--rounds", type=int, default=15, help="the median of so many is told")
    parser.add_argument("--requests", type=int, default=800, help="to each server in each round")
    parser.add_argument("--beside", type=Path, metavar="FOLDER", help="another checkout")
    given = parser.parse_args(arguments)
    unknown = set(given.workloads) - set(_WORKLOADS)
    if unknown:
        parser.error(f"no workload is called {', '.join(sorted(unknown))}")
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        servers = _started(Path(folder), stack, given.beside)
        for workload in given.workloads or _WORKLOADS:
            for line in _measured(servers, workload, rounds=given.rounds, requests=given.requests):
                print(line, flush=True)
    return 0


# ---- servers ---------------------------------------------------------------------------------------------------------------


def _started(folder: Path, stack: ExitStack, beside: Path | None) -> list[_Server]:
    """Start all, each on a store of its own with the same in it."""
    (folder / "cloudchamber.yaml").write_text(_SETTINGS)
    access = folder / "access.toml"
    access.write_text(_ACCESS)
    access.chmod(0o600)
    guarded = ("--access", str(access))
    kinds: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
        "keyplan": ((), {}),
        "with an access file": (guarded, {}),
        "and an audit log": ((*guarded, "--audit-log", str(folder / "audit.log")), {}),
    }
    if beside is not None:
        kinds[beside.name] = ((), {"PYTHONPATH": str(beside / "src")})
    servers = []
    for number, (name, (arguments, environment)) in enumerate(kinds.items()):
        place = folder / str(number)
        store = _filled(place)
        apps = ("--app", "etcd-v3", "--app", "hepnos", "--app", "cloudchamber")
        settings = ("--setting", f"hepnos.store=lmdb:{place}/hepnos", "--setting", f"cloudchamber.config={folder}")
        server = KeyplanServer(store, *apps, *settings, *arguments, environment=environment)
        stack.enter_context(server)
        port = int(server.url.rpartition(":")[2])
        requests = _requests(server.url, token=_TOKEN if arguments else None)
        servers.append(_Server(name, server.process, port, requests))
    bare = stack.enter_context(BareServer(_answers(folder / "bare", servers[0])))
    return [_Server("bare", bare.process, int(bare.url.rpartition(":")[2]), servers[0].requests), *servers]


def _filled(place: Path) -> str:
    place.mkdir()
    url = f"lmdb:{place}/store"
    with keyplan.open(url) as store:
        store.engine.commit(Commit((), (Put(_KEY, _VALUE[:100]),)))
        CloudChamber(store).workloads.put(_WORKLOAD, Workload(name=_WORKLOAD))
    return url


def _answers(folder: Path, server: _Server) -> str:
    """Make the bare handler's store: what keyplan answers, by path."""
    with keyplan.open(f"lmdb:{folder}") as store:
        for request in server.requests.values():
            path = request.split(b" ", 2)[1].partition(b"?")[0]
            store.engine.commit(Commit((), (Put(path, asyncio.run(_asked(server.port, request))),)))
    return str(folder)


# ---- requests --------------------------------------------------------------------------------------------------------------


def _requests(url: str, *, token: str | None) -> dict[str, bytes]:
    """Return a request of each protocol, whole, as it is sent; the product that one asks for is there then."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    with httpx.Client(base_url=url, headers=headers) as client:
        described = client.get("/hepnos/databases").json()["databases"]["products"][0]["description"]
        product = f"/hepnos/databases/products/0/{{}}?ring={digest_of(described.encode())}"
        packed = {"Content-Type": PACKED}
        client.post(product.format("put"), content=pack([_PRODUCT], [_VALUE]), headers=packed).raise_for_status()
        in_chamber = headers
        if token is None:
            login = client.put("/api/users/admin?op=login", content="adminPassword")
            login.raise_for_status()
            in_chamber = {"Cookie": "; ".join(f"{name}={value}" for name, value in client.cookies.items())}
    key = b64encode(_KEY).decode()
    return {
        "etcd-v3": _written("POST", "/v3/kv/range", headers, f'{{"key":"{key}"}}'.encode()),
        "hepnos": _written("POST", product.format("get"), {**headers, **packed}, pack([_PRODUCT])),
        "cloudchamber": _written("GET", f"/api/workloads/{_WORKLOAD}", in_chamber, b""),
    }


def _written(method: str, path: str, headers: Mapping[str, str], body: bytes) -> bytes:
    named = {"Host": "localhost", **headers}
    if body:
        named["Content-Length"] = str(len(body))
    head = "".join(f"{name}: {value}\r\n" for name, value in named.items())
    return f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body


async def _asked(port: int, request: bytes, *, times: int = 1) -> bytes:
    """Ask so many times over one connection; return the body of the last answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    body = b""
    for _ in range(times):
        writer.write(request)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        assert head[9:11] == b"20", head
        body = await reader.readexactly(int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0]))
    writer.close()
    return body


# ---- measuring -------------------------------------------------------------------------------------------------------------


def _measured(servers: Sequence[_Server], workload: str, *, rounds: int, requests: int) -> list[str]:
    """Return a line for each server: microseconds of one request, and its speed as a ratio to the bare handler's."""
    taken: dict[str, list[float]] = {server.name: [] for server in servers}
    for number in range(rounds + 1):
        # Why turned about: whoever is first finds a colder machine. The first round does not count.
        for server in (*servers[number % len(servers) :], *servers[: number % len(servers)]):
            seconds = asyncio.run(_computed(server, workload, requests))
            if number:
                taken[server.name].append(seconds)
    lines = []
    for name, own in taken.items():
        ratios = [bare / seconds for bare, seconds in zip(taken[servers[0].name], own, strict=True)]
        lines.append(
            f"{workload:12} {name:22} {median(own) * 1e6:7.1f} us  {1 / median(own):7.0f} requests/s of a core"
            f"  ratio {median(ratios):.2f} ({min(ratios):.2f}..{max(ratios):.2f})"
        )
    return lines


async def _computed(server: _Server, workload: str, requests: int) -> float:
    """Return the seconds that the server computed for each of so many requests."""
    before = processor_seconds(server.process.pid)
    each = requests // _CONNECTIONS
    request = server.requests[workload]
    await asyncio.gather(*(_asked(server.port, request, times=each) for _ in range(_CONNECTIONS)))
    return (processor_seconds(server.process.pid) - before) / (each * _CONNECTIONS)


if __name__ == "__main__":
    sys.exit(main())
