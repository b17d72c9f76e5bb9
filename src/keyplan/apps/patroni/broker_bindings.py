"""Bindings: a role of its own for each, made in the instance's PostgreSQL, and dead after unbind.

A record stands before its role and after it, so that a broker that dies in between leaves nothing that nobody knows.
"""

import secrets
from collections.abc import Callable
from threading import Event
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import psycopg

from keyplan.apps.patroni.catalog import Plan
from keyplan.apps.patroni.clusters import leader_of
from keyplan.apps.patroni.layout import BindingKey, Broker
from keyplan.apps.patroni.login_roles import family_of
from keyplan.apps.patroni.operations import IN_PROGRESS, is_usable_after, new_password, refuse_under_way
from keyplan.apps.patroni.postgresql_roles import create_role, drop_role
from keyplan.apps.patroni.records import Binding as BindingRecord
from keyplan.apps.patroni.records import Credentials, InstanceState
from keyplan.apps.patroni.refusals import CONCURRENCY, RefusedError
from keyplan.engine import SYSTEM_CLOCK, Clock
from keyplan.layout import Binding
from keyplan.store import Store

__all__ = ["Bindings", "RouterAddress", "credentials_shown"]

_TRY_SECONDS: Final = 10.0
_AGAIN_SECONDS: Final = 0.5


class Bindings:
    """Binds and unbinds; blocks until the leader has done it. Raises RefusedError, after which the same can be asked again."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._broker = Broker(store)
        self._clock = clock

    def bind(self, key: BindingKey, service_id: str, plan: Plan, app_guid: str, parameters: dict[str, Any]) -> bool:
        """Make a binding and its role. Return False when the same binding was there already."""

        def work(binding: Binding) -> tuple[InstanceState, BindingRecord, bool]:
            broker = Broker(binding)
            state = usable_instance(broker, key.instance, service_id, plan.id)
            found = broker.bindings.get(key)
            if found is None:
                credentials = Credentials(username=f"u{secrets.token_hex(8)}", password=new_password())
                found = BindingRecord(
                    service_id=service_id,
                    plan_id=plan.id,
                    credentials=credentials,
                    parameters=parameters,
                    app_guid=app_guid,
                    created_at=self._clock.wall(),
                )
                broker.bindings.insert(key, found)
                return state, found, True
            if (found.service_id, found.plan_id, found.app_guid, found.parameters) != (
                *(service_id, plan.id, app_guid),
                parameters,
            ):
                raise RefusedError(409, "there is a binding of this id with other attributes")
            if found.state == "removing":
                raise RefusedError(422, "the binding is being deleted", word=CONCURRENCY)
            return state, found, found.state == "creating"

        state, record, is_new = self._store.run(work)
        if not is_new:
            return False
        self._at_leader(
            key.instance,
            lambda address: create_role(address, state.superuser_credentials, plan.database, record.credentials),
        )
        try:
            self._store.run(lambda binding: _made_ready(Broker(binding), key, record.credentials))
        except RefusedError:
            # Why: it was unbound while the role was made, perhaps before there was a role to drop.
            username = record.credentials.username
            self._at_leader(
                key.instance, lambda address: drop_role(address, state.superuser_credentials, plan.database, username)
            )
            raise
        return True

    def unbind(self, key: BindingKey, service_id: str, plan_id: str, database: str) -> None:
        """Drop a binding's role and sessions, then the binding. RefusedError (410) when there is none."""

        def work(binding: Binding) -> tuple[InstanceState, BindingRecord]:
            broker = Broker(binding)
            state, found = broker.instances.get(key.instance), broker.bindings.get(key)
            if state is None or found is None:
                raise RefusedError(410, "there is no such binding")
            # Why two plans: the instance may have got another one since it was bound.
            if service_id != found.service_id or plan_id not in {found.plan_id, state.plan_id}:
                raise RefusedError(400, "service_id and plan_id are not those of the binding")
            operation = broker.operations.get(key.instance)
            if operation is not None and operation.status == IN_PROGRESS and operation.kind == "deprovision":
                raise RefusedError(422, "the instance is being deleted, and its bindings with it", word=CONCURRENCY)
            found.state = "removing"
            broker.bindings.put(key, found)
            return state, found

        state, record = self._store.run(work)
        username = record.credentials.username

        def drop(address: str) -> None:
            # Why all: a role whose place this one has taken may count still.
            for name in (username, *family_of(address, state.superuser_credentials, username, database)):
                drop_role(address, state.superuser_credentials, database, name)

        self._at_leader(key.instance, drop)
        self._store.run(lambda binding: _forget(Broker(binding), key, record.credentials))

    def _at_leader(self, instance: str, work: Callable[[str], None]) -> None:
        """Call `work` with the leader's address, again for a while as the leader may be changing."""
        give_up = SYSTEM_CLOCK.monotonic() + _TRY_SECONDS
        while True:
            found = leader_of(self._broker, instance)
            address = found[1].address if found is not None else None
            problem, cause = "it has no leader", None
            if address is not None:
                try:
                    work(address)
                except psycopg.Error as error:
                    problem, cause = f"PostgreSQL at {address} failed: {type(error).__name__}", error
                else:
                    return
            if SYSTEM_CLOCK.monotonic() > give_up:
                raise RefusedError(500, f"the cluster cannot be reached now, try again: {problem}") from cause
            Event().wait(_AGAIN_SECONDS)


def usable_instance(broker: Broker, instance: str, service_id: str, plan_id: str) -> InstanceState:
    """Return the instance if it can be bound. Raises RefusedError: 404, 400 for another plan, 422 while it is changed."""
    state, operation = broker.instances.get(instance), broker.operations.get(instance)
    if state is None:
        raise RefusedError(404, "there is no such instance")
    if (service_id, plan_id) != (state.service_id, state.plan_id):
        raise RefusedError(400, "service_id and plan_id are not those of the instance")
    refuse_under_way(operation)
    if not is_usable_after(operation):
        raise RefusedError(422, "the instance could not be made; delete it")
    return state


def _forget(broker: Broker, key: BindingKey, credentials: Credentials) -> None:
    """Delete a binding that is unbound; not one of the same id that was made since."""
    record = broker.bindings.get(key)
    if record is not None and record.state == "removing" and record.credentials == credentials:
        broker.bindings.delete(key)


def _made_ready(broker: Broker, key: BindingKey, credentials: Credentials) -> None:
    record = broker.bindings.get(key)
    if record is not None and record.state == "ready" and record.credentials == credentials:
        return  # Why: an equal request at the same time made the same role, and was faster.
    if record is None or record.state != "creating" or record.credentials != credentials:
        raise RefusedError(422, "the binding was deleted meanwhile", word=CONCURRENCY)
    record.state = "ready"
    broker.bindings.put(key, record)


class RouterAddress(NamedTuple):
    """Where bindings say that the router is, and how a client is to see to it that nobody listens: libpq's `sslmode`.

    `authorities` are the certificates, as PEM, that a client verifies by who answers.
    """

    host: str
    ssl_mode: str = ""
    authorities: str = ""


def credentials_shown(
    router: RouterAddress,
    port: int,
    database: str,
    user: Credentials,
    *,
    reads: int | None = None,
    superuser: Credentials | None = None,
) -> dict[str, Any]:
    """Return the credentials of a binding as the API shows them: the router's address, and the role's name and password.

    `reads` is the port that leads to replicas.
    """
    mode = f"sslmode={router.ssl_mode}" if router.ssl_mode else ""

    def uri(of: Credentials, at: int) -> str:
        place = f"{router.host}:{at}/{quote(database)}" + (f"?{mode}" if mode else "")
        return f"postgres://{quote(of.username, safe='')}:{quote(of.password.reveal(), safe='')}@{place}"

    user_word, password_word = quote(user.username, safe=""), quote(user.password.reveal(), safe="")
    jdbc = f"jdbc:postgresql://{router.host}:{port}/{quote(database)}?user={user_word}&password={password_word}"
    shown: dict[str, Any] = {
        "host": router.host,
        "port": port,
        "name": database,
        "username": user.username,
        "password": user.password.reveal(),
        "uri": uri(user, port),
        "jdbcUrl": jdbc + (f"&{mode}" if mode else ""),
    }
    if router.authorities:
        shown["ca_certificate"] = router.authorities
    if reads is not None:
        shown |= {"read_port": reads, "read_uri": uri(user, reads)}
    if superuser is not None:
        shown |= {
            "superuser_username": superuser.username,
            "superuser_password": superuser.password.reveal(),
            "superuser_uri": uri(superuser, port),
        }
    return shown
