"""The long form of test_loaders.py: kill loaders at random until they have ended, and compare the store with the input."""

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory

from keyplan.apps import hepnos
from tests.apps.hepnos.loaders import compare, run_loaders

__all__ = ["main"]


def main() -> None:
    """Run it, and print what was killed and compared."""
    parser = argparse.ArgumentParser(prog="scripts/kill-loaders", description=__doc__)
    parser.add_argument("--loaders", type=int, default=4)
    parser.add_argument("--events", type=int, default=200_000, help="of each loader")
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="where the store is made, and removed")
    given = parser.parse_args()
    with TemporaryDirectory(prefix="kill-loaders-", dir=given.folder) as folder:
        url = f"lmdb:{folder}/store"
        hepnos.open(url, databases={"subruns": 2, "events": 4, "products": 4}).close()
        killed = run_loaders(url, loaders=given.loaders, events=given.events, kills=given.kills, seed=given.seed)
        found = compare(url, loaders=given.loaders, events=given.events)
    print(f"{killed} loaders were killed; {found} events, each once, with their products")


if __name__ == "__main__":
    main()
