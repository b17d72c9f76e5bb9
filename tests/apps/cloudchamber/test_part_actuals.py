"""Actual states of blades, PDUs and TORs over HTTP, under either layout: with their part, shown, and gone with it."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from keyplan.engine import Commit, Put
from tests.apps.cloudchamber.definitions import (
    CAPACITY,
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
from tests.apps.cloudchamber.test_import_over_http import imported, named

WORKING = {"at": "9", "smState": "working", "enteredAt": "4", "condition": "operational"}
SHOWN = {"at": "9", "smState": "working", "enteredAt": "4"}
PARTS = ("blades/1", "pdus/0", "tors/0", "tors/1")


@pytest.fixture(params=SIDES)
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    with site_with(request.param, tmp_path) as found:
        yield found
        assert_sound(found.store)


async def make_rack(admin: httpx.AsyncClient, rack: str) -> None:
    """A rack with a part of each kind and a further TOR; each is working, as a simulator says."""
    await put(admin, f"racks/{rack}", {})
    for part in PARTS:
        body = {"capacity": CAPACITY} if part.startswith("blades") else ports(2)
        assert (await put(admin, f"racks/{rack}/{part}", body)).status_code == 201
        answer = await admin.put(f"/api/racks/{rack}/{part}/actual", json=WORKING)
        assert (answer.status_code, answer.json()) == (200, WORKING)


def actual_keys(site: Site) -> set[str]:
    return {key.decode().split("/rack/")[1] for key in raw(site.store) if key.endswith(b"/actual")}


def test_what_a_simulator_writes_is_read_and_shown_by_the_originals_route(site: Site) -> None:
    async def act(admin: httpx.AsyncClient) -> None:
        await make_rack(admin, "ada")
        assert actual_keys(site) == {"ada/blade/1/actual", "ada/pdu/0/actual", "ada/tor/0/actual", "ada/tor/1/actual"}
        await put(admin, "racks/ada/blades/2", {"capacity": CAPACITY})
        rack = (await admin.get("/api/racks/ADA")).json()
        assert rack["fullBlades"]["1"].pop("observed") == SHOWN
        assert rack["fullBlades"]["1"] == rack["fullBlades"]["2"], "left out where there is none"
        assert [rack[kind][number]["observed"] for kind, number in (("pdus", "0"), ("tors", "0"), ("tors", "1"))] == [
            SHOWN
        ] * 3
        assert "observed" not in (await admin.get("/api/racks/ada/blades/1/definition")).text
        where = "/api/racks/ada/blades/1/actual"
        first = await admin.get(where)
        booting = WORKING | {"smState": "booting", "at": "11"}
        second = await admin.put(where, json=booting)
        assert (second.status_code, first.headers["etag"] != second.headers["etag"]) == (200, True)
        late = await admin.put(where, json=WORKING, headers=seen(first))
        assert (late.status_code, late.headers["etag"]) == (412, second.headers["etag"])
        assert 'CloudChamber: actual state of blade 1 of rack "ada" is at ' in late.text
        assert (await admin.put(where, json=WORKING, headers=seen(second))).json() == WORKING
        assert said(await admin.delete(where)) == (200, 'The actual state of blade 1 of rack "ada" deleted.')
        none = (404, 'CloudChamber: blade 1 of rack "ada" has no actual state')
        assert said(await admin.get(where)) == said(await admin.delete(where)) == none
        assert (await admin.put(where, json=WORKING, headers=WHATEVER)).status_code == 412

    as_admin(site, act)


def test_nothing_is_said_of_what_is_not_there_or_cannot_be(site: Site) -> None:
    async def act(admin: httpx.AsyncClient) -> None:
        await put(admin, "racks/ada", {})
        await put(admin, "racks/ada/tors/0", ports(1))
        for path, text in {
            "bob/blades/1": 'rack "bob" not found',
            "ada/blades/1": 'blade 1 not found in rack "ada"',
            "ada/pdus/0": 'pdu 0 not found in rack "ada"',
            "ada/tors/7": 'tor 7 not found in rack "ada"',
        }.items():
            answer = await admin.put(f"/api/racks/{path}/actual", json=WORKING)
            assert said(answer) == (404, f"CloudChamber: {text}")
            assert (await admin.get(f"/api/racks/{path}/actual")).status_code == 404
        for body, problem in (
            ({"smState": "off"}, "smState 'off' is none of a tor's: working, stuck"),
            ({"smState": "stuck", "at": "-1"}, "at is a tick, 0 or later, and not -1"),
            ({}, "smState '' is none of a tor's: working, stuck"),
            ({"smState": "stuck", "at": "3", "enteredAt": "4"}, "enteredAt is from 0 to at, which is 3, and not 4"),
        ):
            status, text = said(await admin.put("/api/racks/ada/tors/0/actual", json=body))
            assert (status, problem in text) == (400, True), text
        assert actual_keys(site) == set()

    as_admin(site, act)


def test_an_actual_state_goes_with_its_part(site: Site) -> None:
    """By a delete, with the whole rack, and by an import that has the part no more; those of another rack stay."""

    async def act(admin: httpx.AsyncClient) -> None:
        for rack in ("ada", "ada1", "bob"):
            await make_rack(admin, rack)
        of = {rack: {key for key in actual_keys(site) if key.startswith(f"{rack}/")} for rack in ("ada", "ada1", "bob")}
        for part in PARTS:
            assert (await admin.delete(f"/api/racks/ada/{part}/definition", headers=WHATEVER)).status_code == 200
        assert actual_keys(site) == of["ada1"] | of["bob"]
        for part in PARTS:
            body = {"capacity": CAPACITY} if part.startswith("blades") else ports(2)
            await put(admin, f"racks/ada/{part}", body)
        assert "observed" not in (await admin.get("/api/racks/ada")).text, "a part made anew has none"
        assert (await admin.delete("/api/racks/ada1/definition?cascade", headers=WHATEVER)).status_code == 200
        assert actual_keys(site) == of["bob"]
        stays = of["bob"] - {"bob/tor/1/actual"}
        plan = await imported(admin, named("bob"), "?dry-run")
        assert (await imported(admin, named("bob"), headers=seen(plan))).status_code == 200
        assert actual_keys(site) == stays

    as_admin(site, act)


def test_a_damaged_actual_state_hides_nothing_and_is_replaced_or_deleted(site: Site) -> None:
    async def act(admin: httpx.AsyncClient) -> None:
        await make_rack(admin, "ada")
        for key in [key for key in raw(site.store) if key.endswith((b"blade/1/actual", b"pdu/0/actual"))]:
            site.store.engine.commit(Commit((), (Put(key, b"{damaged"),)))
        rack = await admin.get("/api/racks/ada")
        assert rack.headers["cloudchamber-damaged"] == "2; rack/ada/blade/1/actual, rack/ada/pdu/0/actual"
        assert rack.json()["tors"]["0"]["observed"] == SHOWN
        assert "observed" not in rack.json()["fullBlades"]["1"]
        read = await admin.get("/api/racks/ada/blades/1/actual")
        assert (read.status_code, "stored bytes are damaged: /CloudChamber" in read.text) == (500, True)
        assert (await admin.put("/api/racks/ada/blades/1/actual", json=WORKING, headers=seen(read))).status_code == 200
        assert (await admin.delete("/api/racks/ada/pdus/0/actual")).status_code == 200
        assert "cloudchamber-damaged" not in (await admin.get("/api/racks/ada")).headers

    as_admin(site, act)


def test_who_may_not_modify_the_inventory_reads_actual_states_and_no_more(site: Site) -> None:
    async def act(admin: httpx.AsyncClient) -> None:
        await make_rack(admin, "ada")
        user = {"password": "x", "enabled": True, "rights": {"canModifyWorkloads": True, "canInjectFaults": True}}
        assert (await admin.post("/api/users/eve", json=user)).status_code == 200
        eve = await site.logged_in("eve", "x")
        for part in PARTS:
            where = f"/api/racks/ada/{part}/actual"
            assert (await eve.get(where)).json() == WORKING
            for answer in (await eve.put(where, json=WORKING), await eve.delete(where)):
                assert said(answer) == (403, "CloudChamber: permission denied")
            assert said(await site.client().get(where)) == (403, "CloudChamber: no session active")

    as_admin(site, act)


def test_a_field_that_a_newer_program_has_stored_stays_and_one_that_nobody_has_is_refused(site: Site) -> None:
    where = "/api/racks/ada/blades/1/actual"

    async def act(admin: httpx.AsyncClient) -> None:
        await make_rack(admin, "ada")
        assert said(await admin.put(where, json=WORKING | {"smstate": "off"})) == (
            400,
            "CloudChamber: there is no field 'smstate'",
        )
        assert (await admin.get(where)).json() == WORKING
        key = next(key for key in raw(site.store) if key.endswith(b"ada/blade/1/actual"))
        site.store.engine.commit(Commit((), (Put(key, b'{"smState":"working","heat":[7]}'),)))
        assert (await admin.put(where, json=WORKING)).json() == WORKING | {"heat": [7]}
        read = await admin.get(where)
        assert (await admin.put(where, json=read.json(), headers=seen(read))).json() == read.json()

    as_admin(site, act)
