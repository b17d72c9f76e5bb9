"""A key space that a backup knows as deleted, beside a registry that has lost the record of a later one of its name."""

from pathlib import Path

import pytest

from keyplan.engine import Commit, Delete, Engine, open_engine
from keyplan.errors import KeyplanError
from keyplan.files import new_file
from keyplan.keyspace import KeySpaceRegistry, KeySpaces, Sweeper
from keyplan.maintenance import back_up_key_spaces, restore_key_spaces
from keyplan.store import Store

NO_WAITS = {"max-client-lease-seconds": 0, "reuse-cooldown-seconds": 0, "delete-grace-seconds": 0}


def deleted(registry: KeySpaces) -> None:
    registry.delete("a")
    Sweeper(registry).sweep("a")


def furnished(engine: Engine, generations: int) -> KeySpaces:
    """A registry in which "a" was made so often, and deleted in between."""
    registry = KeySpaces(engine)
    registry.configure(NO_WAITS)
    for generation in range(generations):
        if generation:
            deleted(registry)
        registry.create("a", "bank")
    return registry


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    """A backup of everything, in which "a" is a tombstone of generation 1."""
    with open_engine("memory:") as engine:
        deleted(furnished(engine, 1))
        path = tmp_path / "all.kpb"
        with new_file(path) as file:
            back_up_key_spaces(engine, file)
        return path


def test_a_lost_record_is_no_sign_that_nobody_has_had_the_name_since(backup: Path) -> None:
    with open_engine("memory:") as engine:
        furnished(engine, 3)
        registry = KeySpaceRegistry(Store(engine))
        fence = registry.fences.require("a")
        engine.commit(Commit((), (Delete(KeySpaceRegistry.bound().tables["records"].keys.encode("a")),)))
        with pytest.raises(KeyplanError) as caught:
            restore_key_spaces(engine, backup)
        assert registry.fences.require("a") == fence, str(caught.value)
