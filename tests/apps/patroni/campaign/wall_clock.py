"""A wall's clock that can be set, for one machine: a library that Patroni, and so PostgreSQL, is started with there."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

__all__ = ["WallClock", "why_no_clock"]

_SOURCE: Final = Path(__file__).with_suffix(".c")


def why_no_clock() -> str | None:
    """Return why no clock can be set here, None when one can."""
    return None if shutil.which("cc") else "no C compiler is installed: apt-get install gcc libc6-dev"


def _raw(seconds: int) -> bytes:
    return seconds.to_bytes(8, "big", signed=True)


class WallClock:
    """The library, its file, and a program in the place of Patroni's script that is started with both."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o755)
        self._told = folder / "seconds"
        self._told.write_bytes(_raw(0))
        library = folder / "wall_clock.so"
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", str(library), str(_SOURCE), "-ldl"], check=True)
        self.script = Path(sys.prefix) / "bin" / "patroni"
        copy, self.wrapper = folder / "patroni", folder / "wrapper"
        copy.write_text(self.script.read_text())
        self.environment = {"LD_PRELOAD": str(library), "CAMPAIGN_CLOCK": str(self._told)}
        self.wrapper.write_text(
            f"import os, sys\nos.environ.update({self.environment!r})\n"
            f"os.execv(sys.executable, [sys.executable, '-S', {str(copy)!r}, *sys.argv[1:]])\n"
        )
        for path in folder.iterdir():
            path.chmod(0o644)

    def set(self, seconds_off: int) -> None:
        """Have it tell so many seconds more than it should, at once."""
        with self._told.open("r+b") as file:
            file.write(_raw(seconds_off))
