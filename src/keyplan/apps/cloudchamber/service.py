"""CloudChamber's REST API as a service: `keyplan serve --store URL --app cloudchamber --setting cloudchamber.config=FOLDER`.

`cloudchamber.yaml` says which name space is served and whether it is cleaned first, what the system account is, the bounds of
sessions, and where the web page is. Where the store is, `--store` says; of it the service has its name space, and no other key.
"""

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Final, TypeAlias

from keyplan.apps.cloudchamber.accounts import Accounts
from keyplan.apps.cloudchamber.chamber import Chamber
from keyplan.apps.cloudchamber.changes import ChangeFeed
from keyplan.apps.cloudchamber.configuration import DOCUMENTED_PASSWORD, Configuration, read_configuration
from keyplan.apps.cloudchamber.go_served import GoChamber, GoRacks
from keyplan.apps.cloudchamber.indexed import CloudChamberIndexed, layout_in_use
from keyplan.apps.cloudchamber.layout import CloudChamber, CloudChamberGo, LayoutSide
from keyplan.apps.cloudchamber.layout_choice import choose_layout
from keyplan.apps.cloudchamber.namespace_store import NamespaceStore
from keyplan.apps.cloudchamber.namespaces import namespace_of, pre_clean, ranges_of, will_pre_clean
from keyplan.apps.cloudchamber.other_program import told_of_other_program
from keyplan.apps.cloudchamber.part_keys import DocumentPartKeys, GoPartKeys, PartKeys
from keyplan.apps.cloudchamber.rack_writer import RackWriter
from keyplan.apps.cloudchamber.readable import DocumentRacks, RackReader
from keyplan.apps.cloudchamber.rest_definitions import Definitions
from keyplan.apps.cloudchamber.rest_import import Imports
from keyplan.apps.cloudchamber.rest_instances import Instances
from keyplan.apps.cloudchamber.rest_inventory import Inventory
from keyplan.apps.cloudchamber.rest_loads import Loads
from keyplan.apps.cloudchamber.rest_part_actuals import PartActuals
from keyplan.apps.cloudchamber.rest_routes import CONTRACT, Resource, WebServer, routes_of
from keyplan.apps.cloudchamber.rest_server import Logs, Sessions
from keyplan.apps.cloudchamber.rest_stepper import Clock as SimulatedClock
from keyplan.apps.cloudchamber.rest_users import Users
from keyplan.apps.cloudchamber.rest_watch import Watches
from keyplan.apps.cloudchamber.rest_workloads import Workloads
from keyplan.apps.cloudchamber.service_settings import AsOriginal, ServiceSettings
from keyplan.apps.cloudchamber.sessions import LoginBound, SessionTable
from keyplan.apps.cloudchamber.stepper import Stepper
from keyplan.apps.cloudchamber.traces import Traces
from keyplan.apps.cloudchamber.waiting import Waiting
from keyplan.apps.cloudchamber.web_files import WebFiles, folder_of_web_files
from keyplan.engine import Area, Clock, Engine, Outside
from keyplan.errors import InvalidInputError
from keyplan.operations import described, needs_of, operations_of
from keyplan.server import LOGGER, Service, ServiceContext, layout_state_areas
from keyplan.settings import of_service, read_settings
from keyplan.store import Store

__all__ = ["DESCRIPTION", "NEEDS", "build", "first_number"]

RESOURCES: Final[tuple[type[Resource], ...]] = (
    Users,
    Inventory,
    Definitions,
    PartActuals,
    Imports,
    Loads,
    Workloads,
    Instances,
    Sessions,
    SimulatedClock,
    Watches,
    Logs,
)

DESCRIPTION: Final = described([one for kind in RESOURCES for one in operations_of(kind).values()], CONTRACT)
"""Paths and components, as `Service.openapi` takes them."""

NEEDS: Final = needs_of(*RESOURCES)
"""What each needs, for `keyplan.access`."""

_MICROSECONDS: Final = 1_000_000

_AnyChamber: TypeAlias = NamespaceStore[CloudChamber] | NamespaceStore[CloudChamberGo]


def build(context: ServiceContext) -> Service:
    """Return the service. Raises InvalidInputError for a configuration that cannot be; nothing is written yet.

    The name space is cleaned, where the configuration says so, and the system account made before the first request. Where
    others may ask, by an access file or tokens, the server does not start with a password that everybody can read.
    """
    settings = read_settings(ServiceSettings, of_service(context.settings, "cloudchamber"))
    configuration = read_configuration(settings.config, os.environ)
    namespace = namespace_of(configuration.store)
    web_server = configuration.web_server
    sessions = SessionTable(
        context.clock,
        inactivity_seconds=web_server.session_inactivity_seconds,
        sessions_max=web_server.active_sessions_max,
        of_user_max=web_server.active_sessions_max if AsOriginal.SESSIONS in settings.as_original else None,
    )
    is_emptied = will_pre_clean(configuration.store)
    looking = context.own(*(Area(part) for side in LayoutSide for part in ranges_of(namespace, side)))
    remedy = "--setting cloudchamber.layout=document or =go"
    chosen = choose_layout(looking, namespace, settings.layout, remedy=remedy, is_emptied=is_emptied)
    # Why never closed: the engine inside is the server's, and no lease is held. Why others' keys are not there, rather than
    # refused: a watch on all of production goes across the tests.
    store = Store(
        context.own(*_areas_of(namespace, chosen.side, is_emptied=is_emptied), outside=Outside.ABSENT),
        secrets=context.secrets,
        layout_check=context.layout_check,
    )
    chamber, racks, keys = _served(store, namespace, chosen.side, is_emptied=is_emptied)
    support = configuration.support
    first = first_number(context.clock)
    stepper = Stepper(context.clock, is_automatic=support.is_stepped_automatically, first_epoch=first)
    feed = ChangeFeed(chamber, context.run)
    root = folder_of_web_files(configuration)
    web = WebServer(
        context=context,
        chamber=chamber,
        racks=racks,
        rack_writer=RackWriter(keys),
        accounts=Accounts(chamber.layout),
        sessions=sessions,
        bound=LoginBound(context.clock),
        traces=Traces(support.traces_kept_max, first=first),
        stepper=stepper,
        waiting=Waiting(context.clock, context.closing, sessions),
        feed=feed,
        started_at=context.clock.wall(),
        as_original=settings.as_original,
    )

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        LOGGER.info("the store is served", extra={"facts": {"layout": chosen.side.value, "why": chosen.why}})
        await context.run(_prepare, store.engine, configuration, web.accounts, has_others=context.access.has_callers)
        async with told_of_other_program(looking, namespace, chosen.side, context.run, context.closing):
            try:
                yield
            finally:
                await feed.end()

    return Service(
        "cloudchamber",
        routes_of(web, RESOURCES),
        DESCRIPTION,
        lifespan,
        has_own_access=True,
        is_confined=True,
        unknown=None if root is None else WebFiles(root, context.run),
        is_unknown_open=True,
    )


def _served(
    store: Store, namespace: str, side: LayoutSide, *, is_emptied: bool
) -> tuple[_AnyChamber, RackReader, PartKeys]:
    if side is LayoutSide.GO:
        go = GoChamber(store, namespace=namespace)
        return go, GoRacks(go), GoPartKeys(go)
    # Why not asked where the name space is emptied first: its indexes go with it.
    layout = CloudChamber if is_emptied else layout_in_use(store, namespace)
    # Why beside Go's keys: it is chosen what is served, and the other program's keys may be there to be removed.
    chamber = Chamber(store, namespace=namespace, layout=layout, is_beside_go=True)
    return chamber, DocumentRacks(chamber), DocumentPartKeys(chamber)


def _areas_of(namespace: str, side: LayoutSide, *, is_emptied: bool) -> Iterator[Area]:
    """Yield what is a web server's own: the keys of its name space, and how far its indexes are, to read.

    Of one that is emptied first, the other program's keys, too: both are removed.
    """
    for own in (side, side.other) if is_emptied else (side,):
        for part in ranges_of(namespace, own):
            yield Area(part, can_write=True)
    if side is LayoutSide.DOCUMENT:
        yield from layout_state_areas(CloudChamberIndexed.bound(namespace=namespace))


def first_number(clock: Clock) -> int:
    """Return where a server that starts now begins to count, so that its numbers are no other server's.

    Why microseconds: no server counts so many requests or policies that the next one begins among its numbers.
    """
    return int(clock.wall() * _MICROSECONDS)


def _prepare(engine: Engine, configuration: Configuration, accounts: Accounts, *, has_others: bool) -> None:
    ignored = configuration.store.ignored_options
    if ignored:
        facts = {"options": list(ignored), "configuration": configuration.source}
        LOGGER.warning("these options mean nothing without UseTestNamespace", extra={"facts": facts})
    removed = pre_clean(engine, configuration.store)
    if removed:
        LOGGER.info("the test name space was cleaned", extra={"facts": {"keys": removed}})
    if has_others:
        _refuse_documented_password(configuration, accounts)
    web_server = configuration.web_server
    is_known = accounts.bootstrap(web_server.system_account, web_server.system_account_password)
    if not is_known:
        facts = {"user": web_server.system_account.lower(), "configuration": configuration.source}
        LOGGER.warning("the system account has another password than the configuration", extra={"facts": facts})


def _refuse_documented_password(configuration: Configuration, accounts: Accounts) -> None:
    """Raise InvalidInputError when everybody who may ask can log in as the system account, by a password of the documents."""
    web_server = configuration.web_server
    name = web_server.system_account.lower()
    if accounts.find(name) is None:
        is_documented = web_server.system_account_password == DOCUMENTED_PASSWORD
        remedy = "set webServer.systemAccountPassword"
    else:
        is_documented = accounts.has_password(name, DOCUMENTED_PASSWORD)
        remedy = f"change it by PUT /api/users/{name}?password, on a server that has neither --access nor tokens"
    if is_documented:
        problem = f"others may ask this server, and {name} has the password that stands in the documents: {remedy}"
        raise InvalidInputError(source=configuration.source, problem=problem)
