"""The errors of rings: one store over several databases. Whatever raises them has written nothing."""

from keyplan.errors.tree import EngineError, EngineOpenError

__all__ = ["RingMismatchError", "SplitCommitError"]


class RingMismatchError(EngineOpenError):
    """The databases are not this ring: another number, order, layout, or a rebalance under way. Facts: see below.

    `problem` says what is wrong, `database` with which of those given.
    """

    code = "ring-mismatch"
    summary = "the databases are not the ring that was asked for"


class SplitCommitError(EngineError):
    """A commit would concern more than one database of a ring. Facts: `databases`, `raw_keys`: one key of each."""

    code = "split-commit"
    summary = "a commit cannot span two databases of a ring"
