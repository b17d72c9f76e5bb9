"""A pace that gives way to other writers: how much of their speed they keep, whatever a job does to them; what it costs alone.

The others write to a real store, at times that the test says; the job's work is time that passes.
"""

from random import Random

import pytest

from keyplan.engine import Commit, MemoryEngine, Put
from keyplan.jobs import YieldingPace
from keyplan.testing.faults import FakeClock

SECONDS = 60.0
BATCH_SECONDS = 0.02
PROMISED = 0.85


class Site:
    """A store, a job in it, and others who commit so often while the job rests, and so much of that while it works."""

    def __init__(self, rate: float, kept: float, seed: int = 1) -> None:
        self.engine, self.clock = MemoryEngine(), FakeClock()
        self.rate, self.kept = rate, kept
        self.worked = self.rested = 0.0
        self.written = 0
        self._chance = Random(seed)  # Why: the same times in each run.
        self.pace = YieldingPace(self.engine, clock=self.clock, sleep=self._rest)

    def work(self, seconds: float, *, commits: int = 1) -> None:
        """Let the job do a batch, which takes so long and makes so many commits of its own."""
        self.worked += seconds
        self._pass(seconds, self.rate * self.kept)
        for _ in range(commits):
            self.engine.commit(Commit((), (Put(b"job", b""),)))
            self.pace.committed()
        self.pace.spend(64)

    def _rest(self, seconds: float) -> None:
        self.rested += seconds
        self._pass(seconds, self.rate)

    def _pass(self, seconds: float, rate: float) -> None:
        self.clock.advance(seconds)
        left = seconds
        while rate and (left := left - self._chance.expovariate(rate)) > 0:
            self.engine.commit(Commit((), (Put(b"other", b""),)))
            self.written += 1

    @property
    def share_kept(self) -> float:
        return self.written / (self.rate * (self.worked + self.rested))


@pytest.mark.parametrize("kept", [0.0, 0.4, 0.8])
@pytest.mark.parametrize("rate", [50, 500])
def test_others_keep_their_speed_whatever_the_work_does_to_them(rate: float, kept: float) -> None:
    site = Site(rate, kept)
    while site.worked + site.rested < SECONDS:
        site.work(BATCH_SECONDS, commits=3)
    assert site.share_kept >= PROMISED
    # A job that rests no more than it must works at least so much of the time, within what chance makes of few commits.
    assert site.worked >= SECONDS * 0.08


def test_whom_the_work_does_no_harm_makes_it_rest_little() -> None:
    site = Site(500, 1.0)
    while site.worked + site.rested < SECONDS:
        site.work(BATCH_SECONDS)
    assert site.worked >= SECONDS * 0.6


@pytest.mark.parametrize("rate", [0, 1])
def test_a_job_that_is_alone_or_beside_heartbeats_hardly_rests(rate: float) -> None:
    site = Site(rate, 1.0)
    while site.worked < SECONDS:
        site.work(BATCH_SECONDS, commits=5)
    assert site.rested <= SECONDS * (0.05 if rate else 0.01)


def test_a_job_works_on_when_the_others_have_gone() -> None:
    site = Site(500, 0.5)
    while site.worked < 5:
        site.work(BATCH_SECONDS)
    site.rate, before = 0, site.rested
    while site.worked < 65:
        site.work(BATCH_SECONDS)
    assert site.rested - before < 3


def test_work_that_was_held_up_for_long_is_not_made_up_for() -> None:
    site = Site(500, 0.0)
    while site.worked < 5:
        site.work(BATCH_SECONDS)
    before = site.rested
    site.work(3_600)
    assert site.rested - before <= 10
