"""Key spaces out of a backup: every row of the conflict table, keys and indexes after a move, and a stop at every step."""

from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from keyplan.engine import ALL_KEYS, Commit, Engine, KeyRange, Put, open_engine
from keyplan.errors import (
    CommitOutcomeUnknownError,
    EngineUnavailableError,
    InvalidInputError,
    KeySpaceDeletingError,
    KeySpaceNotFoundError,
    KeySpaceRestoringError,
    RestoreConflictError,
)
from keyplan.files import new_file
from keyplan.keyspace import KeySpaceIdentity, KeySpaces, State, Sweeper, open_key_space
from keyplan.layout import Index, Layout, Table, Unique
from keyplan.maintenance import (
    BackupSection,
    BackupWriter,
    OnConflict,
    RestoreAction,
    RestorePolicy,
    back_up_key_spaces,
    check,
    open_backup,
    read_backup,
    restore_key_spaces,
)
from keyplan.store import Backoff, Store
from keyplan.testing.faults import FailingEngine
from tests.maintenance.backups import content_of, file_of, section_file

RELOCATE = RestorePolicy(OnConflict.RELOCATE)
OVERWRITE = RestorePolicy(OnConflict.OVERWRITE)


class Order(msgspec.Struct):
    """`after` is the whole key of another order, the key space's prefix included."""

    customer: str
    after: str = ""


class Shop(Layout, root="shop/"):
    orders = Table("orders/{number}", key=str, value=Order, holds_keys="after")
    by_customer = Index("by-customer/{customer}/{number}", of=orders, key=str)
    by_after = Unique("by-after/{after:text_tail}", of=orders, key=str, when={"customer": "linked"})


def write_orders(engine: Engine, name: str, *, count: int = 3) -> None:
    with open_key_space(engine, name, "shop", session_seconds=None) as store:
        prefix = store.prefix.decode()
        shop = Shop(store)
        for number in range(count):
            shop.orders.insert(f"o{number}", Order("linked", f"{prefix}shop/orders/o{number + 1}"))


def backed_up(engine: Engine, path: Path, name: str | None = None) -> Path:
    with new_file(path) as file:
        back_up_key_spaces(engine, file, name=name)
    return path


@pytest.fixture
def source(tmp_path: Path) -> Iterator[Engine]:
    """orders at 01 and users at 02, of the application shop, with data; stock at 03, disabled."""
    with open_engine(f"lmdb:{tmp_path}/source.kv") as engine:
        spaces = KeySpaces(engine)
        spaces.create("orders", "shop", description="what was ordered")
        spaces.create("users", "shop")
        spaces.create("stock", "store")
        write_orders(engine, "orders")
        engine.commit(Commit((), (Put(b"\x02ada", b"1"), Put(b"\x02", b"empty key"), Put(b"\x03x", b"stock"))))
        spaces.disable("stock")
        spaces.set_quota("users", keys=100)
        yield engine


@pytest.fixture
def single(source: Engine, tmp_path: Path) -> Path:
    return backed_up(source, tmp_path / "orders.kpb", "orders")


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Engine]:
    with open_engine(f"lmdb:{tmp_path}/target.kv") as engine:
        yield engine


def assert_sound(engine: Engine) -> None:
    assert KeySpaces(engine).diagnose().faults == []


def data_of(engine: Engine, prefix: bytes) -> dict[bytes, bytes]:
    found = content_of(engine, KeyRange.of_prefix(prefix))
    return {key.removeprefix(prefix): value for key, value in found.items()}


# ---- full backups -----------------------------------------------------------------------------------------------------------


def test_a_full_backup_comes_back_whole_in_an_empty_store(source: Engine, target: Engine, tmp_path: Path) -> None:
    path = backed_up(source, tmp_path / "full.kpb")
    restored = restore_key_spaces(target, path)
    for name in ("orders", "users", "stock"):
        before, after = KeySpaces(source).get(name), KeySpaces(target).get(name)
        assert (after.prefix, after.application, after.description, after.state) == (
            before.prefix,
            before.application,
            before.description,
            before.state,
        )
        assert data_of(target, after.raw_prefix) == data_of(source, before.raw_prefix)
    tallies = {section.name: section.trailer.tally for section in read_backup(path).sections}
    assert {space.step.name: space.report.tally for space in restored.spaces if space.report} == tallies
    assert KeySpaces(target).usage("users").quota.keys == 100
    assert_sound(target)


def test_a_full_backup_keeps_deleted_key_spaces_as_records_without_data(
    source: Engine, target: Engine, tmp_path: Path
) -> None:
    spaces = KeySpaces(source)
    spaces.delete("users")
    spaces.delete("orders")
    Sweeper(spaces).sweep("orders")
    path = backed_up(source, tmp_path / "full.kpb")
    restored = restore_key_spaces(target, path)
    assert [(space.step.name, space.step.action) for space in restored.spaces] == [
        ("orders", RestoreAction.TOMBSTONE),
        ("stock", RestoreAction.CREATE),
        ("users", RestoreAction.TOMBSTONE),
    ]
    assert {space.name: space.state for space in KeySpaces(target).all(include_deleted=True)} == {
        "orders": State.DELETED,
        "stock": State.DISABLED,
        "users": State.DELETED,
    }
    assert data_of(target, b"\x01") == data_of(target, b"\x02") == {}
    assert_sound(target)
    assert [space.step.action for space in restore_key_spaces(target, path, names=["users"]).spaces] == [
        RestoreAction.LEFT
    ]


def test_one_key_space_of_a_full_backup_is_restored_alone(source: Engine, target: Engine, tmp_path: Path) -> None:
    path = backed_up(source, tmp_path / "full.kpb")
    restore_key_spaces(target, path, names=["users"])
    assert [space.name for space in KeySpaces(target).all()] == ["users"]
    assert data_of(target, b"\x02") == {b"": b"empty key", b"ada": b"1"}
    with pytest.raises(KeySpaceNotFoundError, match="not in this backup"):
        restore_key_spaces(target, path, names=["users", "nobody"])


def test_key_spaces_that_are_no_more_or_not_yet_are_not_backed_up_alone(source: Engine, tmp_path: Path) -> None:
    spaces = KeySpaces(source)
    spaces.delete("users")
    spaces.begin_restore("coming", "shop")
    for name, error in (
        ("users", KeySpaceDeletingError),
        ("coming", KeySpaceRestoringError),
        ("nobody", KeySpaceNotFoundError),
    ):
        with pytest.raises(error):
            backed_up(source, tmp_path / "none.kpb", name)
    with new_file(tmp_path / "full.kpb") as file:
        assert back_up_key_spaces(source, file).left_out == ("coming",)


# ---- the conflict table -----------------------------------------------------------------------------------------------------


def refused(engine: Engine, path: Path, policy: RestorePolicy | None = None) -> str:
    """The sentence of the only conflict; nothing may have been written for it."""
    before = content_of(engine)
    with pytest.raises(RestoreConflictError) as raised:
        restore_key_spaces(engine, path, policy=policy)
    assert content_of(engine) == before
    conflicts = raised.value.facts["conflicts"]
    assert isinstance(conflicts, tuple)
    (conflict,) = conflicts
    return str(conflict)


def test_a_free_name_with_a_prefix_in_use(single: Path, target: Engine) -> None:
    KeySpaces(target).create("other", "shop")
    target.commit(Commit((), (Put(b"\x01key", b"other's"),)))
    assert "prefix is in use" in refused(target, single)
    assert "prefix is in use" in refused(target, single, OVERWRITE)
    (space,) = restore_key_spaces(target, single, policy=RELOCATE, layout=Shop.bound()).spaces
    assert space.keyspace is not None
    assert space.keyspace.prefix == "02"
    assert data_of(target, b"\x01") == {b"key": b"other's"}
    assert_sound(target)


def test_a_holder_that_is_named_is_deleted_and_its_prefix_used(single: Path, source: Engine, target: Engine) -> None:
    KeySpaces(target).create("other", "shop")
    target.commit(Commit((), (Put(b"\x01key", b"other's"),)))
    policy = RestorePolicy(OnConflict.OVERWRITE, overwrite_holders=["other"])
    (space,) = restore_key_spaces(target, single, policy=policy).spaces
    assert space.keyspace is not None
    assert space.keyspace.prefix == "01"
    assert data_of(target, b"\x01") == data_of(source, b"\x01")
    assert KeySpaces(target).get("other").state is State.DELETED
    assert_sound(target)


def test_a_free_name_with_keys_of_nobody_below_its_prefix(single: Path, target: Engine) -> None:
    target.commit(Commit((), (Put(b"\x01key", b"nobody's"),)))
    assert "keys below the prefix" in refused(target, single)
    assert "keys below the prefix" in refused(target, single, OVERWRITE)
    (space,) = restore_key_spaces(target, single, policy=RELOCATE).spaces
    assert space.keyspace is not None
    assert space.keyspace.prefix != "01"
    assert target.snapshot().get(b"\x01key") is not None


def test_a_live_name_with_the_same_prefix(single: Path, source: Engine, target: Engine) -> None:
    KeySpaces(target).create("orders", "shop")
    target.commit(Commit((), (Put(b"\x01key", b"old"),)))
    assert "is a key space of this name" in refused(target, single)
    assert "is a key space of this name" in refused(target, single, RELOCATE)
    (space,) = restore_key_spaces(target, single, policy=OVERWRITE).spaces
    assert space.keyspace is not None
    assert (space.keyspace.generation, space.keyspace.prefix) == (2, "01")
    assert data_of(target, b"\x01") == data_of(source, b"\x01")
    assert_sound(target)


def test_a_live_name_with_another_prefix_is_filled_below_that(single: Path, source: Engine, target: Engine) -> None:
    KeySpaces(target).create("first", "shop")
    KeySpaces(target).create("orders", "shop")
    assert "is a key space of this name" in refused(target, single)
    (space,) = restore_key_spaces(target, single, policy=OVERWRITE).spaces
    assert space.keyspace is not None
    assert space.keyspace.prefix == "02"
    assert data_of(target, b"\x02") == data_of(source, b"\x01")


def test_a_name_in_use_is_relocated_under_another_name_and_the_first_is_untouched(
    single: Path, source: Engine, target: Engine
) -> None:
    KeySpaces(target).create("first", "shop")
    KeySpaces(target).create("orders", "shop")
    target.commit(Commit((), (Put(b"\x02key", b"own"),)))
    policy = RestorePolicy(OnConflict.RELOCATE, rename_to={"orders": "orders2"})
    (space,) = restore_key_spaces(target, single, policy=policy).spaces
    assert space.keyspace is not None
    assert (space.keyspace.name, space.keyspace.prefix) == ("orders2", "03")
    assert data_of(target, b"\x02") == {b"key": b"own"}
    assert data_of(target, b"\x03") == data_of(source, b"\x01")


def test_a_name_that_is_being_deleted(single: Path, target: Engine) -> None:
    KeySpaces(target).create("orders", "shop")
    KeySpaces(target).delete("orders")
    for policy in (None, OVERWRITE, RELOCATE):
        assert "being deleted" in refused(target, single, policy)
    policy = RestorePolicy(OnConflict.RELOCATE, rename_to={"orders": "orders2"})
    assert restore_key_spaces(target, single, policy=policy).spaces[0].keyspace is not None


def test_another_applications_key_space(single: Path, target: Engine) -> None:
    KeySpaces(target).create("orders", "somebody")
    for policy in (None, OVERWRITE, RELOCATE):
        assert "another application" in refused(target, single, policy)
    policy = RestorePolicy(OnConflict.OVERWRITE, is_taking_ownership=True)
    (space,) = restore_key_spaces(target, single, policy=policy).spaces
    assert space.keyspace is not None
    assert space.keyspace.application == "shop"


def test_every_conflict_is_told_at_once(source: Engine, target: Engine, tmp_path: Path) -> None:
    path = backed_up(source, tmp_path / "full.kpb")
    spaces = KeySpaces(target)
    spaces.create("orders", "shop")
    spaces.create("other", "shop")
    spaces.create("users", "somebody")
    with pytest.raises(RestoreConflictError) as raised:
        restore_key_spaces(target, path)
    conflicts = raised.value.facts["conflicts"]
    assert isinstance(conflicts, tuple)
    assert [sentence.split(":")[0] for sentence in conflicts] == [
        "there is a key space of this name",
        "the prefix is in use",
        "the key space belongs to another application",
    ]


# ---- moving ----------------------------------------------------------------------------------------------------------------


def test_keys_in_values_are_rewritten_and_indexes_agree_after_a_move(single: Path, target: Engine) -> None:
    KeySpaces(target).create("other", "shop")
    (space,) = restore_key_spaces(target, single, policy=RELOCATE, layout=Shop.bound()).spaces
    assert space.report is not None
    assert (space.report.keys_rewritten, space.report.indexes) != (0, None)
    with open_key_space(target, "orders", "shop", session_seconds=None) as store:
        shop = Shop(store)
        assert [order.after for _, order in shop.orders.list()] == [f"\x02shop/orders/o{n}" for n in (1, 2, 3)]
        found = shop.by_after.one("\x02shop/orders/o2")
        assert found is not None
        assert found.after == "\x02shop/orders/o2"
        assert list(check(store, shop)) == []
    assert space.report.indexes is not None
    assert space.report.indexes.remaining == ()
    assert space.report.indexes.repaired > 0


def test_a_plain_backup_and_one_of_key_spaces_are_not_taken_for_each_other(target: Engine, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="`keyplan restore`"):
        restore_key_spaces(target, file_of(tmp_path / "plain.kpb", section_file({})))


# ---- stopped anywhere ------------------------------------------------------------------------------------------------------


def stopped_at_every_step(
    prepare: Callable[[Engine], object], path: Path, policy: RestorePolicy
) -> Iterator[tuple[int, Engine]]:
    """Run a restore that fails at one step, then again; give the engine after both."""
    with open_engine("memory:") as engine:
        prepare(engine)
        probe = FailingEngine(engine, closes_inner=False)
        restore_key_spaces(probe, path, policy=policy, layout=Shop.bound(), backoff=Backoff(sleep=lambda _s: None))
        steps = len(probe.steps)
    for step in range(1, steps + 1):
        with open_engine("memory:") as engine:
            prepare(engine)
            failing = FailingEngine(engine, at_step=step, closes_inner=False)
            try:
                restore_key_spaces(failing, path, policy=policy, layout=Shop.bound())
            except (EngineUnavailableError, CommitOutcomeUnknownError):
                assert KeySpaces(engine).diagnose().faults == [], step
                states = {space.name: space.state for space in KeySpaces(engine).all()}
                if states.get("orders") is State.RESTORING:
                    with pytest.raises(KeySpaceRestoringError):
                        open_key_space(engine, "orders", "shop", session_seconds=None)
                if states.get("orders") is not State.ENABLED or policy.on_conflict is OnConflict.OVERWRITE:
                    restore_key_spaces(engine, path, policy=policy, layout=Shop.bound())
            yield step, engine


def test_a_restore_stopped_at_any_step_is_sound_and_finished_by_the_next(source: Engine, single: Path) -> None:
    expected = data_of(source, b"\x01")
    for step, engine in stopped_at_every_step(lambda _engine: None, single, RestorePolicy()):
        assert data_of(engine, b"\x01") == expected, step
        assert KeySpaces(engine).get("orders").state is State.ENABLED, step
        assert KeySpaces(engine).diagnose().faults == [], step


def test_an_overwriting_restore_stopped_at_any_step_is_finished_by_the_next(source: Engine, single: Path) -> None:
    def prepare(engine: Engine) -> None:
        KeySpaces(engine).create("orders", "shop")
        engine.commit(Commit((), (Put(b"\x01old", b"old"), Put(b"\x02", b"neighbour"))))

    expected = data_of(source, b"\x01")
    for step, engine in stopped_at_every_step(prepare, single, OVERWRITE):
        assert data_of(engine, b"\x01") == expected, step
        assert content_of(engine, KeyRange(b"\x02", ALL_KEYS.end)) == {b"\x02": b"neighbour"}, step


def test_a_restore_over_a_holder_stopped_at_any_step_is_finished_by_the_next(source: Engine, single: Path) -> None:
    def prepare(engine: Engine) -> None:
        KeySpaces(engine).create("other", "shop")
        engine.commit(Commit((), (Put(b"\x01old", b"old"),)))

    expected = data_of(source, b"\x01")
    policy = RestorePolicy(OnConflict.OVERWRITE, overwrite_holders=["other"])
    for step, engine in stopped_at_every_step(prepare, single, policy):
        assert data_of(engine, b"\x01") == expected, step
        assert KeySpaces(engine).get("other").state is State.DELETED, step


@pytest.mark.parametrize(
    ("meant", "is_done"),
    [(KeySpaceIdentity(2, "shop"), True), (KeySpaceIdentity(1, "shop"), False), (KeySpaceIdentity(2, "bank"), False)],
)
@pytest.mark.parametrize("name", ["other", "orders"])
def test_what_is_deleted_or_overwritten_is_the_one_that_was_meant(
    single: Path, target: Engine, name: str, meant: KeySpaceIdentity, *, is_done: bool
) -> None:
    registry = KeySpaces(target)
    registry.configure({"reuse-cooldown-seconds": 0, "max-client-lease-seconds": 0})
    registry.create(name, "shop", prefix="01")
    registry.delete(name)
    Sweeper(registry).sweep(name)
    registry.create(name, "shop", prefix="02" if name == "orders" else "01")
    policy = RestorePolicy(OnConflict.OVERWRITE, overwrite_holders=["other"], expected={name: meant})
    if is_done:
        restore_key_spaces(target, single, policy=policy)
        assert registry.get("orders").state is State.ENABLED
    else:
        assert ("generation" if meant.generation == 1 else "bank") in refused(target, single, policy)
        assert registry.get(name).identity == (2, "shop")


def test_an_expectation_of_a_name_that_is_not_touched_is_refused(single: Path, target: Engine) -> None:
    policy = RestorePolicy(OnConflict.OVERWRITE, expected={"odrers": KeySpaceIdentity(1, "shop")})
    with pytest.raises(InvalidInputError, match="odrers"):
        restore_key_spaces(target, single, policy=policy)
    assert content_of(target) == {}


def test_a_protected_holder_is_not_deleted(single: Path, target: Engine) -> None:
    KeySpaces(target).create("other", "shop")
    KeySpaces(target).configure({"protected": ["other"]})
    policy = RestorePolicy(OnConflict.OVERWRITE, overwrite_holders=["other"])
    assert "protected" in refused(target, single, policy)


def test_a_truncated_file_opens_nothing_and_a_second_restore_succeeds(
    single: Path, target: Engine, tmp_path: Path
) -> None:
    raw = single.read_bytes()
    for size in range(0, len(raw), 37):
        with pytest.raises(InvalidInputError):
            restore_key_spaces(target, file_of(tmp_path / "part.kpb", raw[:size]))
    assert content_of(target) == {}
    restore_key_spaces(target, single)
    assert KeySpaces(target).get("orders").state is State.ENABLED


def test_indexes_are_readable_by_a_store_that_was_not_told_of_the_restore(single: Path, target: Engine) -> None:
    restore_key_spaces(target, single)
    with open_key_space(target, "orders", "shop", session_seconds=None) as store:
        assert isinstance(store, Store)
        assert [order.customer for _, order in Shop(store).by_customer.list("linked")] == ["linked"] * 3


# ---- what a file may say ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "value"),
    [("name", "a/b"), ("application", ""), ("prefix", "00"), ("prefix", "8000"), ("description", "x" * 100_000)],
)
def test_a_record_that_no_registry_takes_is_refused_before_anything_is_written(
    source: Engine, target: Engine, tmp_path: Path, field: str, value: str
) -> None:
    path = backed_up(source, tmp_path / "full.kpb")
    forged = tmp_path / "forged.kpb"
    with open_backup(path) as reader, new_file(forged) as file:
        writer = BackupWriter(file, reader.header)
        for section in reader.sections():
            record = dict(section.keyspace or {})
            # The last of three, so that two would be there if it came out too late.
            if record["name"] == "users":
                record[field] = value
            prefix = str(record["prefix"])
            writer.begin(BackupSection(prefix=prefix, keyspace=record, quota=section.quota, has_data=section.has_data))
            for key, data in reader.pairs():
                writer.add(key, data)
            writer.finish()
        writer.end()
    with pytest.raises((InvalidInputError, RestoreConflictError)):
        restore_key_spaces(target, forged)
    assert content_of(target) == {}
