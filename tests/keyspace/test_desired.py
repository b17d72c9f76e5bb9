"""Declared key spaces: the plan, and carrying it out."""

from typing import Any

import pytest

from keyplan.engine import Engine
from keyplan.errors import InvalidInputError, InvalidNameError, PrefixNotEmptyError
from keyplan.keyspace import KeySpaces, Quota, State, apply_steps, plan_for, read_declaration
from tests.keyspace.stores import names_of, put_raw


def steps(registry: KeySpaces, value: dict[str, Any]) -> list[tuple[str, str]]:
    return [(str(step.kind), step.name) for step in plan_for(registry, read_declaration(value))]


SITE: dict[str, Any] = {
    "configuration": {"keyspace-api-enabled": True},
    "keyspaces": [
        {"name": "orders", "application": "shop", "description": "all orders", "quota": {"keys": 10}},
        {"name": "meta", "application": "tidb", "prefix": "6D", "adopt_existing_data": True},
        {"name": "off", "application": "shop", "state": "DISABLED"},
    ],
}


def test_what_is_declared_is_made_and_then_nothing_is_left_to_do(engine: Engine) -> None:
    put_raw(engine, b"m1")
    registry = KeySpaces(engine)
    plan = plan_for(registry, read_declaration(SITE))
    assert [(str(step.kind), step.name) for step in plan] == [
        ("configure", ""),
        ("create", "orders"),
        ("quota", "orders"),
        ("adopt", "meta"),
        ("create", "off"),
        ("disable", "off"),
    ]
    assert registry.header() is None, "a plan changes nothing"
    assert [applied.error for applied in apply_steps(registry, plan)] == [None] * 6
    assert names_of(registry) == ["orders", "meta", "off"]
    assert registry.quota("orders") == Quota(keys=10)
    assert registry.get("off").state is State.DISABLED
    assert steps(registry, SITE) == []


def test_what_differs_is_changed(memory: Engine) -> None:
    registry = KeySpaces(memory)
    registry.create("orders", "shop", description="old")
    registry.create("extra", "shop")
    declared = {"keyspaces": [{"name": "orders", "application": "shop", "description": "new", "state": "DISABLED"}]}
    assert steps(registry, declared) == [("update", "orders"), ("disable", "orders")]
    assert steps(registry, {**declared, "is_complete": True})[0] == ("delete", "extra")
    assert steps(registry, {"keyspaces": [{"name": "orders", "application": "shop"}]}) == []


@pytest.mark.parametrize(
    "declared",
    [
        {"name": "orders", "application": "bank"},
        {"name": "orders", "application": "shop", "prefix": "09"},
        {"name": "leaving", "application": "shop"},
        {"name": "new", "application": "shop", "adopt_existing_data": True},
    ],
    ids=["application", "prefix", "deleting", "adopt without a prefix"],
)
def test_what_cannot_be_is_refused_before_anything_is_written(memory: Engine, declared: dict[str, Any]) -> None:
    registry = KeySpaces(memory)
    registry.create("orders", "shop")
    registry.create("leaving", "shop")
    registry.delete("leaving")
    first = {"name": "aaa", "application": "shop"}
    plan = plan_for(registry, read_declaration({"keyspaces": [first, declared]}))
    assert str(plan[-1].kind) == "refused"
    with pytest.raises(InvalidInputError):
        apply_steps(registry, plan)
    assert names_of(registry) == ["orders", "leaving"]


def test_applying_stops_at_the_first_failure_and_goes_on_from_there(memory: Engine) -> None:
    put_raw(memory, b"\x07x")
    registry = KeySpaces(memory)
    declared = {
        "keyspaces": [{"name": name, "application": "a", "prefix": f"0{place}"} for place, name in enumerate("xyz", 6)]
    }
    applied = apply_steps(registry, plan_for(registry, read_declaration(declared)))
    assert [type(step.error) for step in applied] == [type(None), PrefixNotEmptyError]
    assert steps(registry, declared) == [("create", "y"), ("create", "z")]


@pytest.mark.parametrize(
    "value",
    [
        [],
        {"keyspace": []},
        {"keyspaces": [{"name": "orders"}]},
        {"keyspaces": [{"name": "orders", "application": "a", "color": "red"}]},
        {"keyspaces": [{"name": "orders", "application": "a", "state": "DELETING"}]},
        {"keyspaces": [{"name": "orders", "application": "a"}] * 2},
    ],
    ids=str,
)
def test_a_declaration_that_cannot_be_read_is_refused(value: object) -> None:
    with pytest.raises(InvalidInputError):
        read_declaration(value)


def test_a_declared_name_must_be_one() -> None:
    with pytest.raises(InvalidNameError):
        read_declaration({"keyspaces": [{"name": "a/b", "application": "x"}]})
