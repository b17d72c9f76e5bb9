"""The routes of declared operations: a request is read as its operation says, performed, and answered as it says."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from keyplan.operations import CallerKind, Operation, Place, body_type, read_body, read_words, write_answer
from keyplan.server.access import require_admin
from keyplan.server.answers import JsonAnswer, body_of
from keyplan.server.service import ServiceContext

__all__ = ["Endpoint", "arguments_of", "routes_of"]

Endpoint = Callable[[Request], Awaitable[Response]]


async def arguments_of(request: Request, operation: Operation) -> dict[str, Any]:
    """Return the arguments that a request calls an operation with; those that it does not have are left out.

    Raises AnswerError for a body of another kind; InvalidArgumentError for one, and for words, that cannot be read.
    """
    arguments = {parameter.name: request.path_params[parameter.word] for parameter in operation.at(Place.PATH)}
    kind = body_type(operation)
    if kind is not None:
        arguments |= read_body(operation, await body_of(request, kind))
    return arguments | read_words(operation, request.query_params.multi_items())


def routes_of(
    operations: Mapping[str, Operation],
    target_of: Callable[[Request], Any],
    context: ServiceContext,
    *,
    answered_by: Mapping[str, Callable[[Request, dict[str, Any]], Awaitable[Response]]] | None = None,
) -> list[BaseRoute]:
    """Return the routes of operations, each performed by the method of its name of what `target_of` returns for a request.

    `target_of` raises AnswerError for somebody who is not let in. `answered_by` has, by name, those whose answer is more than
    what the method returns. Verbs stand before names, because a name in a path may hold a colon.
    """
    own = answered_by or {}

    def endpoint_of(operation: Operation) -> Endpoint:
        async def endpoint(request: Request) -> Response:
            target = target_of(request)
            if operation.caller is CallerKind.ADMINISTRATOR:
                require_admin(request)
            arguments = await arguments_of(request, operation)
            if operation.attribute in own:
                return await own[operation.attribute](request, arguments)
            perform = getattr(target, operation.attribute)
            run = context.read if operation.is_quick else context.run
            result = await run(lambda: write_answer(operation, perform(**arguments)))
            return JsonAnswer(result, operation.status)

        return endpoint

    by_path: dict[str, dict[str, Endpoint]] = {}
    for operation in operations.values():
        by_path.setdefault(operation.path, {})[operation.method] = endpoint_of(operation)
    ordered = sorted(by_path.items(), key=lambda item: "{" in item[0].rpartition("/")[2] and ":" not in item[0])
    return [_route(path, endpoints) for path, endpoints in ordered]


def _route(path: str, endpoints: Mapping[str, Endpoint]) -> Route:
    """One route for all methods of a path, so that a 405 names them all."""

    async def endpoint(request: Request) -> Response:
        return await endpoints["GET" if request.method == "HEAD" else request.method](request)

    return Route(path, endpoint, methods=list(endpoints))
