"""Plans are about key spaces, not names: whatever happens to a name between the look and the act, nothing is done to another's.

Also sweeps, which look before they act, and what a deleted key space leaves to the next one of its name: nothing.
"""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec import structs

from keyplan.engine import Engine, MemoryEngine
from keyplan.errors import (
    GenerationMismatchError,
    KeyplanError,
    KeySpaceDeletedError,
    KeySpaceDeletingError,
    KeySpaceProtectedError,
    OwnerConflictError,
)
from keyplan.keyspace import (
    KeySpace,
    KeySpaceIdentity,
    KeySpaceRegistry,
    KeySpaces,
    Quota,
    Stage,
    State,
    StepKind,
    Sweeper,
    apply_steps,
    open_key_space,
    plan_for,
    read_declaration,
)
from keyplan.store import Store
from keyplan.testing.faults import FakeClock
from tests.keyspace.meanwhile import Meanwhile, at_every_call
from tests.keyspace.stores import Item, Shop, put_raw, raw_content, swept


def registered(engine: Engine) -> KeySpaces:
    """The bank's key space "a", with a record."""
    registry = KeySpaces(engine)
    registry.configure({"max-client-lease-seconds": 0, "reuse-cooldown-seconds": 0})
    registry.create("a", "bank")
    written(engine, "a", "bank", "old")
    return registry


def written(engine: Engine, name: str, application: str, item: str) -> KeySpace:
    with open_key_space(engine, name, application, session_seconds=None) as store:
        Shop(store).items.put(item, Item("x"))
        assert store.keyspace is not None
        return store.keyspace


def taken_over(engine: Engine) -> KeySpace:
    """The name passes to the hospital, as the registry's rules allow: the bank's is deleted to its end first."""
    registry = KeySpaces(engine)
    if registry.get("a").application == "bank":
        swept(registry, "a")
    registry.create("a", "hospital")
    return written(engine, "a", "hospital", "patient")


ACTS: dict[str, Callable[[KeySpaces, KeySpaceIdentity], object]] = {
    "delete": lambda registry, meant: registry.delete("a", expected=meant),
    "disable": lambda registry, meant: registry.disable("a", expected=meant),
    "enable": lambda registry, meant: registry.enable("a", expected=meant),
    "undelete": lambda registry, meant: registry.undelete("a", expected=meant),
    "update": lambda registry, meant: registry.update("a", "x", expected=meant),
    "set_quota": lambda registry, meant: registry.set_quota("a", keys=1, expected=meant),
    "begin_overwrite": lambda registry, meant: registry.begin_overwrite("a", expected=meant),
}


@pytest.mark.parametrize("name", ACTS)
def test_an_act_on_a_name_that_is_anothers_by_now_writes_nothing(memory: Engine, name: str) -> None:
    registry = registered(memory)
    meant = registry.get("a").identity
    theirs = taken_over(memory)
    with pytest.raises(GenerationMismatchError):
        ACTS[name](registry, meant)
    with pytest.raises(OwnerConflictError):
        ACTS[name](registry, KeySpaceIdentity(theirs.generation, "bank"))
    assert registry.get("a") == theirs


@pytest.mark.parametrize(
    ("declared", "kind"),
    [
        ({"is_complete": True}, StepKind.DELETE),
        ({"keyspaces": [{"name": "a", "application": "bank", "state": "DISABLED"}]}, StepKind.DISABLE),
        ({"keyspaces": [{"name": "a", "application": "bank", "quota": {"keys": 1}}]}, StepKind.QUOTA),
    ],
)
def test_a_planned_step_leaves_the_next_owner_of_the_name_alone(
    memory: Engine, declared: dict[str, Any], kind: StepKind
) -> None:
    registry = registered(memory)
    (step,) = plan_for(registry, read_declaration(declared))
    assert step.kind is kind
    theirs = taken_over(memory)
    (applied,) = apply_steps(registry, [step])
    assert isinstance(applied.error, GenerationMismatchError)
    assert registry.get("a") == theirs
    assert registry.quota("a") == Quota()


def test_a_complete_declaration_does_not_delete_what_is_being_restored(memory: Engine) -> None:
    registry = registered(memory)
    complete = read_declaration({"is_complete": True})
    (planned,) = plan_for(registry, complete)
    begun = registry.begin_overwrite("a")
    (applied,) = apply_steps(registry, [planned])
    assert isinstance(applied.error, GenerationMismatchError)
    (refused,) = plan_for(registry, complete)
    assert refused.kind is StepKind.REFUSED
    assert "restored" in refused.problem
    assert registry.get("a") == begun


def test_the_steps_behind_a_creation_are_for_what_was_created(memory: Engine) -> None:
    registry = KeySpaces(memory)
    declared = {"keyspaces": [{"name": "n", "application": "bank", "quota": {"keys": 3}, "state": "DISABLED"}]}
    steps = plan_for(registry, read_declaration(declared))

    def meanwhile(_applied: object) -> None:
        if registry.get("n").application == "bank" and registry.get("n").state is State.ENABLED:
            swept(registry, "n")
            registry.create("n", "hospital")

    applied = apply_steps(registry, steps, on_applied=meanwhile)
    assert isinstance(applied[-1].error, GenerationMismatchError)
    assert (registry.get("n").application, registry.get("n").state) == ("hospital", State.ENABLED)
    assert registry.quota("n") == Quota()


# ---- deletions ----------------------------------------------------------------------------------------------------------


def test_a_sweep_removes_nothing_of_a_deletion_that_was_taken_back_and_begun_again() -> None:
    """All within one second: the two deletions have the same times, and are told apart by their numbers."""
    calls = 0
    at_calls: list[int | None] = [None]
    while at_calls:
        at_call = at_calls.pop()
        clock = FakeClock()
        with MemoryEngine(clock=clock) as engine:
            registry = KeySpaces(engine, clock=clock)
            registry.create("a", "bank")
            written(engine, "a", "bank", "precious")
            registry.delete("a")
            handles: list[Any] = []

            def again(registry: KeySpaces = registry, engine: Engine = engine, handles: list[Any] = handles) -> None:
                try:
                    registry.undelete("a")
                except KeyplanError:
                    return
                handles.append(open_key_space(engine, "a", "bank"))
                registry.configure({"delete-grace-seconds": 7 * 86_400})
                registry.delete("a")

            probe = Meanwhile(engine, at_call, again)
            Sweeper(KeySpaces(probe, clock=clock)).step("a")
            if at_call is None:
                calls = probe.calls
                at_calls += list(at_every_call(calls))[:-1]
            if handles:
                assert len(raw_content(engine)) == 1, f"swept although a session stands (call {at_call})"
                assert registry.get("a").state is State.DELETING
                assert Sweeper(registry).step("a").stage is Stage.WAITING
                handles[0].close()
    assert calls > 3


def test_an_empty_key_spaces_second_grace_is_waited_for() -> None:
    clock = FakeClock()
    with MemoryEngine(clock=clock) as engine:
        registry = KeySpaces(engine, clock=clock)
        registry.create("a", "bank")
        registry.delete("a")
        first = registry.deletion("a")
        assert first is not None
        registry.undelete("a")
        registry.configure({"delete-grace-seconds": 7 * 86_400})
        registry.delete("a")
        second = registry.deletion("a")
        assert second is not None
        assert first.number != second.number
        sweeper = Sweeper(registry)
        assert sweeper._removal._completed("a", first).stage is Stage.SWEEPING  # Why: the look was before.
        assert registry.get("a").state is State.DELETING
        registry.undelete("a")


@pytest.mark.parametrize("cursor", ["01", "", "ff", "0261ff"])
def test_a_sweep_stays_within_the_prefix_whatever_the_cursor_says(memory: Engine, cursor: str) -> None:
    registry = registered(memory)
    registry.create("b", "shop")
    written(memory, "b", "shop", "mine")
    put_raw(memory, b"\x03behind")
    registry.delete("b")
    tables = KeySpaceRegistry(Store(memory))
    deletion = tables.deletions.get("b")
    assert deletion is not None
    tables.deletions.put("b", structs.replace(deletion, cursor=cursor))
    Sweeper(registry).sweep("b")
    assert registry.get("b").state is State.DELETED
    assert set(raw_content(memory)) == {b"\x01/shop/items/old", b"\x03behind"}


# ---- what is no more ------------------------------------------------------------------------------------------------------


def test_a_quota_is_for_living_key_spaces_and_is_not_inherited(memory: Engine) -> None:
    registry = registered(memory)
    registry.delete("a")
    with pytest.raises(KeySpaceDeletingError):
        registry.set_quota("a", keys=5)
    Sweeper(registry).sweep("a")
    with pytest.raises(KeySpaceDeletedError):
        registry.set_quota("a", keys=5)
    # Planted, as a version before this one left it.
    KeySpaceRegistry(Store(memory)).quotas.put("a", Quota(keys=5))
    registry.create("a", "hospital")
    assert registry.quota("a") == Quota()


def test_a_protected_key_space_is_not_overwritten(memory: Engine) -> None:
    registry = registered(memory)
    registry.configure({"protected": ["a"]})
    with pytest.raises(KeySpaceProtectedError):
        registry.begin_overwrite("a")


def test_generations_count_on_from_whatever_is_known_of_a_name(memory: Engine) -> None:
    """A lost record does not begin the name anew: a handle of the first generation would write to its successor."""
    registry = registered(memory)
    taken_over(memory)
    tables = KeySpaceRegistry(Store(memory))
    record = tables.records.get("a")
    assert record is not None
    tables.records.delete("a")
    tables.holders.delete(bytes.fromhex(record.prefix))
    tables.order.delete(record.sequence)
    assert registry.create("a", "third", prefix="09").generation == 3
