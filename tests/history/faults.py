"""What is done to servers and clients while histories are recorded. A fault is done and mended; what it needs is handed in."""

import random
import threading
from collections.abc import Callable
from typing import Final

from tests.servers.etcd import EtcdCluster, EtcdServer
from tests.servers.postgres import PostgresServer

__all__ = ["CLUSTER_FAULTS", "SERVER_FAULTS", "ClusterFaults", "ServerFaults"]

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


SERVER_FAULTS: Final = ("kill a backend", "compact", "kill a client", "halt the server", "restart", "kill the server")


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


class ServerFaults:
    """Faults of one PostgreSQL server; `compact` and `kill_client` are the round's."""

    def __init__(
        self,
        server: PostgresServer,
        chance: random.Random,
        *,
        compact: Callable[[], str],
        kill_client: Callable[[], str],
    ) -> None:
        self._server = server
        self._chance = chance
        self._compact = compact
        self._kill_client = kill_client

    def inject(self, kind: str) -> str:
        """Do it and mend it."""
        match kind:
            case "kill a backend":
                self._kill_backend()
            case "kill the server":
                self._server.kill()
                self._wait()
                self._server.start()
            case "restart":
                self._server.restart()
            case "halt the server":
                self._server.pause()
                self._wait()
                self._server.resume()
            case "kill a client":
                return self._kill_client()
            case _:
                return self._compact()
        return ""

    def _kill_backend(self) -> None:
        """Kill a process that serves one of the clients: all connections end, and the server recovers."""
        found = self._server.query("SELECT pid FROM pg_stat_activity WHERE application_name = 'keyplan'")
        self._server.hang_up()
        self._server.kill_backend(self._chance.choice([process for (process,) in found]))

    def _wait(self) -> None:
        threading.Event().wait(self._chance.uniform(*_PAUSE_SECONDS))
