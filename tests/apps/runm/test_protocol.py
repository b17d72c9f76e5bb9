"""The service as a protocol: reflection, health, requests that are none, tokens, watches."""

import hashlib
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import grpc
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import keyplan
from keyplan.apps.runm.deployment import Deployment
from keyplan.apps.runm.server import Listening, serving
from keyplan.apps.runm.start import ensure_started
from keyplan.apps.runm.wire_table import RUNM
from keyplan.protobuf import SCALARS
from keyplan.server import Role, Token
from keyplan.store import Store
from tests.apps.runm.client import EAST, GROUP, I1, PROJECT, SW, WEST, Client, refused
from tests.apps.runm.conftest import Served, served


def test_a_client_that_knows_nothing_but_reflection_gets_a_partition(lmdb_store: Store) -> None:
    """As grpcurl does: services, then the file that describes one, then a call with messages made of that."""
    with served(lmdb_store) as running:
        running.with_partitions()
        stub = reflection_pb2_grpc.ServerReflectionStub(running.client.channel)

        def asked(**request: str) -> Any:
            (answer,) = stub.ServerReflectionInfo(iter([reflection_pb2.ServerReflectionRequest(**request)]))
            return answer

        services = {one.name for one in asked(list_services="").list_services_response.service}
        assert {"runm.RunmMetadata", "runm.RunmAPI", "grpc.health.v1.Health"} <= services
        pool = DescriptorPool()
        for raw in asked(file_containing_symbol="runm.RunmMetadata").file_descriptor_response.file_descriptor_proto:
            pool.Add(FileDescriptorProto.FromString(raw))
        method = pool.FindServiceByName("runm.RunmMetadata").methods_by_name["partition_get_by_uuid"]
        request, response = GetMessageClass(method.input_type), GetMessageClass(method.output_type)
        call = running.client.channel.unary_unary(
            "/runm.RunmMetadata/partition_get_by_uuid",
            request_serializer=request.SerializeToString,
            response_deserializer=response.FromString,
        )
        assert call(request(session=SW, uuid=EAST)).name == "us-east.example.com"
        assert asked(file_containing_symbol="grpc.health.v1.Health").WhichOneof("message_response") == (
            "file_descriptor_response"
        )


def test_health_is_told_for_each_service(lmdb_store: Store) -> None:
    with served(lmdb_store) as running:
        stub = health_pb2_grpc.HealthStub(running.client.channel)
        for name in ("", "runm.RunmMetadata", "runm.RunmAPI"):
            assert stub.Check(health_pb2.HealthCheckRequest(service=name)).status == 1


def test_a_caller_without_a_known_token_is_refused(lmdb_store: Store) -> None:
    deployment = Deployment(lmdb_store)
    ensure_started(deployment)
    token = Token(Role.CLIENT, "somebody", hashlib.sha256(b"0123456789abcdef").digest())
    with serving(deployment, Listening(("127.0.0.1:0",)), [token]) as running:
        (address,) = running.addresses
        for text in ("", "0123456789abcdeg"):
            client = Client(address, token=text)
            with refused("UNAUTHENTICATED"):
                client.partition_create(partition={"name": "p"})
            with refused("UNAUTHENTICATED"):
                client.partition_find(SW)
            client.close()
        client = Client(address, token="0123456789abcdef")
        assert client.partition_create(partition={"name": "p"}).partition.name == "p"
        client.close()


# ---- whatever comes, an answer goes ------------------------------------------------------------------------------------

PANICS: Final = {"UNKNOWN", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"}
NAMED_CALLS: Final = [
    (service, call) for service, calls in RUNM.services.items() for call in calls if call.name != "object_watch"
]

texts = st.one_of(
    st.text(st.characters(codec="utf-8"), max_size=12),
    st.sampled_from([
        *(EAST, WEST, I1, GROUP, PROJECT, "us-west.example.com", "runm.image", "runm.provider", "runm.compute", "admin"),
        *("name", "uuid", "/", "%", "\x00", "n" * 256, "k" * 2_000, "{}", '{"$ref": "#/x"}', "a: [*b]", "name: x"),
        *("property_definitions: {a: {schema: {type: integer}}}", "d7", "*"),
    ]),
)  # fmt: skip


def values(kind: str, depth: int) -> st.SearchStrategy[Any]:
    if kind == "string":
        return texts
    if kind == "bytes":
        return texts.map(str.encode)
    if kind == "bool":
        return st.booleans()
    if kind in SCALARS:
        return st.integers(0, 2**32 - 1)
    if kind in RUNM.enums:
        return st.integers(-1, 5)
    return messages(kind, depth + 1)


def messages(name: str, depth: int = 0) -> st.SearchStrategy[dict[str, Any]]:
    """Any message of this kind: each field there or not; sessions mostly ones that are known."""
    if name == "Session":
        return st.one_of(st.just(SW), st.just(SW), fields_of(name, depth))
    return fields_of(name, depth)


def fields_of(name: str, depth: int) -> st.SearchStrategy[dict[str, Any]]:
    if depth > 4:
        return st.just({})
    optional = {
        field.name: st.lists(values(field.kind, depth), max_size=3) if field.is_repeated else values(field.kind, depth)
        for field in RUNM.messages[name]
    }
    return st.fixed_dictionaries({}, optional=optional)


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Generator[Served, None, None]:
    folder = tmp_path_factory.mktemp("fuzzed")
    with keyplan.open(f"lmdb:{folder}/s?durability=none") as store, served(store) as running:
        yield running.with_partitions()


@pytest.mark.slow
@given(data=st.data())
@settings(max_examples=250, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_request_of_whatever_content_makes_the_server_fail(fuzzed: Served, data: st.DataObject) -> None:
    service, call = data.draw(st.sampled_from(NAMED_CALLS))
    request = getattr(RUNM.classes, call.request)(**data.draw(messages(call.request)))
    client = fuzzed.client if service == "RunmMetadata" else fuzzed.api
    answer = client.raw(call.name, request.SerializeToString())
    if isinstance(answer, grpc.RpcError):
        assert answer.code().name not in PANICS, answer.details()


@pytest.mark.slow
@given(data=st.data(), raw=st.binary(max_size=60))
@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_bytes_that_are_no_request_are_refused(fuzzed: Served, data: st.DataObject, raw: bytes) -> None:
    service, call = data.draw(st.sampled_from(NAMED_CALLS))
    client = fuzzed.client if service == "RunmMetadata" else fuzzed.api
    answer = client.raw(call.name, raw)
    if isinstance(answer, grpc.RpcError):
        assert answer.code().name not in PANICS, answer.details()


@pytest.mark.parametrize(
    ("service", "call"), NAMED_CALLS, ids=[f"{service}.{call.name}" for service, call in NAMED_CALLS]
)
def test_an_empty_request_has_an_answer_with_a_reason(fuzzed: Served, service: str, call: Any) -> None:
    client = fuzzed.client if service == "RunmMetadata" else fuzzed.api
    answer = client.raw(call.name, b"")
    assert isinstance(answer, grpc.RpcError)
    assert answer.code() in {grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.INVALID_ARGUMENT}
    assert answer.details()


# ---- watches -----------------------------------------------------------------------------------------------------------


def test_a_watch_tells_what_becomes_of_the_objects_of_a_type(west: Served) -> None:
    image = {"partition": WEST, "object_type": "runm.image", "project": PROJECT, "name": "a"}
    west.client.object_create(SW, object={**image, "uuid": I1})
    request = RUNM.classes.ObjectWatchRequest(session=SW, object_type_code="runm.image", include_existing=True)
    event_class = RUNM.classes.ObjectEvent

    def opened(**fields: Any) -> Any:
        asked = RUNM.classes.ObjectWatchRequest()
        asked.CopyFrom(request)
        asked.MergeFrom(RUNM.classes.ObjectWatchRequest(**fields))
        watch = west.client.channel.unary_stream(
            "/runm.RunmMetadata/object_watch",
            request_serializer=RUNM.classes.ObjectWatchRequest.SerializeToString,
            response_deserializer=event_class.FromString,
        )
        return watch(asked, timeout=30)

    events = opened()
    assert next(events).object.uuid == I1
    west.client.object_create({**SW, "project": "p2"}, object={**image, "project": "p2"})
    west.client.object_modify(SW, uuid=I1, add_tags=["t"])
    changed = next(events)
    assert (changed.kind, list(changed.object.tags), list(changed.previous.tags)) == (1, ["t"], [])
    west.client.object_delete_by_uuids(SW, uuids=[I1])
    assert next(events).kind == 2
    events.cancel()
    request.include_existing = False
    again = opened(after=changed.token)
    assert next(again).kind == 2
    again.cancel()
    with pytest.raises(grpc.RpcError) as caught:
        next(opened(after="no token"))
    assert caught.value.code().name == "INVALID_ARGUMENT"


def test_a_stopping_server_ends_watches(lmdb_store: Store) -> None:
    answers: list[Any] = []
    deployment = Deployment(lmdb_store)
    ensure_started(deployment)
    with ThreadPoolExecutor(1) as watcher:
        with serving(deployment, Listening(("127.0.0.1:0",))) as running:
            client = Client(running.addresses[0])
            client.partition_create(partition={"uuid": WEST, "name": "p"})
            watching = watcher.submit(client.object_watch, SW, object_type_code="runm.image")
            answers += client.partition_find(SW)
        assert watching.result(timeout=60) == []
        client.close()
    assert len(answers) == 1
