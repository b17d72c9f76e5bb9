"""The broker in a process that is one: routes, and the work on operations beside them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from keyplan.apps.patroni.actions import Actions
from keyplan.apps.patroni.admin_routes import Administration, Recreations
from keyplan.apps.patroni.broker_bindings import Bindings, RouterAddress
from keyplan.apps.patroni.broker_loop import BrokerLoop
from keyplan.apps.patroni.broker_settings import SERVICE_NAME, BrokerSettings
from keyplan.apps.patroni.catalog import BUILT_IN_CATALOG, read_catalog
from keyplan.apps.patroni.certificates import read_authorities
from keyplan.apps.patroni.cluster_observer import ClusterObserver
from keyplan.apps.patroni.metrics import ClusterFigures, EventMeters, OperationMeters
from keyplan.apps.patroni.operation_progress import Waits
from keyplan.apps.patroni.operations import Beginnings
from keyplan.apps.patroni.osb_edge import CONTRACT, BrokerResponder
from keyplan.apps.patroni.osb_routes import ServiceBroker
from keyplan.apps.patroni.ports import PortAllocator, reads_of
from keyplan.apps.patroni.principals import ClusterPrincipals, followed
from keyplan.apps.patroni.site_callbacks import SiteCallbacks, read_callbacks
from keyplan.operations import described, needs_of, operations_of
from keyplan.server import Service, ServiceContext
from keyplan.store import Store

__all__ = ["DESCRIPTION", "NEEDS", "built_broker"]

DESCRIPTION: Final = described(
    [one for kind in (ServiceBroker, Administration) for one in operations_of(kind).values()], CONTRACT
)
"""Paths and components, as `Service.openapi` takes them."""

NEEDS: Final = needs_of(ServiceBroker, Administration)
"""What each needs, for `keyplan.access`."""


def _router_address(settings: BrokerSettings) -> RouterAddress:
    if settings.tls_authority is None:
        return RouterAddress(settings.host, settings.sslmode or "")
    return RouterAddress(settings.host, settings.sslmode or "verify-full", read_authorities(settings.tls_authority))


def built_broker(
    context: ServiceContext, settings: BrokerSettings, store: Store, principals: ClusterPrincipals | None
) -> Service:
    """Return the broker as a service. Raises InvalidInputError for a file that cannot be read."""
    catalog = BUILT_IN_CATALOG if settings.catalog is None else read_catalog(settings.catalog)
    reads_first = None if settings.replica_ports is None else reads_of(settings.replica_ports, settings.ports)
    callbacks = None if settings.callbacks is None else SiteCallbacks(read_callbacks(settings.callbacks))
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
        async with followed(principals, context):
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
