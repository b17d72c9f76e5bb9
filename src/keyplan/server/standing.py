"""Whether who asked is still who they were: looked at while a request is answered, so that a stream ends when they are not.

A request is decided when it begins, and a stream may go on for days. Each second, and before each part of a stream, the caller
is therefore found anew, as at the beginning: by the token, the certificate or the user. When it is another one, or nobody, or
has no longer every grant that it had, the request is ended: what it rests on may be among them, and whoever still has that asks
again. Services need not know of it, and cannot forget it.
"""

import asyncio
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from keyplan.access import Policy, Principal, Target
from keyplan.operations import Act
from keyplan.server.access import Access, Caller, caller_in
from keyplan.server.answers import AnswerError

__all__ = ["STANDING_SECONDS", "CallerGoneError", "Standings"]

STANDING_SECONDS: Final = 1.0
"""Why: together with the second within which a changed access file is seen, a stream ends after two."""

_SAFE_METHODS: Final = frozenset({"GET", "HEAD"})


class CallerGoneError(Exception):
    """An answer was cut, because its caller is not known any more, or may not have it."""


class Standings:
    """The requests that are being answered for callers whose standing may change. For one event loop."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._held: set[_Held] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def answer(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Let `app` answer a request whose caller is known, for as long as they are.

        Raises AnswerError (401 `access_ended`) when it ends before the answer has begun, and CallerGoneError when it has. What
        is neither a stream nor a read is not ended: it was let in, and may have been carried out.
        """
        caller = caller_in(scope)
        if caller is None or self._access.policy is None:
            # Why: without an access file nobody's standing changes while the server runs.
            await app(scope, receive, send)
            return
        held = _Held(self._access, scope, caller)
        self._held.add(held)
        self._look_soon()
        try:
            await app(scope, receive, held.watched(send))
        except asyncio.CancelledError:
            if not held.was_ended_alone():
                raise
            if held.has_begun:
                raise CallerGoneError from None
            message = "who asked is not known any more, or may not do this any more"
            raise AnswerError(401, "access_ended", message) from None
        finally:
            self._held.discard(held)

    def _look_soon(self) -> None:
        loop = asyncio.get_running_loop()
        if self._timer is None or self._loop is not loop:
            self._loop = loop
            self._timer = loop.call_later(STANDING_SECONDS, self._look)

    def _look(self) -> None:
        self._timer = None
        for held in list(self._held):
            if not held.is_good():
                held.end()
        if self._held:
            self._look_soon()


class _Held:
    """One request that is being answered."""

    def __init__(self, access: Access, scope: Scope, caller: Caller) -> None:
        self._access = access
        self._scope = scope
        self._caller = caller
        self._good_in: Policy | None = None
        self._task = asyncio.current_task()
        self._ended = 0
        self.has_begun = False

    def is_good(self) -> bool:
        """Return whether the same caller is found, with all the grants that they had."""
        policy = self._access.policy
        # Why: in one state of the file a caller changes by the end of a token alone, and thousands of streams are looked at.
        if policy is self._good_in and not self._has_ending_token():
            return True
        self._good_in = policy if self._is_found() else None
        return self._good_in is not None

    def _has_ending_token(self) -> bool:
        principal = self._caller.principal
        return principal is None or any(token.until for token in principal.tokens)

    def _is_found(self) -> bool:
        try:
            found = self._access.caller(self._scope)
        except AnswerError:
            return False
        if found is None or found.name != self._caller.name:
            return False
        return _granted(self._caller.principal) <= _granted(found.principal)

    def watched(self, send: Send) -> Send:
        """Return a `send` that looks before each part of a stream, and sends nothing more once the caller is gone."""

        async def look_and_send(message: Message) -> None:
            if message.get("more_body") and not self.is_good():
                self.end()
            if self._ended:
                # Why wait: the request is being cancelled, and whoever sends may be another task of it.
                await asyncio.get_running_loop().create_future()
            self.has_begun = True
            await send(message)

        return look_and_send

    def end(self) -> None:
        """Cancel the request, if it is one that may be ended."""
        if self._task is not None and (self.has_begun or self._scope["method"] in _SAFE_METHODS):
            self._ended += 1
            self._task.cancel()

    def was_ended_alone(self) -> bool:
        """Return whether it was cancelled here and by nobody else; then the task goes on as if it had not been."""
        others = 0
        for _ in range(self._ended):
            assert self._task is not None
            others = self._task.uncancel()
        return bool(self._ended) and not others


def _granted(principal: Principal | None) -> frozenset[tuple[Act, Target]]:
    """What a principal is granted, wherever in the file it stands."""
    return frozenset((grant.act, grant.on) for grant in principal.grants) if principal else frozenset()
