"""Nodes that are ordered to halt: they end, keep their data, and nobody starts them but another order. No PostgreSQL runs."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from keyplan.apps.patroni import Broker, NodeOrder, OrderKey
from keyplan.store import Store
from tests.apps.patroni.sleeping_cell import (
    Agents,
    ordered_store,
    sleeping_agents,
    started,
    state_of,
    steps_until,
)

KEY = OrderKey("c1", "n1")


@pytest.fixture
def agents(tmp_path: Path) -> Iterator[Agents]:
    with sleeping_agents(tmp_path, tmp_path / "cell") as made:
        yield made


def halt(store: Store, *, halted: bool) -> None:
    Broker(store).orders.put(KEY, NodeOrder(instance="i", halted=halted))


def test_a_halted_node_keeps_its_data_and_is_started_by_its_order_alone(agents: Agents, tmp_path: Path) -> None:
    store = ordered_store("n1")
    agent = started(agents, store, "n1")
    data = tmp_path / "cell" / "nodes" / "n1" / "home" / "data"
    data.mkdir(parents=True, exist_ok=True)
    (data / "base").write_text("rows")
    halt(store, halted=True)
    steps_until(agent, lambda: state_of(store, "n1") == "halted")
    (node,) = agent.nodes
    assert node.process is None
    # Another agent, whose store cannot be asked, or has lost the order, leaves it as it is.
    agent = agents(store)
    (node,) = agent.nodes
    node.keep()
    Broker(store).orders.delete(KEY)
    steps_until(agent, lambda: state_of(store, "n1") == "unordered")
    node.keep()
    assert (node.process, (data / "base").read_text()) == (None, "rows")
    halt(store, halted=True)
    steps_until(agent, lambda: state_of(store, "n1") == "halted")
    assert node.process is None

    halt(store, halted=False)
    steps_until(agent, lambda: node.process is not None)
    Broker(store).orders.put(KEY, NodeOrder(instance="i", remove=True))
    steps_until(agent, lambda: not data.exists())


def test_why_a_node_ended_by_itself_is_told_before_its_log_goes_with_it(agents: Agents, tmp_path: Path) -> None:
    store = ordered_store("n1")
    (node,) = started(agents, store, "n1").nodes
    log = tmp_path / "cell" / "nodes" / "n1" / "log"
    assert node.last_failure() == ""
    lines = [
        "FATAL:  long ago",
        "x" * 20_000,
        "2026-11-24 GMT [1] FATAL:  recovery ended \x1b[2J",
        "STATEMENT:  secret",
    ]
    log.write_text("\n".join(lines))
    assert node.last_failure() == "FATAL:  recovery ended"
    # Why this one of Patroni's: PostgreSQL was told to end by it, and its own last word says that alone.
    log.write_text(
        "\n".join([*lines, "2026-11-24 CRITICAL: system ID mismatch, node n1 belongs to a different cluster: 1 != 2"])
    )
    assert node.last_failure() == "CRITICAL: system ID mismatch, node n1 belongs to a different cluster: 1 != 2"
    log.unlink()
    assert node.last_failure() == ""


def test_a_node_that_is_not_there_is_not_said_to_be_halted(agents: Agents) -> None:
    store = ordered_store()
    halt(store, halted=True)
    agent = agents(store)
    steps_until(agent, lambda: state_of(store, "n1") == "failed")
    assert "is not here" in Broker(store).reports.require(KEY).message
