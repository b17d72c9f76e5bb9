"""A line in the log for each call that is refused, at every level; bounded, so that a flood fills no disk."""

from collections.abc import Mapping
from threading import Lock
from typing import Any, Final

from keyplan.apps.runm.logs import LOGGER
from keyplan.grpc_status import GrpcStatus
from keyplan.server import RefusalLog, RpcAsking, rpc_address

__all__ = ["REFUSALS", "Refusals"]

REFUSALS: Final = frozenset({GrpcStatus.UNAUTHENTICATED, GrpcStatus.PERMISSION_DENIED, GrpcStatus.RESOURCE_EXHAUSTED})
"""What a call is answered with that was refused, because of who made it or how many there are."""


class Refusals:
    """A line for each call that is refused: who if it is known, from where, which, how and why. For all threads."""

    def __init__(self) -> None:
        self._log = RefusalLog(_write)
        self._lock = Lock()

    def tell(self, asking: RpcAsking, call: str, status: GrpcStatus, who: str, why: str) -> None:
        """Write the line, or count it."""
        address = rpc_address(asking)
        facts = {"call": call, "caller": who, "client": address, "status": status.name, "why": why}
        with self._lock:
            self._log.tell(address, status.name, facts)

    def tell_rest(self) -> None:
        """Write how many have no line."""
        with self._lock:
            self._log.tell_rest()


def _write(message: str, facts: Mapping[str, Any]) -> None:
    LOGGER.warning("%s: %s", message, " ".join(f"{name} {fact!r}" for name, fact in facts.items()))
