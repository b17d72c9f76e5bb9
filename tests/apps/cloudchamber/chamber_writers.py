"""The long form of test_operators.py: processes write one rack for a minute, and the store must be sound, with every write."""

import argparse
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import keyplan
from keyplan.apps.cloudchamber import begin_indexes
from tests.apps.cloudchamber.rack_writers import run_writers, verified
from tests.servers.etcd import EtcdServer

__all__ = ["main"]

ACTS_MAX = 10**9


def main() -> None:
    """Run it, and print what was written and what was found."""
    parser = argparse.ArgumentParser(prog="scripts/chamber-writers", description=__doc__)
    parser.add_argument("seconds", type=float, nargs="?", default=60.0)
    parser.add_argument("processes", type=int, nargs="?", default=4)
    parser.add_argument("--store", choices=("lmdb", "etcd"), default="lmdb", help="where: a new store of this engine")
    parser.add_argument("--plain", action="store_true", help="without secondary indexes: racks go as ranges of keys")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="chamber-writers-")))
        is_lmdb = arguments.store == "lmdb"
        url = f"lmdb:{folder / 'kv'}" if is_lmdb else stack.enter_context(EtcdServer()).url
        with keyplan.open(url) as store:
            if not arguments.plain:
                begin_indexes(store)
            before = store.revision
        files = run_writers(
            url,
            folder,
            processes=arguments.processes,
            acts=ACTS_MAX,
            seconds=arguments.seconds,
            seed=arguments.seed,
        )
        written = verified(url, files, revision_before=before)
    commits = sum(written.acts.values())
    rate = commits / arguments.seconds
    kind = "without indexes" if arguments.plain else "with indexes"
    print(f"{arguments.store}, {kind}: {arguments.processes} processes wrote one rack for {arguments.seconds:g} s")
    print(
        f"  {commits:,} commits, {rate:,.0f} a second: " + ", ".join(f"{n:,} {act}" for act, n in written.acts.items())
    )
    print(f"  {written.turns:,} times the next commit was another writer's")
    print(f"  {written.refused:,} acts refused, as others were faster; {written.read:,} reads, no rack seen half")
    print(
        f"  check: {written.keys} keys, 0 findings, {written.seconds:.2f} s; each acknowledged commit is in the store"
    )


if __name__ == "__main__":
    main()
