"""The service broker API over a real server: statuses, repeats, concurrency, and what the store holds afterwards."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from keyplan.apps.patroni import NodeKey
from keyplan.engine import ALL_KEYS
from tests.apps.patroni.conftest import Deployment
from tests.apps.patroni.osb_platform import PAIR, SERVICE, SOLO, TRIO, Platform
from tests.servers.patroni import until

pytestmark = pytest.mark.slow


OUTLIVING = ("/_broker/operations", "/_broker/events/")


def keys_of(deployed: Deployment, instance: str) -> list[str]:
    """Every raw key that names the instance, but for what outlives it: its operation's record, and what happened to it."""
    with deployed.store.engine.snapshot() as snapshot:
        from_all = [entry.key.decode() for entry in snapshot.scan(ALL_KEYS)]
    return [key for key in from_all if f"/{instance}" in key and not key.startswith(OUTLIVING)]


def test_the_catalog_tells_plans_and_their_schemas(deployed: Deployment) -> None:
    answer = deployed.platform.http.get("/v2/catalog")
    (service,) = answer.json()["services"]
    assert (service["id"], service["bindable"], service["instances_retrievable"]) == (SERVICE, True, True)
    assert [plan["metadata"]["node-count"] for plan in service["plans"]] == [1, 2, 3]
    schema = service["plans"][0]["schemas"]["service_instance"]["create"]["parameters"]
    assert schema["$schema"] == "http://json-schema.org/draft-07/schema#"
    again = deployed.platform.http.get("/v2/catalog", headers={"If-None-Match": answer.headers["ETag"]})
    assert again.status_code == 304


def test_who_does_not_log_in_is_told_how(deployed: Deployment) -> None:
    headers = {"X-Broker-API-Version": "2.17"}
    for auth in (None, ("platform", "a-wrong-password-of-a-test")):
        answer = httpx.get(f"{deployed.server.url}/v2/catalog", headers=headers, auth=auth)
        assert answer.status_code == 401
        assert answer.headers["WWW-Authenticate"].startswith("Basic ")
    assert httpx.get(f"{deployed.server.url}/admin/cells").status_code == 401


@pytest.mark.parametrize(("version", "status"), [(None, 400), ("1.0", 412), ("3.0", 412), ("2", 412), ("2.3", 200)])
def test_another_version_of_the_api_is_refused(deployed: Deployment, version: str | None, status: int) -> None:
    assert Platform(deployed.server.url, version=version).http.get("/v2/catalog").status_code == status


def test_an_instance_lives_from_provision_to_deprovision(deployed: Deployment) -> None:
    platform = deployed.platform
    refused = platform.provision("life", wait=False)
    assert (refused.status_code, refused.json()["error"]) == (422, "AsyncRequired")
    assert keys_of(deployed, "life") == []

    begun = platform.provision("life")
    assert begun.status_code == 202
    assert platform.provision("life").status_code in {202, 200}
    ended = platform.ended("life")
    assert ended == {"state": "succeeded", "description": "done"}
    assert platform.last("life", begun.json()["operation"]).json()["state"] == "succeeded"

    assert platform.provision("life").status_code == 200
    assert platform.provision("life", wait=False).status_code == 200
    assert platform.provision("life", TRIO).status_code == 409
    assert platform.provision("life", node_count=1).status_code == 409
    shown = platform.http.get("/v2/service_instances/life").json()
    assert shown == {"service_id": SERVICE, "plan_id": PAIR, "parameters": {}}

    cells = [cell for _, cell in deployed.broker.nodes.list("life")]
    assert len(cells) == len(set(cells)) == 2
    assert {"z1", "z2"} == {"z1" if cell in {"n1", "n2"} else "z2" for cell in cells}
    assert list(deployed.broker.node_intents.list("life")) == []

    assert platform.deprovision("life", TRIO).status_code == 400
    assert platform.deprovision("life").status_code == 202
    assert platform.ended("life")["state"] == "succeeded"
    assert keys_of(deployed, "life") == []
    assert platform.deprovision("life").status_code == 410
    assert platform.http.get("/v2/service_instances/life").status_code == 404
    assert platform.provision("life", SOLO).status_code == 202
    assert platform.ended("life")["state"] == "succeeded"


def test_plan_and_parameters_change_the_number_of_nodes(deployed: Deployment) -> None:
    platform, nodes = deployed.platform, deployed.broker.nodes
    platform.provision("scaled")
    platform.ended("scaled")
    assert platform.update("scaled", PAIR).status_code == 200
    assert platform.update("scaled").status_code == 200
    assert platform.update("scaled", TRIO).status_code == 202
    assert platform.ended("scaled")["state"] == "succeeded"
    assert nodes.count("scaled") == 3
    leader = deployed.broker.leaders.get("scaled")
    assert platform.update("scaled", node_count=2).status_code == 202
    assert platform.ended("scaled")["state"] == "succeeded"
    assert nodes.count("scaled") == 2
    assert nodes.exists(NodeKey("scaled", str(leader)))
    shown = platform.http.get("/v2/service_instances/scaled").json()
    assert shown == {"service_id": SERVICE, "plan_id": TRIO, "parameters": {"node-count": 2}}
    assert platform.deprovision("scaled", PAIR).status_code == 400


def test_a_replica_moves_off_a_cell_and_the_number_of_nodes_stays(deployed: Deployment) -> None:
    platform = deployed.platform
    platform.provision("moved", TRIO)
    platform.ended("moved")
    leader = deployed.broker.leaders.get("moved")
    placed = {key.node: cell for key, cell in deployed.broker.nodes.list("moved")}
    left = next(cell for node, cell in placed.items() if node != leader)
    allowed = sorted({"n1", "n2", "n3", "n4"} - {left})
    assert platform.update("moved", cells=allowed).status_code == 202
    assert platform.ended("moved")["state"] == "succeeded"
    assert sorted(cell for _, cell in deployed.broker.nodes.list("moved")) == allowed


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"node_count": -1}, "node-count"),
        ({"node_count": "3"}, "node-count"),
        ({"node_count": True}, "node-count"),
        ({"node_count": 65}, "node-count"),
        ({"node_count": 6}, "nodes asked for: 6, available cells"),
        ({"cells": "n1"}, "cells"),
        ({"cells": ["nowhere"]}, "available cells: 0. Start cells"),
        ({"colour": "blue", "shape": "x"}, "colour, shape"),
        ({"clone_from": "x"}, "clone-from needs callbacks"),
    ],
)
def test_wrong_parameters_are_refused_and_nothing_is_made(
    deployed: Deployment, parameters: dict[str, Any], said: str
) -> None:
    answer = deployed.platform.provision("wrong", **parameters)
    assert answer.status_code == 400
    assert said in answer.json()["description"]
    assert keys_of(deployed, "wrong") == []


@pytest.mark.parametrize("instance", ["_hidden", "a%0Ab", "x" * 256])
def test_an_id_that_cannot_be_a_key_is_refused(deployed: Deployment, instance: str) -> None:
    assert deployed.platform.provision(instance).status_code == 400


@pytest.mark.parametrize(
    "body",
    [
        "{",
        "[]",
        "null",
        '{"service_id": "s"}',
        f'{{"service_id": "{SERVICE}", "plan_id": "{PAIR}"}}',
        '{"service_id": "no", "plan_id": "no", "organization_guid": "o", "space_guid": "s"}',
    ],
)
def test_a_body_that_is_none_is_refused(deployed: Deployment, body: str) -> None:
    answer = deployed.platform.http.put(
        "/v2/service_instances/f9?accepts_incomplete=true", content=body, headers={"Content-Type": "application/json"}
    )
    assert answer.status_code == 400
    assert answer.json()["description"]


def test_missing_query_parameters_and_unknown_instances(deployed: Deployment) -> None:
    http = deployed.platform.http
    assert http.delete("/v2/service_instances/nobody?accepts_incomplete=true").status_code == 400
    assert deployed.platform.deprovision("nobody").status_code == 410
    assert deployed.platform.update("nobody", TRIO).status_code == 404
    assert deployed.platform.last("nobody").status_code == 404
    assert deployed.platform.bind("nobody", "b1").status_code == 404
    assert deployed.platform.unbind("nobody", "b1").status_code == 410


def test_when_no_cell_takes_a_node_the_operation_fails_and_deletion_leaves_nothing(deployed: Deployment) -> None:
    platform = deployed.platform
    assert platform.provision("failing", SOLO, cells=["zz-refusing"]).status_code == 202
    ended = platform.ended("failing")
    assert ended["state"] == "failed"
    assert "zz-refusing: no room" in ended["description"]
    assert platform.last("failing").status_code == 200
    assert platform.http.get("/v2/service_instances/failing").status_code == 404
    assert platform.bind("failing", "b1", SOLO).status_code == 422
    assert platform.update("failing", PAIR).status_code == 422
    assert platform.deprovision("failing", SOLO).status_code == 202
    assert platform.ended("failing")["state"] == "succeeded"
    assert keys_of(deployed, "failing") == []


def test_a_request_can_be_recognized_by_its_identity(deployed: Deployment) -> None:
    answer = deployed.platform.http.get("/v2/catalog", headers={"X-Broker-API-Request-Identity": "abc-1"})
    assert answer.headers["X-Broker-API-Request-Identity"] == "abc-1"
    until(lambda: '"identity":"abc-1"' in deployed.server.log, 60, lambda: deployed.server.log)


def test_a_method_that_there_is_not_is_refused_in_the_apis_form(deployed: Deployment) -> None:
    refused = deployed.platform.http.post("/v2/catalog")
    assert (refused.status_code, refused.json()) == (405, {"description": "there is no such method here"})
    assert refused.headers["Allow"] == "GET, HEAD"


def test_a_version_that_says_nothing_lacks(deployed: Deployment) -> None:
    refused = deployed.platform.http.get("/v2/catalog", headers={"X-Broker-API-Version": ""})
    assert (refused.status_code, refused.json()) == (
        400,
        {"description": "the header X-Broker-API-Version is required"},
    )


@pytest.mark.timeout(400)
def test_fifty_provisions_at_once_have_fifty_ports_without_a_gap(deployed: Deployment) -> None:
    following = deployed.broker.next_port.peek()
    names = [f"many{number:02}" for number in range(50)]
    with ThreadPoolExecutor(50) as threads:
        answers = list(threads.map(lambda name: deployed.platform.provision(name, SOLO), names))
    assert {answer.status_code for answer in answers} == {202}
    ports = [deployed.broker.allocations.require(name) for name in names]
    assert sorted(ports) == list(range(following, following + 50))
    assert {deployed.platform.ended(name)["state"] for name in names} == {"succeeded"}


def test_admin_answers_and_the_log_hold_no_secret(deployed: Deployment) -> None:
    platform = deployed.platform
    platform.provision("secret", SOLO)
    platform.ended("secret")
    state = deployed.broker.instances.require("secret")
    passwords = [
        credentials.password.reveal()
        for credentials in (state.superuser_credentials, state.admin_credentials, state.replication_credentials)
    ]
    assert all(len(password) == 24 for password in passwords)
    paths = ("cells", "service_instances", "service_instances/secret", "findings")
    answers = [platform.http.get(f"/admin/{path}") for path in paths]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 200]
    assert answers[2].json()["allocated_port"] == state.allocated_port
    told = "".join(answer.text for answer in answers) + deployed.server.log
    assert [password for password in passwords if password in told] == []
