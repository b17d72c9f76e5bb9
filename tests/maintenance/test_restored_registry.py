"""A backup of everything brings everything back: any life of a registry, restored, goes on as if nothing had been.

Only what a backup cannot have is otherwise: what was being deleted or restored is a tombstone, and sessions are gone.
"""

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from keyplan.engine import Commit, Delete, Engine, KeyRange, MemoryEngine, Put
from keyplan.errors import (
    CommitOutcomeUnknownError,
    CorruptionError,
    EngineUnavailableError,
    GenerationMismatchError,
    InvalidInputError,
    KeyplanError,
    TargetTakenError,
)
from keyplan.files import new_file
from keyplan.keyspace import (
    KeySpace,
    KeySpaceRegistry,
    KeySpaces,
    KeySpaceStore,
    Role,
    State,
    Sweeper,
    open_key_space,
)
from keyplan.maintenance import (
    BackupSection,
    BackupWriter,
    OnConflict,
    RestoreAction,
    RestorePolicy,
    open_backup,
    read_backup,
    restore_key_spaces,
)
from keyplan.store import Store
from keyplan.testing.faults import FailingEngine, FakeClock
from tests.keyspace.stores import Item, Shop, put_raw, raw_content
from tests.maintenance.registry_lives import ACTS, World, backed_up


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def as_restored(keyspace: KeySpace) -> dict[str, Any]:
    """A key space as it comes back: one without data of its own is a tombstone, with times that are not told."""
    shown = keyspace.to_json()
    if keyspace.state in (State.DELETING, State.RESTORING, State.DELETED):
        shown |= {"state": "DELETED"}
        for field in ("deleted_at", "delete_completed_at"):
            shown[field] = shown[field] or "told by the restore"
    return shown


def seen(registry: KeySpaces, like: KeySpaces) -> dict[str, Any]:
    """All that a registry tells anybody, but for what `like` could not keep."""
    gone = {one.name for one in like.all(include_deleted=True) if one.state in (State.DELETING, State.RESTORING)}
    found: dict[str, Any] = {"names": [], "history": {}, "quotas": {}, "fences": {}}
    for keyspace in registry.all(include_deleted=True):
        shown = as_restored(keyspace)
        if keyspace.name in gone:
            shown |= {"deleted_at": None, "delete_completed_at": None}
        found["names"].append(shown)
        found["history"][keyspace.name] = [past.to_json() for past in registry.history(keyspace.name)]
        if keyspace.name not in gone:
            found["quotas"][keyspace.name] = msgspec.to_builtins(registry.quota(keyspace.name))
            found["fences"][keyspace.name] = registry.fence(keyspace.name)
    freed = {bytes.fromhex(like.get(name).prefix) for name in gone}
    marks = {prefix: mark for prefix, mark in registry.marks() if prefix not in freed and prefix != b"/"}
    return found | {"marks": marks, "header": registry.header(), "switches": registry.configuration()}


def data_of(engine: Engine, registry: KeySpaces) -> dict[bytes, bytes]:
    prefixes = tuple(one.raw_prefix for one in registry.all() if one.state in (State.ENABLED, State.DISABLED))
    return {key: value for key, value in raw_content(engine).items() if prefixes and key.startswith(prefixes)}


def outcome(handle: KeySpaceStore, engine: Engine) -> str:
    """What a client that had a key space open before meets, when it finds the restored store in place of its own."""
    assert handle.keyspace is not None
    guard = handle.keyspace
    try:
        with open_key_space(engine, guard.name, guard.application, session_seconds=None) as now:
            if now.keyspace is None or now.keyspace.generation != guard.generation:
                return "fenced"
    except KeyplanError as error:
        return error.code
    return "writes"


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(acts=st.lists(ACTS, max_size=25), later=st.lists(ACTS, max_size=8), number=st.integers(0, 1 << 60))
def test_any_life_of_a_registry_goes_on_after_a_restore(
    folder: Path, acts: list[Any], later: list[Any], number: int
) -> None:
    clock = FakeClock()
    with MemoryEngine(clock=clock) as source, MemoryEngine(clock=clock) as target:
        before = World(source, clock)
        before.registry.configure({"max-client-lease-seconds": 0, "reuse-cooldown-seconds": 0})
        for act in acts:
            before.do(*act)
        path = folder / f"{number}-{len(acts)}.kpb"
        path.unlink(missing_ok=True)
        backed_up(source, path)
        restored = restore_key_spaces(target, path, clock=clock)
        after = World(target, clock)
        assert seen(after.registry, before.registry) == seen(before.registry, before.registry)
        assert data_of(target, after.registry) == data_of(source, before.registry)
        assert not restored.is_registry_kept
        diagnosis = after.registry.diagnose(with_unmanaged=False)
        assert diagnosis.is_sound, diagnosis.faults
        kept = [(item.number, item.digest) for item in before.registry.audit()]
        assert [(item.number, item.digest) for item in after.registry.audit()][: len(kept)] == kept
        for handle in before.handles:
            assert outcome(handle, target) == outcome(handle, source) or handle_was_without_data(
                handle, before.registry
            )
        # Generations go on, and never go back, whatever is done then.
        generations = {one.name: one.generation for one in after.registry.all(include_deleted=True)}
        for act in later:
            after.do(*act)
        for keyspace in after.registry.all(include_deleted=True):
            assert keyspace.generation >= generations.get(keyspace.name, 1)
        for handle in (*before.handles, *after.handles):
            handle.close()


def handle_was_without_data(handle: KeySpaceStore, registry: KeySpaces) -> bool:
    assert handle.keyspace is not None
    return registry.get(handle.keyspace.name).state in (State.DELETING, State.RESTORING)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(acts=st.lists(ACTS, max_size=15), later=st.lists(ACTS, max_size=15), number=st.integers(0, 1 << 60))
def test_a_restore_into_the_same_store_never_lets_an_old_handle_write(
    folder: Path, acts: list[Any], later: list[Any], number: int
) -> None:
    clock = FakeClock()
    with MemoryEngine(clock=clock) as engine:
        world = World(engine, clock)
        world.registry.configure({"max-client-lease-seconds": 0, "reuse-cooldown-seconds": 0})
        for act in acts:
            world.do(*act)
        path = folder / f"same-{number}.kpb"
        path.unlink(missing_ok=True)
        backed_up(engine, path)
        for act in later:
            world.do(*act)
        generations = {one.name: one.generation for one in world.registry.all(include_deleted=True)}
        stale = [handle for handle in world.handles if outcome(handle, engine) != "writes"]
        policy = RestorePolicy(OnConflict.OVERWRITE, is_taking_ownership=True)
        try:
            done = restore_key_spaces(engine, path, policy=policy, clock=clock)
        except KeyplanError:
            done = None  # a conflict: nothing was written
        for keyspace in world.registry.all(include_deleted=True):
            assert keyspace.generation >= generations[keyspace.name]
        for handle in stale if done is not None else []:
            with pytest.raises(KeyplanError):
                Shop(handle).items.put("late", Item("x"))
        assert world.registry.diagnose(with_unmanaged=False).is_sound
        for handle in world.handles:
            handle.close()


# ---- by example -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def source() -> Iterator[Engine]:
    """Key spaces in their second generation, history, a mark for ever, switches."""
    with MemoryEngine() as engine:
        registry = KeySpaces(engine)
        registry.configure({"max-client-lease-seconds": 0, "reuse-cooldown-seconds": None})
        for name in ("orders", "old"):
            registry.create(name, "shop")
        for name in ("orders", "old"):
            registry.delete(name)
            Sweeper(registry).sweep(name)
        registry.create("orders", "shop")
        registry.create("users", "shop")
        registry.configure({"protected": ["users"], "keyspace-api-enabled": True, "reservations": ["7a"]})
        put_raw(engine, b"\x03o", b"\x04u")
        yield engine


def test_a_client_falls_back_nowhere_after_a_restore(source: Engine, tmp_path: Path) -> None:
    path = backed_up(source, tmp_path / "full.kpb")
    with MemoryEngine() as target:
        restore_key_spaces(target, path)
        with open_key_space(target, "orders", "shop", default_prefix="03", session_seconds=None) as store:
            assert store.mode.value == "registry"
        registry = KeySpaces(target)
        assert (registry.get("orders").generation, registry.get("users").generation) == (2, 1)
        with pytest.raises(KeyplanError, match="for ever"):
            registry.create("new", "shop", prefix="01")
        assert registry.create("old", "shop").generation == 2


def test_a_restore_of_the_registry_stopped_at_any_step_is_finished_by_the_next(source: Engine, tmp_path: Path) -> None:
    path = backed_up(source, tmp_path / "full.kpb")
    with MemoryEngine() as target:
        probe = FailingEngine(target, closes_inner=False)
        restore_key_spaces(probe, path)
        steps, expected = len(probe.steps), seen(KeySpaces(target), KeySpaces(source))
    for step in range(1, steps + 1):
        with MemoryEngine() as target:
            try:
                restore_key_spaces(FailingEngine(target, at_step=step, closes_inner=False), path)
            except (EngineUnavailableError, CommitOutcomeUnknownError, TargetTakenError):
                with pytest.raises((KeyplanError,)):
                    open_key_space(target, "users", "shop", default_prefix=b"/x/", require_keyspace_api=True)
                restore_key_spaces(target, path)
            assert seen(KeySpaces(target), KeySpaces(source)) == expected, step
            assert KeySpaces(target).diagnose(with_unmanaged=False).is_sound, step


def test_nobody_uses_a_registry_that_is_half_restored(source: Engine, tmp_path: Path) -> None:
    path = backed_up(source, tmp_path / "full.kpb")
    with MemoryEngine() as target:
        restore_key_spaces(target, path)
        # As it is before the last commit of its restore.
        target.commit(Commit((), (Delete(b"\x00kp\x09cfg"),)))
        for use in (
            lambda: KeySpaces(target).create("thief", "thief"),
            lambda: KeySpaces(target, role=Role.CLIENT).get("users"),
            lambda: open_key_space(target, "users", "shop", default_prefix=b"/x/"),
        ):
            with pytest.raises(CorruptionError):
                use()


def test_a_registry_that_was_opened_by_hand_after_a_stop_is_not_replaced(source: Engine, tmp_path: Path) -> None:
    path = backed_up(source, tmp_path / "full.kpb")
    with MemoryEngine() as target:
        probe = FailingEngine(target, closes_inner=False)
        restore_key_spaces(probe, path)
        steps = len(probe.steps)
    opened = 0
    for step in range(1, steps + 1):
        with MemoryEngine() as target:
            try:
                restore_key_spaces(FailingEngine(target, at_step=step, closes_inner=False), path)
            except (EngineUnavailableError, CommitOutcomeUnknownError, TargetTakenError):
                KeySpaces(target).repair()
            try:
                KeySpaces(target).create("mine", "mine", prefix="09")
            except CorruptionError:
                continue  # it could not be opened
            opened += 1
            with open_key_space(target, "mine", "mine", session_seconds=None) as store:
                Shop(store).items.put("1", Item("x"))
            with contextlib.suppress(KeyplanError):  # what is protected stays
                restore_key_spaces(target, path, policy=RestorePolicy(OnConflict.OVERWRITE))
            with open_key_space(target, "mine", "mine", session_seconds=None) as store:
                assert Shop(store).items.get("1") == Item("x"), step
    assert opened


def test_beside_another_registry_the_switches_stay_and_it_is_told(source: Engine, tmp_path: Path) -> None:
    path = backed_up(source, tmp_path / "full.kpb")
    with MemoryEngine() as target:
        KeySpaces(target).create("own", "shop", prefix="09")
        created_at = KeySpaces(source).get("orders").created_at
        restored = restore_key_spaces(target, path)
        assert restored.is_registry_kept
        registry = KeySpaces(target)
        assert registry.configuration().protected == []
        assert (registry.get("orders").generation, registry.get("orders").created_at) == (2, created_at)
        assert [past.generation for past in registry.history("orders")] == [1]
        assert registry.diagnose(with_unmanaged=False).is_sound


def test_prefixes_in_the_way_bring_the_switches_back_nevertheless(source: Engine, tmp_path: Path) -> None:
    path = backed_up(source, tmp_path / "full.kpb")
    with MemoryEngine() as target:
        put_raw(target, b"\x03litter")
        restore_key_spaces(target, path, policy=RestorePolicy(OnConflict.RELOCATE))
        registry = KeySpaces(target)
        assert registry.get("orders").prefix != "03"
        assert registry.configuration() == KeySpaces(source).configuration()


def test_one_key_space_keeps_its_generation_time_and_history(source: Engine, tmp_path: Path) -> None:
    path = backed_up(source, tmp_path / "one.kpb", "orders")
    assert read_backup(path).registry is None
    with MemoryEngine() as target:
        (space,) = restore_key_spaces(target, path).spaces
        assert space.step.action is RestoreAction.CREATE
        before, after = KeySpaces(source).get("orders"), KeySpaces(target).get("orders")
        assert (after.generation, after.created_at, after.prefix) == (2, before.created_at, before.prefix)
        assert [past.generation for past in KeySpaces(target).history("orders")] == [1]
        old = before.identity
        restore_key_spaces(target, path, policy=RestorePolicy(OnConflict.OVERWRITE))
        with pytest.raises(GenerationMismatchError):
            KeySpaces(target).disable("orders", expected=old)


# ---- files that were edited by hand --------------------------------------------------------------------------------------


def forged(path: Path, to: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """A copy of a backup without its registry, with one record changed."""
    with open_backup(path) as reader, new_file(to) as file:
        writer = BackupWriter(file, reader.header)
        for section in reader.sections():
            record = dict(section.keyspace or {})
            change(record)
            prefix = str(record["prefix"]) if len(str(record["prefix"])) % 2 == 0 else section.prefix
            try:
                bytes.fromhex(prefix)
            except ValueError:
                prefix = section.prefix
            writer.begin(BackupSection(prefix=prefix, keyspace=record, has_data=section.has_data))
            for key, data in reader.pairs():
                writer.add(key, data)
            writer.finish()
        writer.end()
    return to


@pytest.mark.parametrize("state", ["ENABLED", "DELETED", "DELETING"])
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("prefix", "zz"),
        ("prefix", ""),
        ("prefix", "0"),
        ("prefix", "FF"),
        ("prefix", "01" * 300),
        ("generation", 2**64 - 1),
        ("generation", 2**64),
        ("generation", 2**53 - 1),
        ("generation", 0),
        ("generation", -1),
        ("sequence", -1),
        ("name", 7),
        ("state", "GONE"),
        ("prefix_epoch", 2**70),
    ],
)
def test_a_record_that_no_key_space_can_have_is_refused_in_every_state(
    source: Engine, tmp_path: Path, field: str, value: object, state: str
) -> None:
    def change(record: dict[str, Any]) -> None:
        if record["name"] == "users":
            record["state"] = state
            record[field] = value

    path = forged(backed_up(source, tmp_path / "full.kpb"), tmp_path / "forged.kpb", change)
    with MemoryEngine() as target:
        with pytest.raises(InvalidInputError):
            restore_key_spaces(target, path)
        with target.snapshot() as snapshot:
            assert not any(True for _ in snapshot.scan(KeyRange(b"", None)))


@pytest.mark.parametrize("value", [b"{", b'{"name":"x"}', b"\xff"])
@pytest.mark.parametrize(
    "table", ["records", "holders", "fences", "history", "marks", "audit", "configuration", "header"]
)
def test_a_registry_that_none_can_be_is_refused(source: Engine, tmp_path: Path, table: str, value: bytes) -> None:
    start, _ = KeySpaceRegistry.bound().tables[table].keys.range(())
    path, to = backed_up(source, tmp_path / "full.kpb"), tmp_path / "forged.kpb"
    with open_backup(path) as reader, new_file(to) as file:
        writer = BackupWriter(file, reader.header)
        for section in reader.sections(with_registry=True):
            writer.begin(section)
            is_changed = False
            for key, data in reader.pairs():
                is_here = section.is_registry and not is_changed and (b"\x00kp" + key).startswith(start)
                writer.add(key, value if is_here else data)
                is_changed = is_changed or is_here
            writer.finish()
        writer.end()
    with MemoryEngine() as target, pytest.raises(InvalidInputError):
        restore_key_spaces(target, to)


def test_the_doctor_survives_what_a_record_cannot_be() -> None:
    with MemoryEngine() as engine:
        registry = KeySpaces(engine)
        registry.create("a", "app")
        raw = engine.value(b"\x00kp\x01a\x00")
        assert raw is not None
        for old, new in (
            (b'"prefix":"01"', b'"prefix":"zz"'),
            (b'"generation":1', b'"generation":18446744073709551615'),
        ):
            engine.commit(Commit((), (Put(b"\x00kp\x01a\x00", raw.replace(old, new)),)))
            assert not registry.diagnose().is_sound
            registry.repair()
            assert registry.diagnose().is_sound
            assert Store(engine).engine.value(b"\x00kp\x01a\x00") == raw
