"""`python -m tests.schedules.run [GROUP] [SECONDS]`: the matrix or a group of it as a table. Exit code 1: something fails."""

import sys
import time

from keyplan.testing.schedules import Exhaustive, Exploration, explore
from tests.schedules.lines import Line
from tests.schedules.matrix import GROUPS

__all__ = ["explored", "main"]


def explored(line: Line, *, seconds_max: float = 60.0) -> Exploration:
    """Explore a line of the matrix: without a strategy of its own everything, for all of the seconds."""
    with line.under():
        return explore(line.make(), strategy=line.strategy or Exhaustive(), seconds_max=seconds_max, baton=line.baton)


def main(arguments: list[str]) -> int:
    """Run the groups and print a line for each; the reports of what fails come after the table."""
    chosen = [arguments[0]] if arguments and arguments[0] != "all" else list(GROUPS)
    if strange := set(chosen) - set(GROUPS):
        print(f"no group is called {min(strange)}: use all, {', '.join(GROUPS)}")
        return 2
    seconds_max = float(arguments[1]) if len(arguments) > 1 else 60.0
    print(f"{'group':28} {'scenarios':>9} {'schedules':>9} {'largest':>8} {'seconds':>8}  not ended")
    reports: list[str] = []
    for group in chosen:
        begun = time.perf_counter()
        schedules = largest = scenarios = 0
        open_ended: list[str] = []
        for line in GROUPS[group]():
            found = explored(line, seconds_max=seconds_max)
            scenarios += 1
            schedules += found.schedules
            largest = max(largest, found.schedules)
            if found.has_run_out and not found.failures:
                open_ended.append(line.name)
            if found.failures:
                reports.append(f"=== {group}: {line.name}{' (known)' if line.defect else ''}\n{found}")
        seconds = time.perf_counter() - begun
        print(
            f"{group:28} {scenarios:9,} {schedules:9,} {largest:8,} {seconds:8.1f}  {', '.join(open_ended)}", flush=True
        )
    print("\n\n".join(reports))
    return 1 if reports else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
