"""Writers that are killed with signal 9: the short form of `scripts/crash`."""

import os
import random
from pathlib import Path

import pytest

from tests.crash.cycles import KilledWriters

CYCLES = 10


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_killed_writers_lose_no_acknowledged_commit_and_leave_no_half_one(tmp_path: Path) -> None:
    seed = int(os.environ.get("KEYPLAN_SEED") or random.SystemRandom().randrange(1 << 32))
    print(f"KEYPLAN_SEED={seed}")  # shown by pytest when it fails
    killed = KilledWriters(f"lmdb:{tmp_path}?durability=full", random.Random(seed))
    for _ in range(CYCLES):
        killed.run_cycle()
    assert killed.figures["cycles"] == CYCLES
    assert killed.figures["acknowledged commits"] > 0
