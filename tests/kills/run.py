"""`python -m tests.kills.run [GROUP]`: all scenes, killed twice at every two steps, as a table. Exit code 1: one fails."""

import sys
import time

from keyplan.testing.killing import KillFailure, check_kills
from tests.kills.scenes import GROUPS

__all__ = ["main"]


def main(arguments: list[str]) -> int:
    """Run the groups and print a line for each scene."""
    chosen = arguments or list(GROUPS)
    if strange := set(chosen) - set(GROUPS):
        print(f"no group is called {min(strange)}: use {', '.join(GROUPS)}")
        return 2
    failures = 0
    print(f"{'scene':62} {'steps':>5} {'variants':>8} {'states':>6} {'seconds':>7}")
    for scene in (scene for group in chosen for scene in GROUPS[group]()):
        begun = time.perf_counter()
        try:
            report = check_kills(scene.scenario, seconds_each=None)
        except KillFailure as failure:
            failures += 1
            print(f"{scene.name:62} fails: {failure}", flush=True)
            continue
        seconds = time.perf_counter() - begun
        told = f"{len(report.steps):5} {report.variants:8,} {report.states:6,} {seconds:7.1f}"
        print(f"{scene.name:62} {told}", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
