"""A site of three machines and a centre, with one cluster behind a router: what it is made of, and what its nodes say of it."""

import base64
import grp
import json
import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, NamedTuple, Self
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import keyplan as package
from keyplan.access import EVERYTHING, NEW_FILE, add_principal, change_access_file
from keyplan.apps.patroni import Broker
from keyplan.apps.patroni.processes import Running
from keyplan.operations import Act
from tests.apps.patroni.campaign.hosts import CENTRE, Host, make_centre
from tests.apps.patroni.campaign.parts import Part, keyplan
from tests.apps.patroni.campaign.wall_clock import WallClock, why_no_clock
from tests.apps.patroni.osb_platform import PAIR, TRIO, Platform
from tests.processes import children_of
from tests.servers.authority import Authority
from tests.servers.patroni import until

__all__ = ["INSTANCE", "LAG_BYTES_MAX", "TTL_SECONDS", "Mode", "Node", "Site", "StoreKind"]

StoreKind = Literal["embedded-v2", "embedded-v3", "etcd"]
Mode = Literal["sync", "async"]

INSTANCE: Final = "f1"
TTL_SECONDS: Final = 20
"""Patroni's least."""
LAG_BYTES_MAX: Final = 1 << 20
"""Patroni's `maximum_lag_on_failover`, as our cells set it."""
_BROKER_PORT: Final = 8210
_GATEWAY_PORT: Final = 8211
_ETCD_PORT: Final = 2379
_FIRST_PORT: Final = 33000
_DISK_BYTES: Final = 640 << 20
_SECONDS_MAX: Final = 240.0


class Node(NamedTuple):
    """A node of the cluster, as Patroni's REST interface tells of it; empty where it does not answer."""

    name: str
    host: Host
    folder: Path
    configuration: Mapping[str, Any]

    @property
    def place(self) -> str:
        """The `host:port` of its PostgreSQL."""
        return str(self.configuration["postgresql"]["connect_address"])

    def told(self, path: str = "/patroni") -> Any:
        """Ask Patroni; None when it does not answer."""
        address = self.configuration["restapi"]["connect_address"]
        try:
            with urlopen(f"http://{address}{path}", timeout=2) as answer:
                return json.loads(answer.read())
        except (URLError, OSError, ValueError):
            return None

    def switch_over(self, leader: str) -> None:
        """Ask to lead in the place of a leader."""
        rest = self.configuration["restapi"]
        request = Request(
            f"http://{rest['connect_address']}/switchover",
            data=json.dumps({"leader": leader, "candidate": self.name}).encode(),
        )
        user = rest["authentication"]
        request.add_header("Authorization", f"Basic {_basic(user['username'], user['password'])}")
        with suppress(OSError), urlopen(request, timeout=60):
            pass

    def pid(self, of: Literal["patroni", "postmaster"]) -> int:
        """The id of a process of its own, as its folder tells; 0 when it does not."""
        file = self.folder / ("process" if of == "patroni" else "home/data/postmaster.pid")
        try:
            return int(file.read_text().split()[0])
        except (OSError, ValueError, IndexError):
            return 0


def _basic(username: str, password: str) -> str:
    return base64.b64encode(f"{username}:{password}".encode()).decode()


class Site:
    """Everything, in a folder. `with Site(folder, store="etcd", mode="sync") as site: ...` returns with a complete cluster."""

    def __init__(self, folder: Path, *, store: StoreKind, mode: Mode, nodes: int = 3) -> None:
        self.folder = folder
        self.store_kind: StoreKind = store
        self.mode: Mode = mode
        self.uri = ""
        self.notes: list[str] = []
        self._token = secrets.token_urlsafe(24)
        make_centre()
        group = grp.getgrnam("postgres").gr_gid
        self.hosts = [
            Host(number, folder / "cells" / f"cell{number}", disk_bytes=_DISK_BYTES, group=group)
            for number in range(1, nodes + 1)
        ]
        for path in (folder, folder / "cells"):
            path.chmod(0o711)
        self.clock = WallClock(folder / "clock") if why_no_clock() is None else None
        """That of the first machine."""
        if self.clock is not None:
            self.hosts[0].replace_file(self.clock.script, self.clock.wrapper)
        self._authority = Authority.create(folder / "authority")
        self._plan = TRIO if nodes == 3 else PAIR
        self.store_url = f"etcd://{CENTRE}:{_ETCD_PORT}" if store == "etcd" else f"lmdb:{folder / 'store'}"
        self.parts = {part.name: part for part in (*self._centre(), *map(self._cell, self.hosts), self._router())}

    # ---- what it is made of ----------------------------------------------------------------------------------------------

    def _centre(self) -> list[Part]:
        access = self.folder / "access.toml"
        grants = {act: [str(EVERYTHING)] for act in Act}
        change_access_file(
            access,
            lambda text: add_principal(text, "platform", token=self._token, grants=grants, source=str(access)),
            new=NEW_FILE,
        )
        broker = keyplan(
            *("serve", "--listen", f"{CENTRE}:{_BROKER_PORT}", "--app", "patroni-broker", "--access", str(access)),
            *("--setting", f"patroni-broker.host={CENTRE}", "--setting", "patroni-broker.claim-seconds=5"),
            *("--setting", f"patroni-broker.ports={_FIRST_PORT}-{_FIRST_PORT + 9}"),
        )
        return [self._store_part(access), Part("broker", broker, self.folder / "broker", store=self.store_url)]

    def _store_part(self, access: Path) -> Part:
        if self.store_kind == "etcd":
            client, peer = f"http://{CENTRE}:{_ETCD_PORT}", f"http://{CENTRE}:{_ETCD_PORT + 1}"
            options = {
                "name": "solo",
                "data-dir": str(self.folder / "etcd" / "data"),
                "logger": "zap",
                "log-level": "warn",
                "listen-client-urls": client,
                "advertise-client-urls": client,
                "listen-peer-urls": peer,
                "initial-advertise-peer-urls": peer,
                "initial-cluster": f"solo={peer}",
            }
            words = [word for name, value in options.items() for word in (f"--{name}", value)]
            return Part("store", ["etcd", *words], self.folder / "etcd")
        apps = ("etcd-v2", "etcd-v3", "patroni-broker")
        command = keyplan(
            *("serve", "--listen", f"{CENTRE}:{_GATEWAY_PORT}", *(word for app in apps for word in ("--app", app))),
            *("--setting", "patroni-broker.part=clusters", "--access", str(access)),
        )
        return Part("store", command, self.folder / "gateway", store=self.store_url)

    @property
    def store_ports(self) -> tuple[int, ...]:
        """The port of the centre at which nodes find their store."""
        return (_ETCD_PORT,) if self.store_kind == "etcd" else (_GATEWAY_PORT,)

    def _cell(self, host: Host) -> Part:
        authority = self._authority
        parameters = {"fsync": "off", "max_wal_size": "128MB", "min_wal_size": "64MB", "wal_sender_timeout": "10s"}
        # Why these: Patroni's least TTL, and a short loop notices everything else soon.
        dynamic = {"ttl": TTL_SECONDS, "loop_wait": 2, "synchronous_mode": str(self.mode == "sync").lower()}
        command = keyplan(
            *("patroni", "cell", host.name, "--gateway", f"{CENTRE}:{self.store_ports[0]}", "--data", str(host.disk)),
            *("--mode", "etcd" if self.store_kind == "embedded-v2" else "etcd3", "--zone", f"z{host.name[-1]}"),
            *("--address", host.address, "--hostname", host.name, "--ports", "20000-20099"),
            *("--tls-certificate", str(authority.certificate("server")), "--tls-key", str(authority.key("server"))),
            *(word for name, value in parameters.items() for word in ("--parameter", f"{name}={value}")),
            *(word for name, value in dynamic.items() for word in ("--patroni", f"{name}={value}")),
        )
        # Why the agent too: the clock is the machine's. What its nodes see of the environment is not the agent's.
        environment = self.clock.environment if self.clock is not None and host is self.hosts[0] else {}
        folder = host.disk / "agent"
        return Part(host.name, command, folder, host=host, store=self.store_url, environment=environment)

    def _router(self) -> Part:
        command = keyplan("patroni", "router", "--data", str(self.folder / "router"), "--bind", CENTRE)
        command += ["--stop-haproxy"]
        (self.folder / "router").mkdir(mode=0o700)
        return Part("router", command, self.folder / "router" / "agent", store=self.store_url)

    # ---- its life --------------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _start(self) -> None:
        self.parts["store"].start()
        self.until(self._store_answers, "the store answers")
        self.parts["broker"].start()
        platform = Platform(f"http://{CENTRE}:{_BROKER_PORT}", token=self._token)
        self.until(lambda: _answers(f"http://{CENTRE}:{_BROKER_PORT}/health"), "the broker answers")
        for part in self.parts.values():
            part.start()
        with package.open(self.store_url) as store:
            self.until(lambda: Broker(store).cells.count() == len(self.hosts), "every cell is there")
        answer = platform.provision(INSTANCE, self._plan)
        assert answer.status_code == 202, answer.text
        ended = platform.ended(INSTANCE, _SECONDS_MAX)
        assert ended["state"] == "succeeded", ended
        answer = platform.bind(INSTANCE, "b1", self._plan)
        assert answer.status_code == 201, answer.text
        self.uri = answer.json()["credentials"]["uri"]
        self.until(self.is_complete, "the cluster is complete")

    def _store_answers(self) -> bool:
        path = "/version" if self.store_kind == "etcd" else "/health"
        return _answers(f"http://{CENTRE}:{self.store_ports[0]}{path}")

    def until(self, is_true: Callable[[], bool], what: str, seconds_max: float = _SECONDS_MAX) -> float:
        """Wait for a condition, and keep all parts running meanwhile; return how many seconds it took."""

        def kept() -> bool:
            for part in self.parts.values():
                if part.keep():
                    said = part.log.splitlines()
                    self.notes.append(f"{part.name} ended by itself: {said[-1] if said else 'it said nothing'}")
            return is_true()

        return until(kept, seconds_max, lambda: f"it does not come that {what}\n{self.logs()}")

    def stop(self) -> None:
        """End all parts and what runs on the hosts, by process id."""
        for part in self.parts.values():
            part.stop() if part.name == "router" else part.kill()
        for host in self.hosts:
            host.remove()

    def haproxy(self) -> list[int]:
        """The ids of HAProxy's processes, as the router's folder tells: the master and its workers. None when it has ended."""
        master = Running.of_file(self.folder / "router" / "process")
        return [] if master is None else [master.pid, *children_of(master.pid)]

    def logs(self) -> str:
        """The end of every log."""
        found = sorted(path for path in self.folder.rglob("log") if path.is_file())
        return "\n".join(
            f"--- {path.relative_to(self.folder)}\n{path.read_text(errors='replace')[-2500:]}" for path in found
        )

    # ---- what its nodes say ----------------------------------------------------------------------------------------------

    def nodes(self) -> list[Node]:
        """The cluster's nodes."""
        found = []
        for host in self.hosts:
            for folder in sorted((host.disk / "nodes").glob("*")):
                with suppress(OSError, ValueError):
                    configuration = json.loads((folder / "patroni.yml").read_text())
                    found.append(Node(configuration["name"], host, folder, configuration))
        return found

    def leader(self) -> Node | None:
        """The node that says that it leads."""
        return next((node for node in self.nodes() if _role(node.told()) == "primary"), None)

    def is_complete(self) -> bool:
        """Whether one node leads, all others stream from it on its timeline, and one is synchronous where that is wanted."""
        told = [node.told() for node in self.nodes()]
        if len(told) != len(self.hosts) or None in told:
            return False
        leaders = [each for each in told if _role(each) == "primary" and each.get("state") == "running"]
        others = [each for each in told if _role(each) == "replica" and each.get("replication_state") == "streaming"]
        return (
            len(leaders) == 1
            and len(others) == len(told) - 1
            and len({each.get("timeline") for each in told}) == 1
            and (self.mode == "async" or any(each.get("sync_standby") for each in told))
        )

    def state(self) -> str:
        """What each node says, in a line."""
        return "; ".join(f"{node.host.name} {_in_words(node.told())}" for node in self.nodes())

    def forks(self) -> dict[int, int]:
        """At which position of the log each timeline was left, as the leader knows."""
        leader = self.leader()
        history = leader.told("/history") if leader is not None else None
        return {int(timeline): int(position) for timeline, position, *_ in history or ()}

    def direct_uri(self, node: Node) -> str:
        """Where a node is asked itself, and not through the router, as the binding's user."""
        parts = urlsplit(self.uri)
        return parts._replace(netloc=f"{parts.netloc.rpartition('@')[0]}@{node.place}").geturl()

    def secrets(self) -> dict[str, str]:
        """Every password, token and key, by a name that can be told."""
        parts = urlsplit(self.uri)
        found = {"platform token": self._token, "binding password": parts.password or ""}
        with package.open(self.store_url) as store:
            state = Broker(store).instances.require(INSTANCE)
        for name in ("admin", "superuser", "replication", "rewind", "store"):
            found[f"{name} password"] = getattr(state, f"{name}_credentials").password.reveal()
        key = self._authority.key("server").read_text().splitlines()
        found["TLS key"] = key[len(key) // 2]
        return {name: value for name, value in found.items() if value}


def _role(told: Any) -> str:
    role = "" if told is None else str(told.get("role"))
    return "primary" if role in {"primary", "master"} else role


def _in_words(told: Any) -> str:
    if told is None:
        return "-"
    kept = (told.get(name) for name in ("role", "state", "replication_state", "timeline"))
    return " ".join(str(each) for each in (*kept, "sync" if told.get("sync_standby") else None) if each is not None)


def _answers(url: str) -> bool:
    try:
        with urlopen(url, timeout=2):
            return True
    except (URLError, OSError):
        return False
