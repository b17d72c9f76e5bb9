"""The asynchronous transport: grpc.aio, one channel for each endpoint, on one event loop. A stream has a task that reads ahead.

Whoever opens the engine hands in how plain code waits for something awaitable; the engine's code need not know. A call that is
cancelled is cancelled at the server, too.
"""

from asyncio import CancelledError, Event, Task, current_task, gather, get_running_loop, sleep, timeout
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final

import grpc.aio

from keyplan.engine.etcd.engine import EtcdEngine
from keyplan.engine.etcd.grpc_transport import channel_options, credentials_of, transport_error
from keyplan.engine.etcd.options import EtcdOptions, options_of
from keyplan.engine.etcd.transport import Message, Metadata, Method, Stream, TransportError
from keyplan.engine.interface import Engine
from keyplan.engine.url import EngineUrl

__all__ = ["AioTransport", "AwaitingEtcdEngine", "open_awaiting"]

Wait = Callable[[Awaitable[Any]], Any]
"""Waits for something awaitable, and returns its result or raises its error."""

_PREFETCHED_MAX: Final = 16
"""Responses that a stream reads ahead. Why few: what the watcher has not taken shall wait at the server."""


_END: Final[object] = vars(grpc.aio)["EOF"]
"""What a stream that has ended is read as. Why so: the stubs of grpcio do not know the name."""


class AwaitingEtcdEngine(EtcdEngine):
    """The etcd engine whose calls await: for plain code that an event loop drives, as `wait` knows to."""

    def __init__(self, options: EtcdOptions, wait: Wait) -> None:
        super().__init__(options, partial(AioTransport, wait=wait))
        self._profile = replace(self._profile, is_awaiting=True)


def open_awaiting(url: EngineUrl, wait: Wait) -> Engine:
    """Open `etcd://...` on the event loop that runs, from code that may `wait`."""
    return AwaitingEtcdEngine(options_of(url), wait)


def _lost(problem: str) -> TransportError:
    return TransportError("CANCELLED", problem)


class AioTransport:
    """Calls by grpc.aio that give way to the event loop."""

    def __init__(self, options: EtcdOptions, *, wait: Wait) -> None:
        self._wait = wait
        self._options = channel_options(options)
        self._credentials = credentials_of(options)
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._callables: dict[tuple[str, str], Callable[..., Awaitable[Message]]] = {}
        self._streams: set[_AioStream] = set()
        self._closed = Event()

    def call(
        self, endpoint: str, method: Method, request: Message, *, timeout_seconds: float, metadata: Metadata
    ) -> Message:
        make = self._callables.get((endpoint, method.path)) or self._callable(endpoint, method)
        try:
            answer: Message = self._wait(make(request, timeout=timeout_seconds, metadata=metadata))
        except (grpc.RpcError, grpc.aio.UsageError, ValueError) as error:
            raise transport_error(error) from error
        except CancelledError:
            # Trap: closing the channel raises this in whoever waits, although nobody has cancelled his task.
            task = current_task()
            if self._closed.is_set() and task is not None and not task.cancelling():
                raise _lost("the transport was closed") from None
            raise
        return answer

    def _callable(self, endpoint: str, method: Method) -> Callable[..., Awaitable[Message]]:
        made: Callable[..., Awaitable[Message]] = self._channel(endpoint).unary_unary(
            method.path,
            request_serializer=method.request.SerializeToString,
            response_deserializer=method.response.FromString,
        )
        self._callables[endpoint, method.path] = made
        return made

    def _channel(self, endpoint: str) -> grpc.aio.Channel:
        if self._closed.is_set():
            raise TransportError("CANCELLED", "the transport was closed", is_unsent=True)
        channel = self._channels.get(endpoint)
        if channel is None:
            if self._credentials is None:
                channel = grpc.aio.insecure_channel(endpoint, self._options)
            else:
                channel = grpc.aio.secure_channel(endpoint, self._credentials, self._options)
            self._channels[endpoint] = channel
        return channel

    def stream(self, endpoint: str, method: Method, *, metadata: Metadata) -> Stream:
        made = _AioStream(self._channel(endpoint), method, metadata, self._streams.discard, self._wait)
        self._streams.add(made)
        return made

    def wait(self, seconds: float) -> None:
        self._wait(_rung(self._closed, seconds))

    def close(self) -> None:
        self._closed.set()
        self._wait(self._end())

    async def _end(self) -> None:
        streams = list(self._streams)
        for stream in streams:
            stream.close()
        await gather(*(stream.ended() for stream in streams))
        for channel in self._channels.values():
            await channel.close(None)


async def _rung(event: Event, timeout_seconds: float) -> None:
    """Wait for the event, at most so long, and in any case let others run once."""
    if timeout_seconds <= 0:
        await sleep(0)
        return
    # Trap: on Python 3.11, wait_for swallows a cancellation that comes together with the event.
    with suppress(TimeoutError):
        async with timeout(timeout_seconds):
            await event.wait()


class _AioStream:
    """Requests are taken from a queue by gRPC, responses are put into one by a task."""

    def __init__(
        self,
        channel: grpc.aio.Channel,
        method: Method,
        metadata: Metadata,
        forget: "Callable[[_AioStream], object]",
        wait: Wait,
    ) -> None:
        self._wait = wait
        self._requests: deque[Message] = deque()
        self._responses: deque[Message] = deque()
        self._asked, self._arrived, self._room = Event(), Event(), Event()
        self._failure: TransportError | None = None
        self._is_closed = False
        open_stream = channel.stream_stream(
            method.path,
            request_serializer=method.request.SerializeToString,
            response_deserializer=method.response.FromString,
        )
        self._call: Any = open_stream(self._sent(), metadata=metadata)
        self._reader: Task[None] = get_running_loop().create_task(self._read(), name="keyplan-etcd-stream")
        self._reader.add_done_callback(lambda _: forget(self))

    async def _sent(self) -> AsyncIterator[Message]:
        while not self._is_closed:
            while self._requests:
                yield self._requests.popleft()
            self._asked.clear()
            await self._asked.wait()

    async def _read(self) -> None:
        failure = TransportError("UNAVAILABLE", "the server ended the stream")
        try:
            while (response := await self._call.read()) is not _END:
                self._responses.append(response)
                self._arrived.set()
                while len(self._responses) >= _PREFETCHED_MAX:
                    self._room.clear()
                    await self._room.wait()
        except (grpc.RpcError, grpc.aio.UsageError, ValueError) as error:
            failure = transport_error(error)
        except CancelledError:
            failure = _lost("the stream was closed")
        self._failure = failure
        self._arrived.set()

    def send(self, request: Message) -> None:
        self._requests.append(request)
        self._asked.set()

    def receive(self, timeout_seconds: float) -> Message | None:
        if not self._responses and self._failure is None:
            self._arrived.clear()
            self._wait(_rung(self._arrived, timeout_seconds))
        if self._responses:
            self._room.set()
            return self._responses.popleft()
        if self._failure is not None:
            raise self._failure
        return None

    def close(self) -> None:
        self._is_closed = True
        self._call.cancel()
        self._asked.set()
        self._reader.cancel()

    async def ended(self) -> None:
        """Wait until the task of a stream that was closed has ended."""
        with suppress(CancelledError):
            await self._reader
