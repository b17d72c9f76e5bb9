"""A process that makes key spaces: URL, the first number, how many, how many threads. Prints each name with its prefix."""

import sys
from concurrent.futures import ThreadPoolExecutor

from keyplan.engine import open_engine
from keyplan.keyspace import KeySpaces


def main() -> None:
    """Wait for a line on standard input, then make them all at once."""
    url, first, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    with open_engine(url) as engine:
        registry = KeySpaces(engine, actor=f"creator {first}")
        print("ready", flush=True)
        sys.stdin.readline()
        with ThreadPoolExecutor(count) as pool:
            names = [f"k{number}" for number in range(first, first + count)]
            for keyspace in pool.map(lambda name: registry.create(name, "app"), names):
                print(keyspace.name, keyspace.prefix, flush=True)


if __name__ == "__main__":
    main()
