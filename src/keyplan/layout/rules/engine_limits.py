"""The limits that a layout is judged against; the caller takes them from an engine's profile."""

from dataclasses import dataclass

__all__ = ["EngineLimits"]


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """An engine's limits, None where there is none. Commits are counted as an engine's profile counts them."""

    key_bytes_max: int | None = None
    value_bytes_max: int | None = None
    commit_operations_max: int | None = None
    commit_bytes_max: int | None = None
