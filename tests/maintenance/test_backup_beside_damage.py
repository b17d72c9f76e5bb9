"""A backup of key spaces whose registry is damaged: everything else is in the file, and what is left out is told."""

import io
from pathlib import Path

import pytest

from keyplan.engine import Commit, Delete, Engine, MemoryEngine, Put
from keyplan.errors import CorruptionError, InvalidInputError, KeySpaceNotFoundError
from keyplan.files import new_file
from keyplan.keyspace import KeySpaces, open_key_space
from keyplan.keyspace.rows import key_of
from keyplan.layout import Only
from keyplan.maintenance import back_up_key_spaces, restore_key_spaces
from tests.keyspace.stores import Item, Shop

ENTRIES = {
    "records": "a",
    "quotas": "a",
    "header": Only(),
    "configuration": Only(),
    "holders": b"\x01",
    "fences": "a",
    "order": 1,
    "audit": 1,
    "audit_head": Only(),
}


def furnished(engine: Engine) -> None:
    registry = KeySpaces(engine)
    for name in ("a", "b", "c"):
        registry.create(name, "app")
        registry.set_quota(name, keys=100)
        with open_key_space(engine, name, "app", session_seconds=None) as store:
            Shop(store).items.put("1", Item(name))


@pytest.mark.parametrize("is_lost", [False, True])
@pytest.mark.parametrize("table", ENTRIES)
def test_one_damaged_entry_leaves_out_no_other_key_space(
    tmp_path: Path,
    table: str,
    is_lost: bool,  # noqa: FBT001  # Why: a parameter of the test.
) -> None:
    key = key_of(table, ENTRIES[table])
    with MemoryEngine() as engine, MemoryEngine() as target:
        furnished(engine)
        engine.commit(Commit((), (Delete(key) if is_lost else Put(key, b"{brok"),)))
        path = tmp_path / "all.kpb"
        with new_file(path) as file:
            report = back_up_key_spaces(engine, file)
        kept = [section.name for section in report.sections]
        assert kept == (["b", "c"] if table == "records" else ["a", "b", "c"])
        told = {"records": "key space a", "header": "header"} | ({} if is_lost else {"quotas": "quota of a"})
        assert [told[table] in problem for problem in report.damaged] == [True] if table in told else not report.damaged
        restore_key_spaces(target, path, names=kept)
        for name in kept:
            with open_key_space(target, name, "app", session_seconds=None) as store:
                assert Shop(store).items.get("1") == Item(name)
        assert KeySpaces(target).diagnose().is_sound


def test_all_of_it_is_refused_with_the_way_out(tmp_path: Path) -> None:
    with MemoryEngine() as engine, MemoryEngine() as target:
        furnished(engine)
        engine.commit(Commit((), (Put(key_of("records", "a"), b"{brok"),)))
        path = tmp_path / "all.kpb"
        with new_file(path) as file:
            back_up_key_spaces(engine, file)
        with pytest.raises(InvalidInputError, match="name the key spaces"):
            restore_key_spaces(target, path)


def test_the_key_space_that_is_asked_for_is_not_left_out() -> None:
    with MemoryEngine() as engine:
        furnished(engine)
        engine.commit(Commit((), (Put(key_of("records", "a"), b"{brok"),)))
        with pytest.raises(CorruptionError, match="key space a"):
            back_up_key_spaces(engine, io.BytesIO(), name="a")
        assert [section.name for section in back_up_key_spaces(engine, io.BytesIO(), name="b").sections] == ["b"]


def test_no_registry_is_no_damage() -> None:
    with MemoryEngine() as engine, pytest.raises(KeySpaceNotFoundError, match="no registry"):
        back_up_key_spaces(engine, io.BytesIO())
