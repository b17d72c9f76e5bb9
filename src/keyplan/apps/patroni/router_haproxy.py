"""A real HAProxy: its configuration as text, its process, and the commands that move a port to another leader without a reload.

The configuration is written whole, checked by HAProxy itself, and loaded by a new worker while the old one serves the
connections that it has. A change of leader reloads nothing: the server is given another address, and sessions with the old
leader are cut in every worker, old ones too.
"""

import pwd
import re
import resource
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Sequence
from ipaddress import ip_address
from pathlib import Path
from threading import Event
from typing import Final, NamedTuple, Self

import msgspec

from keyplan.apps.patroni.logs import LOGGER
from keyplan.apps.patroni.processes import Spawned
from keyplan.apps.patroni.router_places import Places
from keyplan.apps.patroni.router_routes import Leader, ReplicaRoute, Route
from keyplan.errors import InvalidInputError
from keyplan.files import write_whole

__all__ = [
    "HAProxy",
    "Reads",
    "Switch",
    "configuration",
    "find_haproxy",
    "has_same_listeners",
    "has_same_replicas",
    "switches",
]

CONNECTIONS_MAX: Final = 10_000
_ANSWER_SECONDS_MAX: Final = 5.0
_START_SECONDS_MAX: Final = 15.0
_STOP_SECONDS_MAX: Final = 10.0
_CHECK_SECONDS_MAX: Final = 30
_SESSION: Final = re.compile(r"^(0x[0-9a-f]+): .* be=(\S+) ", re.MULTILINE)
_LISTENER: Final = re.compile(r"^frontend port_(\d+)$", re.MULTILINE)
_WORKER: Final = re.compile(r"^(\d+)\s+worker\b", re.MULTILINE)

_HEAD: Final = """\
# Written by keyplan patroni router: changes are overwritten.
global
  maxconn {connections_max}
{identity}
defaults
  mode tcp
  maxconn {connections_max}
  retries 2
  option clitcpka
  option srvtcpka
  timeout client 30m
  timeout server 30m
  timeout connect 4s
  timeout check 5s
"""

_ROUTE: Final = """
# {instance}
frontend port_{port}
  bind {bind}:{port}
  default_backend leader_{port}
backend leader_{port}
  {check}
  server leader {server}
"""
_REPLICA_ROUTE: Final = """
# {instance}, reads
frontend port_{port}
  bind {bind}:{port}
  default_backend replicas_{port}
backend replicas_{port}
  balance leastconn
  option httpchk OPTIONS /replica
  http-check expect status 200
{servers}"""
_CHECK: Final = "option httpchk OPTIONS /primary\n  http-check expect status 200"


class Switch:
    """The commands, for one worker, by which a port leads elsewhere."""

    def __init__(self, port: int, leader: Leader | None) -> None:
        self.place = f"leader_{port}"
        self.server = f"{self.place}/leader"
        self.leader = leader

    @property
    def cut(self) -> str:
        """The command that ends the connections with the old leader."""
        return f"shutdown sessions server {self.server}"

    @property
    def commands(self) -> list[str]:
        """In order: nobody new comes to the old leader, who is there is cut, then the new one is open."""
        server = self.server
        commands = [f"set server {server} state maint", self.cut]
        if self.leader is None:
            return commands
        health = self.leader.health.rpartition(":")[2]
        place = f"addr {self.leader.host.strip('[]')} port {self.leader.port}"
        return [
            *commands,
            f"set server {server} {place}",
            *([f"set server {server} check-port {health}"] if health else []),
            f"set server {server} state ready",
            *([f"set server {server} health up"] if health else []),
        ]


def configuration(
    routes: Sequence[Route],
    replicas: Sequence[ReplicaRoute] = (),
    *,
    bind: str = "127.0.0.1",
    user: str = "",
    connections_max: int = CONNECTIONS_MAX,
) -> str:
    """Return HAProxy's configuration for these routes: the same text for the same routes."""
    identity = f"  user {user}\n  group {user}\n" if user else ""
    parts = [_HEAD.format(connections_max=connections_max, identity=identity)]
    for route in routes:
        health = route.leader.health if route.leader else ""
        parts.append(
            _ROUTE.format(
                instance=_comment(route.instance),
                port=route.port,
                bind=bind,
                check=_CHECK if health or route.leader is None else "# the leader's REST interface cannot be reached",
                server=_server(route.leader),
            )
        )
    for reads in replicas:
        servers = "".join(
            f"  server {name} {_replica(place)}{' disabled' if place == reads.leader else ''}\n"
            for name, place in _named(reads.servers)
        )
        parts.append(
            _REPLICA_ROUTE.format(instance=_comment(reads.instance), port=reads.port, bind=bind, servers=servers)
        )
    return "".join(parts)


def _comment(name: str) -> str:
    # Why: names of instances are others' choice, and a line's end in one would end the comment.
    return re.sub(r"[^\x20-\x7e]", "?", name)


def _named(places: Sequence[Leader]) -> list[tuple[str, Leader]]:
    return [(f"replica{number}", place) for number, place in enumerate(places, start=1)]


def _replica(place: Leader) -> str:
    return f"{place.host}:{place.port}" if not place.health else f"{place.host}:{place.port} {_checked(place)}"


def _checked(place: Leader) -> str:
    port = place.health.rpartition(":")[2]
    return f"check port {port} inter 1s fastinter 200ms fall 2 rise 1 on-marked-down shutdown-sessions"


def _server(leader: Leader | None) -> str:
    if leader is None:
        # Why an address at all: HAProxy gives a server another address, but not a first one.
        return (
            "127.0.0.1:1 check port 1 inter 1s fastinter 200ms fall 2 rise 1 on-marked-down shutdown-sessions disabled"
        )
    place = f"{leader.host}:{leader.port}"
    if not leader.health:
        return place
    return f"{place} {_checked(leader)}"


def has_same_listeners(old: Sequence[Route], new: Sequence[Route]) -> bool:
    """Whether commands can make the one the other: the same ports, and each checked as it was.

    A route without a leader is checked, so that one of either kind of leader may follow only when it is checked as well.
    """

    def shape(routes: Sequence[Route]) -> list[tuple[int, bool]]:
        return [(route.port, route.leader is None or bool(route.leader.health)) for route in routes]

    return shape(old) == shape(new)


def switches(old: Sequence[Route], new: Sequence[Route]) -> list[Switch]:
    """Return what leads elsewhere now, of the ports that there were; a port that is closed leads nowhere."""
    after = {route.port: route.leader for route in new}
    return [Switch(route.port, after.get(route.port)) for route in old if after.get(route.port) != route.leader]


def find_haproxy() -> str | None:
    """The program, when it is installed."""
    return shutil.which("haproxy", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")


class Reads(NamedTuple):
    """What HAProxy is told about a port for reads: all members, of which the leader is closed."""

    instance: str
    port: int
    servers: tuple[Leader, ...]
    leader: Leader | None

    @classmethod
    def of(cls, route: ReplicaRoute) -> Self:
        """Return what a route is to HAProxy."""
        return cls(route.instance, route.port, route.servers, route.leader if route.leader in route.servers else None)

    def commands(self, before: "Reads") -> list[str]:
        """Return the commands, for one worker, that make the port lead as here when it led as before another leader led."""
        names = {place: name for name, place in _named(self.servers)}
        commands: list[str] = []
        if self.leader is not None:
            server = f"replicas_{self.port}/{names[self.leader]}"
            commands += [f"set server {server} state maint", f"shutdown sessions server {server}"]
        if before.leader is not None:
            server = f"replicas_{self.port}/{names[before.leader]}"
            # Why down: it may lead still, as far as it knows itself; its own answer opens it.
            commands += [f"set server {server} state ready", f"set server {server} health down"]
        return commands


def has_same_replicas(old: Sequence[Reads], new: Sequence[Reads]) -> bool:
    """Whether commands can make the one the other: only leaders differ."""
    return [each._replace(leader=None) for each in old] == [each._replace(leader=None) for each in new]


class HAProxy:
    """HAProxy in a folder: `haproxy.cfg`, its process, its socket. It lives on without the router, and is found again."""

    def __init__(self, folder: Path, *, program: str, bind: str = "127.0.0.1", is_root: bool = False) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder = folder
        self._program = program
        self._bind = bind
        self._user = "haproxy" if is_root and _has_user("haproxy") else ""
        self._process = Spawned(folder / "process")
        self._routes: tuple[Route, ...] | None = None
        self._reads: tuple[Reads, ...] = ()
        self._places = Places(bind)
        self._asked: tuple[Sequence[Route], Sequence[ReplicaRoute]] | None = None
        self._connections_max = _connections_max()
        self._pause = Event()

    @property
    def file(self) -> Path:
        """The configuration in use."""
        return self._folder / "haproxy.cfg"

    @property
    def socket(self) -> Path:
        """The master's socket, for its owner alone."""
        return self._folder / "master.sock"

    def apply(self, routes: Sequence[Route], replicas: Sequence[ReplicaRoute] = ()) -> None:
        """Make HAProxy lead where the routes say; return when it does. Nothing happens when it does already.

        Ports that it cannot listen at, and hosts whose address cannot be found, are left out and logged, and looked at again
        each time.
        Raises InvalidInputError when HAProxy refuses the configuration, which then stays as it was; OSError when it does not
        answer, or does not do what it was told.
        """
        asked = (tuple(routes), tuple(replicas))
        if asked == self._asked and not self._places.problems and self._routes is not None and self._process.is_alive:
            return
        self._asked = asked
        routes, replicas = self._places.possible(routes, replicas, held=self._held())
        wanted, reads = tuple(routes), tuple(map(Reads.of, replicas))
        if (wanted, reads) == (self._routes, self._reads) and (self._process.is_alive or not (wanted or reads)):
            return
        before, self._routes = self._routes, None
        reads_before, self._reads = self._reads, reads
        was_here = before is not None
        if before is None:
            before = self._remembered()
        if not wanted and not reads:
            # Why: HAProxy refuses to run without a listener.
            self.stop()
            self._routes = wanted
            return
        changed = switches(before, wanted)
        former_text = self.file.read_text() if self.file.exists() else ""
        # Invariant: the file is right before the process is, so that whatever restarts HAProxy starts it right.
        self._write(wanted, replicas)
        if not self._process.is_alive:
            self._load(self._start, former_text)
        elif not (was_here and has_same_listeners(before, wanted) and has_same_replicas(reads_before, reads)):
            # Why after a restart of the router: HAProxy may run on an older file than the one that is here.
            self._load(self._reload, former_text)
            self._tell(changed, self._reads_of(before, wanted), commands=[])
        else:
            commands = [switch.commands for switch in changed]
            for former, latter in zip(reads_before, reads, strict=True):
                commands += [latter.commands(former)] if former != latter else []
            self._tell(changed, self._reads_of(before, wanted), commands=commands)
            self._confirm(changed)
        write_whole(self._folder / "routes.json", msgspec.json.encode(wanted).decode())
        self._routes = wanted

    def _held(self) -> set[int]:
        """The ports that HAProxy listens at."""
        if not self._process.is_alive or not self.file.exists():
            return set()
        return {int(port) for port in _LISTENER.findall(self.file.read_text())}

    def _load(self, load: Callable[[], None], former: str) -> None:
        """Let HAProxy begin with the file; when it does not, the file is again what HAProxy goes on with."""
        try:
            load()
        except InvalidInputError:
            write_whole(self.file, former)
            raise

    def _confirm(self, changed: Sequence[Switch]) -> None:
        """Look whether ports lead where HAProxy was told to lead them. Raises OSError when one does not."""
        rows = [line.split() for line in self.command("@1 show servers state").splitlines()]
        names = next((row[1:] for row in rows if row[:1] == ["#"]), [])
        states = [dict(zip(names, row, strict=False)) for row in rows if len(row) > 1 and row[0] != "#"]
        found = {state["be_name"]: (state["srv_addr"], state["srv_port"]) for state in states}
        for switch in changed:
            if switch.leader is None:
                continue
            address, port = found.get(switch.place, ("", ""))
            wanted = ip_address(switch.leader.host.strip("[]"))
            if not address or port != str(switch.leader.port) or ip_address(address) != wanted:
                raise OSError(f"HAProxy leads {switch.place} to {address}:{port}, not to {wanted}:{switch.leader.port}")

    def _reads_of(self, before: Sequence[Route], after: Sequence[Route]) -> set[str]:
        """Return where reads of the instances go whose leader has changed.

        Why: an old worker asks nobody any more, and its readers would stay with a replica that leads now, and takes writes.
        """
        leaders = {route.instance: route.leader for route in after}
        changed = {route.instance for route in before if leaders.get(route.instance) != route.leader}
        return {f"replicas_{reads.port}" for reads in self._reads if reads.instance in changed}

    def _remembered(self) -> tuple[Route, ...]:
        """Where the router before this one led: connections that it left may still go there."""
        try:
            return msgspec.json.decode((self._folder / "routes.json").read_bytes(), type=tuple[Route, ...])
        except (OSError, msgspec.MsgspecError, ValueError, RecursionError):
            return ()

    def _write(self, routes: Sequence[Route], replicas: Sequence[ReplicaRoute]) -> None:
        text = configuration(routes, replicas, bind=self._bind, user=self._user, connections_max=self._connections_max)
        if self.file.exists() and self.file.read_text() == text:
            return
        trial = self._folder / "trial.cfg"
        write_whole(trial, text)
        try:
            done = subprocess.run(  # noqa: S603  # Why: the program was looked up by name.
                [self._program, "-c", "-f", str(trial)],
                capture_output=True,
                text=True,
                check=False,
                timeout=_CHECK_SECONDS_MAX,
            )
        except subprocess.TimeoutExpired:
            # Why as a failure of the system: a busy machine must not end the router, which tries again.
            raise TimeoutError(f"HAProxy has not checked {trial} within {_CHECK_SECONDS_MAX} s") from None
        if done.returncode != 0:
            raise InvalidInputError(source=str(trial), problem=f"HAProxy refuses it: {done.stderr.strip()[-500:]}")
        trial.replace(self.file)

    def _start(self) -> None:
        self.socket.unlink(missing_ok=True)
        command = [self._program, "-W", "-S", f"{self.socket},level,admin,mode,600", "-f", str(self.file)]
        self._process.start(command, environment={"PATH": "/usr/sbin:/usr/bin:/bin"}, log=self._folder / "log")
        self._until_workers(1, among=set())

    def _reload(self) -> None:
        before = set(self._workers())
        self.command("reload")
        self._until_workers(1, among=before)

    def _until_workers(self, count: int, *, among: set[int]) -> None:
        """Wait until there are new workers: that many besides those there were."""
        for _ in range(round(_START_SECONDS_MAX / 0.05)):
            try:
                if len(set(self._workers()) - among) >= count:
                    return
            except OSError:
                if not self._process.is_alive:
                    break
            self._pause.wait(0.05)
        raise InvalidInputError(source=str(self.file), problem=f"HAProxy does not start; see {self._folder / 'log'}")

    def _workers(self) -> list[int]:
        """The ids of the workers; the first is the one that takes new connections."""
        return [int(pid) for pid in _WORKER.findall(self.command("show proc"))]

    def _old_workers(self) -> list[int]:
        text = self.command("show proc")
        return [int(pid) for pid in _WORKER.findall(text.partition("# old workers")[2])]

    def _tell(self, changed: Sequence[Switch], reads: set[str], *, commands: Sequence[Sequence[str]]) -> None:
        """Give the worker commands, port by port, and end old workers' sessions that lead where nobody may be led any more."""
        for together in commands:
            self._say("@1", together)
        if changed:
            for worker in self._old_workers():
                self._cut(worker, reads | {switch.place for switch in changed})

    def _cut(self, worker: int, places: set[str]) -> None:
        """End an old worker's sessions one by one: it refuses commands about servers that it takes no connections for."""
        text = self.command(f"@!{worker} show sess")
        found = [match[1] for match in _SESSION.finditer(text) if match[2] in places]
        if found:
            self._say(f"@!{worker}", [f"shutdown session {session}" for session in found])

    def _say(self, worker: str, commands: Sequence[str]) -> None:
        self.command("; ".join(f"{worker} {command}" for command in commands))

    def command(self, text: str) -> str:
        """Give the master a command, or a worker through it, and return what it answers. Raises OSError."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_ANSWER_SECONDS_MAX)
            connection.connect(str(self.socket))
            connection.sendall(text.encode() + b"\n")
            connection.shutdown(socket.SHUT_WR)
            parts: list[bytes] = []
            # Trap: the master closes the connection when it reloads, instead of an answer.
            try:
                while part := connection.recv(65_536):
                    parts.append(part)
            except ConnectionResetError:
                pass
        return b"".join(parts).decode(errors="replace")

    def stop(self) -> None:
        """End HAProxy and all its connections."""
        if not self._process.is_alive:
            return
        self._process.send(signal.SIGTERM)
        for _ in range(round(_STOP_SECONDS_MAX / 0.05)):
            if self._process.running is None:
                break
            self._pause.wait(0.05)
        else:
            LOGGER.warning("HAProxy does not end when it is told to, and is killed")
            self._process.send(signal.SIGKILL)
        self._process.forget()
        self._routes = None


def _connections_max() -> int:
    """As many connections as the system allows files for: each takes two, and ports and workers some more."""
    _, files = resource.getrlimit(resource.RLIMIT_NOFILE)
    return CONNECTIONS_MAX if files == resource.RLIM_INFINITY else max(100, min(CONNECTIONS_MAX, files // 2 - 1_000))


def _has_user(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True
