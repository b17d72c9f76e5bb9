"""`keyplan patroni up` as a process of the tests' own, with a client of its broker. Ended by process id, whatever happens."""

import base64
import json
import os
import pwd
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import keyplan
from keyplan.apps.patroni import Broker
from keyplan.apps.patroni.clusters import members_astray
from keyplan.apps.patroni.processes import Running, users_of_processes
from keyplan.apps.patroni.router_haproxy import find_haproxy
from keyplan.errors import KeyplanError
from tests.processes import command_of
from tests.servers.authority import Authority
from tests.servers.etcd import free_port
from tests.servers.patroni import until, why_no_patroni

__all__ = ["UpProcess", "instance_users", "open_to_others", "psql", "up_process", "why_no_up"]

_LINES_SECONDS_MAX: Final = 150
_ASTRAY_CHARACTERS: Final = 20_000
_REPEATED: Final = re.compile(
    "no action|Lock owner: |in progress$|heartbeat connection|rejecting connections|not yet accepting|starting up$"
)
"""What a node that waits says every second."""
_PROGRAM: Final = (sys.executable, "-c", "from keyplan.cli.start import run; run()", "patroni", "up")


def why_no_up() -> str | None:
    """Return why everything cannot run here, None when it can."""
    if shutil.which("psql") is None:
        return "psql is not installed: apt-get install postgresql-client"
    if find_haproxy() is None:
        return "HAProxy is not installed: apt-get install haproxy"
    return why_no_patroni()


def instance_users() -> tuple[str, ...]:
    """Users of the machine's own that nothing runs as, for nodes: without a shell, and none of the tests' servers'."""
    if os.geteuid() != 0:
        return ()
    found = [one for one in pwd.getpwall() if 0 < one.pw_uid < 1_000 and one.pw_shell.endswith("nologin")]
    running = users_of_processes()
    others = {"haproxy", "etcd", "_apt"}
    return tuple(one.pw_name for one in found if one.pw_uid not in running and one.pw_name not in others)


def open_to_others(folder: Path) -> list[str]:
    """What others than the owner may do anything with in a folder, but for passing through folders."""
    found: list[str] = []
    for path in (folder, *folder.rglob("*")):
        with suppress(FileNotFoundError):
            mode = stat.S_IMODE(path.lstat().st_mode)
            closed = 0o066 if path.is_dir() else 0o077
            if mode & closed and not path.is_symlink():
                found.append(f"{path.relative_to(folder)} {mode:o}")
    return found


def psql(uri: str, statement: str) -> str:
    """Run a statement; return what it prints, or what is wrong after `error:`."""
    done = subprocess.run(
        ["psql", "-XAtq", uri, "-c", statement],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PGCONNECT_TIMEOUT": "5"},
    )
    return done.stdout.strip() if done.returncode == 0 else f"error: {done.stderr.strip()}"


class UpProcess:
    """Everything on this machine, in a folder in memory."""

    def __init__(
        self,
        folder: Path,
        *,
        cells: int,
        settings: Sequence[str] = (),
        options: Sequence[str] = (),
        has_instance_users: bool = True,
        has_tls: bool = True,
    ) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.first_port = free_port()
        # Why so far: the ranges of the two must not meet.
        self.first_read_port = self.first_port + 20
        self.authority = authority = Authority.create(folder / "authority")
        self._arguments = [
            *("--cells", str(cells), "--data", str(self.data), "--listen", f"127.0.0.1:{free_port()}"),
            *("--gateway", f"127.0.0.1:{free_port()}"),
            *("--node-ports", str(free_port()), "--parameter", "fsync=off", "--patroni", "loop_wait=1", "--json"),
            *("--setting", f"patroni-broker.ports={self.first_port}-{self.first_port + 9}"),
            *("--setting", f"patroni-broker.replica-ports={self.first_read_port}"),
            # Why 5: a broker that was killed is waited for so long.
            *("--setting", "patroni-broker.claim-seconds=5"),
        ]
        if has_tls:
            certificate, key = authority.certificate("server"), authority.key("server")
            self._arguments += ["--tls-certificate", str(certificate), "--tls-key", str(key)]
        self._arguments += options
        self._arguments += [word for setting in settings for word in ("--setting", f"patroni-broker.{setting}")]
        users = instance_users() if has_instance_users else ()
        # Why three: a cell has a node that goes beside one that comes.
        self.has_instance_users = len(users) >= 3 * cells
        if self.has_instance_users:
            self._arguments += ["--instance-users", ",".join(users)]
        self.process: subprocess.Popen[str] | None = None
        self.ready: Mapping[str, Any] = {}
        self._credentials: Mapping[str, str] = {}

    def start(self) -> None:
        with (self.folder / "log").open("a") as log:
            self.process = subprocess.Popen(
                [*_PROGRAM, *self._arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.logs()
        self.ready = json.loads(line)
        self._credentials = json.loads(Path(self.ready["credentials"]).read_text())

    def tell(self, number: signal.Signals) -> int:
        """Send it a signal, and return its exit code."""
        assert self.process is not None
        assert self.process.stdout is not None
        self.process.send_signal(number)
        code = self.process.wait(120)
        self.process.stdout.close()
        return code

    def part(self, name: str) -> Running:
        """The process of a part, as its folder says: server, cell1, router."""
        folders = {"broker": "broker", "gateway": "gateway", "router": "router/agent"}
        folder = folders.get(name, f"cells/{name}/agent")
        found = Running.of_file(self.data / folder / "process")
        assert found is not None, f"{name} does not run\n{self.logs()}"
        return found

    def left(self) -> list[str]:
        """The command lines that name the folder: everything that was started, and that it started."""
        lines = []
        for entry in Path("/proc").glob("[0-9]*"):
            command = " ".join(command_of(int(entry.name)))
            if str(self.folder) in command:
                lines.append(f"{entry.name} {command}")
        return lines

    def call(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Ask the broker as a platform would; status 0 while nobody answers."""
        request = Request(
            f"{self._credentials['url']}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
        )
        user = f"{self._credentials['username']}:{self._credentials['password']}"
        request.add_header("Authorization", f"Basic {base64.b64encode(user.encode()).decode()}")
        request.add_header("X-Broker-API-Version", "2.17")
        request.add_header("Content-Type", "application/json")
        try:
            with urlopen(request, timeout=60) as answer:
                return int(answer.status), json.loads(answer.read() or b"{}")
        except HTTPError as error:
            return error.code, json.loads(error.read() or b"{}")
        except (URLError, OSError):
            return 0, {}

    def metrics(self) -> str:
        """What Prometheus would read."""
        request = Request(f"{self._credentials['url']}/metrics")
        user = f"{self._credentials['username']}:{self._credentials['password']}"
        request.add_header("Authorization", f"Basic {base64.b64encode(user.encode()).decode()}")
        with urlopen(request, timeout=60) as answer:
            return str(answer.read().decode())

    def bash(self, lines: str) -> str:
        """Run lines of the guide in bash, in this one's folder and at its address; return what they print."""
        own = lines.replace("/srv/clusters", str(self.data)).replace("http://127.0.0.1:8210", self._credentials["url"])
        assert own != lines
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-c", own],
            capture_output=True,
            text=True,
            check=False,
            timeout=_LINES_SECONDS_MAX,
            env={**os.environ, "PATH": path, "PGCONNECT_TIMEOUT": "5"},
        )
        return done.stdout + done.stderr

    def until_done(self, instance: str) -> str:
        """Wait for the last operation, and return how it ended."""
        last: list[tuple[int, Any]] = []

        def is_done() -> bool:
            last.append(self.call("GET", f"/v2/service_instances/{instance}/last_operation"))
            return last[-1][0] not in {0, 200} or last[-1][1].get("state", "in progress") != "in progress"

        until(is_done, 120, lambda: f"{last[-1]}\n{self.logs()}")
        return str(last[-1][1].get("state", last[-1][0]))

    def logs(self) -> str:
        """The end of every log; last, and longer, those of nodes that do not follow, without what they say again and again."""
        astray = self._astray()
        found = sorted(
            (path for path in self.folder.rglob("log") if path.is_file()), key=lambda path: path.parent.name in astray
        )
        shown = []
        for path in found:
            text = path.read_text(errors="replace")
            if path.parent.name in astray:
                problem = f" ({astray[path.parent.name]})"
                lines = [line for line in text.splitlines() if not line.startswith("  ") and not _REPEATED.search(line)]
                shown.append(f"--- {path}{problem}\n" + "\n".join(lines)[-_ASTRAY_CHARACTERS:])
            else:
                shown.append(f"--- {path}\n{text[-1_500:]}")
        return "\n".join(shown)

    def _astray(self) -> dict[str, str]:
        """The nodes that do not follow, with why; nothing where the store cannot be asked."""
        if "store" not in self.ready:
            return {}
        with suppress(KeyplanError), keyplan.open(self.ready["store"]) as store, store.snapshot() as state:
            broker = Broker(state)
            placed = [key for key, _ in broker.nodes.list()]
            return {
                key.node: problem
                for key in placed
                for problem in members_astray(broker, key.instance, [key.node]).values()
            }
        return {}

    def remove(self) -> None:
        """Kill what is left, and remove the folder."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            if self.process.stdout is not None:
                self.process.stdout.close()
        for line in self.left():
            found = Running.of_pid(int(line.partition(" ")[0]))
            if found is not None:
                found.send(signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)


@contextmanager
def up_process(
    *,
    cells: int,
    settings: Sequence[str] = (),
    options: Sequence[str] = (),
    has_instance_users: bool = True,
    has_tls: bool = True,
) -> Iterator[UpProcess]:
    """Everything for the length of a block. Settings of the broker are as in `claim-seconds=2`, options those of `up`."""
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="keyplan-up-", dir=memory if memory.is_dir() else None))
    folder.chmod(0o755)
    process = UpProcess(
        folder,
        cells=cells,
        settings=settings,
        options=options,
        has_instance_users=has_instance_users,
        has_tls=has_tls,
    )
    try:
        process.start()
        yield process
    finally:
        process.remove()
