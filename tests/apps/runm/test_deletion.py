"""Deleted objects that can be restored for a while: in the commit of the delete, on a lease, for those who could see them."""

from collections.abc import Generator
from typing import Any
from uuid import UUID

import pytest

from keyplan.apps.runm.deployment import Rulings
from keyplan.apps.runm.verify import verify
from keyplan.store import Store
from keyplan.testing.engine_suite import eventually
from tests.apps.runm.client import EAST, GROUP, I1, PROJECT, SW, WEST, refused
from tests.apps.runm.conftest import Served, served

IMAGE: dict[str, Any] = {
    "partition": WEST,
    "object_type": "runm.image",
    "project": PROJECT,
    "uuid": I1,
    "name": "rhel7.5.2",
    "properties": [{"key": "architecture", "value": "x86_64"}, {"key": "os", "value": "linux"}],
    "tags": ["unicorn"],
}


@pytest.fixture
def keeping(store: Store) -> Generator[Served, None, None]:
    """A service that keeps what is deleted for a minute."""
    with served(store, Rulings(deleted_kept_seconds=60)) as running:
        yield running.with_partitions()


def deleted_uuids(running: Served, session: dict[str, str] = SW, **fields: Any) -> list[str]:
    return [one.object.uuid for one in running.client.object_deleted_find(session, **fields)]


def test_a_deleted_object_is_gone_from_the_documents_keys_and_comes_back_as_it_was(keeping: Served) -> None:
    client = keeping.client
    empty = keeping.dump()
    client.object_create(SW, object=IMAGE)
    whole = keeping.dump()
    assert client.object_delete_by_uuids(SW, uuids=[I1]).num_deleted == 1
    assert keeping.dump() == empty
    assert client.object_find(SW, any=[{"tag_filter": {"require": ["unicorn"]}}]) == []
    with refused("NOT_FOUND"):
        client.object_get_by_uuid(SW, uuid=I1)
    (kept,) = client.object_deleted_find(SW)
    assert (kept.object.name, kept.user, kept.object.generation) == ("rhel7.5.2", "admin", 0)
    assert kept.deleted_at > 1_700_000_000
    assert client.object_restore(SW, uuid=I1).object.generation == 1
    assert keeping.dump() == whole
    assert deleted_uuids(keeping) == []
    assert client.object_find(SW, any=[{"tag_filter": {"require": ["unicorn"]}}])[0].uuid == I1
    with refused("NOT_FOUND", "object could not be found."):
        client.object_restore(SW, uuid=I1)
    assert list(verify(keeping.store, "")) == []


def test_nothing_is_kept_unless_the_operator_says_so(west: Served) -> None:
    west.client.object_create(SW, object=IMAGE)
    west.client.object_delete_by_uuids(SW, uuids=[I1])
    assert deleted_uuids(west) == []
    with refused("NOT_FOUND"):
        west.client.object_restore(SW, uuid=I1)


def test_a_name_or_uuid_that_was_taken_meanwhile_stays_with_its_new_object(keeping: Served) -> None:
    client = keeping.client
    client.object_create(SW, object=IMAGE)
    client.object_delete_by_uuids(SW, uuids=[I1])
    client.object_create(SW, object={**IMAGE, "uuid": GROUP})
    with refused("ALREADY_EXISTS"):
        client.object_restore(SW, uuid=I1)
    client.object_create(SW, object={**IMAGE, "name": "other"})
    with refused("ALREADY_EXISTS"):
        client.object_restore(SW, uuid=I1)
    assert client.object_get_by_uuid(SW, uuid=I1).name == "other"


@pytest.mark.parametrize("place", [{"project": "p2"}, {"partition": EAST}])
def test_what_another_project_deleted_is_nobodys_to_see_or_restore(keeping: Served, place: dict[str, str]) -> None:
    client = keeping.client
    client.object_create(SW, object=IMAGE)
    client.object_delete_by_uuids(SW, uuids=[I1])
    assert deleted_uuids(keeping, {**SW, **place}) == []
    with refused("NOT_FOUND", "object could not be found."):
        client.object_restore({**SW, **place}, uuid=I1)
    assert deleted_uuids(keeping) == [I1]


def test_a_provider_comes_back_with_its_type(keeping: Served) -> None:
    payload = f"{{partition: {WEST}, provider_type: runm.compute, name: n, uuid: {GROUP}}}".encode()
    keeping.api.provider_create(SW, payload=payload)
    keeping.api.provider_delete(SW, any=[{"primary_filter": {"search": "n"}}])
    assert keeping.api.provider_list(SW) == []
    keeping.client.object_restore(SW, uuid=GROUP)
    (found,) = keeping.api.provider_list(SW)
    assert found.provider_type.code == "runm.compute"


def test_a_hidden_property_is_kept_and_not_shown(keeping: Served) -> None:
    client = keeping.client
    client.object_create(SW, object=IMAGE)
    hidden = {"schema": "{}", "property_permissions": [{"key": "os", "permissions": [{"permission": 0}]}]}
    client.definition_set(SW, scope={"object_type_code": "runm.image"}, object_definition=hidden)
    client.object_delete_by_uuids(SW, uuids=[I1])
    (kept,) = client.object_deleted_find(SW)
    assert [one.key for one in kept.object.properties] == ["architecture"]
    assert [one.key for one in client.object_restore(SW, uuid=I1).object.properties] == ["architecture"]
    stored = keeping.deployment.runm.objects.require(UUID(I1))
    assert [one.key for one in stored.properties] == ["architecture", "os"]


def test_more_deleted_objects_than_fit_a_commit_are_kept_and_listed_in_pages(keeping: Served) -> None:
    client = keeping.client
    made = [
        client.object_create(SW, object={**IMAGE, "uuid": f"{number:032x}", "name": f"n{number}"}).object.uuid
        for number in range(1, 31)
    ]
    assert client.object_delete_by_uuids(SW, uuids=made).num_deleted == 30
    pages = [deleted_uuids(keeping, options={"limit": 20}), deleted_uuids(keeping, options={"marker": made[19]})]
    assert pages == [made[:20], made[20:]]
    with refused("INVALID_ARGUMENT"):
        deleted_uuids(keeping, options={"sort_fields": [{"field": "uuid", "direction": 1}]})


def test_what_is_kept_is_gone_when_its_time_is_over(lmdb_store: Store) -> None:
    with served(lmdb_store, Rulings(deleted_kept_seconds=1)) as running:
        running.with_partitions()
        running.client.object_create(SW, object=IMAGE)
        running.client.object_delete_by_uuids(SW, uuids=[I1])
        eventually(lambda: deleted_uuids(running) == [])
        with refused("NOT_FOUND"):
            running.client.object_restore(SW, uuid=I1)
