"""The key space registry over HTTP: the built-in service.

Its settings: `sweep`, on or off: whether this server removes what deleted key spaces held; `prefix-codec` and `profile`, with
which a registry is made where there is none.
"""

from keyplan.keyspace import Founding, KeySpaces
from keyplan.server.keyspaces.bodies import flags_of
from keyplan.server.keyspaces.description import DESCRIPTION
from keyplan.server.keyspaces.routes import RegistryRoutes
from keyplan.server.service import Service, ServiceContext

__all__ = ["build"]


def build(context: ServiceContext) -> Service:
    """Return the service of the registry of the server's store."""
    founding = None
    if "prefix-codec" in context.settings or "profile" in context.settings:
        founding = Founding(
            prefix_codec=context.settings.get("prefix-codec", "uvarint"),
            profile=context.settings.get("profile", "none"),
        )
    flags_of(context.settings, "sweep")
    registry = KeySpaces(context.engine, founding=founding, clock=context.clock)
    return Service("keyspaces", RegistryRoutes(context, registry).routes(), DESCRIPTION)
