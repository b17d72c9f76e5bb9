"""What a server promises beside others: complete indexes, room for everybody, its own numbers, a fault per record."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from keyplan.apps.cloudchamber import (
    Address,
    Blade,
    BladeKey,
    Capacity,
    CloudChamber,
    CloudChamberIndexed,
    DeletePolicy,
    Instance,
    InstanceActual,
    InstanceKey,
    InstanceTarget,
    Rack,
    RackContents,
    Relation,
    RevisionCondition,
    User,
    Workload,
    at_revision,
    begin_indexes,
    delete_records,
    waiting,
    write_records,
)
from keyplan.apps.cloudchamber.chamber import Chamber
from keyplan.apps.cloudchamber.indexed import IndexesBegunError
from keyplan.apps.cloudchamber.namespaces import instances_of_tests, purge_instances
from keyplan.apps.cloudchamber.sessions import AuthenticatedRequest
from keyplan.apps.cloudchamber.waiting import Waiting, Wakeup
from keyplan.apps.cloudchamber.workloads import create_instance, delete_instance, differences_of
from keyplan.engine import ALL_KEYS, Commit, Put
from keyplan.errors import ConflictError, NotFoundError
from keyplan.store import Store, open_store
from tests.apps.cloudchamber.conftest import add_blades
from tests.apps.cloudchamber.site import Site, site_of

KEY = InstanceKey("w1", "i1")


# ---- indexes ----------------------------------------------------------------------------------------------------------


def test_a_writer_from_before_the_indexes_is_refused_and_leaves_no_record_without_entries() -> None:
    store = open_store("memory:")
    before = Chamber(store)
    before.layout.users.insert("ada", User(name="ada"))
    assert begin_indexes(store) == ()
    revision = store.revision
    with pytest.raises(IndexesBegunError):
        before.layout.users.insert("bob", User(name="bob"))
    with pytest.raises(IndexesBegunError):
        before.delete_listed("users")
    assert store.revision == revision
    after = Chamber(store, layout=CloudChamberIndexed)
    after.layout.users.insert("bob", User(name="bob"))
    indexed = CloudChamberIndexed(store)
    assert list(indexed.users_by_folded_name.keys()) == ["ada", "bob"]


def test_a_server_that_runs_while_indexes_begin_says_so_and_answers_reads(tmp_path: Path) -> None:
    async def act(site: Site) -> None:
        admin = await site.logged_in()
        begin_indexes(site.store)
        refused = await admin.post("/api/users/bob", json={"password": "x", "enabled": True})
        assert (refused.status_code, "start it again" in refused.text) == (409, True)
        assert (await admin.get("/api/users/admin")).status_code == 200

    with site_of("memory:", tmp_path) as site:
        site.run(act)
        indexed = CloudChamberIndexed(site.store)
        assert list(indexed.users_by_folded_name.keys()) == list(indexed.users.keys())


BROKEN = b"{broken"


def damage(store: Store, table: str, key: object) -> None:
    """Leave bytes that are no record in the place of one."""
    raw_key = CloudChamber.bound().tables[table].keys.encode(key)
    store.engine.commit(Commit((), (Put(raw_key, BROKEN),)))


def stored_keys(store: Store) -> list[str]:
    with store.engine.snapshot() as snapshot:
        return [entry.key.decode() for entry in snapshot.scan(ALL_KEYS)]


LAYOUTS = pytest.mark.parametrize("layout", [CloudChamber, CloudChamberIndexed])


def chamber_of(layout: type[CloudChamber]) -> Chamber:
    store = open_store("memory:")
    if layout is CloudChamberIndexed:
        begin_indexes(store)
    return Chamber(store, layout=layout)


@pytest.mark.parametrize("has_indexes", [False, True])
def test_a_damaged_user_can_be_deleted(tmp_path: Path, *, has_indexes: bool) -> None:
    async def act(site: Site) -> None:
        admin = await site.logged_in()
        assert (await admin.post("/api/users/bad", json={"password": "x", "enabled": True})).status_code == 200
        damage(site.store, "users", "bad")
        gone = await admin.delete("/api/users/bad")
        assert gone.status_code == 200, gone.text
        assert (await admin.post("/api/users/bad", json={"password": "x", "enabled": True})).status_code == 200

    (tmp_path / "settings").mkdir()
    url = f"lmdb:{tmp_path}/store"
    if has_indexes:
        with open_store(url) as store:
            begin_indexes(store)
    with site_of(url, tmp_path / "settings") as site:
        site.run(act)


@LAYOUTS
@pytest.mark.parametrize("broken", ["racks", "blades"])
@pytest.mark.parametrize("is_expected", [False, True])
def test_a_rack_with_a_damaged_record_can_be_deleted(
    layout: type[CloudChamber], broken: str, *, is_expected: bool
) -> None:
    chamber = chamber_of(layout)
    before = stored_keys(chamber.store)
    blade = Blade(capacity=Capacity(arch="X64"))
    chamber.create_rack("r1", RackContents(Rack(), {}, {}, {1: blade, 2: blade}))
    damage(chamber.store, broken, "r1" if broken == "racks" else BladeKey("r1", 1))
    (rack,) = chamber.layout.racks.rows("r1")
    chamber.delete_rack("r1", expected_revision=rack.revision if is_expected else None, missing_ok=False)
    assert stored_keys(chamber.store) == before


@LAYOUTS
def test_damaged_records_are_deleted_with_the_list_that_they_are_in(layout: type[CloudChamber]) -> None:
    chamber = chamber_of(layout)
    before = stored_keys(chamber.store)
    for name in ("ada", "bob"):
        chamber.layout.users.insert(name, User(name=name))
    damage(chamber.store, "users", "ada")
    assert chamber.delete_listed("users") == 2
    assert stored_keys(chamber.store) == before


@LAYOUTS
@pytest.mark.parametrize("part", ["workloads", "instances", "instance_target", "instance_actual"])
@pytest.mark.parametrize("delete_policy", DeletePolicy)
def test_a_workload_with_a_damaged_record_can_be_deleted(
    layout: type[CloudChamber], part: str, delete_policy: DeletePolicy
) -> None:
    chamber = chamber_of(layout)
    add_blades(chamber.layout, "r1", 1)
    before = stored_keys(chamber.store)
    chamber.layout.workloads.insert("w1", Workload(name="w1"))
    target = InstanceTarget(desired_state="running", rackid="r1", bladeid=1)
    create_instance(chamber.layout, KEY, Instance(), target, InstanceActual())
    damage(chamber.store, part, "w1" if part == "workloads" else KEY)
    if delete_policy is DeletePolicy.RESTRICT:
        delete_instance(chamber.layout, KEY, missing_ok=False)
    chamber.delete_workload("w1", delete_policy=delete_policy, missing_ok=False)
    assert [key for key in stored_keys(chamber.store) if "/index/guards/" not in key] == before


@LAYOUTS
@pytest.mark.parametrize("relation", [*Relation])
def test_a_condition_holds_for_the_revision_of_a_damaged_record(layout: type[CloudChamber], relation: Relation) -> None:
    chamber = chamber_of(layout)
    chamber.layout.users.insert("ada", User(name="ada"))
    damage(chamber.store, "users", "ada")
    address = Address("users", "ada")
    compares = relation not in {Relation.NEW, Relation.REQUIRED, Relation.ANY}
    condition = at_revision(chamber.store.revision, relation) if compares else RevisionCondition(relation)
    if relation in {Relation.NEW, Relation.NOT_EQUAL, Relation.LESS, Relation.GREATER}:
        with pytest.raises(ConflictError):
            write_records(chamber.layout, {address: (User(name="ada"), condition)})
        with pytest.raises(ConflictError):
            delete_records(chamber.layout, {address: condition})
        return
    write_records(chamber.layout, {address: (User(name="ada"), condition)})
    assert chamber.layout.users.require("ada").name == "ada"
    damage(chamber.store, "users", "ada")
    condition = at_revision(chamber.store.revision, relation) if compares else condition
    delete_records(chamber.layout, {address: condition})
    assert not chamber.layout.users.exists("ada")


@pytest.mark.parametrize("has_indexes", [False, True])
def test_a_damaged_record_can_be_replaced_by_who_knows_its_revision(tmp_path: Path, *, has_indexes: bool) -> None:
    async def act(site: Site) -> None:
        admin = await site.logged_in()
        assert (await admin.post("/api/workloads/w1", json={})).status_code == 200
        damage(site.store, "workloads", "w1")
        stale = await admin.put("/api/workloads/w1", json={}, headers={"If-Match": str(site.store.revision - 1)})
        assert stale.status_code == 409
        put = await admin.put("/api/workloads/w1", json={}, headers={"If-Match": str(site.store.revision)})
        assert put.status_code == 200, put.text
        assert (await admin.get("/api/workloads/w1")).json()["name"] == "w1"

    (tmp_path / "settings").mkdir()
    url = f"lmdb:{tmp_path}/store"
    if has_indexes:
        with open_store(url) as store:
            begin_indexes(store)
    with site_of(url, tmp_path / "settings") as site:
        site.run(act)


# ---- room for everybody -----------------------------------------------------------------------------------------------


def test_one_user_cannot_keep_others_from_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "WAITING_OF_USER_MAX", 3)

    async def act(site: Site) -> None:
        admin = await site.logged_in()
        assert (await admin.post("/api/users/eve", json={"password": "x", "enabled": True})).status_code == 200
        eve = await site.logged_in("eve", "x")
        waits = [asyncio.create_task(eve.get("/api/stepper/now?after=9")) for _ in range(3)]
        for _ in range(10_000):
            if (await admin.get("/api/stepper")).json().get("waiterCount") == "3":
                break
            await asyncio.sleep(0)
        refused = await eve.get("/api/stepper/now?after=9")
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        mine = asyncio.create_task(admin.get("/api/stepper/now?after=1"))
        assert (await admin.put("/api/stepper?advance=2")).status_code == 200
        assert (await mine).status_code == 200
        assert (await eve.put("/api/users/eve?op=logout")).status_code == 200
        assert {answer.status_code for answer in await asyncio.gather(*waits)} == {403}, "waits end with their session"

    with site_of("memory:", tmp_path) as site:
        site.run(act)


def test_a_right_that_is_lost_while_somebody_waits_shows_nothing_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def act(site: Site) -> None:
        admin = await site.logged_in()
        made = {"password": "x", "enabled": True, "rights": {"canManageAccounts": True}}
        assert (await admin.post("/api/users/eve", json=made)).status_code == 200
        eve = await site.logged_in("eve", "x")

        def both(transaction: CloudChamber) -> None:
            found = transaction.users.require("eve")
            transaction.users.put("eve", User(name="eve", enabled=True, password_hash=found.password_hash))
            transaction.users.put("secretive", User(name="secretive"))

        async def until(
            _self: Waiting, is_over: Callable[[], bool], _asked: AuthenticatedRequest, wakeup: Wakeup, **_: object
        ) -> bool:
            CloudChamber(site.store).run(both)
            while not is_over():
                await wakeup.wait(0.05)
            return True

        monkeypatch.setattr(Waiting, "until", until)
        told = await eve.get(f"/api/watch?revision={site.store.revision}")
        assert (told.status_code, "secretive" in told.text) == (200, False)

    with site_of("memory:", tmp_path) as site:
        site.run(act)


# ---- numbers of a server's own ----------------------------------------------------------------------------------------


def test_numbers_of_a_server_mean_nothing_to_the_next_one(tmp_path: Path) -> None:
    url = f"lmdb:{tmp_path}/store"
    told: dict[str, str] = {}

    async def first(site: Site) -> None:
        admin = await site.logged_in()
        told["etag"] = (await admin.get("/api/stepper")).headers["etag"]
        told["last"] = (await admin.get("/api/logs?from=-1&for=9")).json()["lastId"]

    async def second(site: Site) -> None:
        site.clock.advance(1)
        admin = await site.logged_in()
        changed = await admin.put("/api/stepper?mode=automatic", headers={"If-Match": told["etag"]})
        assert changed.status_code == 400, "an epoch of the server that ran before"
        read = (await admin.get(f"/api/logs?from={told['last']}&for=9")).json()
        assert read["missed"] is True
        fresh = (await admin.get("/api/logs?from=-1&for=9")).json()
        assert "missed" not in fresh, "who knows of nothing has missed nothing"
        waits = asyncio.create_task(admin.get(f"/api/logs?from={fresh['lastId']}&for=9"))
        await asyncio.sleep(0)
        assert (await admin.get("/api/faults")).status_code == 200
        assert "missed" not in (await waits).json()

    with site_of(url, tmp_path, counts_from=None) as site:
        site.run(first)
    with site_of(url, tmp_path, counts_from=1_700_000_001_000_000) as site:
        site.run(second)


# ---- a fault per record -----------------------------------------------------------------------------------------------


def workload_store() -> Store:
    store = open_store("memory:")
    chamber = CloudChamber(store)
    chamber.workloads.insert("w1", Workload(name="w1"))
    for name in ("i1", "i2"):
        target = InstanceTarget(desired_state="running")
        create_instance(chamber, InstanceKey("w1", name), Instance(), target, InstanceActual())
    return store


@pytest.mark.parametrize("part", ["target", "actual"])
def test_a_damaged_state_leaves_the_differences_of_the_others(part: str) -> None:
    store = workload_store()
    chamber = CloudChamber(store)
    table = chamber.instance_target if part == "target" else chamber.instance_actual
    raw_key = CloudChamber.bound().tables[f"instance_{part}"].keys.encode(KEY)
    assert table.exists(KEY)
    store.engine.commit(Commit((), (Put(raw_key, b"{broken"),)))
    found = {one.key.instance: one.is_damaged for one in differences_of(chamber, "w1")}
    assert found == {"i1": True, "i2": False}


def test_an_instance_of_which_there_is_a_state_alone_can_be_deleted_and_made_again() -> None:
    store = workload_store()
    chamber = CloudChamber(store)
    chamber.instances.delete(KEY)
    delete_instance(chamber, KEY, missing_ok=False)
    assert not chamber.instance_target.exists(KEY)
    assert not chamber.instance_actual.exists(KEY)
    with pytest.raises(NotFoundError):
        delete_instance(chamber, KEY, missing_ok=False)
    create_instance(chamber, KEY, Instance(), InstanceTarget())


# ---- accounts and tests -----------------------------------------------------------------------------------------------


def test_nobody_takes_over_an_account_whose_session_stands_open(tmp_path: Path) -> None:
    async def act(site: Site) -> None:
        admin = await site.logged_in()
        etag = (await admin.get("/api/users/admin")).headers["etag"]
        body = {"newPassword": "mine", "force": True}
        forced = await admin.put("/api/users/admin?password", json=body, headers={"If-Match": etag})
        assert forced.status_code == 403, "one's own password is changed with the old one alone"

    with site_of("memory:", tmp_path) as site:
        site.run(act)


def test_a_purge_takes_what_it_listed_and_nothing_that_began_since() -> None:
    store = open_store("memory:")
    for name in ("a", "b"):
        CloudChamber(store, namespace=f"Test/{name}/").users.insert("u", User(name="u"))

    def is_chosen(_instance: object) -> bool:
        CloudChamber(store, namespace="Test/late/").users.put("u", User(name="u"))
        return True

    assert purge_instances(store.engine, is_chosen) == {"a": 1, "b": 1}
    assert [found.name for found in instances_of_tests(store.engine)] == ["late"]
