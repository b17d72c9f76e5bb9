"""Threads for calls that block, so that the event loop does not: commits, long scans, engines across a network."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import Any, Final, TypeVar

from keyplan.server.answers import AnswerError

__all__ = ["THREADS_MAX", "WAITING_MAX", "Workers"]

T = TypeVar("T")

THREADS_MAX: Final = 16
"""Why: commits of several threads share a flush to the disk; beyond this few more join one."""

WAITING_MAX: Final = 1_000
"""Why: at three thousand durable commits a second, whoever comes after these waits for a third of a second and more."""


class Workers:
    """A bounded pool of threads. What does not fit into its queue is refused at once, with 503, rather than kept waiting."""

    def __init__(self, *, threads_max: int = THREADS_MAX, waiting_max: int = WAITING_MAX) -> None:
        self._pool = ThreadPoolExecutor(threads_max, thread_name_prefix="keyplan-worker")
        self._pending_max = threads_max + waiting_max
        self._pending = 0

    @property
    def pending(self) -> int:
        """How many calls run or wait."""
        return self._pending

    async def run(self, call: Callable[..., T], *arguments: Any, **named: Any) -> T:
        """Return what the call returns, made in a thread; raise what it raises.

        Who is cancelled while waiting leaves the call to end by itself. Raises AnswerError (503 `overloaded`).
        """
        if self._pending >= self._pending_max:
            raise AnswerError(
                503, "overloaded", "the server has more work than it can do", headers={"Retry-After": "1"}
            )
        self._pending += 1
        whole: Callable[[], T] = partial(copy_context().run, partial(call, *arguments, **named))
        future = asyncio.get_running_loop().run_in_executor(self._pool, whole)
        future.add_done_callback(self._ended)
        return await future

    def _ended(self, _future: asyncio.Future[Any]) -> None:
        self._pending -= 1

    def close(self) -> None:
        """Wait for the calls that run; those that wait are not made. Closing twice is harmless."""
        self._pool.shutdown(wait=True, cancel_futures=True)
