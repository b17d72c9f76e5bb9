"""HEPnOS's databases behind HTTP: `keyplan serve --store URL --app hepnos --setting hepnos.store=lmdb:/data/nova`.

As in HEPnOS itself, a server has databases and knows nothing of events: whoever uses it makes the keys and places them, in
packed operations on many at once. Forms and routes: docs/reference/hepnos-http.md. The client is `remote.py`. With an access
file each caller has databases of what they are granted: `service_callers.py`.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated

from keyplan.apps.hepnos.databases import Address, Databases, database_counts, read_counts
from keyplan.apps.hepnos.operations import (
    CONTRACT,
    DatabaseOperations,
)
from keyplan.apps.hepnos.queue_operations import QueueOperations
from keyplan.apps.hepnos.service_databases import DatabasesResponder
from keyplan.apps.hepnos.service_frames import FramesResponder
from keyplan.apps.hepnos.service_queues import KeptQueues
from keyplan.errors import InvalidInputError
from keyplan.operations import described, operations_of
from keyplan.server import (
    Service,
    ServiceContext,
)
from keyplan.settings import Setting, TextForm, of_service, read_settings

__all__ = ["HepnosSettings", "build"]


@dataclass(frozen=True, slots=True, kw_only=True)
class HepnosSettings:
    """What `keyplan serve --setting hepnos.NAME=TEXT` says."""

    store: Annotated[str, Setting("the URL of the store, as `hepnos.open` takes it", default="must be given")] = ""
    databases: Annotated[
        Mapping[str, int] | None,
        Setting(
            "how many databases of each kind a new store has",
            form=TextForm(lambda text: read_counts(text.split(","), source="hepnos.databases"), "`KIND=NUMBER,...`"),
            default="one of each",
        ),
    ] = None
    readonly: Annotated[bool, Setting("nothing is written")] = False
    frames: Annotated[bool, Setting("connections may speak frames in place of HTTP")] = True
    log_each: Annotated[int, Setting("one of so many frames that are answered has a line in the log", least=1)] = 1_000


def build(context: ServiceContext) -> Service:
    """Return the service. Raises InvalidInputError for its settings, and what opening a store raises.

    The settings are those of HepnosSettings.
    """
    settings = read_settings(HepnosSettings, of_service(context.settings, "hepnos"))
    if not settings.store:
        raise InvalidInputError(source="hepnos.store", problem="a HEPnOS store has files of its own: name its URL")
    address = Address(settings.store, is_readonly=settings.readonly)
    databases = Databases.open(
        address, database_counts(settings.databases), create=not settings.readonly, around=context.audit.noting
    )
    operations = [*operations_of(DatabaseOperations).values(), *operations_of(QueueOperations).values()]
    queues = KeptQueues(address, context.audit.noting)
    routes = DatabasesResponder(context, databases, queues).routes(operations)
    if settings.frames:
        routes.append(FramesResponder(context, databases, queues, log_each=settings.log_each).way_in())

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        try:
            yield
        finally:
            queues.close()
            databases.close()

    return Service("hepnos", routes, described(operations, CONTRACT), lifespan, is_confined=True)
