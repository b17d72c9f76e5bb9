"""The broker as a service of `keyplan serve --app patroni-broker`: routes, and the work on operations beside them."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from keyplan.apps.patroni.admin_routes import AdminRoutes, Recreations
from keyplan.apps.patroni.backups import Backups, read_callbacks
from keyplan.apps.patroni.broker_bindings import Bindings, RouterAddress
from keyplan.apps.patroni.broker_loop import BrokerLoop
from keyplan.apps.patroni.broker_work import Waits
from keyplan.apps.patroni.catalog import BUILT_IN_CATALOG, read_catalog
from keyplan.apps.patroni.metrics import ClusterFigures, OperationMeters
from keyplan.apps.patroni.operations import Beginnings
from keyplan.apps.patroni.osb_description import DESCRIPTION
from keyplan.apps.patroni.osb_edge import BrokerEdge
from keyplan.apps.patroni.osb_routes import BrokerRoutes
from keyplan.apps.patroni.ports import PORTS_DEFAULT, PortAllocator, port_range, reads_of
from keyplan.errors import InvalidInputError
from keyplan.server import Service, ServiceContext
from keyplan.store import Store

__all__ = ["SERVICE_NAME", "build"]

SERVICE_NAME: Final = "patroni-broker"
_SSL_MODES: Final = ("prefer", "require", "verify-ca", "verify-full")
_SECONDS_MAX: Final = 86_400.0


def build(context: ServiceContext) -> Service:
    """Return the service. Raises InvalidInputError for a setting's value, or for a catalog that cannot be read.

    Settings: `host` (the router, in bindings) and `sslmode` (in their URIs), `ports`, `replica-ports` (the first of them),
    `catalog` and `callbacks` (JSON files), `cells` (`alone`: fewer cells than nodes are refused; or `shared`),
    `version-header` (`required` or `optional`), `parallel`, `claim-seconds`, `cell-seconds`, `step-seconds`.
    """
    settings = context.settings
    catalog = read_catalog(Path(settings["catalog"])) if "catalog" in settings else BUILT_IN_CATALOG
    ports = port_range(settings["ports"]) if "ports" in settings else PORTS_DEFAULT
    reads_first = reads_of(settings["replica-ports"], ports) if "replica-ports" in settings else None
    backups = Backups(read_callbacks(Path(settings["callbacks"]))) if "callbacks" in settings else None
    # Why never closed: the engine is the server's, and without leases the store has nothing else to end.
    store = Store(context.engine, clock=context.clock)
    beginnings = Beginnings(
        store,
        PortAllocator(store, ports, reads_first=reads_first),
        context.clock,
        may_share_cells=_one_of(settings, "cells", "alone", "shared") == "shared",
        backups=backups,
    )
    waits = Waits(
        step_seconds_max=_seconds(settings, "step-seconds", 300.0),
        cell_seconds_max=_seconds(settings, "cell-seconds", 30.0),
    )
    loop = BrokerLoop(
        store,
        catalog,
        context.clock,
        parallel=int(_seconds(settings, "parallel", 32, least=1)),
        claim_seconds=_seconds(settings, "claim-seconds", 10.0, least=1),
        waits=waits,
        backups=backups,
        on_ended=OperationMeters(context.metrics).ended,
    )
    context.metrics.register(ClusterFigures(store, ports))
    routes = BrokerRoutes(
        context,
        store,
        catalog,
        beginnings,
        Bindings(store, context.clock),
        router=RouterAddress(settings.get("host", "127.0.0.1"), _one_of(settings, "sslmode", "", *_SSL_MODES)),
        on_begun=loop.look_soon,
    )
    recreations = Recreations(beginnings, catalog, backups, on_begun=loop.look_soon)
    edge = BrokerEdge(
        is_version_required=_one_of(settings, "version-header", "required", "optional") == "required",
    )

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        loop.start()
        try:
            yield
        finally:
            await context.run(loop.stop)

    return Service(
        SERVICE_NAME,
        [*routes.routes(edge), *AdminRoutes(context, store, recreations).routes(edge)],
        DESCRIPTION,
        lifespan,
        has_own_access=True,
    )


def _one_of(settings: Mapping[str, str], name: str, *words: str) -> str:
    """Return a setting that is one of the words; the first is meant when it lacks."""
    word = settings.get(name, words[0])
    if word not in words:
        raise InvalidInputError(source=f"--setting {SERVICE_NAME}.{name}", problem=f"it is {' or '.join(words)}")
    return word


def _seconds(settings: Mapping[str, str], name: str, default: float, *, least: float = 0.1) -> float:
    text = settings.get(name)
    if text is None:
        return default
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not least <= number <= _SECONDS_MAX:
        problem = f"a number from {least:g} to {_SECONDS_MAX:g}"
        raise InvalidInputError(source=f"--setting {SERVICE_NAME}.{name}", problem=problem)
    return number
