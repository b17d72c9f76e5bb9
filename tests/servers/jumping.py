"""An event loop in whose time nothing is waited for: when nobody has anything to do, the time of the next timer comes."""

import asyncio
import selectors
from typing import Any

__all__ = ["JumpingLoop"]


class _JumpingSelector(selectors.DefaultSelector):
    now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        found = super().select(0)
        if not found and timeout:
            self.now += timeout
        return found


class JumpingLoop(asyncio.SelectorEventLoop):
    """For `asyncio.Runner(loop_factory=JumpingLoop)`: hours of `asyncio.sleep` and `call_later` take no time."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now
