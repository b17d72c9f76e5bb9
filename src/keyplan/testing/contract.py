"""Engines around engines that answer for every method of the engine contract, so that nothing passes them by."""

from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["controls"]

E = TypeVar("E", bound=type[Any])


def controls(*contracts: type[Any]) -> Callable[[E], E]:
    """Refuse a class that leaves a public name of the contract to its bases: it would pass by uncontrolled."""

    def checked(cls: E) -> E:
        own = vars(cls)
        names = {name for contract in contracts for name in vars(contract) if not name.startswith("_")}
        if left := sorted(name for name in names if name not in own):
            raise TypeError(
                f"{cls.__name__} does not control {', '.join(left)}: say what it reads and writes, and handle it"
            )
        return cls

    return checked
