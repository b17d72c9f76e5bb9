"""What of its store a cell reaches: its own, and nothing of another cell, an instance or Patroni. No node runs here."""

from collections.abc import Callable

import pytest

from keyplan.apps.patroni import Broker, Cell, InstanceState, NodeOrder, NodeReport, OrderKey, RegistrationKey
from keyplan.apps.patroni.cell_reach import cell_store
from keyplan.errors import AccessDeniedError, LeaseNotFoundError
from keyplan.store import open_store


def test_a_cell_reaches_what_is_its_own_and_nothing_else() -> None:
    store = open_store("memory:")
    broker = Broker(store)
    broker.instances.put("i", InstanceState(instance_id="i"))
    broker.orders.put(OrderKey("c1", "n1"), NodeOrder(instance="i"))
    broker.orders.put(OrderKey("c10", "n1"), NodeOrder(instance="i"))
    broker.cells.put("c10", Cell(), lease=store.lease(600, keep_alive=False))
    confined = cell_store(store, "c1", hostname="h")
    own, lease = Broker(confined), confined.lease(600, keep_alive=False)
    assert [key.node for key, _ in own.orders.list("c1")] == ["n1"]
    attempts: list[Callable[[], object]] = [
        lambda: list(own.orders.list("c10")),
        lambda: list(own.orders.list()),
        lambda: own.orders.put(OrderKey("c10", "n2"), NodeOrder(instance="i")),
        lambda: own.orders.delete(OrderKey("c10", "n1")),
        lambda: own.cells.get("c10"),
        own.cells.count,
        lambda: own.reports.put(OrderKey("c10", "n1"), NodeReport(), lease=lease),
        lambda: own.instances.get("i"),
        lambda: own.leaders.get("i"),
        lambda: own.leaders.put("i", "me", lease=lease),
        lambda: own.registrations.put(RegistrationKey("postgresql-patroni", "other", "c", 5432), "h:1", lease=lease),
        lambda: own.operations.get("i"),
    ]
    for attempt in attempts:
        with pytest.raises(AccessDeniedError) as refused:
            attempt()
        assert refused.value.facts["who"] == "cell:c1"
    with store.snapshot() as state:
        assert Broker(state).orders.exists(OrderKey("c10", "n1"))


def test_a_cells_lease_is_not_another_cells() -> None:
    store = open_store("memory:")
    one, other = (cell_store(store, name, hostname="h") for name in ("c1", "c10"))
    lease = one.lease(60, keep_alive=False)
    with pytest.raises(LeaseNotFoundError):
        other.resume_lease(lease.id).keep_alive()
    assert one.resume_lease(lease.id).keep_alive() > 0
