"""What a call of runm-metadata costs its server, in processor time and in calls a second, beside a bare grpcio server's.

`python -m benchmarks.runm_cpu [--durability full|none] [--processes N] [--pin] [--rounds N]` prints a line for each round: for
each kind of call the microseconds of the server's processors, and calls a second. The store is on LMDB. Clients are
processes of their own, with a connection each and eight calls in flight: connections are what several servers behind one port
share out. With `--pin` the clients share the last processor of this machine, and the servers have the others.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from time import perf_counter, sleep
from typing import Any, Final

import grpc

from benchmarks.cases.runm import PARTITION, PROJECT, SERVE, filled, given_object, object_uuid
from keyplan.apps.runm.client import Connection, RunmClient

__all__ = ["main"]

_SIZE: Final = 2_000
_IN_FLIGHT: Final = 8
_SETTLE_SECONDS: Final = 0.5
"""Why: what a server does behind its last answer is still the calls'."""


def main(arguments: list[str] | None = None) -> int:
    """Measure, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.runm_cpu", description=__doc__)
    parser.add_argument("--durability", choices=("full", "none"), default="full")
    parser.add_argument("--processes", type=int, default=1, metavar="N", help="server processes behind the port")
    parser.add_argument("--clients", type=int, default=4, metavar="N", help="client processes")
    parser.add_argument("--calls", type=int, default=500, metavar="N", help="calls of each client in a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--pin", action="store_true", help="clients on the last processor, servers on the others")
    parser.add_argument("--call", metavar="KIND:ADDRESS:FIRST:CALLS", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.call is not None:
        kind, _, rest = given.call.partition(":")
        return _client(kind, *rest.rsplit(":", 2))
    processors = sorted(os.sched_getaffinity(0))
    servers, clients = (processors[:-1], processors[-1:]) if given.pin else (processors, processors)
    with ExitStack() as stack:
        url = filled("lmdb", _SIZE, stack) + f"&durability={given.durability}"
        several = ("--processes", str(given.processes)) if given.processes > 1 else ()
        words = ("-c", SERVE, "runm", "serve", "--store", url, "--listen", "127.0.0.1:0", "--no-register", *several)
        runm = stack.enter_context(_server(servers, *words))
        echo = stack.enter_context(_server(servers, "-m", "benchmarks.echo", "250"))
        first = 0
        for _ in range(given.rounds):
            line = []
            for kind, server in (("get", runm), ("create", runm), ("echo", echo)):
                line.append(_measured(kind, server, clients, first, given.clients, given.calls))
                first += given.clients * given.calls
            print(" | ".join(line), flush=True)
    return 0


def _measured(kind: str, server: tuple[int, str], clients: list[int], first: int, count: int, calls: int) -> str:
    pid, address = server
    asking = [
        _started(clients, "-m", "benchmarks.runm_cpu", "--call", f"{kind}:{address}:{first + number * calls}:{calls}")
        for number in range(count)
    ]
    for one in asking:
        _line(one)  # it is connected and warm
    used = _processor_seconds(pid)
    begun = perf_counter()
    for one in asking:
        assert one.stdin is not None
        one.stdin.write("go\n")
        one.stdin.flush()
    for one in asking:
        _line(one)
    seconds = perf_counter() - begun
    sleep(_SETTLE_SECONDS)
    used = _processor_seconds(pid) - used
    for one in asking:
        one.communicate()
    made = count * calls
    return f"{kind} {used / made * 1e6:.0f} us {made / seconds:,.0f}/s"


def _started(processors: list[int], *words: str) -> "subprocess.Popen[str]":
    """A process of this interpreter, on some processors."""
    process = subprocess.Popen(  # noqa: S603  # Why: the words are this module's own; none comes from outside.
        [sys.executable, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    # Why from outside, and at once: it has no threads yet, and those that it starts are where it is.
    os.sched_setaffinity(process.pid, processors)
    return process


def _line(process: "subprocess.Popen[str]") -> None:
    assert process.stdout is not None
    assert process.stdout.readline(), "a client has failed"


def _client(kind: str, address: str, first_text: str, calls_text: str) -> int:
    """Make calls when a line comes; a line is printed before and behind them."""
    first, calls = int(first_text), int(calls_text)
    host, _, port = address.rpartition(":")
    with ExitStack() as stack:
        workers = stack.enter_context(ThreadPoolExecutor(_IN_FLIGHT))
        if kind == "echo":
            channel = stack.enter_context(grpc.insecure_channel(address))
            echo: Any = channel.unary_unary("/echo/call", request_serializer=bytes, response_deserializer=bytes)
            call = partial(_echo, echo)
        else:
            client = stack.enter_context(RunmClient(Connection(host, int(port), "bench", PROJECT, PARTITION.hex)))
            call = partial(_get if kind == "get" else _create, client)
        if kind != "create":
            list(workers.map(call, range(4 * _IN_FLIGHT)))
        print("ready", flush=True)
        sys.stdin.readline()
        list(workers.map(call, range(first, first + calls)))
        print("done", flush=True)
    return 0


def _echo(echo: Callable[[bytes], object], _number: int) -> object:
    return echo(b"")


def _get(client: RunmClient, number: int) -> object:
    return client.metadata.object_get_by_uuid(uuid=object_uuid(number % _SIZE).hex)


def _create(client: RunmClient, number: int) -> object:
    return client.metadata.object_create(object=given_object(_SIZE + number))


@contextmanager
def _server(processors: list[int], *words: str) -> Iterator[tuple[int, str]]:
    """A server process on some processors; gives its id and address."""
    with _started(processors, *words) as process:
        assert process.stdout is not None
        try:
            yield process.pid, process.stdout.readline().strip()
        finally:
            process.terminate()


def _processor_seconds(pid: int) -> float:
    """What a process and those that it has started have used of the processors."""
    seconds = 0.0
    for task in Path(f"/proc/{pid}/task").iterdir():
        seconds += int((task / "schedstat").read_text().split()[0]) / 1e9
        for child in (task / "children").read_text().split():
            seconds += _processor_seconds(int(child))
    return seconds


if __name__ == "__main__":
    sys.exit(main())
