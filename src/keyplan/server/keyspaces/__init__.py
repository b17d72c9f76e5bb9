"""The key space registry over HTTP: the built-in service.

Its settings: `sweep`, on or off: whether this server removes what deleted key spaces held; `sweep-keys-per-second`, how fast at
most; `prefix-codec` and `profile`, with which a registry is made where there is none.
"""

from keyplan.errors import InvalidArgumentError
from keyplan.keyspace import PROFILES, Founding, KeySpaces, prefix_codec
from keyplan.server.keyspaces.bodies import is_on, whole_number
from keyplan.server.keyspaces.description import DESCRIPTION
from keyplan.server.keyspaces.routes import RegistryRoutes
from keyplan.server.keyspaces.sweeping import BackgroundSweep
from keyplan.server.service import Service, ServiceContext

__all__ = ["build"]

_SPEED_MAX = 1_000_000_000


def build(context: ServiceContext) -> Service:
    """Return the service of the registry of the server's store. Raises InvalidArgumentError for a setting's value."""
    registry = KeySpaces(context.engine, founding=_founding(context), clock=context.clock)
    speed = context.settings.get("sweep-keys-per-second")
    if not is_on(context.settings, "sweep"):
        return Service("keyspaces", RegistryRoutes(context, registry).routes(), DESCRIPTION)
    keys_per_second = (
        None if speed is None else float(whole_number("sweep-keys-per-second", speed, least=1, most=_SPEED_MAX))
    )
    sweep = BackgroundSweep(context, registry, keys_per_second=keys_per_second)
    routes = RegistryRoutes(context, registry, on_deletion=sweep.look_soon).routes()
    return Service("keyspaces", routes, DESCRIPTION, sweep.lifespan)


def _founding(context: ServiceContext) -> Founding | None:
    codec, profile = context.settings.get("prefix-codec"), context.settings.get("profile")
    if codec is None and profile is None:
        return None
    if profile is not None and profile not in PROFILES:
        raise InvalidArgumentError(argument="profile", problem=f"it is one of {', '.join(sorted(PROFILES))}")
    prefix_codec(codec or "uvarint")
    return Founding(prefix_codec=codec or "uvarint", profile=profile or "none")
