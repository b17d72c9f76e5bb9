"""A step, and what engines that park ask of the run that they belong to."""

from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from keyplan.engine import Commit
from keyplan.errors import KeyplanError
from keyplan.testing.schedules.footprint import Footprint, HasFootprint

__all__ = ["REVISION_SEEN", "TIME_SEEN", "Parking", "Step", "Wait", "failed", "note"]

REVISION_SEEN: Final = "revision"
TIME_SEEN: Final = "time"
"""What a step may look at besides keys: its snapshot's revision, the clock. Nothing is asked for; reports leave it out."""


class Step(Footprint):
    """One call of the engine, and the actor's own code after it: from being let go until it parks again or ends."""

    __slots__ = ("actor", "answers", "call", "fault", "has_waited", "number", "open_snapshots", "outcome", "subject")

    def __init__(self, actor: int) -> None:
        super().__init__()
        self.actor = actor
        self.call = ""
        self.number = 0
        """Of the actor's calls, from 1."""
        self.subject: object = None
        """What the call was given: a commit, a key, a range."""
        self.fault = ""
        self.outcome: object = None
        """A revision, or the error that the call raised."""
        self.answers: list[tuple[str, object, object]] | None = None
        """What was read, with what was asked; None unless the run is recorded."""
        self.open_snapshots = 0
        self.has_waited = False
        """Whether the call may be let go only when something is so: others' steps enable and hinder it."""

    @property
    def seen(self) -> tuple[object, ...]:
        """What must be the same whenever this step is carried out again from the same state."""
        outcome = self.outcome
        shown = (type(outcome).__name__, str(outcome)) if isinstance(outcome, BaseException) else outcome
        return (self.actor, self.call, self.subject, shown, self.answers)


class Wait(NamedTuple):
    """What a call waits for, and what decides whether that is so: it joins the footprint of the call."""

    is_over: Callable[[], bool]
    touched: HasFootprint


class Parking(Protocol):
    """The run, as far as its engines know it."""

    revisions_matter: bool
    """Whether numbers of revisions are part of what is read and written."""
    revision_names: dict[int, tuple[int, int]]
    """Which call made a revision: actor and number."""

    def park(self, call: str, subject: object = None, *, wait: "Wait | None" = None) -> Step:
        """Wait until the schedule lets the calling actor go. Raises what a fault at this call raises before it is done.

        With `wait` it is not let go before that is over, or nobody else can go on.
        """
        ...

    def acknowledge(self, step: Step, engine: int, revision: int, commit: Commit) -> None:
        """Keep a commit of the engine of that number whose caller gets its revision."""
        ...

    @property
    def time(self) -> float:
        """What the clock shows."""
        ...


def note(step: Step, method: str, asked: object, answer: object) -> None:
    """Write down what was read, where the run is recorded."""
    if step.answers is not None:
        step.answers.append((method, asked, answer))


def failed(step: Step, error: KeyplanError) -> KeyplanError:
    """Keep what a call raises, and return it."""
    step.outcome = error
    return error
