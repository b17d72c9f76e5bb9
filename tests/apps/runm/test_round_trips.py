"""How often a call asks the store: what is read together, and that a guess that went wrong changes no answer."""

from collections.abc import Callable, Generator
from typing import NamedTuple
from uuid import UUID

import pytest

from keyplan.apps.runm.bounds import UNBOUNDED
from keyplan.apps.runm.definitions import set_definition
from keyplan.apps.runm.deployment import Deployment
from keyplan.apps.runm.read_ahead import Scope
from keyplan.apps.runm.records import ObjectDefinition, PropertyPermission, PropertyPermissions
from keyplan.apps.runm.session import Caller
from keyplan.store import Store
from tests.apps.runm.client import I1, I2, PROJECT, SW, WEST, refused
from tests.apps.runm.conftest import Served, served
from tests.apps.runm.counting import CountingEngine

BY_NAME = {**SW, "partition": "us-west.example.com"}
IMAGE = {"partition": WEST, "object_type": "runm.image", "project": PROJECT}
IMAGES = {"object_type_filter": {"code_filter": {"code": "runm.image"}}}
HIDING = (PropertyPermissions("secret", (PropertyPermission(permission=0),)),)


class Counted(NamedTuple):
    """A service whose store counts."""

    running: Served
    engine: CountingEngine

    def trips(self, call: Callable[[], object]) -> tuple[int, int]:
        """How many reads and commits a call makes."""
        self.engine.counts.clear()
        call()
        return self.engine.counts["read"], self.engine.counts["commit"]


@pytest.fixture
def counted(lmdb_store: Store) -> Generator[Counted, None, None]:
    """Two partitions, two images in one of them, and nothing that was not asked for once before."""
    engine = CountingEngine(lmdb_store.engine)
    with Store(engine) as store, served(store) as running:
        running.with_partitions()
        secret = [{"key": "secret", "value": "s"}, {"key": "os", "value": "linux"}]
        for uuid, name in ((I1, "one"), (I2, "two")):
            running.client.object_create(BY_NAME, object={**IMAGE, "uuid": uuid, "name": name, "properties": secret})
            running.client.object_get_by_uuid(BY_NAME, uuid=uuid)
        yield Counted(running, engine)


@pytest.mark.parametrize("session", [SW, BY_NAME])
def test_a_get_by_uuid_is_one_read(counted: Counted, session: dict[str, str]) -> None:
    assert counted.trips(lambda: counted.running.client.object_get_by_uuid(session, uuid=I1)) == (1, 0)


def test_a_get_by_name_is_two_reads_and_a_creation_one_commit_behind_the_first(counted: Counted) -> None:
    client = counted.running.client
    named = {"object_type_code": "runm.image", "name": "one"}
    assert counted.trips(lambda: client.object_get_by_name(BY_NAME, **named)) == (2, 0)
    made = {**IMAGE, "properties": [{"key": "a", "value": "b"}], "tags": ["t"]}
    another = {**BY_NAME, "user": "another"}
    assert counted.trips(lambda: client.object_create(another, object={**made, "name": "three"})) == (1, 1)
    assert counted.trips(lambda: client.object_create(another, object={**made, "name": "four"})) == (0, 1)


def test_a_search_by_property_reads_the_place_the_index_and_the_objects(counted: Counted) -> None:
    given = {**IMAGES, "property_filter": {"require_items": [{"key": "os", "value": "linux"}]}}
    assert counted.trips(lambda: counted.running.client.object_find(BY_NAME, any=[given])) == (3, 0)


def test_many_objects_are_deleted_without_a_read_for_each(counted: Counted) -> None:
    client = counted.running.client
    made = [client.object_create(SW, object={**IMAGE, "name": f"n{number}"}).object.uuid for number in range(40)]
    reads, commits = counted.trips(lambda: client.object_delete_by_uuids(SW, uuids=made))
    assert (reads <= 6, commits) == (True, 1)


def test_what_others_change_meanwhile_is_seen_at_once(counted: Counted) -> None:
    """Another server on the store sets, replaces and removes the definition that this one has read before."""
    running = counted.running
    other = Deployment(running.store)
    scope = Scope(None, "runm.image")
    caller = Caller("admin", PROJECT, UUID(WEST), frozenset(), UNBOUNDED)

    def seen() -> list[str]:
        got = running.client.object_get_by_uuid(BY_NAME, uuid=I1)
        (found,) = running.client.object_find(BY_NAME, any=[{**IMAGES, "name_filter": {"name": "one"}}])
        assert got == found
        return [one.key for one in got.properties]

    assert seen() == ["secret", "os"]
    set_definition(other, caller, scope, "", _definition(HIDING))
    assert seen() == ["os"]
    assert seen() == ["os"]
    set_definition(other, caller, scope, "3" * 32, _definition(()))
    assert seen() == ["secret", "os"]
    set_definition(other, caller, scope._replace(partition=UUID(WEST)), "", _definition(HIDING))
    assert seen() == ["os"]


def test_a_partition_that_took_a_remembered_name_is_the_sessions_own(counted: Counted) -> None:
    """A name is only a hint: the pointer that is read decides."""
    running, client = counted.running, counted.running.client
    running.deployment.runm.partitions.delete(UUID(WEST))
    with refused("FAILED_PRECONDITION", "Unknown partition 'us-west.example.com' specified in session"):
        client.object_get_by_uuid(BY_NAME, uuid=I1)
    client.partition_create(partition={"uuid": "9" * 32, "name": "us-west.example.com"})
    with refused("NOT_FOUND"):
        client.object_get_by_uuid(BY_NAME, uuid=I1)


def _definition(permissions: tuple[PropertyPermissions, ...]) -> ObjectDefinition:
    return ObjectDefinition(UUID(int=0), "{}", permissions)
