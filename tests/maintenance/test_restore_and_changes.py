"""A restore of key spaces beside somebody who deletes, makes and protects them: before each of its calls."""

from collections.abc import Callable
from pathlib import Path

import pytest

from keyplan.engine import Engine, Snapshot, WrappedEngine, open_engine
from keyplan.errors import InvalidInputError, KeyplanError, RestoreConflictError
from keyplan.files import new_file
from keyplan.keyspace import KeySpaces, State, Sweeper, open_key_space
from keyplan.maintenance import (
    OnConflict,
    RestoreAction,
    RestorePolicy,
    back_up_key_spaces,
    restore_key_spaces,
)
from keyplan.maintenance.claims import read_claim, space_claim
from keyplan.store import Backoff
from tests.keyspace.meanwhile import Meanwhile, at_every_call
from tests.keyspace.stores import Item, Shop, raw_content
from tests.maintenance.test_beside_transfers import AtCommit

OVERWRITE = RestorePolicy(OnConflict.OVERWRITE)
QUICK = Backoff(sleep=lambda _seconds: None)
NO_WAITS = {"max-client-lease-seconds": 0, "reuse-cooldown-seconds": 0}


def put_item(engine: Engine, name: str, application: str, item: str) -> None:
    with open_key_space(engine, name, application, session_seconds=None) as store:
        Shop(store).items.put(item, Item("x"))


def furnished(engine: Engine, name: str = "a", prefix: str | None = None) -> KeySpaces:
    registry = KeySpaces(engine)
    registry.configure(NO_WAITS)
    registry.create(name, "bank", prefix=prefix)
    put_item(engine, name, "bank", "old")
    return registry


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    """The bank's key space "a" at 01, with one record."""
    with open_engine("memory:") as engine:
        furnished(engine)
        path = tmp_path / "a.kpb"
        with new_file(path) as file:
            back_up_key_spaces(engine, file, name="a")
        return path


def staged(
    path: Path, prepare: Callable[[Engine], object], act: Callable[[Engine], object], policy: RestorePolicy
) -> list[tuple[int | None, Engine, KeyplanError | None, bool]]:
    """Restore beside `act`, at every place; give the place, the engine, what the restore raised, whether `act` was done."""
    with open_engine("memory:") as engine:
        prepare(engine)
        probe = Meanwhile(engine, None, lambda: None)
        restore_key_spaces(probe, path, policy=policy, backoff=QUICK)
        calls = probe.calls
    found = []
    for at_call in at_every_call(calls):
        engine = open_engine("memory:")
        prepare(engine)
        acted: list[bool] = []

        def other(engine: Engine = engine, acted: list[bool] = acted) -> None:
            try:
                act(engine)
            except KeyplanError:
                return  # what the registry refuses is not done
            acted.append(True)

        error: KeyplanError | None = None
        try:
            restore_key_spaces(Meanwhile(engine, at_call, other), path, policy=policy, backoff=QUICK)
        except KeyplanError as raised:
            error = raised
        found.append((at_call, engine, error, bool(acted)))
    return found


def hospital(engine: Engine) -> None:
    """The name passes to the hospital, which writes a record that is acknowledged."""
    registry = KeySpaces(engine)
    registry.delete("a")
    Sweeper(registry).sweep("a")
    registry.create("a", "hospital")
    put_item(engine, "a", "hospital", "patient")


def test_a_name_that_is_anothers_by_then_is_not_overwritten(backup: Path) -> None:
    places = 0
    for at_call, engine, error, is_taken in staged(backup, furnished, hospital, OVERWRITE):
        registry = KeySpaces(engine)
        if is_taken:
            places += 1
            assert error is not None, at_call
            assert registry.get("a").application == "hospital", at_call
            assert any(key.endswith(b"patient") for key in raw_content(engine)), at_call
        assert registry.diagnose(with_unmanaged=False).is_sound, at_call
        engine.close()
    assert places > 3


def test_a_holder_whose_name_is_anothers_by_then_is_not_deleted(backup: Path) -> None:
    def renewed(engine: Engine) -> None:
        registry = KeySpaces(engine)
        registry.delete("tmp")
        Sweeper(registry).sweep("tmp")
        registry.create("tmp", "hospital", prefix="09")
        put_item(engine, "tmp", "hospital", "patient")

    policy = RestorePolicy(OnConflict.OVERWRITE, overwrite_holders=["tmp"])
    places = 0
    for at_call, engine, _, is_taken in staged(backup, lambda one: furnished(one, "tmp", "01"), renewed, policy):
        registry = KeySpaces(engine)
        if is_taken:
            places += 1
            assert (registry.get("tmp").application, registry.get("tmp").state) == ("hospital", State.ENABLED), at_call
            assert b"\x09/shop/items/patient" in raw_content(engine), at_call
        assert registry.diagnose(with_unmanaged=False).is_sound, at_call
        engine.close()
    assert places > 3


def test_a_key_space_that_was_protected_meanwhile_is_not_overwritten(backup: Path) -> None:
    def protected(engine: Engine) -> None:
        if KeySpaces(engine).get("a").generation > 1:
            return  # the restore has begun, before it was protected
        KeySpaces(engine).configure({"protected": ["a"]})

    for at_call, engine, error, _ in staged(backup, furnished, protected, OVERWRITE):
        registry = KeySpaces(engine)
        if "a" in registry.configuration().protected:
            assert error is not None, at_call
            assert registry.get("a").generation == 1, at_call
        engine.close()


def test_a_protected_key_space_is_a_conflict(backup: Path) -> None:
    with open_engine("memory:") as engine:
        furnished(engine).configure({"protected": ["a"]})
        with pytest.raises(RestoreConflictError, match="protected"):
            restore_key_spaces(engine, backup, policy=OVERWRITE)


def test_a_long_grace_of_a_holder_is_told_before_anything_is_done(backup: Path) -> None:
    with open_engine("memory:") as engine:
        registry = furnished(engine, "tmp", "01")
        registry.configure({"delete-grace-seconds": 86_400})
        policy = RestorePolicy(OnConflict.OVERWRITE, overwrite_holders=["tmp"])
        with pytest.raises(RestoreConflictError, match="86400 s"):
            restore_key_spaces(engine, backup, policy=policy, backoff=QUICK)
        assert registry.get("tmp").state is State.ENABLED


def test_a_restore_that_is_begun_again_behind_its_end_finds_nothing_to_do(backup: Path) -> None:
    with open_engine("memory:") as engine:
        restore_key_spaces(engine, backup)
        put_item(engine, "a", "bank", "since")
        (space,) = restore_key_spaces(engine, backup).spaces
        assert space.step.action is RestoreAction.FINISHED
        assert b"\x01/shop/items/since" in raw_content(engine)
        (space,) = restore_key_spaces(engine, backup, policy=OVERWRITE).spaces
        assert space.step.action is RestoreAction.OVERWRITE
        assert set(raw_content(engine)) == {b"\x01/shop/items/old"}


def test_a_restore_that_is_over_says_nothing_of_the_next_key_space_of_the_name(backup: Path) -> None:
    with open_engine("memory:") as engine:
        registry = KeySpaces(engine)
        registry.configure(NO_WAITS)
        restore_key_spaces(engine, backup)
        hospital(engine)
        with pytest.raises(RestoreConflictError, match="another application"):
            restore_key_spaces(engine, backup)


def test_a_restore_that_could_not_begin_claims_nothing(backup: Path) -> None:
    """A claim that was left by one would take any later restore of the name for its own."""

    def made(engine: Engine) -> None:
        KeySpaces(engine).create("a", "hospital")

    places = 0
    for at_call, engine, error, is_taken in staged(backup, lambda _engine: None, made, RestorePolicy()):
        if is_taken and error is not None:
            places += 1
            assert read_claim(engine, space_claim("a")) is None, at_call
        engine.close()
    assert places > 3


def test_nothing_is_restored_of_another_backup_that_takes_the_files_place_meanwhile(
    backup: Path, tmp_path: Path
) -> None:
    with open_engine("memory:") as engine:
        furnished(engine, "b")
        put_item(engine, "b", "bank", "new")
        with new_file(tmp_path / "latest.kpb") as file:
            back_up_key_spaces(engine, file, name="b")
    latest = tmp_path / "latest.kpb"

    class AtLook(WrappedEngine):
        """The file is another one when the store is looked at, which is behind the first look at the file."""

        def snapshot(self) -> Snapshot:
            if latest.exists():
                latest.replace(backup)
            return self.inner.snapshot()

    with open_engine("memory:") as engine:
        with pytest.raises(InvalidInputError, match="another backup has taken its place"):
            restore_key_spaces(AtLook(engine, closes_inner=False), backup, backoff=QUICK)
        assert raw_content(engine) == {}


def test_a_restore_that_a_program_goes_on_with_keeps_the_command_that_began_it(backup: Path) -> None:
    words = ("keyspace", "restore", "a.kpb")
    with open_engine("memory:") as engine:
        for number, command in ((3, words), (2, ())):
            with pytest.raises(KeyboardInterrupt):
                restore_key_spaces(AtCommit(engine, number, lambda _: None, dies=True), backup, command=command)
            claim = read_claim(engine, space_claim("a"))
            assert claim is not None
            assert claim.command == words
