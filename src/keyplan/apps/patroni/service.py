"""The broker as a service of `keyplan serve --app patroni-broker`: which part of it a process is.

The broker itself is `broker_service.py`: a process of gateways alone does not import it.
"""

from keyplan.apps.patroni.broker_settings import SERVICE_NAME, BrokerSettings
from keyplan.apps.patroni.layout import Broker
from keyplan.apps.patroni.principals import ClusterPrincipals, followed
from keyplan.errors import InvalidInputError
from keyplan.server import Service, ServiceContext, layout_areas
from keyplan.settings import of_service, read_settings
from keyplan.store import Store

__all__ = ["build"]


def _clusters_alone(context: ServiceContext, principals: ClusterPrincipals | None) -> Service:
    """Return the service of a process that has the gateways, where the broker is another one: either may die alone."""
    if principals is None:
        raise InvalidInputError(
            source=f"{SERVICE_NAME}.part",
            problem="without an access file no cluster is known by a token: give --access",
        )
    return Service(
        SERVICE_NAME, lifespan=lambda: followed(principals, context), is_confined=True, principals=principals
    )


def build(context: ServiceContext) -> Service:
    """Return the service. Raises InvalidInputError for a setting's value, or for a catalog that cannot be read.

    The settings are those of BrokerSettings.
    """
    settings = read_settings(BrokerSettings, of_service(context.settings, SERVICE_NAME))
    # Why never closed: the engine inside is the server's, and without leases the store has nothing else to end. Why not all to
    # write: registrations stand right below the root, `/`, and are the registrars'.
    own = context.own(*layout_areas(Broker.bound(), read_only={"registrations"}))
    store = Store(own, clock=context.clock, secrets=context.secrets, layout_check=context.layout_check)
    # Why by the access file: without one nobody knows a cluster by its token, and who asks with one is nobody.
    principals = None if context.access.policy is None else ClusterPrincipals(store)
    if settings.part == "clusters":
        return _clusters_alone(context, principals)
    # Why here: who gives nodes their store starts again without what it never uses, as psycopg.
    from keyplan.apps.patroni.broker_service import built_broker  # noqa: PLC0415

    return built_broker(context, settings, store, principals)
