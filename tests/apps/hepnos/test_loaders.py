"""Four loader processes, killed and restarted at random, end in the events of the input. scripts/kill-loaders is longer."""

from pathlib import Path

import pytest

from keyplan.apps import hepnos
from tests.apps.hepnos.loaders import compare, run_loaders


@pytest.mark.slow
def test_four_loaders_that_are_killed_end_in_the_events_of_the_input(tmp_path: Path) -> None:
    url = f"lmdb:{tmp_path}/store"
    hepnos.open(url, databases={"events": 2, "products": 2}).close()
    killed = run_loaders(url, loaders=4, events=2_000, kills=4, seed=11)
    assert compare(url, loaders=4, events=2_000) == 5_000
    assert killed >= 2
