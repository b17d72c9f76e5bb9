"""What a node of a cell is told while it runs: other logins, another token, what an older agent did not say."""

import json
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from keyplan.apps.patroni import Broker, Credentials, NodeOrder, OrderKey
from keyplan.apps.patroni.backups.records import BackupPolicy, Repository, new_archive
from keyplan.codec import Secret
from tests.apps.patroni.sleeping_cell import (
    Agents,
    names,
    ordered_store,
    sleeping_agents,
    started,
    state_of,
    steps_until,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cell"


@pytest.fixture
def agents(tmp_path: Path, folder: Path) -> Iterator[Agents]:
    with sleeping_agents(tmp_path, folder) as made:
        yield made


def told(folder: Path, node: str) -> dict[str, Any]:
    configuration: dict[str, Any] = json.loads((folder / "nodes" / node / "patroni.yml").read_text())
    return configuration


def login(token: str) -> Credentials:
    return Credentials(username="cluster:i", password=Secret(token))


def test_a_node_logs_in_as_its_cluster_and_takes_another_token_up_while_it_runs(agents: Agents, folder: Path) -> None:
    store = ordered_store()
    secret = Credentials(username="postgres", password=Secret("super"))
    order = NodeOrder(instance="i", superuser=secret, store=login("first"))
    Broker(store).orders.put(OrderKey("c1", "n1"), order)
    agent = started(agents, store, "n1")
    assert told(folder, "n1")["etcd3"] == {"hosts": "127.0.0.1:1", "username": "cluster:i", "password": "first"}
    assert told(folder, "n1")["postgresql"]["authentication"]["superuser"]["password"] == "super"
    (before,) = agent.nodes
    assert before.process is not None
    order.store = login("second")
    Broker(store).orders.put(OrderKey("c1", "n1"), order)
    steps_until(agent, lambda: told(folder, "n1")["etcd3"]["password"] == "second")
    assert stat.S_IMODE((folder / "nodes" / "n1" / "patroni.yml").stat().st_mode) == 0o600
    again = agents(store)
    steps_until(again, lambda: names(again) == ["n1"])
    assert told(folder, "n1")["etcd3"]["password"] == "second"


def test_a_token_that_could_not_be_written_is_taken_up_when_it_can(agents: Agents, folder: Path) -> None:
    store = ordered_store()
    order = NodeOrder(instance="i", store=login("first"))
    Broker(store).orders.put(OrderKey("c1", "n1"), order)
    agent = started(agents, store, "n1")
    file = folder / "nodes" / "n1" / "patroni.yml"
    file.unlink()
    file.mkdir()
    order.store = login("second")
    Broker(store).orders.put(OrderKey("c1", "n1"), order)
    steps_until(agent, lambda: state_of(store, "n1") == "failed")
    file.rmdir()
    steps_until(agent, file.exists)
    assert told(folder, "n1")["etcd3"]["password"] == "second"


def test_other_logins_reach_a_node_whose_backups_have_no_place_at_the_moment(
    agents: Agents, folder: Path, tmp_path: Path
) -> None:
    """A rotation, as another certificate, is not to wait for a repository, and what is told of it follows later."""
    (repository := tmp_path / "repository").mkdir()
    store = ordered_store()
    archive = new_archive("i", BackupPolicy(repository=Repository(folder=str(repository))))
    order = NodeOrder(instance="i", superuser=login("first"), archive=archive)
    Broker(store).orders.put(OrderKey("c1", "n1"), order)
    agent = started(agents, store, "n1")
    repository.rmdir()
    order.superuser, order.logins = login("second"), 1
    Broker(store).orders.put(OrderKey("c1", "n1"), order)
    steps_until(agent, lambda: state_of(store, "n1") == "failed")
    assert told(folder, "n1")["postgresql"]["authentication"]["superuser"]["password"] == "second"
    again = agents(store)
    steps_until(again, lambda: state_of(store, "n1") == "failed")
    repository.mkdir()
    passwords = folder / "nodes" / "n1" / "pgbackrest.pgpass"
    assert passwords.read_text().endswith("first\n")
    steps_until(again, lambda: passwords.read_text().endswith("second\n"))
    steps_until(again, lambda: state_of(store, "n1") == "starting")


def test_pgbackrest_is_looked_for_where_nodes_do_and_not_in_the_agents_path(
    agents: Agents, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (repository := tmp_path / "repository").mkdir()
    store = ordered_store()
    archive = new_archive("i", BackupPolicy(repository=Repository(folder=str(repository))))
    Broker(store).orders.put(OrderKey("c1", "n1"), NodeOrder(instance="i", archive=archive))
    monkeypatch.setenv("PATH", "/nonexistent")
    agent = agents(store)
    steps_until(agent, (folder / "nodes" / "n1" / "pgbackrest.conf").exists)


def test_a_node_is_told_by_the_next_agent_what_an_older_one_did_not_say(agents: Agents, folder: Path) -> None:
    """As the lines of pg_hba.conf by which another user may replicate, without which no rotation ends."""
    store = ordered_store("n1")
    started(agents, store, "n1").close()
    file = folder / "nodes" / "n1" / "patroni.yml"
    current = file.read_text()
    file.write_text(current.replace("replication all", "replication replicator"))
    agents(store)
    assert json.loads(file.read_text()) == json.loads(current)


def test_an_order_for_another_instance_gives_a_node_no_other_token(agents: Agents, folder: Path) -> None:
    store = ordered_store()
    Broker(store).orders.put(OrderKey("c1", "n1"), NodeOrder(instance="i", store=login("mine")))
    agent = started(agents, store, "n1")
    Broker(store).orders.put(OrderKey("c1", "n1"), NodeOrder(instance="other", store=login("theirs")))
    steps_until(agent, lambda: state_of(store, "n1") == "failed")
    assert told(folder, "n1")["etcd3"]["password"] == "mine"
