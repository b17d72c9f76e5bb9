"""The synchronous transport: grpcio, one channel for each endpoint. A stream has a thread that reads ahead, a little."""

from collections.abc import Callable, Iterator
from queue import Empty, SimpleQueue
from threading import Event, Lock, Semaphore, Thread
from typing import Any, Final

import grpc

from keyplan.engine.etcd.options import EtcdOptions
from keyplan.engine.etcd.transport import Message, Metadata, Method, Stream, TransportError

__all__ = ["CHANNEL_OPTIONS", "GrpcTransport", "channel_options", "credentials_of", "transport_error"]

CHANNEL_OPTIONS: Final = (
    # Why unlimited: a page is bounded by the client, but one revision's events come whole.
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # Why: etcd refuses pings that come more often than every five seconds. A halted server is noticed after 15 s at most.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # Why: what is tried again is decided by the client, which knows what may be.
    ("grpc.enable_retries", 0),
    # Why: a proxy for the web knows nothing of a cluster's own network.
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
)

_PREFETCHED_MAX: Final = 16
"""Responses that a stream reads ahead. Why few: what the watcher has not taken shall wait at the server."""

_UNSENT: Final = "failed to connect to all addresses"
"""How gRPC begins when a call found no connection: it was never sent."""


def channel_options(options: EtcdOptions) -> list[tuple[str, Any]]:
    """Return the options of a channel."""
    named = [] if options.server_name is None else [("grpc.ssl_target_name_override", options.server_name)]
    return [*CHANNEL_OPTIONS, *named]


def credentials_of(options: EtcdOptions) -> grpc.ChannelCredentials | None:
    """Return what a channel needs for TLS, None without it."""
    if not options.has_tls:
        return None
    return grpc.ssl_channel_credentials(
        root_certificates=options.ca, private_key=options.key, certificate_chain=options.cert
    )


def transport_error(error: Exception) -> TransportError:
    """Return what a failure of grpcio means here. A channel that was closed under a call raises ValueError."""
    if isinstance(error, grpc.RpcError):
        call: Any = error  # Why: grpcio's two kinds of call raise what has `code` and `details`, by no common class
        said = str(call.details() or "")
        name = str(call.code().name)
        return TransportError(name, said, is_unsent=name == "UNAVAILABLE" and said.startswith(_UNSENT))
    return TransportError("CANCELLED", str(error), is_unsent=isinstance(error, ValueError))


class GrpcTransport:
    """Calls by grpcio that block their thread."""

    def __init__(self, options: EtcdOptions) -> None:
        self._options = channel_options(options)
        self._credentials = credentials_of(options)
        self._lock = Lock()  # Invariant: held for looking up and making channels, never over a call.
        self._channels: dict[str, grpc.Channel] = {}
        self._callables: dict[tuple[str, str], Callable[..., Message]] = {}
        self._streams: set[_GrpcStream] = set()
        self._closed = Event()

    def call(
        self, endpoint: str, method: Method, request: Message, *, timeout_seconds: float, metadata: Metadata
    ) -> Message:
        callable_ = self._callables.get((endpoint, method.path)) or self._callable(endpoint, method)
        try:
            return callable_(request, timeout=timeout_seconds, metadata=metadata)
        except (grpc.RpcError, ValueError) as error:
            raise transport_error(error) from error

    def _callable(self, endpoint: str, method: Method) -> Callable[..., Message]:
        made: Callable[..., Message] = self._channel(endpoint).unary_unary(
            method.path,
            request_serializer=method.request.SerializeToString,
            response_deserializer=method.response.FromString,
        )
        self._callables[endpoint, method.path] = made
        return made

    def _channel(self, endpoint: str) -> grpc.Channel:
        with self._lock:
            if self._closed.is_set():
                raise TransportError("CANCELLED", "the transport was closed", is_unsent=True)
            channel = self._channels.get(endpoint)
            if channel is None:
                if self._credentials is None:
                    channel = grpc.insecure_channel(endpoint, self._options)
                else:
                    channel = grpc.secure_channel(endpoint, self._credentials, self._options)
                self._channels[endpoint] = channel
            return channel

    def stream(self, endpoint: str, method: Method, *, metadata: Metadata) -> Stream:
        made = _GrpcStream(self._channel(endpoint), method, metadata, self._streams.discard)
        self._streams.add(made)
        if self._closed.is_set():
            made.close()
        return made

    def wait(self, seconds: float) -> None:
        self._closed.wait(seconds)

    def close(self) -> None:
        with self._lock:
            self._closed.set()
            channels = list(self._channels.values())
        for stream in list(self._streams):
            stream.close()
        for channel in channels:
            channel.close()


class _GrpcStream:
    """Requests go through a queue that gRPC's own thread empties; responses come from a thread that needs a permit for each."""

    def __init__(
        self, channel: grpc.Channel, method: Method, metadata: Metadata, forget: "Callable[[_GrpcStream], object]"
    ) -> None:
        self._requests: SimpleQueue[Message | None] = SimpleQueue()
        self._responses: SimpleQueue[Message | TransportError] = SimpleQueue()
        self._permits = Semaphore(_PREFETCHED_MAX)
        self._forget = forget
        open_stream = channel.stream_stream(
            method.path,
            request_serializer=method.request.SerializeToString,
            response_deserializer=method.response.FromString,
        )
        try:
            self._call: Any = open_stream(iter(self._requests.get, None), metadata=metadata)
        except ValueError as error:
            raise transport_error(error) from error
        Thread(target=self._read, args=(iter(self._call),), name="keyplan-etcd-stream", daemon=True).start()

    def _read(self, responses: Iterator[Message]) -> None:
        failure = TransportError("UNAVAILABLE", "the server ended the stream")
        try:
            while True:
                self._permits.acquire()
                self._responses.put(next(responses))
        except StopIteration:
            pass
        except (grpc.RpcError, ValueError) as error:
            failure = transport_error(error)
        finally:
            # Why whatever is raised: who receives would wait for a thread that is gone.
            self._responses.put(failure)
            self._requests.put(None)
            self._forget(self)

    def send(self, request: Message) -> None:
        self._requests.put(request)

    def receive(self, timeout_seconds: float) -> Message | None:
        try:
            response = self._responses.get(timeout=max(timeout_seconds, 0))
        except Empty:
            return None
        if isinstance(response, TransportError):
            self._responses.put(response)
            raise response
        self._permits.release()
        return response

    def close(self) -> None:
        self._call.cancel()
        self._requests.put(None)
        self._permits.release()
