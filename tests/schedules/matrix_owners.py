"""The lines of owners: what deletes, overwrites or sweeps a key space, beside another owner who gets its name or its prefix."""

import io
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cache, partial
from pathlib import Path

from keyplan.engine import MemoryEngine
from keyplan.errors import KeyplanError
from keyplan.keyspace import State, Sweeper, apply_steps, plan_for, read_declaration
from keyplan.maintenance import (
    OnConflict,
    RestorePolicy,
    back_up_key_spaces,
    back_up_store,
    restore_key_spaces,
    restore_store,
)
from keyplan.store import Store
from keyplan.testing.schedules import Outcome, Preemptions, Scenario, actor
from tests.keyspace.stores import Item, Shop
from tests.schedules.lines import Line
from tests.schedules.matrix_keyspaces import (
    ACTS,
    NAME,
    NO_WAIT,
    backup_path,
    hospital,
    is_sound,
    never,
    one_key_space,
    open_session,
    opened,
    registry_on,
    restore,
    sweep,
)

__all__ = ["OWNER_GROUPS"]

OTHER = "hospital"
DONE = "acknowledged"
TWO_ITEMS = (b"\x01/shop/items/1", b"\x01/shop/items/2")
PATIENT = b"\x01/shop/items/patient"


def _owners_data_stands(outcome: Outcome, name: str = NAME) -> None:
    """The other owner, once it was told that its key space and record are made, has both."""
    is_sound(outcome)
    if outcome.answers.get(OTHER) == DONE:
        keyspace = registry_on(Store(outcome.engine)).get(name)
        assert keyspace.application == OTHER, f"ownership: {keyspace}"
        assert keyspace.state is State.ENABLED, f"state: {keyspace}"
        kept = outcome.engine.value(keyspace.raw_prefix + b"/shop/items/patient")
        assert kept is not None, "data: the other owner's record is gone"


# ---- a deletion that is taken back and made again, beside a sweeper that looked before --------------------------------------


def _is_being_deleted(store: Store, *, switches: Mapping[str, object], is_empty: bool = False) -> None:
    """A deletion that waits for nothing; one that begins later waits."""
    one_key_space(store)
    registry = registry_on(store)
    if is_empty:
        for number in "12":
            Shop(opened(store)).items.delete(number)
    registry.delete(NAME)
    registry.configure(switches)


def _reopened(store: Store) -> str:
    """Take the deletion back, take part with a session, and delete again: the data waits for the session."""
    registry_on(store).undelete(NAME)
    assert open_session(store) is not None
    registry_on(store).delete(NAME)
    return DONE


def _sessions_data_stands(outcome: Outcome) -> None:
    is_sound(outcome)
    if "reopened" in outcome.answers:
        assert all(outcome.engine.value(key) is not None for key in TWO_ITEMS), "swept while a session stands"


def _deleted_again(store: Store) -> str:
    registry_on(store).undelete(NAME)
    registry_on(store).delete(NAME)
    return DONE


def _grace_stands(outcome: Outcome) -> None:
    is_sound(outcome)
    if "deleted again" in outcome.answers:
        state = registry_on(Store(outcome.engine)).get(NAME).state
        assert state is State.DELETING, f"grace: the second deletion has one, and the key space is {state}"


def deletions() -> Iterator[Line]:
    """A sweeper beside somebody who takes its deletion back, and deletes again."""
    sessions = partial(_is_being_deleted, switches={"max-client-lease-seconds": 60})
    grace = {"delete-grace-seconds": 3600}
    for name, act, setup, invariant in (
        ("reopened", _reopened, sessions, _sessions_data_stands),
        ("deleted again", _deleted_again, partial(_is_being_deleted, switches=grace), _grace_stands),
        (
            "deleted again, empty",
            _deleted_again,
            partial(_is_being_deleted, switches=grace, is_empty=True),
            _grace_stands,
        ),
    ):

        def make(
            act: Callable[[Store], object] = act,
            setup: Callable[[Store], None] = setup,
            invariant: Callable[[Outcome], None] = invariant,
            name: str = name,
        ) -> Scenario:
            return Scenario(
                actor(sweep, "sweep"),
                actor(act, name.partition(",")[0]),
                setup=setup,
                invariants=[invariant],
                only_raises=(KeyplanError,),
            )

        yield Line(f"sweep x {name}", make)

    def three() -> Scenario:
        return Scenario(
            actor(sweep, "sweep"),
            actor(_reopened, "reopened"),
            actor(sweep, "another sweep"),
            setup=sessions,
            invariants=[_sessions_data_stands],
            only_raises=(KeyplanError,),
        )

    yield Line("sweep x reopened x sweep", three, Preemptions(2), is_long=True)


# ---- restores --------------------------------------------------------------------------------------------------------------


def _restore_in_place_of_holder(backup: Callable[[], Path], store: Store) -> list[str]:
    """Return the applications of the holders that the restore was planned for: what has the name then is what is meant."""
    policy = RestorePolicy(on_conflict=OnConflict.OVERWRITE, overwrite_holders=["holder"])
    done = restore_key_spaces(store.engine, backup(), policy=policy, backoff=NO_WAIT)
    return [holder.application for space in done.spaces for holder in space.step.holders]


@cache
def _empty_backup() -> Path:
    """A backup of a key space without a record: its restore makes fewer calls."""
    folder = tempfile.TemporaryDirectory(prefix="keyplan-schedules-")
    _FOLDERS.append(folder)
    path = Path(folder.name) / "empty"
    file = io.BytesIO()
    with Store(MemoryEngine()) as store:
        registry_on(store).ensure(NAME, OTHER)
        back_up_key_spaces(store.engine, file)
    path.write_bytes(file.getvalue())
    return path


def _only_the_planned_holder(outcome: Outcome) -> None:
    is_sound(outcome)
    if OTHER not in outcome.answers.get("restore", ()):
        _owners_data_stands(outcome, "holder")


def _held_by_another(store: Store) -> None:
    """The backup's name is free, and its prefix is that of a key space which may be deleted."""
    registry = registry_on(store)
    registry.configure({"reuse-cooldown-seconds": 0, "max-client-lease-seconds": 0})
    registry.create("holder", "tmp", prefix="01")


def _held_with_data(store: Store) -> None:
    _held_by_another(store)
    Shop(opened(store, "holder", "tmp")).items.put("1", Item("tmp"))


def _holder_made_again(store: Store) -> str:
    """The holder's name and prefix go to another owner."""
    registry = registry_on(store)
    registry.delete("holder")
    Sweeper(registry, pause=never).sweep("holder")
    registry.create("holder", OTHER, prefix="01")
    Shop(opened(store, "holder", OTHER)).items.put("patient", Item("p"))
    return DONE


def _in_place_of_holder(backup: Callable[[], Path], setup: Callable[[Store], None]) -> Scenario:
    return Scenario(
        actor(partial(_restore_in_place_of_holder, backup), "restore"),
        actor(_holder_made_again, OTHER),
        setup=setup,
        invariants=[_only_the_planned_holder],
        only_raises=(KeyplanError,),
    )


def _made_in_empty_store(store: Store) -> str:
    """The other owner makes the first key space of a store that is empty."""
    registry_on(store).create(NAME, OTHER)
    Shop(opened(store, application=OTHER)).items.put("patient", Item("p"))
    return DONE


def _restore_everything(store: Store) -> None:
    restore_key_spaces(store.engine, backup_path(), backoff=NO_WAIT)


def _into_empty_store() -> Scenario:
    return Scenario(
        actor(_restore_everything, "restore"),
        actor(_made_in_empty_store, OTHER),
        invariants=[_others_stand_beside_half_a_restore],
        only_raises=(KeyplanError,),
    )


def _others_stand_beside_half_a_restore(outcome: Outcome) -> None:
    """Whatever the restore came to, the other owner has what was acknowledged, and a second restore takes nothing."""
    if outcome.answers.get(OTHER) == DONE:
        with suppress(KeyplanError):  # the name is taken
            _restore_everything(Store(outcome.engine))
        _owners_data_stands(outcome)


@cache
def _plain_backup() -> Path:
    folder = tempfile.TemporaryDirectory(prefix="keyplan-schedules-")
    _FOLDERS.append(folder)
    path = Path(folder.name) / "plain"
    file = io.BytesIO()
    with Store(MemoryEngine()) as store:
        one_key_space(store)
        back_up_store(store.engine, file, prefix=b"\x01")
    path.write_bytes(file.getvalue())
    return path


_FOLDERS: list[tempfile.TemporaryDirectory[str]] = []


def _restore_plainly(store: Store) -> None:
    restore_store(store.engine, _plain_backup(), is_overwriting=True)


def _has_registry(store: Store) -> None:
    registry = registry_on(store)
    registry.configure({"reuse-cooldown-seconds": 0, "max-client-lease-seconds": 0})
    registry.create("beside", "beside", prefix="05")


def _made_at_prefix(store: Store) -> str:
    registry_on(store).create(NAME, OTHER, prefix="01")
    Shop(opened(store, application=OTHER)).items.put("patient", Item("p"))
    return DONE


def _plain_beside_creation() -> Scenario:
    return Scenario(
        actor(_restore_plainly, "restore"),
        actor(_made_at_prefix, OTHER),
        setup=_has_registry,
        invariants=[_plain_restore_left_others],
        only_raises=(KeyplanError,),
    )


def _plain_restore_left_others(outcome: Outcome) -> None:
    _owners_data_stands(outcome)
    if outcome.answers.get(OTHER) == DONE:
        strange = [key for key in TWO_ITEMS if outcome.engine.value(key) is not None]
        assert not strange, f"data: a plain restore wrote {strange} into a key space"


def restores_beside_owners() -> Iterator[Line]:
    """Restores of key spaces, of everything and of a prefix, beside an owner who comes meanwhile."""
    with_data = partial(_in_place_of_holder, backup_path, _held_with_data)
    yield Line("restore in place of a holder x hospital, one preemption", with_data, Preemptions(1))
    # Why empty: with data all schedules take a minute. At stake is the other owner's key space, which has a record here too.
    empty = partial(_in_place_of_holder, _empty_backup, _held_by_another)
    yield Line("restore in place of an empty holder x hospital", empty, is_long=True)
    yield Line("restore of everything x hospital", _into_empty_store)
    yield Line("plain restore x hospital", _plain_beside_creation)


# ---- declarations ----------------------------------------------------------------------------------------------------------


def _declare_nothing(store: Store) -> list[str]:
    """Declare that there is no key space: what is there is deleted. Return of whom."""
    registry = registry_on(store)
    steps = plan_for(registry, read_declaration({"is_complete": True}))
    applied = apply_steps(registry, steps)
    return [one.step.expected.application for one in applied if one.error is None and one.step.expected is not None]


def _only_what_was_planned(outcome: Outcome) -> None:
    """Another owner's key space is deleted only by a plan that was made for it."""
    is_sound(outcome)
    if OTHER not in outcome.answers.get("declare", ()):
        _owners_data_stands(outcome)


def _beside_declaration(name: str, act: Callable[[Store], object]) -> Scenario:
    return Scenario(
        actor(_declare_nothing, "declare"),
        actor(act, name),
        setup=one_key_space,
        invariants=[_only_what_was_planned],
        only_raises=(KeyplanError,),
    )


def declarations() -> Iterator[Line]:
    """A complete declaration beside a restore, another owner, and acts."""
    for name, act in {"restore": restore, OTHER: hospital, "undelete": ACTS["undelete"], "sweep": sweep}.items():
        yield Line(f"declare x {name}", partial(_beside_declaration, name, act))


# ---- backups ---------------------------------------------------------------------------------------------------------------


def _back_up_everything(store: Store) -> bytes:
    file = io.BytesIO()
    back_up_key_spaces(store.engine, file)
    return file.getvalue()


def _is_restored_whole(outcome: Outcome) -> None:
    is_sound(outcome)
    with tempfile.TemporaryDirectory(prefix="keyplan-schedules-") as folder, MemoryEngine() as engine:
        path = Path(folder) / "all"
        path.write_bytes(outcome.answers["back up"])
        restore_key_spaces(engine, path, backoff=NO_WAIT)
        registry = registry_on(Store(engine))
        faults = registry.diagnose().faults
        assert not faults, f"restored: {faults}"
        verdict = registry.verify_audit()
        assert verdict.is_whole, f"restored: {verdict}"


def _beside_backup(name: str) -> Scenario:
    return Scenario(
        actor(_back_up_everything, "back up"),
        actor(ACTS[name], name),
        setup=one_key_space,
        invariants=[_is_restored_whole],
        only_raises=(KeyplanError,),
    )


def backups() -> Iterator[Line]:
    """A backup of everything, restored elsewhere, beside acts."""
    for name in ("create", "disable", "delete and sweep", "set quota", "write"):
        yield Line(f"back up x {name}", partial(_beside_backup, name))


OWNER_GROUPS: dict[str, Callable[[], Iterator[Line]]] = {
    "deletions taken back": deletions,
    "restores beside owners": restores_beside_owners,
    "declarations": declarations,
    "backups beside acts": backups,
}
