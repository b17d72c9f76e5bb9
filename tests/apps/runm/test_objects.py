"""The acceptance cases on objects over real gRPC, the store compared byte for byte."""

from collections.abc import Callable
from typing import Any

import pytest

from keyplan.engine import Commit, Delete, KeyRange, WrappedEngine
from keyplan.store import Store
from tests.apps.runm.client import EAST, GROUP, I1, I2, PROJECT, SW, WEST, refused
from tests.apps.runm.conftest import Served, served
from tests.apps.runm.golden import GOLDEN

IMAGE_1 = {
    "partition": WEST,
    "object_type": "runm.image",
    "project": PROJECT,
    "uuid": I1,
    "name": "rhel7.5.2",
    "properties": [{"key": "architecture", "value": "x86_64"}],
    "tags": ["unicorn"],
}
IMAGE_2 = {**IMAGE_1, "uuid": I2, "name": "debian-sid", "properties": [{"key": "architecture", "value": "arm64"}]}
ROW = {
    "partition": WEST,
    "object_type": "runm.provider_group",
    "uuid": GROUP,
    "name": "us-east1-row1-rack2",
    "tags": ["rainbow"],
}
W = f"partitions/{WEST}/"


def test_a_first_start_leaves_eight_keys(empty: Served) -> None:
    dump = empty.dump()
    assert len(dump) == 8
    for name in ("H3", "H4", "H5", "H6", "H7", "H8"):
        key, value = GOLDEN[name]
        assert dump[key] == value
    pointer = dump["definitions/by-type/runm.provider/default"].decode()
    assert f"definitions/by-uuid/{pointer}" in dump


def test_the_documents_scenario_leaves_its_twenty_three_keys(west: Served) -> None:
    for given in (IMAGE_1, IMAGE_2, ROW):
        west.client.object_create(SW, object=given)
    dump = west.dump()
    assert len(dump) == 23
    for name in ("H1", "H2", "H9", "H10", "H11"):
        key, value = GOLDEN[name]
        assert dump[key] == value
    images = f"{W}objects/by-type/runm.image/by-project/{PROJECT}/by-name/"
    assert dump[f"{images}debian-sid"] == I2.encode()
    assert dump[f"{images}rhel7.5.2"] == I1.encode()
    assert dump[f"{W}objects/by-type/runm.provider_group/by-name/us-east1-row1-rack2"] == GROUP.encode()
    assert dump[f"{W}properties/by-type/runm.image/architecture/arm64/{I2}"] == b""
    assert dump[f"{W}properties/by-type/runm.image/architecture/x86_64/{I1}"] == b""
    assert dump[f"{W}tags/rainbow/{GROUP}"] == b""
    assert dump[f"{W}tags/unicorn/{I1}"] == dump[f"{W}tags/unicorn/{I2}"] == b""


def test_a_name_that_is_taken_is_refused(west: Served) -> None:
    west.client.object_create(SW, object=IMAGE_1)
    before = west.dump()
    with refused("ALREADY_EXISTS"):
        west.client.object_create(SW, object={**IMAGE_2, "name": "rhel7.5.2"})
    assert west.dump() == before


def test_a_partition_scoped_object_has_no_project_and_no_property_key(west: Served) -> None:
    west.client.object_create(SW, object=ROW)
    keys = west.dump().keys()
    assert not any("by-project" in key or "properties/" in key for key in keys)


@pytest.mark.parametrize("uuid", [I1, "54B8D8D7-E24C-4379-9BBF-70C16E921E52"])
def test_a_uuid_is_used_once_however_it_is_spelled(west: Served, uuid: str) -> None:
    west.client.object_create(SW, object=IMAGE_1)
    before = west.dump()
    with refused("ALREADY_EXISTS", "object already exists."):
        west.client.object_create(SW, object={**IMAGE_1, "uuid": uuid, "name": "another"})
    assert west.dump() == before


def test_a_name_is_free_in_another_project_partition_and_type(west: Served) -> None:
    west.client.object_create(SW, object=IMAGE_1)
    for place in ({"project": "p2"}, {"partition": EAST}, {"object_type": "runm.machine"}):
        west.client.object_create(SW, object={**IMAGE_1, **place, "uuid": ""})


REFUSED: list[tuple[dict[str, Any], str, str | None]] = [
    ({"object_type": ""}, "FAILED_PRECONDITION", "object type is required."),
    ({"partition": ""}, "FAILED_PRECONDITION", "partition is required."),
    ({"partition": "us-west.example.com"}, "FAILED_PRECONDITION", "Partition us-west.example.com not found"),
    ({"partition": "1" * 32}, "FAILED_PRECONDITION", f"Partition {'1' * 32} not found"),
    ({"object_type": "runm.none"}, "FAILED_PRECONDITION", "Object type runm.none not found"),
    ({"name": ""}, "FAILED_PRECONDITION", "name is required."),
    ({"project": ""}, "FAILED_PRECONDITION", "project is required."),
    ({"object_type": "runm.provider_group"}, "INVALID_ARGUMENT", None),
    ({"uuid": "Not-A-UUID"}, "INVALID_ARGUMENT", None),
    ({"properties": [{"key": "a", "value": "1"}, {"key": "a", "value": "2"}]}, "INVALID_ARGUMENT", None),
    ({"properties": [{"key": "", "value": "1"}]}, "INVALID_ARGUMENT", None),
    ({"properties": [{"key": "a", "value": ""}]}, "INVALID_ARGUMENT", None),
    ({"tags": ["t" * 300]}, "INVALID_ARGUMENT", None),
    ({"tags": [""]}, "INVALID_ARGUMENT", None),
    ({"name": "/" * 86}, "INVALID_ARGUMENT", None),  # 258 bytes once escaped
    ({"properties": [{"key": "k" * 200, "value": "v" * 255}]}, "INVALID_ARGUMENT", None),  # a key of more than 511
    ({"tags": [f"t{number}" for number in range(60)]}, "INVALID_ARGUMENT", None),  # 61 with the property
]


@pytest.mark.parametrize(("change", "status", "text"), REFUSED)
def test_an_object_that_cannot_be_is_refused_before_anything_is_written(
    west: Served, change: dict[str, Any], status: str, text: str | None
) -> None:
    before = west.dump()
    with refused(status, text):
        west.client.object_create(SW, object={**IMAGE_1, **change})
    with refused("FAILED_PRECONDITION", "object type is required."):
        west.client.object_create(SW)
    assert west.dump() == before


def test_an_object_is_seen_from_its_own_partition_and_project(west: Served) -> None:
    for given in (IMAGE_1, ROW):
        west.client.object_create(SW, object=given)
    get = west.client.object_get_by_uuid
    assert get(SW, uuid=I1) == get(SW, uuid="54B8D8D7-E24C-4379-9BBF-70C16E921E52")
    assert get({**SW, "project": "p2"}, uuid=GROUP).name == "us-east1-row1-rack2"
    for session, uuid in (
        ({**SW, "project": "p2"}, I1),
        ({**SW, "partition": EAST}, I1),
        ({**SW, "partition": EAST}, GROUP),
        (SW, "1" * 32),
    ):
        with refused("NOT_FOUND", "object could not be found."):
            get(session, uuid=uuid)
    with refused("FAILED_PRECONDITION", "UUID is required."):
        get(SW)


def test_a_project_that_is_a_uuid_is_one_project_however_it_is_spelled(west: Served) -> None:
    west.client.object_create(SW, object={**IMAGE_1, "project": "EFF88356-5999-408D-BEC3-EB5070D5ECF5"})
    assert west.dump()[GOLDEN["H9"][0]] == GOLDEN["H9"][1]
    session = {**SW, "project": "EFF88356-5999-408D-BEC3-EB5070D5ECF5"}
    assert west.client.object_get_by_uuid(session, uuid=I1).name == "rhel7.5.2"


def test_an_object_is_got_by_name_in_the_sessions_place(west: Served) -> None:
    for given in (IMAGE_1, ROW):
        west.client.object_create(SW, object=given)
    get = west.client.object_get_by_name
    assert get(SW, object_type_code="runm.image", name="rhel7.5.2").uuid == I1
    row = {"object_type_code": "runm.provider_group", "name": "us-east1-row1-rack2"}
    assert get({**SW, "project": "p2"}, **row).uuid == GROUP
    for place in ({"project": "p2"}, {"partition_uuid": EAST}):
        with refused("NOT_FOUND", "object could not be found."):
            get(SW, object_type_code="runm.image", name="rhel7.5.2", **place)
    with refused("FAILED_PRECONDITION", "name is required."):
        get(SW, object_type_code="runm.image")
    with refused("FAILED_PRECONDITION", "object type code is required."):
        get(SW, name="x")
    with refused("FAILED_PRECONDITION", "Object type x not found"):
        get(SW, name="x", object_type_code="x")


# ---- delete ------------------------------------------------------------------------------------------------------------


def test_a_delete_removes_the_record_and_every_entry(west: Served) -> None:
    before = west.dump()
    for given in (IMAGE_1, IMAGE_2, ROW):
        west.client.object_create(SW, object=given)
    uuids = [I1, "60B53EDD-1676-4F6A-BC08-1DDB0A73E69C", I1, GROUP, "1" * 32]
    created = west.dump()
    with refused("INVALID_ARGUMENT", "UUID is not a UUID."):  # D7: validated everywhere
        west.client.object_delete_by_uuids(SW, uuids=[*uuids, "no uuid"])
    assert west.dump() == created
    assert west.client.object_delete_by_uuids(SW, uuids=uuids).num_deleted == 3
    assert west.dump() == before
    assert west.client.object_delete_by_uuids(SW, uuids=uuids).SerializeToString() == b""
    with refused("FAILED_PRECONDITION", "at least one UUID is required."):
        west.client.object_delete_by_uuids(SW)


@pytest.mark.parametrize("place", [{"project": "p2"}, {"partition": EAST}])
def test_a_delete_reaches_what_the_caller_can_see_and_nothing_else(west: Served, place: dict[str, str]) -> None:
    for given in (IMAGE_1, IMAGE_2):
        west.client.object_create(SW, object=given)
    before = west.dump()
    assert west.client.object_delete_by_uuids({**SW, **place}, uuids=[I1, I2]).num_deleted == 0
    assert west.dump() == before


def test_more_objects_than_fit_a_commit_are_deleted(west: Served) -> None:
    before = west.dump()
    many = [
        {**IMAGE_1, "uuid": "", "name": f"n{number}", "tags": [f"t{one}" for one in range(20)]} for number in range(12)
    ]
    uuids = [west.client.object_create(SW, object=given).object.uuid for given in many]
    assert west.client.object_delete_by_uuids(SW, uuids=uuids).num_deleted == 12
    assert west.dump() == before


class PausingEngine(WrappedEngine):
    """Calls `between` once, before a commit that deletes the record of an object."""

    between: Callable[[], None] | None = None

    def commit(self, commit: Commit) -> int:
        is_delete = any(isinstance(one, Delete) and one.key.endswith(I1.encode()) for one in commit.mutations)
        if is_delete and self.between is not None:
            between, self.between = self.between, None
            between()
        return super().commit(commit)


def test_a_delete_that_was_overtaken_leaves_the_new_object_of_the_name_alone(lmdb_store: Store) -> None:
    """AC-29: between the look and the commit somebody deletes the object and makes another one of its name."""
    engine = PausingEngine(lmdb_store.engine)
    with served(Store(engine)) as running:
        west = running.with_partitions()
        west.client.object_create(SW, object=IMAGE_1)

        def overtake() -> None:
            west.client.object_delete_by_uuids(SW, uuids=[I1])
            west.client.object_create(SW, object={**IMAGE_1, "uuid": I2})

        engine.between = overtake
        assert west.client.object_delete_by_uuids(SW, uuids=[I1]).num_deleted == 0
        assert west.client.object_get_by_name(SW, object_type_code="runm.image", name="rhel7.5.2").uuid == I2
        dump = west.dump()
        assert f"{W}tags/unicorn/{I2}" in dump
        assert f"{W}properties/by-type/runm.image/architecture/x86_64/{I2}" in dump
        assert not any(I1 in key for key in dump)


# ---- update ------------------------------------------------------------------------------------------------------------


def name_versions(running: Served) -> dict[str, int]:
    with running.store.engine.snapshot() as snapshot:
        found = snapshot.scan(KeyRange.of_prefix(b"runm/metadata/" + f"{W}objects/".encode()))
        return {entry.key.decode().rpartition("/")[2]: entry.version for entry in found}


def test_an_update_moves_entries_and_touches_the_name_in_one_revision(west: Served) -> None:
    """AC-30."""
    made = west.client.object_create(SW, object=IMAGE_1).object
    assert made.generation == 1
    before, revision = west.dump(), west.store.revision
    wanted = {
        "uuid": I1,
        "name": "rhel7.5.2",
        "properties": [{"key": "architecture", "value": "arm64"}],
        "generation": 1,
    }
    assert west.client.object_update(SW, object=wanted).object.generation == 2
    assert west.store.revision == revision + 1
    after = west.dump()
    assert before.keys() - after.keys() == {
        f"{W}properties/by-type/runm.image/architecture/x86_64/{I1}",
        f"{W}tags/unicorn/{I1}",
    }
    assert after.keys() - before.keys() == {f"{W}properties/by-type/runm.image/architecture/arm64/{I1}"}
    assert name_versions(west) == {"rhel7.5.2": 2}
    renamed = west.client.object_modify(SW, uuid=I1, name="rhel8").object
    assert (renamed.name, renamed.generation) == ("rhel8", 3)
    assert name_versions(west) == {"rhel8": 1}
    stored = west.dump()
    for generation in (1, 2):
        with refused("ABORTED"):
            west.client.object_modify(SW, uuid=I1, name="rhel9", generation=generation)
    assert west.dump() == stored
    assert west.client.object_get_by_uuid(SW, uuid=I1).generation == 3


def test_parts_of_an_object_are_changed(west: Served) -> None:
    west.client.object_create(SW, object=IMAGE_1)
    changed = west.client.object_modify(
        SW,
        uuid=I1,
        set_properties=[{"key": "os", "value": "linux/redhat"}],
        remove_property_keys=["architecture"],
        add_tags=["a b", "unicorn"],
    ).object
    assert [(one.key, one.value) for one in changed.properties] == [("os", "linux/redhat")]
    assert list(changed.tags) == ["unicorn", "a b"]
    dump = west.dump()
    assert f"{W}properties/by-type/runm.image/os/linux%2Fredhat/{I1}" in dump
    assert f"{W}tags/a b/{I1}" in dump


def test_an_object_keeps_its_place_and_others_cannot_change_it(west: Served) -> None:
    west.client.object_create(SW, object=IMAGE_1)
    west.client.object_create(SW, object=IMAGE_2)
    for change in ({"project": "p2"}, {"partition": EAST}, {"object_type": "runm.machine"}):
        with refused("INVALID_ARGUMENT"):
            west.client.object_update(SW, object={"uuid": I1, "name": "n", **change})
    with refused("ALREADY_EXISTS"):
        west.client.object_modify(SW, uuid=I1, name="debian-sid")
    with refused("NOT_FOUND", "object could not be found."):
        west.client.object_modify({**SW, "project": "p2"}, uuid=I1, name="mine")
    with refused("FAILED_PRECONDITION", "UUID is required."):
        west.client.object_modify(SW, name="x")


def test_sixty_properties_and_tags_are_stored_and_all_replaced(west: Served) -> None:
    """AC-42, the part that must succeed: on etcd within 128 operations, on LMDB within 511 bytes a key."""

    def decorated(letter: str) -> dict[str, Any]:
        properties = [{"key": f"{letter}{number}", "value": "v"} for number in range(30)]
        return {"properties": properties, "tags": [f"{letter}{number}" for number in range(30)]}

    west.client.object_create(SW, object={**IMAGE_1, **decorated("a")})
    size = len(west.dump())
    west.client.object_update(SW, object={"uuid": I1, "name": "renamed", **decorated("b")})
    dump = west.dump()
    assert len(dump) == size
    assert sum("/b" in key for key in dump if "tags/" in key or "properties/" in key) == 60
