"""Servers of the tests' own, as processes: `keyplan runm serve`, started, told to stop, killed, all by process id."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

__all__ = ["ServeProcess", "free_address", "server_process"]

_START_SECONDS_MAX: Final = 60


class ServeProcess:
    """A running server; `address` is the first that it printed."""

    def __init__(self, arguments: tuple[str, ...], environment: Mapping[str, str]) -> None:
        code = "from keyplan.cli.start import run; run()"
        words = [sys.executable, "-c", code, "runm", "serve", *arguments]
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("RUNM_", "GSR_", "KEYPLAN_"))}
        self.process = subprocess.Popen(
            words, env={**kept, **environment}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.address = self.next_address()

    def next_address(self) -> str:
        """Return the address on the next line that it prints."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def stop(self) -> int:
        """Tell it to stop, and return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(_START_SECONDS_MAX)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(_START_SECONDS_MAX)

    def close(self) -> str:
        """End it, however it stands, and return what it wrote to standard error."""
        if self.process.poll() is None:
            self.kill()
        _, errors = self.process.communicate()
        return errors


@contextmanager
def server_process(*arguments: str, **environment: str) -> Iterator[ServeProcess]:
    """A server for the length of a block."""
    process = ServeProcess(arguments, environment)
    try:
        yield process
    finally:
        process.close()


def free_address() -> str:
    """An address of this machine where nobody listens."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{one.getsockname()[1]}"
