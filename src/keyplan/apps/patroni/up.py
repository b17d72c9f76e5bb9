"""Everything on one machine: a store's gateways, the broker, cells and a router, each a process of its own.

Every part is started, watched, started again and ended by its process id. They live on when this program is killed, and the
next one finds them by what stands in the folder. Their owner alone may read any of it; the nodes' user may pass through to what
is its own:

    DATA/store            the embedded store, 0700          DATA/gateway/, broker/  their logs and processes
    DATA/credentials.json users and addresses, 0600         DATA/cells/N/           a cell, with the data of its nodes
    DATA/access.toml      who may ask both, 0600            DATA/router/            HAProxy's files

The access file names the broker's user alone, until its owner adds others: each cluster is a principal that the broker keeps.
"""

import fcntl
import math
import os
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from threading import Event
from typing import Any, Final

import msgspec

from keyplan.access import (
    EVERYTHING,
    NEW_FILE,
    TOKEN_CHARACTERS_MIN,
    add_principal,
    change_access_file,
    new_token,
    read_policy,
    rotate_token,
)
from keyplan.apps.patroni.layout import Broker
from keyplan.apps.patroni.logs import LOGGER
from keyplan.apps.patroni.node_host import make_passage
from keyplan.apps.patroni.node_users import InstanceUsers, owners_of_homes
from keyplan.apps.patroni.processes import Spawned
from keyplan.engine import SYSTEM_CLOCK, Clock, open_engine
from keyplan.errors import EngineUnavailableError, InvalidInputError
from keyplan.files import make_folder, write_whole
from keyplan.operations import Act
from keyplan.store import Store

__all__ = ["Everything", "UpSettings"]

_START_SECONDS_MAX: Final = 60.0
_STOP_SECONDS_MAX: Final = 60.0
_IMPATIENT_SECONDS_MAX: Final = 15.0
"""Why longer than a cell's own 10 for what its tasks have begun: whoever kills it leaves its nodes."""
_TELL_AGAIN_SECONDS: Final = 10.0
_RESTART_SECONDS: Final = 1.0
_ASK_SECONDS_MAX: Final = 2.0
_PORTS_OF_A_CELL: Final = 200
_BROKER: Final = "broker"
_PROGRAM: Final = "from keyplan.cli.start import run; run()"


_MADE_ANEW: Final = "put it right, or remove it: the next start makes another"


def _is_word(text: str) -> bool:
    """Tell whether a text is one word."""
    return text.split() == [text]


@dataclass(frozen=True)
class UpSettings:
    """What is started. Options are added to the parts' own commands.

    `listen` is where the broker answers, and `gateway` where Patroni finds the store: by default one port higher.
    """

    folder: Path
    store: str
    listen: str
    cells: int
    gateway: str = ""
    first_port: int = 25_000
    cell_options: Sequence[str] = ()
    router_options: Sequence[str] = ()
    broker_options: Sequence[str] = ()
    gateway_options: Sequence[str] = ()
    node_owner: tuple[int, int] | None = None
    """The ids of the user and the group that nodes run as; None where that is whoever starts this."""
    instance_users: InstanceUsers = field(default_factory=InstanceUsers)
    """The users that nodes run as where each has its own: the cells share them out."""


@dataclass
class _Part:
    """One process, and how it is started."""

    name: str
    command: Sequence[str]
    folder: Path
    environment: dict[str, str]
    clock: Clock
    process: Spawned = field(init=False)
    started_at: float = 0.0

    def __post_init__(self) -> None:
        make_folder(self.folder)
        self.process = Spawned(self.folder / "process")

    def keep(self) -> bool:
        """Start it unless it runs; not at once when it ended just now. Return whether it was started."""
        now = self.clock.monotonic()
        if self.process.is_alive or (self.started_at and now - self.started_at < _RESTART_SECONDS):
            return False
        if self.started_at:
            LOGGER.warning("%s ended by itself and is started again; its log is %s", self.name, self.folder / "log")
        self.started_at = now
        self.process.start(
            [sys.executable, "-c", _PROGRAM, *self.command], environment=self.environment, log=self.folder / "log"
        )
        return True


def _one_port_higher(listen: str) -> str:
    host, _, port = listen.rpartition(":")
    return f"{host}:{int(port) + 1}"


def _is_announced(store: Store, cell: str, since: int) -> bool:
    """Whether a cell has said that it is alive after a revision. Why raw: its record may be one that cannot be read."""
    raw_key = Broker.bound().tables["cells"].keys.encode(cell)
    with store.engine.snapshot() as state:
        entry = state.get(raw_key)
    return entry is not None and entry.mod_revision > since


class Everything:
    """All parts. `start`, then `watch` until it is told to stop, then `stop`; `close` gives the folder free."""

    def __init__(self, settings: UpSettings, clock: Clock = SYSTEM_CLOCK) -> None:
        self._settings = settings
        self._clock = clock
        self._folder = settings.folder
        self._make_passage(self._folder)
        self._lock = self._locked()
        try:
            self.credentials = self._credentials()
            self._admit(self.credentials)
            for number in range(1, settings.cells + 1):
                self._make_passage(self._folder / "cells" / f"cell{number}")
            self._users = self._shares_of_users()
            self._gateway = settings.gateway or _one_port_higher(settings.listen)
            self._servers = {
                settings.listen: self._part("broker", self._broker_command(), self._folder / "broker"),
                self._gateway: self._part("gateway", self._gateway_command(), self._folder / "gateway"),
            }
            self._cells = [
                self._part(name, self._cell_command(number), self._folder / "cells" / name / "agent")
                for number, name in ((number, f"cell{number}") for number in range(1, settings.cells + 1))
            ]
            self._router = self._part("router", self._router_command(), self._folder / "router" / "agent")
        except BaseException:
            self.close()
            raise

    @property
    def credentials_file(self) -> Path:
        """The broker's address and its user, for whoever started this."""
        return self._folder / "credentials.json"

    @property
    def access_file(self) -> Path:
        """Who may ask the server."""
        return self._folder / "access.toml"

    def _make_passage(self, folder: Path) -> None:
        settings = self._settings
        make_passage(folder, settings.node_owner, is_for_all=bool(settings.instance_users.names))

    def _locked(self) -> int:
        lock = os.open(self._folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            raise InvalidInputError(
                source=str(self._folder), problem="`keyplan patroni up` runs here already"
            ) from None
        return lock

    def _credentials(self) -> dict[str, str]:
        """The broker's user, as it was made at the first start. Raises InvalidInputError for a file that says no user."""
        known = self._known()
        known |= {"url": f"http://{self._settings.listen}"}
        write_whole(self.credentials_file, msgspec.json.encode(known).decode() + "\n")
        return known

    def _known(self) -> dict[str, str]:
        try:
            known = msgspec.json.decode(self.credentials_file.read_bytes(), type=dict[str, str])
            if not all(map(_is_word, (known["username"], known["password"]))):
                problem = "the name or the password is empty, or has a space"
            elif len(known["password"]) < TOKEN_CHARACTERS_MIN:
                problem = f"the password has fewer than {TOKEN_CHARACTERS_MIN} characters"
            else:
                return known
        except FileNotFoundError:
            return {"username": _BROKER, "password": new_token()}
        except KeyError as error:
            problem = f"it has no {error.args[0]}"
        except (msgspec.MsgspecError, ValueError, RecursionError):
            problem = "it is no JSON object of texts"
        raise InvalidInputError(source=str(self.credentials_file), problem=f"{problem}: {_MADE_ANEW}")

    def _admit(self, credentials: dict[str, str]) -> None:
        """Let the broker's user into the access file, with the password of the credentials; nothing else changes there.

        Raises InvalidInputError when the file is not sound.
        """
        file, name, password = self.access_file, credentials["username"], credentials["password"]
        now = datetime.fromtimestamp(self._clock.wall(), UTC)

        def admitted(text: str) -> str:
            policy = read_policy(text, source=str(file))
            if policy.named(name) is None:
                grants = {act: [str(EVERYTHING)] for act in Act}
                return add_principal(text, name, token=password, grants=grants, source=str(file))
            if policy.known_by_token(password, at=now) is policy.named(name):
                return text
            return rotate_token(text, name, password, now=now, keep_seconds=0, source=str(file))

        change_access_file(file, admitted, new=NEW_FILE)

    def _shares_of_users(self) -> list[InstanceUsers]:
        """Share the users of nodes out among the cells; empty where there are none. Raises InvalidInputError: they are too few.

        Why by what nodes have: they keep their users, and with another number of cells each cell would have another share.
        """
        users, cells = self._settings.instance_users, range(1, self._settings.cells + 1)
        if not users.names:
            return []
        folder = self._folder / "cells"
        taken = {f"cell{number}": owners_of_homes(folder / f"cell{number}" / "nodes") for number in cells}
        others = (owners_of_homes(other / "nodes") for other in folder.iterdir() if other.name not in taken)
        shares = users.shared_out([*taken.values()], elsewhere=set[int]().union(*others))
        # Trap: a cell without any would run its nodes as the user of all.
        for name, share in zip(taken, shares, strict=True):
            if not share.names:
                raise InvalidInputError(source="--instance-users", problem=f"none is left for {name}: give more users")
        return shares

    # ---- the parts ------------------------------------------------------------------------------------------------------

    def _part(self, name: str, command: Sequence[str], folder: Path) -> _Part:
        # Why here: who runs a cell or a router comes through this module, and needs no server.
        from keyplan.server import TOKEN_VARIABLES  # noqa: PLC0415

        # Why not as an option: everybody on the machine can read a command line, and a store's URL may hold a password.
        environment = {**os.environ, "KEYPLAN_STORE": self._settings.store}
        for variable in TOKEN_VARIABLES:  # Why: the access file alone says who may ask.
            environment.pop(variable, None)
        return _Part(name, command, folder, environment, self._clock)

    # Why two processes: what ends the one, as a callback or a large list, leaves nodes their store, or platforms the broker.

    def _broker_command(self) -> list[str]:
        return [
            *("serve", "--listen", self._settings.listen, "--app", "patroni-broker", "--access", str(self.access_file)),
            *self._settings.broker_options,
        ]

    def _gateway_command(self) -> list[str]:
        return [
            *("serve", "--listen", self._gateway, "--app", "etcd-v2", "--app", "etcd-v3"),
            *(
                "--app",
                "patroni-broker",
                "--setting",
                "patroni-broker.part=clusters",
                "--access",
                str(self.access_file),
            ),
            *self._settings.gateway_options,
        ]

    def _cell_command(self, number: int) -> list[str]:
        name = f"cell{number}"
        first = self._settings.first_port + (number - 1) * _PORTS_OF_A_CELL
        users = self._users[number - 1].words() if self._users else ""
        return [
            *("patroni", "cell", name, "--gateway", self._gateway),
            *(("--instance-users", users) if users else ()),
            *("--data", str(self._folder / "cells" / name), "--zone", f"z{number}"),
            *("--ports", f"{first}-{first + _PORTS_OF_A_CELL - 1}", "--stop-nodes"),
            *self._settings.cell_options,
        ]

    def _router_command(self) -> list[str]:
        return [
            *("patroni", "router", "--data", str(self._folder / "router")),
            "--stop-haproxy",
            *self._settings.router_options,
        ]

    # ---- its life -------------------------------------------------------------------------------------------------------

    def start(self, stop: Event) -> None:
        """Start what does not run, the servers first; return when they answer and every cell has announced itself.

        Raises EngineUnavailableError when one of them ends instead, or takes too long.
        """
        for part in self._servers.values():
            part.keep()
        self._await_start([*self._servers.values()], self._are_answering, stop)
        if stop.is_set():
            return
        with Store(open_engine(self._settings.store, create=False)) as store:
            # Why since: the record of an agent that was killed stays until its lease ends, and says nothing of the next one.
            since, found = store.revision, {part.name: 0 for part in self._cells}
            for part in self._cells:
                if not stop.is_set() and part.keep():
                    found[part.name] = since
            if not stop.is_set():
                self._router.keep()
            self._await_start(self._cells, lambda: all(_is_announced(store, *cell) for cell in found.items()), stop)

    def _await_start(self, parts: Sequence[_Part], is_so: Callable[[], bool], stop: Event) -> None:
        deadline = self._clock.monotonic() + _START_SECONDS_MAX
        while not is_so() and not stop.is_set():
            lost = [part for part in parts if not part.process.is_alive]
            if lost or self._clock.monotonic() > deadline:
                part = (lost or parts)[0]
                raise EngineUnavailableError(problem=f"{part.name} does not start; see {part.folder / 'log'}")
            stop.wait(0.1)

    def watch(self, stop: Event) -> None:
        """Start again what ends by itself, until `stop` is set."""
        while not stop.wait(0.5):
            for part in (*self._servers.values(), *self._cells, self._router):
                part.keep()

    def stop(self, impatient: Event) -> list[str]:
        """End everything, by process id: the router, then cells with their nodes, then the servers. Data stay.

        Why this order: nobody is led to what ends, and nodes give up their leader keys while there is a store to do it in.
        Whoever is `impatient` has nodes killed. Returns the parts that did not end and were killed: what they ran may run on.
        """
        killed: list[str] = []
        for group in ([self._router], self._cells, [*self._servers.values()]):
            for part in group:
                part.process.send(signal.SIGTERM)
            # Why the others again: what just begins may lose a signal in an import; a cell would kill its nodes.
            self._await_end(group, impatient, may_be_told_again=group is not self._cells)
            killed += [part.name for part in group if part.process.is_alive]
            for part in group:
                part.process.send(signal.SIGKILL)
                part.process.forget()
        return killed

    def _await_end(self, parts: Sequence[_Part], impatient: Event, *, may_be_told_again: bool) -> None:
        begun = self._clock.monotonic()
        deadline, tell_at = begun + _STOP_SECONDS_MAX, begun + _TELL_AGAIN_SECONDS if may_be_told_again else math.inf
        is_hurried = False
        while any(part.process.is_alive for part in parts) and (now := self._clock.monotonic()) < deadline:
            if impatient.is_set() and not is_hurried:
                # Why told, and not killed: who kills a cell or a router leaves the nodes or the HAProxy that it would end.
                deadline, tell_at, is_hurried = now + _IMPATIENT_SECONDS_MAX, now, True
            if now >= tell_at:
                # Why again and again: two signals at one moment may come as one.
                tell_at = now + 1.0
                for part in parts:
                    part.process.send(signal.SIGTERM)
            Event().wait(0.1)

    def _are_answering(self) -> bool:
        return all(self._is_answering(listen, part) for listen, part in self._servers.items())

    def _is_answering(self, listen: str, part: _Part) -> bool:
        host, _, port = listen.rpartition(":")
        server = part.process.running
        # Why: another program may have the address, and nodes would show it their tokens.
        if server is None or not server.listens_at(int(port)):
            return False
        connection = HTTPConnection(host.strip("[]"), int(port), timeout=_ASK_SECONDS_MAX)
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status < 500
        except (OSError, HTTPException):
            return False
        finally:
            connection.close()

    def described(self) -> dict[str, Any]:
        """What was started, for whoever did: addresses, and the file with the passwords."""
        return {
            "broker": f"http://{self._settings.listen}/v2/catalog",
            "gateway": f"http://{self._gateway}/v2/keys",
            "store": self._settings.store,
            "credentials": str(self.credentials_file),
            "cells": [part.name for part in self._cells],
        }

    def close(self) -> None:
        """Give the folder free."""
        os.close(self._lock)
