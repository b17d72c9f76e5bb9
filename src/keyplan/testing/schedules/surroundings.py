"""All that must be the same in each run: time, pauses and random bytes, and stores that start no thread.

Clock, pauses and randomness of the system are replaced for the code of actors, set-ups and invariants alone, and so is whoever
keeps the leases of a store that this code makes. Threads that have nothing to do with an exploration go on with the system's.
"""

import hashlib
import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from threading import Lock, get_ident
from types import ModuleType
from typing import Any, Final, Protocol

from keyplan.engine import Backoff, Clock, Engine, SystemClock, SystemPause
from keyplan.store import STORE_CLOSED, Keeper, Lease, LeaseSchedule, Store
from keyplan.testing.schedules.footprint import CLOCK
from keyplan.testing.schedules.steps import TIME_SEEN, Step, note

__all__ = [
    "SEED_OF_JUDGES",
    "Context",
    "ExplorerContext",
    "ObservedClock",
    "ThreadlessKeeper",
    "controlled_surroundings",
    "counted_bytes",
    "current_context",
    "enter",
    "in_context",
    "leave",
    "threadless_store",
]

SEED_OF_SETUPS: Final = 255
SEED_OF_JUDGES: Final = 253
"""The seeds of code that is no actor's; 254 is that of an application beside a job that is killed.

Why not one: an identifier that an invariant draws must not be one that the set-up drew.
"""


class Context(Protocol):
    """Code that runs under the explorer's control: an actor, a set-up, an invariant."""

    @property
    def is_here(self) -> bool:
        """Whether the calling code is this code."""
        ...

    @property
    def clock(self) -> Clock:
        """The clock that this code sees."""
        ...

    def random_bytes(self, size: int) -> bytes:
        """Return bytes that are the same in each run."""
        ...


class ExplorerContext:
    """The context of a set-up or an invariant: code of the thread that explores."""

    def __init__(self, clock: Clock, seed: int = SEED_OF_SETUPS) -> None:
        self.clock = clock
        self._seed = seed
        self._thread = get_ident()
        self._drawn = 0

    @property
    def is_here(self) -> bool:
        """Whether the calling code runs in the thread that explores."""
        return get_ident() == self._thread

    def random_bytes(self, size: int) -> bytes:
        """Return the next bytes of this context."""
        self._drawn += 1
        return counted_bytes(self._seed, self._drawn, size)


def counted_bytes(seed: int, drawn: int, size: int) -> bytes:
    """Return the bytes of a seed's draw of that number: the same in each process."""
    return hashlib.shake_256(b"%d %d" % (seed, drawn)).digest(size)


_contexts: dict[int, Context] = {}
"""By their identity, in the order in which they were entered: of each thread that explores, the one that runs is its last."""


def current_context() -> Context | None:
    """Return the context that the calling code belongs to; None outside an exploration."""
    for context in reversed(list(_contexts.values())):
        if context.is_here:
            return context
    return None


@contextmanager
def in_context(context: Context) -> Iterator[None]:
    """Let the code of a block be that of `context`."""
    enter(context)
    try:
        yield
    finally:
        leave(context)


def enter(context: Context) -> None:
    """Begin what `in_context` does, without a context manager: for each step of an actor. `leave` ends it."""
    _contexts[id(context)] = context


def leave(context: Context) -> None:
    """End what `enter` began."""
    del _contexts[id(context)]


_changing: Final = Lock()
"""Held while what belongs to the process is replaced or put back: several threads may explore at once."""
_replacements: Final = ExitStack()
_uses = 0


@contextmanager
def controlled_surroundings() -> Iterator[None]:
    """Control the surroundings for the length of a block. Blocks may be nested, and those of several threads overlap."""
    global _uses  # noqa: PLW0603  # Why: what is replaced belongs to the process, too.
    with _changing:
        if not _uses:
            _replace_all()
        _uses += 1
    try:
        yield
    finally:
        with _changing:
            _uses -= 1
            if not _uses:
                _replacements.close()


def _replace_all() -> None:
    with ExitStack() as replaced:  # Why: when one cannot be replaced, those before it are put back.
        replaced.enter_context(_replaced(os, "urandom", _urandom))
        replaced.enter_context(_replaced(random, "_urandom", _urandom))
        replaced.enter_context(_replaced(SystemPause, "wait", staticmethod(_pause)))
        replaced.enter_context(_replaced(SystemClock, "monotonic", staticmethod(_monotonic)))
        replaced.enter_context(_replaced(SystemClock, "wall", staticmethod(_wall)))
        replaced.enter_context(_replaced(_STORES, "LeaseKeeper", _keeper))
        _replacements.push(replaced.pop_all())


_STORES: Final = sys.modules[Store.__module__]
_system_keeper: Final[Callable[[Engine, Clock], Keeper]] = vars(_STORES)["LeaseKeeper"]
_system_urandom: Final = os.urandom
_system_pause: Final[Callable[[float], None]] = SystemPause.wait


def _urandom(size: int) -> bytes:
    context = current_context()
    return _system_urandom(size) if context is None else context.random_bytes(size)


def _pause(seconds: float) -> None:
    # Why: a pause is no step: the conflict that caused it is another's progress already.
    if current_context() is None:
        _system_pause(seconds)


def _monotonic() -> float:
    context = current_context()
    return time.monotonic() if context is None else context.clock.monotonic()


def _wall() -> float:
    context = current_context()
    return time.time() if context is None else context.clock.wall()


def _keeper(engine: Engine, clock: Clock) -> Keeper:
    # Why: a store that the code makes of its engine (a registry's) would keep its leases in a thread, which has another clock.
    return _system_keeper(engine, clock) if current_context() is None else ThreadlessKeeper(engine, clock)


@contextmanager
def _replaced(owner: ModuleType | type[Any], name: str, value: object) -> Iterator[None]:
    before = vars(owner)[name]
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


# ---- stores without threads ------------------------------------------------------------------------------------------------

_NO_WAIT: Final = Backoff(sleep=lambda _seconds: None, chance=lambda: 0.5)


def threadless_store(engine: Engine, clock: Clock, keeper: "ThreadlessKeeper | None" = None) -> Store:
    """Return a store that starts no threads and waits for nothing."""
    return Store(engine, backoff=_NO_WAIT, clock=clock, keeper=keeper or ThreadlessKeeper(engine, clock))


class ThreadlessKeeper(Keeper):
    """Knows the leases of one store, and renews them when an actor calls `renew`, as the thread of an ordinary keeper would."""

    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._schedule = LeaseSchedule(engine, clock)
        self._leases: list[Lease] = []

    def keep(self, lease: Lease, *, is_resumed: bool) -> None:
        self._schedule.add(lease, is_resumed=is_resumed)
        self._leases.append(lease)

    def forget(self, lease: Lease) -> None:
        self._schedule.remove(lease)
        if lease in self._leases:
            self._leases.remove(lease)

    def tell(self, lease: Lease, on_loss: Callable[[Lease], object]) -> None:
        on_loss(lease)

    def renew(self) -> None:
        """Look at each lease once, whether or not it is due."""
        for lease in tuple(self._leases):
            self._schedule.look(lease)

    def close(self) -> None:
        leases, self._leases = self._leases, []
        self._schedule.take_all()
        for lease in leases:
            lease.lose(STORE_CLOSED)


class ObservedClock:
    """The clock of actors. Each look joins the footprint of the actor's step, which so depends on steps that pass time."""

    def __init__(self, clock: Clock, step: Callable[[], Step]) -> None:
        self._clock = clock
        self._step = step

    def monotonic(self) -> float:
        """Return seconds, as `Clock` does."""
        return self._seen(self._clock.monotonic)

    def wall(self) -> float:
        """Return seconds since 1970, as `Clock` does."""
        return self._seen(self._clock.wall)

    def _seen(self, look: Callable[[], float]) -> float:
        step = self._step()  # may park the actor, so that time passes before it looks
        step.keys_read.add(CLOCK)
        seconds = look()
        note(step, TIME_SEEN, None, seconds)
        return seconds

    def epoch(self) -> bytes:
        """Return the origin of `monotonic`."""
        return self._clock.epoch()
