"""The recorded-history check for as long as is wished: `python -m tests.history.run --engine NAME --minutes N --seed S`."""

import argparse
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from keyplan.engine import SYSTEM_CLOCK, Engine
from keyplan.errors import KeyplanError
from keyplan.testing.history import Finding, check_history
from tests.history.clients import opened
from tests.history.faults import CLUSTER_FAULTS, SERVER_FAULTS, ClusterFaults, ServerFaults
from tests.history.rounds import ClientProcess, ClientThreads, Round, figures
from tests.servers.etcd import EtcdCluster, why_no_etcd
from tests.servers.postgres import PostgresServer, why_no_postgres

__all__ = ["ENGINES", "checked_round", "rounds"]

ENGINES: Final = ("etcd-cluster", "lmdb", "memory", "postgres")
_ROUND_SECONDS: Final = 100.0


@contextmanager
def rounds(engine_name: str, seed: int) -> Iterator["Rounds"]:
    """Set up what the rounds of one run share: servers, a folder, an engine of the runner's own."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="keyplan-history-store-")))
        cluster = stack.enter_context(EtcdCluster()) if engine_name == "etcd-cluster" else None
        server = stack.enter_context(PostgresServer()) if engine_name == "postgres" else None
        if cluster is not None:
            url = f"{cluster.url}?timeout=4"
        elif server is not None:
            url = server.local_url(timeout="4")
        elif engine_name == "lmdb":
            url = f"lmdb:{folder}"
        else:
            url = "memory:"
        engine = stack.enter_context(opened(url))
        yield Rounds(url, engine, cluster or server, random.Random(seed))


class Rounds:
    """Makes rounds on one engine."""

    def __init__(
        self, url: str, engine: Engine, servers: EtcdCluster | PostgresServer | None, chance: random.Random
    ) -> None:
        self._url = url
        self._engine = engine
        self._servers = servers
        self._chance = chance

    def next(self, folder: Path) -> Round:
        """Return a round that records into the folder."""
        return Round(self._engine, folder, self._chance, self._start, self._kinds(), self._inject)

    def _kinds(self) -> tuple[str, ...]:
        if isinstance(self._servers, EtcdCluster):
            return CLUSTER_FAULTS
        if self._servers is not None:
            return SERVER_FAULTS
        return ("compact",) if self._url == "memory:" else ("compact", "kill a client")

    def _start(self, name: str, seed: int, folder: Path) -> ClientProcess | ClientThreads:
        if self._url == "memory:":
            return ClientThreads(self._engine, name, seed, folder)
        return ClientProcess(self._url, name, seed, folder)

    def _inject(self, round_: Round, kind: str) -> str:
        if isinstance(self._servers, EtcdCluster):
            return ClusterFaults(self._servers, self._chance, round_.compact).inject(kind)
        if self._servers is not None:
            faults = ServerFaults(
                self._servers, self._chance, compact=round_.compact, kill_client=lambda: self._kill_client(round_)
            )
            return faults.inject(kind)
        return round_.compact() if kind == "compact" else self._kill_client(round_)

    def _kill_client(self, round_: Round) -> str:
        victim = round_.clients.pop(0)
        assert isinstance(victim, ClientProcess)
        victim.kill()
        round_.add_client()
        return victim.name


def checked_round(round_: Round, seconds: float) -> tuple[Counter[str], list[Finding]]:
    """Run a round, check what it recorded, and return figures and findings."""
    history = round_.run(seconds)
    findings = check_history(history)
    return figures(history, findings), findings


def main(arguments: list[str]) -> int:
    """Run round after round until the time is over, or something is wrong. Return the exit code."""
    parser = argparse.ArgumentParser(prog="tests.history.run")
    parser.add_argument("--engine", choices=ENGINES, default="etcd-cluster")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    options = parser.parse_args(arguments)
    needed = {"etcd-cluster": why_no_etcd, "postgres": why_no_postgres}
    problem = needed[options.engine]() if options.engine in needed else None
    if problem is not None:
        print(problem, file=sys.stderr)
        return 2
    print(f"engine {options.engine}, seed {options.seed}", flush=True)
    return _run(options.engine, options.minutes * 60, options.seed)


def _run(engine_name: str, seconds: float, seed: int) -> int:
    began = SYSTEM_CLOCK.monotonic()
    total: Counter[str] = Counter()
    findings: list[Finding] = []
    folder = Path()
    with rounds(engine_name, seed) as made:
        while not findings and (left := seconds - (SYSTEM_CLOCK.monotonic() - began)) > 0:
            folder = Path(tempfile.mkdtemp(prefix="keyplan-history-"))
            try:
                counted, findings = checked_round(made.next(folder), min(left, _ROUND_SECONDS))
            except (AssertionError, KeyplanError) as error:
                print(f"FAILED, the history is kept in {folder}: {error}", flush=True)
                return 1
            total += counted
            total["rounds"] += 1
            told = f"{counted['revisions in the log']:,} revisions, {len(findings)} findings"
            print(f"{SYSTEM_CLOCK.monotonic() - began:.0f} s: {told}", flush=True)
            if not findings:
                shutil.rmtree(folder)
    for name, figure in sorted(total.items()):
        print(f"{name:48} {figure:>10,}")
    for finding in findings[:20]:
        print(f"{finding.wrong.value}: {finding.detail}")
    print(f"FAILED, the history is kept in {folder}" if findings else "all of it holds", flush=True)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
