"""A chain: each link names the digest of the one before, so that one that was changed, removed or put in is found.

What a link is and how its digest is made, its log decides: the registry's entries stand in a store, a server's lines in files.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

__all__ = ["FIRST_PREVIOUS", "Chain", "ChainVerdict", "Head", "Link", "verified"]

FIRST_PREVIOUS: Final = "0" * 64
"""What the first link names as the digest of the one before it."""


class Link(NamedTuple):
    """One entry of a log: what it names as the digest of the one before it, and its own."""

    previous: str
    digest: str


class Head(NamedTuple):
    """The number and digest of a log's last entry, kept apart from the log."""

    number: int
    digest: str


class ChainVerdict(NamedTuple):
    """Whether a log is whole. `broken_at` is the number of the first entry that is missing, or is not as it was written.

    `last` is the number of the last good entry, `head` its digest.
    """

    is_whole: bool
    last: int
    broken_at: int | None
    problem: str
    head: str


def verified(links: Iterable[tuple[int, Link | None]], head: Head | None = None) -> ChainVerdict:
    """Go through a log from number 1. An entry that was changed, removed or put in breaks the chain.

    None is an entry that cannot be read. `head` is what is kept of the last one; a log that has none yet ends as it ends.
    """
    chain = Chain()
    for number, link in links:
        if not chain.add(number, link):
            break
    return chain.verdict(head)


class Chain:
    """The entries that follow from one another. Two that do not agree are kept until the next tells which was edited."""

    def __init__(self, before: Head = Head(0, FIRST_PREVIOUS)) -> None:  # noqa: B008  # Why: it never changes.
        self._good = [before.digest]  # the digests of the last two good entries, or fewer
        self._count = self._first = before.number
        self._odd: tuple[int, str] | None = None  # the number and digest of an entry that does not follow
        self._broken: tuple[int, str] | None = None

    @property
    def last(self) -> Head:
        """The last good entry so far."""
        return Head(self._count, self._good[-1])

    def add(self, number: int, link: Link | None) -> bool:
        """Take the next entry; False when it is known where the chain breaks."""
        if self._odd is not None:
            self._blame(None if link is None else link.previous)
        elif number != self._count + 1:
            self._broken = (self._count + 1, "it is missing")
        elif link is None:
            self._broken = (number, "it cannot be read")
        elif link.previous != self._good[-1]:
            self._odd = (number, link.digest)
        else:
            self._good = [self._good[-1], link.digest]
            self._count = number
        return self._broken is None

    def verdict(self, head: Head | None = None) -> ChainVerdict:
        """Return what is known when there are no more entries."""
        if self._odd is not None and self._broken is None:
            self._blame(None if head is None else head.digest)
        if self._broken is None and head is not None and head.number > self._count:
            self._broken = (self._count + 1, "it is missing: the log's head is behind it")
        if self._broken is None and head is not None and head.number == self._count and head.digest != self._good[-1]:
            self._edited(self._count, "it is not as it was written: the log's head has another digest")
        if self._broken is None and head is not None and head.number < self._count:
            self._broken = (head.number + 1, "it was put in: the log's head is before it")
        number, problem = self._broken or (None, "")
        return ChainVerdict(self._broken is None, self._count, number, problem, self._good[-1])

    def _blame(self, follower: str | None) -> None:
        """Say which of two entries that do not agree was edited: not the one that what follows agrees with."""
        assert self._odd is not None
        number, digest = self._odd
        if self._count > self._first and digest == follower:
            self._edited(self._count, "it is not as it was written: the entry behind it has another digest")
        else:
            self._broken = (number, "it does not name the digest of the entry before it")

    def _edited(self, number: int, problem: str) -> None:
        self._broken = (number, problem)
        self._good.pop()
        self._count = number - 1
