"""One damaged record hides no other: an entry of each item is damaged in turn, and every list and command is asked."""

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final
from uuid import UUID

import pytest

from keyplan.apps.runm import Partition, Runm
from keyplan.apps.runm.bounds import UNBOUNDED
from keyplan.apps.runm.definitions import Scope, definition_at, remove, set_definition
from keyplan.apps.runm.deployment import PROVIDER, Deployment
from keyplan.apps.runm.layout import RunmBeside
from keyplan.apps.runm.migrate import migrate
from keyplan.apps.runm.partition_removal import plan_removal, remove_partition, rename_partition
from keyplan.apps.runm.records import ObjectDefinition
from keyplan.apps.runm.server import Listening, serving
from keyplan.apps.runm.session import Caller
from keyplan.apps.runm.start import ensure_started
from keyplan.apps.runm.verify import verify
from keyplan.engine import ALL_KEYS, Commit, Entry, MemoryEngine, Put
from keyplan.errors import CorruptionError
from keyplan.layout import Meaning, shown_key
from keyplan.store import Store
from tests.apps.runm.client import Client
from tests.apps.runm.partitions import DOOMED, KEPT, filled_partition

LAYOUTS: Final = (Runm.bound(prefix=""), RunmBeside.bound(prefix=""))
JUNK: Final = b"\xff"

SESSION: Final = {"user": "admin", "project": "p", "partition": KEPT.hex}
CALLER: Final = Caller("u", "p", KEPT, frozenset(), UNBOUNDED)

_PROVIDERS: Final = (PROVIDER, "runm.compute")

HANGS: Final[dict[str, Callable[[Any], tuple[str, ...]]]] = {
    "partitions": lambda key: (key.hex,),
    "partitions_by_name": lambda key: (key,),
    "object_types": lambda key: (key,),
    "sub_types": lambda key: (key.sub_type,),
    "definitions": lambda _: _PROVIDERS,
    "type_definitions": lambda _: _PROVIDERS,
    "partition_type_definitions": lambda _: _PROVIDERS,
    "partition_sub_type_definitions": lambda _: _PROVIDERS,
    "definition_versions": lambda key: (f"number: {key.number}",),
    "objects": lambda key: (key.hex,),
    "providers": lambda key: (key.hex,),
    "deleted": lambda key: (key.hex,),
}
"""Words of which one stands in every answer that hangs on an entry of the item. Nothing hangs on an entry of an index."""

NEVER_STORED: Final = {"sub_type_definitions", "bootstrap_token"}
"""Tables that the scene leaves empty: pointers like the others, and one key that no list reads."""


@pytest.fixture
def deployment() -> Deployment:
    made = Deployment(Store(MemoryEngine()))
    ensure_started(made)
    filled_partition(made, made.store.lease(3_600, keep_alive=False))
    return made


def entries_of(deployment: Deployment) -> Iterator[tuple[Meaning, Entry]]:
    with deployment.store.engine.snapshot() as snapshot:
        for entry in list(snapshot.scan(ALL_KEYS)):
            for layout in LAYOUTS:
                if entry.key.startswith(layout.root):
                    yield layout.meaning(entry.key), entry


def one_of_each_item(deployment: Deployment) -> list[tuple[Meaning, Entry]]:
    """But the session's own partition, without which it is nobody's."""
    last = {meaning.item: (meaning, entry) for meaning, entry in entries_of(deployment) if meaning.key != KEPT}
    return list(last.values())


def write(deployment: Deployment, entry: Entry, value: bytes) -> None:
    deployment.store.engine.commit(Commit((), (Put(entry.key, value, lease=entry.lease),)))


def answers(client: Client, api: Client) -> Iterator[tuple[str, Callable[[], list[str]]]]:
    """Every call that lists, each by all the ways that it has to what it lists."""
    prefix = {"use_prefix": True}
    asked: list[tuple[Client, str, dict[str, Any]]] = [
        (client, "partition_find", {}),
        (client, "partition_find", {"any": [{"name_filter": {"name": "k", **prefix}}]}),
        (client, "partition_find", {"any": [{"uuid_filter": {"uuid": "0", **prefix}}]}),
        (client, "object_type_find", {}),
        (client, "provider_type_find", {}),
        (client, "object_find", {}),
        (client, "object_find", {"options": {"limit": 3}}),
        (client, "object_find", {"any": [{"name_filter": {"name": "n", **prefix}}]}),
        (client, "object_find", {"any": [{"partition_filter": {"uuids": [KEPT.hex, DOOMED.hex]}}]}),
        (client, "object_find", {"any": [{"tag_filter": {"require": ["t"]}}]}),
        (client, "object_deleted_find", {}),
        (client, "definition_history", {"scope": {"partition_uuid": KEPT.hex, "object_type_code": PROVIDER}}),
        (api, "partition_list", {}),
        (api, "provider_type_list", {}),
        (api, "provider_list", {}),
    ]
    for one, name, fields in asked:
        yield f"{name} {fields}", partial(texts_of, getattr(one, name), fields)


def texts_of(call: Callable[..., list[Any]], fields: dict[str, Any]) -> list[str]:
    """What a call lists, without what a write counts."""
    return [re.sub(r"generation: \d+\n", "", str(one)) for one in call(SESSION, **fields)]


def test_one_damaged_entry_takes_nothing_from_a_list_but_what_hangs_on_it(deployment: Deployment) -> None:
    seen = set()
    with serving(deployment, Listening(("127.0.0.1:0",))) as running:
        client, api = Client(running.addresses[0]), Client(running.addresses[0], "RunmAPI")
        asked = list(answers(client, api))
        whole = {name: set(ask()) for name, ask in asked}
        assert all(whole.values())
        for meaning, entry in one_of_each_item(deployment):
            assert meaning.item is not None
            seen.add(meaning.item)
            write(deployment, entry, JUNK)
            words = HANGS.get(meaning.item, lambda _: ())(meaning.key)
            for name, ask in asked:
                # Why not equal: a page goes on behind what cannot be read, and so shows what was on the next one.
                lost = whole[name] - set(ask())
                assert [one for one in lost if not any(word in one for word in words)] == [], (entry.key, name)
            write(deployment, entry, entry.value)
        client.close()
        api.close()
    declared = {name for layout in LAYOUTS for name in (*layout.tables, *layout.indexes)}
    assert seen == declared - NEVER_STORED


def test_one_damaged_record_ends_no_command_and_is_named_by_verify(deployment: Deployment) -> None:
    store = deployment.store
    for meaning, entry in entries_of(deployment):
        if meaning.item not in {name for layout in LAYOUTS for name in layout.tables}:
            continue
        write(deployment, entry, JUNK)
        shown = shown_key(entry.key)
        assert ("damaged-record", shown) in {(one.code, one.key) for one in verify(store, "")}
        list(migrate(store, "", is_dry_run=True))
        for partition in (KEPT, DOOMED):
            assert plan_removal(store, "", partition.hex).partition.uuid == partition, shown
        ensure_started(Deployment(store))
        write(deployment, entry, entry.value)


@pytest.mark.parametrize("named", [KEPT.hex, "kept"])
def test_a_damaged_partition_gets_a_record_again_by_a_rename_and_goes_by_a_removal(
    deployment: Deployment, named: str
) -> None:
    store, keys = deployment.store, deployment.bound.table("partitions").keys
    store.engine.commit(Commit((), (Put(keys.encode(KEPT), JUNK),)))
    assert plan_removal(store, "", named).partition == Partition(KEPT, "kept")
    assert rename_partition(store, "", named, "again") == Partition(KEPT, "again")
    assert deployment.runm.partitions.require(KEPT) == Partition(KEPT, "again")
    assert [key for key, _ in deployment.runm.partitions_by_name.list()] == [KEPT, DOOMED]
    assert deployment.runm.partitions_by_name.key_of("kept") is None
    store.engine.commit(Commit((), (Put(keys.encode(KEPT), JUNK),)))
    removal = remove_partition(store, "", "again" if named == "kept" else named)
    assert (removal.partition, removal.objects) == (Partition(KEPT, "again"), {"runm.image": 3, PROVIDER: 1})
    assert [one for one in verify(store, "") if one.code != "wrong-project"] == []


@pytest.mark.parametrize("table", ["partition_type_definitions", "definitions"])
def test_a_damaged_definition_is_set_anew_or_removed(deployment: Deployment, table: str) -> None:
    scope = Scope(KEPT, PROVIDER)
    anew = ObjectDefinition(UUID(int=0), '{"type": "object"}')
    (key,) = [
        entry.key
        for meaning, entry in entries_of(deployment)
        if meaning.item == table and (meaning.key == UUID(int=800) or meaning.key == (KEPT, PROVIDER))
    ]
    for act in (
        lambda: set_definition(deployment, CALLER, scope, "", anew),
        lambda: remove(deployment, CALLER, scope),
    ):
        deployment.store.engine.commit(Commit((), (Put(key, JUNK),)))
        with pytest.raises(CorruptionError):
            definition_at(deployment.runm, scope)
        act()
        definition_at(deployment.runm, scope)
    assert definition_at(deployment.runm, scope) is None
