"""Real Patroni nodes with real PostgreSQL for tests: started as processes of an unprivileged user, killed by process id.

A node finds its store by one of Patroni's two modes: `etcd` speaks the v2 keys API, `etcd3` the JSON gateway. A store is given
by its `host:port`. Data lie in memory (/dev/shm) where there is one. See `why_no_patroni` for what must be installed.
"""

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Self
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from tests.processes import children_of, command_of, state_of
from tests.servers.etcd import free_port

__all__ = ["Mode", "PatroniCluster", "PatroniNode", "until", "why_no_patroni", "write_patroni"]

Mode = Literal["etcd", "etcd3"]

SUPERUSER_PASSWORD: Final = "labsuper"
_PROGRAMS: Final = sorted(Path("/usr/lib/postgresql").glob("*/bin")) if Path("/usr/lib/postgresql").is_dir() else []
_USER: Final = "postgres"
_SCRIPT: Final = Path(sys.prefix) / "bin" / "patroni"
"""Why the script: Patroni starts itself again by its path, and as a module it would find its own `collections` first."""
_NO_SITE: Final = "-S"
"""Why: packages of the system's own Python do not fit those beside this one; Debian's OpenSSL, for one, our cryptography."""
_STOP_SECONDS_MAX: Final = 30.0
_DYNAMIC: Final[Mapping[str, Any]] = {
    # Why these: Patroni's least TTL is 20 s, and a short loop notices everything else soon.
    "ttl": 20,
    "loop_wait": 1,
    "retry_timeout": 5,
    "maximum_lag_on_failover": 1_048_576,
    "postgresql": {
        "use_pg_rewind": True,
        "use_slots": True,
        "parameters": {"max_connections": 30, "shared_buffers": "16MB", "max_wal_senders": 5, "wal_keep_size": "32MB"},
    },
}


@cache
def why_no_patroni() -> str | None:
    """Return why Patroni nodes cannot run here, None when they can."""
    if importlib.util.find_spec("patroni") is None:
        return "Patroni is not installed: pip install 'patroni[etcd,etcd3,psycopg3]'"
    if not _SCRIPT.exists():
        return f"there is no {_SCRIPT.name} beside this Python"
    if not _PROGRAMS:
        return "PostgreSQL is not installed: apt-get install postgresql-15"
    if os.geteuid() == 0 and shutil.which("setpriv") is None:
        return "setpriv is not installed, and PostgreSQL refuses to run as root"
    try:
        _python()
    except LookupError as error:
        return str(error)
    return None


def _as_user(*command: str) -> list[str]:
    """Return the command for whoever may run PostgreSQL: not root."""
    if os.geteuid() != 0:
        return list(command)
    # Trap: setpriv finds its command with root's rights still, which the command's children lack; so `env` is between.
    return ["setpriv", f"--reuid={_USER}", f"--regid={_USER}", "--init-groups", "env", *command]


def _environment(home: str) -> dict[str, str]:
    packages = os.pathsep.join(path for path in sys.path if path.endswith("site-packages"))
    return {
        "HOME": home,
        "LC_ALL": "C",
        "PATH": f"{_PROGRAMS[-1]}:/usr/bin:/bin",
        "PYTHONPATH": packages,
        "PYTHONDONTWRITEBYTECODE": "1",
    }


@cache
def _python() -> tuple[str, ...]:
    """Return an interpreter that the unprivileged user may run, of the version that the packages are for, with its option."""
    for candidate in (sys.executable, "/usr/bin/python3"):
        asked = subprocess.run(
            _as_user(candidate, _NO_SITE, "-c", "import patroni, psycopg, sys; print('%d.%d' % sys.version_info[:2])"),
            capture_output=True,
            text=True,
            check=False,
            env=_environment("/tmp"),
        )
        if asked.stdout.strip() == f"{sys.version_info[0]}.{sys.version_info[1]}":
            return candidate, _NO_SITE
    raise LookupError(f"no Python {sys.version_info[0]}.{sys.version_info[1]} that the user {_USER} may run")


def write_patroni(file: Path) -> None:
    """Write a program that is Patroni for the user who may run PostgreSQL, as their own installation would be."""
    settings = "".join(f"export {name}='{value}'\n" for name, value in _environment("/nonexistent").items())
    file.write_text(f'#!/bin/sh\n{settings}exec {" ".join(_python())} {_SCRIPT} "$@"\n')
    file.chmod(0o755)


def until(is_true: Callable[[], bool], seconds_max: float, what: Callable[[], str]) -> float:
    """Wait for a condition; return how many seconds it took. Raises AssertionError when it does not come."""
    began = time.monotonic()
    while not is_true():
        assert time.monotonic() - began < seconds_max, what()
        # Why: processes outside this one tell nothing by themselves.
        time.sleep(0.1)
    return time.monotonic() - began


class PatroniNode:
    """One node: a Patroni process and the PostgreSQL that it runs."""

    def __init__(self, folder: Path, *, scope: str, name: str, mode: Mode, store: str) -> None:
        self.name = name
        self.scope = scope
        self.folder = folder / name
        self.rest_port, self.port = free_port(), free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._halted: list[int] = []
        self.folder.mkdir(mode=0o700)
        self.configuration = self.folder / "patroni.yml"
        self.configuration.write_text(json.dumps(self._configured(mode, store)))
        if os.geteuid() == 0:
            for path in (self.folder, self.configuration):
                shutil.chown(path, _USER, _USER)

    def _configured(self, mode: Mode, store: str) -> dict[str, Any]:
        rest, address = f"127.0.0.1:{self.rest_port}", f"127.0.0.1:{self.port}"
        return {
            "scope": self.scope,
            "namespace": "/service/",
            "name": self.name,
            "restapi": {"listen": rest, "connect_address": rest},
            mode: {"hosts": store},
            "bootstrap": {"dcs": dict(_DYNAMIC), "initdb": [{"encoding": "UTF8"}, {"locale": "C"}]},
            "postgresql": {
                "listen": address,
                "connect_address": address,
                "data_dir": str(self.folder / "data"),
                "bin_dir": str(_PROGRAMS[-1]),
                "pgpass": str(self.folder / "pgpass"),
                "authentication": {
                    "superuser": {"username": "postgres", "password": SUPERUSER_PASSWORD},
                    "replication": {"username": "replicator", "password": "labrepl"},
                    "rewind": {"username": "rewind_user", "password": "labrewind"},
                },
                # Why mmap: the shared memory of a killed PostgreSQL is removed with its folder then.
                "parameters": {
                    "unix_socket_directories": str(self.folder),
                    "fsync": "off",
                    "dynamic_shared_memory_type": "mmap",
                },
                "pg_hba": [
                    "local all all trust",
                    "host replication replicator 127.0.0.1/32 scram-sha-256",
                    "host all all 127.0.0.1/32 scram-sha-256",
                ],
            },
        }

    # ---- its life --------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start Patroni; PostgreSQL follows by itself."""
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                _as_user(*_python(), str(_SCRIPT), str(self.configuration)),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=_environment(str(self.folder)),
                start_new_session=True,
            )

    @property
    def log(self) -> str:
        """What Patroni and PostgreSQL have said so far."""
        return (self.folder / "log").read_text(errors="replace")

    def _postmaster(self) -> int | None:
        try:
            return int((self.folder / "data" / "postmaster.pid").read_text().split("\n", 1)[0])
        except (OSError, ValueError):
            return None

    def kill(self) -> None:
        """End Patroni and the postmaster with SIGKILL, as a machine that loses power would."""
        postmaster = self._postmaster()
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        if postmaster is not None:
            self._end(postmaster)
        # Why: sessions that stand still would never see that their postmaster is gone.
        self.go_on()

    def _end(self, postmaster: int) -> None:
        # Trap: after a crash the file may name another program's process by now.
        if "postgres" in " ".join(command_of(postmaster)):
            with suppress(OSError):
                os.kill(postmaster, signal.SIGKILL)

    # ---- halted ----------------------------------------------------------------------------------------------------------

    def halt(self, *, with_postgresql: bool) -> None:
        """Halt Patroni, and PostgreSQL too if that is asked for, with SIGSTOP; return when they stand still."""
        assert self._process is not None
        pids = [self._process.pid]
        if with_postgresql:
            postmaster = self._postmaster()
            assert postmaster is not None
            pids.append(postmaster)
        for pid in pids:
            self._halt(pid)
        if with_postgresql:
            # Why after the postmaster: it makes no more of them then.
            for pid in children_of(pids[-1]):
                self._halt(pid)

    def _halt(self, pid: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
            self._halted.append(pid)
        # Why: the signal is sent, not obeyed, when kill returns. Z and X: it has ended instead.
        until(lambda: state_of(pid) in {"T", "Z", "X", ""}, 30, lambda: f"{pid} is {state_of(pid)}")

    def go_on(self) -> None:
        """Let everything that was halted go on, PostgreSQL's sessions first."""
        while self._halted:
            with suppress(ProcessLookupError):
                os.kill(self._halted.pop(), signal.SIGCONT)

    def restart_patroni(self) -> None:
        """End Patroni and start it again; of a paused cluster PostgreSQL goes on."""
        assert self._process is not None
        self._process.terminate()
        self._process.wait(_STOP_SECONDS_MAX)
        self.start()

    def stop(self) -> None:
        """Ask Patroni to end, which ends PostgreSQL; kill both when that takes too long."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_STOP_SECONDS_MAX)
        self.kill()

    # ---- what it says ----------------------------------------------------------------------------------------------------

    def status(self, path: str) -> int:
        """Ask the REST API; 0 when it does not answer."""
        try:
            with urlopen(f"http://127.0.0.1:{self.rest_port}{path}", timeout=15) as answer:
                return int(answer.status)
        except HTTPError as error:
            return error.code
        except (URLError, OSError):
            return 0

    def store_seen_at(self) -> float:
        """Return when it last read its store, in seconds since 1970; 0 when it does not answer."""
        try:
            with urlopen(f"http://127.0.0.1:{self.rest_port}/patroni", timeout=15) as answer:
                return float(json.loads(answer.read())["dcs_last_seen"])
        except (URLError, OSError):
            return 0.0

    def post(self, path: str, body: Mapping[str, Any]) -> tuple[int, str]:
        """Send a request to change something; return status and text."""
        request = Request(f"http://127.0.0.1:{self.rest_port}{path}", data=json.dumps(body).encode(), method="POST")
        try:
            with urlopen(request, timeout=60) as answer:
                return int(answer.status), answer.read().decode()
        except HTTPError as error:
            return error.code, error.read().decode()

    def is_primary(self) -> bool:
        """True while it leads."""
        return self.status("/primary") == 200

    def is_replica(self) -> bool:
        """True while it follows."""
        return self.status("/replica") == 200

    def query(self, statement: str) -> str:
        """Run a statement as superuser by psql; return what it prints. Raises AssertionError with its complaint."""
        done = subprocess.run(
            ["psql", "-XAtq", "-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres", "-c", statement, "postgres"],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PGPASSWORD": SUPERUSER_PASSWORD, "PGCONNECT_TIMEOUT": "5"},
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def patronictl(self, *arguments: str, typed: str = "") -> str:
        """Run patronictl with this node's configuration, and `typed` as its input; return what it prints."""
        done = subprocess.run(
            _as_user(*_python(), "-c", "from patroni.ctl import ctl; ctl()", "-c", str(self.configuration), *arguments),
            capture_output=True,
            text=True,
            check=False,
            env=_environment(str(self.folder)),
            input=typed,
            timeout=60,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


class PatroniCluster:
    """Nodes of one scope. `with PatroniCluster("f1", store=..., modes=("etcd", "etcd")) as cluster: ...`."""

    def __init__(self, scope: str, *, store: str, modes: tuple[Mode, ...]) -> None:
        memory = Path("/dev/shm")
        self.folder = Path(tempfile.mkdtemp(prefix="keyplan-patroni-", dir=memory if memory.is_dir() else None))
        self.folder.chmod(0o755)
        self.scope = scope
        self.nodes = [
            PatroniNode(self.folder, scope=scope, name=f"n{number}", mode=mode, store=store)
            for number, mode in enumerate(modes, start=1)
        ]

    def start(self) -> None:
        """Start all nodes; the first has a head start, so that it is the one that bootstraps."""
        self.nodes[0].start()
        for node in self.nodes[1:]:
            node.start()

    def leader(self) -> PatroniNode | None:
        """Return the node that leads, as the nodes themselves say."""
        return next((node for node in self.nodes if node.is_primary()), None)

    def replicas(self) -> list[PatroniNode]:
        """Return the nodes that follow."""
        return [node for node in self.nodes if node.is_replica()]

    def is_complete(self) -> bool:
        """True when one leads and all others follow."""
        return self.leader() is not None and len(self.replicas()) == len(self.nodes) - 1

    def logs(self) -> str:
        """The end of every node's log."""
        return "\n".join(f"--- {node.name}\n{node.log[-3_000:]}" for node in self.nodes)

    def remove(self) -> None:
        """Kill everything and remove the data."""
        for node in self.nodes:
            node.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()
