"""HTTP of the JSON gateway: bodies, statuses, streams of lines, and who may call."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

from msgspec import json
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Scope

from keyplan.errors import HistoryCompactedError, KeyplanError
from keyplan.grpc_status import GrpcStatus
from keyplan.server.access import caller_of
from keyplan.server.etcd_member import Membership
from keyplan.server.etcd_v3.calls import Calls
from keyplan.server.etcd_v3.failures import CallFailure, failure_of
from keyplan.server.etcd_v3.messages import RECORDS, encoded, message_in, messages_in
from keyplan.server.etcd_v3.watching import Selection, Stream, WatchHub
from keyplan.server.gate import allow_body
from keyplan.server.proxies import address_of
from keyplan.server.service import ServiceContext

__all__ = ["Endpoint", "Handler"]

Handler = Callable[[Any], Any]
"""Of a request, the answer: records of the etcd table, whose classes are made at run time."""

_AUTHENTICATE_BYTES_MAX: Final = 4_096
_READ_AT_ONCE_BYTES_MAX: Final = 16 << 10
"""Why: reading so much takes a fraction of a millisecond, and a transaction of a megabyte a tenth of a second."""

_HEADERS: Final = {"Grpc-Metadata-Content-Type": "application/grpc"}


class Endpoint:
    """The calls as Starlette's functions. `membership` and `calls` are known once the service runs."""

    def __init__(self, context: ServiceContext, hub: WatchHub, *, progress_seconds: float) -> None:
        self._context = context
        self._hub = hub
        self._progress_seconds = progress_seconds
        self.calls: Calls | None = None
        self.membership: Membership | None = None

    def _ready(self) -> Calls:
        assert self.calls is not None
        return self.calls

    # ---- calls that answer once -----------------------------------------------------------------------------------------

    def unary(
        self, handler: Callable[[Calls], Handler], record: Any, *, is_read: bool | Callable[[Any], bool] = False
    ) -> Callable[[Request], Any]:
        """Return the function of a call that takes such a record.

        The call is made at once when it is a short read, which the message may tell, and the engine is near, else in a thread.
        """

        async def answer(request: Request) -> Response:
            try:
                self._admit(request)
                message = await self._message(request, record)
                call = handler(self._ready())
                is_near = is_read is True or (callable(is_read) and is_read(message))
                # Why with its text: that of a long range takes longer than the reading.
                body = await (self._context.read if is_near else self._context.run)(lambda: encoded(call(message)))
            except CallFailure as failure:
                return _failed(failure)
            except KeyplanError as error:
                return _failed(failure_of(error))
            return Response(body, media_type="application/json", headers=_HEADERS)

        return answer

    def read_range(self) -> Callable[[Request], Any]:
        """Return the function of `range`: one key at once, ranges in a thread, because they may be long."""
        # Why the message and not its text: JSON writes a name in many ways.
        return self.unary(
            lambda calls: calls.range, RECORDS.RangeRequest, is_read=lambda message: not message.range_end
        )

    async def members(self, request: Request) -> Response:
        """Tell the gateways as members of a cluster."""
        try:
            self._admit(request)
            revision = await self._context.read(lambda: self._ready().revision)
        except CallFailure as failure:
            return _failed(failure)
        except KeyplanError as error:
            return _failed(failure_of(error))
        assert self.membership is not None
        shown = [
            RECORDS.Member(ID=member.id, name=member.name, peerURLs=[member.url], clientURLs=[member.url])
            for member in self.membership.members(request.scope)
        ]
        return _answered(RECORDS.MemberListResponse(header=self._ready().header(revision), members=shown))

    async def authenticate(self, request: Request) -> Response:
        """Give a token for a password: with tokens configured, the password is the token."""
        try:
            # Why: nobody is known yet.
            allow_body(request, _AUTHENTICATE_BYTES_MAX)
            message = message_in(await request.body(), RECORDS.AuthenticateRequest)
            if not self._context.access.has_callers:
                raise CallFailure(GrpcStatus.FAILED_PRECONDITION, "etcdserver: authentication is not enabled")
            password = message.password
            await self._check_password(request, message.name, password)
            revision = await self._context.read(lambda: self._ready().revision)
        except CallFailure as failure:
            return _failed(failure)
        except KeyplanError as error:
            return _failed(failure_of(error))
        return _answered(RECORDS.AuthenticateResponse(header=self._ready().header(revision), token=password))

    async def _check_password(self, request: Request, name: str, password: str) -> None:
        """Raise CallFailure unless a password is a token. It is a guess like a wrong token."""
        asked = _with_token(request.scope, password)
        guesses, address, guess = self._context.access.guesses, address_of(request.scope), password.encode()
        if guesses.seconds_until(address, guess) > 0:
            raise CallFailure(GrpcStatus.UNAVAILABLE, "etcdserver: too many requests")
        if not name or self._context.access.caller(asked) is None:
            await asyncio.sleep(guesses.wrong(address))
            problem = "etcdserver: authentication failed, invalid user ID or password"
            raise CallFailure(GrpcStatus.INVALID_ARGUMENT, problem)

    async def _message(self, request: Request, record: Any) -> Any:
        """Return the message of a request; a long one is read in a thread."""
        body = await request.body()
        if len(body) <= _READ_AT_ONCE_BYTES_MAX:
            return message_in(body, record)
        return await self._context.run(message_in, body, record)

    def _admit(self, request: Request) -> None:
        """Refuse nobody's request, in etcd's words."""
        if caller_of(request) is not None:
            return
        if not request.headers.get("authorization"):
            raise CallFailure(GrpcStatus.INVALID_ARGUMENT, "etcdserver: user name is empty")
        raise CallFailure(GrpcStatus.UNAUTHENTICATED, "etcdserver: invalid auth token")

    # ---- streams --------------------------------------------------------------------------------------------------------

    async def keep_alive(self, request: Request) -> Response:
        """Renew leases: one line of answer for each message."""
        try:
            self._admit(request)
            messages = await self._context.run(messages_in, await request.body(), RECORDS.LeaseKeepAliveRequest)
            answers = [await self._context.run(self._ready().keep_alive, message) for message in messages]
        except CallFailure as failure:
            return _failed(failure)
        except KeyplanError as error:
            return _failed(failure_of(error))
        lines = b"".join(map(_line, answers))
        return Response(lines, media_type="application/json", headers=_HEADERS)

    async def watch(self, request: Request) -> Response:
        """Watch: a line that it was made, then a line for each batch of events, until the client goes."""
        try:
            self._admit(request)
            # Why the first alone: over HTTP a client says nothing more once the answer has begun.
            created = (await self._message(request, RECORDS.WatchRequest)).create_request
            if created is None:
                raise CallFailure(GrpcStatus.INVALID_ARGUMENT, "etcdserver: a watch needs a create_request")
            selection = Selection(created)
        except CallFailure as failure:
            return _failed(failure)
        return StreamingResponse(self._lines(selection), media_type="application/json", headers=_HEADERS)

    async def _lines(self, selection: Selection) -> AsyncIterator[bytes]:
        stream: Stream | None = None
        calls = self._ready()
        try:
            try:
                stream, revision, past = await self._hub.open(selection)
            except HistoryCompactedError as error:
                revision = await self._context.read(lambda: calls.revision)
                yield _line(RECORDS.WatchResponse(header=calls.header(revision), created=True))
                yield _line(_compacted(calls.header(revision), error))
                return
            except KeyplanError as error:
                yield json.encode(failure_of(error).stream_body) + b"\n"
                return
            yield _line(RECORDS.WatchResponse(header=calls.header(revision), created=True))
            if past:
                yield _line(RECORDS.WatchResponse(header=calls.header(stream.after), events=past))
            while (batch := await stream.next_batch(self._progress_seconds)) is not None:
                events, reached = batch
                if events:
                    yield _line(RECORDS.WatchResponse(header=calls.header(reached), events=events))
                elif selection.has_progress:
                    yield _line(RECORDS.WatchResponse(header=calls.header(reached)))
            if isinstance(stream.error, HistoryCompactedError):
                yield _line(_compacted(calls.header(stream.after), stream.error))
            elif stream.error is not None:
                yield json.encode(failure_of(stream.error).stream_body) + b"\n"
        finally:
            if stream is not None:
                self._hub.leave(stream)


def _compacted(header: Any, error: HistoryCompactedError) -> Any:
    compacted = error.facts["compacted_revision"]
    return RECORDS.WatchResponse(header=header, canceled=True, compact_revision=compacted)


def _line(result: Any) -> bytes:
    return b'{"result":' + encoded(result) + b"}\n"


def _answered(answer: Any) -> Response:
    return Response(encoded(answer), media_type="application/json", headers=_HEADERS)


def _failed(failure: CallFailure) -> Response:
    return Response(json.encode(failure.body), failure.status, media_type="application/json")


def _with_token(scope: Scope, token: str) -> Scope:
    """Return the request as one that carries this token in the form that the server knows."""
    changed = dict(scope)
    changed["headers"] = list(scope["headers"])
    MutableHeaders(scope=changed)["authorization"] = f"Bearer {token.removeprefix('Bearer ')}"
    return changed
