"""Any search against a model that looks at every object: whole, in pages, sorted, with the indexes and without them."""

from collections.abc import Generator
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import keyplan
from keyplan.maintenance import prepare_index
from tests.apps.runm.client import EAST, PROJECT, SW, WEST, refused
from tests.apps.runm.conftest import Served, served

pytestmark = pytest.mark.slow

KEYS: Final = ("k", "kk", "k/k", "%")
VALUES: Final = ("v", "vv", "v/v", "ü")
TAGS: Final = ("t", "tt", "t/t", "%2F")
NAMES: Final = ("n", "nn", "n/n", "n%", "m")
TYPES: Final = ("runm.image", "runm.machine", "runm.provider_group")
HAS_PROJECT: Final = {"runm.image", "runm.machine"}


def made_objects() -> list[dict[str, Any]]:
    """Objects of all types, two partitions and two projects, with properties and tags in every combination of a few."""
    found = []
    for number in range(120):
        kind = TYPES[number % 3]
        mixed = number * 7_919
        found.append({
            "partition": (WEST, WEST, EAST)[mixed % 3],
            "object_type": kind,
            "project": (PROJECT, "p2")[number // 3 % 2] if kind in HAS_PROJECT else "",
            "uuid": f"{(number + 1) * 0x9E3779B97F4A7C15F39CC0605CEDC835 % 2**128:032x}",
            "name": f"{NAMES[number % 5]}{number}",
            "properties": [
                {"key": key, "value": VALUES[(mixed >> place) % 4]}
                for place, key in enumerate(KEYS)
                if mixed >> (place + 3) & 1
            ],
            "tags": [tag for place, tag in enumerate(TAGS) if mixed >> (place + 5) & 1],
        })  # fmt: skip
    return found


OBJECTS: Final = made_objects()


@pytest.fixture(scope="module", params=["with indexes", "without"])
def stocked(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Generator[Served, None, None]:
    folder = tmp_path_factory.mktemp("model")
    with keyplan.open(f"lmdb:{folder}/s?durability=none") as store, served(store) as running:
        running.with_partitions()
        for one in OBJECTS:
            session = {"user": "u", "project": one["project"] or PROJECT, "partition": one["partition"]}
            running.client.object_create(session, object=one)
        if request.param == "without":
            for index in ("objects_by_property", "objects_by_tag"):
                prepare_index(store, running.deployment.bound, index)
        yield running


items = st.builds(lambda key, value: {"key": key, "value": value}, st.sampled_from(KEYS), st.sampled_from(VALUES))


def few(values: Any) -> st.SearchStrategy[list[Any]]:
    return st.lists(values, max_size=2)


property_filters = st.fixed_dictionaries(
    {},
    optional={
        **{f"{word}_items": few(items) for word in ("require", "forbid", "any")},
        **{f"{word}_keys": few(st.sampled_from(KEYS)) for word in ("require", "forbid", "any")},
    },
)
tag_filters = st.fixed_dictionaries(
    {}, optional={word: few(st.sampled_from(TAGS)) for word in ("require", "forbid", "any")}
)
names = st.one_of(st.sampled_from(NAMES), st.sampled_from([str(one["name"]) for one in OBJECTS]))
filters = st.fixed_dictionaries(
    {},
    optional={
        "partition_filter": few(st.sampled_from((WEST, EAST, "0" * 32))).map(lambda uuids: {"uuids": uuids}),
        "object_type_filter": st.sampled_from(("runm.image", "runm.m", "runm.provider_group", "runm.", "x")).map(
            lambda code: {"code_filter": {"code": code, "use_prefix": code not in TYPES}}
        ),
        "uuid_filter": st.one_of(
            st.sampled_from("0123456789abcdef").map(lambda digit: {"uuid": digit, "use_prefix": True}),
            st.sampled_from([one["uuid"] for one in OBJECTS]).map(lambda uuid: {"uuid": uuid}),
        ),
        "name_filter": st.builds(lambda name, starts: {"name": name, "use_prefix": starts}, names, st.booleans()),
        "project": st.sampled_from((PROJECT, "p2", "p3")),
        "property_filter": property_filters,
        "tag_filter": tag_filters,
    },
)


# ---- the model ---------------------------------------------------------------------------------------------------------


def is_possible(given: dict[str, Any]) -> bool:
    uuids = given.get("partition_filter", {}).get("uuids", [])
    code = given.get("object_type_filter", {}).get("code_filter", {"code": "runm."})["code"]
    return (not uuids or bool({WEST, EAST} & set(uuids))) and code != "x"


def is_answered(given: dict[str, Any], own: str) -> bool:
    """Whether a filter asks for no project but the session's, or for types without projects alone."""
    code = given.get("object_type_filter", {}).get("code_filter", {"code": "runm."})["code"]
    return code == "runm.provider_group" or str(given.get("project", own)) == own


def fits(one: dict[str, Any], given: dict[str, Any], own: str) -> bool:
    uuids = given.get("partition_filter", {}).get("uuids", []) or [WEST]
    code = given.get("object_type_filter", {}).get("code_filter", {"code": "runm.", "use_prefix": True})
    uuid, name = given.get("uuid_filter", {"uuid": ""}), given.get("name_filter", {"name": "", "use_prefix": True})
    if one["partition"] not in uuids or not one["uuid"].startswith(uuid["uuid"]):
        return False
    if not (one["object_type"].startswith(code["code"]) if code["use_prefix"] else one["object_type"] == code["code"]):
        return False
    if one["object_type"] in HAS_PROJECT and one["project"] != own:
        return False
    if not (one["name"].startswith(name["name"]) if name["use_prefix"] else one["name"] == name["name"]):
        return False
    pairs = {(pair["key"], pair["value"]) for pair in one["properties"]}
    held: dict[str, tuple[set[Any], dict[str, Any]]] = {
        "_items": (pairs, given.get("property_filter", {})),
        "_keys": ({key for key, _ in pairs}, given.get("property_filter", {})),
        "": (set(one["tags"]), given.get("tag_filter", {})),
    }
    for ending, (there, lists) in held.items():
        wanted = {
            word: {
                (item["key"], item["value"]) if ending == "_items" else item for item in lists.get(word + ending, [])
            }
            for word in ("require", "forbid", "any")
        }
        if not wanted["require"] <= there or wanted["forbid"] & there or (wanted["any"] and not wanted["any"] & there):
            return False
    return True


@given(
    given_filters=st.lists(filters, max_size=3),
    project=st.sampled_from((PROJECT, "p2")),
    limit=st.sampled_from((1, 3, 17, 300)),
    is_descending=st.booleans(),
)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_search_gives_what_a_look_at_every_object_gives(
    stocked: Served, given_filters: list[dict[str, Any]], project: str, limit: int, *, is_descending: bool
) -> None:
    session = {**SW, "project": project}
    client = stocked.client
    possible = [one for one in given_filters if is_possible(one)]
    if given_filters and not possible:
        with refused("FAILED_PRECONDITION", "failed to expand object filters."):
            client.object_find(session, any=given_filters)
        return
    if not all(is_answered(one, project) for one in possible):
        with refused("PERMISSION_DENIED"):
            client.object_find(session, any=given_filters)
        return
    expected = sorted(
        str(one["uuid"]) for one in OBJECTS if any(fits(one, given, project) for given in possible or [{}])
    )
    assert [one.uuid for one in client.object_find(session, any=given_filters)] == expected
    pages: list[str] = []
    while True:
        options = {"limit": limit, "marker": pages[-1] if pages else ""}
        page = [one.uuid for one in client.object_find(session, any=given_filters, options=options)]
        pages += page
        if len(page) < limit or len(pages) > 40 * limit:
            break
    assert pages == expected[: len(pages)]
    assert len(pages) == len(expected) or len(pages) > 40 * limit
    order = {"sort_fields": [{"field": "name", "direction": int(is_descending)}]}
    by_name = [one.name for one in client.object_find(session, any=given_filters, options=order)]
    assert by_name == sorted((str(one["name"]) for one in OBJECTS if one["uuid"] in expected), reverse=is_descending)
