"""A store of either layout is served in place: the document's keys or the Go program's, whichever it holds."""

import asyncio
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import pytest
from typer.testing import CliRunner

import keyplan
from keyplan.apps.cloudchamber import (
    CloudChamber,
    CloudChamberGo,
    LayoutSide,
    User,
    go_inventory_records,
    inventory_records,
    read_definition,
    reconcile,
    service,
    validated,
)
from keyplan.apps.cloudchamber.cli import app
from keyplan.apps.cloudchamber.other_program import told_of_other_program
from keyplan.engine import ALL_KEYS, Commit, Put
from keyplan.errors import InvalidInputError
from keyplan.layout import shown_key
from keyplan.store import Store
from keyplan.testing.engine_suite.promise import eventually
from tests.apps.cloudchamber.site import Site, site_of
from tests.apps.cloudchamber.web import SETTINGS

DOCUMENT, GO = b"/CloudChamber/V0.1/", b"/CloudChamber/v0.1/"
ZONE = b"inventory/definition/data/region/standard/zone/standard"
LISTED = b"inventory/definition/index/region/standard/zone/standard"
TESTS = f"{SETTINGS}store:\n  Test: {{UseTestNamespace: 1, PreCleanStore: 1}}\n"


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"lmdb:{tmp_path / 'kv'}?durability=none"


@pytest.fixture
def of_go(url: str, tmp_path: Path, samples: Path) -> str:
    """A store with the standard inventory as the Go program writes it, with a rack whose name has capitals."""
    with keyplan.open(url) as store:
        text = (samples / "inventory.yaml").read_text().replace("Name: rack1\n", "Name: Rack1\n")
        (tmp_path / "site.yaml").write_text(text)
        definition = validated(read_definition(tmp_path / "site.yaml"))
        reconcile(CloudChamberGo(store), go_inventory_records(definition))
    return url


def put(url: str, entries: Mapping[bytes, bytes]) -> None:
    with keyplan.open(url) as store:
        store.engine.commit(Commit((), tuple(Put(key, value) for key, value in entries.items())))


def keys(store: Store) -> Iterator[str]:
    with store.engine.snapshot() as snapshot:
        yield from (shown_key(entry.key) for entry in snapshot.scan(ALL_KEYS))


def test_a_store_of_the_go_program_is_served_where_it_is(of_go: str, tmp_path: Path) -> None:
    """Its users, its racks with their zone's details, its list keys; workloads beside them; no key of the document's."""

    async def act(site: Site) -> None:
        before = set(keys(site.store))
        admin = await site.logged_in()
        summary = (await admin.get("/api/racks")).json()
        assert next(iter(summary["racks"].items())) == ("Rack1", {"uri": "/api/racks/Rack1/"})
        assert (len(summary["racks"]), summary["name"]) == (8, "standard")
        assert summary["details"]["location"] == "Pacific NW, standard Zone"
        assert (summary["maxBladeCount"], summary["maxConnectors"], summary["maxTorCount"]) == ("8", "9", "1")
        for path in ("/api/racks/Rack1/", "/api/racks/RACK1"):
            rack = (await admin.get(path)).json()
            assert list(rack) == ["details", "pdu", "tor", "blades", "pdus", "tors", "fullBlades"]
            assert list(rack["blades"]) == [str(number) for number in range(1, 9)]
            assert rack["pdus"]["0"]["ports"]["8"] == {"wired": True, "item": {"type": "blade", "id": "8"}}
        lines = (await admin.get("/api/racks/Rack1/blades")).text.splitlines()
        assert lines[:2] == ['Blades in "rack1" (List)', "/api/racks/rack1/blades/1"]
        assert (await admin.get("/api/racks/rack1/blades/1")).json()["cores"] == "16"
        assert len((await admin.get("/api/blades")).json()["blades"]) == 64
        for path in ("/api/racks/none", "/api/racks/rack1/blades/9"):
            assert (await admin.get(path)).status_code == 404
        assert (await admin.get("/api/blades?arch=X64")).status_code == 409
        assert (await admin.post("/api/users/Bob", json={"password": "x"})).status_code == 200
        assert (await admin.post("/api/workloads/web", json={})).status_code == 200
        instance = {"target": {"desiredState": "running"}}
        assert (await admin.post("/api/workloads/web/instances/i", json=instance)).status_code == 200
        made = {"users/admin", "users/bob", "workloads/web"}
        made |= {"workload/web/instances/i", "workload/web/instance/i/target"}
        assert set(keys(site.store)) - before | {f"{GO.decode()}users/admin"} == {GO.decode() + key for key in made}
        assert (await admin.delete("/api/workloads/web")).status_code == 200
        assert not [key for key in keys(site.store) if "workload" in key or key.startswith(DOCUMENT.decode())]

    with site_of(of_go, tmp_path) as site:
        site.run(act)


def test_a_watch_tells_of_records_and_not_of_their_list_keys(of_go: str, tmp_path: Path) -> None:
    async def act(site: Site) -> None:
        admin = await site.logged_in()
        revision = site.store.revision
        blade = b"/rack/rack1/blade/9"
        entries = {GO + ZONE + blade: b"{}", GO + LISTED + b"/rack/rack1/blades/9": b"9", GO + b"Test/a/users/b": b"{}"}
        site.store.engine.commit(Commit((), tuple(Put(key, value) for key, value in entries.items())))
        asked = asyncio.create_task(admin.get(f"/api/watch?revision={revision}"))
        assert [one["key"] for one in (await asked).json()["changes"]] == [(ZONE + blade).decode()]

    with site_of(of_go, tmp_path) as site:
        site.run(act)


def test_a_damaged_record_of_the_go_program_hides_no_other(of_go: str, tmp_path: Path) -> None:
    """A blade, a zone, and a list key that says another name than its own."""
    put(
        of_go,
        {
            GO + ZONE: b"{damaged",
            GO + ZONE + b"/rack/rack2/blade/3": b"{damaged",
            GO + LISTED + b"/racks/rack3": b"other",
        },
    )

    async def act(site: Site) -> None:
        admin = await site.logged_in()
        answer = await admin.get("/api/racks")
        assert (len(answer.json()["racks"]), "rack3" in answer.json()["racks"], answer.json()["details"]) == (
            8,
            True,
            {},
        )
        assert answer.headers["cloudchamber-damaged"] == ", ".join(
            (f"3; {ZONE.decode()}", f"{LISTED.decode()}/racks/rack3", f"{ZONE.decode()}/rack/rack2/blade/3")
        )
        rack = await admin.get("/api/racks/rack2")
        assert rack.headers["cloudchamber-damaged"] == f"1; {ZONE.decode()}/rack/rack2/blade/3"
        assert (len(rack.json()["blades"]), (await admin.get("/api/racks/rack2/blades/3")).status_code) == (7, 500)

    with site_of(of_go, tmp_path) as site:
        site.run(act)


def test_both_layouts_have_the_same_answers_for_the_same_inventory(tmp_path: Path, samples: Path) -> None:
    """But for the zone's details, which the document has no place for."""
    definition = validated(read_definition(samples / "inventory.yaml"))
    found = []

    async def act(site: Site) -> None:
        admin = await site.logged_in()
        paths = (
            "/api/racks",
            "/api/racks/rack3",
            "/api/racks/rack3/blades",
            "/api/racks/rack3/blades/2",
            "/api/blades",
        )
        found.append([(await admin.get(path)).content for path in paths])

    for side in LayoutSide:
        url = f"lmdb:{tmp_path / side}?durability=none"
        with keyplan.open(url) as store:
            if side is LayoutSide.GO:
                reconcile(CloudChamberGo(store), go_inventory_records(definition))
            else:
                reconcile(CloudChamber(store), inventory_records(definition))
        with site_of(url, tmp_path) as site:
            site.run(act)
    document, go = found
    assert document[1:] == go[1:]
    assert document[0].startswith(go[0][: go[0].index(b'"details"')])


# ---- which ---------------------------------------------------------------------------------------------------------------


async def served(site: Site) -> str:
    """Under whose keys the system account is."""
    await site.logged_in()
    with site.store.engine.snapshot() as snapshot:
        return ", ".join(
            name
            for name, root in (("document", DOCUMENT), ("go", GO))
            if snapshot.get(root + b"users/admin") is not None
        )


@pytest.mark.parametrize(
    ("held", "wanted", "expected"),
    [
        ([], "", "document"),
        ([GO + b"users/a"], "", "go"),
        ([DOCUMENT + b"users/a"], "", "document"),
        ([DOCUMENT + b"users/a", GO + b"Test/Standard/users/a"], "", "document"),
        ([GO + b"zz"], "", "go"),
        ([DOCUMENT + b"users/a", GO + b"users/a"], "go", "go"),
        ([DOCUMENT + b"users/a", GO + b"users/a"], "document", "document"),
        ([DOCUMENT + b"users/a"], "go", "go"),
    ],
)
def test_what_a_store_holds_decides_or_who_starts_the_server(
    url: str, tmp_path: Path, held: list[bytes], wanted: str, expected: str
) -> None:
    put(url, dict.fromkeys(held, b"{}"))
    with site_of(url, tmp_path, layout=wanted) as site:
        assert site.run(served) == expected


def test_a_store_of_both_is_refused_until_it_is_said_which(url: str, tmp_path: Path) -> None:
    put(url, {DOCUMENT + b"racks/a": b"{}", GO + b"users/b": b"{}"})
    told = (
        "keys of the document, as /CloudChamber/V0.1/racks/a, and of the Go program, as /CloudChamber/v0.1/users/b: say"
    )
    with pytest.raises(InvalidInputError, match=told), site_of(url, tmp_path):
        pass
    with keyplan.open(url) as store:
        assert len(list(keys(store))) == 2, "nothing was written"


def test_a_test_name_space_is_emptied_of_both_programs_keys(url: str, tmp_path: Path) -> None:
    put(
        url,
        {
            GO + b"Test/Standard/users/a": b"{}",
            DOCUMENT + b"Test/Standard/users/a": b"{}",
            GO + b"Test/2021-03-04T10:11:12.5-08:00/users/a": b"{}",
            GO + b"users/a": b"{}",
        },
    )

    async def act(site: Site) -> None:
        assert (await site.logged_in()).cookies
        assert list(keys(site.store)) == [
            "/CloudChamber/V0.1/Test/Standard/users/admin",
            "/CloudChamber/v0.1/Test/2021-03-04T10:11:12.5-08:00/users/a",
            "/CloudChamber/v0.1/users/a",
        ]

    with site_of(url, tmp_path, TESTS) as site:
        site.run(act)


def test_the_go_programs_users_log_in_and_nobody_elses(of_go: str, tmp_path: Path) -> None:
    with keyplan.open(of_go) as store:
        CloudChamber(store, namespace="Test/x/").users.insert("alice", User(name="alice"))

    async def act(site: Site) -> None:
        admin = await site.logged_in()
        assert [one["name"] for one in (await admin.get("/api/users")).json()["users"]] == ["admin"]

    with site_of(of_go, tmp_path) as site:
        site.run(act)


def test_indexes_are_not_begun_beside_the_go_programs_keys(url: str) -> None:
    """They stand beside the document's: it would be a store of both."""
    put(url, {GO + b"users/a": b"{}"})
    answer = CliRunner().invoke(app, ["index", "--store", url])
    assert isinstance(answer.exception, InvalidInputError)
    with keyplan.open(url) as store:
        assert list(keys(store)) == ["/CloudChamber/v0.1/users/a"]


def test_an_import_goes_under_the_keys_that_the_store_holds(url: str, samples: Path) -> None:
    put(url, {GO + b"users/a": b"{}"})
    file = str(samples / "ChainedBase.yaml")
    assert CliRunner().invoke(app, ["import", file, "--store", url]).exit_code == 0
    with keyplan.open(url) as store:
        held = list(keys(store))
    assert (len(held), [key for key in held if not key.startswith(GO.decode())]) == (15, [])
    put(url, {DOCUMENT + b"users/a": b"{}"})
    answer = CliRunner().invoke(app, ["import", file, "--store", url])
    assert isinstance(answer.exception, InvalidInputError)
    assert "say which are meant, --into document or --into go" in str(answer.exception)
    assert CliRunner().invoke(app, ["import", file, "--into", "document", "--store", url]).exit_code == 0


def test_a_definition_that_is_refused_makes_no_store(tmp_path: Path, samples: Path) -> None:
    answer = CliRunner().invoke(app, ["import", str(samples / "Extended.yaml"), "--store", f"lmdb:{tmp_path / 'new'}"])
    assert isinstance(answer.exception, InvalidInputError)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("side", LayoutSide)
def test_a_program_that_begins_to_write_beside_the_server_is_told_once(
    side: LayoutSide, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    own, other = (DOCUMENT, GO) if side is LayoutSide.DOCUMENT else (GO, DOCUMENT)
    put(url, {own + b"users/a": b"{}"})
    monkeypatch.setattr(service, "told_of_other_program", partial(told_of_other_program, look_seconds=0.001))

    def told() -> list[object]:
        return [getattr(one, "facts", None) for one in caplog.records if "another program" in one.getMessage()]

    async def act(site: Site) -> None:
        admin = await site.logged_in()
        assert not told()
        site.store.engine.commit(Commit((), (Put(other + b"Test/a/users/b", b"{}"),)))
        assert (await admin.get("/api/users")).status_code == 200
        assert not told(), "tests are another name space"
        site.store.engine.commit(Commit((), (Put(other + b"users/b", b"{}"),)))
        await asyncio.to_thread(eventually, told)
        assert (await admin.post("/api/workloads/web", json={})).status_code == 200, "what is served goes on"
        key = f"{other.decode()}users/b"
        assert told() == [{"served": side.value, "other": side.other.value, "key": key}]

    with site_of(url, tmp_path) as site:
        site.run(act)
