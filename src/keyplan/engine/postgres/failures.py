"""What a failed statement means: whether it may be tried again, and which of keyplan's errors it is.

Only the primary message of the server is ever shown: its details may hold keys and values.
"""

import socket
from typing import Final

from keyplan.errors import EngineError, EngineRefusedError, EngineUnavailableError

__all__ = ["NAME", "ConnectionLostError", "PostgresError", "ServerRefusalError", "translated"]

NAME: Final = "postgres"
"""The engine's name in errors and in its profile."""

_CHANGED_HANDS: Final = frozenset(
    {"25006", "57P01", "57P02", "57P03", "57P05", "25P03", "53300", "08000", "08003", "08006"}
)
"""The server goes away, or takes no writes (any more): another connection may find one that does."""

_LOST_A_RACE: Final = frozenset({"40000", "40001", "40P01", "55P03"})
"""Serialization failure, deadlock, lock not available: the transaction was rolled back, and may be tried again."""

_COMMIT_UNKNOWN: Final = frozenset({"08007", "40003", "57P01", "57P02", "57P05", "XX000"})
"""Said in answer to COMMIT, these do not tell whether it was carried out."""

_MEANINGS: Final = {
    "42P01": "the tables of the store are gone",
    "3F000": "the schema of the store is gone",
    "57014": "the server gave the statement up after the time-out (timeout= in the URL makes it longer)",
}


_NO_ADDRESS: Final = (socket.EAI_NONAME, socket.EAI_NODATA)
"""Why not every failed look-up: one of a name server that is down passes."""


class PostgresError(Exception):
    """A statement failed. Never leaves this package. `text` may be shown."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


class ConnectionLostError(PostgresError):  # Why: it is what happened, and no error of keyplan's.
    """The connection broke, or its answer did not come in time. `is_refused`: the server answered, and would not let us in."""

    def __init__(self, text: str, *, is_refused: bool = False) -> None:
        super().__init__(text)
        self.is_refused = is_refused

    @property
    def has_no_address(self) -> bool:
        """True when no host's name is known to anybody: waiting is of no use then."""
        said = self.args[0]
        return "failed to resolve host" in said and any(f"[Errno {number}]" in said for number in _NO_ADDRESS)


class ServerRefusalError(PostgresError):  # Why: as above.
    """The server answered with an error; its transaction is rolled back."""

    def __init__(self, state: str, message: str) -> None:
        super().__init__(f"{_MEANINGS[state]}: {message}" if state in _MEANINGS else message)
        self.state = state

    @property
    def has_changed_hands(self) -> bool:
        """True when a new connection may be served better."""
        return self.state in _CHANGED_HANDS

    @property
    def has_lost_a_race(self) -> bool:
        """True when the same transaction may succeed the next time."""
        return self.state in _LOST_A_RACE

    @property
    def leaves_commit_unknown(self) -> bool:
        """True when this answer to COMMIT does not tell whether it was carried out."""
        return self.state in _COMMIT_UNKNOWN


def translated(failure: PostgresError) -> EngineError:
    """Return what a failure is called when it is not tried again (any more). Nothing was written."""
    if isinstance(failure, ServerRefusalError) and not (
        failure.has_changed_hands or failure.has_lost_a_race or failure.state == "57014"
    ):
        return EngineRefusedError(engine=NAME, problem=f"it says {failure.text} ({failure.state})")
    return EngineUnavailableError(engine=NAME, problem=failure.text)
