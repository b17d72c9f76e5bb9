"""Plain restores and copies by a raw prefix: what is registered to somebody is not written to."""

from pathlib import Path

import pytest

import keyplan
from keyplan.engine import Commit, Engine, MemoryEngine, Put
from keyplan.errors import CorruptionError, InvalidInputError, PrefixConflictError, PrefixInUseError
from keyplan.keyspace import KeySpaces
from keyplan.maintenance import copy_store, prepare_index, restore_store
from keyplan.maintenance.claims import prefix_claim, read_claim
from keyplan.store import IndexStates, Store
from tests.maintenance.backups import content_of, file_of, section_file, write_backup
from tests.maintenance.layouts import Site
from tests.maintenance.test_beside_transfers import AtCommit


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return file_of(tmp_path / "plain.kpb", section_file({b"a": b"1"}))


def registered(engine: Engine) -> KeySpaces:
    """orders at 01, empty; /bank/ with a key."""
    registry = KeySpaces(engine)
    registry.create("orders", "shop", prefix="01")
    registry.create("bank", "bank", prefix=b"/bank/".hex(), allow_legacy_prefix=True)
    engine.commit(Commit((), (Put(b"/bank/1", b"x"),)))
    return registry


REFUSED = {
    b"\x01": PrefixInUseError,
    b"/bank/": PrefixInUseError,
    b"/": PrefixConflictError,
    b"/bank/sub/": PrefixConflictError,
    b"\x01x": PrefixConflictError,
    b"\x00": InvalidInputError,
    b"\x00kp": InvalidInputError,
    b"\x00kp\x01orders": InvalidInputError,
    b"": InvalidInputError,
}


@pytest.mark.parametrize("prefix", REFUSED)
@pytest.mark.parametrize("is_overwriting", [False, True])
def test_a_plain_restore_leaves_key_spaces_and_their_registry_alone(
    file: Path,
    prefix: bytes,
    is_overwriting: bool,  # noqa: FBT001  # Why: a parameter of the test.
) -> None:
    with MemoryEngine() as engine:
        registry = registered(engine)
        before = content_of(engine)
        with pytest.raises(REFUSED[prefix]):
            restore_store(engine, file, prefix=prefix, is_overwriting=is_overwriting)
        assert content_of(engine) == before
        assert registry.diagnose().is_sound


@pytest.mark.parametrize("prefix", [b"\x01", b"/", b"\x00kp"])
def test_a_copy_leaves_key_spaces_alone(prefix: bytes) -> None:
    with MemoryEngine() as source, MemoryEngine() as engine:
        source.commit(Commit((), (Put(prefix + b"a", b"1"),)))
        registered(engine)
        before = content_of(engine)
        with pytest.raises(REFUSED[prefix]):
            copy_store(source, engine, source_name="s", prefix=prefix, is_overwriting=True)
        assert content_of(engine) == before


def test_work_that_gives_way_to_a_key_space_leaves_the_claim_of_the_part_that_stands_there(
    file: Path, tmp_path: Path
) -> None:
    with MemoryEngine() as engine, MemoryEngine() as source:
        source.commit(Commit((), (Put(b"/bank/2", b"y"),)))
        other = write_backup(source, tmp_path / "other.kpb", prefix=b"/bank/")
        with pytest.raises(KeyboardInterrupt):
            restore_store(AtCommit(engine, 3, lambda _: None, dies=True), other)
        claim = read_claim(engine, prefix_claim(b"/bank/"))
        assert claim is not None

        def made(inner: Engine) -> None:
            KeySpaces(inner).create("bank", "bank", prefix=b"/bank/sub/".hex(), allow_legacy_prefix=True)

        with pytest.raises(PrefixConflictError):
            restore_store(AtCommit(engine, 1, made), file, prefix=b"/bank/", is_overwriting=True)
        assert read_claim(engine, prefix_claim(b"/bank/")) == claim


@pytest.mark.parametrize("prefix", [b"/bank/", b"/bank/" + b"x" * 600])
def test_a_claim_that_cannot_be_read_is_told_with_its_key(file: Path, prefix: bytes) -> None:
    with MemoryEngine() as engine:
        raw_key = prefix_claim(b"/bank/") + prefix.removeprefix(b"/bank/")
        engine.commit(Commit((), (Put(raw_key, b"{brok"),)))
        with pytest.raises(CorruptionError) as raised:
            restore_store(engine, file, prefix=b"/bank/deeper/" if prefix == b"/bank/" else b"/bank/")
        assert raised.value.facts["raw_key"] == raw_key.hex()


def test_a_prefix_of_nobody_takes_a_restore(file: Path) -> None:
    with MemoryEngine() as engine:
        registered(engine)
        restore_store(engine, file, prefix=b"/site/")
        assert content_of(engine)[b"/site/a"] == b"1"


def test_a_whole_store_with_key_spaces_is_brought_into_an_empty_one(tmp_path: Path) -> None:
    with MemoryEngine() as source, MemoryEngine() as engine:
        registered(source)
        copy_store(source, engine, source_name="s")
        assert KeySpaces(engine).get("bank").prefix == b"/bank/".hex()


def test_a_key_space_that_is_made_meanwhile_gets_no_states_of_indexes(tmp_path: Path) -> None:
    with keyplan.open("memory:") as store:
        prepare_index(store, Site.bound(), "by_serial")
        file = write_backup(store.engine, tmp_path / "plain.kpb", prefix=b"/site/")
    with MemoryEngine() as engine:

        def makes(inner: Engine) -> None:
            KeySpaces(inner).create("site", "app", prefix=b"/site/".hex(), allow_legacy_prefix=True)

        with pytest.raises(PrefixInUseError):
            restore_store(AtCommit(engine, 2, makes), file)  # the first writes the claim
        assert not list(IndexStates(Store(engine)).states.list())
