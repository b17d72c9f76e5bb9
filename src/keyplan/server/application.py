"""The ASGI application: services built and mounted beside the shell, every failure as JSON."""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.metadata import entry_points
from typing import Any, Final

from prometheus_client import CollectorRegistry
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from keyplan.audit_log import AuditLog
from keyplan.codec import SecretCipher
from keyplan.engine import SYSTEM_CLOCK, Clock, Engine
from keyplan.errors import InvalidInputError, KeyplanError, UnknownNameError
from keyplan.keyspace import QuotaEngine
from keyplan.server.access import Access
from keyplan.server.answers import REQUEST_ID, AnswerError, failure
from keyplan.server.auditing import NotingEngine, ServiceAudit
from keyplan.server.bounds import EdgeBounds
from keyplan.server.closing import Closing
from keyplan.server.confined import Stores
from keyplan.server.edge import Edge, told_failure
from keyplan.server.gate import Gate
from keyplan.server.meters import Meters
from keyplan.server.principals import KnownCallerRoute, WholeStoreOrOwnRoute, WholeStoreRoute
from keyplan.server.refusals import RefusalLog
from keyplan.server.route_index import Elsewhere, RouteIndex
from keyplan.server.rpc import RpcRoute, RpcTerms, rpc_listener
from keyplan.server.service import SERVICE_GROUP, Service, ServiceBuilder, ServiceContext, ServiceSettings
from keyplan.server.shell import Shell
from keyplan.server.workers import Workers
from keyplan.store import LayoutCheck

__all__ = ["BUILT_IN_SERVICES", "Application", "service_builders"]

BUILT_IN_SERVICES: Final = ("keyspaces",)
"""Mounted by every server."""

_CODES: Final = {404: "not_found", 405: "method_not_allowed", 413: "body_too_large", 415: "unsupported_media_type"}


def service_builders(names: Sequence[str]) -> dict[str, ServiceBuilder]:
    """Return the builders of the services that are named and of the built-in ones, in this order.

    Why the named first: routes are tried one after the other, and theirs are those that heartbeats come through.

    Raises UnknownNameError for a service that no installed package has.
    """
    installed = {point.name: point for point in entry_points(group=SERVICE_GROUP)}
    builders: dict[str, ServiceBuilder] = {}
    for name in (*names, *BUILT_IN_SERVICES):
        if name not in installed:
            raise UnknownNameError(kind="service", name=name, known=sorted(installed))
        builders[name] = installed[name].load()
    return builders


@dataclass(frozen=True)
class Application:
    """Services on one engine. `asgi` answers requests; `running` surrounds them: it starts and ends what services do beside.

    Who made the engine closes it, after `running` has ended.
    """

    asgi: Starlette
    services: Sequence[Service]
    closing: Closing
    workers: Workers
    refusals: RefusalLog

    @classmethod
    def build(
        cls,
        engine: Engine,
        builders: Mapping[str, ServiceBuilder],
        *,
        access: Access | None = None,
        settings: Mapping[str, str] | None = None,
        clock: Clock = SYSTEM_CLOCK,
        bounds: EdgeBounds | None = None,
        audit_log: AuditLog | None = None,
        secrets: SecretCipher | None = None,
        layout_check: LayoutCheck = "off",
    ) -> "Application":
        """Build the services and mount them.

        With an audit log, each change that they are asked for stands in it. With `secrets`, the keys, services seal the secrets
        that they keep; `layout_check` says what becomes of layouts of theirs that are not the store's.

        Raises InvalidInputError for a setting that no service asks for, and for services that describe one path; and what the
        builders raise.
        """
        access = access or Access()
        closing, workers, registry = Closing(), Workers(), CollectorRegistry()
        refusals = RefusalLog(monotonic=clock.monotonic)
        edge = Edge(bounds, refusals)
        if audit_log is not None:
            engine = NotingEngine(engine)
            access.noted_in(audit_log)
        # Why here: whatever a service is given leads through it, so that no protocol has a way past a quota.
        stores = Stores(QuotaEngine(engine, clock=clock), access)
        given = settings or {}
        services: list[Service] = []
        asked: set[str] = set()
        known: set[str] = set()

        def context_of(name: str, own: Mapping[str, str]) -> ServiceContext:
            audit = ServiceAudit(name, audit_log, clock=clock)
            common = stores, own, access, closing, workers, registry, clock
            return ServiceContext(name, *common, audit=audit, secrets=secrets, layout_check=layout_check, edge=edge)

        for name, builder in builders.items():
            own = ServiceSettings(given, name)
            services.append(builder(context_of(name, own)))
            asked.update(own.asked)
            known.update(own.known)
        for source in (service.principals for service in services):
            if source is not None:
                access.take_in(source)
        for name in given:
            if name not in asked:
                raise InvalidInputError(source="--setting", problem=_unknown_setting(name, known))
        shell = Shell(context_of("server", {}), services)
        mounted = {service.name: _mounted(service, access) for service in services}
        guarded = [KnownCallerRoute(route) for route in shell.routes]
        own_access = [route for service in services if service.has_own_access for route in mounted[service.name]]
        # Why the services' first: one that speaks another system's protocol answers /version as that system does.
        index = RouteIndex(
            [*(route for service in services for route in mounted[service.name]), *shell.open_routes, *guarded]
        )
        fallback = next((service for service in services if service.unknown is not None), None)
        elsewhere = [Elsewhere(index)] if fallback is not None and fallback.is_unknown_open else []
        gate = Middleware(
            Gate,
            access=access,
            open_routes=[*shell.open_routes, *own_access, *elsewhere],
            meters=Meters(registry, workers, shell.program_version),
            clock=clock,
            edge=edge,
        )
        asgi = Starlette(routes=[index], middleware=[gate], exception_handlers=_HANDLERS)
        # Why: a path means one thing; who asks for another gets a 404 rather than a hint to follow.
        asgi.router.redirect_slashes = False
        if fallback is not None and fallback.unknown is not None:
            asgi.router.default = fallback.unknown
        return cls(asgi, tuple(services), closing, workers, refusals)

    @property
    def rpc_listeners(self) -> int:
        """How many services are listened for over gRPC, each at an address of its own."""
        return sum(service.rpc is not None for service in self.services)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Start the services in order; end them in reverse, then wait for the threads."""
        try:
            async with AsyncExitStack() as stack:
                for service in self.services:
                    await stack.enter_async_context(service.lifespan())
                yield
        finally:
            self.closing.set()
            self.workers.close()
            self.refusals.tell_rest()

    @asynccontextmanager
    async def listening_for_rpcs(self, terms: RpcTerms) -> AsyncIterator[Sequence[str]]:
        """Listen for the calls of gRPC that services have, while they run, and give the addresses.

        Raises InvalidInputError for an address that cannot be listened on, and for certificates that cannot be used.
        """
        async with AsyncExitStack() as stack:
            addresses: list[str] = []
            for service in self.services:
                if service.rpc is not None:
                    calls = {route.path: route for route in service.routes if isinstance(route, RpcRoute)}
                    listening = rpc_listener()(service.rpc, calls, self.asgi, terms)
                    addresses.append(await stack.enter_async_context(listening))
            yield addresses


def _mounted(service: Service, access: Access) -> Sequence[BaseRoute]:
    """The routes of a service: closed to nobody's requests, unless it has a log-in of its own.

    With an access file, closed to those who may not see everything, too, unless it confines them.
    """
    if service.is_confined or access.policy is None:
        return service.routes if service.has_own_access else [KnownCallerRoute(route) for route in service.routes]
    guard = WholeStoreOrOwnRoute if service.has_own_access else WholeStoreRoute
    return [guard(route, access) for route in service.routes]


# ---- failures --------------------------------------------------------------------------------------------------------


def _unknown_setting(name: str, known: Collection[str]) -> str:
    """Return what is wrong with a setting that no service asks for, and which was meant, or which there are."""
    problem = f"no service of this server has a setting {name!r}"
    service, _, text = name.rpartition(".")
    own = {one.rpartition(".")[2]: one for one in sorted(known) if one.startswith(f"{service}.")}
    if near := get_close_matches(text, own, n=1):
        return f"{problem}; did you mean {own[near[0]]!r}?"
    names = list(own.values()) or sorted(known)
    return f"{problem}; known are {', '.join(names)}" if names else f"{problem}: leave it out"


async def _answer_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, AnswerError)
    return failure(error)


async def _keyplan_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, KeyplanError)
    return failure(told_failure(error, request.scope.get(REQUEST_ID)))


async def _http_exception(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = _CODES.get(error.status_code, "http_error")
    return failure(AnswerError(error.status_code, code, error.detail.lower(), headers=error.headers))


_HANDLERS: Final[dict[Any, Any]] = {
    AnswerError: _answer_error,
    KeyplanError: _keyplan_error,
    HTTPException: _http_exception,
}
