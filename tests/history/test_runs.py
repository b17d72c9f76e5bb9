"""Clients on memory, LMDB and a cluster of etcd, under faults: the short form of `scripts/history`."""

import os
import random
from collections import Counter
from pathlib import Path

import pytest

from tests.history.faults import CLUSTER_FAULTS
from tests.history.run import checked_round, rounds

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

SHORT_FAULTS = ("kill the leader", "compact", "halt the leader", "move the leader")


def held(engine_name: str, folder: Path, seconds: float, kinds: tuple[str, ...] = ()) -> Counter[str]:
    """Run a round, see that it holds and that all kinds of operations were done, and return its figures."""
    seed = int(os.environ.get("KEYPLAN_SEED") or random.SystemRandom().randrange(1 << 32))
    print(f"KEYPLAN_SEED={seed}")  # shown by pytest when it fails
    with rounds(engine_name, seed) as made:
        round_ = made.next(folder)
        round_.kinds = kinds or round_.kinds
        figures, findings = checked_round(round_, seconds)
    assert findings == []
    for kind in ("register: write", "set: add", "append", "counter: take a ticket"):
        assert figures[f"{kind}: acknowledged"] > 0
    assert figures["commit: acknowledged"] <= figures["revisions in the log"]
    assert figures["reads"] > 0
    assert figures["watch: events"] > 0
    assert figures["lease: grant"] > 0
    return figures


def test_threads_on_memory(tmp_path: Path) -> None:
    assert held("memory", tmp_path, 2.5)["fault: compact"] > 0


def test_processes_on_lmdb_that_are_killed(tmp_path: Path) -> None:
    assert held("lmdb", tmp_path, 6)["fault: kill a client"] > 0


def test_processes_on_a_cluster_whose_members_are_killed_and_halted(tmp_path: Path, etcd_program: None) -> None:
    assert set(SHORT_FAULTS) < set(CLUSTER_FAULTS)
    figures = held("etcd-cluster", tmp_path, 14, SHORT_FAULTS)
    assert sum(figures[f"fault: {kind}"] for kind in SHORT_FAULTS) >= 2
