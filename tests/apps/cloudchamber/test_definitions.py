"""Definitions over HTTP: racks, their parts, zone and region, written one by one under the keys of either layout."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from keyplan.apps.cloudchamber import (
    CloudChamberGo,
    parse_definition,
    unsound_pairs,
    validated,
)
from keyplan.engine import Commit, Delete, Put
from keyplan.errors import InvalidInputError
from tests.apps.cloudchamber.conftest import definition_yaml
from tests.apps.cloudchamber.definitions import (
    CAPACITY,
    DETAILS,
    NEW_ONE,
    SIDES,
    WHATEVER,
    as_admin,
    assert_sound,
    ports,
    put,
    raw,
    said,
    seen,
    site_with,
)
from tests.apps.cloudchamber.site import Site


@pytest.fixture(params=SIDES)
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    with site_with(request.param, tmp_path) as found:
        yield found
        assert_sound(found.store)


# ---- one by one ----------------------------------------------------------------------------------------------------------


def test_a_rack_is_made_part_by_part_and_shown_by_the_originals_routes(site: Site) -> None:
    async def act(admin: httpx.AsyncClient) -> None:
        made = await put(admin, "racks/Ada", {"details": DETAILS})
        assert (made.status_code, made.json()) == (201, {"details": DETAILS})
        for device in ("pdus/0", "tors/0", "tors/1"):
            assert (await put(admin, f"racks/Ada/{device}", ports(2))).status_code == 201
        body = {"capacity": CAPACITY, "bootOnPowerOn": True}
        made = await put(admin, "racks/Ada/blades/7", body)
        assert made.json() == {"details": {}, **body, "bootInfo": {}}, "as an import completes it"
        read = await admin.get("/api/racks/Ada/blades/7/definition")
        assert (read.status_code, read.content, read.headers["etag"]) == (200, made.content, made.headers["etag"])
        rack = (await admin.get("/api/racks/Ada")).json()
        assert (rack["details"], rack["blades"], list(rack["tors"])) == (DETAILS, {"7": CAPACITY}, ["0", "1"])
        assert rack["fullBlades"]["7"] == made.json()
        assert (await admin.get("/api/racks/Ada/blades/7")).json() == CAPACITY, "as before"
        assert list((await admin.get("/api/racks")).json()["racks"]) == ["Ada"]

    as_admin(site, act)


def test_what_is_there_is_changed_by_who_has_seen_it_alone(site: Site) -> None:
    async def act(admin: httpx.AsyncClient) -> None:
        first = await put(admin, "racks/ada", {})
        assert said(await put(admin, "racks/ada", {}, {}))[0] == 428
        both = await put(admin, "racks/ada", {}, NEW_ONE | WHATEVER)
        assert (both.status_code, "stand against each other" in both.text) == (400, True)
        again = await put(admin, "racks/ada", {})
        assert said(again) == (412, 'CloudChamber: rack "ada" is there already')
        assert again.headers["etag"] == first.headers["etag"], "names what is there"
        second = await put(admin, "racks/ada", {"details": DETAILS}, seen(first))
        assert second.status_code == 200
        late = await put(admin, "racks/ada", {}, seen(first))
        now, then = (answer.headers["etag"].strip('"') for answer in (second, first))
        assert said(late) == (412, f'CloudChamber: rack "ada" is at {now}, not at {then}: read it again')
        assert late.headers["etag"] == second.headers["etag"]
        assert (await put(admin, "racks/ada", {}, WHATEVER)).status_code == 200
        for headers in (WHATEVER, {"If-Match": '"3"'}):
            none = await put(admin, "racks/bob", {}, headers)
            assert said(none) == (412, 'CloudChamber: rack "bob" is not there')
        for word in ('"one"', '"0"', "W/1"):
            assert (await put(admin, "racks/ada", {}, {"If-Match": word})).status_code == 400
        assert (await put(admin, "racks/ada", {}, {"If-None-Match": '"1"'})).status_code == 400

    as_admin(site, act)


def test_a_body_is_refused_in_the_words_of_an_import(site: Site) -> None:
    """The definition file with the same mistakes says the same."""
    capacity = CAPACITY | {"cores": "0", "diskInGb": "2000000000"}
    yaml = definition_yaml("ada").replace(b"Cores: 1,", b"Cores: 0,").replace(b"DiskInGb: 1,", b"DiskInGb: 2000000000,")
    yaml = yaml.replace(b"Name: r\n", b"Name: standard\n").replace(b"Name: z\n", b"Name: standard\n")
    with pytest.raises(InvalidInputError) as refused:
        validated(parse_definition(yaml, source="file"))
    facts: Any = refused.value.facts
    words = "\n".join([facts["problem"], *facts["further"]])

    async def act(admin: httpx.AsyncClient) -> None:
        await put(admin, "racks/ada", {})
        assert said(await put(admin, "racks/ada/blades/1", {"capacity": capacity})) == (400, words)
        field = 'CloudChamber: in region "standard": the field "Zones[standard].Racks[ada].'
        refused = {
            "blades/10000001": (
                {"capacity": CAPACITY},
                'Blades[10000001].Index" must be less than or equal to 10000000',
            ),
            "pdus/0": ({}, 'Pdus[0].Ports" must contain at least 1 element'),
            "pdus/3": (ports(1), 'Pdus[3].Index" must be less than or equal to 2'),
            "tors/0": ({"ports": {"4": {"wired": True}}}, 'Tors[0].Ports[4].Item" is missing'),
            "tors/1": ({"ports": {"-1": {}}}, 'Tors[1].Ports[-1].Index" must be greater than or equal to 0'),
            "pdus/1": (
                {"ports": {"0": {"wired": True, "item": {"type": "pdu"}}}},
                'Pdus[1].Ports[0].Item.Type" is pdu',
            ),
        }
        for path, (body, problem) in refused.items():
            status, text = said(await put(admin, f"racks/ada/{path}", body))
            assert (status, text[: len(field + problem)]) == (400, field + problem)
        for body, problem in (
            ({"capacity": CAPACITY | {"corse": "1"}, "bot": 1}, "there is no field 'capacity.corse', 'bot'"),
            ({"capacity": {"cores": "many"}}, "the body cannot be read"),
        ):
            status, text = said(await put(admin, "racks/ada/blades/1", body))
            assert (status, problem in text) == (400, True), text
        assert said(await put(admin, "racks/ada/blades/x", {}))[0] == 400
        assert said(await put(admin, "racks/a%2Fb", {}))[0] == 400
        assert list((await admin.get("/api/racks/ada")).json()) == ["details", "pdu", "tor"], "nothing was written"

    as_admin(site, act)


def test_a_rack_becomes_nothing_that_an_import_refuses_but_for_what_lacks(site: Site) -> None:
    async def act(admin: httpx.AsyncClient) -> None:
        blade = {"capacity": CAPACITY}
        assert said(await put(admin, "racks/ada/blades/1", blade)) == (404, 'CloudChamber: rack "ada" not found')
        await put(admin, "racks/ada", {})
        for path in ("blades/1", "blades/2"):
            assert (await put(admin, f"racks/ada/{path}", blade)).status_code == 201
        few = 'Racks[ada].Pdus[0].Ports" must contain at least 2 elements.  It contains 1'
        status, text = said(await put(admin, "racks/ada/pdus/0", ports(1)))
        assert (status, few in text) == (409, True), text
        await put(admin, "racks/ada/pdus/0", ports(2))
        status, text = said(await put(admin, "racks/ada/blades/3", blade))
        assert (status, 'Pdus[0].Ports" must contain at least 3 elements' in text) == (409, True), text
        assert (await put(admin, "racks/ada/blades/2", blade, WHATEVER)).status_code == 200
        await put(admin, "racks/ada/pdus/2", ports(2))
        status, text = said(await put(admin, "racks/ada/pdus/1", ports(2)))
        assert (status, 'Racks[ada].Pdus" must contain at most 2 elements' in text) == (409, True), text

    as_admin(site, act)


def test_a_rack_that_is_not_empty_is_deleted_with_its_parts_when_it_is_asked_for(site: Site) -> None:
    async def act(admin: httpx.AsyncClient) -> None:
        for rack in ("ada", "ada1", "bob"):
            await put(admin, f"racks/{rack}", {})
            await put(admin, f"racks/{rack}/pdus/0", ports(3))
            for number in range(3):
                await put(admin, f"racks/{rack}/blades/{number}", {"capacity": CAPACITY})
        where = "/api/racks/ada/definition"
        assert (await admin.delete(where)).status_code == 428
        assert (await admin.delete(where, headers={"If-Match": '"1"'})).status_code == 412
        refused = await admin.delete(where, headers=WHATEVER)
        assert said(refused) == (409, 'CloudChamber: rack "ada" is not empty; ?cascade deletes what is in it, too')
        assert said(await admin.delete(f"{where}?cascade=false", headers=WHATEVER)) == said(refused)
        assert (await admin.delete(f"{where}?cascade=no", headers=WHATEVER)).status_code == 400
        gone = await admin.delete(f"{where}?cascade", headers=seen(await admin.get(where)))
        assert said(gone) == (200, 'Rack "ada" deleted.')
        assert said(await admin.delete(where, headers=WHATEVER)) == (404, 'CloudChamber: rack "ada" not found')
        assert list((await admin.get("/api/racks")).json()["racks"]) == ["ada1", "bob"]
        assert not [key for key in raw(site.store) if b"/ada/" in key or key.endswith(b"/ada")]
        for path in ("blades/0", "blades/1", "blades/2", "pdus/0"):
            assert (await admin.delete(f"/api/racks/bob/{path}/definition", headers=WHATEVER)).status_code == 200
        gone = await admin.delete("/api/racks/bob/blades/2/definition", headers=WHATEVER)
        assert said(gone) == (404, 'CloudChamber: blade 2 not found in rack "bob"')
        assert (await admin.delete("/api/racks/bob/definition", headers=WHATEVER)).status_code == 200

    as_admin(site, act)


def test_who_may_not_modify_the_inventory_reads_definitions_and_no_more(site: Site) -> None:
    async def act(admin: httpx.AsyncClient) -> None:
        await put(admin, "racks/ada", {})
        user = {"password": "x", "enabled": True, "rights": {"canModifyWorkloads": True}}
        assert (await admin.post("/api/users/eve", json=user)).status_code == 200
        eve = await site.logged_in("eve", "x")
        assert (await eve.get("/api/racks/ada/definition")).status_code == 200
        denied = (403, "CloudChamber: permission denied")
        for path in ("racks/ada", "racks/ada/blades/1", "racks/ada/tors/0", "zone"):
            assert said(await put(eve, path, {})) == denied
        assert said(await eve.delete("/api/racks/ada/definition", headers=WHATEVER)) == denied
        nobody = await site.client().get("/api/racks/ada/definition")
        assert said(nobody) == (403, "CloudChamber: no session active")

    as_admin(site, act)


def test_a_damaged_record_hides_no_other_and_is_replaced_or_deleted(site: Site) -> None:
    async def act(admin: httpx.AsyncClient) -> None:
        for rack in ("ada", "bob"):
            await put(admin, f"racks/{rack}", {})
            await put(admin, f"racks/{rack}/blades/1", {"capacity": CAPACITY})
        damaged = [
            key for key in raw(site.store) if key.endswith((b"rack/ada", b"racks/ada", b"/1")) and b"index" not in key
        ]
        site.store.engine.commit(Commit((), tuple(Put(key, b"{damaged") for key in damaged)))
        assert len(damaged) == 3
        for path in ("racks/ada", "racks/bob/blades/1"):
            where = f"/api/{path}/definition"
            read = await admin.get(where)
            assert (read.status_code, "stored bytes are damaged: /CloudChamber" in read.text) == (500, True)
            body = {} if path == "racks/ada" else {"capacity": CAPACITY}
            assert (await put(admin, path, body)).status_code == 412
            assert (await put(admin, path, body, seen(read))).status_code == 200
            assert (await admin.get(where)).status_code == 200
        assert (await put(admin, "racks/ada/blades/2", {"capacity": CAPACITY})).status_code == 201, (
            "beside a damaged one"
        )
        read = await admin.get("/api/racks/ada/blades/1/definition")
        assert (await admin.delete("/api/racks/ada/blades/1/definition", headers=seen(read))).status_code == 200
        assert "cloudchamber-damaged" not in (await admin.get("/api/racks")).headers

    as_admin(site, act)


def test_what_is_left_of_a_rack_is_no_new_racks_and_a_delete_that_is_given_again_goes_on(site: Site) -> None:
    """A delete in steps that is cut off has deleted the rack's own record, and not all of its parts."""

    async def act(admin: httpx.AsyncClient) -> None:
        made = await put(admin, "racks/Ada", {})
        for number in (1, 2):
            await put(admin, f"racks/Ada/blades/{number}", {"capacity": CAPACITY})
        await admin.put("/api/racks/Ada/blades/1/actual", json={"smState": "working"})
        own = [key for key in raw(site.store) if key.lower().endswith((b"/rack/ada", b"/racks/ada"))]
        site.store.engine.commit(Commit((), tuple(map(Delete, own))))
        where = "/api/racks/Ada/definition"
        words = 'CloudChamber: rack "Ada" is not there, and parts of it are, as '
        for refused in (await put(admin, "racks/Ada", {}), await admin.delete(where, headers=WHATEVER)):
            assert (refused.status_code, refused.text[: len(words)]) == (409, words)
            assert refused.text.endswith(": a DELETE with ?cascade deletes them\n"), refused.text
        assert said(await admin.get(where))[0] == 404
        gone = await admin.delete(f"{where}?cascade", headers=seen(made))
        assert said(gone) == (200, 'Rack "Ada" deleted.'), "as it was given first"
        assert not [key for key in raw(site.store) if b"/ada/" in key.lower()]
        assert said(await admin.delete(f"{where}?cascade", headers=seen(made)))[0] == 404
        assert (await put(admin, "racks/Ada", {})).status_code == 201
        assert "blades" not in (await admin.get("/api/racks/Ada")).json()

    as_admin(site, act)


def test_fields_of_a_newer_program_stay_and_are_not_made_up(site: Site) -> None:
    async def act(admin: httpx.AsyncClient) -> None:
        await put(admin, "racks/ada", {})
        key = next(
            key
            for key in raw(site.store)
            if key.endswith((b"data/region/standard/zone/standard/rack/ada", b"racks/ada"))
        )
        site.store.engine.commit(Commit((), (Put(key, b'{"details":{"colour":"red"},"owner":"x"}'),)))
        kept = {"details": {"enabled": True, "colour": "red"}, "owner": "x"}
        assert (await put(admin, "racks/ada", {"details": {"enabled": True}}, WHATEVER)).json() == kept
        assert (await put(admin, "racks/ada", kept, WHATEVER)).json() == kept
        status, text = said(await put(admin, "racks/ada", {"details": {"shape": 1}}, WHATEVER))
        assert (status, "there is no field 'details.shape'" in text) == (400, True)

    as_admin(site, act)


# ---- the Go program's keys ------------------------------------------------------------------------------------------------


def test_the_first_rack_of_the_go_program_gets_its_zone_and_region(tmp_path: Path) -> None:
    """Record and list key of each in one commit; the name's own case stands in the list key, and stays."""

    async def act(site: Site) -> None:
        admin = await site.logged_in()
        before = set(raw(site.store))
        for path in ("zone", "region"):
            assert said(await admin.get(f"/api/{path}/definition")) == (
                404,
                f'CloudChamber: {path} "standard" not found',
            )
        await put(admin, "racks/Ada", {})
        await put(admin, "racks/ADA/blades/3", {"capacity": CAPACITY})
        await put(admin, "racks/ada", {"details": DETAILS}, WHATEVER)
        inventory = b"/CloudChamber/v0.1/inventory/definition/"
        made = {key.removeprefix(inventory): value for key, value in raw(site.store).items() if key not in before}
        zone = b"region/standard/zone/standard"
        blade = made.pop(b"data/" + zone + b"/rack/ada/blade/3")
        assert made == {
            b"data/region/standard": b'{"details":{}}',
            b"index/regions/standard": b"standard",
            b"data/" + zone: b'{"details":{}}',
            b"index/region/standard/zones/standard": b"standard",
            b"data/" + zone + b"/rack/ada": b'{"details":{"enabled":true,"condition":"operational"}}',
            b"index/" + zone + b"/racks/ada": b"Ada",
            b"index/" + zone + b"/rack/ada/blades/3": b"3",
        }
        assert blade.startswith(b'{"details":{},"capacity":{"cores":"4"')
        zone_read = await admin.get("/api/zone/definition")
        details = {"enabled": True, "state": "in_service", "location": "here"}
        assert (await put(admin, "zone", {"details": details}, seen(zone_read))).status_code == 200
        assert (await admin.get("/api/racks")).json()["details"] == details
        assert (await put(admin, "region", {"details": {"location": "x"}}, WHATEVER)).status_code == 200

    with site_with("go", tmp_path) as site:
        site.run(act)
        assert_sound(site.store)


def test_a_write_mends_the_list_keys_that_lack(tmp_path: Path) -> None:
    async def act(site: Site) -> None:
        admin = await site.logged_in()
        go = CloudChamberGo(site.store)
        await put(admin, "racks/ada", {})
        await put(admin, "racks/ada/tors/1", ports(1))
        for view in map(go.view, ("listed_racks", "listed_zones", "listed_tors")):
            for key in [*view.keys()]:
                view.delete(key)
        assert (await admin.get("/api/racks")).status_code == 500
        assert len([*unsound_pairs(go)]) == 3
        await put(admin, "racks/ADA", {}, WHATEVER)
        await put(admin, "racks/ada/tors/1", ports(1), WHATEVER)
        assert list((await admin.get("/api/racks")).json()["racks"]) == ["ADA"]

    with site_with("go", tmp_path) as site:
        site.run(act)
        assert_sound(site.store)


def test_the_documents_keys_have_no_zone(tmp_path: Path) -> None:
    async def act(site: Site) -> None:
        admin = await site.logged_in()
        for path in ("zone", "region"):
            assert said(await put(admin, path, {})) == (404, f"CloudChamber: the store's layout keeps no {path}")
            assert (await admin.get(f"/api/{path}/definition")).status_code == 404

    with site_with("document", tmp_path) as site:
        site.run(act)
