"""What only a fresh process shows: imports, and the lint, which keeps its answers."""

import subprocess
import sys
from collections.abc import Iterator
from typing import Final

from benchmarks.extent import Extent
from benchmarks.measure import Result, Work, compared, single

__all__ = ["measure_import", "measure_lint"]

_IMPORTS: Final = (
    ("import keyplan", ("-c", "import keyplan")),
    ("import keyplan, then open and Layout", ("-c", "import keyplan; keyplan.open; keyplan.Layout")),
    ("keyplan --help", ("-c", "from keyplan.cli.start import run; run()", "--help")),
)

_LINT: Final = """
from importlib.metadata import entry_points
from time import perf_counter
from keyplan.layout import lint
applications = {}
for point in entry_points(group="keyplan.layouts"):
    applications.setdefault(point.value.partition(":")[0].rpartition(".")[2], []).append(point.load().spec)
for name in sorted(applications):
    begun = perf_counter()
    for spec in applications[name]:
        lint(spec)
    print(name, perf_counter() - begun)
"""
"""Each layout by itself, as `keyplan lint LAYOUT` judges it; an application may have several."""


def measure_import(extent: Extent) -> Iterator[Result]:
    """The time of a whole process as a multiple of that of `python -c pass`; the ratio is its inverse."""
    for variant, arguments in _IMPORTS:
        yield compared(
            "import",
            variant,
            against="python -c pass",
            subject=_process(arguments),
            comparator=_process(("-c", "pass")),
            operations=1,
            rounds=extent.amount.processes,
        )


def measure_lint(extent: Extent) -> Iterator[Result]:
    """Milliseconds for all layouts of each shipped application."""
    seconds: dict[str, list[float]] = {}
    for _ in range(extent.amount.processes):
        # Why noqa: the program is this Python, and the code stands above.
        finished = subprocess.run([sys.executable, "-c", _LINT], capture_output=True, text=True, check=True)  # noqa: S603  # Why: our own interpreter.
        for line in finished.stdout.splitlines():
            name, taken = line.split()
            seconds.setdefault(name, []).append(float(taken) * 1e3)
    for name, figures in seconds.items():
        yield single("lint", name, figures, unit="ms")
    yield single("lint", "all of them", [sum(taken) for taken in zip(*seconds.values(), strict=True)], unit="ms")


def _process(arguments: tuple[str, ...]) -> Work:
    def work(operations: int) -> None:
        for _ in range(operations):
            subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, check=True)  # noqa: S603  # Why: as above.

    return work
