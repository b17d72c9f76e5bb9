"""What nobody sends on purpose: odd names and tags, forged markers, races for a name, and looks at what is another's."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

from tests.apps.runm.client import EAST, PROJECT, SW, WEST, Client, refused
from tests.apps.runm.conftest import Served

IMAGE = {"partition": WEST, "object_type": "runm.image", "project": PROJECT}
IMAGES = {"object_type_filter": {"code_filter": {"code": "runm.image"}}}
W = f"partitions/{WEST}/"
NAMES = f"{W}objects/by-type/runm.image/by-project/{PROJECT}/by-name/"

ODD = [
    ("a/b", "a%2Fb"),
    ("/", "%2F"),
    ("%", "%25"),
    ("%2F", "%252F"),
    ("..", ".."),
    ("a b?*#\\", "a b?*#\\"),
    ("tab\tnul\x00del\x7f", "tab%09nul%00del%7F"),
    ("füß-日本-🦄", "füß-日本-🦄"),
    ("e\u0301", "e\u0301"),
    ("\u00e9", "\u00e9"),
    ("default", "default"),
    ("by-name", "by-name"),
]


@pytest.mark.parametrize(("text", "escaped"), ODD)
def test_any_text_is_a_name_a_tag_and_a_property_and_found_by_each(west: Served, text: str, escaped: str) -> None:
    """S14: each `/`, `%` and control byte is escaped, nothing else; what was escaped is found by what it stands for."""
    client = west.client
    item = {"key": text, "value": text}
    uuid = client.object_create(SW, object={**IMAGE, "name": text, "properties": [item], "tags": [text]}).object.uuid
    client.object_create(SW, object={**IMAGE, "name": f"{text}x", "tags": [f"{text}x"]})
    dump = west.dump()
    assert dump[f"{NAMES}{escaped}"] == uuid.encode()
    assert dump[f"{W}tags/{escaped}/{uuid}"] == b""
    assert dump[f"{W}properties/by-type/runm.image/{escaped}/{escaped}/{uuid}"] == b""
    got = client.object_get_by_name(SW, object_type_code="runm.image", name=text)
    assert (got.name, got.tags[0], got.properties[0].key, got.properties[0].value) == (text,) * 4
    searches: list[dict[str, Any]] = [
        {"name_filter": {"name": text}},
        {"tag_filter": {"require": [text]}},
        {"property_filter": {"require_items": [item]}},
        {"property_filter": {"require_keys": [text]}},
    ]
    for given in searches:
        assert [one.uuid for one in client.object_find(SW, any=[{**IMAGES, **given}])] == [uuid]
    by_prefix = {"name_filter": {"name": text, "use_prefix": True}}
    assert {one.name for one in client.object_find(SW, any=[{**IMAGES, **by_prefix}])} == {text, f"{text}x"}
    assert client.object_delete_by_uuids(SW, uuids=[uuid]).num_deleted == 1
    assert not any(uuid in key for key in west.dump())


LONG = "x" * 65_536
FIELDS: list[tuple[dict[str, Any], str]] = [
    ({"name": LONG}, "INVALID_ARGUMENT"),
    ({"name": "/" * 100}, "INVALID_ARGUMENT"),  # 300 bytes once escaped
    ({"project": LONG}, "INVALID_ARGUMENT"),
    ({"uuid": LONG}, "INVALID_ARGUMENT"),
    ({"object_type": LONG}, "FAILED_PRECONDITION"),
    ({"object_type": "../runm.image"}, "FAILED_PRECONDITION"),
    ({"partition": LONG}, "FAILED_PRECONDITION"),
    ({"partition": "us-west.example.com"}, "FAILED_PRECONDITION"),  # by UUID alone, as the original
    ({"tags": [LONG]}, "INVALID_ARGUMENT"),
    ({"tags": [""]}, "INVALID_ARGUMENT"),
    ({"tags": [f"t{number}" for number in range(61)]}, "INVALID_ARGUMENT"),
    ({"properties": [{"key": "k", "value": LONG}]}, "INVALID_ARGUMENT"),
    ({"properties": [{"key": "", "value": "v"}]}, "INVALID_ARGUMENT"),
    ({"properties": [{"key": "k", "value": "1"}, {"key": "k", "value": "2"}]}, "INVALID_ARGUMENT"),
]


@pytest.mark.parametrize(("given", "status"), FIELDS)
def test_what_does_not_fit_is_refused_with_a_short_text_and_writes_nothing(
    west: Served, given: dict[str, Any], status: str
) -> None:
    before = west.dump()
    with pytest.raises(grpc.RpcError) as caught:
        west.client.object_create(SW, object={**IMAGE, "name": "n", **given})
    assert caught.value.code().name == status
    assert 0 < len(caught.value.details() or "") <= 1_000
    assert west.dump() == before


def test_names_that_no_object_can_have_are_not_found_wherever_they_are_asked_for(west: Served) -> None:
    client = west.client
    with refused("NOT_FOUND"):
        client.object_get_by_name(SW, object_type_code="runm.image", name=LONG)
    with refused("NOT_FOUND"):
        client.partition_get_by_name(SW, name=LONG)
    for given in (
        {"name_filter": {"name": LONG}},
        {"name_filter": {"name": LONG, "use_prefix": True}},
        {"tag_filter": {"require": [LONG]}},
        {"tag_filter": {"any": [""]}},
        {"property_filter": {"require_keys": [LONG, ""]}},
    ):
        assert list(client.object_find(SW, any=[{**IMAGES, **given}])) == []


# ---- another's -----------------------------------------------------------------------------------------------------------

MINE = {"key": "owner", "value": "p2"}
PATHS: list[dict[str, Any]] = [
    {},
    IMAGES,
    {"object_type_filter": {"code_filter": {"code": "runm.", "use_prefix": True}}},
    {"project": "p2"},
    {"project": "p2", **IMAGES},
    {"uuid_filter": {"uuid": "a" * 32}},
    {"uuid_filter": {"uuid": "a" * 32}, "project": "p2"},
    {"uuid_filter": {"uuid": "a", "use_prefix": True}},
    {"name_filter": {"name": "theirs"}, **IMAGES},
    {"name_filter": {"name": "theirs"}, "project": "p2", **IMAGES},
    {"name_filter": {"name": "th", "use_prefix": True}},
    {"property_filter": {"require_items": [MINE]}},
    {"property_filter": {"require_keys": ["owner"]}},
    {"property_filter": {"any_items": [MINE]}},
    {"property_filter": {"any_keys": ["owner"]}},
    {"property_filter": {"forbid_keys": ["nothing"]}},
    {"tag_filter": {"require": ["theirs"]}},
    {"tag_filter": {"any": ["theirs"]}, "project": "p2"},
    {"tag_filter": {"forbid": ["nothing"]}},
    {"partition_filter": {"uuids": [WEST, EAST]}, "project": "p2", "tag_filter": {"require": ["theirs"]}},
]


def foreign(client: Client) -> None:
    """An image of project p2, made by p2's own session."""
    theirs = {**IMAGE, "project": "p2", "name": "theirs", "uuid": "a" * 32, "properties": [MINE], "tags": ["theirs"]}
    client.object_create({**SW, "project": "p2"}, object=theirs)


@pytest.mark.parametrize("given", PATHS)
def test_no_search_shows_another_projects_object(west: Served, given: dict[str, Any]) -> None:
    foreign(west.client)
    if "project" in given:
        with refused("PERMISSION_DENIED"):
            west.client.object_find(SW, any=[given])
    else:
        assert list(west.client.object_find(SW, any=[given])) == []
    own = {key: value for key, value in given.items() if key != "project"}
    assert [one.name for one in west.client.object_find({**SW, "project": "p2"}, any=[own])] == ["theirs"]


def test_no_call_changes_another_projects_object(west: Served) -> None:
    client = west.client
    foreign(client)
    before = west.dump()
    for session in (SW, {**SW, "partition": EAST, "project": "p2"}):
        with refused("NOT_FOUND", "object could not be found."):
            client.object_modify(session, uuid="a" * 32, add_tags=["mine"])
        with refused("NOT_FOUND", "object could not be found."):
            client.object_update(session, object={"uuid": "a" * 32, "name": "mine"})
        assert client.object_delete_by_uuids(session, uuids=["a" * 32, "a" * 32]).num_deleted == 0
    assert west.dump() == before


# ---- markers and races ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("marker", ["0" * 32, "f" * 32, "FFFFFFFF-ffff-ffff-ffff-FFFFFFFFFFFF", "a" * 32])
def test_a_made_up_marker_is_a_place_in_the_list_and_shows_nothing_else(west: Served, marker: str) -> None:
    foreign(west.client)
    uuids = sorted(west.client.object_create(SW, object={**IMAGE, "name": f"n{n}"}).object.uuid for n in range(4))
    shown = [one.uuid for one in west.client.object_find(SW, options={"marker": marker, "limit": 4_000_000_000})]
    assert shown == [uuid for uuid in uuids if uuid > marker.replace("-", "").lower()]


@pytest.mark.parametrize("marker", ["x", "-" * 36, LONG, "../..", "0" * 31, "\x00"])
def test_what_is_no_marker_is_refused(west: Served, marker: str) -> None:
    with refused("INVALID_ARGUMENT"):
        west.client.object_find(SW, options={"marker": marker})
    with refused("INVALID_ARGUMENT"):
        west.client.partition_find(SW, options={"marker": marker})


def test_of_sixteen_creators_of_one_object_name_one_succeeds(west: Served) -> None:
    """AC-14's race: one record, one entry of its name, and no trace of the fifteen."""
    before = set(west.dump())

    def outcome(number: int) -> str:
        given = {**IMAGE, "name": "one", "tags": [f"t{number}"], "properties": [{"key": "k", "value": str(number)}]}
        try:
            return str(west.client.object_create(SW, object=given).object.uuid)
        except grpc.RpcError as error:
            return str(error.code().name)

    with ThreadPoolExecutor(16) as workers:
        outcomes = list(workers.map(outcome, range(16)))
    (uuid,) = set(outcomes) - {"ALREADY_EXISTS"}
    assert outcomes.count("ALREADY_EXISTS") == 15
    assert len(set(west.dump()) - before) == 4
    assert west.dump()[f"{NAMES}one"] == uuid.encode()


def test_of_writers_at_one_generation_one_succeeds(west: Served) -> None:
    made = west.client.object_create(SW, object={**IMAGE, "name": "n"}).object

    def outcome(number: int) -> str:
        try:
            west.client.object_modify(SW, uuid=made.uuid, generation=made.generation, add_tags=[f"t{number}"])
        except grpc.RpcError as error:
            return str(error.code().name)
        return "OK"

    with ThreadPoolExecutor(8) as workers:
        outcomes = sorted(workers.map(outcome, range(8)))
    assert outcomes == ["ABORTED"] * 7 + ["OK"]
    now = west.client.object_get_by_uuid(SW, uuid=made.uuid)
    assert (now.generation, len(now.tags)) == (2, 1)
