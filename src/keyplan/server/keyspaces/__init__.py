"""The key space registry over HTTP: the built-in service.

Its settings: `sweep`, on or off: whether this server removes what deleted key spaces held; `sweep-keys-per-second`, how fast at
most; `prefix-codec` and `profile`, with which a registry is made where there is none.
"""

from typing import Final

from keyplan.errors import InvalidArgumentError
from keyplan.keyspace import PROFILES, Founding, KeySpaces, prefix_codec
from keyplan.operations import Contract, described, whole_number, words
from keyplan.server.keyspaces.routes import OPERATIONS, RegistryResponder
from keyplan.server.keyspaces.sweeping import Sweeping
from keyplan.server.service import Service, ServiceContext, no_lifespan

__all__ = ["DESCRIPTION", "build"]

DESCRIPTION: Final = described(OPERATIONS.values(), Contract("keyspaces"))
"""The registry's part of the OpenAPI description. Tests run what it says against a served registry."""

_SWITCH: Final = words({"on": True, "off": False})
_SPEED_MAX: Final = 1_000_000_000


def build(context: ServiceContext) -> Service:
    """Return the service of the registry of the server's store. Raises InvalidArgumentError for a setting's value."""
    settings = context.settings
    registry = KeySpaces(context.engine, founding=_founding(context), clock=context.clock)
    speed = settings.get("sweep-keys-per-second")
    keys_per_second = None if speed is None else whole_number("sweep-keys-per-second", speed, least=1, most=_SPEED_MAX)
    sweeping = Sweeping(context, registry, keys_per_second=keys_per_second)
    routes = RegistryResponder(context, registry, sweeping).routes(OPERATIONS.values())
    is_on = _SWITCH.read("sweep", settings.get("sweep", "on"))
    return Service("keyspaces", routes, DESCRIPTION, sweeping.lifespan if is_on else no_lifespan)


def _founding(context: ServiceContext) -> Founding:
    """How a registry is made where there is none: as the settings say, else as the engine suggests."""
    codec, profile = context.settings.get("prefix-codec"), context.settings.get("profile")
    if profile is not None and profile not in PROFILES:
        raise InvalidArgumentError(argument="profile", problem=f"it is one of {', '.join(sorted(PROFILES))}")
    suggested = KeySpaces(context.engine).founding
    named = suggested.prefix_codec if codec is None else prefix_codec(codec).name
    return Founding(named, suggested.profile if profile is None else profile)
