"""What a cell removes, and when: on an explicit order of the store that it knows, and at no other time. No PostgreSQL runs."""

import re
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread

import msgspec
import pytest

from keyplan.apps.patroni import (
    STORE_IDENTITY,
    Broker,
    Cell,
    NodeOrder,
    OrderKey,
    StoreIdentity,
)
from keyplan.engine import NO_LEASE, Commit, Lineage, Put, WrappedEngine
from keyplan.errors import InvalidInputError
from keyplan.store import Store, open_store
from tests.apps.patroni.sleeping_cell import (
    Agents,
    names,
    ordered_store,
    sleeping_agents,
    started,
    state_of,
    steps_until,
)
from tests.servers.patroni import until


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cell"


@pytest.fixture
def agents(tmp_path: Path, folder: Path) -> Iterator[Agents]:
    with sleeping_agents(tmp_path, folder) as made:
        yield made


def data_of(folder: Path, node: str) -> Path:
    """Plant a file where PostgreSQL's data would be."""
    data = folder / "nodes" / node / "home" / "data"
    data.mkdir(parents=True, exist_ok=True)
    (data / "base").write_text("rows")
    return data / "base"


def test_another_store_is_refused_however_far_it_has_counted(agents: Agents, folder: Path) -> None:
    started(agents, ordered_store("n1"), "n1")
    data = data_of(folder, "n1")
    other = open_store("memory:")
    for number in range(50):
        Broker(other).initializations.put("other", str(number))
    agent = agents(other)
    with pytest.raises(InvalidInputError, match="another store"):
        agent.run(Event())
    assert data.exists()
    assert Broker(other).cells.count() == 0, "it announces itself to no store that is not its own"
    assert Broker(other).identities.count() == 0, "and gives it no identity"


def test_another_store_with_an_identity_of_its_own_is_refused_and_accepted_only_when_told(
    agents: Agents, folder: Path
) -> None:
    started(agents, ordered_store("n1"), "n1")
    other = open_store("memory:")
    Broker(other).identities.put(STORE_IDENTITY, StoreIdentity(id="another"))
    for number in range(50):
        Broker(other).initializations.put("other", str(number))
    agent = agents(other, accept=consent_for(agents, other))
    steps_until(agent, lambda: state_of(other, "n1") == "unordered")
    assert names(agent) == ["n1"]
    again = agents(other)
    again.step()


def consent_for(agents: Agents, store: Store) -> str:
    """What the refusal of a store tells to give, to follow it."""
    with pytest.raises(InvalidInputError, match="--accept-store") as refused:
        agents(store).step()
    found = re.search(r"--accept-store ([0-9a-f]+) ", str(refused.value))
    assert found is not None
    return found[1]


def test_a_consent_is_for_one_store_once(agents: Agents, folder: Path) -> None:
    """It may be left in a unit file: the next other store is refused as it would be without."""
    first = ordered_store("n1")
    started(agents, first, "n1")
    data = data_of(folder, "n1")
    second, third = ordered_store("n1"), ordered_store("n1")
    with pytest.raises(InvalidInputError, match="another store"):
        agents(second, accept="0123456789ab").step()
    consent = consent_for(agents, second)
    with pytest.raises(InvalidInputError, match="another store"):
        agents(third, accept=consent).step()
    agents(second, accept=consent).step()
    for other in (third, first):
        with pytest.raises(InvalidInputError, match="another store"):
            agents(other, accept=consent).step()
    agents(second, accept=consent).step()
    assert data.exists()


def test_a_consent_to_an_older_store_is_for_that_time(agents: Agents, folder: Path) -> None:
    store = ordered_store("n1")
    started(agents, store, "n1")
    file = folder / "store.json"
    known = msgspec.json.decode(file.read_bytes())
    file.write_bytes(msgspec.json.encode(known | {"revision": known["revision"] + 1_000}))
    consent = consent_for(agents, store)
    agents(store, accept=consent).step()
    file.write_bytes(msgspec.json.encode(known | {"revision": known["revision"] + 2_000}))
    with pytest.raises(InvalidInputError, match="went back"):
        agents(store, accept=consent).step()


@pytest.mark.parametrize("content", [b"{broken", b'{"availability_zone":"z1","host":"h"}'], ids=["damaged", "readable"])
def test_a_record_of_the_cell_on_no_lease_keeps_it_from_nothing(agents: Agents, content: bytes) -> None:
    store = ordered_store("n1")
    store.engine.commit(Commit((), (Put(b"/_broker/cells/c1", content),)))
    started(agents, store, "n1")
    found = Broker(store).cells.versioned("c1")
    assert found is not None
    assert found.lease != NO_LEASE
    # Damaged while it is announced: the agent that follows replaces it.
    store.engine.commit(Commit((), (Put(b"/_broker/cells/c1", b"{broken"),)))
    again = agents(store)
    again.step()
    assert Broker(store).cells.require("c1") == found.record
    assert names(again) == ["n1"]


def test_a_damaged_record_on_the_lease_of_another_agent_is_waited_for(agents: Agents) -> None:
    store = ordered_store("n1")
    lease = store.lease(600)
    store.engine.commit(Commit((), (Put(b"/_broker/cells/c1", b"{broken", lease.id),)))
    agent = agents(store)
    agent.step()
    assert names(agent) == []
    lease.revoke()
    steps_until(agent, lambda: names(agent) == ["n1"])


@pytest.mark.parametrize("key", [b"/_broker/reports/c1/n1", b"/_broker/reports/c1/n9"])
def test_a_damaged_report_stops_no_node(agents: Agents, key: bytes) -> None:
    store = ordered_store("n1")
    store.engine.commit(Commit((), (Put(key, b"{broken"),)))
    started(agents, store, "n1")


def test_a_copy_of_the_store_is_another_one(agents: Agents, folder: Path) -> None:
    """It has the identity, and an order of removal that somebody gave it while trying things out."""
    store = ordered_store("n1")
    started(agents, store, "n1")
    data = data_of(folder, "n1")
    copy = open_store("memory:")
    Broker(copy).identities.put(STORE_IDENTITY, Broker(store).identities.require(STORE_IDENTITY))
    for number in range(50):
        Broker(copy).initializations.put("other", str(number))
    Broker(copy).orders.put(OrderKey("c1", "n1"), NodeOrder(instance="i", remove=True))
    with pytest.raises(InvalidInputError, match="copy of the store"):
        agents(copy).run(Event())
    assert data.exists()


def test_the_absence_of_an_order_is_no_order(agents: Agents, folder: Path) -> None:
    """A store restored from before the order has the cell's identity, and knows nothing of the node."""
    store = ordered_store("n1", "n2")
    agent = started(agents, store, "n1", "n2")
    data = data_of(folder, "n1")
    Broker(store).orders.delete(OrderKey("c1", "n1"))
    steps_until(agent, lambda: state_of(store, "n1") == "unordered")
    for _ in range(5):
        agent.step(0.01)
    assert data.exists()
    assert names(agent) == ["n1", "n2"]


def test_a_removal_is_ordered_carried_out_and_the_order_deleted(agents: Agents, folder: Path) -> None:
    store = ordered_store("n1", "n2")
    agent = started(agents, store, "n1", "n2")
    data = data_of(folder, "n1")
    key = OrderKey("c1", "n1")
    Broker(store).orders.put(key, NodeOrder(instance="i", remove=True))
    steps_until(agent, lambda: not Broker(store).reports.exists(key))
    assert not data.exists()
    assert names(agent) == ["n2"]
    assert list(Broker(store).orders.keys()) == [OrderKey("c1", "n2")]


def test_a_removal_of_a_node_that_is_not_there_is_over_at_once(agents: Agents) -> None:
    store = ordered_store("n2")
    agent = started(agents, store, "n2")
    Broker(store).orders.put(OrderKey("c1", "never"), NodeOrder(instance="i", remove=True))
    steps_until(agent, lambda: not Broker(store).orders.exists(OrderKey("c1", "never")))


def test_a_removal_that_names_another_instance_removes_nothing(agents: Agents, folder: Path) -> None:
    store = ordered_store("n1")
    agent = started(agents, store, "n1")
    data = data_of(folder, "n1")
    Broker(store).orders.put(OrderKey("c1", "n1"), NodeOrder(instance="other", remove=True))
    steps_until(agent, lambda: state_of(store, "n1") == "failed")
    assert data.exists()


def test_a_store_whose_identity_changed_while_the_cell_ran_orders_no_removal(agents: Agents, folder: Path) -> None:
    store = ordered_store("n1")
    agent = started(agents, store, "n1")
    data = data_of(folder, "n1")
    Broker(store).identities.put(STORE_IDENTITY, StoreIdentity(id="another"))
    Broker(store).orders.put(OrderKey("c1", "n1"), NodeOrder(instance="i", remove=True))
    steps_until(agent, lambda: state_of(store, "n1") == "stopping")
    for _ in range(5):
        agent.step(0.01)
    assert data.exists()


def test_a_copy_that_answers_while_the_cell_runs_orders_no_removal(agents: Agents, folder: Path) -> None:
    class Turning(WrappedEngine):
        is_copy = False

        def lineage(self) -> Lineage:
            return super().lineage()._replace(store="a copy") if self.is_copy else super().lineage()

    engine = Turning(ordered_store("n1").engine)
    store = Store(engine)
    agent = started(agents, store, "n1")
    data = data_of(folder, "n1")
    engine.is_copy = True
    Broker(store).orders.put(OrderKey("c1", "n1"), NodeOrder(instance="i", remove=True))
    steps_until(agent, lambda: state_of(store, "n1") == "stopping")
    agent.step()
    assert (data.exists(), names(agent)) == (True, ["n1"])
    engine.is_copy = False
    steps_until(agent, lambda: names(agent) == [])
    assert not data.exists()


def test_a_home_that_cannot_be_looked_at_counts_as_data(agents: Agents, folder: Path) -> None:
    started(agents, store := ordered_store("n1", "n2"), "n1", "n2")
    half = folder / "nodes" / "half"
    half.mkdir()
    (half / "home").write_text("no folder")
    again = agents(store)
    steps_until(again, lambda: names(again) == ["n1", "n2"])
    assert (half / "home").exists()


def test_nodes_without_a_remembered_store_are_nobodys(agents: Agents, folder: Path) -> None:
    store = ordered_store("n1")
    started(agents, store, "n1")
    (folder / "store.json").unlink()
    with pytest.raises(InvalidInputError, match="does not know of which store"):
        agents(store).step()


def test_two_cells_of_one_new_store_agree_on_its_identity(agents: Agents, tmp_path: Path) -> None:
    store = ordered_store("n1")
    started(agents, store, "n1")
    before = Broker(store).identities.require(STORE_IDENTITY)
    again = agents(store)
    again.step()
    assert Broker(store).identities.require(STORE_IDENTITY) == before


def test_after_a_damaged_order_was_repaired_nodes_are_removed_again(agents: Agents) -> None:
    store = ordered_store("n1", "n2")
    agent = started(agents, store, "n1", "n2")
    store.engine.commit(Commit((), (Put(b"/_broker/orders/c1/n1", b"{broken"),)))
    steps_until(agent, lambda: state_of(store, "n1") == "failed")
    Broker(store).orders.put(OrderKey("c1", "n2"), NodeOrder(instance="i", remove=True))
    steps_until(agent, lambda: names(agent) == ["n1"])
    raw = NodeOrder(instance="i", remove=True)
    store.engine.commit(Commit((), (Put(b"/_broker/orders/c1/n1", Broker.spec.tables["orders"].form.encode(raw)),)))
    steps_until(agent, lambda: names(agent) == [])


def test_a_damaged_instance_stops_no_node(agents: Agents) -> None:
    """Its own neither: an order has all that a cell needs."""
    store = ordered_store("n1")
    agent = started(agents, store, "n1")
    store.engine.commit(Commit((), (Put(b"/serviceinstances/bad/state", b"{broken"),)))
    Broker(store).orders.put(OrderKey("c1", "b1"), NodeOrder(instance="bad"))
    Broker(store).orders.put(OrderKey("c1", "n2"), NodeOrder(instance="i"))
    steps_until(agent, lambda: names(agent) == ["b1", "n1", "n2"])


# ---- what a node is told, and by whom ------------------------------------------------------------------------------------


def test_a_node_whose_log_cannot_be_written_keeps_no_other_from_running(agents: Agents, folder: Path) -> None:
    """While another agent announces the cell, or the store cannot be reached."""
    store = ordered_store("n1", "n2")
    agent = started(agents, store, "n1", "n2")
    for node in agent.nodes:
        node.kill()
    until(lambda: sum(node.process is not None for node in agent.nodes) == 0, 30, lambda: "they have ended")
    (folder / "nodes" / "n1" / "log").unlink()
    (folder / "nodes" / "n1" / "log").mkdir()
    agent.close()
    lease = store.lease(600, keep_alive=False)
    Broker(store).cells.put("c1", Cell(), lease=lease)
    running = {node.plan.node: node for node in agent.nodes}
    steps_until(agent, lambda: running["n2"].process is not None)
    assert running["n1"].process is None


def test_a_folder_in_which_nothing_can_be_written_makes_no_dead_cell_and_ends_no_agent(
    agents: Agents, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As on a full disk: what cannot be made in the place of a file is refused to root, too."""
    store = ordered_store("n1")
    agent = started(agents, store, "n1")
    agent.close()
    (folder / "lease").mkdir()
    agent = agents(store)
    steps_until(agent, lambda: Broker(store).cells.exists("c1"))
    assert "lease cannot be noted" in caplog.text
    (folder / "store.json").rename(folder / "kept.json")
    (folder / "store.json").mkdir()
    agent, stop = agents(store), Event()
    running = Thread(target=agent.run, args=(stop,))
    running.start()
    until(lambda: "the machine: " in caplog.text, 30, lambda: caplog.text)
    assert running.is_alive()
    stop.set()
    running.join(30)
    (folder / "lease").rmdir()


def test_a_damaged_order_at_the_start_stops_no_other_node(agents: Agents) -> None:
    store = ordered_store("n1", "n2")
    started(agents, store, "n1", "n2")
    store.engine.commit(Commit((), (Put(b"/_broker/orders/c1/n1", b"{broken"),)))
    agent = agents(store)
    Broker(store).orders.put(OrderKey("c1", "n3"), NodeOrder(instance="i"))
    steps_until(agent, lambda: names(agent) == ["n1", "n2", "n3"])
    assert state_of(store, "n1") == "failed"


def test_a_folder_that_vanished_is_a_fault_of_its_node_alone(agents: Agents, folder: Path) -> None:
    store = ordered_store("n1", "n2")
    agent = started(agents, store, "n1", "n2")
    for node in agent.nodes:
        node.kill()
    until(lambda: sum(node.process is not None for node in agent.nodes) == 0, 30, lambda: "they have ended")
    (folder / "nodes" / "n1").rename(folder / "elsewhere")
    steps_until(agent, lambda: state_of(store, "n1") == "failed")
    Broker(store).orders.put(OrderKey("c1", "n3"), NodeOrder(instance="i"))
    steps_until(agent, lambda: "n3" in names(agent))


@pytest.mark.parametrize("content", [b"{broken", b'{"instance":"\xff"}', None])
def test_a_node_without_a_readable_description_is_left_as_it_is(
    agents: Agents, folder: Path, content: bytes | None
) -> None:
    store = ordered_store("n1", "n2")
    agent = started(agents, store, "n1", "n2")
    for node in agent.nodes:
        node.kill()
    data = data_of(folder, "n1")
    description = folder / "nodes" / "n1" / "node.json"
    if content is None:
        description.unlink()
    else:
        description.write_bytes(content)
    agent = agents(store)
    steps_until(agent, lambda: (state_of(store, "n1"), names(agent)) == ("failed", ["n2"]))
    Broker(store).orders.put(OrderKey("c1", "n1"), NodeOrder(instance="i", remove=True))
    for _ in range(5):
        agent.step(0.01)
    assert data.exists()


def test_a_removal_that_was_killed_goes_on(agents: Agents, folder: Path) -> None:
    store = ordered_store("n1")
    agent = started(agents, store, "n1")
    for node in agent.nodes:
        node.kill()
    data_of(folder, "n1")
    (folder / "nodes" / "n1" / "node.json").rename(folder / "nodes" / "n1" / "removed.json")
    Broker(store).orders.delete(OrderKey("c1", "n1"))
    agents(store).step()
    assert not (folder / "nodes" / "n1").exists()


def test_a_damaged_identity_removes_nothing_and_is_waited_for(agents: Agents, folder: Path) -> None:
    store = ordered_store("n1")
    started(agents, store, "n1")
    identity = Broker(store).identities.require(STORE_IDENTITY)
    data = data_of(folder, "n1")
    store.engine.commit(Commit((), (Put(b"/_broker/store/identity", b"{broken"),)))
    Broker(store).orders.put(OrderKey("c1", "n1"), NodeOrder(instance="i", remove=True))
    agent, stop = agents(store), Event()
    thread = Thread(target=agent.run, args=(stop,))
    thread.start()
    try:
        raw = Broker.spec.tables["identities"].form.encode(identity)
        assert data.exists()
        store.engine.commit(Commit((), (Put(b"/_broker/store/identity", raw),)))
        until(lambda: names(agent) == [], 30, lambda: "the removal goes on")
    finally:
        stop.set()
        thread.join()
