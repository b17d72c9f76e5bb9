"""The streams of JSON: over HTTP a client says nothing more once the answer has begun, and each answer is a line."""

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

from msgspec import json
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from keyplan.errors import KeyplanError
from keyplan.grpc_status import GrpcStatus
from keyplan.server.etcd_v3.endpoint import Endpoint, body_of
from keyplan.server.etcd_v3.failures import CallFailure, failure_of
from keyplan.server.etcd_v3.forms import JSON_HEADERS
from keyplan.server.etcd_v3.messages import RECORDS, encoded, messages_in
from keyplan.server.etcd_v3.watch_answers import WatchAnswers
from keyplan.server.etcd_v3.watching import Selection, Unread, Watches
from keyplan.server.service import ServiceContext

__all__ = ["JsonStreams"]


class JsonStreams:
    """Watches and renewals of leases, as Starlette's functions."""

    def __init__(
        self, context: ServiceContext, watches: Watches, endpoint: Endpoint, *, progress_seconds: float
    ) -> None:
        self._context = context
        self._watches = watches
        self._endpoint = endpoint
        self._progress_seconds = progress_seconds

    async def keep_alive(self, request: Request) -> Response:
        """Renew leases: one line of answer for each message."""
        try:
            calls = self._endpoint.calls_on(await self._endpoint.store_of(request))
            messages = await self._context.run(messages_in, await body_of(request), RECORDS.LeaseKeepAliveRequest)
            answers = [await self._context.run(calls.keep_alive, message) for message in messages]
        except CallFailure as failure:
            return self._endpoint.form.failed(failure)
        except KeyplanError as error:
            return self._endpoint.form.failed(failure_of(error))
        lines = b"".join(map(_line, answers))
        return Response(lines, media_type="application/json", headers=JSON_HEADERS)

    async def watch(self, request: Request) -> Response:
        """Watch: a line that it was made, then a line for each batch of events, until the client goes."""
        try:
            store = await self._endpoint.store_of(request)
            # Why the first alone: of what follows it nothing is read.
            created = (await self._endpoint.message_of(request, RECORDS.WatchRequest)).create_request
            if created is None:
                raise CallFailure(GrpcStatus.INVALID_ARGUMENT, "etcdserver: a watch needs a create_request")
            selection = Selection(created)
        except CallFailure as failure:
            return self._endpoint.form.failed(failure)
        except KeyplanError as error:
            return self._endpoint.form.failed(failure_of(error))
        calls = self._endpoint.calls_on(store)
        spoken = WatchAnswers(self._context, self._watches, store, calls, progress_seconds=self._progress_seconds)
        return StreamingResponse(_lines(spoken, selection), media_type="application/json", headers=JSON_HEADERS)


async def _lines(spoken: WatchAnswers, selection: Selection) -> AsyncIterator[bytes]:
    try:
        opened = await spoken.open(selection, Unread())
        try:
            for answer in opened.created:
                yield _line(answer)
            if opened.is_open:
                async with aclosing(spoken.answers(opened)) as answers:
                    async for answer in answers:
                        yield _line(answer)
        finally:
            opened.close()
    except CallFailure as failure:
        yield json.encode(failure.stream_body) + b"\n"


def _line(result: Any) -> bytes:
    return b'{"result":' + encoded(result) + b"}\n"
