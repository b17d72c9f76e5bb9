"""Stores of the original's, made at random with all that it lets through: served whole, or refused until they are migrated.

What is answered is compared with a reader that looks at all raw records, one after the other.
"""

import re
from collections.abc import Iterator
from random import Random
from typing import Any, Final
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keyplan.apps.runm import definition_calls, front_calls, object_calls, partition_calls, type_calls, watching
from keyplan.apps.runm.calls import handlers_of, performer
from keyplan.apps.runm.deployment import Deployment
from keyplan.apps.runm.migrate import migrate
from keyplan.apps.runm.operations import ApiOperations, MetadataOperations
from keyplan.apps.runm.original import Decisions
from keyplan.apps.runm.refusal import RefusedError
from keyplan.apps.runm.start import ensure_started
from keyplan.apps.runm.verify import verify
from keyplan.apps.runm.wire_table import messages
from keyplan.engine import Commit, Delete, MemoryEngine, Put
from keyplan.errors import InvalidInputError
from keyplan.grpc_status import GrpcStatus
from keyplan.store import Store
from tests.apps.runm.conftest import ROOT
from tests.apps.runm.go_store import KINDS, PROJECT_KINDS, PROVIDER_KINDS, GoStore, odd_store

HANDLERS: Final = {
    **handlers_of(
        MetadataOperations, (partition_calls, type_calls, object_calls, definition_calls, watching)
    ),
    **{f"api.{name}": one for name, one in handlers_of(ApiOperations, (front_calls,)).items()},
}  # fmt: skip
KEPT: Final = {"index-not-ready", "unindexable-record", "duplicate-property"}
"""What verify says of a store that is served all the same."""


@given(seed=st.integers(0, 2**64))
@settings(max_examples=20, deadline=None)
def test_a_store_of_the_originals_is_served_whole_or_refused_until_it_is_migrated(seed: int) -> None:
    random = Random(seed)
    go = odd_store(random)
    store = Store(MemoryEngine())
    store.engine.commit(Commit((), tuple(Put(ROOT + key.encode(), value) for key, value in go.keys.items())))
    deployment = Deployment(store)
    before = store.revision
    decided = Decided()
    if _is_refused(deployment):
        assert store.revision == before
        while left := [step for step in migrate(store, "", is_dry_run=True, decisions=decided.all) if step.is_left]:
            for step in left:
                decided.decide(store, step.key, step.what)
        planned = list(migrate(store, "", is_dry_run=True, decisions=decided.all))
        done = list(migrate(store, "", is_dry_run=False, decisions=decided.all))
        # Why not their words: of two records that pass a key on, the second finds its old entry gone already.
        assert len(done) == len(planned)
        deployment = Deployment(store)
        ensure_started(deployment)
    list(migrate(store, "", is_dry_run=False))
    assert list(migrate(store, "", is_dry_run=False)) == []
    wrong = {one for one in verify(store, "") if one.code not in KEPT}
    assert not {one for one in wrong if one.code != "missing-entry" or "by-name" in one.key}
    _compare(deployment, Reader(go, decided), random)


def _is_refused(deployment: Deployment) -> bool:
    try:
        ensure_started(deployment)
    except InvalidInputError as error:
        return "keyplan runm migrate --yes" in str(error)
    return False


class Decided:
    """Decides what a migration leaves, by the words in which it asks, and keeps what was decided."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}
        self.projects: dict[str, str] = {}
        self.uuids: dict[str, UUID] = {}
        self.dropped: set[str] = set()

    @property
    def all(self) -> Decisions:
        return Decisions(names=self.names, projects=self.projects, uuids=self.uuids)

    def decide(self, store: Store, key: str, words: str) -> None:
        asked = re.search(r"--(uuid|rename|project) (\S+)=[A-Z]", words)
        if asked is None:
            assert "keyplan raw delete" in words
            store.engine.commit(Commit((), (Delete(key.encode()),)))
            self.dropped.add(key.removeprefix(ROOT.decode()))
        elif asked[1] == "uuid":
            self.uuids[asked[2]] = UUID(int=2**100 + len(self.uuids))
        elif asked[1] == "rename":
            self.names[asked[2]] = f"given-{len(self.names)}"
        else:
            self.projects[asked[2]] = "given"


# ---- the slow reader ---------------------------------------------------------------------------------------------------


class Reader:
    """Answers every list from all raw records of the original's store, as they were, and what was decided of them."""

    def __init__(self, go: GoStore, decided: Decided) -> None:
        self._go = go
        self._decided = decided
        self.partitions = [
            messages.Partition(uuid=self._uuid(one.uuid), name=self._name(self._uuid(one.uuid), one.name))
            for one in go.records("partitions")
        ]
        self.objects = [self._object(one) for one in go.records("objects")]

    def _uuid(self, text: str) -> str:
        found = self._decided.uuids.get(text)
        return text if found is None else found.hex

    def _name(self, uuid: str, name: str) -> str:
        return self._decided.names.get(uuid, name)

    def _object(self, raw: Any) -> Any:
        found = messages.Object()
        found.CopyFrom(raw)
        found.uuid, found.partition = self._uuid(raw.uuid), self._uuid(raw.partition)
        found.name = self._name(found.uuid, raw.name)
        project = self._decided.projects.get(found.uuid, spelled(raw.project))
        found.project = project if raw.object_type in PROJECT_KINDS else ""
        return found

    def _hides(self, partition: str, project: str) -> bool:
        """Whether the property k of providers is not to be read: by the partition's own definition alone."""
        for key, value in self._go.keys.items():
            words = key.split("/")
            is_own = words[0] == "partitions" and words[2:3] == ["definitions"] and spelled(words[1]) == partition
            if is_own and key not in self._decided.dropped:
                raw = self._go.keys[f"definitions/by-uuid/{value.decode()}"]
                (entry,) = messages.ObjectDefinition.FromString(raw).property_permissions[0].permissions
                return entry.permission == 0 and spelled(entry.project) in {"", project}
        return False

    def seen(self, partition: str, project: str) -> Iterator[Any]:
        """Objects that a session of a partition and project may see somewhere, as it sees them."""
        for one in self.objects:
            if one.object_type in PROJECT_KINDS and one.project != project:
                continue
            shown = messages.Object()
            shown.CopyFrom(one)
            if one.object_type == "runm.provider" and self._hides(one.partition, project):
                kept = [item for item in one.properties if item.key != "k"]
                del shown.properties[:]
                shown.properties.extend(kept)
            yield shown


def spelled(text: str) -> str:
    digits = text.replace("-", "").lower()
    return digits if len(digits) == 32 and len(text) in {32, 36} and not set(digits) - set("0123456789abcdef") else text


def matches(text: str, wanted: str, *, is_prefix: bool) -> bool:
    return text.startswith(wanted) if is_prefix else text == wanted


def fits(one: Any, given: dict[str, Any], partition: str) -> bool:
    if one.partition not in (given.get("partition_filter", {}).get("uuids") or [partition]):
        return False
    for filter_name, part, text in (
        ("object_type_filter", "code_filter", one.object_type),
        ("uuid_filter", "uuid", one.uuid),
        ("name_filter", "name", one.name),
    ):
        wanted = given.get(filter_name, {})
        wanted = wanted.get(part, {}) if part == "code_filter" else wanted
        word = wanted.get("code" if part == "code_filter" else part, "")
        if word and not matches(text, word, is_prefix=wanted.get("use_prefix", False)):
            return False
    items = [(item.key, item.value) for item in one.properties]
    for lists, there in (
        (given.get("property_filter", {}), {"_items": items, "_keys": [key for key, _ in items]}),
        (given.get("tag_filter", {}), {"": list(one.tags)}),
    ):
        for ending, own in there.items():
            asked = {word: lists.get(word + ending, []) for word in ("require", "forbid", "any")}
            plain = {
                word: [tuple(i.values()) if ending == "_items" else i for i in given] for word, given in asked.items()
            }
            if any(i not in own for i in plain["require"]) or any(i in own for i in plain["forbid"]):
                return False
            if plain["any"] and not any(i in own for i in plain["any"]):
                return False
    return True


# ---- the comparison ----------------------------------------------------------------------------------------------------


def _compare(deployment: Deployment, reader: Reader, random: Random) -> None:
    def asked(call: str, **fields: Any) -> Any:
        handler = HANDLERS[call]
        answer = performer(deployment, handler)(getattr(messages, handler.declared.request)(session=session, **fields))
        return list(answer) if handler.declared.is_stream else answer

    for partition in reader.partitions:
        for project in sorted({one.project for one in reader.objects} | {"p"} - {""}):
            if not project:
                continue
            session = {"user": "u", "project": project, "partition": partition.uuid}
            seen = list(reader.seen(partition.uuid, project))
            for _ in range(6):
                _compare_searches(asked, seen, partition.uuid, random)
            _compare_providers(
                asked, [one for one in seen if one.object_type == "runm.provider"], partition.uuid, random
            )
            _compare_names(deployment, asked, [one for one in seen if one.partition == partition.uuid])
    session = {"user": "u", "project": "p", "partition": reader.partitions[0].uuid}
    _compare_partitions(asked, reader, random)
    for call, every in (("object_type_find", sorted(KINDS)), ("provider_type_find", sorted(PROVIDER_KINDS))):
        for code in ("runm.", "runm.provider", "runm.compute", "x"):
            for use_prefix in (True, False):
                found = asked(call, any=[{"code_filter": {"code": code, "use_prefix": use_prefix}}])
                assert [one.code for one in found] == [one for one in every if matches(one, code, is_prefix=use_prefix)]


def _compare_searches(asked: Any, seen: list[Any], partition: str, random: Random) -> None:
    filters = [_filter(seen, partition, random) for _ in range(random.randrange(3))]
    expected = sorted(
        (one for one in seen if any(fits(one, given, partition) for given in filters or [{}])), key=lambda one: one.uuid
    )
    found = asked("object_find", any=filters)
    assert [_content(one) for one in found] == [_content(one) for one in expected], filters
    pages: list[str] = []
    while page := asked("object_find", any=filters, options={"limit": 2, "marker": pages[-1] if pages else ""}):
        pages += [one.uuid for one in page]
    assert pages == [one.uuid for one in expected], filters


def _filter(seen: list[Any], partition: str, random: Random) -> dict[str, Any]:
    one = random.choice([*seen, messages.Object(uuid="0" * 32, name="n", object_type="runm.image")])
    word = random.choice(("require", "forbid", "any"))
    parts: dict[str, Any] = {
        "partition_filter": {"uuids": sorted({partition, one.partition} - {""})},
        "object_type_filter": {
            "code_filter": random.choice([{"code": one.object_type}, {"code": "runm.p", "use_prefix": True}])
        },
        "uuid_filter": random.choice([{"uuid": one.uuid}, {"uuid": one.uuid[:2], "use_prefix": True}]),
        "name_filter": {"name": random.choice([one.name, one.name[:1], "n"]), "use_prefix": random.random() < 0.5},
        "property_filter": {
            random.choice([f"{word}_items", "any_items"]): [
                {"key": random.choice(["k", "k/k"]), "value": random.choice(["v", "v/v"])}
            ],
            f"{word}_keys": [random.choice(["k", "kk"])],
        },
        "tag_filter": {word: [random.choice(["t", "t/t", "tt"])]},
    }
    return {name: parts[name] for name in random.sample(sorted(parts), random.randrange(3))}


def _compare_providers(asked: Any, providers: list[Any], partition: str, random: Random) -> None:
    for use_prefix in (True, False):
        search = random.choice([*(one.name for one in providers), *(one.uuid for one in providers), "n"])
        expected = sorted(
            one.uuid
            for one in providers
            if one.partition == partition
            and (matches(one.name, search, is_prefix=use_prefix) or matches(one.uuid, search, is_prefix=use_prefix))
        )
        found = asked("api.provider_list", any=[{"primary_filter": {"search": search, "use_prefix": use_prefix}}])
        assert [one.uuid for one in found] == expected
    every = asked("api.provider_list")
    assert [one.uuid for one in every] == sorted(one.uuid for one in providers if one.partition == partition)


def _compare_names(deployment: Deployment, asked: Any, own: list[Any]) -> None:
    """Each object is found by its name, and the name is taken from the first call on."""
    for one in own:
        assert asked("object_get_by_name", object_type_code=one.object_type, name=one.name).uuid == one.uuid
        made = {"partition": one.partition, "object_type": one.object_type, "project": one.project, "name": one.name}
        with pytest.raises(RefusedError) as caught:
            asked("object_create", object=made)
        assert caught.value.status is GrpcStatus.ALREADY_EXISTS


def _compare_partitions(asked: Any, reader: Reader, random: Random) -> None:
    for search in [
        "part",
        "a",
        "a/",
        "a/b",
        "x",
        *(one.uuid[:1] for one in reader.partitions),
        *(one.uuid for one in reader.partitions),
    ]:
        for use_prefix in (True, False):
            named = [one.uuid for one in reader.partitions if matches(one.name, search, is_prefix=use_prefix)]
            identified = [one.uuid for one in reader.partitions if matches(one.uuid, search, is_prefix=use_prefix)]
            by_name = {"name_filter": {"name": search, "use_prefix": use_prefix}}
            assert [one.uuid for one in asked("partition_find", any=[by_name])] == sorted(named)
            listed = asked("api.partition_list", any=[{"primary_filter": {"search": search, "use_prefix": use_prefix}}])
            assert [one.uuid for one in listed] == sorted({*named, *identified})
    assert [one.uuid for one in asked("partition_find")] == sorted(one.uuid for one in reader.partitions)


def _content(one: Any) -> tuple[Any, ...]:
    items = sorted((item.key, item.value) for item in one.properties)
    return one.uuid, one.partition, one.object_type, one.project, one.name, items, sorted(one.tags)
