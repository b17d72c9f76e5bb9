"""Whether the cluster that answers is the one that answered before, and has not gone back: told from what answers carry.

Nothing may be written into a cluster to mark it, so a process knows what it has seen itself: the cluster's id, and the highest
revision. A cluster that was restored has another id, or, where it was given the old one, a revision that it had passed.
"""

from typing import Final, NamedTuple

from keyplan.engine.clock import SYSTEM_CLOCK
from keyplan.engine.etcd.transport import RANGE, TRANSACTION, Message, Method
from keyplan.engine.lineage import Lineage

__all__ = ["Sightings"]

_PROVEN_SECONDS: Final = 0.05
"""An answer so young proves that the cluster is the same. Why: a server that is stopped, restored and started with its data in
memory takes half a second; and a transaction commits soon after its last read, so that it seldom has to ask."""


class _Seen(NamedTuple):
    cluster: int
    number: int  # how often the cluster was found to be another one, or to have gone back
    revision: int


class Sightings:
    """What an engine has seen of its cluster. Used by several threads: what they share are single assignments."""

    def __init__(self) -> None:
        self._seen = _Seen(0, 0, 0)
        self._proven_at = float("-inf")
        self._highest = 0  # in any epoch

    def has_seen(self, revision: int) -> bool:
        """Tell whether the cluster is known to have reached a revision, before it went back perhaps."""
        return revision <= self._highest

    @property
    def revision(self) -> int:
        """The highest revision seen in this epoch: an answer to what is asked from now on carries none below it."""
        return self._seen.revision

    @property
    def epoch(self) -> str:
        """Another one since the cluster was found to be another one, or to have gone back."""
        return f"{self._seen.cluster:x}-{self._seen.number}"

    @property
    def lineage(self) -> Lineage:
        """The cluster, and the epoch."""
        return Lineage(f"etcd-{self._seen.cluster:x}", self.epoch)

    @property
    def is_proven(self) -> bool:
        """True while the latest answer is so young that the epoch cannot have changed since."""
        return SYSTEM_CLOCK.monotonic() < self._proven_at + _PROVEN_SECONDS

    def forget(self) -> None:
        """A call failed: whoever answers next may be another cluster."""
        self._proven_at = float("-inf")

    def take(self, method: Method, request: Message, response: Message, *, known: int, asked_at: float) -> None:
        """Take in an answer to what was asked when `known` was the highest revision seen."""
        header = response.header
        cluster, revision = int(header.cluster_id), int(header.revision)
        seen = self._seen
        self._highest = max(self._highest, revision)
        if not seen.cluster:
            self._seen = _Seen(cluster, seen.number, revision)
        elif cluster != seen.cluster:
            self._seen = _Seen(cluster, seen.number + 1, revision)
        elif not _is_agreed(method, request):
            return  # Why: one server's own answer may be behind.
        elif revision < known:
            # Why only where nobody has noticed: several answers of one restored cluster are one step back.
            if known <= seen.revision:
                self._seen = _Seen(cluster, seen.number + 1, revision)
        elif revision > seen.revision:
            self._seen = seen._replace(revision=revision)
        if _is_agreed(method, request):
            self._proven_at = asked_at


def _is_agreed(method: Method, request: Message) -> bool:
    """Tell whether the cluster agreed on the answer, so that it carries a revision no lower than any answer before."""
    if method is RANGE:
        return not request.serializable
    if method is not TRANSACTION:
        return False
    reads = [each.request_range for each in request.success if each.HasField("request_range")]
    return len(reads) < len(request.success) or not all(read.serializable for read in reads) or not reads
