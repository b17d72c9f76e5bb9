"""The page of an application's own: PostgreSQL clusters, as much of them as the caller may see, and no secret."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from keyplan import Secret
from keyplan.apps.patroni import (
    Binding,
    BindingKey,
    BookKey,
    Broker,
    Cell,
    Credentials,
    Event,
    EventKey,
    InstanceState,
    Member,
    MemberKey,
    NodeKey,
    Operation,
)
from keyplan.apps.patroni.backups.records import Archive, Backup, BackupBook, BackupPolicy, Repository
from keyplan.engine import SYSTEM_CLOCK, Commit, Engine, Put
from keyplan.server import PolicyAccess
from keyplan.store import Store
from tests.attacks.world import TOKENS, policy_of
from tests.server.explorer.conftest import Explorer

PAGE = "/explore/in/-/report/patroni"
HIDDEN = "hidden7f3a"


@pytest.fixture
def store(engine: Engine) -> Store:
    """A cluster `f1` whose leader has changed, and `f2`, which nobody leads."""
    store = Store(engine)
    broker, lease = Broker(store), store.lease(600, keep_alive=False)
    broker.cells.put("c1", Cell(), lease=lease)
    secret = Credentials(username="postgres", password=Secret(HIDDEN))
    archive = Archive(stanza="f1-ab", policy=BackupPolicy(repository=Repository(folder="/srv")))
    state = InstanceState(
        instance_id="f1",
        superuser_credentials=secret,
        replication_credentials=secret,
        created_at=1.0,
        rotated_at={"replication": SYSTEM_CLOCK.wall() - 3 * 3_600},
        archive=archive,
        version="15",
    )
    broker.instances.put("f1", state)
    made = Backup(label="20231114-221300F", kind="full", began_at=1_700_000_000.0, ended_at=1_700_000_000.0)
    broker.backup_books.put(BookKey("f1", "f1-ab"), BackupBook(archive=archive, backups=[made]))
    now = SYSTEM_CLOCK.wall()
    for name, created_at, rotated_at in (("b1", 1.0, now - 5 * 86_400), ("b2", now, 0.0)):
        bound = Binding(service_id="s", plan_id="p", credentials=secret, created_at=created_at, rotated_at=rotated_at)
        broker.bindings.put(BindingKey("f1", name), bound)
    broker.allocations.put("f1", 33000)
    broker.replica_ports.put("f1", 34000)
    broker.leaders.put("f1", "n2", lease=lease)
    for name, cell, role, position in (("n1", "gone", "replica", 2_000), ("n2", "c1", "primary", 5_000)):
        url = Secret(f"postgres://replicator:{HIDDEN}@10.0.0.{name[1]}:5432/postgres")
        member = Member(role=role, state="running", conn_url=url, xlog_location=position, timeline=3)
        broker.members.put(MemberKey("f1", name), member, lease=lease)
        broker.nodes.put(NodeKey("f1", name), cell)
    broker.operations.put("f1", Operation(id="o", kind="update", status="failed", message="<b>no cell</b>"))
    history = [[1, 25, "no recovery target specified", "2026-11-24T01:00:00+00:00", "n1"], "no line", [2, 30, "why"]]
    broker.histories.put("f1", history)
    broker.events.put(
        EventKey("f1", 1_700_000_000_000_000_000, "x"), Event(kind="leader-lost", text="nobody leads; n1 did")
    )
    broker.allocations.put("f2", 33001)
    return store


def cells(rows: list[list[dict[str, Any]]]) -> list[list[str]]:
    return [[cell["text"] for cell in row] for row in rows]


def test_the_page_of_clusters_has_members_history_ports_ages_and_events(
    explore: Callable[..., Explorer], engine: Engine, store: Store
) -> None:
    explorer = explore(engine, layout="patroni")
    assert PAGE in explorer.page("/explore/in/-/"), "the area leads there"
    found = explorer.data(PAGE)
    first, second = found["sections"]
    facts = {fact["name"]: fact["value"]["text"] for fact in first["facts"]}
    # What was rotated is as old as its rotation.
    passwords = facts.pop("passwords of the cluster")
    assert re.fullmatch(r"superuser \d{5} days old; replication 3 hours old", passwords)
    assert facts == {
        "leader": "n2",
        "port": "33000",
        "PostgreSQL": "15",
        "port for reads": "34000",
        "last operation": "update failed: <b>no cell</b>",
        "backups": "backup 20231114-221300F of 2023-11-14T22:13:20Z; none is verified; a restore would lose what was"
        " written since 2023-11-14T22:13:20Z, at most",
        "oldest password of a binding": "5 days old",
    }
    members, history, events = first["tables"]
    assert cells(members["rows"]) == [
        ["n1", "replica", "running", "3", "3,000 bytes", "gone, not alive", "10.0.0.1:5432"],
        ["n2", "leader", "running", "3", "0 bytes", "c1", "10.0.0.2:5432"],
    ]
    assert cells(history["rows"]) == [
        ["2", "", "why", ""],
        ["1", "2026-11-24T01:00:00+00:00", "no recovery target specified", "n1"],
    ]
    assert cells(events["rows"]) == [["2023-11-14 22:13:20Z", "leader-lost", "", "nobody leads; n1 did"]]
    assert (second["title"]["text"], second["title"]["is_bad"], second["facts"][0]["value"]["text"]) == (
        *("f2", True),
        "nobody",
    )
    assert explorer.data("/explore/in/-/")["layouts"][0]["report_href"] == PAGE


def test_every_link_of_the_page_leads_somewhere_and_no_page_shows_a_password(
    explore: Callable[..., Explorer], engine: Engine, store: Store
) -> None:
    explorer = explore(engine, layout="patroni")
    pages = explorer.crawl(PAGE, pages_max=60)
    assert len(pages) > 10
    assert "&lt;b&gt;no cell&lt;/b&gt;" in pages[PAGE]
    assert [path for path, text in pages.items() if HIDDEN in text] == []
    assert HIDDEN not in explorer.get(f"{PAGE}?format=json").text


def test_who_may_see_one_cluster_sees_that_one_alone(
    explore: Callable[..., Explorer], engine: Engine, store: Store, tmp_path: Path
) -> None:
    broker = Broker(store)
    broker.configurations.put("f10", {"ttl": 20})
    file = tmp_path / "access.toml"
    file.write_text(policy_of({"shop": {"read": "prefix:/service/f1/"}, "nothing": {"read": "prefix:/elsewhere/"}}))
    file.chmod(0o600)
    explorer = explore(engine, access=PolicyAccess.of_file(file), layout="patroni")

    def asked(who: str, path: str = PAGE) -> Any:
        return explorer.get(path, authorization=f"Bearer {TOKENS[who]}", accept="application/json").json()

    (seen,) = asked("shop")["sections"]
    assert (seen["title"]["text"], [fact["name"] for fact in seen["facts"]]) == ("f1", ["leader", "port"])
    assert seen["facts"][1]["value"]["text"] == "none", "the port is not theirs to see"
    assert len(seen["tables"][1]["rows"]) == 2, "Patroni's history lies below what they may see"
    assert [table["title"].partition(",")[0] for table in seen["tables"]] == ["members", "history of leaders"]
    assert asked("nothing")["sections"] == []


def test_a_long_list_of_clusters_has_pages_and_a_damaged_record_hides_no_other(
    explore: Callable[..., Explorer], engine: Engine, store: Store
) -> None:
    broker = Broker(store)
    for number in range(30):
        broker.allocations.put(f"g{number:02}", 40_000 + number)
    for table, key in (("instances", "f1"), ("histories", "f1"), ("allocations", "g05")):
        engine.commit(Commit(mutations=(Put(Broker.bound().tables[table].keys.encode(key), b"{broken"),)))
    explorer = explore(engine, layout="patroni")
    first = explorer.data(PAGE)
    second = explorer.data(first["next"])
    titles = [section["title"]["text"] for part in (first, second) for section in part["sections"]]
    assert titles == ["f1", "f2", *(f"g{number:02}" for number in range(30))]
    assert second["next"] == ""
    damaged = [fact["value"]["text"] for fact in first["sections"][0]["facts"] if fact["name"] == "cannot be read"]
    assert damaged == ["instances f1"]
    assert explorer.get("/explore/in/-/report/nothing").status_code == 404


def test_a_layout_without_a_report_has_none(explorer: Explorer) -> None:
    assert explorer.data("/explore/in/-/")["layouts"][0]["report_href"] == ""
    label = explorer.data("/explore/in/-/")["layouts"][0]["label"]
    assert explorer.get(f"/explore/in/-/report/{label}").status_code == 404
