"""Engines whose calls await, by the scheme of their URL. A module, and its driver, is imported when it is opened."""

from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import Final

from keyplan.engine import Engine, EngineUrl
from keyplan.errors import EngineOpenError

__all__ = ["open_awaiting_engine"]

_MODULES: Final = {"etcd": "keyplan.aio.etcd"}
"""Each has a coroutine function that is called with an EngineUrl. Why names: no driver is imported for other engines."""
_FUNCTION: Final = "open_etcd"


async def open_awaiting_engine(url: str) -> Engine | None:
    """Open the engine that `url` names on the event loop that runs; None when it is one that blocks. Raises EngineOpenError."""
    try:
        parsed = EngineUrl.parse(url)
    except EngineOpenError:
        return None  # Why: several URLs, for one; whoever opens it says what is wrong.
    module = _MODULES.get(parsed.scheme)
    if module is None:
        return None
    try:
        opener: Callable[[EngineUrl], Awaitable[Engine]] = getattr(import_module(module), _FUNCTION)
    except ModuleNotFoundError as error:
        if error.name != "grpc":
            raise
        return None  # Why: the synchronous way says which package is missing.
    return await opener(parsed)
