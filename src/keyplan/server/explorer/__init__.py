"""The explorer: a store as pages to look at, by meaning. Every page has a permalink and a JSON twin; nothing is written.

Its settings: `layout`, the layouts that the store is read by: `NAME[?PARAMETER=VALUE&...],...`; `layout.KEYSPACE`, those of one
key space; and those of ExplorerSettings.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

from keyplan.engine import Area, KeyRange
from keyplan.keyspace import KeySpaceRegistry
from keyplan.server.explorer.layouts import LayoutBook
from keyplan.server.explorer.live import LiveStreams
from keyplan.server.explorer.operations import DESCRIPTION
from keyplan.server.explorer.routes import ExplorerResponder, areas_of_callers
from keyplan.server.service import Service, ServiceContext
from keyplan.settings import Setting, of_service, read_settings

__all__ = ["ExplorerSettings", "build"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplorerSettings:
    """What `keyplan serve --setting explorer.NAME=TEXT` says, beside the layouts."""

    role: Annotated[Literal["client", "admin"], Setting("who may look")] = "client"


def build(context: ServiceContext) -> Service:
    """Return the service. Raises InvalidInputError, InvalidKeyError, UnknownNameError for a setting."""
    settings = read_settings(ExplorerSettings, of_service(context.settings, "explorer"))
    registry = context.own(Area(KeyRange.of_prefix(KeySpaceRegistry.bound().root)))
    areas_of = areas_of_callers(registry, context.access, LayoutBook(context.settings))
    streams = LiveStreams(context.closing)
    responder = ExplorerResponder(context, areas_of, streams, is_for_admins=settings.role == "admin")
    return Service("explorer", responder.all_routes(), DESCRIPTION, is_confined=True)
