"""SIGTERM, SIGINT and SIGHUP as events, and waiting for them: for processes that serve without asyncio's own way."""

import _thread
import logging
import math
import signal
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from threading import Event, current_thread, main_thread
from typing import Final

__all__ = ["SignalStop", "call_from_signal", "stopped_by_signals", "told_by_signals", "wait_for"]

_LOOK_SECONDS: Final = 0.5
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
_STOPS: Final = (*_SIGNALS, signal.SIGHUP)
"""Why also the last: a terminal that goes away is no reason to leave the batch that is under way."""


def call_from_signal(act: Callable[[], object]) -> None:
    """Call something from a signal's handler, in a thread of its own.

    Trap: a handler runs in a thread that may hold any lock, of ours or of the module threading, and would wait for itself.
    Thread.start takes such a lock; this way takes none.
    """
    _thread.start_new_thread(act, ())


@contextmanager
def told_by_signals(
    stop: Event, *, logger: logging.Logger, signals: Sequence[signal.Signals] = _SIGNALS
) -> Generator[Event, None, None]:
    """Let signals set `stop`, in place of ending the process, for the length of a block in the main thread.

    Gives an event that a second signal sets: its sender is impatient. Wait for `stop` by `wait_for`, or a little at a time.
    """
    impatient = Event()
    come: list[int] = []

    def tell(number: int, event: Event) -> None:
        logger.info("told to stop by %s", signal.Signals(number).name)
        event.set()

    def told(number: int, _frame: object) -> None:
        # Why counted here: of two signals at once, the threads would both find nothing set.
        come.append(number)
        call_from_signal(partial(tell, number, impatient if stop.is_set() or len(come) > 1 else stop))

    before = {number: signal.signal(number, told) for number in signals}
    try:
        yield impatient
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class SignalStop:
    """Set by the first signal that comes, which is `by`. Without a lock, so that a handler may set it."""

    by: signal.Signals | None = None

    def is_set(self) -> bool:
        """Tell whether a signal has come."""
        return self.by is not None


@contextmanager
def stopped_by_signals(told: Callable[[], object]) -> Generator[SignalStop, None, None]:
    """Let the first signal set a stop, in place of ending the process, for the length of a block in the main thread.

    The second one does what it did before, whichever of them it is: it ends what the first one only asked to end. A signal that
    the process ignores is ignored here too. `told` is called, in a thread of its own, when the first one has come. In another
    thread than the main one no signal is heard, and the stop is never set.
    """
    stop = SignalStop()
    found = {number: signal.getsignal(number) for number in _STOPS}
    before = {number: handler for number, handler in found.items() if handler not in (signal.SIG_IGN, None)}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def end(number: int, _frame: object) -> None:
        stop.by = signal.Signals(number)
        restore()
        call_from_signal(told)

    if current_thread() is not main_thread():
        yield stop
        return
    for number in before:
        signal.signal(number, end)
    try:
        yield stop
    finally:
        restore()


def wait_for(stop: Event, seconds: float = math.inf) -> bool:
    """Return True when the event is set, by a signal or by anybody; False when so many seconds are over before.

    Trap: Python runs a handler in the main thread, between two of its steps. The system may hand the signal to another thread,
    and wakes no main thread that waits: it would wait to the end, or for ever.
    """
    while seconds > 0 and not stop.wait(min(seconds, _LOOK_SECONDS)):
        seconds -= _LOOK_SECONDS
    return stop.is_set()
