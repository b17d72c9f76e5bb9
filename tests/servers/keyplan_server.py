"""`keyplan serve` as a process of its own: started on a free port, found by what it prints, stopped by its process id."""

import os
import selectors
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from types import TracebackType
from typing import Final, Self

__all__ = ["KeyplanServer"]

_START_SECONDS_MAX: Final = 90
_STOP_SECONDS_MAX: Final = 60


class KeyplanServer:
    """A server for a `with` block: `with KeyplanServer("memory:", "--app", "patroni") as server: ... server.url`.

    `arguments` are added to `keyplan serve`; without a `--listen` among them it listens on any free port of 127.0.0.1.
    """

    def __init__(self, store_url: str, *arguments: str, environment: Mapping[str, str] | None = None) -> None:
        self._arguments = arguments if "--listen" in arguments else (*arguments, "--listen", "127.0.0.1:0")
        self._store_url = store_url
        self._environment = environment or {}
        self._process: subprocess.Popen[str] | None = None
        # Why: a pipe that nobody reads would stop the server as soon as it is full.
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115  # closed by `stop`
        self._logged = ""
        self.addresses: list[str] = []

    @property
    def url(self) -> str:
        """The first address, as in http://127.0.0.1:41234."""
        return self.addresses[0]

    @property
    def process(self) -> "subprocess.Popen[str]":
        """The process, running or ended."""
        assert self._process is not None, "the server was not started"
        return self._process

    @property
    def log(self) -> str:
        """What the server has written to standard error so far."""
        if not self._log.closed:
            self._logged = os.pread(self._log.fileno(), os.fstat(self._log.fileno()).st_size, 0).decode()
        return self._logged

    def start(self) -> Self:
        """Start, and return when requests are answered. Raises AssertionError with the log when the server ends instead."""
        program = "from keyplan.cli.start import run; run()"
        outside = {name: value for name, value in os.environ.items() if not name.startswith("KEYPLAN_")}
        self._process = subprocess.Popen(
            [sys.executable, "-c", program, "serve", "--store", self._store_url, *self._arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env={**outside, **self._environment},
        )
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            is_heard = bool(selector.select(_START_SECONDS_MAX))
        # Why: the addresses are written in one piece, so that after the first line nobody waits.
        count = self._arguments.count("--listen") if is_heard else 0
        self.addresses = [line.strip() for _ in range(count) if (line := self._process.stdout.readline())]
        if not self.addresses:
            self._process.kill()
            self._process.wait()
            self._end()
            raise AssertionError(f"the server did not start: {self.log}")
        return self

    def stop(self, *, with_signal: int = signal.SIGTERM) -> int:
        """Ask it to stop, wait, and return its exit code. Stopping twice is harmless."""
        process = self.process
        if process.poll() is None:
            process.send_signal(with_signal)
        try:
            process.wait(_STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise AssertionError(f"the server did not stop: {self.log}") from None
        finally:
            self._end()
        return process.returncode

    def _end(self) -> None:
        """Close what was open, and keep the log's text."""
        _ = self.log
        self._log.close()
        if self.process.stdout is not None:
            self.process.stdout.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
