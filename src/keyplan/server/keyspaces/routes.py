"""The routes of the key space registry: HTTP in, one call of the registry, HTTP out. No rule of the registry is here."""

from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache, partial
from typing import Any, Final
from urllib.parse import quote

from msgspec import structs
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from keyplan.errors import InvalidArgumentError, KeySpaceNotFoundError
from keyplan.keyspace import AUDIT_LIMIT_MAX, KeySpace, KeySpaces, State
from keyplan.keyspace import Role as RegistryRole
from keyplan.server.access import Caller, Role, caller_of, require_admin
from keyplan.server.answers import AnswerError, JsonAnswer, body_of
from keyplan.server.keyspaces.bodies import (
    Creation,
    QuotaChange,
    RegistryFounding,
    expected_of,
    is_on,
    list_filters,
    query_of,
    whole_number,
)
from keyplan.server.keyspaces.sweeping import Sweeping
from keyplan.server.service import ServiceContext

__all__ = ["RegistryRoutes"]

Endpoint = Callable[[Request], Awaitable[Response]]

_CALLERS_MAX: Final = 64
_NUMBER_MAX: Final = (1 << 63) - 1


class RegistryRoutes:
    """The HTTP contract over one registry. Each request acts as its caller: role and name go into the registry's audit log."""

    def __init__(self, context: ServiceContext, registry: KeySpaces, sweeping: Sweeping) -> None:
        self._context = context
        self._registry = registry
        self._sweeping = sweeping
        # Why: as many callers as there are tokens, each with many requests; making one costs as much as a read.
        self._acting_as = lru_cache(_CALLERS_MAX)(self._made_for)

    def routes(self) -> list[BaseRoute]:
        """Return the routes; verbs stand before names, because a name in a path may hold a colon."""
        one = "/keyspaces/{id}"
        return [
            _route("/keyspaces", {"GET": self.list, "POST": self.create}),
            *(_route(f"{one}:{verb}", {"POST": self._move(verb)}) for verb in ("disable", "enable", "undelete")),
            _route(f"{one}:sweep", {"POST": self.sweep}),
            _route(one, {"GET": self.get, "PUT": self.update, "DELETE": self.delete}),
            _route(f"{one}/history", {"GET": self.history}),
            _route(f"{one}/usage", {"GET": self.usage}),
            _route(f"{one}/quota", {"GET": self.quota, "PUT": self.set_quota}),
            _route("/registry", {"GET": self.header}),
            _route("/registry:init", {"POST": self.init}),
            _route("/registry:repair", {"POST": self.repair}),
            _route("/registry/diagnosis", {"GET": self.diagnosis}),
            _route("/config", {"GET": self.configuration, "PATCH": self.configure}),
            _route("/audit", {"GET": self.audit}),
            _route("/audit:verify", {"POST": self.verify_audit}),
        ]

    def _as_caller(self, request: Request) -> KeySpaces:
        caller = caller_of(request)
        if caller is None:
            raise AnswerError(401, "unauthorized", "a token is needed")
        return self._acting_as(caller)

    def _made_for(self, caller: Caller) -> KeySpaces:
        role = RegistryRole.ADMIN if caller.role is Role.ADMIN else RegistryRole.CLIENT
        return self._registry.acting_as(role, caller.name)

    # ---- many ------------------------------------------------------------------------------------------------------------

    async def create(self, request: Request) -> Response:
        registry = self._as_caller(request)
        asked = await body_of(request, Creation)
        keyspace, is_new = await self._context.run(_create, registry, asked)
        # Why: the header names the resource also when it was there already; only the status tells.
        location = {"Location": f"/keyspaces/{quote(keyspace.name, safe='')}"}
        return JsonAnswer(keyspace.to_json(), 201 if is_new else 200, headers=location)

    async def list(self, request: Request) -> Response:
        page = await self._context.run(self._as_caller(request).list, **list_filters(request))
        return JsonAnswer(page.to_json())

    # ---- one -------------------------------------------------------------------------------------------------------------

    async def get(self, request: Request) -> Response:
        query_of(request, ())
        return JsonAnswer(await self._context.read(_shown, self._as_caller(request), request.path_params["id"]))

    async def update(self, request: Request) -> Response:
        registry, name = self._as_caller(request), request.path_params["id"]
        sent = await body_of(request, dict[str, Any])
        if "description" not in sent:
            raise InvalidArgumentError(argument="description", problem="it is required")
        update = partial(registry.update, expected=expected_of(request))
        return JsonAnswer((await self._context.run(update, name, sent["description"], sent)).to_json())

    async def delete(self, request: Request) -> Response:
        delete = partial(self._as_caller(request).delete, expected=expected_of(request))
        keyspace = await self._context.run(delete, request.path_params["id"])
        self._sweeping.look_soon()
        return JsonAnswer(keyspace.to_json(), 202)

    def _move(self, verb: str) -> Endpoint:
        async def endpoint(request: Request) -> Response:
            expected = expected_of(request)
            move: Callable[[str], KeySpace] = partial(getattr(self._as_caller(request), verb), expected=expected)
            return JsonAnswer((await self._context.run(move, request.path_params["id"])).to_json())

        return endpoint

    async def sweep(self, request: Request) -> Response:
        caller, registry, name = require_admin(request), self._as_caller(request), request.path_params["id"]
        query_of(request, ())
        progress = await self._context.run(self._sweeping.take_further, registry, name, by=caller.name)
        return JsonAnswer(progress.to_json())

    async def history(self, request: Request) -> Response:
        query_of(request, ())
        found = await self._context.run(self._as_caller(request).history, request.path_params["id"])
        return JsonAnswer({"keyspaces": [keyspace.to_json() for keyspace in found], "next_page_token": ""})

    async def usage(self, request: Request) -> Response:
        query_of(request, ())
        usage = await self._context.run(self._as_caller(request).usage, request.path_params["id"])
        return JsonAnswer(usage.to_json())

    async def quota(self, request: Request) -> Response:
        query_of(request, ())
        return JsonAnswer(await self._context.read(self._as_caller(request).quota, request.path_params["id"]))

    async def set_quota(self, request: Request) -> Response:
        registry, name = self._as_caller(request), request.path_params["id"]
        asked = await body_of(request, QuotaChange)
        set_quota = partial(registry.set_quota, expected=expected_of(request))
        quota = await self._context.run(set_quota, name, **asked.bounds())
        return JsonAnswer(quota)

    # ---- the registry ----------------------------------------------------------------------------------------------------

    async def header(self, request: Request) -> Response:
        require_admin(request)
        query_of(request, ())
        header = await self._context.read(self._as_caller(request).header)
        if header is None:
            raise KeySpaceNotFoundError(problem="there is no registry in this store")
        return JsonAnswer(header)

    async def init(self, request: Request) -> Response:
        require_admin(request)
        asked = await body_of(request, RegistryFounding)
        return JsonAnswer(await self._context.run(self._as_caller(request).init, **structs.asdict(asked)))

    async def diagnosis(self, request: Request) -> Response:
        require_admin(request)
        with_unmanaged = is_on(query_of(request, ("unmanaged",)), "unmanaged")
        found = await self._context.run(self._as_caller(request).diagnose, with_unmanaged=with_unmanaged)
        return JsonAnswer(found.to_json())

    async def repair(self, request: Request) -> Response:
        require_admin(request)
        query_of(request, ())
        repaired = await self._context.run(self._as_caller(request).repair)
        return JsonAnswer({"repaired": [fault.to_json() for fault in repaired]})

    async def configuration(self, request: Request) -> Response:
        require_admin(request)
        query_of(request, ())
        return JsonAnswer(await self._context.read(self._as_caller(request).configuration))

    async def configure(self, request: Request) -> Response:
        require_admin(request)
        changes = await body_of(request, dict[str, Any])
        return JsonAnswer(await self._context.run(self._as_caller(request).configure, changes))

    async def audit(self, request: Request) -> Response:
        require_admin(request)
        words = query_of(request, ("after", "limit"))
        after = whole_number("after", words.get("after", "0"), least=0, most=_NUMBER_MAX)
        limit = whole_number("limit", words.get("limit", "100"), least=1, most=AUDIT_LIMIT_MAX)
        registry = self._as_caller(request)
        items = await self._context.run(lambda: [item.to_json() for item in registry.audit(after=after, limit=limit)])
        return JsonAnswer({"entries": items})

    async def verify_audit(self, request: Request) -> Response:
        require_admin(request)
        query_of(request, ())
        verdict = await self._context.run(self._as_caller(request).verify_audit)
        return JsonAnswer(verdict._asdict())


def _route(path: str, endpoints: Mapping[str, Endpoint]) -> Route:
    """One route for all methods of a path, so that a 405 names them all."""

    async def endpoint(request: Request) -> Response:
        return await endpoints["GET" if request.method == "HEAD" else request.method](request)

    return Route(path, endpoint, methods=list(endpoints))


def _create(registry: KeySpaces, asked: Creation) -> tuple[KeySpace, bool]:
    """Make what was asked for, and tell whether it is new."""
    name, application = asked.wanted_name(), asked.owner()
    if asked.if_not_exists:
        if asked.adopt_existing_data or asked.allow_legacy_prefix:
            problem = "a prefix that is in use is adopted once: without if_not_exists"
            raise InvalidArgumentError(argument="if_not_exists", problem=problem)
        return registry.ensure(name, application, description=asked.description, prefix=asked.prefix)
    keyspace = registry.create(
        name,
        application,
        description=asked.description,
        prefix=asked.prefix,
        adopt_existing_data=asked.adopt_existing_data,
        allow_legacy_prefix=asked.allow_legacy_prefix,
    )
    return keyspace, True


def _shown(registry: KeySpaces, name: str) -> dict[str, Any]:
    """Return a key space with, while it is being deleted, how far that is."""
    keyspace = registry.get(name)
    shown = keyspace.to_json()
    deletion = registry.deletion(name) if keyspace.state is State.DELETING else None
    if deletion is not None:
        shown["delete_progress"] = {"deleted_keys": deletion.deleted_keys, "cursor": deletion.cursor}
    return shown
