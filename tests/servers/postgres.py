"""Real PostgreSQL for tests: one server on a free port of this machine, with its own data folder, as an unprivileged user.

A server is stopped, killed, halted and let go on by its process id. Data lie in memory (/dev/shm) where there is one, so that
flushing them costs nothing. See `tests/servers/plugin.py` for the fixtures.
"""

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import quote

import psycopg

from keyplan.engine import EngineUrl
from keyplan.engine.postgres import PostgresEngine, options_of
from tests.processes import children_of, state_of
from tests.servers.authority import Authority
from tests.servers.etcd import free_port
from tests.servers.patroni import until

__all__ = ["PostgresServer", "why_no_postgres"]

SUPERUSER: Final = "postgres"
PASSWORD: Final = "correct horse: staple@/?"
"""Why so: a password may hold what a URL gives a meaning to."""
_UNPRIVILEGED: Final = "postgres"
_SECONDS_MAX: Final = 60.0
_STARTS_MAX: Final = 5
_numbers = count(1)


def _programs() -> Path | None:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    return found[-1].parent if found else None


def why_no_postgres() -> str | None:
    """Return why PostgreSQL cannot be started here, None when it can."""
    if _programs() is None:
        return "PostgreSQL is not installed: apt-get install postgresql"
    if os.geteuid() == 0 and shutil.which("setpriv") is None:
        return "setpriv is not installed, and PostgreSQL refuses to run as root"
    return None


def _as_user(*command: str) -> list[str]:
    """Return the command for whoever may run PostgreSQL: not root."""
    if os.geteuid() != 0:
        return list(command)
    # Trap: setpriv finds its command with root's rights still, which the command's children lack; so `env` is between.
    return ["setpriv", f"--reuid={_UNPRIVILEGED}", f"--regid={_UNPRIVILEGED}", "--init-groups", "env", *command]


class PostgresServer:
    """One server with the superuser `postgres`, who needs a password. `with PostgresServer() as server: ... server.url()`.

    `tls` makes it take encrypted connections alone; `arguments` are added to the server's, as in `-c fsync=on`.
    """

    def __init__(self, *, tls: Authority | None = None, arguments: Sequence[str] = ()) -> None:
        memory = Path("/dev/shm")
        self.folder = Path(tempfile.mkdtemp(prefix="keyplan-postgres-", dir=memory if memory.is_dir() else None))
        self.port = free_port()
        self.tls = tls
        self._arguments = list(arguments)
        self._process: subprocess.Popen[bytes] | None = None
        self._paused: list[int] = []
        self._connections: dict[str, psycopg.Connection[tuple[Any, ...]]] = {}

    # ---- where it is -----------------------------------------------------------------------------------------------------

    def url(
        self, *, database: str = "postgres", user: str = SUPERUSER, password: str = PASSWORD, **options: str
    ) -> str:
        """The URL that keyplan opens."""
        query = "&".join(f"{name}={quote(value, safe='')}" for name, value in options.items())
        login = f"{quote(user, safe='')}:{quote(password, safe='')}"
        return f"postgres://{login}@127.0.0.1:{self.port}/{quote(database, safe='')}{'?' if query else ''}{query}"

    def local_url(self, **options: str) -> str:
        """The URL by the server's socket in the file system, where no password is asked for: the quickest to open."""
        query = "".join(f"&{name}={quote(value, safe='')}" for name, value in options.items())
        return f"postgres://{SUPERUSER}@/postgres?host={quote(str(self.folder), safe='')}&port={self.port}{query}"

    def opened(self, schema: str, **options: str) -> PostgresEngine:
        """Open a store by the server's socket."""
        return PostgresEngine(options_of(EngineUrl.parse(self.local_url(schema=schema, **options))))

    def connect(self, database: str = "postgres", **options: Any) -> "psycopg.Connection[tuple[Any, ...]]":
        """Connect as the superuser, without keyplan; each statement is a transaction."""
        given = {"user": SUPERUSER, "password": PASSWORD, **options}
        return psycopg.connect(host="127.0.0.1", port=self.port, dbname=database, autocommit=True, **given)

    def local(self, database: str = "postgres") -> "psycopg.Connection[tuple[Any, ...]]":
        """Connect by the server's socket, without a password; each statement is a transaction."""
        folder = str(self.folder)
        return psycopg.connect(host=folder, port=self.port, user=SUPERUSER, dbname=database, autocommit=True)

    def query(self, statement: str, *parameters: Any, database: str = "postgres") -> list[tuple[Any, ...]]:
        """Run statements as the superuser and return the rows of the first. Its connection is kept until the server ends."""
        connection = self._connections.get(database)
        if connection is None:
            connection = self._connections[database] = self.local(database)
        cursor = connection.execute(statement.encode(), parameters or None)
        return cursor.fetchall() if cursor.description is not None else []

    def emptied(self, schema: str, *, counts_on: bool = False) -> None:
        """Take everything out of a store behind its engines' back, so that a test finds it like a new one.

        With `counts_on` the revisions go on: engines that have committed would find that the store went back, and let it leap.
        """
        last = f'greatest(compacted, (SELECT max(revision) FROM "{schema}".history))' if counts_on else "0"
        self.query(
            f'UPDATE "{schema}".state SET compacted = {last}; DELETE FROM "{schema}".entries; '
            f'DELETE FROM "{schema}".history; DELETE FROM "{schema}".leases'
        )

    def age_leases(self, schema: str, seconds: float) -> None:
        """Let so many seconds pass for the leases of a store."""
        self.query(f"UPDATE \"{schema}\".leases SET deadline = deadline - {seconds:f} * interval '1 second'")

    def fresh_schema(self) -> str:
        """Return a name that no store on this server has had."""
        return f"store_{next(_numbers)}"

    @property
    def log(self) -> str:
        """What the server has said so far."""
        return (self.folder / "log").read_text(errors="replace")

    # ---- its life --------------------------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Start, and return when connections are taken. Data of an earlier run are kept."""
        if not (self.folder / "data").exists():
            self._initialize()
        for attempt in range(_STARTS_MAX):
            self._launch()
            try:
                until(lambda: self._has_ended() or self.is_ready(), _SECONDS_MAX, lambda: self.log)
            except AssertionError:
                self.kill()
                raise
            if not self._has_ended():
                return self
            # Why: between our look and its start, somebody else may have taken the port.
            if "could not bind" not in self.log or attempt == _STARTS_MAX - 1:
                raise AssertionError(f"PostgreSQL did not start: {self.log[-3_000:]}")
            self.port = free_port()
        raise AssertionError("unreachable")

    def _initialize(self) -> None:
        programs, data = _programs(), self.folder / "data"
        assert programs is not None
        secret = self.folder / "password"
        secret.write_text(PASSWORD)
        if os.geteuid() == 0:
            for path in (self.folder, secret):
                shutil.chown(path, _UNPRIVILEGED, _UNPRIVILEGED)
        words = f"--no-sync --encoding=UTF8 --locale=C --auth=scram-sha-256 --username={SUPERUSER}".split()
        made = subprocess.run(
            _as_user(f"{programs}/initdb", "-D", str(data), *words, f"--pwfile={secret}"),
            cwd=self.folder,
            capture_output=True,
            check=False,
        )
        assert made.returncode == 0, made.stderr.decode(errors="replace")
        kind = "host" if self.tls is None else "hostssl"
        (data / "pg_hba.conf").write_text(f"local all all trust\n{kind} all all 127.0.0.1/32 scram-sha-256\n")
        if self.tls is not None:
            for name, source in (
                ("server.crt", self.tls.certificate("server")),
                ("server.key", self.tls.key("server")),
            ):
                shutil.copy(source, data / name)
                (data / name).chmod(0o600)
                if os.geteuid() == 0:
                    shutil.chown(data / name, _UNPRIVILEGED, _UNPRIVILEGED)

    def _launch(self) -> None:
        settings = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": str(self.folder),
            "fsync": "on",
            "shared_buffers": "16MB",
            "max_connections": "60",
            "ssl": "off" if self.tls is None else "on",
        }
        words = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        command = [f"{_programs()}/postgres", "-D", str(self.folder / "data"), "-p", str(self.port), *words]
        with (self.folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                _as_user(*command, *self._arguments), cwd=self.folder, stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )

    def _has_ended(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def is_ready(self) -> bool:
        """Tell whether a connection is taken."""
        try:
            self.connect(connect_timeout=5).close()
        except psycopg.OperationalError:
            return False
        return True

    def stop(self) -> None:
        """End all connections and stop, orderly."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """End at once, without a last word to anybody; what was committed is in the log of the server."""
        # Why not SIGKILL: its backends would live on for a moment, and hold the memory that a new start needs.
        self._end(signal.SIGQUIT)

    def _end(self, number: signal.Signals) -> None:
        self.hang_up()
        if self._process is None:
            return
        self.resume()
        if self._process.poll() is None:
            self._process.send_signal(number)
        self._process.wait(_SECONDS_MAX)
        self._process = None

    def restart(self) -> Self:
        """Stop and start again, on the same port."""
        self.stop()
        return self.start()

    def hang_up(self) -> None:
        """Give up the connections of `query`."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def pause(self) -> None:
        """Halt the server and all its processes; return when they have stopped."""
        assert self._process is not None
        self._paused = [self._process.pid, *children_of(self._process.pid)]
        for process in self._paused:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGSTOP)
        halted = {"T", "t", "Z", "X", ""}  # or ended meanwhile
        until(lambda: {*map(state_of, self._paused)} <= halted, _SECONDS_MAX, lambda: "it did not halt")

    def resume(self) -> None:
        """Let a halted server go on."""
        for process in self._paused:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGCONT)
        self._paused = []

    def kill_backend(self, process: int) -> None:
        """Kill one of the server's processes; the others end then too, and the server recovers by itself."""
        assert self._process is not None
        assert process in children_of(self._process.pid)
        os.kill(process, signal.SIGKILL)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
