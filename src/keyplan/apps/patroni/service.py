"""The broker as a service of `keyplan serve --app patroni-broker`: routes, and the work on operations beside them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal

from keyplan.apps.patroni.actions import Actions
from keyplan.apps.patroni.admin_routes import Administration, Recreations
from keyplan.apps.patroni.broker_bindings import Bindings, RouterAddress
from keyplan.apps.patroni.broker_loop import BrokerLoop
from keyplan.apps.patroni.catalog import BUILT_IN_CATALOG, read_catalog
from keyplan.apps.patroni.certificates import read_authorities
from keyplan.apps.patroni.cluster_observer import ClusterObserver
from keyplan.apps.patroni.layout import Broker
from keyplan.apps.patroni.metrics import ClusterFigures, EventMeters, OperationMeters
from keyplan.apps.patroni.operation_progress import Waits
from keyplan.apps.patroni.operations import Beginnings
from keyplan.apps.patroni.osb_edge import CONTRACT, BrokerResponder
from keyplan.apps.patroni.osb_routes import ServiceBroker
from keyplan.apps.patroni.ports import PORTS_DEFAULT, PortAllocator, PortRange, port_range, reads_of
from keyplan.apps.patroni.principals import ClusterPrincipals
from keyplan.apps.patroni.site_callbacks import SiteCallbacks, read_callbacks
from keyplan.errors import InvalidInputError
from keyplan.operations import described, needs_of, operations_of
from keyplan.server import Service, ServiceContext, layout_areas
from keyplan.settings import Setting, TextForm, of_service, read_settings
from keyplan.store import Store

__all__ = ["DESCRIPTION", "NEEDS", "SERVICE_NAME", "BrokerSettings", "build"]

SERVICE_NAME: Final = "patroni-broker"
DESCRIPTION: Final = described(
    [one for kind in (ServiceBroker, Administration) for one in operations_of(kind).values()], CONTRACT
)
"""Paths and components, as `Service.openapi` takes them."""

NEEDS: Final = needs_of(ServiceBroker, Administration)
"""What each needs, for `keyplan.access`."""

_SECONDS_MAX: Final = 86_400.0
_FILE: Final = TextForm(Path, "a JSON file")


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings:
    """What `keyplan serve --setting patroni-broker.NAME=TEXT` says."""

    part: Annotated[
        Literal["broker", "clusters"],
        Setting("`clusters`: no broker; clusters are known to the gateways of this process, and nothing else is done"),
    ] = "broker"
    host: Annotated[str, Setting("the router's address, as bindings tell it")] = "127.0.0.1"
    sslmode: Annotated[
        Literal["prefer", "require", "verify-ca", "verify-full"] | None,
        Setting("stands in the URIs of bindings", default="none; `verify-full` with `tls-authority`"),
    ] = None
    tls_authority: Annotated[
        Path | None,
        Setting(
            "certificates, as PEM, that clients verify PostgreSQL by; bindings have them as `ca_certificate`",
            form=TextForm(Path, "a file"),
        ),
    ] = None
    ports: Annotated[
        PortRange, Setting("the public ports", form=TextForm(port_range, "`FIRST-LAST`"), default="33000-33999")
    ] = PORTS_DEFAULT
    replica_ports: Annotated[
        str | None,
        Setting("the first of as many ports that lead to replicas; bindings then have `read_port` and `read_uri`"),
    ] = None
    catalog: Annotated[
        Path | None,
        Setting("services and plans, in place of the built-in plans `solo`, `pair`, `trio`", form=_FILE),
    ] = None
    callbacks: Annotated[
        Path | None,
        Setting("programs that keep data about clusters and copy backups: see *Callbacks of the site*", form=_FILE),
    ] = None
    cells: Annotated[
        Literal["alone", "shared"],
        Setting("`alone`: fewer cells than nodes are refused; `shared`: a cell may hold several nodes of one cluster"),
    ] = "alone"
    version_header: Annotated[
        Literal["required", "optional"],
        Setting("`optional`: requests without `X-Broker-API-Version` are answered"),
    ] = "required"
    parallel: Annotated[int, Setting("operations at a time", least=1, most=_SECONDS_MAX)] = 32
    claim_seconds: Annotated[
        float,
        Setting("how long after a broker's death another one takes its operations up", least=1, most=_SECONDS_MAX),
    ] = 10.0
    cell_seconds: Annotated[float, Setting("how long a cell's answer is waited for", least=0.1, most=_SECONDS_MAX)] = (
        30.0
    )
    step_seconds: Annotated[
        float, Setting("how long a step is waited for that comes no nearer", least=0.1, most=_SECONDS_MAX)
    ] = 300.0


@asynccontextmanager
async def _followed(principals: ClusterPrincipals | None, context: ServiceContext) -> AsyncIterator[None]:
    if principals is None:
        yield
        return
    await context.run(principals.start)
    try:
        yield
    finally:
        await context.run(principals.stop)


def _clusters_alone(context: ServiceContext, principals: ClusterPrincipals | None) -> Service:
    """Return the service of a process that has the gateways, where the broker is another one: either may die alone."""
    if principals is None:
        raise InvalidInputError(
            source=f"{SERVICE_NAME}.part",
            problem="without an access file no cluster is known by a token: give --access",
        )
    return Service(
        SERVICE_NAME, lifespan=lambda: _followed(principals, context), is_confined=True, principals=principals
    )


def _router_address(settings: BrokerSettings) -> RouterAddress:
    if settings.tls_authority is None:
        return RouterAddress(settings.host, settings.sslmode or "")
    return RouterAddress(settings.host, settings.sslmode or "verify-full", read_authorities(settings.tls_authority))


def build(context: ServiceContext) -> Service:
    """Return the service. Raises InvalidInputError for a setting's value, or for a catalog that cannot be read.

    The settings are those of BrokerSettings.
    """
    settings = read_settings(BrokerSettings, of_service(context.settings, SERVICE_NAME))
    catalog = BUILT_IN_CATALOG if settings.catalog is None else read_catalog(settings.catalog)
    reads_first = None if settings.replica_ports is None else reads_of(settings.replica_ports, settings.ports)
    callbacks = None if settings.callbacks is None else SiteCallbacks(read_callbacks(settings.callbacks))
    # Why never closed: the engine inside is the server's, and without leases the store has nothing else to end. Why not all to
    # write: registrations stand right below the root, `/`, and are the registrars'.
    own = context.own(*layout_areas(Broker.bound(), read_only={"registrations"}))
    store = Store(own, clock=context.clock, secrets=context.secrets, layout_check=context.layout_check)
    # Why by the access file: without one nobody knows a cluster by its token, and who asks with one is nobody.
    principals = None if context.access.policy is None else ClusterPrincipals(store)
    if settings.part == "clusters":
        return _clusters_alone(context, principals)
    ports = PortAllocator(store, settings.ports, reads_first=reads_first, clock=context.clock)
    beginnings = Beginnings(
        store,
        ports,
        context.clock,
        may_share_cells=settings.cells == "shared",
        gives_logins=principals is not None,
        callbacks=callbacks,
    )
    waits = Waits(step_seconds_max=settings.step_seconds, cell_seconds_max=settings.cell_seconds)
    loop = BrokerLoop(
        store,
        catalog,
        context.clock,
        parallel=settings.parallel,
        claim_seconds=settings.claim_seconds,
        waits=waits,
        callbacks=callbacks,
        ports=ports,
        on_ended=OperationMeters(context.metrics).ended,
    )
    observer = ClusterObserver(store, context.clock, on_noted=EventMeters(context.metrics).noted)
    context.metrics.register(ClusterFigures(store, settings.ports))
    broker = ServiceBroker(
        store,
        catalog,
        beginnings,
        Bindings(store, context.clock),
        router=_router_address(settings),
        on_begun=loop.look_soon,
    )
    recreations = Recreations(beginnings, catalog, callbacks, on_begun=loop.look_soon)
    administration = Administration(
        store,
        recreations,
        Actions(store, context.clock, may_share_cells=settings.cells == "shared"),
        on_begun=loop.look_soon,
    )
    routes = [
        route
        for target in (broker, administration)
        for route in BrokerResponder(context, target, is_version_required=settings.version_header == "required").routes(
            operations_of(type(target)).values()
        )
    ]

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        # Why first: nodes that ask as soon as the server answers are known.
        async with _followed(principals, context):
            loop.start()
            observer.start()
            try:
                yield
            finally:
                await context.run(observer.stop)
                await context.run(loop.stop)

    return Service(
        SERVICE_NAME, routes, DESCRIPTION, lifespan, has_own_access=True, is_confined=True, principals=principals
    )
