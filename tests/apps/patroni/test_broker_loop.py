"""One operation that cannot be read keeps no other waiting; equal requests at once leave one living binding."""

from threading import Barrier, Thread
from typing import Any

import pytest

from keyplan import Secret
from keyplan.apps.patroni import (
    Binding,
    BindingKey,
    Broker,
    Credentials,
    InstanceState,
    Member,
    MemberKey,
    Operation,
    Step,
)
from keyplan.apps.patroni import broker_bindings as module
from keyplan.apps.patroni.broker_bindings import Bindings
from keyplan.apps.patroni.broker_loop import BrokerLoop
from keyplan.apps.patroni.catalog import BUILT_IN_CATALOG
from keyplan.apps.patroni.ports import PortAllocator, PortRange
from keyplan.apps.patroni.refusals import RefusedError
from keyplan.engine import SYSTEM_CLOCK, Commit, Put
from keyplan.store import Store, open_store
from tests.servers.patroni import until

SERVICE = BUILT_IN_CATALOG.services[0]
PLAN = SERVICE.plans[0]
KEY = BindingKey("i", "b")


def test_an_operation_that_cannot_be_read_stops_no_other() -> None:
    store = open_store("memory:")
    broker = Broker(store)
    for instance in ("bad", "good"):
        broker.operations.put(instance, Operation(id="x", kind="deprovision", steps=[Step(kind="erase")]))
        broker.instances.put(instance, InstanceState(instance_id=instance))
    store.engine.commit(Commit((), (Put(b"/_broker/operations/bad", b"{broken"),)))
    loop = BrokerLoop(store, BUILT_IN_CATALOG, SYSTEM_CLOCK)
    loop.start()
    try:
        until(lambda: broker.operations.require("good").status == "success", 30, lambda: "good is carried out")
        assert loop.forget_old() == 0
    finally:
        loop.stop()


def test_a_fault_of_a_look_ends_no_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the machine has no thread left: the operation is taken up at a later look."""
    store = open_store("memory:")
    broker = Broker(store)
    broker.operations.put("good", Operation(id="x", kind="deprovision", steps=[Step(kind="erase")]))
    broker.instances.put("good", InstanceState(instance_id="good"))
    loop = BrokerLoop(store, BUILT_IN_CATALOG, SYSTEM_CLOCK)
    submit, refused = loop._executor.submit, list[None]()

    def submitted(*given: Any) -> object:
        if not refused:
            refused.append(None)
            raise RuntimeError("can't start new thread")
        return submit(*given)

    monkeypatch.setattr(loop._executor, "submit", submitted)
    loop.start()
    try:
        until(lambda: broker.operations.require("good").status == "success", 30, lambda: "good is carried out")
    finally:
        loop.stop()


def test_a_damaged_allocation_keeps_nobody_from_a_port() -> None:
    store = open_store("memory:")
    store.engine.commit(Commit((), (Put(b"/routing/allocation/bad", b"0"),)))
    assert PortAllocator(store, PortRange(33000, 33001)).allocate("good") == 33000


@pytest.fixture
def store() -> Store:
    """An instance that can be bound, with a leader."""
    store = open_store("memory:")
    broker = Broker(store)
    broker.instances.put("i", InstanceState(instance_id="i", service_id=SERVICE.id, plan_id=PLAN.id))
    broker.operations.put("i", Operation(id="x", kind="provision", status="success"))
    lease = store.lease(600, keep_alive=False)
    broker.leaders.put("i", "m", lease=lease)
    member = Member(conn_url=Secret("postgres://h:5432/x"), role="primary", state="running")
    broker.members.put(MemberKey("i", "m"), member, lease=lease)
    return store


def test_two_equal_requests_at_once_leave_a_binding_that_lives(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    roles: set[str] = set()
    both = Barrier(2)

    def create(_address: str, _superuser: Credentials, _database: str, role: Credentials) -> None:
        both.wait(30)
        roles.add(role.username)

    def drop(_address: str, _superuser: Credentials, _database: str, username: str) -> None:
        roles.discard(username)

    monkeypatch.setattr(module, "create_role", create)
    monkeypatch.setattr(module, "drop_role", drop)
    answers: list[object] = []

    def bind() -> None:
        try:
            answers.append(Bindings(store, SYSTEM_CLOCK).bind(KEY, SERVICE.id, PLAN, "", {}))
        except RefusedError as error:
            answers.append(error)

    threads = [Thread(target=bind) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    record = Broker(store).bindings.require(KEY)
    assert answers == [True, True]
    assert record.state == "ready"
    assert roles == {record.credentials.username}


def test_an_unbind_that_comes_late_leaves_a_binding_that_was_made_since(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two equal requests to unbind; between them the binding is made again, with a role of its own."""
    bindings = Broker(store).bindings
    new = Binding(service_id=SERVICE.id, plan_id=PLAN.id, state="ready", credentials=Credentials(username="u2"))
    bindings.put(KEY, Binding(service_id=SERVICE.id, plan_id=PLAN.id, credentials=Credentials(username="u1")))
    dropped: list[str] = []

    def drop(_address: str, _superuser: Credentials, _database: str, username: str) -> None:
        dropped.append(username)
        bindings.put(KEY, new)

    monkeypatch.setattr(module, "drop_role", drop)
    monkeypatch.setattr(module, "family_of", lambda *_: [])
    Bindings(store, SYSTEM_CLOCK).unbind(KEY, SERVICE.id, PLAN.id, PLAN.database)
    assert dropped == ["u1"]
    assert bindings.require(KEY) == new
