"""Opening a store, or a key space of one, by URL: to be awaited, or entered with `async with`."""

from asyncio import get_running_loop
from collections.abc import Callable, Coroutine, Generator
from contextlib import AbstractAsyncContextManager
from functools import partial
from types import TracebackType
from typing import Any, TypeVar, overload

from keyplan.aio.greenlets import drive, wait
from keyplan.aio.keyspaces import KeySpaceStore, open_keyspace_async
from keyplan.aio.store import Store
from keyplan.aio.threads import Workers
from keyplan.codec import SecretCipher
from keyplan.engine import Engine, open_awaiting_engine, open_engine
from keyplan.errors import KeyplanError
from keyplan.store import LayoutCheck, checked_reaction, url_with_options

__all__ = ["Opening", "open_async"]

S = TypeVar("S", bound=Store)


class Opening(AbstractAsyncContextManager[S]):
    """A store to be opened: `await` it, or enter it with `async with`, which closes it."""

    def __init__(self, opened: Callable[[], Coroutine[Any, Any, S]]) -> None:
        self._opened = opened
        self._store: S | None = None

    def __await__(self) -> Generator[Any, None, S]:
        return self._opened().__await__()

    async def __aenter__(self) -> S:
        self._store = await self._opened()
        return self._store

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._store is not None:
            await self._store.close()


@overload
def open_async(
    url: str,
    *,
    inline_reads: bool = False,
    keyspace: str,
    application: str,
    create_if_missing: bool = False,
    default_prefix: bytes | str | None = None,
    require_keyspace_api: bool = False,
    accept_registered_prefix: bool = False,
    allow_foreign_write: bool = False,
    on_close: Callable[[KeyplanError], object] | None = None,
    secrets: SecretCipher | None = None,
    layout_check: LayoutCheck = "warn",
    **options: str | int | bool,
) -> Opening[KeySpaceStore]: ...


@overload
def open_async(
    url: str,
    *,
    inline_reads: bool = False,
    secrets: SecretCipher | None = None,
    layout_check: LayoutCheck = "warn",
    **options: str | int | bool,
) -> Opening[Store]: ...


def open_async(
    url: str,
    *,
    inline_reads: bool = False,
    secrets: SecretCipher | None = None,
    layout_check: LayoutCheck = "warn",
    **options: Any,
) -> Opening[Any]:
    """Open the store that `url` names, for the event loop that runs: `async with keyplan.aio.open("lmdb:./site.kv") as store`.

    The URL, `secrets`, `layout_check` and `options` are those of `keyplan.open`, `keyspace` and `application` among them;
    `inline_reads` is explained at `Store`. Raises EngineOpenError; for a key space what `keyplan.keyspace.open_key_space`
    raises.
    """
    reaction = checked_reaction(layout_check)
    if "keyspace" in options or "application" in options:
        opening = partial(open_keyspace_async, url, inline_reads=inline_reads, layout_check=reaction)
        return Opening(partial(opening, secrets=secrets, **options))

    async def opened() -> Store:
        full_url = url_with_options(url, options)
        engine = await drive(partial(open_awaiting_engine, full_url, wait)) or await _opened_in_a_thread(full_url)
        return Store(engine, inline_reads=inline_reads, secrets=secrets, layout_check=reaction)

    return Opening(opened)


async def _opened_in_a_thread(url: str) -> Engine:
    workers = Workers(get_running_loop(), threads_max=1)
    try:
        return await workers.run(partial(open_engine, url), Engine.close)
    finally:
        await workers.close()
