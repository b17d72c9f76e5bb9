"""The short way of a find: which finds go it, what is kept of them, and that it says what the long way says."""

from collections.abc import Callable
from itertools import islice, product
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import pytest
from msgspec import structs

import keyplan
from keyplan.apps.runm.bounds import UNBOUNDED, Bounds
from keyplan.apps.runm.definitions import set_definition
from keyplan.apps.runm.deployment import PROVIDER, Deployment
from keyplan.apps.runm.read_ahead import Scope
from keyplan.apps.runm.records import (
    Object,
    ObjectDefinition,
    ObjectTypeScope,
    Property,
    PropertyPermission,
    PropertyPermissions,
)
from keyplan.apps.runm.wire_table import messages
from keyplan.engine import Commit, Delete, Put
from keyplan.maintenance import prepare_index
from tests.apps.runm.changing import (
    OPERATOR,
    UUIDS,
)
from tests.apps.runm.client import EAST, PROJECT, WEST
from tests.apps.runm.finding import Scene

SESSION = {"user": "u", "partition": WEST, "project": PROJECT}
IMAGES = {"object_type_filter": {"code_filter": {"code": "runm.image"}}}
BY_OS = {"property_filter": {"require_items": [{"key": "os", "value": "v"}]}}
BY_TAG = {"tag_filter": {"require": ["t"]}}
BY_NAME = {"name_filter": {"name": "n0"}}


def images(deployment: Deployment, count: int) -> list[UUID]:
    """Make images of one property, tag and beginning of a name."""
    made = [UUID(int=number + 1) for number in range(count)]
    for number, uuid in enumerate(made):
        record = Object(UUID(WEST), "runm.image", uuid, f"n{number}", PROJECT, (Property("os", "v"),), ("t",))
        deployment.runm.objects.insert(uuid, record)
    return made


def a_find(*given: dict[str, Any], options: dict[str, Any] | None = None, **session: Any) -> Any:
    every = {key: value for one in (IMAGES, *given) for key, value in one.items()}
    return messages.ObjectFindRequest(session={**SESSION, **session}, options=options or {}, any=[every])


@pytest.mark.parametrize(
    ("by", "options"),
    [
        *product(
            (BY_OS, BY_TAG, BY_NAME, {**BY_OS, **BY_TAG, **BY_NAME}),
            ({}, {"limit": 2}, {"limit": 257}, {"limit": 2, "marker": UUID(int=1).hex}),
        ),
        ({}, {"limit": 1}),
        ({}, {"limit": 2, "marker": UUID(int=1).hex}),
        ({}, {"limit": 2, "marker": UUID(int=(1 << 128) - 1).hex}),
    ],
)
@pytest.mark.parametrize("url", ["memory:", "lmdb", "lmdb raw"])
def test_a_find_by_a_value_a_tag_or_a_name_goes_the_short_way(
    by: dict[str, Any], options: dict[str, Any], url: str, tmp_path: Path
) -> None:
    history = "&history=off" if url == "lmdb raw" else ""
    with keyplan.open(url if url == "memory:" else f"lmdb:{tmp_path}/store?durability=none{history}") as store:
        scene = Scene(store, Random(1))
        images(scene.deployment, 3)
        request = a_find(by, options=options)
        for _ in range(2):
            expected = [one.SerializeToString() for one in scene.find(request, UNBOUNDED)]
            assert scene.short(request, UNBOUNDED) == expected
        (known,) = scene.deployment.ahead.finds.values()
        others = a_find(by, options={**options, "limit": 3})
        others.any[0].name_filter.name = others.any[0].name_filter.name and "n1"
        assert scene.short(others, UNBOUNDED) is not None
        scene.deployment.runm.objects.delete(UUID(int=2))
        assert scene.short(request, UNBOUNDED) == [one.SerializeToString() for one in scene.find(request, UNBOUNDED)]
        assert known in scene.deployment.ahead.finds.values(), "what it knows does not hang on the objects"


@pytest.mark.parametrize(
    "request_",
    [
        a_find(),
        a_find(options={"limit": 2, "sort_fields": [{"field": "name"}]}),
        a_find({"name_filter": {"name": "n", "use_prefix": True}}, options={"limit": 2}),
        a_find({"property_filter": {}}, options={"limit": 2}),
        a_find(BY_OS, options={"sort_fields": [{"field": "name"}]}),
        a_find(BY_OS, options={"marker": UUID(int=1).hex}),
        a_find(BY_OS, options={"limit": 2, "marker": "none"}),
        a_find(BY_OS, {"partition_filter": {"uuids": [EAST]}}),
        a_find(BY_OS, {"uuid_filter": {"uuid": UUID(int=1).hex}}),
        a_find(BY_OS, {"object_type_filter": {"code_filter": {"code": PROVIDER}}}),
        a_find(BY_OS, {"object_type_filter": {"code_filter": {"code": "runm.image", "use_prefix": True}}}),
        a_find(BY_OS, {"object_type_filter": {}}),
        a_find({"name_filter": {"name": "n", "use_prefix": True}}),
        a_find({"property_filter": {"require_items": [{"key": "os", "value": "v"}, {"key": "os", "value": "w"}]}}),
        a_find({"property_filter": {"require_keys": ["os"]}}),
        a_find({"tag_filter": {"require": ["t", "u"]}}),
        a_find({"tag_filter": {"any": ["t"]}}),
        a_find({"tag_filter": {"require": ["x" * 600]}}),
        a_find({"name_filter": {"name": "x" * 600}}),
        a_find(BY_OS, user=""),
        a_find(BY_OS, project="*"),
    ],
)
def test_other_finds_are_left_to_the_long_way(request_: Any) -> None:
    with keyplan.open("memory:") as store:
        scene = Scene(store, Random(1))
        images(scene.deployment, 2)
        for _ in range(2):
            assert scene.short(request_, Bounds(has_every_project=True)) is None
        two = messages.ObjectFindRequest(session=SESSION, any=[{**IMAGES, **BY_OS}, {**IMAGES, **BY_TAG}])
        assert scene.short(two, UNBOUNDED) is None


def test_an_index_that_is_being_built_is_not_read() -> None:
    with keyplan.open("memory:") as store:
        scene = Scene(store, Random(1))
        images(scene.deployment, 2)
        finds = [a_find(by) for by in (BY_OS, BY_TAG, BY_NAME)]
        assert None not in [scene.short(one, UNBOUNDED) for one in finds]
        for name in ("objects_by_property", "objects_by_tag", "objects_by_project_and_name"):
            prepare_index(store, scene.deployment.bound, name)
        assert [scene.short(one, UNBOUNDED) for one in finds * 2] == [None] * 6


def test_an_entry_that_spells_a_uuid_otherwise_shows_nothing() -> None:
    """The original may have written such keys. The long way reads no key of them, in the index or of the object."""
    with keyplan.open("memory:") as store:
        scene = Scene(store, Random(1))
        bound, digits = scene.deployment.bound, UUIDS[0].hex
        record = Object(UUID(WEST), "runm.image", UUIDS[0], "n0", PROJECT, (Property("os", "v"),), ("t",))
        table = bound.table("objects")
        raw_key, raw, entries, _ = table.encoded_record(record.uuid, record)
        upper = raw.replace(digits.encode(), digits.upper().encode())
        for key, value in ((raw_key, upper), *((key, one.raw_value) for key, one in entries.items())):
            odd = key.replace(digits.encode(), digits.upper().encode())
            put = Put(odd, value.replace(digits.encode(), digits.upper().encode()))
            store.engine.commit(Commit((), (put,)))
        for by in (BY_OS, BY_TAG):
            request = a_find(by)
            assert list(scene.find(request, UNBOUNDED)) == []
            assert not scene.short(request, UNBOUNDED)


def test_many_candidates_are_left_to_the_long_way_and_a_page_of_them_is_not() -> None:
    with keyplan.open("memory:") as store:
        scene = Scene(store, Random(1))
        made = images(scene.deployment, 130)
        assert scene.short(a_find(BY_OS), UNBOUNDED) is None
        for start in (0, 50):
            options = {"limit": 50, "marker": made[start - 1].hex if start else ""}
            page = scene.short(a_find(BY_OS, options=options), UNBOUNDED)
            assert page is not None
            assert [messages.Object.FromString(one).uuid for one in page] == [
                one.hex for one in made[start : start + 50]
            ]
        for uuid in made[2:]:
            elsewhere = scene.deployment.runm.objects.get(uuid)
            assert elsewhere is not None
            scene.deployment.runm.objects.put(uuid, structs.replace(elsewhere, project="p2"))
        assert scene.short(a_find(BY_OS, options={"limit": 3}), UNBOUNDED) is None, "the first turn has too few"


def test_what_tells_one_find_from_another_counts() -> None:
    hidden = (PropertyPermissions("os", (PropertyPermission("", "r", 0),)),)
    with keyplan.open("memory:") as store:
        scene = Scene(store, Random(1))
        images(scene.deployment, 2)
        definition = ObjectDefinition(UUID(int=0), "{}", hidden)
        set_definition(scene.deployment, OPERATOR, Scope(None, "runm.image"), "", definition)
        variants = [
            (a_find(BY_OS), UNBOUNDED, 2),
            (a_find(BY_OS, roles=["r"]), UNBOUNDED, 0),
            (a_find(BY_OS), Bounds(roles=frozenset({"r"})), 0),
            (a_find(BY_OS, {"property_filter": {"require_items": [{"key": "os", "value": "w"}]}}), UNBOUNDED, 0),
            (a_find(BY_OS, project="p2"), UNBOUNDED, 0),
            (a_find(BY_OS, partition=EAST), UNBOUNDED, 0),
            (a_find(BY_OS, options={"limit": 1}), UNBOUNDED, 1),
            (a_find(BY_OS, {"tag_filter": {"forbid": ["t"]}}), UNBOUNDED, 0),
            (a_find(BY_TAG, {"property_filter": {}}), UNBOUNDED, None),
            (a_find(BY_TAG), UNBOUNDED, 2),
            (a_find({"tag_filter": {"require": ["t"], "forbid": ["t"]}}), UNBOUNDED, 0),
            (a_find({"property_filter": {**BY_OS["property_filter"], "forbid_keys": ["os"]}}), UNBOUNDED, 0),
            (a_find({**BY_OS, "tag_filter": {"require": ["u"]}}), UNBOUNDED, 0),
        ]
        for request, bounds, count in variants * 2:
            found = scene.short(request, bounds)
            assert (None if found is None else len(found)) == count, request


@pytest.mark.parametrize("names", [["", "n1"], ["n1", ""]], ids=["the page first", "the name first"])
def test_a_page_whose_filter_of_names_is_empty_is_no_find_by_name(names: list[str]) -> None:
    """Without its name, the one request has the bytes of the other."""
    with keyplan.open("memory:") as store:
        scene = Scene(store, Random(1))
        images(scene.deployment, 3)
        for name in names * 2:
            request = a_find({"name_filter": {"name": name}}, options={"limit": 5})
            found = [messages.Object.FromString(one).name for one in scene.short(request, UNBOUNDED)]
            assert (
                found
                == [one.name for one in scene.find(request, UNBOUNDED)]
                == ([name] if name else ["n0", "n1", "n2"])
            )


def test_a_type_that_is_not_what_it_was_is_left_to_the_long_way() -> None:
    with keyplan.open("memory:") as store:
        scene = Scene(store, Random(1))
        images(scene.deployment, 2)
        finds = [a_find(by, options={"limit": 5}) for by in (BY_OS, BY_TAG, BY_NAME, {})]
        assert None not in [scene.short(one, UNBOUNDED) for one in finds]
        types = scene.deployment.runm.object_types
        kind = types.get("runm.image")
        assert kind is not None
        types.put("runm.image", structs.replace(kind, scope=ObjectTypeScope.PARTITION))
        assert [scene.short(one, UNBOUNDED) for one in finds * 2] == [None] * 8
        types.delete("runm.image")
        assert [scene.short(one, UNBOUNDED) for one in finds * 2] == [None] * 8


def test_an_entry_that_leads_nowhere_is_passed_over() -> None:
    with keyplan.open("memory:") as store:
        scene = Scene(store, Random(1))
        first, second = images(scene.deployment, 2)
        store.engine.commit(Commit((), (Delete(scene.deployment.bound.table("objects").keys.encode(first)),)))
        for by in (BY_OS, BY_TAG):
            (found,) = scene.short(a_find(by), UNBOUNDED)
            assert messages.Object.FromString(found).uuid == second.hex
        assert scene.short(a_find(BY_NAME), UNBOUNDED) == []


@pytest.mark.parametrize("by", [{}, BY_OS, BY_TAG], ids=["type", "property", "tag"])
def test_a_page_is_looked_for_a_few_turns_long(by: dict[str, Any]) -> None:
    with keyplan.open("memory:") as store:
        scene = Scene(store, Random(1))
        for uuid in images(scene.deployment, 60)[:40]:
            record = scene.deployment.runm.objects.get(uuid)
            assert record is not None
            scene.deployment.runm.objects.put(uuid, structs.replace(record, project="p2"))
        request = a_find(by, options={"limit": 10})
        expected = [one.SerializeToString() for one in scene.find(request, UNBOUNDED)]
        assert [messages.Object.FromString(one).uuid for one in expected] == [
            UUID(int=number).hex for number in range(41, 51)
        ]
        assert scene.short(request, UNBOUNDED) == expected


@pytest.mark.parametrize("by", [{}, BY_OS, BY_TAG], ids=["type", "property", "tag"])
def test_a_long_page_goes_on_behind_many_that_do_not_fit(by: dict[str, Any]) -> None:
    with keyplan.open("memory:") as store:
        scene = Scene(store, Random(1))
        for uuid in images(scene.deployment, 900)[260:850]:
            record = scene.deployment.runm.objects.get(uuid)
            assert record is not None
            scene.deployment.runm.objects.put(uuid, structs.replace(record, project="p2"))
        request = a_find(by, options={"limit": 300})
        found = [UUID(messages.Object.FromString(one).uuid).int for one in scene.short(request, UNBOUNDED)]
        assert found == [*range(1, 261), *range(851, 891)]


def test_finds_of_any_size_are_not_kept() -> None:
    with keyplan.open("memory:") as store:
        scene = Scene(store, Random(1))
        images(scene.deployment, 2)
        for request in (a_find(BY_OS, user="u" * 3_000), a_find(BY_OS, roles=["r"] * 3_000)):
            assert scene.short(request, UNBOUNDED) is not None
        definition = ObjectDefinition(UUID(int=0), '{"title": "%s"}' % ("s" * 30_000))
        set_definition(scene.deployment, OPERATOR, Scope(None, "runm.image"), "", definition)
        assert scene.short(a_find(BY_OS), UNBOUNDED) is not None
        assert not scene.deployment.ahead.finds


def test_a_text_of_any_size_is_not_kept() -> None:
    with keyplan.open("memory:") as store:
        scene = Scene(store, Random(1))
        images(scene.deployment, 2)
        text = "long" * 50
        finds = (
            a_find({"property_filter": {"require_items": [{"key": "os", "value": text}]}}),
            a_find({"tag_filter": {"require": [text]}}),
            a_find({"name_filter": {"name": text}}),
        )
        for one in finds:
            assert scene.short(one, UNBOUNDED) == []
        assert len(scene.deployment.ahead.finds) == 3
        assert text not in repr(scene.deployment.ahead.finds)


def test_a_page_of_a_type_that_is_rare_is_left_to_the_long_way() -> None:
    with keyplan.open("memory:") as store:
        scene = Scene(store, Random(1))
        for uuid in images(scene.deployment, 100)[:90]:
            scene.deployment.runm.objects.delete(uuid)
            scene.deployment.runm.objects.insert(uuid, Object(UUID(EAST), "runm.image", uuid, uuid.hex, PROJECT))
        page = a_find(options={"limit": 5})
        for _ in range(2):
            assert scene.short(page, UNBOUNDED) is None
            assert len(list(scene.find(page, UNBOUNDED))) == 5
        assert [one.is_sparse for one in scene.deployment.ahead.finds.values()] == [True]
        near = a_find(options={"limit": 5, "marker": UUID(int=90).hex}, user="another")
        assert len(list(scene.short(near, UNBOUNDED))) == 5


def hidden_from_all(scene: Scene) -> None:
    permissions = (PropertyPermissions("os", (PropertyPermission("", "r", 0),)),)
    definition = ObjectDefinition(UUID(int=0), "{}", permissions)
    set_definition(scene.deployment, OPERATOR, Scope(None, "runm.image"), "", definition)


def damaged(scene: Scene) -> None:
    scene.put_raw(scene.deployment.bound.table("objects"), UUID(int=400), b"\xff")


def partition_gone(scene: Scene) -> None:
    scene.deployment.runm.partitions.delete(UUID(WEST))


@pytest.mark.parametrize("by", [{}, BY_TAG], ids=["type", "tag"])
@pytest.mark.parametrize("change", [None, hidden_from_all, damaged, partition_gone])
def test_a_long_page_is_gone_on_with_as_the_long_way_does(
    by: dict[str, Any], change: Callable[[Scene], None] | None
) -> None:
    with keyplan.open("memory:") as store:
        scene = Scene(store, Random(1))
        for uuid in images(scene.deployment, 610)[300:310]:
            record = scene.deployment.runm.objects.get(uuid)
            assert record is not None
            scene.deployment.runm.objects.put(uuid, structs.replace(record, tags=()))
        request = a_find(by, options={"limit": 590}, roles=["r"])
        long, short = iter(scene.find(request, UNBOUNDED)), iter(scene.short(request, UNBOUNDED))
        begun = [[one.SerializeToString() for one in islice(long, 256)], list(islice(short, 256))]
        assert begun[0] == begun[1]
        if change is not None:
            change(scene)
        rest = [[one.SerializeToString() for one in long], list(short)]
        assert rest[0] == rest[1]
        assert len(rest[0]) == 334
        seen = [messages.Object.FromString(one) for one in rest[1]]
        assert all(one.properties for one in seen) is (change is not hidden_from_all)
        assert (UUID(int=400).hex in [one.uuid for one in seen]) is (change is not damaged)
