"""What every class of promises shares: the fixtures that an engine's test file supplies, and the guard against weakening.

Each promise is a class of tests in a module of its own; `EngineSuite` is all of them.
"""

import time
from collections.abc import Callable, Sequence
from inspect import getattr_static
from typing import Any, ClassVar, Final, TypeVar

import pytest

from keyplan.engine import (
    ALL_KEYS,
    Capability,
    Commit,
    Engine,
    Entry,
    Event,
    Guard,
    KeyRange,
    Mutation,
    Put,
    Watch,
)

__all__ = ["Promise", "commit", "eventually", "everything", "needs", "polled", "put"]

_Test = TypeVar("_Test", bound=Callable[..., object])

_SUPPLIED: Final = frozenset({"engine", "known_deviations", "other_process_url", "pass_time", "reopen"})
"""The only names of the suite that a subclass may set."""

_PATIENCE_SECONDS: Final = 30.0
"""Why so long: only what fails waits for it, and a busy machine is no failure."""


def needs(capability: Capability) -> Callable[[_Test], _Test]:
    """Mark a test for engines that claim `capability`. A sibling test says what the others must do."""

    def mark(test: _Test) -> _Test:
        test.__dict__["needs_capability"] = capability
        return test

    return mark


class Promise:
    """The part of an engine's test class that is not a promise: fixtures, deviations, the guard against weakening.

    A subclass supplies `engine`; `pass_time` when its leases run on a fake clock; `reopen` when it claims DURABLE; and
    `other_process_url` when it claims SHARED. What the engine is known to do wrong stands in `known_deviations`, test name
    to reason: such a test must fail, and the run fails on the day that it does not.
    """

    known_deviations: ClassVar[dict[str, str]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.__module__.startswith(__package__ or "keyplan.testing.engine_suite"):
            return
        promised = {name: value for parent in reversed(cls.__mro__) for name, value in _own(parent).items()}
        changed = sorted(name for name, value in promised.items() if getattr_static(cls, name) is not value)
        if changed:
            raise TypeError(f"{cls.__name__} changes what the engine suite promises: {', '.join(changed)}")
        if not getattr(cls, "__test__", True):
            raise TypeError(f"{cls.__name__} switches the engine suite off")
        unknown = sorted(set(cls.known_deviations) - promised.keys())
        if unknown:
            raise TypeError(f"{cls.__name__} lists deviations from tests that do not exist: {', '.join(unknown)}")

    @pytest.fixture
    def engine(self) -> Engine:
        """Return an open, empty engine. Every engine's test class supplies it."""
        raise NotImplementedError

    @pytest.fixture
    def pass_time(self) -> Callable[[float], None]:
        """Return what lets so many seconds pass for the engine's leases: by default they really pass."""
        return time.sleep

    @pytest.fixture
    def reopen(self) -> Callable[[], Engine]:
        """Return what closes the engine and opens the same store again."""
        raise NotImplementedError

    @pytest.fixture
    def other_process_url(self) -> str:
        """Return the URL by which another process opens the store that `engine` has open."""
        raise NotImplementedError

    @pytest.fixture(autouse=True)
    def _apply_profile(self, request: pytest.FixtureRequest, engine: Engine) -> None:
        test = request.function
        capability = getattr(test, "needs_capability", None)
        if capability is not None and not engine.profile.claims(capability):
            pytest.skip(f"{engine.profile.name} does not claim {capability.name}")
        reason = self.known_deviations.get(test.__name__)
        if reason is not None:
            request.node.add_marker(pytest.mark.xfail(reason=reason, strict=True))


def _own(parent: type) -> dict[str, object]:
    """Return what a class of the suite promises: everything but what a subclass supplies."""
    if not parent.__module__.startswith(__package__ or "keyplan.testing.engine_suite"):
        return {}
    return {name: value for name, value in vars(parent).items() if not name.startswith("__") and name not in _SUPPLIED}


# ---- short ways to say what tests say all the time ----------------------------------------------------------------------


def commit(engine: Engine, *mutations: Mutation, guards: Sequence[Guard] = ()) -> int:
    """Commit and return the revision."""
    return engine.commit(Commit(tuple(guards), mutations))


def put(engine: Engine, *keys: bytes, value: bytes = b"value") -> int:
    """Put some keys in one commit."""
    return commit(engine, *(Put(key, value) for key in keys))


def everything(engine: Engine, key_range: KeyRange = ALL_KEYS) -> list[Entry]:
    """Return all entries of a range, in order."""
    with engine.snapshot() as snapshot:
        return list(snapshot.scan(key_range))


def polled(watch: Watch, *, until: int) -> list[Event]:
    """Poll until the watch has delivered revision `until`; fail when it does not in good time."""
    events: list[Event] = []

    def has_arrived() -> bool:
        events.extend(watch.poll(0.05))
        return watch.revision >= until

    eventually(has_arrived)
    return events


def eventually(is_true: Callable[[], object]) -> None:
    """Ask again and again until the answer is true; fail after half a minute."""
    give_up_at = time.monotonic() + _PATIENCE_SECONDS
    pause_seconds = 0.001
    while not is_true():
        if time.monotonic() > give_up_at:
            raise AssertionError("what was waited for did not happen")
        time.sleep(pause_seconds)
        pause_seconds = min(pause_seconds * 2, 0.05)
