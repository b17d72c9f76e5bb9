"""Results as a table for people and as JSON for later comparison."""

import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import lmdb
import msgspec

from benchmarks.measure import Result

__all__ = ["Run", "header", "line", "read_run", "write_run"]

_COLUMNS: Final = "{:<15} {:<38} {:>9} {:>13} {:>7} {:>15} {:>5}  {}"


class Run(msgspec.Struct, frozen=True):
    """All results of one run, and what they were measured on."""

    at: str
    python: str
    machine: str
    lmdb: str
    is_quick: bool
    results: list[Result]

    @classmethod
    def of(cls, results: list[Result], *, is_quick: bool) -> "Run":
        """Return the run that ends now, on this machine."""
        return cls(
            datetime.now(UTC).isoformat(timespec="seconds"),
            platform.python_version(),
            f"{platform.system()} {platform.machine()}",
            f"py-lmdb {lmdb.__version__}, LMDB 0.9",
            is_quick,
            results,
        )


def write_run(run: Run, path: Path) -> None:
    """Write a run as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(run), indent=1) + b"\n")


def read_run(path: Path) -> Run:
    """Return the run in a file that `write_run` wrote."""
    return msgspec.json.decode(path.read_bytes(), type=Run)


def header() -> str:
    """The heads of the columns."""
    return _COLUMNS.format("benchmark", "variant", "records", "median", "ratio", "10..90 %", "aim", "against")


def line(result: Result) -> str:
    """One result as a line of the table."""
    low, high = (
        (_figure(result.low), _figure(result.high))
        if result.ratio is None
        else (
            f"{result.low:.2f}",
            f"{result.high:.2f}",
        )
    )
    return _COLUMNS.format(
        result.benchmark,
        result.variant,
        "" if result.size is None else f"{result.size:,}",
        f"{_figure(result.rate)} {result.unit}",
        "" if result.ratio is None else f"{result.ratio:.2f}",
        f"{low}..{high}",
        "" if result.aim is None else f"{result.aim:g}",
        result.against,
    ).rstrip()


def _figure(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"
