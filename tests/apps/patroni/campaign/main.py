"""Goes round stores and modes, each in namespaces of its own, and makes the report. Started by scripts/patroni-campaign.

Nothing outlives it: what is started in a process namespace ends with the first process of it, which the system ends with this
one. Networks and mounts are in namespaces too, and data in a folder in memory in one of those.
"""

import argparse
import ctypes
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import IO, Any, Final, NamedTuple, get_args

from tests.apps.patroni.campaign.hosts import why_no_hosts
from tests.apps.patroni.campaign.report import report_of, versions
from tests.apps.patroni.campaign.site import Mode, StoreKind
from tests.apps.patroni.campaign.wall_clock import why_no_clock
from tests.apps.patroni.up_process import why_no_up
from tests.servers.etcd import why_no_etcd

__all__: list[str] = []

ROOT: Final = Path(__file__).resolve().parents[4]
_PR_SET_PDEATHSIG: Final = 1
_NAMESPACES: Final = ("--net", "--mount", "--pid", "--ipc", "--uts", "--fork", "--mount-proc", "--kill-child")
_SHARED_MEMORY: Final = 'mount -t tmpfs -o mode=1777 campaign /dev/shm && exec "$@"'
"""Why: what is made there goes with the namespace, also when nothing is asked to end."""


class Waiting(NamedTuple):
    """One combination that is to run, from a fault on."""

    store: str
    mode: str
    seed: int
    ends_at: float
    first: int


class Lane:
    """One combination that runs now. `last` is the number of the last fault that it told of."""

    def __init__(self, begun: Waiting, process: "subprocess.Popen[str]") -> None:
        self.begun = begun
        self.process = process
        self.last = 0

    @property
    def name(self) -> str:
        return f"{self.begun.store} {self.begun.mode}"

    def rest(self, faults: int) -> Waiting | None:
        """What is left to do when it has ended: the faults behind the last that it told of, where there are any.

        Why nothing when it told of none: what cannot begin, or fails at one fault twice, would fail the next time, too.
        """
        is_left = 0 < self.last < faults and time.monotonic() < self.begun.ends_at
        return self.begun._replace(first=self.last + 1) if is_left else None


def _with_parent() -> None:
    """In the new process: it ends when this one does, however."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def started(waiting: Waiting, words: Sequence[str], errors: IO[str]) -> Lane:
    """Start one combination in namespaces of its own."""
    store, mode, seed, ends_at, first = waiting
    command = [
        *("unshare", *_NAMESPACES, "sh", "-c", _SHARED_MEMORY, "sh"),
        # Why: the first process of a process namespace is the parent of whoever loses theirs.
        *(sys.executable, str(ROOT / "scripts" / "contained.py"), "--grace-seconds", "60"),
        *(sys.executable, "-m", "tests.apps.patroni.campaign.run"),
        *("--store", store, "--mode", mode, "--seed", str(seed), "--first", str(first), *words),
        *("--seconds", str(ends_at - time.monotonic())),
    ]
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
        start_new_session=True,
        preexec_fn=_with_parent,  # noqa: PLW1509  # Why: one thread
    )
    return Lane(waiting, process)


@contextmanager
def _ended(lanes: list[Lane]) -> Iterator[None]:
    """End what still runs at the end of a block, however it ends: the namespaces go with their first process."""
    try:
        yield
    finally:
        for lane in lanes:
            lane.process.kill()
            assert lane.process.stdout is not None
            lane.process.stdout.read()  # until nobody has it open any more
            lane.process.wait()


def run(given: argparse.Namespace, records: IO[str], told: list[dict[str, Any]]) -> None:
    """Go round the combinations, and add what is told. One that gives up begins again behind the last fault it told of."""
    combinations = list(product(given.store or get_args(StoreKind), given.mode or get_args(Mode)))
    seconds = given.hours * 3600 / -(-len(combinations) // given.lanes)
    faults = -(-given.faults // len(combinations))
    words = ["--faults", str(faults), "--only", given.only]
    todo = [Waiting(store, mode, given.seed + place, 0.0, 1) for place, (store, mode) in enumerate(combinations)]
    again: list[Waiting] = []
    lanes: list[Lane] = []
    with selectors.DefaultSelector() as selector, _ended(lanes):
        while todo or again or lanes:
            while (todo or again) and len(lanes) < given.lanes:
                waiting = again.pop() if again else todo.pop(0)._replace(ends_at=time.monotonic() + seconds)
                lane = started(waiting, words, sys.stderr)
                lanes.append(lane)
                assert lane.process.stdout is not None
                selector.register(lane.process.stdout, selectors.EVENT_READ, lane)
            for key, _ in selector.select():
                lane = key.data
                assert lane.process.stdout is not None
                line = lane.process.stdout.readline()
                if line:
                    told += taken(lane, line, records)
                    continue
                selector.unregister(lane.process.stdout)
                lanes.remove(lane)
                lane.process.stdout.close()
                if lane.process.wait() != 0:
                    told += taken(lane, json.dumps({"kind": "ended", "code": lane.process.returncode}), records)
                if (rest := lane.rest(faults)) is not None:
                    again.append(rest)


def taken(lane: Lane, line: str, records: IO[str]) -> list[dict[str, Any]]:
    """Keep one record, and show it."""
    try:
        record = json.loads(line)
    except ValueError:
        print(f"{lane.name}: {line.rstrip()}", file=sys.stderr)
        return []
    lane.last = record.get("number", lane.last)
    record = {"store": lane.begun.store, "mode": lane.begun.mode, "seed": lane.begun.seed, **record}
    records.write(json.dumps(record) + "\n")
    records.flush()
    shown = {
        name: value for name, value in record.items() if (value or value is False) and name not in {"logs", "seed"}
    }
    print(f"{time.strftime('%H:%M:%S')} {json.dumps(shown)[:1500]}", file=sys.stderr, flush=True)
    return [record]


def is_kept(record: dict[str, Any]) -> bool:
    """Whether a record tells of nothing that must not be."""
    if record["kind"] == "fault":
        is_lost = record["lost_rows"] > 0 if record["mode"] == "sync" else not _are_within(record)
        return record["is_whole"] and not is_lost and not record["two_leaders"] and not record["differing"]
    return record["kind"] == "versions" or (
        record["kind"] == "secrets" and not record["found"] + record["open_to_others"]
    )


def _are_within(record: dict[str, Any]) -> bool:
    return all(loss["is_within_bound"] for loss in record["lost"])


def _interrupted(number: int, _frame: object) -> None:
    raise SystemExit(128 + number)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/patroni-campaign", description=__doc__)
    parser.add_argument(
        "hours", type=float, metavar="HOURS", help="how long it may take in all; 0: make the report alone"
    )
    parser.add_argument(
        "--store", choices=get_args(StoreKind), action="append", help="one store alone; may be repeated"
    )
    parser.add_argument("--mode", choices=get_args(Mode), action="append", help="one mode alone")
    parser.add_argument(
        "--faults", type=int, default=1 << 20, metavar="N", help="at most so many, over all combinations"
    )
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="what faults are drawn by")
    parser.add_argument("--lanes", type=int, default=1, metavar="N", help="how many clusters at a time")
    parser.add_argument("--only", default="", metavar="WORDS", help="only faults whose name has these words")
    parser.add_argument("--records", type=Path, metavar="FILE", help="add what is found, a JSON object a line")
    parser.add_argument("--report", type=Path, metavar="FILE", help="write the report there; else it is printed")
    parser.add_argument("--note", default="", metavar="TEXT", help="what the report is to say of this run")
    return parser


def main() -> int:
    """Run, report, and return the exit code."""
    given = _parser().parse_args()
    problem = why_no_up() or why_no_hosts()
    if problem is None and "etcd" in (given.store or get_args(StoreKind)):
        problem = why_no_etcd()
    if problem is not None and given.hours:
        print(problem, file=sys.stderr)
        return 2
    if (clockless := why_no_clock()) is not None:
        print(f"no clock is set wrongly: {clockless}", file=sys.stderr)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _interrupted)
    path = given.records or Path(os.devnull)
    found = [json.loads(line) for line in path.read_text().splitlines()] if given.records and path.exists() else []
    try:
        with path.open("a") as records:
            if given.hours:
                found += [{"kind": "versions", **versions()}]
                records.write(json.dumps(found[-1]) + "\n")
                run(given, records, found)
    finally:
        text = report_of(found, given.note)
        if given.report:
            given.report.write_text(text)
        else:
            print(text)
    return 0 if all(map(is_kept, found)) else 1


if __name__ == "__main__":
    sys.exit(main())
