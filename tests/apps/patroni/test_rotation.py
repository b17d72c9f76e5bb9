"""Which logins are replaced, in which steps, and what is refused before anything is written. No PostgreSQL runs here."""

import re

import pytest

from keyplan import Secret
from keyplan.apps.patroni import Binding, BindingKey, Cell, Credentials, NodeKey, NodeOrder, Operation, OrderKey
from keyplan.apps.patroni.actions import Action, ActionKind, Actions
from keyplan.apps.patroni.cluster_login import new_store_credentials
from keyplan.apps.patroni.layout import OUTSIDE
from keyplan.apps.patroni.logins import login_base, login_number
from keyplan.apps.patroni.refusals import RefusedError
from keyplan.engine import SYSTEM_CLOCK
from tests.apps.patroni.paper_cluster import PaperCluster

EVERYTHING = "superuser,replication,rewind,rest,token"


@pytest.fixture
def cluster() -> PaperCluster:
    """A cluster of three whose cells are alive, with a token and two bindings, of which one is ready."""
    cluster = PaperCluster()
    cluster.broker.operations.put("f1", Operation(id="p", kind="provision", status="success"))
    for cell in ("cell-a", "cell-b", "cell-c"):
        cluster.broker.cells.put(cell, Cell(), lease=cluster.lease)
    state = cluster.broker.instances.require("f1")
    state.store_credentials = new_store_credentials("f1")
    state.admin_credentials = Credentials(username="pgadmin", password=Secret("rest"))
    cluster.broker.instances.put("f1", state)
    for binding, made in (("b1", "ready"), ("b2", "creating")):
        record = Binding(service_id="s", plan_id="p", state=made, credentials=Credentials(username=f"u{binding}"))
        cluster.broker.bindings.put(BindingKey("f1", binding), record)
    return cluster


def planned(cluster: PaperCluster, *only: str, keep_seconds: float = 1.0) -> list[tuple[str, str]]:
    action = Action(kind=ActionKind.ROTATE, only=[*only], keep_seconds=keep_seconds)
    return [
        (each.kind, each.target or each.node) for each in Actions(cluster.store, SYSTEM_CLOCK).planned("f1", action)
    ]


def test_everything_is_rotated_at_once_and_what_is_replaced_ends_last(cluster: PaperCluster) -> None:
    assert planned(cluster) == [
        ("wait_members", ""),
        ("make_logins", EVERYTHING),
        ("wait_logins", EVERYTHING),
        ("rotate_binding", "b1"),
        ("end_logins", EVERYTHING),
        ("wait_members", ""),
        ("renew_data", ""),
    ]
    assert (
        planned(cluster, "binding:b1")
        == planned(cluster, "bindings")
        == [("wait_members", ""), ("rotate_binding", "b1")]
    )
    # One order in which nodes are told, whatever the order of the words.
    assert ("make_logins", "superuser,rest") in planned(cluster, "rest", "superuser")


def test_a_token_is_replaced_without_all_nodes_and_nothing_else_is(cluster: PaperCluster) -> None:
    cluster.broker.cells.delete("cell-c")
    kinds = [kind for kind, _ in planned(cluster, "token")]
    assert kinds == ["make_logins", "wait_logins", "end_logins"]
    with pytest.raises(RefusedError, match="cell cell-c is not alive, and its nodes could not be told") as refused:
        planned(cluster, "token", "rest")
    assert refused.value.status == 422
    cluster.broker.nodes.put(NodeKey("f1", "c"), OUTSIDE)
    with pytest.raises(RefusedError, match="no cell runs c, and nobody could tell them"):
        planned(cluster, "rest")
    assert ("rotate_binding", "b1") in planned(cluster, "bindings")


@pytest.mark.parametrize(
    ("only", "keep_seconds", "problem"),
    [
        (["roots"], 1, "roots is nothing that can be rotated; superuser, replication, rewind, rest, token, bindings"),
        (["binding:b2"], 1, "the instance has no binding b2 that is ready"),
        (["binding:"], 1, "the instance has no binding  that is ready"),
        (["rest"], -1, "former logins count for 0 to 2.592e+06 seconds"),
        (["rest"], float("nan"), "former logins count for 0 to 2.592e+06 seconds"),
    ],
)
def test_what_cannot_be_rotated_is_refused_and_nothing_is_begun(
    cluster: PaperCluster, only: list[str], keep_seconds: float, problem: str
) -> None:
    revision = cluster.store.revision
    with pytest.raises(RefusedError, match=re.escape(problem)):
        Actions(cluster.store, SYSTEM_CLOCK).begin(
            "f1", Action(kind=ActionKind.ROTATE, only=only, keep_seconds=keep_seconds)
        )
    assert cluster.store.revision == revision


def test_a_cluster_without_a_token_keeps_none_and_one_without_bindings_has_none_to_rotate(
    cluster: PaperCluster,
) -> None:
    state = cluster.broker.instances.require("f1")
    state.store_credentials = Credentials()
    cluster.broker.instances.put("f1", state)
    assert ("make_logins", "superuser,replication,rewind,rest") in planned(cluster)
    with pytest.raises(RefusedError, match="the cluster has no token"):
        planned(cluster, "token")
    cluster.broker.bindings.delete(BindingKey("f1", "b1"))
    with pytest.raises(RefusedError, match="the instance has no bindings"):
        planned(cluster, "bindings")


def test_a_name_goes_on_by_its_number() -> None:
    for name, base, number in (("postgres", "postgres", 1), ("postgres_2", "postgres", 2), ("a_b_11", "a_b", 11)):
        assert (login_base(name), login_number(name)) == (base, number)


def test_nodes_are_told_in_the_commit_that_makes_a_login_and_waited_for_until_they_have_read_it(
    cluster: PaperCluster,
) -> None:
    """A password of Patroni's own REST API: PostgreSQL knows none, and the former one ends with the last node that is told."""
    for node in ("a", "b", "c"):
        cluster.broker.orders.put(OrderKey(f"cell-{node}", node), NodeOrder(instance="f1"))
    begun = Actions(cluster.store, SYSTEM_CLOCK).begin("f1", Action(kind=ActionKind.ROTATE, only=["rest"]))
    ended = cluster.carried_out(begun)
    assert ended.message == "step 3 of 6: wait until all nodes use them: a has not read its new logins yet"
    state = cluster.broker.instances.require("f1")
    assert (state.logins, {*state.rotated_at}) == (1, {"rest"})
    assert state.admin_credentials.password.reveal() != "rest"
    for node in ("a", "b", "c"):
        order = cluster.broker.orders.require(OrderKey(f"cell-{node}", node))
        assert (order.rest, order.logins) == (state.admin_credentials, 1)

    def read() -> None:
        for node in ("a", "b", "c"):
            cluster.say(node, tags={"keyplan_logins": 2})

    cluster.on_pause = read
    again = Actions(cluster.store, SYSTEM_CLOCK).begin("f1", Action(kind=ActionKind.ROTATE, only=["rest"]))
    assert cluster.carried_out(again).status == "success"
    # A node that was ordered and is no member yet is told as well.
    cluster.broker.node_intents.put(NodeKey("f1", "d"), "cell-a")
    cluster.broker.orders.put(OrderKey("cell-a", "d"), NodeOrder(instance="f1"))
    cluster.on_pause = lambda: None
    third = Actions(cluster.store, SYSTEM_CLOCK).begin("f1", Action(kind=ActionKind.ROTATE, only=["rest"]))
    assert cluster.carried_out(third).status == "failed"
    assert cluster.broker.orders.require(OrderKey("cell-a", "d")).logins == 3
