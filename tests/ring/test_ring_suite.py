"""A ring as an engine, judged by the conformance suite: over one database, and over three of which lists are merged."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from keyplan.engine import Engine, open_engine
from keyplan.ring import RingEngine, ring_of
from keyplan.testing.engine_suite import EngineSuite
from tests.ring.sites import Site


def ring_in(folder: Path, databases: int, options: str = "") -> RingEngine:
    return ring_of([open_engine(f"lmdb:{folder}/{number}?history=off{options}") for number in range(databases)], Site)


def url_of(folder: Path, databases: int, options: str = "") -> str:
    listed = folder / "ring.txt"
    listed.write_text("".join(f"lmdb:{folder}/{number}?history=off{options}\n" for number in range(databases)))
    return f"ring:{listed}"


@pytest.mark.engine
class TestRingOfOne(EngineSuite):
    @pytest.fixture
    def engine(self, tmp_path: Path) -> Iterator[Engine]:
        with ring_in(tmp_path, 1, "&durability=none") as engine:
            yield engine

    @pytest.fixture
    def other_process_url(self, tmp_path: Path) -> str:
        return url_of(tmp_path, 1, "&durability=none")


@pytest.mark.engine
class TestRingOfThree(EngineSuite):
    # Why: the suite's keys are no keys of the layout, so that all are in the first database, and lists are merged of three.
    known_deviations: ClassVar[dict[str, str]] = {
        "test_a_guard_looks_at_the_state_before_the_commits_own_writes": "its range of all keys is in three databases",
        "test_a_range_without_an_end_is_guarded": "its range is in three databases",
    }

    @pytest.fixture
    def engine(self, tmp_path: Path) -> Iterator[Engine]:
        with ring_in(tmp_path, 3) as engine:
            yield engine

    @pytest.fixture
    def reopen(self, engine: Engine, tmp_path: Path) -> Callable[[], Engine]:
        return lambda: (engine.close(), ring_in(tmp_path, 3))[1]

    @pytest.fixture
    def other_process_url(self, tmp_path: Path) -> str:
        return url_of(tmp_path, 3)
