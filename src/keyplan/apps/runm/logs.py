"""The log of the service: `keyplan.runm`, on standard error, by the original's levels 0 to 3."""

import logging
from typing import Final

__all__ = ["LOGGER", "set_up_logging"]

LOGGER: Final = logging.getLogger("keyplan.runm")

_LEVELS: Final = (logging.WARNING, logging.INFO, logging.INFO, logging.DEBUG)


def set_up_logging(level: int) -> None:
    """Write warnings at level 0, starts and stops at 1, each call at 2, everything at 3."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    LOGGER.handlers = [handler]
    LOGGER.setLevel(_LEVELS[max(0, min(level, len(_LEVELS) - 1))])
    LOGGER.propagate = False
