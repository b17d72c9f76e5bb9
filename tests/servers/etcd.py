"""Real etcd for tests: a single node or a cluster of three, on free ports of this machine, each with its own data folder.

A server is stopped, killed, halted and let go on by its process id. Data lies in memory (/dev/shm) where there is one, which
changes nothing for killed processes; only the loss of power could tell. See `tests/servers/plugin.py` for the fixtures.
"""

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

from tests.servers.authority import Authority

__all__ = ["EtcdCluster", "EtcdServer", "etcd_version", "free_port", "why_no_etcd"]

_START_SECONDS_MAX: Final = 90.0
_STOP_SECONDS_MAX: Final = 30.0
_HEALTH_SECONDS_MAX: Final = 2.0
_ports_given: Final[set[int]] = set()
"""Why: several are asked for before the first of them is listened on."""
_STARTS_MAX: Final = 5
ROOT_USER: Final = "root"


def why_no_etcd() -> str | None:
    """Return why etcd cannot be started here, None when it can."""
    missing = [program for program in ("etcd", "etcdctl") if shutil.which(program) is None]
    return f"{' and '.join(missing)} not installed: apt-get install etcd-server etcd-client" if missing else None


def etcd_version() -> str:
    """Return the version of the installed server, as in 3.4.23."""
    said = subprocess.run(["etcd", "--version"], capture_output=True, text=True, check=True).stdout
    return said.splitlines()[0].rpartition(" ")[2]


def free_port() -> int:
    """Return a port of 127.0.0.1 that nobody listens on, and that this process was not given before.

    Why below 32768: ports above are given to outgoing connections, and a server that is restarted would find its port taken.
    """
    while True:
        port = random.randrange(10_000, 32_000)
        if port in _ports_given:
            continue
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            _ports_given.add(port)
            return port


class EtcdServer:
    """One node, of its own or of a cluster. `with EtcdServer() as server: ... server.url`.

    `tls` asks clients for a certificate of that authority; `root_password` switches authentication on after the first start;
    `arguments` are added to etcd's. Attributes may be read while the server is down.
    """

    def __init__(
        self,
        *,
        name: str = "solo",
        tls: Authority | None = None,
        root_password: str | None = None,
        has_v2: bool = False,
        arguments: Sequence[str] = (),
    ) -> None:
        memory = Path("/dev/shm")
        self.folder = Path(tempfile.mkdtemp(prefix=f"keyplan-etcd-{name}-", dir=memory if memory.is_dir() else None))
        self.name = name
        self.tls = tls
        self.root_password = root_password
        self.initial_cluster: str | None = None  # a cluster sets it before the start
        self._arguments = [*arguments, *(["--enable-v2=true"] if has_v2 else [])]
        self._process: subprocess.Popen[bytes] | None = None
        self.is_paused = False
        self._has_root = False
        self.choose_ports()

    def choose_ports(self) -> None:
        """Take three free ports: for clients, for peers, and for metrics."""
        self.client_port, self.peer_port, self.metrics_port = free_port(), free_port(), free_port()

    # ---- where it is -----------------------------------------------------------------------------------------------------

    @property
    def client_endpoint(self) -> str:
        """The address for clients, as in 127.0.0.1:12379."""
        return f"127.0.0.1:{self.client_port}"

    @property
    def endpoints(self) -> list[str]:
        """The addresses for clients: here one."""
        return [self.client_endpoint]

    @property
    def client_url(self) -> str:
        """The address for HTTP clients, as in http://127.0.0.1:12379."""
        return f"{'http' if self.tls is None else 'https'}://{self.client_endpoint}"

    @property
    def peer_url(self) -> str:
        """The address for the other members."""
        return f"http://127.0.0.1:{self.peer_port}"

    @property
    def url(self) -> str:
        """The URL that keyplan opens, with what TLS and authentication need."""
        return url_of(self.endpoints, tls=self.tls, root_password=self.root_password)

    @property
    def log(self) -> str:
        """What the server has said so far."""
        return (self.folder / "log").read_text(errors="replace")

    # ---- its life --------------------------------------------------------------------------------------------------------

    def start(self, *, wait: bool = True) -> Self:
        """Start, and return when requests are answered; without `wait`, at once. Data of an earlier run are kept."""
        is_new = not (self.folder / "data").exists() and self.initial_cluster is None
        for attempt in range(_STARTS_MAX):
            self._launch()
            if not wait:
                return self
            if self._waited_until(self.is_healthy, _START_SECONDS_MAX):
                break
            problem = self.log[-2_000:]
            self.kill()
            # Why: between our look and its start, somebody else may have taken a port.
            is_taken = "address already in use" in problem
            assert is_new and is_taken and attempt + 1 < _STARTS_MAX, problem  # noqa: PT018  # one condition
            shutil.rmtree(self.folder / "data", ignore_errors=True)
            self.choose_ports()
        if self.root_password is not None and not self._has_root:
            self._switch_authentication_on()
        return self

    def _launch(self) -> None:
        assert self._process is None or self._process.poll() is not None, f"{self.name} runs already"
        # Why: the environment may hold ETCD_ variables, which etcd takes for options.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("ETCD_")}
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                ["etcd", *self._options()], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment
            )
        self.is_paused = False

    def _options(self) -> list[str]:
        tls = self.tls
        return [
            *("--name", self.name, "--data-dir", str(self.folder / "data"), "--logger", "zap", "--log-level", "warn"),
            *("--listen-client-urls", self.client_url, "--advertise-client-urls", self.client_url),
            *("--listen-peer-urls", self.peer_url, "--initial-advertise-peer-urls", self.peer_url),
            *("--listen-metrics-urls", f"http://127.0.0.1:{self.metrics_port}"),
            *("--initial-cluster", self.initial_cluster or f"{self.name}={self.peer_url}"),
            *("--initial-cluster-token", self.folder.name if self.initial_cluster is None else "keyplan-test"),
            *("--heartbeat-interval", "50", "--election-timeout", "500"),
            *(
                []
                if tls is None
                else [
                    *("--cert-file", str(tls.certificate("server")), "--key-file", str(tls.key("server"))),
                    *("--trusted-ca-file", str(tls.ca), "--client-cert-auth"),
                ]
            ),
            *self._arguments,
        ]

    def _switch_authentication_on(self) -> None:
        self.etcdctl("user", "add", f"{ROOT_USER}:{self.root_password}", is_authenticated=False)
        self.etcdctl("user", "grant-role", ROOT_USER, "root", is_authenticated=False)
        self.etcdctl("auth", "enable", is_authenticated=False)
        self._has_root = True

    @property
    def process(self) -> "subprocess.Popen[bytes]":
        """The process, running or ended."""
        assert self._process is not None, "the server was not started"
        return self._process

    @property
    def is_running(self) -> bool:
        """True while the process lives, halted or not."""
        return self._process is not None and self._process.poll() is None

    def stop(self) -> None:
        """Ask it to end, wait. Its data stay. Stopping what is down is harmless."""
        self.end(signal.SIGTERM)

    def kill(self) -> None:
        """End it with SIGKILL: no time to write anything. Its data stay."""
        self.end(signal.SIGKILL)

    def end(self, with_signal: signal.Signals) -> None:
        """Send a signal that ends it, wait, and use SIGKILL when that takes too long."""
        if not self.is_running:
            return
        if self.is_paused:
            self.resume()
        self.process.send_signal(with_signal)
        try:
            self.process.wait(_STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def restart(self, *, wait: bool = True) -> Self:
        """Stop when it runs, and start on the same ports with the same data."""
        self.stop()
        return self.start(wait=wait)

    def pause(self) -> None:
        """Halt it with SIGSTOP, and return when it has stopped: connections stay open, nothing is answered."""
        self.process.send_signal(signal.SIGSTOP)
        # Why: the signal is sent, not obeyed, when this returns; a thread on another core may answer one more request.
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        self.is_paused = True

    def resume(self) -> None:
        """Let a halted server go on."""
        self.process.send_signal(signal.SIGCONT)
        self.is_paused = False

    def remove(self) -> None:
        """Stop it at once and remove its data."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()

    # ---- what it says ----------------------------------------------------------------------------------------------------

    def is_healthy(self) -> bool:
        """Ask whether it answers and knows a leader."""
        said = self._read("health")
        return said is not None and json.loads(said).get("health") == "true"

    def is_leader(self) -> bool:
        """Ask whether it leads; a server that is down or halted does not."""
        said = None if self.is_paused else self._read("metrics")
        return said is not None and "\netcd_server_is_leader 1\n" in said

    def _read(self, page: str) -> str | None:
        if not self.is_running:
            return None
        try:
            with urlopen(f"http://127.0.0.1:{self.metrics_port}/{page}", timeout=_HEALTH_SECONDS_MAX) as answer:
                text: str = answer.read().decode()
                return text
        except (URLError, OSError):
            return None

    def _waited_until(self, is_true: Callable[[], bool], seconds_max: float) -> bool:
        give_up_at = time.monotonic() + seconds_max
        while self.is_running and time.monotonic() < give_up_at:
            if is_true():
                return True
            # Why: a server has no event for this; it is asked again.
            time.sleep(0.02)
        return False

    def emptied(self) -> Self:
        """Delete all keys, by etcdctl, and return the server."""
        self.etcdctl("del", "", "--from-key")
        return self

    def etcdctl(self, *arguments: str, is_authenticated: bool = True) -> str:
        """Run etcdctl on this server and return what it prints. Raises AssertionError with its complaint."""
        options = etcdctl_options(self, is_authenticated=is_authenticated)
        done = subprocess.run(
            ["etcdctl", *options, *arguments], capture_output=True, text=True, check=False, env=etcdctl_environment()
        )
        assert done.returncode == 0, f"etcdctl {' '.join(arguments)}: {done.stderr}"
        return done.stdout


def etcdctl_environment() -> dict[str, str]:
    """The environment in which etcdctl speaks the third protocol and takes no other options."""
    outside = {name: value for name, value in os.environ.items() if not name.startswith("ETCDCTL_")}
    return {**outside, "ETCDCTL_API": "3"}


def etcdctl_options(server: EtcdServer, *, is_authenticated: bool = True) -> list[str]:
    """What etcdctl must be told to reach a server."""
    options = [f"--endpoints={server.client_url}"]
    if server.tls is not None:
        options += [f"--cacert={server.tls.ca}", f"--cert={server.tls.certificate('client')}"]
        options += [f"--key={server.tls.key('client')}"]
    if is_authenticated and server.root_password is not None:
        options += [f"--user={ROOT_USER}:{server.root_password}"]
    return options


def url_of(endpoints: Sequence[str], *, tls: Authority | None = None, root_password: str | None = None) -> str:
    """Return the URL that keyplan opens."""
    options: dict[str, str] = {}
    if tls is not None:
        options |= {"ca": str(tls.ca), "cert": str(tls.certificate("client")), "key": str(tls.key("client"))}
    if root_password is not None:
        options |= {"user": ROOT_USER, "password": root_password}
    return f"etcd://{','.join(endpoints)}" + (f"?{urlencode(options)}" if options else "")


class EtcdCluster:
    """Three nodes that elect a leader. `with EtcdCluster() as cluster: cluster.leader().kill()`."""

    def __init__(self, *, members: int = 3, arguments: Sequence[str] = ()) -> None:
        self.members = [EtcdServer(name=f"m{number}", arguments=arguments) for number in range(members)]

    @property
    def endpoints(self) -> list[str]:
        """The addresses of all members for clients."""
        return [member.client_endpoint for member in self.members]

    @property
    def url(self) -> str:
        """The URL of all members that keyplan opens."""
        return url_of(self.endpoints)

    def start(self) -> Self:
        """Start all members, again where they were, and return when each of them answers."""
        for attempt in range(_STARTS_MAX):
            listed = ",".join(f"{member.name}={member.peer_url}" for member in self.members)
            is_new = not any((member.folder / "data").exists() for member in self.members)
            for member in self.members:
                member.initial_cluster = listed
                if not member.is_running:
                    member.start(wait=False)
            if self._all_answer():
                return self
            problem = "\n".join(member.log[-1_000:] for member in self.members)
            is_taken = "address already in use" in problem
            assert is_new and is_taken and attempt + 1 < _STARTS_MAX, problem  # noqa: PT018  # one condition
            for member in self.members:
                member.kill()
                shutil.rmtree(member.folder / "data", ignore_errors=True)
                member.choose_ports()
        return self

    def _all_answer(self) -> bool:
        give_up_at = time.monotonic() + _START_SECONDS_MAX
        while time.monotonic() < give_up_at:
            if all(member.is_healthy() for member in self.members):
                return True
            if not all(member.is_running for member in self.members):
                return False
            # Why: a server has no event for this; it is asked again.
            time.sleep(0.05)
        return False

    def leader(self) -> EtcdServer:
        """Return the member that leads; wait until there is one among those that run."""
        give_up_at = time.monotonic() + _START_SECONDS_MAX
        while time.monotonic() < give_up_at:
            for member in self.members:
                if member.is_leader():
                    return member
            # Why: a server has no event for this; it is asked again.
            time.sleep(0.02)
        raise AssertionError("no member came to lead")

    def followers(self) -> list[EtcdServer]:
        """Return the members that run and do not lead."""
        leader = self.leader()
        return [member for member in self.members if member is not leader and member.is_running]

    def restart_all(self) -> None:
        """Kill every member, then start all of them with their data."""
        for member in self.members:
            member.kill()
        self.start()

    def remove(self) -> None:
        """Stop all at once and remove their data."""
        for member in self.members:
            member.remove()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()
