"""What is done to servers and clients while histories are recorded. A fault is done and mended; what it needs is handed in."""

import random
import threading
from collections.abc import Callable
from typing import Final

from tests.servers.etcd import EtcdCluster, EtcdServer

__all__ = ["CLUSTER_FAULTS", "ClusterFaults"]

_PAUSE_SECONDS: Final = (0.3, 2.5)

CLUSTER_FAULTS: Final = (
    "kill the leader",
    "compact",
    "halt the leader",
    "move the leader",
    "kill a member",
    "restart all",
    "halt a member",
)


class ClusterFaults:
    """Faults of a cluster of three. `compact` compacts as far as the log was read."""

    def __init__(self, cluster: EtcdCluster, chance: random.Random, compact: Callable[[], str]) -> None:
        self._cluster = cluster
        self._chance = chance
        self._compact = compact

    def inject(self, kind: str) -> str:
        """Do it and mend it; return which member it was, or what else there is to tell."""
        match kind:
            case "kill the leader":
                return self._kill(self._cluster.leader())
            case "kill a member":
                return self._kill(self._chance.choice(self._cluster.members))
            case "halt the leader":
                return self._halt(self._cluster.leader())
            case "halt a member":
                return self._halt(self._chance.choice(self._cluster.members))
            case "restart all":
                self._cluster.restart_all()
                return ""
            case "move the leader":
                return self._move()
            case _:
                return self._compact()

    def _kill(self, member: EtcdServer) -> str:
        member.kill()
        self._wait()
        self._cluster.start()
        return member.name

    def _halt(self, member: EtcdServer) -> str:
        member.pause()
        self._wait()
        member.resume()
        self._cluster.start()
        return member.name

    def _move(self) -> str:
        leader = self._cluster.leader()
        follower = self._chance.choice(self._cluster.followers())
        for line in leader.etcdctl("member", "list").splitlines():
            identity, _, name, *_ = line.split(", ")
            if name == follower.name:
                try:
                    leader.etcdctl("move-leader", identity)
                except AssertionError as error:  # Why: it may have lost the lead by itself since it was asked.
                    return f"refused: {str(error)[-80:].strip()}"
        return f"{leader.name} to {follower.name}"

    def _wait(self) -> None:
        threading.Event().wait(self._chance.uniform(*_PAUSE_SECONDS))
