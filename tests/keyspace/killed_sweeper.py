"""A process that sweeps a key space, one key in a commit, and prints a line after each; it is there to be killed."""

import sys

from keyplan.engine import open_engine
from keyplan.keyspace import KeySpaces, Sweeper


def main() -> None:
    """Sweep the key space of that name in the store of that URL."""
    url, name = sys.argv[1:]
    with open_engine(url) as engine:
        Sweeper(KeySpaces(engine), batch_keys=1, keys_per_second=1.0, pause=told).sweep(name)


def told(_: float) -> None:
    """Say that a batch is gone, in place of waiting."""
    print("batch", flush=True)


if __name__ == "__main__":
    main()
