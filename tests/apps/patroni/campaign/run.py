"""One site under faults, inside namespaces of its own: prints what was found, a JSON object a line. Started by `main` alone."""

import argparse
import json
import random
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import psycopg

from tests.apps.patroni.campaign.accounting import Acknowledged, leaders_at_once, losses, lost_rows, stale
from tests.apps.patroni.campaign.faults import Fault, chosen_faults, end_patroni, switched_to
from tests.apps.patroni.campaign.leaks import CommandLines, in_files, in_processes
from tests.apps.patroni.campaign.site import LAG_BYTES_MAX, TTL_SECONDS, Site
from tests.apps.patroni.campaign.writers import TABLE, Writers, rows_of
from tests.apps.patroni.up_process import open_to_others, psql

__all__: list[str] = []

WRITERS: Final = 4
_WHOLE_SECONDS_MAX: Final = 240.0
_LOOK_SECONDS: Final = 1.0
_OWN: Final = ("authority", "clock")
"""What the campaign itself put there."""


class Trace:
    """What all nodes say of themselves, each time that it is another, for the length of a block; seconds are from its begin."""

    def __init__(self, site: Site) -> None:
        self.changes: list[str] = []
        self._site = site
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def _look(self) -> None:
        began, last = time.monotonic(), ""
        while not self._ended.wait(_LOOK_SECONDS):
            now, last = last, self._site.state()
            if now != last:
                self.changes.append(f"{time.monotonic() - began:.0f} s: {last}")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()


class Campaign:
    """Faults one after the other, and at each quiet point a comparison."""

    _NOT_COMPARED: Final[Mapping[str, Any]] = {
        "acknowledged": 0,
        "lost": [],
        "lost_rows": 0,
        "stale": 0,
        "stale_and_lost": 0,
        "stale_seconds": 0.0,
        "two_leaders": {},
        "differing": [],
        "notes": ["what it has could not be compared"],
    }

    def __init__(self, site: Site, writers: Writers, seed: int) -> None:
        self._site = site
        self._writers = writers
        self._draw = random.Random(seed)
        self._counted: set[tuple[int, int]] = set()
        self._led_twice: set[int] = set()
        self._seen = 0
        self._told = 0

    def fault(self, number: int, fault: Fault) -> bool:
        """Do it, heal it, wait for a complete cluster, compare. Return whether there is one."""
        site, writers = self._site, self._writers
        site.until(site.is_complete, "the cluster is complete before a fault")
        node = switched_to(site, fault, self._draw)
        led = site.leader()
        role = "leader" if led is not None and led.name == node.name else "replica"
        name = fault.name if fault.target == "centre" else f"{fault.kind} ({role})"
        since = time.monotonic()
        site.until(
            lambda: writers.acknowledges_since(since), "rows are acknowledged before a fault", _WHOLE_SECONDS_MAX
        )
        with Trace(site) as trace:
            began = time.monotonic()
            with fault.done(site, node, self._draw):
                self._wait(fault.seconds)
            healed = time.monotonic()
            is_whole = self._is_whole()
            whole_seconds = time.monotonic() - healed
        outage = writers.seconds_without(began)
        state, logs = (site.state(), site.logs()[-20_000:]) if not is_whole else ("", "")
        is_helped = not is_whole and self._is_helped()
        told = {
            "kind": "fault",
            "number": number,
            "fault": name,
            "outage_seconds": round(outage, 1),
            "whole_seconds": round(whole_seconds, 1),
            "is_whole": is_whole,
            "is_helped": is_helped,
            "state": state,
            "logs": logs,
            **(self._compared() if is_whole or is_helped else self._NOT_COMPARED),
            "trace": trace.changes,
        }
        self.tell(told)
        return is_whole or is_helped

    def _is_helped(self) -> bool:
        """Do what an operator would: end Patroni everywhere, and the cells start it again. Return whether that helps."""
        for node in self._site.nodes():
            end_patroni(node)
        return self._is_whole()

    def _wait(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        self._site.until(lambda: time.monotonic() >= end, "the fault's time is over", seconds + 60)

    def _is_whole(self) -> bool:
        try:
            since = time.monotonic()
            self._site.until(self._site.is_complete, "the cluster is complete", _WHOLE_SECONDS_MAX)
            self._site.until(
                lambda: self._writers.acknowledges_since(since),
                "rows are acknowledged after a fault",
                _WHOLE_SECONDS_MAX,
            )
            # Why again: a fault may be noticed only after it was healed.
            self._site.until(self._site.is_complete, "the cluster stays complete", _WHOLE_SECONDS_MAX)
        except AssertionError:
            return False
        return True

    def _compared(self) -> dict[str, Any]:
        """Compare what is there with what was acknowledged, with nobody writing; what is wrong is told once."""
        site, writers = self._site, self._writers
        writers.pause()
        try:
            acknowledged = writers.acknowledged
            found = self._rows()
            lost = [each for each in lost_rows(acknowledged, found) if each.key not in self._counted]
            self._counted.update(each.key for each in lost)
            measured = losses(lost, acknowledged, site.forks(), lag_bytes_max=LAG_BYTES_MAX, ttl_seconds=TTL_SECONDS)
            fresh = acknowledged[self._seen :]
            self._seen = len(acknowledged)
            late = sorted({*stale(acknowledged)} & {*fresh}, key=lambda each: each.asked_at)
            at_once = leaders_at_once(acknowledged)
            twice = {timeline: servers for timeline, servers in at_once.items() if timeline not in self._led_twice}
            self._led_twice.update(twice)
            return {
                "acknowledged": len(fresh),
                "lost": [{**loss._asdict(), "is_within_bound": loss.is_within_bound} for loss in measured],
                "lost_rows": len(lost),
                "stale": len(late),
                "stale_and_lost": len({each.key for each in late} & {each.key for each in lost}),
                "stale_seconds": round(_lateness(late, acknowledged), 2),
                "two_leaders": twice,
                "differing": self._differing(found),
                "warned": writers.warned,
                "notes": self._notes(),
            }
        finally:
            writers.go_on()

    def _rows(self) -> frozenset[tuple[int, int]]:
        found: list[frozenset[tuple[int, int]]] = []

        def is_read() -> bool:
            with suppress(psycopg.Error):
                found.append(rows_of(self._site.uri))
            return bool(found)

        self._site.until(is_read, "the rows are read through the router")
        return found[0]

    def _differing(self, found: frozenset[tuple[int, int]]) -> list[str]:
        """The nodes that do not come to have the rows that the leader has: a replica applies the last ones a moment later."""
        site = self._site
        astray = []
        for node in site.nodes():
            try:
                site.until(partial(_has, site.direct_uri(node), found), "a replica has the leader's rows", 60)
            except AssertionError:
                astray.append(f"{node.host.name}: it does not have the rows that the leader has")
        return astray

    def _notes(self) -> list[str]:
        notes = self._site.notes[self._told :]
        self._told = len(self._site.notes)
        return notes

    @staticmethod
    def tell(told: Mapping[str, Any]) -> None:
        print(json.dumps(told), flush=True)


def _has(uri: str, rows: frozenset[tuple[int, int]]) -> bool:
    with suppress(psycopg.Error):
        return rows_of(uri) == rows
    return False


def _lateness(late: Sequence[Acknowledged], acknowledged: Sequence[Acknowledged]) -> float:
    """How long after the first row of a later timeline the last stale one was acknowledged."""
    if not late:
        return 0.0
    lowest = min(each.timeline for each in late)
    first = min(each.acknowledged_at for each in acknowledged if each.timeline > lowest)
    return max(each.acknowledged_at for each in late) - first


@contextmanager
def _folder() -> Iterator[Path]:
    """A folder in memory, which goes with the namespaces."""
    with tempfile.TemporaryDirectory(prefix="campaign-", dir="/dev/shm", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--store", required=True)
    parser.add_argument("--mode", required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--faults", type=int, required=True)
    parser.add_argument("--first", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--only", default="")
    given = parser.parse_args()
    end = time.monotonic() + given.seconds
    with _folder() as folder, Site(folder, store=given.store, mode=given.mode) as site:
        assert "error:" not in psql(site.uri, TABLE)
        secrets = site.secrets()
        with CommandLines(secrets) as seen, Writers(site.uri, WRITERS) as writers:
            campaign = Campaign(site, writers, given.seed)
            for number, fault in zip(count(1), chosen_faults(random.Random(given.seed), given.only), strict=False):
                if number < given.first:
                    continue
                if number > given.faults or time.monotonic() > end:
                    break
                try:
                    if not campaign.fault(number, fault):
                        break
                except AssertionError as error:
                    Campaign.tell(
                        {"kind": "stuck", "number": number, "fault": fault.name, "problem": str(error)[:20_000]}
                    )
                    break
            leaks = [*seen.found, *in_processes(secrets), *in_files(secrets, folder)]
        found = sorted({f"{leak.secret}: {leak.place}" for leak in leaks})
        Campaign.tell(
            {
                "kind": "secrets",
                "searched": sorted(secrets),
                "found": found,
                "open_to_others": [each for each in open_to_others(folder) if not each.startswith(_OWN)],
            }
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
