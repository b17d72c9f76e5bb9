"""Whether the other program begins to write into a name space that is served: looked for while the server runs, told once.

Nothing of what it writes is served, and the next start asks whose keys are meant. Writes go on: a stray key is not to end the
service of a whole store.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

from keyplan.apps.cloudchamber.layout import LayoutSide
from keyplan.apps.cloudchamber.layout_choice import first_key_of
from keyplan.engine import Engine
from keyplan.errors import KeyplanError
from keyplan.server import LOGGER, Closing

__all__ = ["told_of_other_program"]

_LOOK_SECONDS: Final = 60.0
"""Why: it is read for two keys, and whoever started the other program is there for longer than that."""


@asynccontextmanager
async def told_of_other_program(
    engine: Engine,
    namespace: str,
    served: LayoutSide,
    run: Callable[..., Awaitable[Any]],
    closing: Closing,
    *,
    look_seconds: float = _LOOK_SECONDS,
) -> AsyncIterator[None]:
    """For the length of a block, log a warning once the name space gets keys of the side that is not served.

    `engine` reads both sides, and `run` makes a call in a thread. Where there are such keys already, nothing is looked for.
    """

    async def look() -> None:
        while not await closing.wait(look_seconds):
            try:
                key = await run(first_key_of, engine, namespace, served.other)
            except KeyplanError:
                continue  # Why without a word: whoever asks for a record is told what is wrong with the store.
            if key is not None:
                facts = {"served": served.value, "other": served.other.value, "key": key}
                LOGGER.warning("another program writes keys that are not served", extra={"facts": facts})
                return

    is_alone = await run(first_key_of, engine, namespace, served.other) is None
    task = asyncio.create_task(look()) if is_alone else None
    try:
        yield
    finally:
        if task is not None:
            closing.set()
            await task
