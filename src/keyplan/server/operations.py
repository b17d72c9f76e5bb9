"""The routes of declared operations: a request is read as its operation says, performed, and answered as it says."""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from inspect import iscoroutinefunction
from typing import Any, ClassVar, Final, NamedTuple
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, Route
from starlette.types import Scope

from keyplan.access import EVERYTHING, OnApplication, OnKeySpace, OnOperation, OnPrefix, Target
from keyplan.audit_log import Asker
from keyplan.errors import KeyplanError
from keyplan.operations import (
    JSON,
    Answered,
    OnKind,
    Operation,
    WordForm,
    body_type,
    read_body,
    read_headers,
    read_path,
    read_words,
    write_answer,
)
from keyplan.server.access import caller_of
from keyplan.server.answers import REQUEST_ID, JsonAnswer, body_of
from keyplan.server.auditing import asker_of, note_answer
from keyplan.server.gate import allow_body
from keyplan.server.proxies import address_of
from keyplan.server.service import ServiceContext

__all__ = ["Endpoint", "OperationRoute", "Refusal", "Responder"]

_WRITTEN_SLASH: Final = re.compile(b"%2[Ff]")
_SLASH_IN_NAME: Final = "\udc2f"
"""Half a character, which no decoded path has."""

Endpoint = Callable[[Request], Awaitable[Response]]


class Refusal(NamedTuple):
    """What a change is refused with, and whether the audit log tells of it: not of who may change nothing at all."""

    error: KeyplanError
    is_noted: bool


class Responder:
    """How a service answers requests for its operations. Subclasses say whom they let in, and where their HTTP is another.

    A request is read from its path on: what cannot be there is refused before it is asked who asks, then everybody who may not,
    and then what cannot be read of headers, query and body, in this order.

    With an access file, what an operation declares that it needs is decided here and nowhere else: before everybody who may not
    is refused, or, where it is on what a part of the request names that is read later, as soon as that is read.
    """

    knows_all_words = True
    """Whether a word of the query that no parameter has is refused, or passed over."""

    words_beside: ClassVar[Mapping[str, WordForm]] = {}
    """The forms of words that every operation may be asked with, which say how it is answered."""

    def __init__(self, context: ServiceContext) -> None:
        self.context = context

    async def admit(self, request: Request, operation: Operation) -> Any:
        """Return the object whose methods perform operations for who asks. Raises what a caller is refused with."""
        raise NotImplementedError

    async def respond(self, request: Request, operation: Operation) -> Response:
        """Answer a request. Subclasses put around it what every answer has, and how failures are told."""
        arguments = read_path(operation, request.path_params)
        if operation.discloses is not None:
            return await self._disclose(request, operation, arguments | self._beside(request, operation))
        is_decided = await self._is_decided(request, operation, arguments)
        target = await self.admit(request, operation)
        arguments |= self._beside(request, operation)
        is_decided = is_decided or await self._is_decided(request, operation, arguments)
        kind = body_type(operation)
        if kind is not None:
            await self.admit_body(operation, target, arguments)
            arguments |= read_body(operation, await self.read(request, operation, kind))
        if not is_decided:
            await self.decide(request, operation, arguments)
        return await self._perform_noted(request, operation, target, arguments)

    async def carry_out(
        self, request: Request, operation: Operation, arguments: dict[str, Any], body: Any = None
    ) -> Response:
        """Answer what was asked in another protocol than HTTP, on a connection that `request` has opened.

        `arguments` are those that HTTP has in path, headers and query; `body` is what is still to be read, None where all is.
        Who may, what is noted, and how it is performed is decided as for a request of HTTP, by the same methods.
        """
        if operation.discloses is not None:
            return await self._disclose(request, operation, arguments)
        target = await self.admit(request, operation)
        if body is not None:
            await self.admit_body(operation, target, arguments)
            arguments |= read_body(operation, body)
        await self.decide(request, operation, arguments)
        return await self._perform_noted(request, operation, target, arguments)

    async def _disclose(self, request: Request, operation: Operation, arguments: dict[str, Any]) -> Response:
        """Answer a request to be shown what is kept from others. A refusal has a line, which tells what it was about."""
        try:
            target = await self.admit(request, operation)
            await self.decide(request, operation, arguments)
        except Exception as error:
            if _is_refusal(error):
                asker, request_id = self.asker_of(request), request.scope.get(REQUEST_ID, "")
                await self.context.audit.refused(operation, asker, arguments, error, request=request_id)
            raise
        return await self._perform_noted(request, operation, target, arguments)

    async def _perform_noted(
        self, request: Request, operation: Operation, target: Any, arguments: Mapping[str, Any]
    ) -> Response:
        refusal = None if operation.change is None else await self.refusal_of_change(operation, target, arguments)
        is_noted = operation.noted is not None and self.context.audit.log is not None
        if not is_noted and refusal is None:
            return await self.perform(request, operation, target, arguments)
        # Why here: whoever is refused has changed nothing, and whoever is answered stands in the audit log by then.
        asker, request_id = self.asker_of(request), request.scope.get(REQUEST_ID, "")
        if refusal is not None:
            if refusal.is_noted:
                await self.context.audit.refused_change(operation, asker, arguments, refusal.error, request=request_id)
            raise refusal.error
        async with self.context.audit.change(operation, asker, arguments, request=request_id):
            return await self.perform(request, operation, target, arguments)

    def _beside(self, request: Request, operation: Operation) -> dict[str, Any]:
        """Return the arguments that stand in headers and in the query."""
        words = request.query_params.multi_items()
        return read_headers(operation, request.headers) | read_words(
            operation, words, knows_all=self.knows_all_words, beside=self.words_beside
        )

    def asker_of(self, request: Request) -> Asker:
        """Return who asks, as the audit log names them. Subclasses with a log-in of their own know better."""
        return asker_of(caller_of(request), address_of(request.scope))

    async def admit_body(self, operation: Operation, target: Any, arguments: Mapping[str, Any]) -> None:
        """Return when the body of a request may be read, whose other arguments are these. Raises what it is refused with.

        For an operation whose caller's right hangs on its arguments; nobody is refused here by default.
        """

    async def refusal_of_change(
        self, operation: Operation, target: Any, arguments: Mapping[str, Any]
    ) -> Refusal | None:
        """Return what a change is refused with before it begins; None: it begins.

        For a service whose stores of callers would refuse it: what is known before has one line in the audit log, or none, in
        place of two.
        """
        return None

    def is_by_grants(self, request: Request) -> bool:
        """Tell whether grants decide about a request of somebody whom an access file knows; not where an own log-in does."""
        return True

    async def application_of(self, request: Request, keyspace: str) -> str | None:
        """Return the application of a key space, whose grants are good for it too; None where the service knows of none."""
        return None

    async def _is_decided(self, request: Request, operation: Operation, arguments: Mapping[str, Any]) -> bool:
        """Decide, if what has been read of a request names what its operation is on; return whether it does."""
        named = operation.needs.on.parameter
        if named and named not in arguments:
            return False
        await self.decide(request, operation, arguments)
        return True

    async def decide(self, request: Request, operation: Operation, arguments: Mapping[str, Any]) -> None:
        """Return if who asks has what an operation needs, as grants are now. Raises AccessDeniedError.

        Decided before a request is performed. Whoever lets one wait asks again before something is told.
        """
        access, caller, need = self.context.access, caller_of(request), operation.needs
        # Why without a caller: only a service with a log-in of its own hears of such a request, and decides about it itself.
        if access.policy is None or caller is None or need.on.kind is OnKind.NOTHING or not self.is_by_grants(request):
            return
        named = arguments.get(need.on.parameter) if need.on.parameter else operation.name
        access.require(caller, need.act, await self.target_of(request, need.on.kind, named))

    async def target_of(self, request: Request, kind: OnKind, named: Any) -> Target:
        """Return what a request is on. One that names nothing that can be looked for in grants is on everything."""
        match kind, named:
            case OnKind.OPERATION, str():
                return OnOperation(named)
            case OnKind.KEY_SPACE, str():
                return OnKeySpace(named, await self.application_of(request, named))
            case OnKind.APPLICATION, str():
                return OnApplication(named)
            case OnKind.PREFIX, bytes():
                return OnPrefix(named)
            case _:
                return EVERYTHING

    async def read(self, request: Request, operation: Operation, kind: Any) -> Any:
        """Return a request's body as an object of `kind`; bytes are those that were sent. Raises what it is refused with."""
        if operation.body is not None and operation.body.bytes_max is not None:
            allow_body(request, operation.body.bytes_max)
        return await request.body() if kind is bytes else await body_of(request, kind)

    async def perform(
        self, request: Request, operation: Operation, target: Any, arguments: Mapping[str, Any]
    ) -> Response:
        """Perform an operation, in a thread where the method is no coroutine, and return the answer to it."""
        method = getattr(target, operation.attribute)
        if iscoroutinefunction(method):
            return self.answer(operation, await method(**arguments))
        run = self.context.read if operation.is_quick else self.context.run
        return await run(lambda: self.answer(operation, method(**arguments)))

    def answer(self, operation: Operation, result: Any) -> Response:
        """Return the answer to an operation with this result."""
        answered = result if isinstance(result, Answered) else Answered(result)
        note_answer(answered.result)
        status = operation.status if answered.status is None else answered.status
        return self.write(operation, answered.result, status, answered.headers)

    def write(self, operation: Operation, result: Any, status: int, headers: Mapping[str, str]) -> Response:
        """Return a result as an answer: in JSON, or as its form says; None, of an outcome without content, without any."""
        form = operation.answer
        # Why the form first: to it None may be a result like others, or one that it refuses.
        if result is None and (form is None or status != operation.status):
            return Response(status_code=status, headers=dict(headers))
        if form is not None and form.content_type != JSON:
            return Response(form.write(result), status, dict(headers), form.content_type)
        return JsonAnswer(write_answer(operation, result), status, headers=dict(headers))

    def routes(self, operations: Iterable[Operation]) -> list[BaseRoute]:
        """Return the routes of operations. Verbs stand before names, because a name in a path may hold a colon."""
        by_path: dict[str, dict[str, Operation]] = {}
        for operation in operations:
            by_path.setdefault(operation.path, {})[operation.method] = operation
        ordered = sorted(by_path.items(), key=lambda item: "{" in item[0].rpartition("/")[2] and ":" not in item[0])
        return [self.route(path, methods) for path, methods in ordered]

    def route(self, path: str, operations: Mapping[str, Operation]) -> BaseRoute:
        """Return one route for all methods of a path, so that a 405 names them all."""

        async def endpoint(request: Request) -> Response:
            return await self.respond(request, operations["GET" if request.method == "HEAD" else request.method])

        return OperationRoute(path, endpoint, methods=list(operations))


def _is_refusal(error: Exception) -> bool:
    """Tell whether an error says that who asks may not, in whatever words: protocols have errors of their own."""
    status = error.http_status if isinstance(error, KeyplanError) else getattr(error, "status", None)
    return status in {401, 403}


class OperationRoute(Route):
    """A route of operations. A slash that is written as %2F is a part of a name, and parts nothing.

    Why: the server hands the path on decoded, so that a name with a slash would be two parts, and reach another operation.
    """

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Tell whether the request is for the route."""
        raw_path: bytes = scope.get("raw_path") or b""
        # Why asked first: every route is asked about every request.
        if b"%2" not in raw_path or len(parts := _WRITTEN_SLASH.split(raw_path.partition(b"?")[0])) == 1:
            return super().matches(scope)
        path = _SLASH_IN_NAME.join(unquote(part.decode("latin-1")) for part in parts)
        match, child = super().matches({**scope, "path": path})
        named = child.get("path_params", {}).items()
        names = {name: text.replace(_SLASH_IN_NAME, "/") if isinstance(text, str) else text for name, text in named}
        return match, {**child, **({"path_params": names} if names else {})}
