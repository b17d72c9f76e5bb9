"""Who may do what, with an access file: each call by each principal, and two tenants who try to cross."""

import inspect
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any, Final

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from keyplan.apps.runm import (
    cli_client,
    constraint,
    definition_calls,
    dispatch,
    front_calls,
    object_calls,
    partition_calls,
    providers,
    session,
    type_calls,
    watching,
)
from keyplan.apps.runm.deployment import Deployment
from keyplan.apps.runm.dispatch import Dispatcher
from keyplan.apps.runm.operations import ApiOperations, MetadataOperations
from keyplan.apps.runm.watch_places import WATCHES_OF_CALLER_MAX
from keyplan.operations import Act, Need, On, OnKind, rpcs_of
from keyplan.store import Store
from tests.apps.runm.client import EAST, I1, I2, WEST, Client, refused
from tests.apps.runm.counting import CountingEngine
from tests.apps.runm.principals import PRINCIPALS, Guarded, guarded, token_of

W: Final = "us-west.example.com"
E: Final = "us-east.example.com"
SCHEMA: Final = json.dumps({"type": "object"})
DEFINITION: Final = {"schema": SCHEMA}
ANN: Final = {"user": "ann", "project": "p1", "partition": W}
RIVAL: Final = {"user": "rival", "project": "p2", "partition": E}
ROOT: Final = {"user": "root", "project": "p1", "partition": W}
EVERY: Final = {**ROOT, "project": "*"}


@pytest.fixture
def running(lmdb_store: Store, tmp_path: Path) -> Iterator[Guarded]:
    with guarded(lmdb_store, tmp_path) as found:
        yield found


# ---- each call by each principal ---------------------------------------------------------------------------------------

READS: Final = [
    "RunmMetadata/partition_get_by_uuid",
    "RunmMetadata/partition_get_by_name",
    "RunmMetadata/partition_find",
    "RunmMetadata/object_type_get_by_code",
    "RunmMetadata/object_type_find",
    "RunmMetadata/object_get_by_uuid",
    "RunmMetadata/object_get_by_name",
    "RunmMetadata/object_find",
    "RunmMetadata/provider_type_get_by_code",
    "RunmMetadata/provider_type_find",
    "RunmMetadata/provider_definition_get_global_default",
    "RunmMetadata/provider_definition_get_by_partition",
    "RunmMetadata/provider_definition_get_by_type",
    "RunmMetadata/provider_definition_get_by_partition_and_type",
    "RunmMetadata/object_deleted_find",
    "RunmMetadata/object_watch",
    "RunmMetadata/definition_get",
    "RunmMetadata/definition_history",
    "RunmAPI/partition_get",
    "RunmAPI/partition_list",
    "RunmAPI/provider_type_get",
    "RunmAPI/provider_type_list",
    "RunmAPI/provider_definition_get",
    "RunmAPI/provider_get",
    "RunmAPI/provider_list",
]
WRITES: Final = [
    "RunmMetadata/object_delete_by_uuids",
    "RunmMetadata/object_create",
    "RunmMetadata/object_update",
    "RunmMetadata/object_modify",
    "RunmMetadata/object_restore",
    "RunmAPI/provider_create",
    "RunmAPI/provider_delete",
]
ADMINISTERS: Final = [
    "RunmMetadata/partition_create",
    "RunmMetadata/provider_definition_set",
    "RunmMetadata/definition_set",
    "RunmMetadata/definition_delete",
    "RunmAPI/partition_create",
    "RunmAPI/provider_definition_set",
]
FREE: Final = ["RunmMetadata/bootstrap"]
EVERY_CALL: Final = [*READS, *WRITES, *ADMINISTERS, *FREE]

MAY: Final[dict[str, list[str]]] = {
    "acme": [*READS, *WRITES, *FREE],
    "rival": EVERY_CALL,
    "root": EVERY_CALL,
    "reader": [*READS, *FREE],
    "auditor": FREE,
    "founder": ["RunmMetadata/partition_create", "RunmAPI/partition_create", "RunmMetadata/partition_find", *FREE],
    "tenants": [*READS, *WRITES, *FREE],
}
"""The table that the service is held against, written by hand."""


def test_each_call_is_in_the_table() -> None:
    declared = [
        f"{interface.service}/{name}"
        for interface in (MetadataOperations, ApiOperations)
        for name in rpcs_of(interface)
    ]
    assert sorted(EVERY_CALL) == sorted(declared)
    assert len(declared) == 39
    assert MAY.keys() == PRINCIPALS.keys()


@pytest.mark.parametrize("name", [*MAY, None, "nobody"])
def test_a_principal_may_make_the_calls_that_the_table_has_and_no_others(running: Guarded, name: str | None) -> None:
    """A call that may be made is answered in some other way: it lacks a session or a field."""
    found = []
    for path in EVERY_CALL:
        service, _, call = path.partition("/")
        client = running.by(name, service)
        error = client.raw(call, b"")
        status = error.code().name if isinstance(error, grpc.RpcError) else "OK"
        if name is None or name == "nobody":
            assert status == "UNAUTHENTICATED", path
            running.clock.seconds += 60  # A guess comes back in three: otherwise the last of them are refused unseen.
        elif status != "PERMISSION_DENIED":
            assert status in {"OK", "FAILED_PRECONDITION", "INVALID_ARGUMENT", "NOT_FOUND", "CANCELLED"}, path
            found.append(path)
    assert sorted(found) == sorted(MAY.get(name or "", []))


def test_a_call_without_a_need_that_can_be_decided_cannot_be_served(
    lmdb_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment = Deployment(lmdb_store)
    handlers = dispatch._HANDLERS[MetadataOperations]
    handler = handlers["object_find"]
    declared = replace(handler.declared, needs=Need(Act.READ, On(OnKind.KEY_SPACE, "partition")))
    wrong = {**handlers, "object_find": handler._replace(declared=declared)}
    monkeypatch.setattr(dispatch, "_HANDLERS", {MetadataOperations: wrong})
    with pytest.raises(LookupError, match="object_find does not declare what is needed"):
        Dispatcher(deployment, Event()).handlers()
    with pytest.raises(AttributeError):
        replace(handler.declared, needs=None)  # type: ignore[arg-type]


def test_what_answers_clients_looks_at_partitions_within_bounds_alone() -> None:
    """`state.partitions` is that view; the table itself and its index are for what the service does for itself."""
    modules = (constraint, definition_calls, front_calls, object_calls, providers, session, type_calls, watching)
    for module in (*modules, partition_calls):
        source = inspect.getsource(module)
        found = re.findall(r"runm\.partitions\w*\.(\w+)", source)
        # Why: what makes a partition asks the bounds itself, and there is nothing to see in what it stores.
        assert set(found) <= ({"insert"} if module is partition_calls else set[str]()), module.__name__


# ---- sessions ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "claimed"),
    [
        ("acme", {**ANN, "user": "admin"}),
        ("acme", {**ANN, "project": "p2"}),
        ("acme", {**ANN, "partition": E}),
        ("acme", {**ANN, "partition": EAST}),
        ("acme", {**ANN, "partition": "nowhere"}),
        ("acme", {**ANN, "partition": "1" * 32}),
        ("acme", {**ANN, "roles": ["admin"]}),
        ("acme", {**ANN, "roles": ["member", "admin"]}),
        ("rival", {**RIVAL, "partition": W}),
        ("rival", {**RIVAL, "user": "ann"}),
        ("root", {**ROOT, "user": "ann"}),
        ("root", {**ROOT, "roles": ["admin"]}),
        ("reader", {**ROOT}),
    ],
)
def test_a_session_that_claims_more_is_refused(running: Guarded, name: str, claimed: dict[str, Any]) -> None:
    for service, call in (
        ("RunmMetadata", "object_find"),
        ("RunmMetadata", "partition_find"),
        ("RunmAPI", "provider_list"),
    ):
        with refused("PERMISSION_DENIED"):
            getattr(running.by(name, service), call)(claimed)


@pytest.mark.parametrize("claimed", [{**ANN, "project": "p2"}, {**ANN, "partition": E}, {**ANN, "roles": ["admin"]}])
def test_a_session_that_claims_more_is_refused_before_anything_is_read(
    lmdb_store: Store, tmp_path: Path, claimed: dict[str, Any]
) -> None:
    engine = CountingEngine(lmdb_store.engine)
    with guarded(Store(engine), tmp_path) as running:
        client = running.by("acme")
        engine.counts.clear()
        with refused("PERMISSION_DENIED"):
            client.object_find(claimed)
        assert not +engine.counts


@pytest.mark.parametrize("given", [{}, ANN, {**ANN, "partition": WEST}, {"project": "p1"}, {"roles": ["member"]}])
def test_what_a_session_leaves_out_is_the_principals(running: Guarded, given: dict[str, Any]) -> None:
    (found,) = running.by("acme").partition_find(given)
    assert found.name == W


def test_where_a_principal_has_several_the_session_says_which(running: Guarded) -> None:
    client = running.by("tenants")
    with refused("FAILED_PRECONDITION", "project is required in session."):
        client.object_find({})
    assert client.object_find({"project": "p2"}) == []


def test_who_changed_something_is_the_principal_that_did(running: Guarded) -> None:
    """Nobody is asked for a name, and nobody can give another's."""
    rival = running.by("rival")
    scope = {"partition_uuid": EAST, "object_type_code": "runm.image"}
    for schema in (SCHEMA, json.dumps({"type": "object", "title": "x"})):
        rival.definition_set({}, scope=scope, object_definition={"schema": schema})
    (version,) = rival.definition_history({}, scope=scope)
    assert version.user == "rival"


def test_leaving_out_a_role_shows_no_more(running: Guarded) -> None:
    root, tenants = running.by("root"), running.by("tenants")
    hidden = [{"role": "b", "permission": 0}]
    definition = {**DEFINITION, "property_permissions": [{"key": "secret", "permissions": hidden}]}
    scope = {"partition_uuid": WEST, "object_type_code": "runm.image"}
    properties = [{"key": "secret", "value": "s"}, {"key": "os", "value": "linux"}]
    image = {
        "partition": WEST,
        "object_type": "runm.image",
        "project": "p1",
        "uuid": I1,
        "name": "i",
        "properties": properties,
    }
    root.object_create(ROOT, object=image)
    root.definition_set(ROOT, scope=scope, object_definition=definition)
    for roles in ([], ["a"], ["b"], ["a", "b"]):
        (found,) = tenants.object_find({"project": "p1", "roles": roles})
        assert [one.key for one in found.properties] == ["os"], roles


# ---- two tenants and an administrator ----------------------------------------------------------------------------------


def _image(partition: str, project: str, uuid: str, name: str = "i") -> dict[str, Any]:
    return {"partition": partition, "object_type": "runm.image", "project": project, "uuid": uuid, "name": name}


def _calls_that_name(partition: str, client: Client, front: Client) -> list[Callable[[], object]]:
    """Every way in which acme can name a partition by UUID, but for filters."""
    scope = {"partition_uuid": partition, "object_type_code": "runm.image"}
    theirs = {"project": "p2", "object_type_code": "runm.image", "name": "theirs"}
    kind = {"provider_type_code": "runm.compute"}
    return [
        lambda: client.object_get_by_name(ANN, partition_uuid=partition, **theirs),
        lambda: client.provider_definition_get_by_partition(ANN, partition_uuid=partition),
        lambda: client.provider_definition_get_by_partition_and_type(ANN, partition_uuid=partition, **kind),
        lambda: client.definition_get(ANN, scope=scope),
        lambda: client.definition_get(ANN, scope=scope, resolve=True),
        lambda: client.definition_history(ANN, scope=scope),
        lambda: front.provider_definition_get(ANN, partition=partition),
        lambda: list(client.stream("object_watch", ANN, object_type_code="runm.image", partition_uuid=partition)),
        lambda: client.object_create(ANN, object=_image(partition, "p1", I2)),
    ]


def test_what_a_tenant_asks_for_in_anothers_partition_is_not_there(running: Guarded) -> None:
    rival, acme, front = running.by("rival"), running.by("acme"), running.by("acme", "RunmAPI")
    rival.object_create(RIVAL, object=_image(EAST, "p2", I1, "theirs"))
    rival.provider_definition_set(RIVAL, partition_uuid=EAST, object_definition=DEFINITION)
    document = f"{{partition: {E}, provider_type: runm.compute, name: p}}".encode()
    running.by("rival", "RunmAPI").provider_create(RIVAL, payload=document)

    assert [one.name for one in acme.partition_find(ANN)] == [W]
    assert [
        one.name for one in acme.partition_find(ANN, any=[{"name_filter": {"name": "us-", "use_prefix": True}}])
    ] == [W]
    assert acme.partition_find(ANN, any=[{"uuid_filter": {"uuid": EAST}}, {"name_filter": {"name": E}}]) == []
    assert [one.name for one in acme.partition_find(ANN, options={"limit": 1})] == [W]
    assert [one.name for one in front.partition_list(ANN)] == [W]
    assert front.partition_list(ANN, any=[{"primary_filter": {"search": "us-e", "use_prefix": True}}]) == []
    refusals: list[Callable[[], object]] = [
        lambda: acme.partition_get_by_uuid(ANN, uuid=EAST),
        lambda: acme.partition_get_by_name(ANN, name=E),
        lambda: front.partition_get(ANN, filter={"primary_filter": {"search": E}}),
        lambda: acme.object_get_by_uuid(ANN, uuid=I1),
    ]
    for refusal in refusals:
        with refused("NOT_FOUND", "object could not be found."):
            refusal()
    # Why the same words: what is another's and what is nowhere have one answer.
    for uuid in (EAST, "1" * 32):
        gone = f"Partition {uuid} not found"
        for refusal in _calls_that_name(uuid, acme, front):
            with refused("FAILED_PRECONDITION", gone):
                refusal()
        with refused("FAILED_PRECONDITION", "failed to expand object filters."):
            acme.object_find(ANN, any=[{"partition_filter": {"uuids": [uuid]}}])
        with refused("FAILED_PRECONDITION", "failed to expand object filters."):
            front.provider_list(ANN, any=[{"partition_filter": {"search": uuid}}])
    for name in (E, "nowhere"):
        assert front.provider_list(ANN, any=[{"partition_filter": {"search": name}}]) == []
        with refused("FAILED_PRECONDITION", f"Partition {name} not found"):
            front.provider_create(ANN, payload=f"{{partition: {name}, provider_type: runm.compute, name: q}}".encode())
    assert front.provider_list(ANN) == []
    assert acme.object_find(ANN) == []
    assert acme.object_delete_by_uuids(ANN, uuids=[I1]).num_deleted == 0
    with refused("PERMISSION_DENIED"):
        acme.object_create(ANN, object=_image(WEST, "p2", I2))
    with refused("NOT_FOUND"):
        acme.object_modify(ANN, uuid=I1, name="mine")
    assert rival.object_get_by_uuid(RIVAL, uuid=I1).name == "theirs"


def test_what_holds_for_all_is_an_administrators_of_all(running: Guarded) -> None:
    """The rival may administer, but in its own partition alone."""
    rival, front, root = running.by("rival"), running.by("rival", "RunmAPI"), running.by("root")
    everywhere = {"object_type_code": "runm.image"}
    refusals: list[Callable[[], object]] = [
        lambda: rival.provider_definition_set(RIVAL, object_definition=DEFINITION),
        lambda: rival.provider_definition_set(RIVAL, provider_type_code="runm.compute", object_definition=DEFINITION),
        lambda: rival.definition_set(RIVAL, scope=everywhere, object_definition=DEFINITION),
        lambda: rival.definition_delete(RIVAL, scope=everywhere),
        lambda: front.provider_definition_set(RIVAL, payload=b"property_definitions: {}"),
        lambda: rival.partition_create(partition={"name": "another"}),
        lambda: front.partition_create(payload=b"name: another"),
    ]
    for refusal in refusals:
        with refused("PERMISSION_DENIED"):
            refusal()
    for partition in (WEST, "1" * 32):
        with refused("FAILED_PRECONDITION", f"Partition {partition} not found"):
            rival.provider_definition_set(RIVAL, partition_uuid=partition, object_definition=DEFINITION)
    rival.provider_definition_set(RIVAL, partition_uuid=EAST, object_definition=DEFINITION)
    root.provider_definition_set(ROOT, object_definition=DEFINITION)
    root.definition_set(ROOT, scope=everywhere, object_definition=DEFINITION)
    assert root.definition_delete(ROOT, scope=everywhere).num_deleted == 1
    assert root.partition_create(partition={"name": "another"}).partition.name == "another"
    assert len(root.partition_find(ROOT)) == 3


def test_an_administrator_has_a_view_across_projects(running: Guarded) -> None:
    root, tenants = running.by("root"), running.by("tenants")
    for number, project in enumerate(("p1", "p2", "p3")):
        root.object_create(ROOT, object=_image(WEST, project, f"{number + 1}" * 32, project))

    def names(client: Client, given: dict[str, Any], **options: Any) -> list[str]:
        return [one.name for one in client.object_find(given, **options)]

    assert names(root, ROOT) == ["p1"]
    assert names(root, EVERY) == ["p1", "p2", "p3"]
    assert names(root, EVERY, options={"limit": 2, "marker": "1" * 32}) == ["p2", "p3"]
    assert names(root, EVERY, any=[{"name_filter": {"name": "p3"}}]) == ["p3"]
    assert names(root, EVERY, any=[{"project": "p2"}]) == ["p2"]
    assert names(root, {**EVERY, "partition": E}) == []
    mine = {"user": "t", "project": "*", "partition": WEST}
    assert names(tenants, mine) == ["p1", "p2"]
    for given, other in ((mine, "p3"), ({**mine, "project": "p1"}, "p2")):
        with refused("PERMISSION_DENIED"):
            names(tenants, given, any=[{"project": other}])
    assert names(tenants, mine, any=[{"name_filter": {"name": "p", "use_prefix": True}}], options={"limit": 9}) == [
        "p1",
        "p2",
    ]
    watched = tenants.stream("object_watch", mine, object_type_code="runm.image", include_existing=True)
    assert [next(watched).object.name for _ in range(2)] == ["p1", "p2"]
    root.object_create(ROOT, object=_image(WEST, "p3", "4" * 32, "unseen"))
    root.object_create(ROOT, object=_image(WEST, "p2", "5" * 32, "seen"))
    assert next(watched).object.name == "seen"
    watched.cancel()
    with refused("INVALID_ARGUMENT", "an object is of one project: name it."):
        root.object_create(EVERY, object=_image(WEST, "*", "6" * 32))
    with refused("NOT_FOUND"):
        tenants.object_get_by_uuid(mine, uuid="3" * 32)
    assert root.object_delete_by_uuids(EVERY, uuids=["2" * 32, "3" * 32]).num_deleted == 2


# ---- while it runs -----------------------------------------------------------------------------------------------------


def test_a_watch_ends_when_its_grant_does(running: Guarded) -> None:
    acme = running.by("acme")
    watched = acme.stream("object_watch", ANN, object_type_code="runm.image", include_existing=True)
    running.by("root").object_create(ROOT, object=_image(WEST, "p1", I1))
    assert next(watched).object.uuid == I1
    running.change({name: one for name, one in PRINCIPALS.items() if name != "acme"})
    with refused("UNAUTHENTICATED"):
        next(watched)
    with refused("UNAUTHENTICATED"):
        acme.partition_find(ANN)


def test_one_principal_has_not_all_places_of_watches(running: Guarded) -> None:
    running.by("root").object_create(ROOT, object=_image(WEST, "p1", I1))

    def watched(who: str, as_whom: dict[str, str]) -> Any:
        stream = running.by(who).stream("object_watch", as_whom, object_type_code="runm.image", include_existing=True)
        assert next(stream).object.uuid == I1
        return stream

    mine = [watched("acme", ANN) for _ in range(WATCHES_OF_CALLER_MAX)]
    with refused("RESOURCE_EXHAUSTED", f"acme has {WATCHES_OF_CALLER_MAX} watches already."):
        watched("acme", ANN)
    watched("tenants", {"user": "t", "project": "p1", "partition": WEST}).cancel()
    for stream in mine:
        stream.cancel()


def test_a_watch_ends_when_its_principal_is_another_than_it_was(running: Guarded) -> None:
    watched = running.by("acme").stream("object_watch", ANN, object_type_code="runm.image")
    running.change({**PRINCIPALS, "acme": {**PRINCIPALS["acme"], "labels": ("project:p1", "partition:elsewhere")}})
    with refused("PERMISSION_DENIED"):
        next(watched)


def test_reflection_tells_who_may_call_nothing_what_is_open_alone(running: Guarded) -> None:
    channel = running.by(None).channel
    stub = reflection_pb2_grpc.ServerReflectionStub(channel)

    def asked(name: str | None, **request: str) -> Any:
        metadata = () if name is None else (("authorization", f"Bearer {token_of(name)}"),)
        (answer,) = stub.ServerReflectionInfo(
            iter([reflection_pb2.ServerReflectionRequest(**request)]), metadata=metadata
        )
        return answer

    def services(name: str | None) -> set[str]:
        return {one.name for one in asked(name, list_services="").list_services_response.service}

    opened = {"grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"}
    for name in (None, "nobody"):
        with refused("UNAUTHENTICATED"):
            services(name)
    assert services("auditor") == opened
    for question in (
        {"file_containing_symbol": "runm.RunmMetadata"},
        {"file_containing_symbol": "runm.Object"},
        {"file_by_filename": "runm/runm.proto"},
    ):
        assert asked("auditor", **question).WhichOneof("message_response") == "error_response"
    for name in ("acme", "reader", "founder"):
        assert services(name) == {*opened, "runm.RunmMetadata", "runm.RunmAPI"}
        told = asked(name, file_containing_symbol="runm.RunmMetadata")
        assert told.WhichOneof("message_response") == "file_descriptor_response"
    assert health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest()).status == 1


def test_the_command_line_of_two_tenants(
    running: Guarded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`runm` as each would run it, with nothing but its token and what it wants to see."""
    host, _, port = running.address.rpartition(":")
    monkeypatch.setenv("RUNM_HOST", host)
    monkeypatch.setenv("RUNM_PORT", port)

    def run(name: str, *words: str) -> str:
        monkeypatch.setenv("RUNM_TOKEN", token_of(name))
        cli_client.main(list(words))
        captured = capsys.readouterr()
        return captured.out + captured.err

    image = tmp_path / "image.yaml"
    image.write_text(f"{{object_type: runm.image, name: one, uuid: {I1}, partition: {W}, project: p1}}")
    assert run("acme", "object", "create", "-f", str(image)).strip() == I1
    assert I1 in run("acme", "object", "list")
    image.write_text("{object_type: runm.image, name: two}")
    assert "partition is required. Give --partition, or name it in the file." in run(
        "acme", "object", "create", "-f", str(image)
    )
    assert I1 not in run("rival", "object", "list")
    assert run("rival", "partition", "list").split() == [EAST, E]
    assert "is none of rival's" in run("rival", "--partition", W, "object", "list")
    assert "grants acme to administer" in run("acme", "partition", "create", "-f", str(_document(tmp_path)))
    assert I1 in run("root", "--partition", W, "--project", "*", "object", "list")


def _document(tmp_path: Path) -> Path:
    document = tmp_path / "part.yaml"
    document.write_text("name: another")
    return document
