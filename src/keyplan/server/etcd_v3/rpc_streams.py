"""The streams of gRPC: renewals of leases, and a conversation about any number of watches."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import aclosing, suppress
from typing import Any, Final, NamedTuple, NoReturn, Protocol

from starlette.requests import Request
from starlette.responses import Response

from keyplan.errors import KeyplanError
from keyplan.grpc_status import GrpcStatus
from keyplan.server.answers import AnswerError
from keyplan.server.etcd_v3.endpoint import Endpoint
from keyplan.server.etcd_v3.failures import CallFailure, failure_of
from keyplan.server.etcd_v3.messages import RECORDS
from keyplan.server.etcd_v3.watch_answers import OpenedWatch, WatchAnswers
from keyplan.server.etcd_v3.watching import Selection, Unread, Watches
from keyplan.server.holding import holding_of_request
from keyplan.server.places import Full, Places
from keyplan.server.rpc import RpcEndedError, RpcStream, Say, messages_of, status_of_http
from keyplan.server.service import ServiceContext

__all__ = ["RpcStreams"]

_FRAGMENT_BYTES_MAX: Final = 1 << 20
"""Of events in one answer to a watch that asked for parts. Why: what a client takes is what it may send, by default."""

_PROGRESS_SECONDS_MAX: Final = 5.0
_STOPPED: Final = "etcdserver: server stopped"
_DUPLICATE: Final = "mvcc: duplicate watch ID provided on the WatchStream"


class RpcStreams:
    """Watches and renewals of leases, as functions of requests that came over gRPC."""

    def __init__(
        self, context: ServiceContext, watches: Watches, endpoint: Endpoint, *, progress_seconds: float
    ) -> None:
        self._context = context
        self._watches = watches
        self._endpoint = endpoint
        self._progress_seconds = progress_seconds
        bounds = context.edge.bounds
        # Why the numbers of connections: over HTTP each stream is one, and each watch.
        self._streams = Places(bounds.connections_of_all, bounds.of_one_address)
        self._places = Places(bounds.connections_of_all, bounds.of_one_address)

    async def keep_alive(self, request: Request) -> Response:
        """Renew leases: an answer for each message, as they come."""

        async def talk(say: Say) -> None:
            async for raw in messages_of(request):
                message = self._endpoint.form.read(raw, RECORDS.LeaseKeepAliveRequest)
                calls = self._endpoint.calls_on(await self._endpoint.store_of(request))
                await say(self._endpoint.form.write(await self._context.run(calls.keep_alive, message)))

        return await self._stream(request, talk)

    async def watch(self, request: Request) -> Response:
        """Watch: what is asked for is begun and ended as it is asked, until the client goes."""

        async def talk(say: Say) -> None:
            await _Conversation(self, request, say).held(messages_of(request))

        return await self._stream(request, talk)

    async def _stream(self, request: Request, talk: "_Talk") -> Response:
        """Return the answer that talks, in a place of its caller's; or a failure, where there is nobody or no place."""
        try:
            await self._endpoint.store_of(request)
        except CallFailure as failure:
            return self._endpoint.form.failed(failure)
        except KeyplanError as error:
            return self._endpoint.form.failed(failure_of(error))

        async def in_its_place(say: Say) -> None:
            try:
                with self._streams.held(_who(), _too_many_streams):
                    await self._until_closing(talk(say))
            except CallFailure as failure:
                _end(failure)
            except KeyplanError as error:
                _end(failure_of(error))
            except AnswerError as error:
                raise RpcEndedError(status_of_http(error.status), f"keyplan: {error.message}") from error

        return RpcStream(in_its_place)

    async def _until_closing(self, talk: Coroutine[Any, Any, None]) -> None:
        """Let it talk until the server begins to stop, which waits for its calls. Raises CallFailure then."""
        talking = asyncio.create_task(talk)
        closing = asyncio.create_task(self._context.closing.wait())
        try:
            await asyncio.wait((talking, closing), return_when=asyncio.FIRST_COMPLETED)
            if not talking.done():
                raise CallFailure(GrpcStatus.UNAVAILABLE, _STOPPED)
            await talking
        finally:
            talking.cancel()
            closing.cancel()
            await asyncio.gather(talking, closing, return_exceptions=True)

    async def answers_for(self, request: Request) -> WatchAnswers:
        """Return what opens watches for who asks, on what they may see now. Raises CallFailure, KeyplanError."""
        store = await self._endpoint.store_of(request)
        calls = self._endpoint.calls_on(store)
        return WatchAnswers(self._context, self._watches, store, calls, progress_seconds=self._progress_seconds)

    def take_place(self) -> str:
        """Take a place for a watch of who asks; return why there is none, empty when it is taken."""
        full = self._places.take(_who())
        if full is None:
            return ""
        number = self._places.of_one if full is Full.OF_ONE else self._places.of_all
        whose = "you have" if full is Full.OF_ONE else "all callers have"
        return f"keyplan: {whose} {number} watches, as many as there may be: cancel some"

    def leave_place(self) -> None:
        """Give it back."""
        self._places.leave(_who())

    def read(self, raw: bytes) -> Any:
        """Return what a client says. Raises CallFailure."""
        return self._endpoint.form.read(raw, RECORDS.WatchRequest)

    def written(self, answer: Any) -> bytes:
        """Return an answer's bytes."""
        return self._endpoint.form.write(answer)


class _Talk(Protocol):
    """Speaks on a stream until its end."""

    def __call__(self, say: Say) -> Coroutine[Any, Any, None]:
        """Speak."""
        ...


class _Watched(NamedTuple):
    """A watch that is open, with the task that tells what it answers."""

    opened: OpenedWatch
    telling: asyncio.Task[None]


class _Conversation:
    """One client's watches on one stream. What is asked is done in the order asked: clients count on it."""

    def __init__(self, streams: RpcStreams, request: Request, say: Say) -> None:
        self._streams = streams
        self._request = request
        self._say = say
        self._open: dict[int, _Watched] = {}
        self._next_id = 0
        self._unread = Unread()
        self._asked_for_progress: asyncio.Task[None] | None = None

    async def held(self, messages: AsyncIterator[bytes]) -> None:
        """Hold it until the client goes, or a watch ends all. Raises CallFailure."""
        try:
            async with asyncio.TaskGroup() as group:
                async for raw in messages:
                    await self._do(self._streams.read(raw), group)
        except ExceptionGroup as errors:
            raise _first_of(errors) from errors

    async def _do(self, asked: Any, group: asyncio.TaskGroup) -> None:
        if asked.create_request is not None:
            await self._create(asked.create_request, group)
        elif asked.cancel_request is not None:
            await self._cancel(asked.cancel_request.watch_id)
        elif asked.progress_request is not None and (
            self._asked_for_progress is None or self._asked_for_progress.done()
        ):
            self._asked_for_progress = group.create_task(self._tell_progress())

    async def _create(self, request: Any, group: asyncio.TaskGroup) -> None:
        answers = await self._streams.answers_for(self._request)
        selection = Selection(request)
        if selection.watch_id in self._open and request.watch_id:
            opened = await answers.refused(_DUPLICATE)
        elif problem := self._streams.take_place():
            opened = await answers.refused(problem)
        else:
            opened = await self._begun(answers, selection)
        await self._say(*map(self._streams.written, opened.created))
        if opened.is_open:
            telling = group.create_task(self._tell(selection, opened, answers))
            self._open[selection.watch_id] = _Watched(opened, telling)

    async def _begun(self, answers: WatchAnswers, selection: Selection) -> OpenedWatch:
        if not selection.watch_id:
            while self._next_id in self._open:
                self._next_id += 1
            selection.watch_id = self._next_id
        try:
            opened = await answers.open(selection, self._unread)
        except BaseException:
            self._streams.leave_place()
            raise
        if not opened.is_open:
            self._streams.leave_place()
        if selection.watch_id == self._next_id and not selection.is_empty:
            self._next_id += 1
        return opened

    async def _tell(self, selection: Selection, opened: OpenedWatch, answers: WatchAnswers) -> None:
        """Tell what a watch answers, until its end."""
        try:
            async with aclosing(answers.answers(opened)) as told:
                async for answer in told:
                    parts = _fragments(answer) if selection.is_fragmented else [answer]
                    await self._say(*map(self._streams.written, parts))
            if selection.watch_id in self._open and opened.is_abandoned:
                # Why of all: clients begin every watch of a stream again where it was, when that ends so.
                raise CallFailure(GrpcStatus.UNAVAILABLE, "keyplan: the watch has to be begun again")
        finally:
            opened.close()
            self._streams.leave_place()
            self._open.pop(selection.watch_id, None)

    async def _cancel(self, watch_id: int) -> None:
        """End a watch, and say so; of one that is not there nothing is said, as by etcd."""
        found = self._open.pop(watch_id, None)
        if found is None or found.opened.stream is None:
            return
        # Why not cancelled: what is being sent is sent whole, and nothing of it comes behind the answer.
        found.opened.stream.end()
        await asyncio.wait([found.telling])
        answers = await self._streams.answers_for(self._request)
        told = answers.answer(await answers.revision(), watch_id, canceled=True)
        await self._say(self._streams.written(told))

    async def _tell_progress(self) -> None:
        """Tell up to where all watches have been told everything, once that is where the store is now."""
        answers = await self._streams.answers_for(self._request)
        now = await answers.revision()
        told = [one.opened.stream for one in self._open.values() if one.opened.stream is not None]
        with suppress(TimeoutError):
            async with asyncio.timeout(_PROGRESS_SECONDS_MAX):
                for stream in told:
                    await stream.reach(now)
        # Invariant: what was told up to there is being sent already, and comes before this.
        reached = min((stream.reached for stream in told), default=now)
        await self._say(self._streams.written(answers.answer(min(reached, now), -1)))


def _fragments(answer: Any) -> list[Any]:
    """Return an answer in parts that are not too large; all but the last say that more follows."""
    parts: list[list[Any]] = [[]]
    size = 0
    for event in answer.events:
        more = sum(len(one.key) + len(one.value) for one in (event.kv, event.prev_kv) if one is not None)
        if parts[-1] and size + more > _FRAGMENT_BYTES_MAX:
            parts.append([])
            size = 0
        parts[-1].append(event)
        size += more
    if len(parts) == 1:
        return [answer]
    last = len(parts) - 1
    return [
        RECORDS.WatchResponse(header=answer.header, watch_id=answer.watch_id, events=events, fragment=number < last)
        for number, events in enumerate(parts)
    ]


def _first_of(errors: ExceptionGroup[Exception]) -> Exception:
    first = errors.exceptions[0]
    return _first_of(first) if isinstance(first, ExceptionGroup) else first


def _who() -> str:
    holding = holding_of_request()
    return "" if holding is None else holding.who


def _too_many_streams(full: Full) -> CallFailure:
    whose = "you have" if full is Full.OF_ONE else "all callers have"
    return CallFailure(
        GrpcStatus.RESOURCE_EXHAUSTED, f"keyplan: {whose} as many streams as there may be: use one for several watches"
    )


def _end(failure: CallFailure) -> NoReturn:
    raise RpcEndedError(failure.code, failure.message) from failure
