"""The identity of a store, and of the line of commits that its revisions count, so that no revision means two things."""

from typing import Final, NamedTuple

__all__ = ["LEAP", "Lineage", "leapt"]

LEAP: Final = 1 << 32
"""How far revisions leap when a store went back. Why so far: nobody knows how many commits were lost, and four billion are
more than a store makes between a copy and its return. Why not farther: a million leaps stay below 2^53, where JSON ends."""


class Lineage(NamedTuple):
    """Which store it is, and which line of commits. Two lineages that differ have no revision in common.

    `store` stays for as long as the store lives, wherever it is moved. `epoch` changes whenever its revisions may have gone
    back: it was restored from a copy, or a server took over that had not received every commit.
    """

    store: str
    epoch: str


def leapt(revision: int) -> int:
    """Return the revision at which a store goes on that was found at `revision` after it went back.

    It lies at least LEAP beyond: no revision of the commits that were lost is given out again, so that a guard, a watch or an
    expectation from before matches nothing that is written after.
    """
    return (revision // LEAP + 2) * LEAP
