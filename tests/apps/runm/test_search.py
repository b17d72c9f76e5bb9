"""Searches over real gRPC: acceptance cases 22 to 26 and 36, isolation, and which index is read."""

from typing import Any

import pytest

from keyplan.apps.runm.deployment import Rulings
from keyplan.engine import RecordingEngine
from keyplan.store import Store
from tests.apps.runm.client import EAST, GROUP, I1, I2, PROJECT, SW, WEST, Client, refused
from tests.apps.runm.conftest import Served, served

GROUPS = {"object_type_filter": {"code_filter": {"code": "runm.provider_group"}}}
IMAGE = {"object_type_filter": {"code_filter": {"code": "runm.image"}}}
ARM = {"key": "architecture", "value": "arm64"}
X86 = {"key": "architecture", "value": "x86_64"}
OS = {"key": "os", "value": "linux"}


def make(client: Client, name: str, **given: Any) -> str:
    fields = {"partition": WEST, "object_type": "runm.image", "project": PROJECT, "name": name, **given}
    uuid: str = client.object_create(SW, object=fields).object.uuid
    return uuid


@pytest.fixture
def stocked(west: Served) -> Served:
    """Images a (x86_64, linux; unicorn, new), b (arm64; unicorn), c (nothing), one of another project, and a group."""
    client = west.client
    make(client, "rhel7.5.2", uuid=I1, properties=[X86, OS], tags=["unicorn", "new"])
    make(client, "debian-sid", uuid=I2, properties=[ARM], tags=["unicorn"])
    make(client, "bare", uuid="c" * 32)
    make(client, "foreign", project="p2", properties=[X86], tags=["unicorn"], uuid="f" * 32)
    make(client, "row", uuid=GROUP, object_type="runm.provider_group", project="", tags=["rainbow"])
    return west


def names(running: Served, *filters: dict[str, Any], session: dict[str, str] = SW, **fields: Any) -> list[str]:
    return [one.name for one in running.client.object_find(session, any=list(filters), **fields)]


def properties(**lists: Any) -> dict[str, Any]:
    return {**IMAGE, "property_filter": lists}


def tags(**lists: list[str]) -> dict[str, Any]:
    return {"tag_filter": lists}


CASES: list[tuple[list[dict[str, Any]], list[str]]] = [
    ([], ["row", "rhel7.5.2", "debian-sid", "bare"]),
    ([{}], ["row", "rhel7.5.2", "debian-sid", "bare"]),
    ([IMAGE], ["rhel7.5.2", "debian-sid", "bare"]),
    ([{**IMAGE, "name_filter": {"name": "rhel7.5.2"}, "property_filter": {"require_items": [ARM]}}], []),
    (
        [{**IMAGE, "name_filter": {"name": "rhel", "use_prefix": True}, "property_filter": {"require_items": [X86]}}],
        ["rhel7.5.2"],
    ),
    ([{**IMAGE, "name_filter": {"name": ""}}], ["rhel7.5.2", "debian-sid", "bare"]),
    ([{"uuid_filter": {"uuid": "54B8D8D7-E24C-4379-9BBF-70C16E921E52"}}], ["rhel7.5.2"]),
    ([{"uuid_filter": {"uuid": "54b8", "use_prefix": True}}], ["rhel7.5.2"]),
    ([{"uuid_filter": {"uuid": "f" * 32}}], []),
    ([properties(require_items=[X86, OS])], ["rhel7.5.2"]),
    ([properties(require_items=[X86, ARM])], []),
    ([properties(require_keys=["architecture"])], ["rhel7.5.2", "debian-sid"]),
    ([properties(any_items=[ARM, OS])], ["rhel7.5.2", "debian-sid"]),
    ([properties(any_keys=["os", "nothing"])], ["rhel7.5.2"]),
    ([properties(forbid_items=[ARM])], ["rhel7.5.2", "bare"]),
    ([properties(forbid_keys=["architecture"])], ["bare"]),
    ([properties(require_keys=["architecture"], forbid_keys=["os"])], ["debian-sid"]),
    ([{"property_filter": {"require_items": [X86]}}], ["rhel7.5.2"]),
    ([properties(require_items=[{"key": "architecture", "value": ""}])], []),
    ([properties(any_items=[{"key": "k" * 300, "value": "v"}, ARM])], ["debian-sid"]),
    ([tags(require=["unicorn"])], ["rhel7.5.2", "debian-sid"]),
    ([tags(require=["unicorn"], forbid=["new"])], ["debian-sid"]),
    ([tags(require=["unicorn", "new"])], ["rhel7.5.2"]),
    ([tags(any=["rainbow", "new"])], ["row", "rhel7.5.2"]),
    ([tags(require=["uni"])], []),
    ([{**tags(require=["rainbow"]), **IMAGE}], []),
    ([properties(require_items=[ARM]), tags(any=["rainbow"])], ["row", "debian-sid"]),
    ([{"project": "p2", **GROUPS}], ["row"]),  # groups belong to no project: naming one asks for nothing
    ([{"partition_filter": {"uuids": []}}], ["row", "rhel7.5.2", "debian-sid", "bare"]),
    ([{"partition_filter": {"uuids": [EAST]}}], []),
    ([{"partition_filter": {"uuids": [EAST, WEST]}, **IMAGE}], ["rhel7.5.2", "debian-sid", "bare"]),
    ([{"object_type_filter": {"code_filter": {"code": "runm.none"}}}, properties(require_items=[OS])], ["rhel7.5.2"]),
]


@pytest.mark.parametrize(("filters", "expected"), CASES)
def test_a_search_gives_what_fits_any_of_its_filters_by_uuid(
    stocked: Served, filters: list[dict[str, Any]], expected: list[str]
) -> None:
    assert names(stocked, *filters) == expected


IMPOSSIBLE: list[dict[str, Any]] = [
    {"object_type_filter": {"code_filter": {"code": "runm.none"}}},
    {"partition_filter": {"uuids": ["1" * 32]}},
    {"partition_filter": {"uuids": ["no uuid"]}},
]


@pytest.mark.parametrize("filters", [[{"project": "p2"}], [{"project": "p2", **IMAGE}], [IMAGE, {"project": "p2"}]])
def test_a_filter_by_a_project_that_is_not_the_sessions_is_refused(
    stocked: Served, filters: list[dict[str, Any]]
) -> None:
    """O6: an answer without that project's objects would look whole."""
    with refused("PERMISSION_DENIED"):
        names(stocked, *filters)


@pytest.mark.parametrize("given", IMPOSSIBLE)
def test_a_filter_that_names_no_partition_or_type_is_told(stocked: Served, given: dict[str, Any]) -> None:
    with refused("FAILED_PRECONDITION", "failed to expand object filters."):
        names(stocked, given)


def test_a_key_is_not_found_by_its_beginning(west: Served) -> None:
    """AC-36."""
    make(west.client, "D", properties=[{"key": "arch", "value": "x"}])
    make(west.client, "A", properties=[{"key": "architecture", "value": "x"}])
    assert names(west, properties(require_keys=["arch"])) == ["D"]


def test_another_projects_objects_are_in_nobodys_list(stocked: Served) -> None:
    p2 = {**SW, "project": "p2"}
    assert names(stocked, session=p2) == ["row", "foreign"]
    assert names(stocked, tags(require=["unicorn"]), session=p2) == ["foreign"]
    assert names(stocked, properties(require_items=[X86]), session={**SW, "project": "p3"}) == []


def test_pages_show_every_object_once_while_others_are_made(west: Served) -> None:
    """AC-26."""
    wanted = sorted(make(west.client, f"n{number}") for number in range(7))
    seen: list[str] = []
    marker = ""
    for turn in range(5):
        page = west.client.object_find(SW, any=[IMAGE], options={"limit": 2, "marker": marker})
        seen += [one.uuid for one in page]
        marker = seen[-1]
        make(west.client, f"later{turn}", uuid=f"{turn:032x}")
    assert [uuid for uuid in seen if uuid in wanted] == wanted
    assert len(set(seen)) == len(seen)


def test_lists_are_sorted_by_fields_in_either_direction(stocked: Served) -> None:
    def by(*fields: tuple[str, int], **options: Any) -> list[str]:
        sort = [{"field": field, "direction": direction} for field, direction in fields]
        return names(stocked, options={"sort_fields": sort, **options})

    assert by(("name", 1)) == ["row", "rhel7.5.2", "debian-sid", "bare"]
    assert by(("object_type", 1), ("name", 0)) == ["row", "bare", "debian-sid", "rhel7.5.2"]
    assert by(("uuid", 1)) == ["bare", "debian-sid", "rhel7.5.2", "row"]
    assert by(("name", 0), limit=2) == ["bare", "debian-sid"]
    assert by(("name", 0), limit=2, marker=I2) == ["rhel7.5.2", "row"]
    for wrong in ([("colour", 0)], [("name", 0), ("name", 1)]):
        with refused("INVALID_ARGUMENT"):
            by(*wrong)
    with refused("INVALID_ARGUMENT"):
        by(marker="no uuid")
    with refused("INVALID_ARGUMENT"):
        by(("name", 0), marker="1" * 32)


def test_ten_objects_among_many_are_found_by_reading_about_ten(lmdb_store: Store) -> None:
    engine = RecordingEngine(lmdb_store.engine)
    with served(Store(engine)) as running:
        west = running.with_partitions()
        for number in range(300):
            value = "few" if number % 100 == 0 else "many"
            make(west.client, f"n{number:03}", properties=[{"key": "k", "value": value}], tags=[f"all{number % 2}"])
        few = {"key": "k", "value": "few"}
        engine.calls.clear()
        found = names(west, {**IMAGE, "property_filter": {"require_items": [few]}, **tags(require=["all0"])})
        assert set(found) == {"n000", "n100", "n200"}
        scanned = sum(len(call.result) for call in engine.calls if isinstance(call.result, tuple | list))
        assert 3 <= scanned < 100


def test_an_isolated_deployment_keeps_sessions_to_their_own_place(lmdb_store: Store) -> None:
    with served(lmdb_store) as running:
        running.with_partitions()
    with served(lmdb_store, Rulings(is_isolated=True)) as west:
        make(west.client, "mine")
        with refused("PERMISSION_DENIED"):
            make(west.client, "theirs", project="p2")
        with refused("FAILED_PRECONDITION"):
            names(west, {"partition_filter": {"uuids": [EAST]}})
