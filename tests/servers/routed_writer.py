"""A client that writes through a router's port without a pause, and remembers what was acknowledged, and by which server."""

import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Final, NamedTuple, Self

import psycopg

from tests.servers.patroni import SUPERUSER_PASSWORD

__all__ = ["Acknowledged", "RoutedWriter"]

_PAUSE_SECONDS: Final = 0.05
_JOIN_SECONDS_MAX: Final = 60.0


class Acknowledged(NamedTuple):
    """A row that PostgreSQL said it has, and the port of the PostgreSQL that said so."""

    number: int
    server_port: int


class RoutedWriter:
    """Inserts 1, 2, 3, ... into a table of its own, `written`, each in a commit; what fails is never tried again."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._acknowledged: list[Acknowledged] = []
        self._connection: psycopg.Connection[tuple[int]] | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def acknowledged(self) -> Sequence[Acknowledged]:
        """What was acknowledged so far, in order."""
        return tuple(self._acknowledged)

    @property
    def servers(self) -> list[int]:
        """The ports of the servers that acknowledged, in order, each as often as it took over from another."""
        ports = [each.server_port for each in self.acknowledged]
        return [port for place, port in enumerate(ports) if place == 0 or ports[place - 1] != port]

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            number += 1
            try:
                self._acknowledged.append(Acknowledged(number, self._write(number)))
            except psycopg.Error:
                self._close()
            self._stop.wait(_PAUSE_SECONDS)
        self._close()

    def _write(self, number: int) -> int:
        if self._connection is None:
            self._connection = psycopg.connect(
                host="127.0.0.1",
                port=self._port,
                user="postgres",
                password=SUPERUSER_PASSWORD,
                dbname="postgres",
                connect_timeout=5,
                autocommit=True,
            )
            self._connection.execute("create table if not exists written (number int primary key)")
        row = self._connection.execute(
            "insert into written values (%s) returning inet_server_port()", (number,)
        ).fetchone()
        assert row is not None
        return row[0]

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def stop(self) -> None:
        """End it. Stopping twice is harmless."""
        self._stop.set()
        self._thread.join(_JOIN_SECONDS_MAX)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
