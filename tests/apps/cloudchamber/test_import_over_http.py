"""An import over HTTP: what a plan has shown is what is done, whole or not at all, and nothing is read without a bound."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from keyplan.apps.cloudchamber import (
    CloudChamber,
    CloudChamberGo,
    LayoutSide,
    Rack,
    RackDetails,
    parse_definition,
    planned_import,
    reconcile,
    validated,
)
from keyplan.apps.cloudchamber.imports import ApprovedPlan, PlanChangedError, plan_digest, wanted_records
from keyplan.apps.cloudchamber.rest_import import DEFINITION_BYTES_MAX
from keyplan.engine import MEMORY_PROFILE, Commit, MemoryEngine, WrappedEngine
from keyplan.errors import EngineLimitError
from keyplan.store import Store
from tests.apps.cloudchamber.conftest import definition_yaml
from tests.apps.cloudchamber.definitions import SIDES, WHATEVER, as_admin, assert_sound, put, raw, said, seen, site_with
from tests.apps.cloudchamber.site import Site, site_of
from tests.servers.etcd import EtcdServer

DRY = "?dry-run"


@pytest.fixture(params=SIDES)
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    with site_with(request.param, tmp_path) as found:
        yield found
        assert_sound(found.store)


def named(*racks: str, blades: int = 1) -> bytes:
    """A definition of the zone that is served."""
    yaml = definition_yaml(*racks, blades=blades)
    return yaml.replace(b"- Name: r\n", b"- Name: standard\n").replace(b"Name: z\n", b"Name: standard\n")


async def imported(
    client: httpx.AsyncClient, body: bytes, words: str = "", headers: dict[str, str] | None = None
) -> httpx.Response:
    sent = {"Content-Type": "application/yaml", **(headers or {})}
    return await client.put(f"/api/inventory{words}", content=body, headers=sent)


def test_what_a_dry_run_has_shown_is_what_is_done(site: Site) -> None:
    async def act(admin: httpx.AsyncClient) -> None:
        before = raw(site.store)
        shown = await imported(admin, named("ada", "bob"), DRY)
        assert shown.status_code == 200
        assert raw(site.store) == before, "a dry run writes nothing"
        racks = [one for one in shown.json()["create"] if one["table"] == "racks"]
        assert [one["rack"] for one in racks] == ["ada", "bob"]
        assert (await imported(admin, named("ada", "bob"))).status_code == 428
        other = await imported(admin, named("ada"), headers=seen(shown))
        assert (other.status_code, raw(site.store) == before) == (412, True), "another file is another plan"
        assert (await admin.post("/api/workloads/web", json={})).status_code == 200
        done = await imported(admin, named("ada", "bob"), headers=seen(shown))
        assert done.status_code == 200, "what is no inventory is nobody's plan"
        told = {"dry_run": False, "commits": 1, "revision": site.store.revision}
        assert done.json() == shown.json() | told
        again = await imported(admin, named("ada", "bob"), headers=seen(shown))
        assert (again.status_code, "unchanged; send ?dry-run" in again.text) == (412, True), again.text
        nothing = await imported(admin, named("ada", "bob"), DRY)
        assert [nothing.json()[kind] for kind in ("create", "update", "delete")] == [[], [], []]
        assert (await imported(admin, named("bob"), headers=WHATEVER)).status_code == 200
        assert list((await admin.get("/api/racks")).json()["racks"]) == ["bob"]

    as_admin(site, act)


def test_a_plan_that_somebody_overtook_is_not_done(site: Site) -> None:
    async def act(admin: httpx.AsyncClient) -> None:
        await imported(admin, named("ada", blades=2), headers=WHATEVER)
        shown = await imported(admin, named("ada", blades=1), DRY)
        assert [one["table"] for one in shown.json()["delete"]][:1] == ["blades"]
        await put(admin, "racks/bob", {})
        before = raw(site.store)
        late = await imported(admin, named("ada", blades=1), headers=seen(shown))
        assert (late.status_code, "it is another plan" in late.text) == (412, True), late.text
        assert raw(site.store) == before
        for no_plan in ('"1"', '"*"'):
            assert (await imported(admin, named("ada", blades=1), headers={"If-Match": no_plan})).status_code == 400
        assert raw(site.store) == before

    as_admin(site, act)


def test_a_definition_is_bounded_and_refused_with_its_line(site: Site) -> None:
    async def act(admin: httpx.AsyncClient) -> None:
        before = raw(site.store)
        head = b"Racks: [&r {Name: a, Pdu: ~, Tor: ~, Blades: &b [" + b"{Index: 1}," * 400 + b"]}"
        many = head.replace(b"{Index: 1},", b"{Index: %d},") % tuple(range(400))
        many += b"".join(b", {Name: r%d, Pdu: ~, Tor: ~, Blades: *b }" % number for number in range(300)) + b"]"
        refused = {
            b"Regions:\n- Name: x\n  Nmae: 3\n": "line 3, Regions[1]: there is no key 'Nmae'",
            b"Regions: [": "the file is not valid YAML",
            b"\xff": "line 1: the file is not UTF-8",
            b"": "the file is empty",
            many: "the file states more than 100000 racks, devices and blades",
            named("ada").replace(
                b"Cores: 1", b"Cores: 0"
            ): 'in region "standard": the field "Zones[standard].Racks[ada].Blades[1].Cores"',
        }
        for body, problem in refused.items():
            status, text = said(await imported(admin, body, DRY))
            assert (status, problem in text) == (400, True), text
        large = await imported(admin, b" " * (DEFINITION_BYTES_MAX + 1), DRY)
        assert large.status_code == 413
        assert raw(site.store) == before

    as_admin(site, act)


def test_a_body_beyond_the_servers_usual_bound_is_taken_and_the_right_is_asked_for_first(site: Site) -> None:
    async def act(admin: httpx.AsyncClient) -> None:
        long = named("ada") + b"#" * (2 << 20)
        assert (await imported(admin, long, headers=WHATEVER)).status_code == 200
        user = {"password": "x", "enabled": True, "rights": {"canModifyWorkloads": True}}
        assert (await admin.post("/api/users/eve", json=user)).status_code == 200
        eve = await site.logged_in("eve", "x")
        assert said(await imported(eve, b"?", DRY)) == (403, "CloudChamber: permission denied")

    as_admin(site, act)


def test_options_of_the_documents_keys_are_theirs(tmp_path: Path) -> None:
    several = named("ada").replace(b"Pdus: [{Index: 0", b"Pdus: [{Index: 1, Ports: [{Index: 0}]}, {Index: 0")

    async def of_the_document(site: Site) -> None:
        admin = await site.logged_in()
        status, text = said(await imported(admin, several, DRY))
        assert (status, "extra devices 'extend' gives the others keys" in text) == (400, True), text
        done = await imported(admin, several, "?extra-devices=extend&rack-ids=region.zone.rack", WHATEVER)
        assert {one["rack"] for one in done.json()["create"]} == {"standard.standard.ada"}

    async def of_go(site: Site) -> None:
        admin = await site.logged_in()
        status, text = said(await imported(admin, several, "?dry-run&extra-devices=extend"))
        assert (status, "extra devices and rack ids are for the document's keys" in text) == (400, True), text
        assert (await imported(admin, several, headers=WHATEVER)).status_code == 200

    for side, act in (("document", of_the_document), ("go", of_go)):
        with site_with(side, tmp_path) as site:
            site.run(act)


def test_an_import_that_one_commit_does_not_take_is_made_in_steps_when_that_is_asked_for(
    etcd_server: EtcdServer, tmp_path: Path
) -> None:
    async def act(site: Site) -> None:
        admin = await site.logged_in()
        body = named("ada", "bob", blades=100)
        shown = await imported(admin, body, DRY)
        before = raw(site.store)
        refused = await imported(admin, body, headers=seen(shown))
        assert said(refused)[0] == 413
        assert "?steps" in refused.text
        assert raw(site.store) == before
        done = await imported(admin, body, "?steps", seen(shown))
        assert (done.status_code, done.json()["commits"] > 1, len(done.json()["create"])) == (200, True, 206)

    with site_of(etcd_server.emptied().url, tmp_path) as site:
        site.run(act)


# ---- in steps, and not alone ----------------------------------------------------------------------------------------------


class _Overtaken(WrappedEngine):
    """Calls `act` before the commit of this number."""

    def __init__(self, inner: MemoryEngine, number: int, act: Callable[[], object]) -> None:
        super().__init__(inner)
        self._left, self._act = number, act

    def commit(self, commit: Commit) -> int:
        self._left -= 1
        if self._left == 0:
            self._act()
        return super().commit(commit)


@pytest.mark.parametrize("side", list(LayoutSide))
def test_steps_do_what_was_agreed_to_and_end_where_another_writer_comes_between(side: LayoutSide) -> None:
    wanted = wanted_records(side, validated(parse_definition(named("ada", "bob", blades=4), source="file")))
    layout = CloudChamber if side is LayoutSide.DOCUMENT else CloudChamberGo

    def overtaken_by(act: Callable[[Store], object]) -> tuple[Store, Callable[[], object]]:
        memory = MemoryEngine(profile=replace(MEMORY_PROFILE, commit_operations_max=12))
        engine = _Overtaken(memory, 4, lambda: act(Store(memory)))
        chamber = layout(Store(engine))
        digest = plan_digest(planned_import(layout(Store(memory)), wanted))
        with pytest.raises(EngineLimitError):
            reconcile(layout(Store(memory)), wanted, approve=ApprovedPlan(digest), in_steps=False)
        assert raw(Store(memory)) == {}
        return Store(memory), lambda: reconcile(chamber, wanted, approve=ApprovedPlan(digest))

    def helped(store: Store) -> None:
        for place, record in list(wanted.items())[-2:]:
            layout(store).view(place.table).insert(place.key, record)

    def disturbed(store: Store) -> None:
        place = next(place for place in reversed(wanted) if place.table == "racks")
        layout(store).view("racks").insert(place.key, Rack(details=RackDetails(notes="by hand")))

    store, run = overtaken_by(helped)
    run()
    assert planned_import(layout(store), wanted).is_empty
    store, run = overtaken_by(disturbed)
    with pytest.raises(PlanChangedError) as ended:
        run()
    assert ended.value.facts["done"] is True
    notes = [rack.details.notes for _, rack in layout(store).view("racks").list() if rack.details]
    assert "by hand" in notes, "what nobody agreed to is not overwritten"


def test_of_one_commit_that_somebody_overtook_nothing_is_told_as_done() -> None:
    wanted = wanted_records(LayoutSide.DOCUMENT, validated(parse_definition(named("ada"), source="file")))
    memory = MemoryEngine()
    other = CloudChamber(Store(memory))
    by_hand = Rack(details=RackDetails(notes="by hand"))
    overtaken = CloudChamber(Store(_Overtaken(memory, 1, lambda: other.racks.insert("ada", by_hand))))
    with pytest.raises(PlanChangedError) as ended:
        reconcile(overtaken, wanted, approve=ApprovedPlan(plan_digest(planned_import(other, wanted))))
    assert ended.value.facts["done"] is False
    assert other.racks.get("ada") == by_hand
