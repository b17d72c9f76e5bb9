"""The log of broker, cells and routers: `keyplan.patroni`, on standard error. It holds no password."""

import logging
from typing import Final

__all__ = ["LOGGER", "set_up_logging"]

LOGGER: Final = logging.getLogger("keyplan.patroni")


def set_up_logging(level: str) -> None:
    """Write what is at least of this level: debug, info, warning or error."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    LOGGER.handlers = [handler]
    LOGGER.setLevel(level.upper())
    LOGGER.propagate = False
