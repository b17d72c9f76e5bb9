"""The views of an asynchronous binding: each operation is that of the synchronous view, carried out in one of five ways.

The promises stand in keyplan.layout's AsyncTableView, AsyncUniqueView, AsyncIndexView and AsyncCounterView.
"""

from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
from functools import partial
from typing import Any

from keyplan.aio.calls import Calls
from keyplan.aio.changes import AwaitedChanges
from keyplan.aio.lease import Lease

__all__ = ["AwaitedCounter", "AwaitedIndex", "AwaitedTable", "AwaitedUnique"]


class _View:
    """A view for reads and one for writes and watches, which are one on a snapshot and in a transaction."""

    def __init__(self, calls: Calls, reads: Any, writes: Any) -> None:
        self._calls = calls
        self._reads = reads
        self._writes = writes


def _point(name: str) -> Callable[..., Coroutine[Any, Any, Any]]:
    async def operation(self: _View, *arguments: object, **keywords: object) -> object:
        return await self._calls.run_short(partial(getattr(self._reads, name), *arguments, **keywords))

    return operation


def _whole(name: str) -> Callable[..., Coroutine[Any, Any, Any]]:
    async def operation(self: _View, *arguments: object, **keywords: object) -> object:
        return await self._calls.run_blocking(partial(getattr(self._reads, name), *arguments, **keywords))

    return operation


def _of_many(name: str) -> Callable[..., Coroutine[Any, Any, Any]]:
    async def operation(self: _View, keys: Iterable[object]) -> object:
        # Why: what the caller hands in is iterated in the caller's thread.
        return await self._calls.run_blocking(partial(getattr(self._reads, name), tuple(keys)))

    return operation


def _written(name: str) -> Callable[..., Coroutine[Any, Any, Any]]:
    async def operation(self: _View, *arguments: object, **keywords: object) -> object:
        lease = keywords.get("lease")
        if isinstance(lease, Lease):
            keywords["lease"] = lease.held
        return await self._calls.written(partial(getattr(self._writes, name), *arguments, **keywords))

    return operation


def _listed(name: str) -> Callable[..., AsyncGenerator[Any, None]]:
    def operation(self: _View, *arguments: object, **keywords: object) -> AsyncGenerator[object, None]:
        return self._calls.listed(getattr(self._reads, name)(*arguments, **keywords))

    return operation


def _watched(name: str) -> Callable[..., AwaitedChanges]:
    def operation(self: _View, *arguments: object, **keywords: object) -> AwaitedChanges:
        return self._calls.watched(partial(getattr(self._writes, name), *arguments, **keywords))

    return operation


class AwaitedTable(_View):
    """The operations on one table."""

    get = _point("get")
    require = _point("require")
    exists = _point("exists")
    versioned = _point("versioned")
    get_many = _of_many("get_many")
    require_many = _of_many("require_many")
    insert = _written("insert")
    put = _written("put")
    update = _written("update")
    delete = _written("delete")
    rename = _written("rename")
    list = _listed("list")
    keys = _listed("keys")
    entries = _listed("entries")
    rows = _listed("rows")
    count = _whole("count")
    page = _whole("page")
    watch = _watched("watch")
    follow = _watched("follow")

    async def modify(self, key: object, change: Callable[[object], object]) -> int:
        revision: int = await self._calls.written(partial(self._writes.modify, key, self._calls.on_loop(change)))
        return revision


class AwaitedUnique(_View):
    """The operations on one unique index."""

    one = _point("one")
    require = _point("require")
    key_of = _point("key_of")
    list = _listed("list")
    keys = _listed("keys")
    rows = _listed("rows")
    count = _whole("count")
    watch = _watched("watch")


class AwaitedIndex(_View):
    """The operations on one index."""

    list = _listed("list")
    keys = _listed("keys")
    rows = _listed("rows")
    count = _whole("count")
    watch = _watched("watch")


class AwaitedCounter(_View):
    """The operations on one counter."""

    next = _written("next")
    peek = _point("peek")
    advance_to = _written("advance_to")
