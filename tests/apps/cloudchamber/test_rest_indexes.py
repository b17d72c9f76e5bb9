"""Records found over HTTP by what they say: blades by architecture and condition, instances by blade, users by right."""

from collections.abc import Iterator

import httpx
import pytest

import keyplan
from keyplan.apps.cloudchamber import (
    Blade,
    BladeDetails,
    BladeKey,
    Capacity,
    CloudChamberIndexed,
    Condition,
    Instance,
    InstanceKey,
    InstanceTarget,
    Workload,
    begin_indexes,
    create_instance,
)
from keyplan.maintenance import check
from tests.apps.cloudchamber.conftest import add_rack, own_url
from tests.apps.cloudchamber.test_rest_users import create, said
from tests.apps.cloudchamber.web import Web, served

BLADES = {
    BladeKey("rack1", 2): ("X64", Condition.OPERATIONAL),
    BladeKey("rack1", 10): ("X64", Condition.OPERATIONAL),
    BladeKey("Rack & 2", 1): ("ARM/64", Condition.OPERATIONAL),
    BladeKey("rack3", 1): ("", Condition.RETIRED),
}


@pytest.fixture(scope="module", params=["lmdb", "etcd"])
def indexed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    """The REST API of a store with indexes and some blades."""
    folder = tmp_path_factory.mktemp("indexed")
    url = own_url(request, folder)
    with keyplan.open(url) as store:
        assert begin_indexes(store) == ()
        chamber = CloudChamberIndexed(store)
        for key, (arch, condition) in BLADES.items():
            details, capacity = BladeDetails(enabled=True, condition=condition), Capacity(cores=1, arch=arch)
            chamber.blades.insert(key, Blade(details=details, capacity=capacity))
            add_rack(chamber, key.rack)
    with served(url, folder) as running:
        yield running
    with keyplan.open(url) as store:
        assert list(check(store, CloudChamberIndexed.bound())) == []


def uris(answer: httpx.Response, what: str) -> list[str]:
    assert answer.status_code == 200, answer.text
    return [one["uri"] for one in answer.json().get(what, [])]


def test_blades_are_found_by_architecture_and_condition(indexed: Web) -> None:
    two, ten = "/api/racks/rack1/blades/2", "/api/racks/rack1/blades/10"
    odd, third = "/api/racks/Rack%20%26%202/blades/1", "/api/racks/rack3/blades/1"
    expected = {
        "": [odd, two, ten, third],
        "?arch=X64": [two, ten],
        "?arch=ARM%2F64": [odd],
        "?arch=x64": [],
        "?condition=operational": [odd, two, ten],
        "?arch=X64&condition=operational": [two, ten],
        "?arch=ARM%2F64&condition=retired": [],
        "?condition=retired": [third],
    }
    with indexed.as_user() as admin:
        for query, found in expected.items():
            assert uris(admin.get(f"/api/blades{query}"), "blades") == found, query
        assert admin.get("/API/Blades/?arch=ARM%2F64").json() == {
            "blades": [{"rack": "Rack & 2", "blade": "1", "uri": odd}]
        }
        assert admin.get(odd).json() == {"cores": "1", "arch": "ARM/64"}
        assert said(admin.get("/api/blades?condition=fine")) == (
            400,
            'CloudChamber: there is no condition "fine"\n',
        )
        assert admin.get(f"/api/blades?arch={'x' * 65}").status_code == 400


def test_instances_are_found_by_the_blade_that_they_are_wanted_on(indexed: Web) -> None:
    on_two = "/api/racks/rack1/blades/2/instances"
    with indexed.as_user() as admin:
        admin.post("/api/workloads/Shop", json={})
        for name, blade in (("i1", 2), ("i2", 10), ("i3", 2)):
            body = {"target": {"desiredState": "running", "rackid": "rack1", "bladeid": blade}}
            assert admin.post(f"/api/workloads/Shop/instances/{name}", json=body).status_code == 200
        assert admin.get(on_two).json() == {
            "instances": [
                {"workload": "Shop", "name": "i1", "uri": "/api/workloads/Shop/instances/i1"},
                {"workload": "Shop", "name": "i3", "uri": "/api/workloads/Shop/instances/i3"},
            ]
        }
        assert uris(admin.get("/api/racks/RACK1/blades/10/instances/"), "instances") == [
            "/api/workloads/Shop/instances/i2"
        ]
        target = admin.get("/api/workloads/Shop/instances/i1/target")
        moved = {"desiredState": "running", "rackid": "Rack & 2", "bladeid": 1}
        match = {"If-Match": target.headers["etag"]}
        assert admin.put("/api/workloads/Shop/instances/i1/target", json=moved, headers=match).status_code == 200
        assert uris(admin.get(on_two), "instances") == ["/api/workloads/Shop/instances/i3"]
        assert admin.delete("/api/workloads/Shop").status_code == 200
        for path in (on_two, "/api/racks/rack9/blades/1/instances", "/api/racks/rack1/blades/10000001/instances"):
            assert said(admin.get(path)) == (200, "{}")
        assert admin.get("/api/racks/rack1/blades/one/instances").status_code == 400


@pytest.mark.slow
def test_a_workload_that_no_commit_holds_is_deleted_in_steps_when_asked(indexed: Web) -> None:
    """R16: the entry by which an instance is found on its blade counts, and etcd takes 128 operations at once."""
    with indexed.store() as store:
        takes_all = store.engine.profile.commit_operations_max is None
        CloudChamberIndexed(store).workloads.insert("many", Workload())
        for number in range(130):
            key, target = InstanceKey("many", f"i{number}"), InstanceTarget(rackid="rack1", bladeid=2)
            create_instance(CloudChamberIndexed(store), key, Instance(), target)
    with indexed.as_user() as admin:
        at_once = admin.delete("/api/workloads/many")
        assert at_once.status_code == (200 if takes_all else 413)
        if not takes_all:
            assert len(admin.get("/api/workloads/many/instances").json()["instances"]) == 130
            assert said(admin.delete("/api/workloads/many?steps")) == (200, 'Workload "many" deleted.')
        assert admin.get("/api/workloads/many/instances").status_code == 404


def test_users_are_found_by_right(indexed: Web) -> None:
    with indexed.as_user() as admin:
        etag = create(admin, "Ada", "canStepTime", "canPerformRepairs")
        create(admin, "bob", "canManageAccounts")
        by_right = "/api/users?right="
        assert uris(admin.get(f"{by_right}canStepTime"), "users") == ["/api/users/Ada", "/api/users/admin"]
        assert uris(admin.get(f"{by_right}canManageAccounts"), "users") == ["/api/users/admin", "/api/users/bob"]
        admin.put("/api/users/ada", json={"enabled": True}, headers={"If-Match": etag})
        assert uris(admin.get(f"{by_right}canStepTime"), "users") == ["/api/users/admin"]
        for right in ("", "canFly", "can_step_time", "CANSTEPTIME"):
            assert admin.get(f"{by_right}{right}").status_code == 400
        with indexed.as_user("ada", "test") as ada:
            assert ada.get(f"{by_right}canStepTime").status_code == 403


def test_who_is_not_logged_in_finds_nothing(indexed: Web) -> None:
    with indexed.client() as nobody:
        for path in ("blades", "blades?arch=X64", "racks/rack1/blades/2/instances", "users?right=canStepTime"):
            assert nobody.get(f"/api/{path}").status_code == 403
