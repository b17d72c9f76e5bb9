"""What must be the same in each run: time, pauses and random bytes, for the code of actors, set-ups and invariants alone.

Threads that have nothing to do with an exploration go on with the system's clock and the system's randomness.
"""

import hashlib
import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import get_ident
from types import ModuleType
from typing import Any, Final, Protocol

from keyplan.engine import Clock, SystemClock
from keyplan.store import SystemPause

__all__ = ["Scene", "Stage", "counted_bytes", "current_scene", "enter", "leave", "on_stage", "stage"]

_SEED_OTHERS: Final = 255
"""Of whoever is no actor: a set-up, an invariant."""


class Scene(Protocol):
    """Code that runs under the explorer's control: an actor, a set-up, an invariant."""

    @property
    def is_here(self) -> bool:
        """Whether the code that asks is it."""
        ...

    @property
    def clock(self) -> Clock:
        """What time it is there."""
        ...

    def random_bytes(self, size: int) -> bytes:
        """Return bytes that are the same in each run."""
        ...


class Stage:
    """The scene of a set-up or an invariant: code of the thread that explores."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._thread = get_ident()
        self._drawn = 0

    @property
    def is_here(self) -> bool:
        """Whether the code that asks runs in the thread that explores."""
        return get_ident() == self._thread

    def random_bytes(self, size: int) -> bytes:
        """Return the next bytes of this scene."""
        self._drawn += 1
        return counted_bytes(_SEED_OTHERS, self._drawn, size)


def counted_bytes(seed: int, drawn: int, size: int) -> bytes:
    """Return the bytes that come `drawn`th of those of a seed."""
    return hashlib.shake_256(b"%d %d" % (seed, drawn)).digest(size)


_scenes: list[Scene] = []
"""The scene that goes on is the last; an invariant that runs actors again has its own below it."""


def current_scene() -> Scene | None:
    """Return the scene that the calling code belongs to; None outside an exploration."""
    scene = _scenes[-1] if _scenes else None
    return scene if scene is not None and scene.is_here else None


@contextmanager
def on_stage(scene: Scene) -> Iterator[None]:
    """Let the code of a block be that of `scene`."""
    _scenes.append(scene)
    try:
        yield
    finally:
        _scenes.pop()


def enter(scene: Scene) -> None:
    """As `on_stage`, for one step of an actor: the hot path; `leave` ends it."""
    _scenes.append(scene)


def leave() -> None:
    """End what `enter` began."""
    _scenes.pop()


_uses = 0


@contextmanager
def stage() -> Iterator[None]:
    """Control the surroundings for the length of a block; blocks may be nested."""
    global _uses  # noqa: PLW0603  # Why: what is replaced belongs to the process, too.
    _uses += 1
    if _uses > 1:
        try:
            yield
        finally:
            _uses -= 1
        return
    with (
        _replaced(os, "urandom", _urandom),
        _replaced(random, "_urandom", _urandom),
        _replaced(SystemPause, "wait", staticmethod(_pause)),
        _replaced(SystemClock, "monotonic", staticmethod(_monotonic)),
        _replaced(SystemClock, "wall", staticmethod(_wall)),
    ):
        try:
            yield
        finally:
            _uses -= 1


_system_urandom: Final = os.urandom
_system_pause: Final[Callable[[float], None]] = SystemPause.wait


def _urandom(size: int) -> bytes:
    scene = current_scene()
    return _system_urandom(size) if scene is None else scene.random_bytes(size)


def _pause(seconds: float) -> None:
    # Why: a pause is no step: the conflict that caused it is another's progress already.
    if current_scene() is None:
        _system_pause(seconds)


def _monotonic() -> float:
    scene = current_scene()
    return time.monotonic() if scene is None else scene.clock.monotonic()


def _wall() -> float:
    scene = current_scene()
    return time.time() if scene is None else scene.clock.wall()


@contextmanager
def _replaced(owner: ModuleType | type[Any], name: str, value: object) -> Iterator[None]:
    before = vars(owner)[name]
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)
