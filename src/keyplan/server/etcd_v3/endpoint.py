"""The calls that answer once, in whatever they are spoken: bodies and statuses, and who may call. Streams are beside it."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, Final

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from keyplan.errors import AccessDeniedError, KeyplanError
from keyplan.grpc_status import GrpcStatus
from keyplan.operations import Operation
from keyplan.server.access import Caller, caller_of
from keyplan.server.answers import BODY_TOO_LARGE, REQUEST_ID, AnswerError
from keyplan.server.auditing import asker_of, note_answer
from keyplan.server.confined import CallerStore
from keyplan.server.etcd_member import Identity, Membership
from keyplan.server.etcd_v3.calls import Calls
from keyplan.server.etcd_v3.declared import changed_in
from keyplan.server.etcd_v3.failures import CallFailure, failure_of
from keyplan.server.etcd_v3.forms import MessageForm
from keyplan.server.etcd_v3.messages import RECORDS
from keyplan.server.etcd_v3.reach import is_surely_denied
from keyplan.server.gate import allow_body
from keyplan.server.proxies import address_of
from keyplan.server.service import ServiceContext

__all__ = ["Endpoint", "Handler", "body_of"]

Handler = Callable[[Any], Any]
"""Of a request, the answer: records of the etcd table, whose classes are made at run time."""

_AUTHENTICATE_BYTES_MAX: Final = 4_096
_READ_AT_ONCE_BYTES_MAX: Final = 16 << 10
"""Why: reading so much takes a fraction of a millisecond, and a transaction of a megabyte a tenth of a second."""

_OF_OWN_HISTORY: Final = frozenset({"compact"})
"""Changes of what a reader has, too: where their own history begins. Why without a line: they concern nobody else, and who may
write nothing is not to fill the log."""


class Endpoint:
    """The calls as Starlette's functions, each on the store of who asks, spoken in one form.

    `begin` tells what is known once the service runs.
    """

    def __init__(self, context: ServiceContext, form: MessageForm) -> None:
        self._context = context
        self.form = form
        self._identity: Identity | None = None
        self._membership: Membership | None = None

    def begin(self, identity: Identity, membership: Membership) -> None:
        """Take over who the gateway is."""
        self._identity, self._membership = identity, membership

    def calls_on(self, store: CallerStore) -> Calls:
        """Return the calls on a store."""
        return store.kept(self._made_for)

    def _made_for(self, store: CallerStore) -> Calls:
        assert self._identity is not None
        return Calls(store.engine, self._identity, shown=store.shown)

    # ---- calls that answer once -----------------------------------------------------------------------------------------

    def unary(
        self,
        handler: Callable[[Calls], Handler],
        record: Any,
        *,
        declared: Operation | None = None,
        is_read: bool | Callable[[Any], bool] = False,
    ) -> Callable[[Request], Any]:
        """Return the function of a call that takes such a record. What it changes is noted, as `declared` says.

        The call is made at once when it is a short read, which the message may tell, and the engine is near, else in a thread.
        """

        async def answer(request: Request) -> Response:
            try:
                store = await self.store_of(request)
                message = await self.message_of(request, record)
                call = handler(self.calls_on(store))
                is_near = is_read is True or (callable(is_read) and is_read(message))
                async with await self._noted(request, store, declared, message):
                    # Why with its text: that of a long range takes longer than the reading.
                    body = await (self._context.read if is_near else self._context.run)(self._made, call, message)
            except CallFailure as failure:
                return self.form.failed(failure)
            except KeyplanError as error:
                return self.form.failed(failure_of(error))
            return self.form.answered(body)

        return answer

    def _made(self, call: Handler, message: Any) -> bytes:
        answer = call(message)
        note_answer(answer)
        return self.form.write(answer)

    async def _noted(
        self, request: Request, store: CallerStore, declared: Operation | None, message: Any
    ) -> AbstractAsyncContextManager[object]:
        """Surround a call, so that what it changes stands in the audit log. Raises AuditLogError, AccessDeniedError."""
        arguments = None if declared is None else changed_in(declared, message)
        if declared is None or arguments is None:
            return nullcontext()
        if not store.is_writable and declared.attribute in _OF_OWN_HISTORY:
            return nullcontext()
        if not store.is_writable:
            raise AccessDeniedError(who=store.who, act=str(declared.needs.act), where="any key")
        asker = asker_of(caller_of(request), address_of(request.scope))
        audit, request_id = self._context.audit, request.scope.get(REQUEST_ID, "")
        if audit.log is not None and is_surely_denied(declared.attribute, message, store.reach()):
            denied = AccessDeniedError(who=store.who, act=str(declared.needs.act), where="a key of the request")
            await audit.refused_change(declared, asker, arguments, denied, request=request_id)
            raise denied
        return audit.change(declared, asker, arguments, request=request_id)

    def read_range(self) -> Callable[[Request], Any]:
        """Return the function of `range`: one key at once, ranges in a thread, because they may be long."""
        # Why the message and not its text: JSON writes a name in many ways.
        return self.unary(
            lambda calls: calls.range, RECORDS.RangeRequest, is_read=lambda message: not message.range_end
        )

    async def members(self, request: Request) -> Response:
        """Tell the gateways as members of a cluster."""
        try:
            calls = self.calls_on(await self.store_of(request))
            revision = await self._context.read(lambda: calls.revision)
        except CallFailure as failure:
            return self.form.failed(failure)
        except KeyplanError as error:
            return self.form.failed(failure_of(error))
        assert self._membership is not None
        shown = [
            RECORDS.Member(ID=member.id, name=member.name, peerURLs=[member.url], clientURLs=[member.url])
            for member in self._membership.members(request.scope)
        ]
        return self._answered(RECORDS.MemberListResponse(header=calls.header(revision), members=shown))

    async def authenticate(self, request: Request) -> Response:
        """Give a token for a password: with tokens configured, the password is the token."""
        try:
            # Why: nobody is known yet.
            allow_body(request, _AUTHENTICATE_BYTES_MAX)
            message = self.form.read(await request.body(), RECORDS.AuthenticateRequest)
            if not self._context.access.has_callers:
                raise CallFailure(GrpcStatus.FAILED_PRECONDITION, "etcdserver: authentication is not enabled")
            password = message.password
            caller = await self._holder(request, message.name, password)
            calls = self.calls_on(await self._context.store_of(caller))
            revision = await self._context.read(lambda: calls.revision)
        except CallFailure as failure:
            return self.form.failed(failure)
        except KeyplanError as error:
            return self.form.failed(failure_of(error))
        return self._answered(RECORDS.AuthenticateResponse(header=calls.header(revision), token=password))

    async def _holder(self, request: Request, name: str, password: str) -> Caller:
        """Return whose token a password is. Raises CallFailure: it is a guess like a wrong token."""
        # Why: no token has other characters, and no header could carry them.
        is_token = password.isascii() and password.isprintable()
        asked = _with_token(request.scope, password if is_token else "")
        guesses, address = self._context.access.guesses, address_of(request.scope)
        guess = password.encode("utf-8", "backslashreplace")
        if guesses.seconds_until(address, guess) > 0:
            raise CallFailure(GrpcStatus.UNAVAILABLE, "etcdserver: too many requests")
        caller = self._context.access.caller(asked) if name else None
        if caller is None:
            await asyncio.sleep(guesses.wrong(address))
            problem = "etcdserver: authentication failed, invalid user ID or password"
            raise CallFailure(GrpcStatus.INVALID_ARGUMENT, problem)
        return caller

    def _answered(self, answer: Any) -> Response:
        return self.form.answered(self.form.write(answer))

    async def message_of(self, request: Request, record: Any) -> Any:
        """Return the message of a request; a long one is read in a thread. Raises CallFailure."""
        body = await body_of(request)
        if len(body) <= _READ_AT_ONCE_BYTES_MAX:
            return self.form.read(body, record)
        return await self._context.run(self.form.read, body, record)

    async def store_of(self, request: Request) -> CallerStore:
        """Return the store of who asks. Raises CallFailure for nobody's request, in etcd's words."""
        caller = caller_of(request)
        if caller is not None:
            return await self._context.store_of(caller)
        if not request.headers.get("authorization"):
            raise CallFailure(GrpcStatus.INVALID_ARGUMENT, "etcdserver: user name is empty")
        raise CallFailure(GrpcStatus.UNAUTHENTICATED, "etcdserver: invalid auth token")


async def body_of(request: Request) -> bytes:
    """Return a request's body. Raises CallFailure for one that is too large: clients know etcd's words for it."""
    try:
        return await request.body()
    except AnswerError as error:
        if error.status != BODY_TOO_LARGE:
            raise
        raise CallFailure(GrpcStatus.INVALID_ARGUMENT, "etcdserver: request is too large", is_last=True) from error


def _with_token(scope: Scope, token: str) -> Scope:
    """Return the request as one that carries this token in the form that the server knows."""
    changed = dict(scope)
    changed["headers"] = list(scope["headers"])
    MutableHeaders(scope=changed)["authorization"] = f"Bearer {token.removeprefix('Bearer ')}"
    return changed
