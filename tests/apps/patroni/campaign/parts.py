"""The programs of a site: started, started again when they end by themselves, ended by process id."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.apps.patroni.campaign.hosts import Host

__all__ = ["Part", "keyplan"]

_STOP_SECONDS_MAX: Final = 30.0
_AGAIN_SECONDS: Final = 1.0
_NOTHING: Final[Mapping[str, str]] = {}


def keyplan(*words: str) -> list[str]:
    """The command of our own program."""
    return [sys.executable, "-c", "from keyplan.cli.start import run; run()", *words]


def _for_owner(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


class Part:
    """One program, in the centre or on a host. It is kept running, as a site's systemd would, unless it `is_held`."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        folder: Path,
        *,
        host: Host | None = None,
        store: str = "",
        environment: Mapping[str, str] = _NOTHING,
    ) -> None:
        self.name = name
        self.is_held = False
        self._command = list(command) if host is None else host.within(*command)
        self._folder = folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Why not as an option: everybody on a machine can read a command line.
        self._environment = {**os.environ, **environment, **({"KEYPLAN_STORE": store} if store else {})}
        self._process: subprocess.Popen[bytes] | None = None
        self._started_at = 0.0

    @property
    def pid(self) -> int:
        """The id of its process, which may have ended; 0 before the first start."""
        return 0 if self._process is None else self._process.pid

    @property
    def log(self) -> str:
        """What it has said so far."""
        path = self._folder / "log"
        return path.read_text(errors="replace") if path.exists() else ""

    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start it unless it runs."""
        if self.is_running():
            return
        self._started_at = time.monotonic()
        with open(self._folder / "log", "ab", opener=_for_owner) as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment,
                start_new_session=True,
                cwd="/",
            )

    def keep(self) -> bool:
        """Start it again when it has ended by itself; return whether it had."""
        is_due = self._started_at > 0 and time.monotonic() - self._started_at >= _AGAIN_SECONDS
        if self.is_held or self.is_running() or not is_due:
            return False
        self.start()
        return True

    def kill(self) -> None:
        """End it with SIGKILL."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Ask it to end; kill it when that takes too long."""
        self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> None:
        if self._process is None or self._process.poll() is not None:
            return
        self._process.send_signal(number)
        try:
            self._process.wait(_STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
