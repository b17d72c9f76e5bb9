"""The explorer: a store as pages to look at, by meaning. Every page has a permalink and a JSON twin; nothing is written.

Its settings: `layout`, the layouts that the store is read by: `NAME[?PARAMETER=VALUE&...],...`; `layout.KEYSPACE`, those of one
key space; `role`, who may look: `client` (as it is) or `admin`.
"""

from keyplan.errors import InvalidArgumentError
from keyplan.server.explorer.areas import Areas
from keyplan.server.explorer.description import DESCRIPTION
from keyplan.server.explorer.layouts import LayoutBook
from keyplan.server.explorer.live import LiveStreams
from keyplan.server.explorer.routes import ExplorerRoutes
from keyplan.server.service import Service, ServiceContext

__all__ = ["build"]

_ROLES = ("client", "admin")


def build(context: ServiceContext) -> Service:
    """Return the service. Raises InvalidArgumentError, InvalidInputError, InvalidKeyError, UnknownNameError for a setting."""
    role = context.settings.get("role", "client")
    if role not in _ROLES:
        raise InvalidArgumentError(argument="role", problem=f"it is {' or '.join(_ROLES)}")
    areas = Areas(context.engine, LayoutBook(context.settings))
    routes = ExplorerRoutes(context, areas, LiveStreams(context.closing), is_for_admins=role == "admin")
    return Service("explorer", routes.routes(), DESCRIPTION)
