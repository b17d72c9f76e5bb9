"""From gRPC to the calls and back: bytes to messages, errors to statuses. Whatever a client sends gets an answer here."""

import hashlib
import hmac
from collections.abc import Callable, Iterator, Mapping, Sequence
from threading import BoundedSemaphore, Event
from typing import Any, Final, NoReturn

import grpc
from google.protobuf.message import DecodeError

from keyplan.apps.runm import definition_calls, front_calls, object_calls, partition_calls, type_calls
from keyplan.apps.runm.deployment import Deployment
from keyplan.apps.runm.logs import LOGGER
from keyplan.apps.runm.refusal import RefusedError, invalid
from keyplan.apps.runm.watching import object_watch
from keyplan.apps.runm.wire_table import RUNM, messages
from keyplan.errors import KeyplanError
from keyplan.grpc_status import GrpcStatus
from keyplan.protobuf import Method
from keyplan.server import Token

__all__ = ["WATCHES_MAX", "WORKERS", "Dispatcher"]

WORKERS: Final = 64
"""Threads that answer calls. Why: commits of many threads share flushes, and a watch keeps one."""

WATCHES_MAX: Final = 24
"""Watches at once. Why: the other threads must stay free for calls that end."""

_TEXT_MAX: Final = 1_000
"""Characters of a status's text. Why: it travels in a header, and clients refuse long ones; some texts quote a name."""

_MODULES: Final = {
    "RunmMetadata": (partition_calls, type_calls, object_calls, definition_calls),
    "RunmAPI": (front_calls,),
}
_WATCH: Final = "object_watch"

_STATUS_CODES: Final[Mapping[int, grpc.StatusCode]] = {code.value[0]: code for code in grpc.StatusCode}

Handle = Callable[[Deployment, Any], Any]


class Dispatcher:
    """The handlers of both services for one deployment. `closing` ends streams that would not end by themselves."""

    def __init__(self, deployment: Deployment, closing: Event, tokens: Sequence[Token] = ()) -> None:
        self._deployment = deployment
        self._closing = closing
        self._tokens = tokens
        self._watches = BoundedSemaphore(WATCHES_MAX)

    def handlers(self) -> "list[grpc.GenericRpcHandler[bytes, bytes]]":
        """Return what a grpc server is given: one handler for each service, bytes in and bytes out."""
        return [
            grpc.method_handlers_generic_handler(
                RUNM.full_name(service), {call.name: self._handler(service, call) for call in calls}
            )
            for service, calls in RUNM.services.items()
        ]

    def _handler(self, service: str, call: Method) -> "grpc.RpcMethodHandler[bytes, bytes]":
        request_class = getattr(messages, call.request)
        if call.name == _WATCH:
            return grpc.unary_stream_rpc_method_handler(self._watching(request_class))
        handle = _handle_named(service, call.name)
        if call.is_stream:
            return grpc.unary_stream_rpc_method_handler(self._streaming(request_class, handle))
        return grpc.unary_unary_rpc_method_handler(self._answering(request_class, handle))

    # ---- the three kinds of calls ---------------------------------------------------------------------------------------

    def _answering(self, request_class: Any, handle: Handle) -> Callable[[bytes, grpc.ServicerContext], bytes]:
        def answer(raw: bytes, context: grpc.ServicerContext) -> bytes:
            try:
                self._require_token(context)
                message: bytes = handle(self._deployment, _parsed(request_class, raw)).SerializeToString()
            except Exception as error:  # noqa: BLE001  # Why: the outermost place; what nobody foresaw is logged there.
                return _abort(context, error)
            return message

        return answer

    def _streaming(
        self, request_class: Any, handle: Handle
    ) -> Callable[[bytes, grpc.ServicerContext], Iterator[bytes]]:
        return self._stream(request_class, lambda request, _context: handle(self._deployment, request))

    def _watching(self, request_class: Any) -> Callable[[bytes, grpc.ServicerContext], Iterator[bytes]]:
        def watch(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
            if not self._watches.acquire(blocking=False):
                raise RefusedError(GrpcStatus.RESOURCE_EXHAUSTED, f"there are {WATCHES_MAX} watches already.")
            try:
                yield from object_watch(
                    self._deployment, request, lambda: context.is_active() and not self._closing.is_set()
                )
            finally:
                self._watches.release()

        return self._stream(request_class, watch)

    def _stream(
        self, request_class: Any, messages_of: Callable[[Any, grpc.ServicerContext], Iterator[Any]]
    ) -> Callable[[bytes, grpc.ServicerContext], Iterator[bytes]]:
        def stream(raw: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
            try:
                self._require_token(context)
                for message in messages_of(_parsed(request_class, raw), context):
                    yield message.SerializeToString()
            except Exception as error:  # noqa: BLE001  # Why: as above.
                _abort(context, error)

        return stream

    def _require_token(self, context: grpc.ServicerContext) -> None:
        if not self._tokens:
            return
        given = dict(context.invocation_metadata() or ()).get("authorization", "")
        text = given if isinstance(given, str) else given.decode("latin-1")
        scheme, _, token = text.partition(" ")
        digest = hashlib.sha256(token.strip().encode()).digest()
        # Invariant: every token is compared, so that the time tells nothing.
        is_known = [hmac.compare_digest(known.digest, digest) for known in self._tokens]
        if scheme.lower() != "bearer" or not any(is_known):
            raise RefusedError(GrpcStatus.UNAUTHENTICATED, "a token is needed, or the one given is not known.")


def _handle_named(service: str, name: str) -> Handle:
    (handle,) = (getattr(module, name) for module in _MODULES[service] if hasattr(module, name))
    found: Handle = handle
    return found


def _parsed(request_class: Any, raw: bytes) -> Any:
    try:
        return request_class.FromString(raw)
    except DecodeError as error:
        raise invalid("the request is no message of this call.") from error


def _abort(context: grpc.ServicerContext, error: Exception) -> NoReturn:
    """End a call with the status that an error stands for."""
    if isinstance(error, RefusedError):
        status, text = error.status, error.text
    elif isinstance(error, KeyplanError):
        status, text = error.grpc_status, f"{error.summary}."
        LOGGER.warning("%s: %s", error.code, error)
    else:
        status, text = GrpcStatus.INTERNAL, "the server failed; its log says more."
        LOGGER.error("a call failed", exc_info=error)
    context.abort(_STATUS_CODES[status], text[:_TEXT_MAX])
