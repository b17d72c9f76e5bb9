"""The switches of a registry come back into the one that the restore has made, and into no other."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from keyplan.engine import Engine, MemoryEngine
from keyplan.keyspace import KeySpaces
from keyplan.maintenance import OnConflict, RestorePolicy, restore_key_spaces
from tests.keyspace.stores import put_raw
from tests.maintenance.registry_lives import backed_up
from tests.maintenance.test_beside_transfers import AtCommit


@pytest.fixture
def source() -> Iterator[Engine]:
    with MemoryEngine() as engine:
        registry = KeySpaces(engine)
        registry.configure({"protected": ["ours"]})
        registry.create("orders", "shop")
        yield engine


def put_in_the_way(engine: Engine) -> None:
    for number in range(1, 10):
        put_raw(engine, bytes([number]) + b"in the way")


def test_a_registry_that_somebody_makes_meanwhile_keeps_its_switches(source: Engine, tmp_path: Path) -> None:
    path = backed_up(source, tmp_path / "all.kpb")
    with MemoryEngine() as engine:
        put_in_the_way(engine)

        def makes(inner: Engine) -> None:
            KeySpaces(inner).configure({"protected": ["theirs"], "reuse-cooldown-seconds": 7})

        done = restore_key_spaces(AtCommit(engine, 1, makes), path, policy=RestorePolicy(OnConflict.RELOCATE))
        switches = KeySpaces(engine).configuration()
        assert (switches.protected, switches.reuse_cooldown_seconds) == (["theirs"], 7)
        assert done.is_registry_kept


def test_switches_that_somebody_sets_meanwhile_are_kept(source: Engine, tmp_path: Path) -> None:
    path = backed_up(source, tmp_path / "all.kpb")
    with MemoryEngine() as engine:
        put_in_the_way(engine)

        def sets(inner: Engine) -> None:
            KeySpaces(inner).configure({"protected": ["theirs"]})

        done = restore_key_spaces(AtCommit(engine, 3, sets), path, policy=RestorePolicy(OnConflict.RELOCATE))
        assert KeySpaces(engine).configuration().protected == ["theirs"]
        assert done.is_registry_kept
