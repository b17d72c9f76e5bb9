"""A program of the old layout beside a migration: `python -m benchmarks.old_writer URL TABLE RECORDS`, or a thread.

It writes one record after the other until it is told to end, and says when each was committed, by the clock that all processes
of a machine have in common.
"""

import subprocess
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Generator
from contextlib import contextmanager
from itertools import count
from threading import Event, Thread
from time import monotonic
from typing import Final

import msgspec

import keyplan
from benchmarks.site import Site, machine, slot
from keyplan.store import Store

__all__ = ["OldWriter", "main", "writing"]

_STRIDE: Final = 7_919
"""Why: a prime, so that the records come in an order that a migration does not have."""


class OldWriter:
    """What is known of a writer. `times` are there when it has ended."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def rate(self, *spans: tuple[float, float]) -> float:
        """Return how many records it wrote a second in spans of time, each between two of its writes."""
        written, seconds = 0, 0.0
        for start, end in spans:
            first, last = bisect_right(self.times, start) - 1, bisect_left(self.times, end)
            written += last - first
            seconds += self.times[last] - self.times[first]
        return written / seconds


@contextmanager
def writing(store: Store, url: str | None, table: str, records: int) -> Generator[OldWriter, None, None]:
    """Let a writer be at work: in a process of its own where the store has a URL, else in a thread. It has begun."""
    writer = OldWriter()
    with _by_thread(writer, store, table, records) if url is None else _by_process(writer, url, table, records):
        yield writer


@contextmanager
def _by_thread(writer: OldWriter, store: Store, table: str, records: int) -> Generator[None, None, None]:
    begun, ended = Event(), Event()
    thread = Thread(target=lambda: writer.times.extend(_written(store, table, records, begun.set, ended.is_set)))
    thread.start()
    try:
        begun.wait()
        yield
    finally:
        ended.set()
        thread.join()


@contextmanager
def _by_process(writer: OldWriter, url: str, table: str, records: int) -> Generator[None, None, None]:
    command = [sys.executable, "-m", "benchmarks.old_writer", url, table, str(records)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:  # noqa: S603  # Why: ours.
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            if process.stdout.readline() != b"begun\n":
                raise RuntimeError("the writer has not begun")
            yield
        finally:
            process.stdin.close()
            said = process.stdout.read()
        writer.times = msgspec.json.decode(said, type=list[float])


def main(arguments: list[str]) -> None:
    """Write until the input ends, then print the times."""
    url, table, records = arguments
    ended = Event()

    def wait() -> None:
        sys.stdin.read()
        ended.set()

    Thread(target=wait, daemon=True).start()
    with keyplan.open(url) as store:
        times = _written(store, table, int(records), lambda: print("begun", flush=True), ended.is_set)
    print(msgspec.json.encode(times).decode())


def _written(
    store: Store, table: str, records: int, begun: Callable[[], None], is_ended: Callable[[], bool]
) -> list[float]:
    site = Site(store)
    times: list[float] = []
    for number in count():
        # Why before: a last write comes after it was told to end.
        is_last = is_ended()
        place = number * _STRIDE % records
        if table == Site.notes.name:
            site.notes.put(str(place), f"the {number}th")
        else:
            site.machines.put(slot(place), machine(place, state=f"checked {number} times"))
        times.append(monotonic())
        if number == 0:
            begun()
        if is_last:
            return times
    raise AssertionError


if __name__ == "__main__":
    main(sys.argv[1:])
