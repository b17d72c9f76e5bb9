"""How fences are asked for together with one key more: in one statement, which is one state."""

from itertools import pairwise
from typing import NamedTuple, Self

from keyplan.engine.fences import Fences
from keyplan.engine.postgres.session import Result, Statement
from keyplan.engine.postgres.snapshot import can_be_stored
from keyplan.engine.postgres.statements import Statements

__all__ = ["AskedFences"]


class AskedFences(NamedTuple):
    """Fences, and how they are asked for: no `statement` where they cannot be.

    `pairs` are the keys, each with its value behind it. Invariant: no key begins with another one: a pair is of one key.
    """

    fences: Fences
    statement: Statement | None
    keys: tuple[bytes, ...]
    pairs: tuple[bytes, ...]
    """Why no set: to find a large value in it, all of the value would be hashed. Of other lengths are most of them."""
    key_bytes_max: int

    @classmethod
    def of(cls, fences: Fences, statements: Statements) -> Self:
        keys = tuple([key for key, _ in fences])
        pairs = tuple([key + value for key, value in fences if value is not None])
        ordered = sorted(keys)
        is_plain = not any(after.startswith(before) for before, after in pairwise(ordered))
        can_be_asked = bool(keys) and is_plain and len(pairs) == len(keys) and all(map(can_be_stored, keys))
        statement = statements.values(len(keys) + 1) if can_be_asked else None
        return cls(fences, statement, keys, pairs, max(map(len, keys), default=0))

    def alone_below(self, prefix: bytes) -> tuple[Statement | None, bytes, bytes]:
        """Return the statement, the key and the pair of a single fence; no statement where a key below might be it."""
        if self.statement is None or len(self.keys) != 1 or self.is_entangled(prefix):
            return None, b"", b""
        return self.statement, self.keys[0], self.pairs[0]

    def is_entangled(self, key: bytes) -> bool:
        """Tell whether a key begins with a fence, or a fence with it: a pair might be of either. Else no longer key does."""
        return key.startswith(self.keys) or (
            len(key) < self.key_bytes_max and any(fence.startswith(key) for fence in self.keys)
        )

    def judged(self, answer: Result, key: bytes) -> tuple[bool, bytes | None]:
        """Return whether the fences hold, and what stands at the key, as `Engine.fenced_value` does."""
        missing, found = len(self.pairs), None
        for pair in answer.column():
            if pair in self.pairs:
                missing -= 1
            else:
                found = pair
        # Why it is the key's: a fence of another value is missing.
        return (False, None) if missing else (True, None if found is None else found[len(key) :])
