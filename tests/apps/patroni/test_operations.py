"""What operations are made of: the lists of steps of the specification."""

from keyplan.apps.patroni.operations import steps_of_provision, steps_of_update
from keyplan.apps.patroni.records import Step


def told(steps: list[Step]) -> list[str]:
    """Steps in short; names of new nodes are left out, because they are made up."""
    return [step.kind if step.kind == "add" or not step.node else f"{step.kind} {step.node}" for step in steps]


def test_a_new_cluster_of_two() -> None:
    steps = steps_of_provision(2)
    assert told(steps) == ["add", "add", "wait_members", "wait_leader"]
    assert len({steps[0].node, steps[1].node}) == 2


def test_from_two_nodes_to_three() -> None:
    assert told(steps_of_update({"a": "c1", "b": "c2"}, 3, [], "a")) == ["add", "wait_members", "wait_leader"]


def test_from_three_nodes_to_two() -> None:
    steps = steps_of_update({"a": "c1", "b": "c2", "c": "c3"}, 2, [], "a")
    assert told(steps) == ["remove", "wait_members", "wait_leader"]


def test_a_replica_on_a_forbidden_cell() -> None:
    steps = steps_of_update({"a": "c1", "b": "c2"}, 2, ["c1", "c3"], "a")
    assert told(steps) == ["add", "wait_members", "remove b", "wait_members", "wait_leader"]


def test_the_leader_on_a_forbidden_cell() -> None:
    steps = steps_of_update({"a": "c1", "b": "c2"}, 2, ["c2", "c3"], "a")
    assert told(steps) == ["add", "wait_members", "switch a", "remove a", "wait_leader"]


def test_both_on_forbidden_cells() -> None:
    steps = steps_of_update({"a": "c1", "b": "c2"}, 2, ["c3", "c4"], "a")
    expected = "add, add, wait_members, remove b, wait_members, switch a, remove a, wait_leader"
    assert ", ".join(told(steps)) == expected


def test_nothing_to_do() -> None:
    assert steps_of_update({"a": "c1", "b": "c2"}, 2, [], "a") == []
