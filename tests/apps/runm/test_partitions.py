"""Partitions, sessions and types over real gRPC: acceptance cases 05 to 11."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

from tests.apps.runm.client import EAST, PROJECT, SW, WEST, refused
from tests.apps.runm.conftest import Served
from tests.apps.runm.golden import GOLDEN

HYPHENATED = "D79706E0-1FBD-4E48-AAE8-9209061CDB71"


def test_a_partition_is_stored_as_the_document_says(west: Served) -> None:
    dump = west.dump()
    for name in ("H1", "H2"):
        key, value = GOLDEN[name]
        assert dump[key] == value
    assert dump["partitions/by-name/us-east.example.com"] == EAST.encode()
    assert dump["partitions/by-name/us-west.example.com"] == WEST.encode()
    assert len(dump) == 8 + 4


@pytest.mark.parametrize(
    "other",
    [
        {"uuid": "11111111111111111111111111111111", "name": "us-west.example.com"},
        {"uuid": WEST, "name": "elsewhere"},
        {"uuid": HYPHENATED, "name": "elsewhere"},
    ],
)
def test_a_partition_whose_name_or_uuid_is_taken_is_a_duplicate(west: Served, other: dict[str, str]) -> None:
    before = west.dump()
    with refused("ALREADY_EXISTS", "duplicate record."):
        west.client.partition_create(partition=other)
    assert west.dump() == before


def test_of_sixteen_parallel_creators_of_one_name_one_succeeds(empty: Served) -> None:
    before = empty.dump()

    def create(_number: int) -> str:
        try:
            empty.client.partition_create(partition={"name": "part0"})
        except grpc.RpcError as error:
            return str(error.code().name)
        return "OK"

    with ThreadPoolExecutor(16) as creators:
        answers = sorted(creators.map(create, range(16)))
    assert answers == ["ALREADY_EXISTS"] * 15 + ["OK"]
    assert len(empty.dump()) == len(before) + 2


@pytest.mark.parametrize(
    ("given", "status", "text"),
    [
        ({"name": ""}, "FAILED_PRECONDITION", "partition name is required."),
        ({"uuid": "Not-A-UUID"}, "FAILED_PRECONDITION", "partition name is required."),
        ({"name": "p", "uuid": "Not-A-UUID"}, "INVALID_ARGUMENT", None),
        ({"name": WEST}, "INVALID_ARGUMENT", None),  # S24
        ({"name": "n" * 256}, "INVALID_ARGUMENT", None),
        (None, "FAILED_PRECONDITION", "partition name is required."),
    ],
)
def test_a_partition_that_cannot_be_is_refused(
    empty: Served, given: dict[str, str] | None, status: str, text: str | None
) -> None:
    before = empty.dump()
    with refused(status, text):
        empty.client.partition_create(partition=given)
    assert empty.dump() == before


def test_a_name_with_a_slash_is_one_name(west: Served) -> None:
    for name in ("a/b", "ab"):
        west.client.partition_create(partition={"name": name})
    assert west.client.partition_get_by_name(SW, name="a/b").name == "a/b"

    def found(prefix: str) -> set[str]:
        filters = [{"name_filter": {"name": prefix, "use_prefix": True}}]
        return {one.name for one in west.client.partition_find(SW, any=filters)}

    assert found("a/") == {"a/b"}
    assert found("a") == {"a/b", "ab"}
    assert "partitions/by-name/a%2Fb" in west.dump()


SESSIONS: list[tuple[dict[str, str], str]] = [
    ({}, "user is required in session."),
    ({"project": PROJECT, "partition": WEST}, "user is required in session."),
    ({"user": "admin", "project": PROJECT}, "partition is required in session."),
    ({"user": "admin", "partition": "nowhere"}, "Unknown partition 'nowhere' specified in session"),
    (
        {"user": "admin", "partition": "1" * 32, "project": PROJECT},
        f"Unknown partition '{'1' * 32}' specified in session",
    ),
    ({"user": "admin", "partition": WEST}, "project is required in session."),
]


@pytest.mark.parametrize(("session", "text"), SESSIONS)
def test_a_session_is_checked_in_the_originals_order(west: Served, session: dict[str, str], text: str) -> None:
    with refused("FAILED_PRECONDITION", text):
        west.client.partition_get_by_name(session, name="us-west.example.com")
    if not session:
        with refused("FAILED_PRECONDITION", text):
            west.client.partition_get_by_name(name="us-west.example.com")


@pytest.mark.parametrize("partition", ["us-west.example.com", WEST, HYPHENATED])
def test_a_session_names_its_partition_in_any_spelling(west: Served, partition: str) -> None:
    group = {"partition": WEST, "object_type": "runm.provider_group", "name": "g"}
    west.client.object_create(SW, object=group)
    found = west.client.object_find({**SW, "partition": partition})
    assert [one.name for one in found] == ["g"]


@pytest.mark.parametrize(
    ("filters", "names"),
    [
        ([], ["us-east.example.com", "us-west.example.com"]),
        (
            [{"uuid_filter": {"uuid": EAST}}, {"name_filter": {"name": "us-", "use_prefix": True}}],
            ["us-east.example.com", "us-west.example.com"],
        ),
        ([{"uuid_filter": {"uuid": EAST}, "name_filter": {"name": "us-west.example.com"}}], []),
        ([{"uuid_filter": {"uuid": "d3", "use_prefix": True}}], ["us-east.example.com"]),
        ([{"uuid_filter": {"uuid": HYPHENATED}}], ["us-west.example.com"]),
        ([{}], ["us-east.example.com", "us-west.example.com"]),
        ([{"name_filter": {"name": "nowhere"}}], []),
    ],
)
def test_partitions_are_found_once_each_and_by_uuid(west: Served, filters: list[Any], names: list[str]) -> None:
    assert [one.name for one in west.client.partition_find(SW, any=filters)] == names


def test_a_partition_is_got_by_its_uuid_in_any_spelling_or_its_name(west: Served) -> None:
    for uuid in (WEST, HYPHENATED):
        assert west.client.partition_get_by_uuid(SW, uuid=uuid).uuid == WEST
    for uuid in ("", "x"):
        with refused("FAILED_PRECONDITION", "UUID is required."):
            west.client.partition_get_by_uuid(SW, uuid=uuid)
    with refused("NOT_FOUND", "object could not be found."):
        west.client.partition_get_by_uuid(SW, uuid="1" * 32)
    with refused("FAILED_PRECONDITION", "name is required."):
        west.client.partition_get_by_name(SW)
    with refused("NOT_FOUND"):
        west.client.partition_get_by_name(SW, name="nowhere")


def test_types_are_got_and_found_by_code(west: Served) -> None:
    client = west.client
    assert client.object_type_get_by_code(SW, code="runm.image").scope == 1
    assert client.provider_type_get_by_code(SW, code="runm.compute").description.startswith("A provider of CPU")
    with refused("FAILED_PRECONDITION", "A code to search for is required."):
        client.object_type_get_by_code(SW)
    with refused("NOT_FOUND"):
        client.provider_type_get_by_code(SW, code="runm.Compute")
    codes = ["runm.image", "runm.machine", "runm.provider", "runm.provider_group"]
    assert [one.code for one in client.object_type_find(SW)] == codes
    prefix = [{"code_filter": {"code": "runm.p", "use_prefix": True}}, {}]
    assert [one.code for one in client.object_type_find(SW, any=prefix)] == codes[2:]
    exact = [{"code_filter": {"code": "runm.storage.block"}}]
    assert [one.code for one in client.provider_type_find(SW, any=exact)] == ["runm.storage.block"]
    descending = {"sort_fields": [{"field": "code", "direction": 1}], "limit": 2}
    assert [one.code for one in client.object_type_find(SW, options=descending)] == codes[:1:-1]
