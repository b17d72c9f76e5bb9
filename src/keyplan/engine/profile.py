"""What an engine can do, stated once, by the engine. The store, the conformance suite and the docs read it here."""

from dataclasses import dataclass
from enum import Enum

__all__ = ["Capability", "Profile"]


class Capability(Enum):
    """Something that an engine may or may not be able to do; the value is the sentence that the docs print."""

    REVISIONS = "keeps create revision, mod revision and version of every key"
    WATCH = "delivers changes in order, from history where needed"
    LEASES = "deletes entries when their lease ends"
    DURABLE = "an acknowledged commit survives the loss of the process and of power"
    SHARED = "several processes may use one store at once"


@dataclass(frozen=True, slots=True)
class Profile:
    """Capabilities and limits of one engine. A limit of None means that there is none worth naming.

    A commit's size is counted as the sum of the bytes of its keys and values, guards included. With `has_local_reads` a get is
    answered from this machine's memory, in microseconds and without waiting: an event loop may make it itself.
    The calls of an engine that `is_awaiting` wait in the event loop: only keyplan.aio can make them.
    """

    name: str
    capabilities: frozenset[Capability]
    key_bytes_max: int | None
    value_bytes_max: int | None
    commit_operations_max: int | None
    commit_bytes_max: int | None
    empty_key: bool = False
    has_local_reads: bool = False
    is_awaiting: bool = False

    def claims(self, capability: Capability) -> bool:
        """Tell whether the engine has the capability."""
        return capability in self.capabilities
