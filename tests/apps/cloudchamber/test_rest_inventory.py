"""Racks, blades and workloads over HTTP (5.3, 5.4), on the original's own inventory."""

from pathlib import Path

import httpx
import pytest

from keyplan.apps.cloudchamber import (
    CloudChamber,
    Rack,
    inventory_records,
    read_definition,
    reconcile,
    validated,
)
from keyplan.engine import Commit, Delete, Put
from tests.apps.cloudchamber.conftest import add_blades
from tests.apps.cloudchamber.test_rest_users import create, said
from tests.apps.cloudchamber.web import Web

BLADE_1 = {
    "cores": "16",
    "memoryInMb": "16384",
    "diskInGb": "240",
    "networkBandwidthInMbps": "2048",
    "arch": "X64",
}


@pytest.fixture
def stocked(web: Web, samples: Path) -> Web:
    """The server with the standard inventory."""
    with web.store() as store:
        reconcile(CloudChamber(store), inventory_records(validated(read_definition(samples / "inventory.yaml"))))
    return web


def test_an_empty_inventory_is_an_error_and_nobody_reads_without_a_session(web: Web) -> None:
    with web.store() as store:
        reconcile(CloudChamber(store), {})
    with web.as_user() as admin, web.client() as nobody:
        assert said(admin.get("/api/racks")) == (500, "CloudChamber: Inventory empty or not yet loaded\n")
        for path in ("/api/racks", "/api/racks/rack1", "/api/racks/rack1/blades", "/api/racks/rack1/blades/1"):
            assert said(nobody.get(path)) == (403, "CloudChamber: no session active\n")


def test_the_summary_names_the_racks_and_the_most_of_everything(stocked: Web) -> None:
    with stocked.as_user() as admin:
        for path in ("/api/racks", "/API/Racks/"):
            assert admin.get(path).json() == {
                "racks": {f"rack{number}": {"uri": f"/api/racks/rack{number}/"} for number in range(1, 9)},
                "maxBladeCount": "8",
                "maxCapacity": {
                    "cores": "32",
                    "memoryInMb": "16384",
                    "diskInGb": "240",
                    "networkBandwidthInMbps": "2048",
                },
                "details": {},
                "name": "standard",
                "maxTorCount": "1",
                "maxPduCount": "1",
                "maxConnectors": "9",
            }


def test_a_rack_is_shown_as_it_is_stored_and_nothing_is_made_up(stocked: Web) -> None:
    with stocked.as_user() as admin:
        rack = admin.get("/api/racks/RACK1/").json()
        assert list(rack) == ["details", "pdu", "tor", "blades", "pdus", "tors", "fullBlades"]
        assert (rack["pdu"], rack["tor"]) == ({}, {})
        assert list(rack["blades"]) == [str(number) for number in range(1, 9)]
        assert rack["blades"]["1"] == BLADE_1
        assert rack["pdus"]["0"]["ports"]["8"] == {"wired": True, "item": {"type": "blade", "id": "8"}}
        assert rack["fullBlades"]["1"]["bootInfo"]["parameters"] == "-version=1 -node=R1Z1R1B1"
        assert "observed" not in str(rack)
        assert said(admin.get("/api/racks/rack9")) == (404, 'CloudChamber: rack "rack9" not found\n')


def test_blades_are_listed_by_number_and_read_alone(stocked: Web) -> None:
    with stocked.as_user() as admin:
        lines = admin.get("/api/racks/rack1/blades/").text.splitlines()
        assert lines == ['Blades in "rack1" (List)', *(f"/api/racks/rack1/blades/{number}" for number in range(1, 9))]
        assert said(admin.get("/api/racks/rack9/blades")) == (200, 'Blades in "rack9" (List)\n')
        assert admin.get("/api/racks/rack1/blades/1").json() == BLADE_1
        for number in ("9", "-1", "9223372036854775807"):
            assert said(admin.get(f"/api/racks/rack1/blades/{number}")) == (
                404,
                f'CloudChamber: blade {number} not found in rack "rack1"\n',
            )
        for number, problem in (("one", "invalid syntax"), ("99999999999999999999", "value out of range")):
            assert said(admin.get(f"/api/racks/rack1/blades/{number}")) == (
                400,
                f'strconv.ParseInt: parsing "{number}": {problem}\n',
            )


def test_a_rack_whose_name_has_capitals_is_found_as_written(stocked: Web) -> None:
    """R9: keys are literal, and paths are folded only where the literal name is not there."""
    with stocked.store() as store:
        CloudChamber(store).racks.insert("Ada & Co", Rack())
    with stocked.as_user() as admin:
        uri = admin.get("/api/racks").json()["racks"]["Ada & Co"]["uri"]
        assert uri == "/api/racks/Ada%20%26%20Co/"
        assert admin.get(uri).json() == {"pdu": {}, "tor": {}}
    with stocked.store() as store:
        CloudChamber(store).racks.delete("Ada & Co")


def test_a_store_without_indexes_says_how_to_have_them(web: Web) -> None:
    told = "CloudChamber: the store keeps no indexes; 'keyplan cloudchamber index' has them kept\n"
    with web.as_user() as admin:
        for path in ("blades?arch=X64", "users?right=canStepTime"):
            assert said(admin.get(f"/api/{path}")) == (409, told)
        assert admin.get("/api/blades").status_code == 200


def test_what_another_program_damaged_is_an_error_of_the_server_that_does_not_quote_it(stocked: Web) -> None:
    """BOM, bytes that are no UTF-8, another type: the log names the key, and the other records are read as before."""
    keys = [f"/CloudChamber/V0.1/rack/odd/blades/{number}".encode() for number in range(3)]
    values = (b'\xef\xbb\xbf{"capacity":{}}', b'{"capacity":"secret\xff"}', b'{"capacity":{"cores":"secret"}}')
    with stocked.store() as store:
        store.engine.commit(Commit((), tuple(Put(key, value) for key, value in zip(keys, values, strict=True))))
    with stocked.as_user() as admin:
        for number, key in enumerate(keys):
            assert said(admin.get(f"/api/racks/odd/blades/{number}")) == (
                500,
                f"CloudChamber: stored bytes are damaged: {key.decode()}\n",
            )
            assert key.hex() in stocked.server.log
        assert admin.get("/api/racks/rack1/blades/1").json() == BLADE_1
    assert "secret" not in stocked.server.log
    with stocked.store() as store:
        store.engine.commit(Commit((), tuple(Delete(key) for key in keys)))


def test_a_damaged_rack_or_part_leaves_the_others_in_the_list(stocked: Web) -> None:
    keys = [b"/CloudChamber/V0.1/racks/odd", b"/CloudChamber/V0.1/rack/rack1/blades/3"]
    with stocked.store() as store:
        blade = store.engine.value(keys[1])
        assert blade is not None
        store.engine.commit(Commit((), tuple(Put(key, b"{damaged") for key in keys)))
    try:
        with stocked.as_user() as admin:
            answer = admin.get("/api/racks")
            summary = answer.json()
            assert list(summary["racks"]) == ["odd", *(f"rack{number}" for number in range(1, 9))]
            assert answer.headers["cloudchamber-damaged"] == "2; racks/odd, rack/rack1/blades/3"
            assert set(summary["racks"]["odd"]) == {"uri"}, "strict clients know no other field"
            assert (summary["maxBladeCount"], summary["maxCapacity"]["cores"]) == ("8", "32")
            answer = admin.get("/api/racks/rack1")
            rack1 = answer.json()
            assert (answer.headers["cloudchamber-damaged"], "damaged" in rack1) == ("1; rack/rack1/blades/3", False)
            assert "3" not in rack1["blades"]
            assert rack1["blades"]["1"] == BLADE_1
            assert admin.get("/api/racks/rack1/blades").text.splitlines()[3].endswith("/blades/3")
            assert admin.get("/api/racks/odd").headers["cloudchamber-damaged"] == "1; racks/odd"
            assert "cloudchamber-damaged" not in admin.get("/api/racks/rack2").headers
    finally:
        with stocked.store() as store:
            store.engine.commit(Commit((), (Delete(keys[0]), Put(keys[1], blade))))


def test_a_path_that_is_no_text_is_refused(web: Web) -> None:
    """%ff and %fe would both be the workload of the character U+FFFD, which can be meant itself."""
    with web.as_user() as admin:
        for path in ("/api/workloads/%ff", "/api/workloads/a%c3", "/api/racks/%fe/blades"):
            assert said(admin.request("POST" if "workloads" in path else "GET", path)) == (
                400,
                "CloudChamber: the path is no UTF-8\n",
            )
        assert admin.get("/api/workloads/%EF%BF%BD").status_code == 404


# ---- workloads -------------------------------------------------------------------------------------------------------


def etag_of(answer: httpx.Response) -> dict[str, str]:
    assert answer.status_code == 200, answer.text
    return {"If-Match": answer.headers["etag"]}


def test_a_workload_is_created_read_replaced_and_deleted_under_its_etag(web: Web) -> None:
    with web.as_user() as admin:
        other = 'CloudChamber: the workload\'s name is "Other", and the path\'s "Shop": leave it out\n'
        assert said(admin.post("/api/workloads/Shop", json={"name": "Other"})) == (400, other)
        made = admin.post("/api/workloads/Shop", json={"affinity": "Strong_Affinity"})
        assert said(made) == (200, 'Workload "Shop" created')
        assert web.raw("/CloudChamber/V0.1/workloads/Shop") == b'{"name":"Shop","affinity":"Strong_Affinity"}'
        assert said(admin.post("/api/workloads/Shop", json={})) == (
            400,
            'CloudChamber: workload "Shop" already exists\n',
        )
        assert {"name": "Shop", "uri": "/api/workloads/Shop"} in admin.get("/api/workloads/").json()["workloads"]
        match = etag_of(admin.get("/api/workloads/Shop"))
        assert match == etag_of(made)
        replaced = admin.put("/api/workloads/Shop", json={"name": "Shop"}, headers=match)
        assert replaced.json() == {"name": "Shop"}
        assert said(admin.put("/api/workloads/Shop", json={"name": "Other"}, headers=match)) == (400, other)
        assert said(admin.put("/api/workloads/Shop", json={}, headers=match)) == (
            409,
            'CloudChamber: workload "shop" has a newer version than expected\n',
        )
        assert admin.put("/api/workloads/Shop", json={}).status_code == 400
        assert admin.put("/api/workloads/none", json={}, headers=match).status_code == 404
        assert admin.delete("/api/workloads/Shop", headers=match).status_code == 409
        assert said(admin.delete("/api/workloads/Shop", headers=etag_of(replaced))) == (
            200,
            'Workload "Shop" deleted.',
        )
        assert said(admin.delete("/api/workloads/Shop")) == (404, 'CloudChamber: workload "shop" not found\n')


def test_a_field_that_nobody_knows_is_refused_by_name_and_one_of_a_newer_program_stays(web: Web) -> None:
    key = "/CloudChamber/V0.1/workloads/newer"
    one, place = "/api/workloads/newer", "/api/workloads/newer/instances/i"

    def strange(field: str) -> tuple[int, str]:
        return 400, f"CloudChamber: there is no field '{field}'\n"

    with web.as_user() as admin:
        assert said(admin.post(one, json={"affinty": "None"})) == strange("affinty")
        assert admin.get(one).status_code == 404
        admin.post(one, json={})
        needs = {"description": {"requiredCapacity": {"core": 4}}}
        assert said(admin.post(place, json=needs)) == strange("description.requiredCapacity.core")
        assert admin.get(place).status_code == 404
        match = etag_of(admin.post(place, json={}))
        assert said(admin.put(f"{place}/actual", json={"stat": ""})) == strange("stat")
        for path in (place, f"{place}/target"):
            assert said(admin.put(path, json={"x": 1}, headers=match)) == strange("x")
            assert admin.get(path).json() == {}
        with web.store() as store:
            store.engine.commit(Commit((), (Put(key.encode(), b'{"name":"newer","added":[1]}'),)))
        match = etag_of(admin.get(one))
        assert said(admin.put(one, json={"x": 1, "added": []}, headers=match)) == strange("x")
        replaced = admin.put(one, json={"affinity": "Weak_Affinity"}, headers=match)
        assert replaced.json() == {"name": "newer", "affinity": "Weak_Affinity", "added": [1]}
        assert admin.put(one, json={"added": [2]}, headers=etag_of(replaced)).json() == {"name": "newer", "added": [2]}
        admin.delete(one)


def test_a_damaged_workload_or_instance_is_told_with_its_etag_and_replaced(web: Web) -> None:
    one, place = "/api/workloads/hurt", "/api/workloads/hurt/instances/i"
    root = "/CloudChamber/V0.1/workload"
    keys = {
        one: f"{root}s/hurt",
        place: f"{root}/hurt/instances/i",
        f"{place}/actual": f"{root}/hurt/instance/i/actual",
    }
    with web.as_user() as admin:
        admin.post(one, json={})
        admin.post(place, json={"actual": {"state": "on"}})
        with web.store() as store:
            store.engine.commit(Commit((), tuple(Put(key.encode(), b"{damaged") for key in keys.values())))
        for path, key in keys.items():
            read = admin.get(path)
            assert said(read) == (500, f"CloudChamber: stored bytes are damaged: {key}\n")
            assert admin.put(path, json={}, headers={"If-Match": read.headers["etag"]}).status_code == 200
            assert admin.get(path).status_code == 200
        admin.delete(one)


def test_what_is_left_of_a_workload_is_no_new_workloads_and_a_delete_that_is_given_again_goes_on(web: Web) -> None:
    """A delete in steps that is cut off has deleted the workload's own record, and not all of its instances."""
    with web.as_user() as admin:
        admin.post("/api/workloads/Left", json={})
        admin.post("/api/workloads/Left/instances/i1", json={})
        match = etag_of(admin.get("/api/workloads/Left"))
        with web.store() as store:
            store.engine.commit(Commit((), (Delete(b"/CloudChamber/V0.1/workloads/Left"),)))
        left = "parts of it are, as workload/Left/instances/i1: a DELETE deletes them"
        refused = (409, f'CloudChamber: workload "Left" is not there, and {left}\n')
        assert said(admin.post("/api/workloads/Left", json={})) == refused
        assert admin.get("/api/workloads/Left").status_code == 404
        assert said(admin.delete("/api/workloads/Left?steps", headers=match)) == (200, 'Workload "Left" deleted.')
        assert admin.delete("/api/workloads/Left", headers=match).status_code == 404
        assert admin.post("/api/workloads/Left", json={}).status_code == 200
        assert said(admin.get("/api/workloads/Left/instances")) == (200, "{}")
        admin.delete("/api/workloads/Left")


def test_an_instance_stands_under_the_documents_keys(web: Web) -> None:
    root = "/CloudChamber/V0.1/workload/site/instance"
    one = "/api/workloads/site/instances/i1"
    with web.store() as store:
        add_blades(CloudChamber(store), "rack1", 3)
    with web.as_user() as admin:
        body = {
            "description": {"config": "c"},
            "target": {"desiredState": "running", "rackid": "rack1", "bladeid": "3"},
        }
        assert said(admin.post(one, json=body)) == (404, 'CloudChamber: workload "site" not found\n')
        admin.post("/api/workloads/site", json={})
        made = admin.post(one, json=body)
        assert said(made) == (200, 'Instance "i1" created')
        assert web.raw(f"{root}s/i1") == b'{"config":"c"}'
        assert web.raw(f"{root}/i1/target") == b'{"desiredState":"running","rackid":"rack1","bladeid":"3"}'
        assert web.raw(f"{root}/i1/actual") is None
        assert admin.post(one, json=body).status_code == 400
        assert admin.get("/api/workloads/site/instances").json() == {"instances": [{"name": "i1", "uri": one}]}
        assert admin.get(one).json() == {"config": "c"}
        assert admin.get(f"{one}/actual").status_code == 404
        first = admin.put(f"{one}/actual", json={"state": "running", "rackid": "rack1", "bladeid": 2})
        assert admin.put(f"{one}/actual", json={"state": "off"}).status_code == 400
        assert admin.get("/api/workloads/site/differences").json() == {
            "differences": [{"instance": "i1", "fields": [{"name": "bladeid", "wanted": "3", "found": "2"}]}]
        }
        seen = {"state": "running", "rackid": "rack1", "bladeid": "3"}
        assert admin.put(f"{one}/actual", json=seen, headers=etag_of(first)).json() == seen
        assert admin.get("/api/workloads/site/differences").json() == {}
        target = etag_of(admin.get(f"{one}/target"))
        changed = admin.put(f"{one}/target", json={"desiredState": "off"}, headers=target)
        assert changed.json() == {"desiredState": "off", "generation": "1"}
        assert admin.put(f"{one}/target", json={}, headers=target).status_code == 409
        assert admin.delete("/api/workloads/site?restrict").status_code == 409
        assert said(admin.delete(one)) == (200, 'Instance "i1" deleted.')
        assert web.raw(f"{root}/i1/target") is None
        assert admin.delete("/api/workloads/site?restrict").status_code == 200


def test_workloads_are_read_with_a_session_and_changed_with_the_right(web: Web) -> None:
    with web.as_user() as admin:
        create(admin, "reader")
        create(admin, "writer", "canModifyWorkloads")
    with web.client() as nobody:
        assert nobody.get("/api/workloads").status_code == 403
        assert nobody.post("/api/workloads/mine", json={}).status_code == 403
    with web.as_user("reader", "test") as reader, web.as_user("writer", "test") as writer:
        assert said(reader.post("/api/workloads/mine", json={})) == (403, "CloudChamber: permission denied\n")
        assert writer.post("/api/workloads/mine", json={}).status_code == 200
        assert reader.get("/api/workloads/mine").status_code == 200
        for method, path in (("PUT", ""), ("DELETE", ""), ("POST", "/instances/a"), ("PUT", "/instances/a/actual")):
            answer = reader.request(method, f"/api/workloads/mine{path}", json={}, headers={"If-Match": '"1"'})
            assert answer.status_code == 403
        assert writer.delete("/api/workloads/mine").status_code == 200
