"""The part of the story in which all of a cluster's logins are replaced, beside a client that writes through the router."""

import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event, Thread

import psycopg

import keyplan
from keyplan.apps.patroni import Broker, Credentials
from keyplan.apps.patroni.logins import FIELDS, ROLES, LoginKind
from keyplan.apps.patroni.processes import Running
from tests.apps.patroni.up_process import UpProcess, psql
from tests.servers.patroni import until

__all__ = ["assert_a_killed_broker_is_gone_on_for", "assert_logins_are_rotated", "assert_the_former_ended"]

_ROTATE = "keyplan patroni rotate {} {} --store lmdb:/srv/clusters/store"


class ConnectingWriter:
    """Writes 1, 2, 3, ... each by a connection of its own, and notes what is refused."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self.written = 0
        self.refused: list[str] = []
        self._stop = Event()
        self._thread = Thread(target=self._run, daemon=True)

    @contextmanager
    def running(self) -> Iterator[None]:
        assert psql(self.uri, "create table rotated (n int primary key); select 1") == "1"
        self._thread.start()
        try:
            yield
        finally:
            self._stop.set()
            self._thread.join(60)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                with psycopg.connect(self.uri, connect_timeout=30) as connection:
                    connection.execute("insert into rotated values (%s)", (self.written + 1,))
            except psycopg.Error as error:
                self.refused.append(str(error))
            else:
                self.written += 1
            self._stop.wait(0.02)


def logins_of(everything: UpProcess, instance: str) -> dict[LoginKind, Credentials]:
    with keyplan.open(everything.ready["store"]) as store:
        state = Broker(store).instances.require(instance)
        return {kind: getattr(state, FIELDS[kind]) for kind in LoginKind}


def completed_steps(everything: UpProcess, instance: str) -> int:
    with keyplan.open(everything.ready["store"]) as store:
        return Broker(store).operations.require(instance).completed_steps


def assert_logins_are_rotated(
    everything: UpProcess, instance: str, uri: str, bound: Callable[[], str]
) -> tuple[str, list[str]]:
    """Replace everything that a cluster and its binding log in with. Return the binding's new URI, and what is to end."""
    former = logins_of(everything, instance)
    writer = ConnectingWriter(uri)
    with writer.running():
        told = everything.bash(_ROTATE.format(instance, "--keep-seconds 30")).splitlines()
        assert "2. make other logins, and tell the nodes (superuser,replication,rewind,rest,token)" in told
        writer.uri = bound()
        assert writer.uri != uri
        before = writer.written
        until(lambda: writer.written > before + 3, 60, everything.logs)
    assert writer.refused == []
    assert psql(writer.uri, "select count(*), max(n) from rotated") == f"{writer.written}|{writer.written}"
    latter = logins_of(everything, instance)
    place = uri.partition("@")[2]
    superuser = _uri(latter[LoginKind.SUPERUSER], place)
    assert {latter[kind].username for kind in ROLES} == {"postgres_2", "replicator_2", "rewinder_2"}
    # Nodes use the new ones, all of them.
    assert psql(superuser, "select distinct usename from pg_stat_activity where application_name ~ '^Patroni '") == (
        "postgres_2"
    )
    assert psql(superuser, "select distinct usename, state from pg_stat_replication") == "replicator_2|streaming"
    _assert_hidden(everything, [*former.values(), *latter.values()])
    with keyplan.open(everything.ready["store"]) as store:
        bindings = [record for _, record in Broker(store).bindings.list(instance)]
        assert all(record.rotated_at > record.created_at for record in bindings)
    return writer.uri, [uri, *(_uri(former[kind], place) for kind in ROLES)]


def _uri(login: Credentials, place: str) -> str:
    return f"postgres://{login.username}:{login.password.reveal()}@{place}"


def _assert_hidden(everything: UpProcess, logins: list[Credentials]) -> None:
    """No log has a password, and no command line. What others may read is looked at later, of all files."""
    secrets = [login.password.reveal() for login in logins]
    shown = {str(path): path.read_text(errors="replace") for path in everything.data.glob("**/log")}
    assert len(shown) > 5
    for line in everything.left():
        found = Running.of_pid(int(line.partition(" ")[0]))
        shown |= {line.partition(" ")[0]: " ".join(found.command) if found is not None else ""}
    assert [name for name, text in shown.items() if any(secret in text for secret in secrets)] == []


def assert_a_killed_broker_is_gone_on_for(
    everything: UpProcess, instance: str, is_known: Callable[[str], bool]
) -> None:
    """The broker is killed while nodes are waited for; what is replaced ends at once when they are told."""
    former = logins_of(everything, instance)
    rotation = _ROTATE.format(instance, "--only token --only rest --keep-seconds 0")
    with ThreadPoolExecutor(1) as typing:
        told = typing.submit(everything.bash, rotation)
        until(lambda: completed_steps(everything, instance) in {2, 3}, 60, everything.logs)
        everything.part("broker").send(signal.SIGKILL)
        told.result()
    latter = logins_of(everything, instance)
    for kind in (LoginKind.TOKEN, LoginKind.REST):
        assert latter[kind].password.reveal() != former[kind].password.reveal()
    until(lambda: is_known(latter[LoginKind.TOKEN].password.reveal()), 60, everything.logs)
    until(lambda: not is_known(former[LoginKind.TOKEN].password.reveal()), 60, everything.logs)


def assert_the_former_ended(everything: UpProcess, former: list[str]) -> None:
    """What was replaced is refused, after the seconds that it was kept for."""
    for uri in former:
        until(lambda uri=uri: "password authentication failed" in psql(uri, "select 1"), 90, everything.logs)  # type: ignore[misc]
