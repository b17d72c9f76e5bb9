"""The short way of a create against the long one: the same answers, the same bytes in the store, whatever came between."""

from collections.abc import Callable
from random import Random
from typing import Any, Final
from uuid import UUID

import pytest

import keyplan
from keyplan.apps.runm import object_calls, start
from keyplan.apps.runm.bounds import UNBOUNDED, Bounds
from keyplan.apps.runm.calls import GivenCall, performer
from keyplan.apps.runm.definitions import remove, set_definition
from keyplan.apps.runm.deployment import Deployment, Rulings
from keyplan.apps.runm.read_ahead import Scope
from keyplan.apps.runm.records import ObjectDefinition, PropertyPermission, PropertyPermissions
from keyplan.apps.runm.refusal import RefusedError
from keyplan.apps.runm.warm_creates import warm_create
from keyplan.apps.runm.wire_table import messages
from keyplan.engine import Commit, Engine, KeyRange, Snapshot, WrappedEngine
from keyplan.errors import CommitOutcomeUnknownError, KeyplanError
from keyplan.grpc_status import GrpcStatus
from keyplan.store import Store
from tests.apps.runm.changing import BOUNDS, KEYS, NAMES, OPERATOR, PROJECTS, SESSIONS, TYPES, UUIDS, Changing
from tests.apps.runm.client import EAST, PROJECT, WEST

SCHEMAS: Final = (
    "{}",
    '{"properties": {"properties": {"required": ["os"]}}}',
    '{"properties": {"properties": {"properties": {"os": {"type": "integer"}}, "additionalProperties": false}}}',
    '{"properties": {"properties": {"$ref": "#/definitions/none"}}}',
)
SESSION: Final = {"user": "u", "partition": "west", "project": PROJECT}
CREATE: Any = object_calls.object_create


class Making(Changing):
    """A deployment that changes, and objects that are made in it. Two of one seed do the same."""

    def __init__(self, store: Store, random: Random) -> None:
        super().__init__(store, random)
        self.deployment.rulings = Rulings(has_enforced_definitions=True)

    def define(self) -> None:
        pick = self.random.choice
        scope, uuid, schema = self.any_scope(), UUID(int=self.random.getrandbits(128)), pick(("{}", *SCHEMAS))
        permissions = tuple(
            PropertyPermissions(key, (PropertyPermission(pick(("", *PROJECTS)), pick(("", "r")), pick((0, 1, 3))),))
            for key in KEYS
            if pick((False, False, True))
        )
        definition = ObjectDefinition(UUID(int=0), schema, permissions)
        self.quietly(lambda: set_definition(self.deployment, OPERATOR, scope, uuid.hex, definition))

    def a_request(self) -> Any:
        """A request that is right half of the time, and else has something odd."""
        pick = self.random.choice
        kind = pick(TYPES)
        fresh = f"{self.random.getrandbits(128):032x}"
        given = {
            "partition": pick((EAST, WEST, WEST)),
            "object_type": kind,
            "project": pick(PROJECTS) if kind in {"runm.image", "runm.machine"} else "",
            "uuid": fresh,
            "name": f"n{fresh}",
            "properties": [{"key": key, "value": pick(("7", "v"))} for key in ("os", "site") if pick((0, 0, 1))],
            "tags": [tag for tag in ("a", "b", "a") if pick((False, False, True))],
            "generation": pick((0, 0, 5)),
        }
        odd = {
            "partition": (EAST.upper(), str(UUID(WEST)), UUID(int=5).hex, "west", ""),
            "object_type": (*TYPES, "none", ""),
            "project": (*PROJECTS, "", str(UUID(WEST)), "*"),
            "uuid": (pick(UUIDS).hex, str(pick(UUIDS)).upper(), "none"),
            "name": (*NAMES, "", "x" * 500, "a/b%", "\u20ac"),
            "properties": ([{"key": key, "value": ""} for key in (*KEYS, pick(("os", "z")))],),
            "tags": (["", "a"], [f"t{number}" for number in range(61)]),
        }
        for field in pick(((), self.random.sample(sorted(odd), 2))):
            given[field] = pick(odd[field])
        request = messages.ObjectCreateRequest(session=pick(SESSIONS), object=given)
        return messages.ObjectCreateRequest.FromString(
            request.SerializeToString() + pick((b"", b"\x12\x04\xa2\x3e\x01x"))
        )

    def stored(self) -> list[tuple[bytes, bytes]]:
        with self.deployment.store.engine.snapshot() as snapshot:
            return list(snapshot.pairs(KeyRange.of_prefix(self.deployment.bound.root)))


class Between(WrappedEngine):
    """An engine before whose next commit something happens, and which can be kept from reading."""

    def __init__(self, inner: Engine) -> None:
        super().__init__(inner, closes_inner=False)
        self.before_commit: list[Callable[[], object]] = []
        self.is_read = True

    def snapshot(self) -> Snapshot:
        assert self.is_read, "nothing is to be read"
        return self.inner.snapshot()

    def commit(self, commit: Commit) -> int:
        while self.before_commit:
            self.before_commit.pop()()
        return self.inner.commit(commit)


def answered(deployment: Deployment, request: Any, bounds: Bounds = UNBOUNDED) -> tuple[object, ...]:
    """What a call is answered, or refused with."""
    try:
        made = performer(deployment, CREATE.runm_handler[1])(request, bounds)
    except RefusedError as error:
        return error.status, error.text
    except KeyplanError as error:
        return error.code, ""
    answer: bytes = made.SerializeToString()
    return GrpcStatus.OK, answer


def a_create(number: int, **fields: object) -> Any:
    given = {"partition": WEST, "object_type": "runm.image", "project": PROJECT, "name": f"made {number}"}
    properties = [{"key": "os", "value": "7"}]
    return messages.ObjectCreateRequest(session=SESSION, object={**given, "properties": properties, **fields})


@pytest.mark.parametrize("seed", range(3))
def test_the_short_way_makes_what_the_long_one_makes(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "uuid4", lambda: UUID(int=7))
    gone_short: list[bool] = []

    def short(call: GivenCall) -> Any:
        made = warm_create(call)
        gone_short.append(made is not None)
        return made

    with keyplan.open("memory:") as one, keyplan.open("memory:") as other:
        scene, twin = Making(one, Random(seed)), Making(other, Random(seed))
        answers = 0
        for _ in range(150):
            for each in (scene, twin):
                each.change()
            bounds = scene.random.choice(BOUNDS)
            assert bounds is twin.random.choice(BOUNDS)
            for _ in range(8):
                request, same = scene.a_request(), twin.a_request()
                monkeypatch.setattr(object_calls, "warm_create", short)
                found = answered(scene.deployment, request, bounds)
                monkeypatch.setattr(object_calls, "warm_create", lambda _call: None)
                assert found == answered(twin.deployment, same, bounds), request
                answers += found[0] is GrpcStatus.OK
            assert scene.stored() == twin.stored()
        assert sum(gone_short) > answers / 2 > 20, "the short way has to be gone, too"


def test_a_warm_create_reads_nothing() -> None:
    with keyplan.open("memory:") as store:
        Making(store, Random(1))
        deployment = Deployment(Store(engine := Between(store.engine)))
        assert answered(deployment, a_create(1))[0] is GrpcStatus.OK
        engine.is_read = False
        status, answer = answered(deployment, a_create(2))
        assert status is GrpcStatus.OK
        assert isinstance(answer, bytes)
        made = messages.ObjectCreateResponse.FromString(answer).object
        assert made.generation == 1
        engine.is_read = True
        stored = deployment.runm.objects.get(UUID(made.uuid))
        assert stored is not None
        assert stored.name == "made 2"


def _fixed(scene: Changing, partition: UUID | None) -> None:
    permissions = (PropertyPermissions("os", (PropertyPermission("", "", 1),)),)
    definition = ObjectDefinition(UUID(int=0), "{}", permissions)
    set_definition(scene.deployment, OPERATOR, Scope(partition, "runm.image"), "", definition)


def _narrowed(scene: Changing) -> None:
    definition = ObjectDefinition(UUID(int=0), SCHEMAS[2].replace("integer", "boolean"))
    set_definition(scene.deployment, OPERATOR, Scope(None, "runm.image"), "", definition)


def _emptied(scene: Changing) -> None:
    scene.deployment.runm.partitions.delete(UUID(WEST))


def _renamed(scene: Changing) -> None:
    record = scene.deployment.runm.partitions.get(UUID(WEST))
    assert record is not None
    scene.deployment.runm.partitions.put(UUID(WEST), type(record)(record.uuid, "other"))


def _opened(scene: Changing) -> None:
    remove(scene.deployment, OPERATOR, Scope(UUID(WEST), "runm.image"))


@pytest.mark.parametrize(
    ("before", "between", "status"),
    [
        (None, lambda scene: _fixed(scene, UUID(WEST)), GrpcStatus.PERMISSION_DENIED),
        (None, lambda scene: _fixed(scene, None), GrpcStatus.PERMISSION_DENIED),
        (_narrowed, lambda scene: _fixed(scene, None), GrpcStatus.PERMISSION_DENIED),
        (None, _narrowed, GrpcStatus.INVALID_ARGUMENT),
        (None, _emptied, GrpcStatus.FAILED_PRECONDITION),
        (None, _renamed, GrpcStatus.FAILED_PRECONDITION),
    ],
)
@pytest.mark.parametrize("url", ["memory:", "lmdb"])
def test_what_changes_between_the_check_and_the_commit_counts(
    before: Callable[[Changing], None] | None,
    between: Callable[[Changing], None],
    status: GrpcStatus,
    url: str,
    tmp_path: Any,
) -> None:
    with keyplan.open(url if url == "memory:" else f"lmdb:{tmp_path}/store?durability=none&create=true") as store:
        scene = Making(store, Random(1))
        deployment = Deployment(Store(engine := Between(store.engine)), rulings=scene.deployment.rulings)
        if before is not None:
            scene.deployment.rulings = Rulings()
            before(scene)
            deployment.rulings = Rulings()
        assert answered(deployment, a_create(1))[0] is GrpcStatus.OK
        assert deployment.ahead.creators, "it is warm"
        held = scene.stored()

        def meanwhile() -> None:
            between(scene)
            held[:] = scene.stored()

        engine.before_commit.append(meanwhile)
        assert answered(deployment, a_create(2))[0] is status
        assert scene.stored() == held, "nothing was written"
        assert answered(deployment, a_create(2))[0] is status, "and so it stays"


def test_a_permission_that_goes_is_noticed() -> None:
    with keyplan.open("memory:") as store:
        scene = Making(store, Random(1))
        _fixed(scene, UUID(WEST))
        assert answered(scene.deployment, a_create(1, properties=[]))[0] is GrpcStatus.OK
        assert answered(scene.deployment, a_create(2))[0] is GrpcStatus.PERMISSION_DENIED
        _opened(scene)
        assert answered(scene.deployment, a_create(2))[0] is GrpcStatus.OK


def test_what_tells_one_caller_and_place_from_another_counts() -> None:
    of_role = PropertyPermission("", "r", 1)
    of_project = PropertyPermission(UUID(EAST).hex, "", 1)
    definition = ObjectDefinition(UUID(int=0), "{}", (PropertyPermissions("os", (of_role, of_project)),))
    with keyplan.open("memory:") as store:
        deployment = Making(store, Random(1)).deployment
        set_definition(deployment, OPERATOR, Scope(None, "runm.image"), "", definition)
        assert answered(deployment, a_create(1))[0] is GrpcStatus.OK
        with_role, nobodys, long, elsewhere = (a_create(number) for number in range(2, 6))
        with_role.session.roles.append("r")
        nobodys.session.user = ""
        long.object.properties.add(key="k" * 250, value="v" * 250)
        elsewhere.session.project = str(UUID(EAST))
        elsewhere.object.project = str(UUID(EAST)).upper()
        assert answered(deployment, with_role)[0] is GrpcStatus.PERMISSION_DENIED
        assert answered(deployment, nobodys)[0] is GrpcStatus.FAILED_PRECONDITION
        assert answered(deployment, long)[0] is GrpcStatus.INVALID_ARGUMENT
        assert answered(deployment, elsewhere)[0] is GrpcStatus.PERMISSION_DENIED
        del elsewhere.object.properties[:]
        for number in (6, 7):
            elsewhere.object.name = f"made {number}"
            status, answer = answered(deployment, elsewhere)
            assert status is GrpcStatus.OK
            assert isinstance(answer, bytes)
            assert messages.ObjectCreateResponse.FromString(answer).object.project == UUID(EAST).hex
        elsewhere.session.project, elsewhere.object.name = "*", "made 8"
        elsewhere.object.properties.add(key="os", value="7")
        assert answered(deployment, elsewhere, Bounds(has_every_project=True))[0] is GrpcStatus.PERMISSION_DENIED


def test_a_name_that_is_taken_costs_nothing_of_what_is_known() -> None:
    with keyplan.open("memory:") as store:
        scene = Making(store, Random(1))
        deployment = scene.deployment
        assert answered(deployment, a_create(1))[0] is GrpcStatus.OK
        (known,) = deployment.ahead.creators.values()
        assert answered(deployment, a_create(1))[0] is GrpcStatus.ALREADY_EXISTS
        assert answered(deployment, a_create(2))[0] is GrpcStatus.OK
        assert [*deployment.ahead.creators.values()] == [known]
        _fixed(scene, None)
        assert answered(deployment, a_create(3, properties=[]))[0] is GrpcStatus.OK
        assert answered(deployment, a_create(4, properties=[]))[0] is GrpcStatus.OK
        (later,) = deployment.ahead.creators.values()
        assert later != known, "what no longer holds is worked out anew"


def test_a_commit_whose_answer_was_lost_is_not_made_again() -> None:
    def lost() -> None:
        raise CommitOutcomeUnknownError(engine="memory", problem="lost")

    with keyplan.open("memory:") as store:
        scene = Making(store, Random(1))
        deployment = Deployment(Store(engine := Between(store.engine)))
        assert answered(deployment, a_create(1))[0] is GrpcStatus.OK
        held = scene.stored()
        engine.before_commit.append(lost)
        assert answered(deployment, a_create(2)) == (CommitOutcomeUnknownError.code, "")
        assert scene.stored() == held


def test_a_session_of_any_length_is_not_kept() -> None:
    with keyplan.open("memory:") as store:
        deployment = Making(store, Random(1)).deployment
        of_many_roles, of_a_long_name = a_create(1), a_create(2)
        of_many_roles.session.roles.extend(["r"] * 3_000)
        of_a_long_name.session.user = "u" * 3_000
        for request in (of_many_roles, of_a_long_name):
            assert answered(deployment, request)[0] is GrpcStatus.OK
        assert not deployment.ahead.creators


@pytest.mark.parametrize("of_definition", ["schema", "permissions"])
def test_what_a_large_definition_asks_for_is_not_kept_with_each_place(of_definition: str) -> None:
    schema, permissions = '{"title": "%s"}' % ("s" * 30_000), (PropertyPermission("", "", 1),)
    definition = (
        ObjectDefinition(UUID(int=0), schema)
        if of_definition == "schema"
        else ObjectDefinition(
            UUID(int=0), "{}", tuple(PropertyPermissions(f"key{number}", permissions) for number in range(400))
        )
    )
    with keyplan.open("memory:") as store:
        deployment = Making(store, Random(1)).deployment
        set_definition(deployment, OPERATOR, Scope(None, "runm.image"), "", definition)
        assert answered(deployment, a_create(1))[0] is GrpcStatus.OK
        assert not deployment.ahead.creators
