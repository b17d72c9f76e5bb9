"""The answers below /admin: as they were recorded, byte for byte, and as their description says."""

import json
from collections.abc import Callable
from typing import Any

import jsonschema
import msgspec
import pytest

from keyplan import Secret
from keyplan.apps.patroni import (
    Binding,
    Broker,
    Cell,
    InstanceState,
    Member,
    MemberKey,
    NodeKey,
    Operation,
    Step,
)
from keyplan.apps.patroni.actions import Actions
from keyplan.apps.patroni.admin_routes import Administration, Recreations
from keyplan.apps.patroni.broker_service import DESCRIPTION
from keyplan.apps.patroni.layout import BindingKey
from keyplan.apps.patroni.records import Credentials
from keyplan.apps.patroni.site_callbacks import ClusterData
from keyplan.engine import SYSTEM_CLOCK
from keyplan.operations import Answered, operations_of, write_answer
from keyplan.store import Store, open_store

RECORDED = {
    "cells": (
        '{"cells":[{"guid":"c1","availability_zone":"z1","load":1,"capacity":4,"is_draining":false,"versions":[],"host":"10.0.0.1"}]}'
    ),
    "demote": (
        '{"results":[{"instance_id":"f1","node_id":"n1","status":"failed","description":"it advertises no REST API"}]}'
    ),
    "instances": (
        '{"service_instances":[{"instance":"f1","plan_id":"p","port":33006,"replica_port":null,"leader":"n1","failsafe_leader":"","is_paused":false,"nodes":[{"name":"n1",'
        '"cell":"c1","cell_is_alive":true,"role":"master","state":"running","address":"10.244.21.8:32768",'
        '"lag_bytes":null,"report":"","timeline":null,"is_restart_pending":false}],"operation":"provision success",'
        '"message":"","archive":null,"former":"","damaged":[],"version":""},{"instance":"lost","plan_id":"","port":33007,"replica_port":null,"leader":"","failsafe_leader":"","is_paused":false,"nodes":[],"operation":"",'
        '"message":"","archive":null,"former":"","damaged":[],"version":""}]}'
    ),
    "instance": (
        '{"instance_id":"f1","service_id":"s","plan_id":"p","organization_guid":"","space_guid":"",'
        '"service_instance_name":"","allocated_port":null,"replica_port":null,"node_count":1,"cells":[],'
        '"parameters":{},"nodes":[{"node_id":"n1","cell_guid":"c1"}],"bindings":[{"binding_id":"b1",'
        '"state":"ready","app_guid":"a"}],"operation":{"id":"o","kind":"provision","status":"success",'
        '"steps":[{"kind":"add","node":"n1","target":"","mark":"","is_asked":false,"tries":0}],"completed_steps":0,"message":"","plan_id":"","node_count":0,'
        '"cells":[],"parameters":{},"configuration":{},"keep_seconds":0.0,"archive":null,"recovery":null,"upgrade":null,"failure":"","is_called_off":false,"begun_at":2.5,"ended_at":0.0}}'
    ),
    "kept": (
        '{"instance_id":"f1","service_id":"s","plan_id":"p","organization_guid":"","space_guid":"sp",'
        '"service_instance_name":"","allocated_port":null}'
    ),
    "findings": (
        '{"findings":[{"kind":"lost-port","subject":"lost",'
        '"text":"port 33007 is allocated to an instance that there is none of"}]}'
    ),
}


class Kept(Recreations):
    """Callbacks that have kept one instance."""

    def __init__(self) -> None:
        """Nothing is needed."""

    def _asked(self, ask: Callable[..., Any]) -> ClusterData:
        secret = Credentials(username="postgres", password=Secret("secret"))  # Why: of a test.
        return ClusterData(instance_id="f1", service_id="s", plan_id="p", space_guid="sp", superuser_credentials=secret)


@pytest.fixture
def administration() -> Administration:
    """Of a store with a sound instance, one that nobody made, and some that is wrong."""
    store: Store = open_store("memory:")
    lease = store.lease(60, keep_alive=False)
    broker = Broker(store)
    broker.instances.put("f1", InstanceState(instance_id="f1", service_id="s", plan_id="p", node_count=1))
    step = Step(kind="add", node="n1")
    broker.operations.put("f1", Operation(id="o", kind="provision", status="success", steps=[step], begun_at=2.5))
    broker.allocations.put("f1", 33006)
    broker.allocations.put("lost", 33007)
    broker.cells.put("c1", Cell(host="10.0.0.1", availability_zone="z1", capacity=4), lease=lease)
    broker.nodes.put(NodeKey("f1", "n1"), "c1")
    broker.leaders.put("f1", "n1", lease=lease)
    member = Member(role="master", state="running", conn_url=Secret("postgres://10.244.21.8:32768/postgres"))
    broker.members.put(MemberKey("f1", "n1"), member, lease=lease)
    broker.bindings.put(BindingKey("f1", "b1"), Binding(service_id="s", plan_id="p", state="ready", app_guid="a"))
    return Administration(store, Kept(), Actions(store, SYSTEM_CLOCK), on_begun=lambda: None)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("cells", ()),
        ("demote", ("c1",)),
        ("instances", ()),
        ("instance", ("f1",)),
        ("kept", ("sp", "f1")),
        ("findings", ()),
    ],
)
def test_an_answer_is_as_recorded_and_as_described(administration: Administration, name: str, arguments: Any) -> None:
    operation = operations_of(Administration)[name]
    result = getattr(administration, name)(*arguments)
    status, result = (result.status, result.result) if isinstance(result, Answered) else (200, result)
    body = msgspec.json.encode(write_answer(operation, result)).decode()
    assert body == RECORDED[name]
    described = DESCRIPTION["paths"][operation.path][operation.method.lower()]["responses"][str(status)]
    schema = described["content"]["application/json"]["schema"]
    jsonschema.validate(json.loads(body), {**schema, "components": DESCRIPTION["components"]})
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({}, {**schema, "components": DESCRIPTION["components"]})
