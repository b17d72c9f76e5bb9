"""Who asks: the principal of an access file, or the holder of a token, as a request and its connection tell. Not what they may.

Wrong tokens are counted by address, and after many nobody looks whether another one is right.
"""

import hashlib
import hmac
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from threading import Lock
from typing import TypeVar

from keyplan.access import AccessFile, Policy, Principal
from keyplan.apps.runm.refusal import guessed_too_often, unauthenticated
from keyplan.engine import SYSTEM_CLOCK, Clock
from keyplan.server import TOKEN_CHARACTERS_MIN, Guesses, RpcAsking, Token, rpc_address, rpc_certificate, rpc_token

__all__ = ["Callers"]

T = TypeVar("T")


class Callers:
    """Who may ask at all: the principals of an access file, or whoever has a token; anybody without either. For all threads."""

    def __init__(
        self, tokens: Sequence[Token] = (), access: AccessFile | None = None, *, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self.tokens = tokens
        self.access = access
        self._clock = clock
        self._guesses, self._guessing = Guesses(clock.monotonic), Lock()

    @property
    def are_anybody(self) -> bool:
        """True where nobody is asked who they are."""
        return self.access is None and not self.tokens

    def holder(self, asking: RpcAsking) -> Sequence[Token]:
        """Return the tokens that a request's is, at least one. Raises RefusedError."""
        known = self._unguessed(asking, self._held)
        if not known:
            raise unauthenticated()
        return known

    def principal(self, policy: Policy, asking: RpcAsking) -> Principal:
        """Return who asks: by a token first, and without one by a certificate. Raises RefusedError."""
        principal = self._unguessed(asking, lambda token: policy.known_by_token(token, at=self._now()))
        if principal is None and rpc_token(asking) is None:
            certificate = rpc_certificate(asking)
            principal = policy.known_by_certificate(*certificate) if certificate else None
        if principal is None:
            raise unauthenticated()
        return principal

    # ---- pieces ---------------------------------------------------------------------------------------------------------

    def _held(self, token: str) -> Sequence[Token]:
        # Why: a file may have the sum of nothing, made of a variable that was empty, and nobody is to be known by nothing.
        if len(token) < TOKEN_CHARACTERS_MIN:
            return ()
        digest = hashlib.sha256(token.encode()).digest()
        # Invariant: every token is compared, so that the time tells nothing.
        return [one for one in self.tokens if hmac.compare_digest(one.digest, digest)]

    def _unguessed(self, asking: RpcAsking, known_by: Callable[[str], T]) -> T | None:
        """Return what is known by the token of a request; None without one. Raises RefusedError after many wrong guesses."""
        token = rpc_token(asking)
        if token is None:
            return None
        address, guess = rpc_address(asking), token.encode("utf-8", "surrogatepass")
        with self._guessing:
            if self._guesses.seconds_until(address, guess) > 0:
                raise guessed_too_often()
            found = known_by(token)
            if found:
                self._guesses.right(address, guess)
            else:
                self._guesses.wrong(address)
        return found

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock.wall(), UTC)
