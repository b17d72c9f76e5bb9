"""The key space registry over HTTP: the built-in service.

Its settings are those of RegistrySettings.
"""

from dataclasses import dataclass
from typing import Annotated, Final, Literal

from keyplan.engine import Engine
from keyplan.keyspace import PROFILES, Founding, KeySpaces
from keyplan.operations import Contract, described
from keyplan.server.keyspaces.routes import OPERATIONS, RegistryResponder
from keyplan.server.keyspaces.sweeping import Sweeping
from keyplan.server.service import Service, ServiceContext, no_lifespan
from keyplan.settings import Setting, of_service, one_of, read_settings

__all__ = ["DESCRIPTION", "RegistrySettings", "build"]

DESCRIPTION: Final = described(OPERATIONS.values(), Contract("keyspaces"))
"""The registry's part of the OpenAPI description. Tests run what it says against a served registry."""

_SPEED_MAX: Final = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrySettings:
    """What `keyplan serve --setting keyspaces.NAME=TEXT` says."""

    sweep: Annotated[
        Literal["on", "off"],
        Setting("whether this server removes what deleted key spaces held; several of one store share the work"),
    ] = "on"
    sweep_keys_per_second: Annotated[
        int | None, Setting("how fast at most", least=1, most=_SPEED_MAX, default="as fast as it can")
    ] = None
    prefix_codec: Annotated[
        Literal["uvarint", "ordered"] | None,
        Setting(
            "how prefixes are numbered, for a registry that is made where there is none", default="as suits the engine"
        ),
    ] = None
    profile: Annotated[
        str | None,
        Setting("whose rules such a registry follows", form=one_of(*sorted(PROFILES)), default="as suits the engine"),
    ] = None


def build(context: ServiceContext) -> Service:
    """Return the service of the registry of the server's store. Raises InvalidInputError for a setting's value."""
    settings = read_settings(RegistrySettings, of_service(context.settings, "keyspaces"))
    engine = context.whole_store()
    registry = KeySpaces(engine, founding=_founding(engine, settings), clock=context.clock)
    sweeping = Sweeping(context, registry, keys_per_second=settings.sweep_keys_per_second)
    routes = RegistryResponder(context, registry, sweeping).routes(OPERATIONS.values())
    is_on = settings.sweep == "on"
    # Why confined: what each operation needs is decided before it is performed, and lists show what may be read.
    lifespan = sweeping.lifespan if is_on else no_lifespan
    return Service("keyspaces", routes, DESCRIPTION, lifespan, is_confined=True)


def _founding(engine: Engine, settings: RegistrySettings) -> Founding:
    """How a registry is made where there is none: as the settings say, else as the engine suggests."""
    suggested = KeySpaces(engine).founding
    return Founding(settings.prefix_codec or suggested.prefix_codec, settings.profile or suggested.profile)
