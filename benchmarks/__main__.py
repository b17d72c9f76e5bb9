"""`python -m benchmarks [NAME...] [--quick] [--json FILE] [--plot FILE]`: measure, print a table, keep the results."""

import argparse
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.cases import BENCHMARKS
from benchmarks.extent import FULL, QUICK, TINY, Extent
from benchmarks.plot import plotted
from benchmarks.report import Run, header, line, write_run
from benchmarks.stand import Stands

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmarks that are named, or all. Return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHMARKS)}; all when none is given")
    amounts = parser.add_mutually_exclusive_group()
    amounts.add_argument("--quick", action="store_true", help="stores up to 10,000 records, few rounds: under a minute")
    amounts.add_argument(
        "--tiny", action="store_true", help="one round of almost nothing: only to see that all of it runs"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results, with what they were measured on")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the ratios by size as SVG")
    parser.add_argument(
        "--folder", type=Path, help="where the stores are made, and removed: a disk, if flushes are to count"
    )
    given = parser.parse_args(arguments)
    unknown = [name for name in given.names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"no benchmark is called {', '.join(unknown)}")
    amount = QUICK if given.quick else TINY if given.tiny else FULL
    results = []
    print(header())
    with TemporaryDirectory(prefix="keyplan-benchmarks-", dir=given.folder) as folder:
        extent = Extent(amount, Stands(Path(folder)))
        for name in given.names or BENCHMARKS:
            for result in BENCHMARKS[name](extent):
                results.append(result)
                print(line(result), flush=True)
    run = Run.of(results, is_quick=amount is not FULL)
    if given.json:
        write_run(run, given.json)
    if given.plot:
        given.plot.write_text(plotted(run))
    return 0


if __name__ == "__main__":
    sys.exit(main())
