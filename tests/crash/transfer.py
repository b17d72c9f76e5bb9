"""The process that is killed: `python -m tests.crash.transfer copy|restore|restore-key-spaces FROM TO`.

After each commit it says how many there were. FROM is the source's URL of a copy, the file of a restore.
"""

import os
import sys
from pathlib import Path

from keyplan.engine import Commit, WrappedEngine, open_engine
from keyplan.maintenance import OnConflict, RestorePolicy, copy_store, restore_key_spaces, restore_store

__all__ = ["TellingEngine", "transfer"]


class TellingEngine(WrappedEngine):
    """Writes a line to standard output after each commit, by one system call."""

    commits = 0

    def commit(self, commit: Commit) -> int:
        revision = self.inner.commit(commit)
        self.commits += 1
        os.write(1, b"%d\n" % self.commits)
        return revision


def transfer(kind: str, origin: str, url: str) -> None:
    """Do the work."""
    with TellingEngine(open_engine(url)) as target:
        if kind == "copy":
            with open_engine(origin) as source:
                copy_store(source, target, source_name=origin)
        elif kind == "restore":
            restore_store(target, Path(origin))
        else:
            restore_key_spaces(target, Path(origin), policy=RestorePolicy(OnConflict.OVERWRITE))


if __name__ == "__main__":
    transfer(*sys.argv[1:])
