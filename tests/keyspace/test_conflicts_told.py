"""What a conflict tells of another's key space: that the name or the prefix is taken, in whatever state, and no more."""

from collections.abc import Callable, Mapping

import pytest

from keyplan.engine import Engine
from keyplan.errors import KeySpaceConflictError
from keyplan.keyspace import KeySpaces, Role, State

Act = Callable[[KeySpaces], object]

NAME_TAKEN = ("keyspace_exists", {"name": "ledger"})
STATES: Mapping[str, Act] = {
    "enabled": lambda registry: None,
    "disabled": lambda registry: registry.disable("ledger"),
    "deleting": lambda registry: registry.delete("ledger"),
}


def told(registry: KeySpaces, act: Act) -> tuple[str, Mapping[str, object]]:
    with pytest.raises(KeySpaceConflictError) as caught:
        act(registry)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__
    return caught.value.code, caught.value.facts


@pytest.fixture
def registry(memory: Engine) -> KeySpaces:
    made = KeySpaces(memory)
    made.create("ledger", "bank", prefix="7f")
    made.configure({"keyspace-api-enabled": True})
    return made


@pytest.fixture
def shop(registry: KeySpaces) -> KeySpaces:
    return registry.acting_as(Role.ADMIN, "shop", sees=lambda _name, application: application == "shop")


@pytest.mark.parametrize("state", STATES)
def test_a_name_is_taken_in_the_same_words_whatever_becomes_of_who_has_it(
    registry: KeySpaces, shop: KeySpaces, state: str
) -> None:
    STATES[state](registry)
    assert told(shop, lambda one: one.create("ledger", "shop")) == NAME_TAKEN


def test_who_wants_a_name_if_it_is_free_is_told_no_owner(shop: KeySpaces) -> None:
    asked = {"name": "ledger", "application": "shop"}
    assert told(shop, lambda one: one.ensure("ledger", "shop")) == ("owner_conflict", asked)


@pytest.mark.parametrize(("prefix", "code"), [("7f", "prefix_in_use"), ("7f7f", "prefix_conflict")])
def test_who_wants_a_prefix_is_told_no_holder(shop: KeySpaces, prefix: str, code: str) -> None:
    assert told(shop, lambda one: one.adopt("mine", "shop", prefix, allow_legacy_prefix=True)) == (
        code,
        {"prefix": prefix},
    )


def test_who_may_see_it_is_told_all(registry: KeySpaces, shop: KeySpaces) -> None:
    everything = {"name": "ledger", "state": State.ENABLED, "application": "bank", "prefix": "7f"}
    assert told(registry, lambda one: one.create("ledger", "shop")) == ("keyspace_exists", everything)
    registry.create("orders", "shop")
    assert "prefix" in told(shop, lambda one: one.create("orders", "shop"))[1]
