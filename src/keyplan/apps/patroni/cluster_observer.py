"""What becomes of clusters by themselves, as events: who leads, and which members cannot be counted on.

Every broker looks, and one of them writes: the event stands in one commit with what the cluster was last seen as.
"""

from collections.abc import Callable, Iterable
from itertools import islice
from threading import Event, Thread
from typing import Any, Final, cast

from keyplan.apps.patroni.catalog import NODES_MAX
from keyplan.apps.patroni.clusters import members_astray
from keyplan.apps.patroni.event_records import EventKind, SeenCluster
from keyplan.apps.patroni.events import EventLog, forget_events
from keyplan.apps.patroni.layout import Broker, MemberKey
from keyplan.apps.patroni.logs import LOGGER
from keyplan.apps.patroni.operations import IN_PROGRESS
from keyplan.apps.patroni.readable import readable, readable_of
from keyplan.engine import Clock
from keyplan.errors import CorruptionError, EngineLimitError, KeyplanError
from keyplan.layout import Changes
from keyplan.store import Store

__all__ = ["ClusterObserver"]

_POLL_SECONDS: Final = 0.5
_RETRY_SECONDS: Final = 1.0
_OLD_SECONDS: Final = 24 * 3600.0
_OLD_LOOK_SECONDS: Final = 600.0
_MEMBERS_MAX: Final = NODES_MAX
"""Of one cluster. Why: whoever has its token writes as many as they like, and each may be an event of one commit."""


class ClusterObserver:
    """Notes what becomes of clusters, in a thread of its own. `start`, then `stop`; each once."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        astray_seconds: float = 10.0,
        on_noted: Callable[[EventKind], None] = lambda _kind: None,
    ) -> None:
        """`astray_seconds`: a member is told of that is astray for so long. Every failover leaves members behind for less.

        `on_noted` is told of each event that was written here, once it is.
        """
        self._on_noted = on_noted
        self._store = store
        self._broker = Broker(store)
        self._clock = clock
        self._astray_seconds = astray_seconds
        self._events = EventLog(store, clock)
        self._watches: list[Changes[Any, Any]] = []
        self._astray_since: dict[MemberKey, float] = {}
        self._due: set[str] = set()
        self._swept_at = clock.monotonic()
        self._stop = Event()
        self._thread = Thread(target=self._run, name="patroni-observer", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """End. Blocks until that is done."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self.step(_POLL_SECONDS)
                if self._clock.monotonic() - self._swept_at > _OLD_LOOK_SECONDS:
                    self._swept_at = self._clock.monotonic()
                    forget_events(self._store, self._clock.wall() - _OLD_SECONDS)
            except KeyplanError as error:
                LOGGER.warning("clusters are not observed now: %s", error)
                self.close()
                self._stop.wait(_RETRY_SECONDS)
            except Exception:  # noqa: BLE001  # Why: nobody sees this thread end, and nothing would be told from then on.
                LOGGER.exception("a look at clusters failed")
                self.close()
                self._stop.wait(_RETRY_SECONDS)
        self.close()

    def close(self) -> None:
        """End the watches; the next step looks at every cluster."""
        for changes in self._watches:
            changes.close()
        self._watches = []

    def step(self, wait_seconds: float = 0.0) -> None:
        """Learn of changes, waiting for them at most so long, and note what became of clusters. Raises EngineError."""
        if not self._watches:
            self._watches = [self._broker.leaders.follow(), self._broker.members.follow()]
        for number, changes in enumerate(self._watches):
            self._due |= _clusters_of(changes, wait_seconds if number == 0 else 0.0)
        waiting = {key.cluster for key in self._astray_since}
        for cluster in sorted(self._due | waiting):
            try:
                is_settled = self._look_at(cluster)
            except (CorruptionError, EngineLimitError) as error:
                LOGGER.error("cluster %s cannot be observed: %s", cluster, error)
                is_settled = True
            if is_settled:
                self._due.discard(cluster)

    def _look_at(self, cluster: str) -> bool:
        """Note what became of a cluster; return False when another broker was faster, and it must be looked at again."""
        with self._store.snapshot() as state:
            broker = Broker(state)
            before = readable_of(broker.seen_clusters, cluster)
            if not _is_there(broker, cluster):
                self._forget(cluster)
                return True
            operation = readable_of(broker.operations, cluster)
            under_way = operation.kind if operation is not None and operation.status == IN_PROGRESS else ""
            if under_way == "deprovision":
                return True  # Why: its end is told by the operation.
            now = self._seen(broker, cluster, before or SeenCluster(), is_changed=bool(under_way))
        if now == (before or SeenCluster()):
            return True
        differences = list(_differences(before or SeenCluster(), now))
        is_noted = self._store.run(lambda binding: self._note(Broker(binding), cluster, before, now, differences))
        for kind, _, _ in differences if is_noted else ():
            self._on_noted(kind)
        return is_noted

    def _forget(self, cluster: str) -> None:
        for key in [key for key in self._astray_since if key.cluster == cluster]:
            del self._astray_since[key]

    def _seen(self, broker: Broker, cluster: str, before: SeenCluster, *, is_changed: bool) -> SeenCluster:
        """Return what a cluster is seen as. While nobody leads, or it is being changed, its members are left as they were."""
        leader = broker.leaders.get(cluster)
        if leader is None or is_changed:
            self._forget(cluster)
            return SeenCluster(leader=leader or before.leader, is_led=leader is not None, astray=before.astray)
        placed = (key.node for key, _ in readable(broker.nodes.rows(cluster)))
        others = (key.member for key in broker.members.keys(cluster, limit=_MEMBERS_MAX))
        names = set(islice(dict.fromkeys((*placed, *others)), _MEMBERS_MAX))
        problems = members_astray(broker, cluster, names)
        now = self._clock.monotonic()
        since = {
            MemberKey(cluster, name): self._astray_since.get(MemberKey(cluster, name), now)
            for name in problems.keys() - before.astray.keys()
        }
        self._forget(cluster)
        lasting = {key.member for key, begun in since.items() if now - begun >= self._astray_seconds}
        self._astray_since |= {key: begun for key, begun in since.items() if key.member not in lasting}
        astray = {
            name: before.astray.get(name, problem)
            for name, problem in sorted(problems.items())
            if name in before.astray or name in lasting
        }
        return SeenCluster(leader=leader, is_led=True, astray=astray)

    def _note(
        self,
        broker: Broker,
        cluster: str,
        before: SeenCluster | None,
        now: SeenCluster,
        differences: Iterable[tuple[EventKind, str, str]],
    ) -> bool:
        """Write what has changed, unless another broker has seen something since."""
        if readable_of(broker.seen_clusters, cluster) != before:
            return False
        for kind, member, text in differences:
            self._events.note(broker, cluster, kind, text, member=member)
        broker.seen_clusters.put(cluster, now, damaged_ok=True)
        return True


def _clusters_of(changes: Changes[Any, Any], wait_seconds: float) -> set[str]:
    """Return the clusters that something has changed of: the key is theirs, or begins with them."""
    try:
        keys = [change.key for change in changes.poll(wait_seconds)]
    except CorruptionError as error:
        keys = [error.facts["key"]]
    return {key if isinstance(key, str) else cast("MemberKey", key).cluster for key in keys}


def _is_there(broker: Broker, cluster: str) -> bool:
    kept = (broker.instances, broker.leaders, broker.configurations, broker.initializations)
    return (
        any(table.exists(cluster) for table in kept)
        or next(iter(broker.members.keys(cluster, limit=1)), None) is not None
    )


def _differences(before: SeenCluster, now: SeenCluster) -> Iterable[tuple[EventKind, str, str]]:
    if now.is_led and now.leader != before.leader:
        former = f"; {before.leader} did before" if before.leader else ""
        yield EventKind.LEADER_CHANGED, now.leader, f"{now.leader} leads{former}"
    elif now.is_led and not before.is_led:
        yield EventKind.LEADER_CHANGED, now.leader, f"{now.leader} leads again"
    elif before.is_led and not now.is_led:
        yield EventKind.LEADER_LOST, before.leader, f"nobody holds the leader key; {before.leader} did"
    for name in sorted(now.astray.keys() - before.astray.keys()):
        yield EventKind.MEMBER_ASTRAY, name, now.astray[name]
    for name in sorted(before.astray.keys() - now.astray.keys()):
        yield EventKind.MEMBER_BACK, name, "it can be counted on again, or is gone"
