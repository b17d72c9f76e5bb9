"""A pace that gives way: a job beside other writers rests as much as leaves them most of their speed; alone it hardly rests.

That others commit is told by the store's revision: a look now and then, and no commit. What they lose by the job is measured:
how much they commit while it works, against while it rests. The share of the time that it works follows from that.
"""

from collections.abc import Callable
from math import sqrt
from typing import Final

from keyplan.engine import SYSTEM_CLOCK, Clock, Engine
from keyplan.jobs.pace import UNSTOPPED, Pace, Stop

__all__ = ["YieldingPace"]

_LOSS: Final = 0.1
"""What part of their speed others may lose. Why less than the 0.15 that is promised: what is measured is never exact."""

_SHARE_MIN: Final = _LOSS
"""The share of the time that may be worked whatever the others lose by it: nobody loses more than all."""

_SHARE_MAX: Final = 0.75
"""Why not all of the time: how they do while the job rests has to be seen."""

_SHARE_FIRST: Final = 0.2
"""When others are seen that were not before. Why little: how they do without the job is not known yet."""

_SHARE_GROWTH: Final = 1.2
"""By how much the share may grow from one rest to the next. Why: in a moment of noise others seem to lose too little."""

_WORK_SECONDS: Final = 0.05
"""How long the job works at least between two looks. Why: a look may be a request, and then is a hundredth of it."""

_REST_SECONDS_MAX: Final = 10.0
"""Why: what took longer was a wait, and no work; a process that was halted for an hour shall not rest for nine."""

_PROBE_SECONDS: Final = 0.005
_PROBED_EVERY_SECONDS: Final = 1.0
"""A job that saw nobody rests so long after so much work. Why: others may stand still all the time that it works."""

_KEPT: Final = 0.9
"""How much of what was counted still counts after another work and rest: some twenty of them say how it is now."""

_GONE_SECONDS: Final = 0.2
"""When nobody commits in so long a rest, nor in the work before it, the others are gone; what was counted of them is past."""

_COMMITS_PER_SECOND_MIN: Final = 5
"""Why: who commits less often does not wait in line for the next one; heartbeats and leases that end are such."""


class _Tally:
    """Commits of others, and the time in which they were made; what was counted earlier fades."""

    def __init__(self) -> None:
        self.commits = self.seconds = 0.0
        self.latest = 0

    @property
    def rate(self) -> float:
        return self.commits / self.seconds if self.seconds else 0.0

    def add(self, commits: int, seconds: float) -> None:
        self.latest = commits
        self.commits = self.commits * _KEPT + commits
        self.seconds = self.seconds * _KEPT + seconds


class YieldingPace(Pace):
    """As fast as it goes while nobody else commits to a store; beside others so much of the time that they keep their speed.

    They keep nine tenths of it, as exactly as that can be measured, where they commit some twenty times a second or more, and
    that even if they stand still while the job works. Where revisions do not count commits (LMDB with `history=off`, a ring),
    nobody is seen. One job has it at a time.
    """

    def __init__(
        self, engine: Engine, *, clock: Clock = SYSTEM_CLOCK, sleep: Callable[[float], object] | None = None
    ) -> None:
        super().__init__(clock=clock, sleep=sleep)
        self._engine = engine
        self._revision: int | None = None
        self._own = 0
        self._unrested = 0.0
        self._at_work, self._at_rest = _Tally(), _Tally()
        self._share: float | None = None

    def committed(self, count: int = 1) -> None:
        self._own += count

    def spend(self, count: int, stop: Stop = UNSTOPPED) -> None:
        worked = self._clock.monotonic() - self._since
        if worked < _WORK_SECONDS and self._revision is not None:
            return
        before, own, self._own = self._revision, self._own, 0
        self._revision = self._looked()
        if before is not None:
            self._at_work.add(max(self._revision - before - own, 0), worked)
            self._rest(self._due(worked), stop)
        self._since = self._clock.monotonic()

    def _due(self, worked: float) -> float:
        """Return how long to rest after so much work."""
        self._unrested += worked
        wanted = self._wanted()
        if wanted is None:
            self._share = None
            return _PROBE_SECONDS if self._unrested >= _PROBED_EVERY_SECONDS else 0.0
        self._share = share = _SHARE_FIRST if self._share is None else min(wanted, self._share * _SHARE_GROWTH)
        return min(worked * (1 - share) / share, _REST_SECONDS_MAX)

    def _wanted(self) -> float | None:
        """Return the share of the time at which others lose what they may; None when nobody else is there."""
        work, rest = self._at_work, self._at_rest
        # Why more than one: one is no rate. In a rest it counts all the same: it is short, and shows who stands still at work.
        at_work = work.rate if work.commits > 1 else 0.0
        if max(at_work, rest.rate) < _COMMITS_PER_SECOND_MIN:
            return None
        if not rest.commits:
            return _SHARE_MAX  # Why: nobody commits but while it works, so it keeps nobody from it.
        # Why less by half of what chance makes of so few: who is in doubt gives way.
        chance = sqrt(1 / max(work.commits, 1) + 1 / max(rest.commits, 1))
        kept = work.rate / rest.rate * max(1 - chance / 2, 0)
        return min(max(_LOSS / max(1 - kept, _LOSS), _SHARE_MIN), _SHARE_MAX)

    def _rest(self, seconds: float, stop: Stop) -> None:
        """Rest, and count what others commit meanwhile."""
        if seconds <= 0:
            self._at_rest.add(0, 0.0)
            return
        self._unrested = 0.0
        began, before = self._clock.monotonic(), self._revision or 0
        self._wait(seconds, stop)
        rested = self._clock.monotonic() - began
        self._revision = self._looked()
        commits = max(self._revision - before, 0)
        self._at_rest.add(commits, rested)
        if rested >= _GONE_SECONDS and not commits and not self._at_work.latest:
            self._at_work, self._at_rest = _Tally(), _Tally()

    def _looked(self) -> int:
        with self._engine.snapshot() as snapshot:
            return snapshot.revision
