"""Fences: keys that must have certain values in the state that is read, or what was found there does not count."""

from typing import Protocol, TypeAlias

__all__ = ["Fences", "FencesHolder"]

Fences: TypeAlias = tuple[tuple[bytes, bytes | None], ...]
"""Keys, and the values that they must have (None: be absent) in the state that is read. Whoever reads again gives the same
tuple, so that an engine can tell that it has seen it hold."""


class FencesHolder(Protocol):
    """Who has fences, and may come to have others."""

    fences: Fences
