"""Agents of one cell whose Patroni is a program that sleeps, and stores that order nodes of them. No PostgreSQL runs."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from keyplan.apps.patroni import Broker, InstanceState, NodeOrder, OrderKey
from keyplan.apps.patroni.cell_agent import CellAgent, CellSettings
from keyplan.apps.patroni.cell_reach import cell_store
from keyplan.apps.patroni.node_config import Gateway
from keyplan.apps.patroni.node_host import Host
from keyplan.engine import SYSTEM_CLOCK, Clock
from keyplan.store import Store, open_store
from tests.servers.patroni import until

Agents = Callable[..., CellAgent]


@contextmanager
def sleeping_agents(tmp_path: Path, folder: Path) -> Iterator[Agents]:
    """Make agents of one cell, whose Patroni is a program that sleeps; each is ended with its nodes."""
    script = tmp_path / "sleeper.py"
    script.write_text("import time\ntime.sleep(600)\n")
    (programs := tmp_path / "programs").mkdir()
    # Why: nodes find it there, also where none is installed; no test here runs it.
    (programs / "pgbackrest").touch(0o755)
    host = Host(programs, sys.executable, script, "")
    made: list[CellAgent] = []

    def make(store: Store, *, accept: str = "", clock: Clock = SYSTEM_CLOCK) -> CellAgent:
        if made:
            made[-1].close()
        settings = CellSettings(name="c1", folder=folder, gateway=Gateway("127.0.0.1:1"), accepted_store=accept)
        agent = CellAgent(cell_store(store, settings.name, hostname=settings.hostname), settings, host, clock)
        made.append(agent)
        agent.open()
        return agent

    yield make
    for agent in made:
        for node in agent.nodes:
            node.kill()
        agent.close()
    nodes = [node for agent in made for node in agent.nodes]
    until(lambda: sum(node.process is not None for node in nodes) == 0, 30, lambda: "every process has ended")


def ordered_store(*nodes: str) -> Store:
    store = open_store("memory:")
    broker = Broker(store)
    broker.instances.put("i", InstanceState(instance_id="i"))
    for node in nodes:
        broker.orders.put(OrderKey("c1", node), NodeOrder(instance="i"))
    return store


def steps_until(agent: CellAgent, is_so: Callable[[], object]) -> None:
    def stepped() -> bool:
        agent.step(0.02)
        return bool(is_so())

    until(stepped, 30, lambda: "the cell does what is ordered")


def names(agent: CellAgent) -> list[str]:
    return sorted(node.plan.node for node in agent.nodes)


def state_of(store: Store, node: str) -> str:
    report = Broker(store).reports.get(OrderKey("c1", node))
    return "" if report is None else report.state


def started(agents: Agents, store: Store, *nodes: str) -> CellAgent:
    agent = agents(store)
    steps_until(agent, lambda: names(agent) == sorted(nodes))
    return agent
