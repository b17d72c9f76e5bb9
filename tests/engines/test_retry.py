"""The one retry: conflicts alone, so often, so far apart; everything else ends it at once."""

from collections.abc import Callable

import pytest

from keyplan.engine import Backoff, ended_lease_is_conflict
from keyplan.errors import (
    CommitConflictError,
    CommitOutcomeUnknownError,
    EngineUnavailableError,
    KeyplanError,
    LeaseNotFoundError,
)
from keyplan.limits import COMMIT_RETRIES_MAX, RETRY_SECONDS_FIRST, RETRY_SECONDS_MAX

UNKNOWN = CommitOutcomeUnknownError(engine="memory", mutations=1)


def losing(times: int, error: Callable[[int], KeyplanError] | None = None) -> tuple[list[int], Callable[[], str]]:
    """An attempt that loses so often, and the list of its tries."""
    tries: list[int] = []

    def attempt() -> str:
        tries.append(len(tries))
        if len(tries) <= times:
            raise CommitConflictError(failed=(), number=tries[-1]) if error is None else error(tries[-1])
        return "done"

    return tries, attempt


def test_waits_double_up_to_the_longest_and_chance_shortens_each() -> None:
    waits: list[float] = []
    tries, attempt = losing(14)
    assert Backoff(sleep=waits.append, chance=lambda: 1.0).until_committed(attempt) == "done"
    assert waits == [min(RETRY_SECONDS_MAX, RETRY_SECONDS_FIRST * 2**lost) for lost in range(14)]
    shorter: list[float] = []
    assert Backoff(sleep=shorter.append, chance=lambda: 0.0).until_committed(losing(14)[1]) == "done"
    assert shorter == [wait / 2 for wait in waits]
    assert len(tries) == 15


def test_the_last_conflict_is_raised_as_it_was() -> None:
    waits: list[float] = []
    tries, attempt = losing(1_000)
    with pytest.raises(CommitConflictError) as raised:
        Backoff(sleep=waits.append).until_committed(attempt)
    assert (len(tries), len(waits)) == (COMMIT_RETRIES_MAX + 1, COMMIT_RETRIES_MAX)
    assert raised.value.facts["number"] == COMMIT_RETRIES_MAX
    assert raised.value.__context__ is None


@pytest.mark.parametrize(
    "error", [UNKNOWN, EngineUnavailableError(engine="memory", problem="away"), LeaseNotFoundError(lease=1)]
)
def test_nothing_but_a_conflict_is_tried_again(error: KeyplanError) -> None:
    tries, attempt = losing(1, lambda _: error)
    waits: list[float] = []
    with pytest.raises(type(error)):
        Backoff(sleep=waits.append).until_committed(attempt)
    assert (tries, waits) == ([0], [])


def test_a_conflict_that_another_try_cannot_win_is_raised_at_once() -> None:
    waits: list[float] = []
    tries, attempt = losing(5)
    with pytest.raises(CommitConflictError):
        Backoff(sleep=waits.append).until_committed(attempt, is_lost=lambda conflict: conflict.facts["number"] != 2)
    assert (tries, len(waits)) == ([0, 1, 2], 2)


def test_a_lease_that_ended_meanwhile_is_a_lost_race() -> None:
    with pytest.raises(CommitConflictError) as raised, ended_lease_is_conflict():
        raise LeaseNotFoundError(lease=7)
    assert isinstance(raised.value.__cause__, LeaseNotFoundError)
    with pytest.raises(CommitOutcomeUnknownError), ended_lease_is_conflict():
        raise UNKNOWN
