"""The short way of the two gets against the long one: whatever the store holds, whatever has changed since the call before."""

from collections.abc import Callable, Iterator
from itertools import chain, product
from random import Random
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from msgspec import structs

import keyplan
from keyplan.apps.runm import object_calls
from keyplan.apps.runm.bounds import UNBOUNDED, Bounds
from keyplan.apps.runm.calls import Handler, performer
from keyplan.apps.runm.definitions import set_definition
from keyplan.apps.runm.deployment import Deployment
from keyplan.apps.runm.read_ahead import Scope
from keyplan.apps.runm.records import (
    Object,
    ObjectDefinition,
    ObjectType,
    ObjectTypeScope,
    Partition,
    Property,
    PropertyPermission,
    PropertyPermissions,
)
from keyplan.apps.runm.refusal import RefusedError
from keyplan.apps.runm.start import ensure_started
from keyplan.apps.runm.warm_gets import WarmGetByUuid
from keyplan.apps.runm.wire_table import messages
from keyplan.engine import Engine, Fences, Snapshot, WrappedEngine, WrappedSnapshot
from keyplan.errors import KeyplanError
from keyplan.maintenance import prepare_index
from keyplan.store import NotedState, Store
from tests.apps.runm.changing import BOUNDS, NAMES, OPERATOR, PARTITIONS, PROJECTS, SESSIONS, TYPES, UUIDS, Changing
from tests.apps.runm.client import EAST, PROJECT, WEST


class Ways(NamedTuple):
    """Both ways of one call."""

    short: Callable[[Any, Bounds], bytes | None]
    long: Callable[[Any, Bounds], Any]

    def answer_of_the_long(self, request: Any, bounds: Bounds) -> bytes | None:
        """What the long way answers; None for any error."""
        try:
            answer: bytes = self.long(request, bounds).SerializeToString()
        except (RefusedError, KeyplanError):
            return None
        return answer


class Scene(Changing):
    """A deployment that changes, and the two gets of it."""

    def __init__(self, store: keyplan.Store, random: Random) -> None:
        super().__init__(store, random)
        self.by_uuid, self.by_name = (
            ways_of(self.deployment, call)
            for call in (object_calls.object_get_by_uuid, object_calls.object_get_by_name)
        )

    def requests(self) -> Iterator[tuple[Ways, Any]]:
        session = self.random.choice(SESSIONS)
        for uuid in UUIDS:
            yield (
                self.by_uuid,
                messages.ObjectGetByUuidRequest(session=session, uuid=self.random.choice((uuid.hex, str(uuid)))),
            )
        for kind, name in product(TYPES, NAMES):
            request = messages.ObjectGetByNameRequest(session=session, object_type_code=kind, name=name)
            request.project = self.random.choice(("", *PROJECTS))
            request.partition_uuid = self.random.choice(("", "", EAST))
            yield self.by_name, request


class MeanwhileSnapshot(WrappedSnapshot):
    """A snapshot with something that another thread does when its first fences were found to hold."""

    def __init__(self, inner: Snapshot, meanwhile: Callable[[], object]) -> None:
        super().__init__(inner)
        self._meanwhile: list[Callable[[], object]] = [meanwhile]

    def holds(self, fences: Fences) -> bool:
        is_so = super().holds(fences)
        while is_so and self._meanwhile:
            self._meanwhile.pop()()
        return is_so


class MeanwhileEngine(WrappedEngine):
    """An engine that gives certain snapshots next, the last of them first."""

    def __init__(self, inner: Engine) -> None:
        super().__init__(inner, closes_inner=False)
        self.next_snapshots: list[Snapshot] = []

    def snapshot(self) -> Snapshot:
        return self.next_snapshots.pop() if self.next_snapshots else self.inner.snapshot()


def ways_of(deployment: Deployment, call: Any) -> Ways:
    handler: Handler = call.runm_handler[1]
    assert handler.short is not None
    return Ways(handler.short(deployment), performer(deployment, handler))


@pytest.mark.parametrize("seed", range(4))
def test_the_short_way_says_what_the_long_one_says_or_nothing(seed: int) -> None:
    with keyplan.open("memory:") as store:
        scene, answered, all_answers = Scene(store, Random(seed)), 0, 0
        for _ in range(100):
            scene.change()
            bounds = scene.random.choice(BOUNDS)
            for ways, request in chain(*(scene.requests() for _ in range(3))):
                expected = ways.answer_of_the_long(request, bounds)
                short = ways.short(request, bounds)
                assert short is None or short == expected, request
                all_answers += expected is not None
                answered += short is not None
        assert answered > all_answers / 4, "the short way has to be gone, too"


def test_a_warm_get_goes_the_short_way() -> None:
    with keyplan.open("memory:") as store:
        scene = Scene(store, Random(1))
        uuid, partition = UUIDS[0], UUID(WEST)
        scene.deployment.runm.objects.insert(uuid, Object(partition, "runm.image", uuid, "one", PROJECT))
        session = {"user": "u", "partition": "west", "project": PROJECT}
        by_uuid = messages.ObjectGetByUuidRequest(session=session, uuid=uuid.hex)
        by_name = messages.ObjectGetByNameRequest(session=session, object_type_code="runm.image", name="one")
        scene.by_name.long(by_name, UNBOUNDED)
        for ways, request in ((scene.by_uuid, by_uuid), (scene.by_name, by_name)):
            answer = ways.answer_of_the_long(request, UNBOUNDED)
            assert answer is not None
            assert ways.short(request, UNBOUNDED) == answer
        prepare_index(store, scene.deployment.bound, "objects_by_project_and_name")
        assert scene.by_uuid.short(by_uuid, UNBOUNDED) is not None
        assert scene.by_name.short(by_name, UNBOUNDED) is None, "a name that may be another's by now is no answer"


def test_what_holds_for_a_type_falls_with_the_session_that_it_was_asked_for_by() -> None:
    with keyplan.open("memory:") as store:
        scene = Scene(store, Random(1))
        runm, (east, west) = scene.deployment.runm, PARTITIONS
        session = {"user": "u", "partition": "east", "project": PROJECT}
        requests = []
        for uuid, kind in zip(UUIDS, ("runm.image", "runm.machine"), strict=False):
            runm.objects.insert(uuid, Object(east, kind, uuid, "one", PROJECT))
            requests.append(messages.ObjectGetByUuidRequest(session=session, uuid=uuid.hex))
        for request in requests:
            assert scene.by_uuid.short(request, UNBOUNDED) is not None
        for uuid, name in ((east, "other"), (west, "east")):
            runm.partitions.put(uuid, Partition(uuid, name))
        assert [scene.by_uuid.short(request, UNBOUNDED) for request in reversed(requests)] == [None, None]


def test_what_another_thread_found_in_an_older_state_is_no_answer_here() -> None:
    with keyplan.open("memory:") as store:
        scene = Scene(store, Random(1))
        image, machine = UUIDS[:2]
        for uuid, kind in ((image, "runm.image"), (machine, "runm.machine")):
            record = Object(UUID(WEST), kind, uuid, "one", PROJECT, (Property("secret", "s"),))
            scene.deployment.runm.objects.insert(uuid, record)
        short = WarmGetByUuid(Deployment(Store(engine := MeanwhileEngine(store.engine))))
        of_image, of_machine = (
            messages.ObjectGetByUuidRequest(session={"user": "u", "partition": WEST, "project": PROJECT}, uuid=uuid.hex)
            for uuid in (image, machine)
        )
        assert short(of_image, UNBOUNDED) is not None
        engine.next_snapshots.append(engine.inner.snapshot())
        hidden = PropertyPermissions("secret", (PropertyPermission("", "", 0),))
        definition = ObjectDefinition(UUID(int=0), "{}", (hidden,))
        set_definition(scene.deployment, OPERATOR, Scope(UUID(WEST), "runm.machine"), "", definition)
        between: list[bytes | None] = []
        engine.next_snapshots.append(
            MeanwhileSnapshot(engine.inner.snapshot(), lambda: between.append(short(of_machine, UNBOUNDED)))
        )
        answer = short(of_machine, UNBOUNDED)
        assert [messages.Object.FromString(one or b"").properties[0].value for one in between] == ["s"]
        for later in (answer, short(of_machine, UNBOUNDED), short(of_machine, UNBOUNDED)):
            assert later is None or not messages.Object.FromString(later).properties


def test_a_type_that_is_read_anew_is_asked_again_whether_its_objects_have_projects() -> None:
    with keyplan.open("memory:") as store:
        scene = Scene(store, Random(1))
        runm, uuid = scene.deployment.runm, UUIDS[0]
        runm.objects.insert(uuid, Object(UUID(WEST), "runm.image", uuid, "one", "p2"))
        session = {"user": "u", "partition": WEST, "project": PROJECT}
        request = messages.ObjectGetByUuidRequest(session=session, uuid=uuid.hex)
        kind = runm.object_types.get("runm.image")
        assert kind is not None
        runm.object_types.put("runm.image", structs.replace(kind, scope=ObjectTypeScope.PARTITION))
        scene.deployment.object_types()
        assert (
            scene.by_uuid.short(request, UNBOUNDED) == scene.by_uuid.answer_of_the_long(request, UNBOUNDED) is not None
        )
        runm.object_types.put("runm.image", kind)
        scene.deployment.object_types()
        assert scene.by_uuid.answer_of_the_long(request, UNBOUNDED) is None
        assert scene.by_uuid.short(request, UNBOUNDED) is None


def test_a_session_that_sees_many_types_is_kept_with_few_of_them() -> None:
    with keyplan.open("memory:") as store:
        scene = Scene(store, Random(1))
        runm, requests = scene.deployment.runm, []
        session = {"user": "u", "partition": WEST, "project": PROJECT}
        for number in range(60):
            uuid, code = UUID(int=number + 1), f"test.kind{number}"
            runm.object_types.insert(code, ObjectType(code, scope=ObjectTypeScope.PROJECT))
            runm.objects.insert(uuid, Object(UUID(WEST), code, uuid, "one", PROJECT))
            requests.append(messages.ObjectGetByUuidRequest(session=session, uuid=uuid.hex))
        for request in requests * 2:
            assert scene.by_uuid.short(request, UNBOUNDED) == scene.by_uuid.answer_of_the_long(request, UNBOUNDED)
            (known,) = scene.deployment.ahead.sessions.values() or (None,)
            assert known is None or len(known.fences) <= 64


def test_a_definition_of_any_size_is_not_kept_with_each_session() -> None:
    with keyplan.open("memory:") as store:
        scene = Scene(store, Random(1))
        record = Object(
            UUID(WEST), "runm.image", UUIDS[0], "one", PROJECT, (Property("secret", "s"), Property("os", "o"))
        )
        scene.deployment.runm.objects.insert(record.uuid, record)
        hidden = (PropertyPermission("", "", 0),)
        entries = tuple(PropertyPermissions(key, hidden) for key in ("secret", *map(str, range(2_000))))
        scope = Scope(UUID(WEST), "runm.image")
        set_definition(scene.deployment, OPERATOR, scope, "", ObjectDefinition(UUID(int=0), "{}", entries))
        for user in map(str, range(5)):
            session = {"user": user, "partition": WEST, "project": PROJECT}
            request = messages.ObjectGetByUuidRequest(session=session, uuid=record.uuid.hex)
            answers = {scene.by_uuid.short(request, UNBOUNDED) for _ in range(2)}
            assert answers == {scene.by_uuid.answer_of_the_long(request, UNBOUNDED)}
        for known in scene.deployment.ahead.sessions.values():
            assert sum(len(value or b"") for _, value in known.fences) <= 20_000


def test_a_type_that_is_read_anew_beside_a_call_shows_nothing_of_other_projects(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with keyplan.open("memory:") as store:
        scene = Scene(store, Random(1))
        runm, uuid = scene.deployment.runm, UUIDS[0]
        runm.objects.insert(uuid, Object(UUID(WEST), "runm.image", uuid, "one", "p2"))
        request = messages.ObjectGetByUuidRequest(
            session={"user": "u", "partition": WEST, "project": PROJECT}, uuid=uuid.hex
        )
        kind = runm.object_types.get("runm.image")
        assert kind is not None
        runm.object_types.put("runm.image", structs.replace(kind, scope=ObjectTypeScope.PARTITION))
        scene.deployment.object_types()
        runm.object_types.put("runm.image", kind)
        has_project = scene.deployment.has_project

        def beside_another(record: Object) -> bool:
            found = has_project(record)
            scene.deployment.object_types()
            return found

        monkeypatch.setattr(scene.deployment, "has_project", beside_another)
        assert [scene.by_uuid.short(request, UNBOUNDED) for _ in range(3)] == [None] * 3


def test_who_changes_a_definition_makes_nobody_else_slow() -> None:
    with keyplan.open("memory:") as store:
        scene = Scene(store, Random(1))
        requests = []
        for uuid, kind in zip(UUIDS, ("runm.image", "runm.machine"), strict=False):
            scene.deployment.runm.objects.insert(uuid, Object(UUID(WEST), kind, uuid, kind, PROJECT))
            session = {"user": kind, "partition": WEST, "project": PROJECT}
            requests.append(messages.ObjectGetByUuidRequest(session=session, uuid=uuid.hex))
        of_image, of_machine = requests
        short, sessions = scene.by_uuid.short, scene.deployment.ahead.sessions
        assert None not in {short(of_machine, UNBOUNDED), short(of_image, UNBOUNDED)}
        (machine_key, image_key), known = sessions, dict(sessions)
        definition = ObjectDefinition(UUID(int=0), "{}")
        set_definition(scene.deployment, OPERATOR, Scope(UUID(WEST), "runm.machine"), "", definition)
        assert short(of_machine, UNBOUNDED) is None
        assert short(of_image, UNBOUNDED)
        assert sessions == {image_key: known[image_key]}, machine_key


def test_a_session_of_any_length_is_not_kept() -> None:
    with keyplan.open("memory:") as store:
        scene = Scene(store, Random(1))
        scene.deployment.runm.objects.insert(UUIDS[0], Object(UUID(WEST), "runm.image", UUIDS[0], "one", PROJECT))
        long_ones = ({"user": "u" * 3_000}, {"user": "u", "roles": ["r"] * 3_000})
        for session in ({"partition": WEST, "project": PROJECT} | one for one in long_ones):
            request = messages.ObjectGetByUuidRequest(session=session, uuid=UUIDS[0].hex)
            assert scene.by_uuid.short(request, UNBOUNDED) is None
            assert scene.by_uuid.answer_of_the_long(request, UNBOUNDED) is not None
        assert not scene.deployment.ahead.sessions


def test_a_state_notes_what_views_read_and_no_histories() -> None:
    with keyplan.open("memory:") as store:
        deployment = Deployment(store)
        ensure_started(deployment)
        table = deployment.bound.table("object_types")
        raw_key = table.keys.encode("runm.image")
        with store.engine.snapshot() as snapshot:
            noted = NotedState.over(snapshot, store.engine)
            noted.read_ahead((table, "runm.image"), (table, "runm.machine"))
            runm = deployment.runm.over(noted)
            assert noted.fences() == ()
            runm.object_types.get("runm.image")
            assert noted.fences() == ((raw_key, snapshot.value(raw_key)),)
            assert noted.entry(raw_key) == snapshot.get(raw_key)
            assert not runm.object_types.exists("runm.none")
            assert noted.fences() == ((raw_key, snapshot.value(raw_key)), (table.keys.encode("runm.none"), None))
            kept = noted.entry(raw_key)
            assert kept is not None
            assert kept.version == 1
            found = runm.object_types.list()
            assert noted.fences() is not None
            next(found)
            assert noted.fences() is None
            versioned = runm.object_types.versioned("runm.image")
            assert versioned is not None
            assert (versioned.version, versioned.revision) == (0, 0)
