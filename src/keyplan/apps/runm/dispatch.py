"""From gRPC to the calls and back: bytes to messages, errors to statuses. Whatever a client sends gets an answer here."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from operator import methodcaller
from threading import Event
from typing import Any, Final, NoReturn

import grpc
from google.protobuf.message import DecodeError

from keyplan.access import LOOK_SECONDS
from keyplan.apps.runm import definition_calls, front_calls, object_calls, partition_calls, type_calls, watching
from keyplan.apps.runm.authorizer import Admission, Authorizer
from keyplan.apps.runm.bounds import Bounds
from keyplan.apps.runm.call_pool import CallPool
from keyplan.apps.runm.calls import Handler, Performer, Short, handlers_of, performer
from keyplan.apps.runm.deployment import Deployment
from keyplan.apps.runm.figures import Figures
from keyplan.apps.runm.logs import CALL, LOGGER
from keyplan.apps.runm.operations import ApiOperations, MetadataOperations
from keyplan.apps.runm.refusal import RefusedError, denied, invalid
from keyplan.apps.runm.refusal_log import REFUSALS, Refusals
from keyplan.apps.runm.watch_places import WatchPlaces
from keyplan.apps.runm.wire_table import RUNM, messages
from keyplan.audit_log import Asker
from keyplan.engine import Clock
from keyplan.errors import KeyplanError
from keyplan.grpc_status import GrpcStatus
from keyplan.operations import Rpc
from keyplan.server import ServiceAudit, note_answer

__all__ = ["READERS", "STATUS_CODES", "WORKERS", "Dispatcher"]

WORKERS: Final = 64
"""Threads that answer calls. Why: commits of many threads share flushes, and a watch keeps one."""

READERS: Final = 2
"""Threads that answer calls with a short way where reads wait for nothing. Why so few: more wait for the interpreter's lock."""

_TEXT_MAX: Final = 1_000
"""Characters of a status's text. Why: it travels in a header, and clients refuse long ones; some texts quote a name."""

_HANDLERS: Final = {
    interface: handlers_of(interface, modules)
    for interface, modules in (
        (MetadataOperations, (partition_calls, type_calls, object_calls, definition_calls, watching)),
        (ApiOperations, (front_calls,)),
    )
}

_spelled: Final[Callable[[Any], bytes]] = methodcaller("SerializeToString")

STATUS_CODES: Final[Mapping[int, grpc.StatusCode]] = {code.value[0]: code for code in grpc.StatusCode}


class Dispatcher:
    """The handlers of both services for one deployment. `closing` ends streams that would not end by themselves.

    `audit` notes the calls that change something; `refusals` has a line for each call that is refused; `figures` counts all.
    `readers`, if there are any, answer the calls that have a short way.
    """

    def __init__(
        self,
        deployment: Deployment,
        closing: Event,
        authorizer: Authorizer | None = None,
        audit: ServiceAudit | None = None,
        figures: Figures | None = None,
        readers: CallPool | None = None,
    ) -> None:
        self._figures = figures
        self.refusals = Refusals()
        self._readers = readers if deployment.store.engine.profile.has_local_reads else None
        self._deployment = deployment
        self._audit = audit or ServiceAudit()
        self._closing = closing
        self._authorizer = authorizer or Authorizer(deployment)
        self._places = WatchPlaces()

    def handlers(self) -> "list[grpc.GenericRpcHandler[bytes, bytes]]":
        """Return what a grpc server is given: one handler for each service, bytes in and bytes out.

        Raises LookupError for a call whose need is not declared.
        """
        return [
            grpc.method_handlers_generic_handler(
                RUNM.full_name(interface.service),
                {name: self._handler(interface.service, handler) for name, handler in handlers.items()},
            )
            for interface, handlers in _HANDLERS.items()
        ]

    def _handler(self, service: str, handler: Handler) -> "grpc.RpcMethodHandler[bytes, bytes]":
        self._authorizer.require_decidable(handler.declared)
        call = _SpokenCall(service, handler.declared, self.refusals)
        perform = performer(self._deployment, handler)
        short = _nothing if handler.short is None else handler.short(self._deployment)
        if handler.declared.is_stream:
            stream = self._streaming(call, short, perform)
            return grpc.unary_stream_rpc_method_handler(
                stream if self._figures is None else _counted_stream(self._figures, call, stream)
            )
        answer = self._answering(call, short, perform)
        if self._figures is not None:
            answer = _counted_answer(self._figures, call, answer, self._deployment.clock)
        if handler.short is not None and self._readers is not None:
            answer.experimental_thread_pool = self._readers  # type: ignore[attr-defined]  # Why: gRPC's name for it.
        return grpc.unary_unary_rpc_method_handler(answer)

    def _answering(
        self, call: "_SpokenCall", short: Short, perform: Performer
    ) -> Callable[[bytes, grpc.ServicerContext], bytes]:
        of_anybody = self._authorizer.of_anybody
        is_noted = call.declared.change is not None and self._audit.log is not None

        def answer(raw: bytes, context: grpc.ServicerContext) -> bytes:
            request = None
            message: bytes
            try:
                admission = of_anybody or self._admission(call, context)
                request = call.parsed(raw)
                if admission.users is not None:
                    self._authorizer.narrow(admission, request)
                if is_noted:
                    asker = _asker_of(admission, request, context)
                    with self._audit.change_here(call.declared, asker, call.arguments_of(request)):
                        made = perform(request, admission.bounds)
                        note_answer(made)
                        message = made.SerializeToString()
                else:
                    found: bytes | None = short(request, admission.bounds)
                    message = perform(request, admission.bounds).SerializeToString() if found is None else found
            except Exception as error:  # noqa: BLE001  # Why: the outermost place; what nobody foresaw is logged there.
                return call.abort(context, request, error)
            if LOGGER.isEnabledFor(CALL):
                call.log(request, GrpcStatus.OK)
            return message

        return answer

    def _streaming(
        self, call: "_SpokenCall", short: Short, perform: Performer
    ) -> Callable[[bytes, grpc.ServicerContext], Iterator[bytes]]:
        def stream(raw: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
            request = None

            def admitted() -> Admission:
                return self._authorizer.of_anybody or self._admission(call, context)

            try:
                admission = admitted()
                request = call.parsed(raw)
                if admission.users is not None:
                    self._authorizer.narrow(admission, request)
                found: Iterable[bytes] | None = short(request, admission.bounds)
                if found is not None and admission is self._authorizer.of_anybody:
                    yield from found  # Why nothing else: there is nobody whose standing could change.
                else:
                    standing = _Standing(admission, admitted, self._deployment.clock)

                    def is_wanted() -> bool:
                        is_awaited = context.is_active() and not self._closing.is_set()
                        if is_awaited:
                            standing.require()
                        return is_awaited

                    with self._places.place_of(admission.who) if call.declared.is_endless else nullcontext():
                        if found is None:
                            found = map(_spelled, perform(request, admission.bounds, is_wanted))
                        for answer in found:
                            # Why beside `is_wanted`, which ends a stream that waits: what is left of a long one is not theirs.
                            standing.require()
                            yield answer
            except Exception as error:  # noqa: BLE001  # Why: as above.
                call.abort(context, request, error)
            if LOGGER.isEnabledFor(CALL):
                call.log(request, GrpcStatus.OK)

        return stream

    def _admission(self, call: "_SpokenCall", context: grpc.ServicerContext) -> Admission:
        return self._authorizer.admitted(context, call.declared)


_Answer = Callable[[bytes, grpc.ServicerContext], bytes]
_Stream = Callable[[bytes, grpc.ServicerContext], Iterator[bytes]]


def _counted_answer(figures: Figures, call: "_SpokenCall", answer: _Answer, clock: Clock) -> _Answer:
    def counted(raw: bytes, context: grpc.ServicerContext) -> bytes:
        begun, is_over = clock.monotonic(), False
        try:
            message = answer(raw, context)
            is_over = True
            return message
        finally:
            status = GrpcStatus.OK if is_over else _ended_with(context)
            figures.ended(call.path, status, clock.monotonic() - begun)

    return counted


def _counted_stream(figures: Figures, call: "_SpokenCall", stream: _Stream) -> _Stream:
    def counted(raw: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        is_over = False
        with figures.stream():
            try:
                yield from stream(raw, context)
                is_over = True
            finally:
                figures.ended(call.path, GrpcStatus.OK if is_over else _ended_with(context))

    return counted


def _ended_with(context: grpc.ServicerContext) -> GrpcStatus:
    """The status of a call that was aborted, or whose client has left."""
    spoken: Any = context  # Why: the stubs leave it out.
    code = spoken.code()
    return GrpcStatus.CANCELLED if code is None else GrpcStatus(code.value[0])


class _Standing:
    """Whether who asked for a stream is still admitted as they were: looked at once in LOOK_SECONDS, however much it sends."""

    def __init__(self, admission: Admission, found: Callable[[], Admission], clock: Clock) -> None:
        self._admission = admission
        self._found = found
        self._clock = clock
        self._look_at = clock.monotonic() + LOOK_SECONDS

    def require(self) -> None:
        """Return if they are. Raises RefusedError."""
        now = self._clock.monotonic()
        if now < self._look_at:
            return
        self._look_at = now + LOOK_SECONDS
        if self._found() != self._admission:
            raise denied("what the access file grants has changed: ask again.", who=self._admission.who)


def _nothing(_request: Any, _bounds: Bounds) -> None:
    """The short way of a call that has none."""


def _asker_of(admission: Admission, request: Any, context: grpc.ServicerContext) -> Asker:
    """Return who calls: who the token says, else whom the session names, which nobody has proven then."""
    if admission.who:
        known_by = "token" if admission.users is None else "principal"
        return Asker(admission.who, known_by, context.peer())
    session = getattr(request, "session", None)
    return Asker("" if session is None else session.user, "session", context.peer())


class _SpokenCall:
    """A declared call as it is spoken: bytes to its request, an error to a status, and its line in the log."""

    def __init__(self, service: str, declared: Rpc, refusals: Refusals) -> None:
        self.declared = declared
        self._refusals = refusals
        self.path = f"{service}/{declared.name}"
        self._request_class = getattr(messages, declared.request)

    def parsed(self, raw: bytes) -> Any:
        """Return the request. Raises RefusedError, INVALID_ARGUMENT."""
        try:
            return self._request_class.FromString(raw)
        except DecodeError as error:
            raise invalid("the request is no message of this call.") from error

    def arguments_of(self, request: Any) -> dict[str, Any]:
        """Return the fields of a request that the call's subject in the audit log names."""
        named = frozenset() if self.declared.change is None else self.declared.change.named
        return {name: getattr(request, name) for name in named - {"answer"}}

    def abort(self, context: grpc.ServicerContext, request: Any, error: Exception) -> NoReturn:
        """End the call with the status that an error stands for. `request` is None when it could not be read."""
        if isinstance(error, RefusedError):
            status, text = error.status, error.text
        elif isinstance(error, KeyplanError):
            status, text = error.grpc_status, f"{error.summary}."
            LOGGER.warning("%s: %s", error.code, error)
        else:
            status, text = GrpcStatus.INTERNAL, "the server failed; its log says more."
            LOGGER.error("a call failed", exc_info=error)
        if status in REFUSALS:
            who = error.who if isinstance(error, RefusedError) else ""
            self._refusals.tell(context, self.path, status, who, text[:_TEXT_MAX])
        elif LOGGER.isEnabledFor(CALL):
            self.log(request, status)
        context.abort(STATUS_CODES[status], text[:_TEXT_MAX])

    def log(self, request: Any, status: GrpcStatus) -> None:
        """Write that the call has ended: who made it, whether it changes something, and with which status."""
        kind = "change" if self.declared.changes else "read"
        session = getattr(request, "session", None)
        user, partition = ("", "") if session is None else (session.user, session.partition)
        LOGGER.log(CALL, "%s %s: user %r, partition %r: %s", kind, self.path, user, partition, status.name)
