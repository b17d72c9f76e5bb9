"""A pytest plugin: `pytest_plugins = ["keyplan.testing.pytest_plugin"]` in a conftest.py gives `check_after` and `schedules`.

A test that damages its store on purpose says what it leaves: `@pytest.mark.leaves("damaged-record")`. A test that explores
schedules may say how long: `@pytest.mark.schedules(seconds=60, complete=True)`.
"""

import hashlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from keyplan.errors import InvalidInputError
from keyplan.store import Store
from keyplan.testing import checked

if TYPE_CHECKING:
    from keyplan.testing.schedules import Exploration, Scenario

__all__ = ["SchedulesFixture", "check_after", "pytest_addoption", "pytest_configure", "schedules"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Tell pytest the options."""
    group = parser.getgroup("keyplan")
    group.addoption(
        "--schedule",
        metavar="STRING",
        default="",
        help="replay this schedule in the test whose scenario it names, and show every call, instead of exploring there",
    )
    group.addoption(
        "--schedules-seconds",
        metavar="N",
        type=float,
        default=1.0,
        help="multiply the seconds of explorations by N, for nightly runs",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Tell pytest the markers."""
    config.addinivalue_line("markers", "leaves(*codes): findings of keyplan's check that the test leaves in its store")
    config.addinivalue_line(
        "markers", "schedules(seconds=, complete=, strategy=): how the test's fixture `schedules` explores"
    )


@pytest.fixture
def check_after(request: pytest.FixtureRequest) -> Callable[..., AbstractContextManager[Store]]:
    """Give `checked.check_after`, which checks a store when its block ends, for the fixtures of this test's stores.

    It takes the store and its layouts, and knows what the test's marker `leaves` promises.
    """
    marker = request.node.get_closest_marker("leaves")
    return partial(checked.check_after, leaves=() if marker is None else marker.args)


class SchedulesFixture(Protocol):
    """What the fixture `schedules` gives."""

    def __call__(self, scenario: "Scenario", **options: Any) -> "Exploration | None":
        """Explore a scenario, and fail with the report; None when a schedule was replayed instead, which did not fail."""
        ...


@pytest.fixture
def schedules(request: pytest.FixtureRequest) -> SchedulesFixture:
    """Give `explore`, which raises with the report when a schedule fails. Options are those of `explore`.

    The string of a failure is kept by the test's node id, and tried first in the next run.
    """
    # Why here: whoever wants the other fixture alone need not wait for it.
    from keyplan.testing.schedules import ScheduleFailure, explore  # noqa: PLC0415

    marker = request.node.get_closest_marker("schedules")
    asked = {} if marker is None else dict(marker.kwargs)
    config, node = request.config, request.node.nodeid

    def explored(scenario: "Scenario", **options: Any) -> "Exploration | None":
        given = {**asked, **options}
        given["seconds_max"] = given.pop("seconds", given.get("seconds_max", 10.0)) * config.getoption(
            "--schedules-seconds"
        )
        text = str(config.getoption("--schedule"))
        if text and text.split(":")[1:2] == [scenario.digest]:
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("KEYPLAN_SCHEDULES", "full")
                _replayed(scenario, text, node)
            return None
        memory = _Memory(config, f"{node}:{scenario.digest}")
        memory.try_first(partial(_replayed, scenario, node=node))
        found = explore(scenario, **given)
        memory.keep(found.failures[0].text if found.failures else "")
        if found.failures:
            raise ScheduleFailure(found, node)
        return found

    return explored


def _replayed(scenario: "Scenario", text: str, node: str) -> None:
    """Run a schedule, and raise AssertionError with its script when it fails."""
    from keyplan.testing.schedules import replay  # noqa: PLC0415  # Why: as above

    outcome = replay(scenario, text)
    if outcome.failure:
        raise AssertionError(f"{node}\n{text}\n{outcome.script}\n{outcome.failure}")


class _Memory:
    """The string of a test's last failure, in pytest's cache; nothing where that is switched off."""

    def __init__(self, config: pytest.Config, name: str) -> None:
        self._cache: pytest.Cache | None = getattr(config, "cache", None)
        self._key = f"keyplan/schedules/{hashlib.sha256(name.encode()).hexdigest()[:16]}"

    def try_first(self, replayed: Callable[[str], None]) -> None:
        """Replay what is kept; what the program cannot follow any more is forgotten."""
        text = self._cache.get(self._key, "") if self._cache is not None else ""
        if text:
            try:
                replayed(text)
            except InvalidInputError:
                self.keep("")

    def keep(self, text: str) -> None:
        """Keep a string, or nothing."""
        if self._cache is not None and self._cache.get(self._key, "") != text:
            self._cache.set(self._key, text)
