"""An open key space, awaited: the synchronous handle keeps its session in threads, the data is read and written by the twin.

Where the engine awaits, the twin has a client of its own for the data; the handle's client serves the session, the watch of
the fence and the counting of a quota, which are not what a request waits for.
"""

from asyncio import Task, get_running_loop, to_thread
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from inspect import isawaitable
from typing import Any, Final, TypeVar

from keyplan.aio.greenlets import drive, wait
from keyplan.aio.store import Store
from keyplan.aio.threads import Workers
from keyplan.engine import Engine, Mutation, open_awaiting_engine
from keyplan.errors import KeyplanError
from keyplan.keyspace import KeySpace, KeySpaceEngine, Mode, open_keyspace_url, share_on
from keyplan.keyspace import KeySpaceStore as HeldKeySpace
from keyplan.store import LayoutCheck, url_with_options

__all__ = ["KeySpaceStore", "open_keyspace_async"]

R = TypeVar("R")

_OWN_OPTIONS: Final = frozenset(
    {
        *("keyspace", "application", "create_if_missing", "default_prefix", "require_keyspace_api"),
        *("accept_registered_prefix", "allow_foreign_write", "secrets"),
    }
)
"""Of the handle; all others are the URL's."""


class KeySpaceStore(Store):
    """`keyplan.keyspace.KeySpaceStore`, awaited: a store that is one key space, in which any layout runs.

    Every commit is guarded by the key space's fence; what the synchronous handle promises holds here. Closing it ends the
    session. `on_close`, a function or a coroutine function, is called in the event loop.
    """

    def __init__(
        self,
        held: HeldKeySpace,
        engine: Engine,
        *,
        inline_reads: bool = False,
        layout_check: LayoutCheck = "off",
    ) -> None:
        super().__init__(engine, inline_reads=inline_reads, secrets=held.secrets, layout_check=layout_check)
        self._held = held

    @property
    def keyspace(self) -> KeySpace | None:
        """The key space as it was when it was opened; None in fallback mode."""
        return self._held.keyspace

    @property
    def prefix(self) -> bytes:
        """What its raw keys begin with."""
        return self._held.prefix

    @property
    def mode(self) -> Mode:
        """How it came to its prefix."""
        return self._held.mode

    @property
    def application(self) -> str:
        """Who opened it."""
        return self._held.application

    @property
    def session(self) -> int | None:
        """The id of the session's lease; None without a session."""
        return self._held.session

    @property
    def is_open(self) -> bool:
        """False once it is known that the key space was deleted or made anew: `closed_by` says which."""
        return self.closed_by is None

    @property
    def closed_by(self) -> KeyplanError | None:
        """What closed the handle for good; None while it is open."""
        engine = self.engine
        return engine.fence.closed_by if isinstance(engine, KeySpaceEngine) else None

    async def _close_engine(self) -> None:
        # Why first: the session is taken away while the store can still be reached.
        await _in_a_thread(self._held.close)
        await super()._close_engine()


async def open_keyspace_async(
    url: str,
    *,
    inline_reads: bool,
    layout_check: LayoutCheck,
    on_close: Callable[[KeyplanError], object] | None = None,
    **options: Any,
) -> KeySpaceStore:
    """Open a key space of the store that `url` names; options, and what is raised: `open_keyspace_url`."""
    ending = _Ending(on_close)
    held = await _in_a_thread(partial(open_keyspace_url, url, on_close=ending.told, **options), HeldKeySpace.close)
    try:
        engine = await _twin_engine(url, held, options)
        ending.begin(engine)
        return KeySpaceStore(held, engine, inline_reads=inline_reads, layout_check=layout_check)
    except BaseException:
        await _in_a_thread(held.close)
        raise


async def _twin_engine(url: str, held: HeldKeySpace, options: dict[str, Any]) -> Engine:
    """The handle's own engine, or one that awaits where there is one."""
    of_url = {name: value for name, value in options.items() if name not in _OWN_OPTIONS}
    awaiting = await drive(partial(open_awaiting_engine, url_with_options(url, of_url), wait))
    if awaiting is None:
        return held.engine
    try:
        share = await drive(partial(share_on, held, awaiting))
    except BaseException:
        await drive(awaiting.close)
        raise
    if isinstance(share, KeySpaceEngine) and isinstance(held.engine, KeySpaceEngine):
        share.budget = _BudgetElsewhere(held.engine)
    return share


class _BudgetElsewhere:
    """The quota of the handle: where there is one, it is checked in a thread, since it may have to count."""

    def __init__(self, held: KeySpaceEngine) -> None:
        self._held = held

    def check(self, mutations: Sequence[Mutation]) -> None:
        budget = self._held.budget
        if budget is not None:
            wait(to_thread(budget.check, mutations))

    def enter(self, mutations: Sequence[Mutation]) -> None:
        # Why weighed alone: a thread goes on when its task is cancelled, and nobody would say that the commit has ended.
        self.check(mutations)

    def leave(self, *, is_done: bool) -> None:
        """Nothing waits for it."""


class _Ending:
    """Hands the end of a key space, which a thread is told, to the event loop."""

    def __init__(self, on_close: Callable[[KeyplanError], object] | None) -> None:
        self._on_close = on_close
        self._loop = get_running_loop()
        self._engine: Engine | None = None
        self._early: KeyplanError | None = None
        self._telling: set[Task[None]] = set()

    def begin(self, engine: Engine) -> None:
        """Take the twin's engine: it is refused, too, when the key space is gone."""
        self._engine = engine
        if self._early is not None:
            self._tell(self._early)

    def told(self, error: KeyplanError) -> None:
        """Called in a thread."""
        with suppress(RuntimeError):  # Why: the loop was closed; nobody waits any more.
            self._loop.call_soon_threadsafe(self._tell, error)

    def _tell(self, error: KeyplanError) -> None:
        if self._engine is None:
            self._early = error
            return
        if isinstance(self._engine, KeySpaceEngine):
            self._engine.fence.shut(error)
        answer = None if self._on_close is None else self._on_close(error)
        if isawaitable(answer):
            task = self._loop.create_task(_awaited(answer), name="keyplan-keyspace-ended")
            self._telling.add(task)
            task.add_done_callback(self._telling.discard)


async def _awaited(answer: Awaitable[object]) -> None:
    await answer


async def _in_a_thread(work: Callable[[], R], undo: Callable[[R], object] | None = None) -> R:
    workers = Workers(get_running_loop(), threads_max=1)
    try:
        return await workers.run(work, undo)
    finally:
        await workers.close()
