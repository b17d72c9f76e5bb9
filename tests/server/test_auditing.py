"""The audit log of a server: every declared change and disclosure of every service that speaks HTTP, as asked for."""

import asyncio
import hashlib
from base64 import b64encode
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event as Flag
from typing import Any, NamedTuple

import httpx
import pytest

import keyplan
from keyplan.apps.hepnos.packed import PACKED, pack
from keyplan.apps.patroni import Broker, Cell
from keyplan.audit_log import Asker, AuditLog, AuditRecord, Event, Notice, read_lines, verified_files
from keyplan.engine import Commit, MemoryEngine, Put
from keyplan.operations import Change, Operation, operations_of
from keyplan.server import ServiceAudit
from keyplan.server.etcd_v3.declared import GatewayCalls
from tests.apps.cloudchamber.definitions import CAPACITY, DETAILS, ports
from tests.apps.cloudchamber.web import ADMIN, SETTINGS
from tests.apps.patroni.osb_platform import SERVICE, SOLO
from tests.operations.declared import DECLARED, INTERFACES
from tests.servers.keyplan_server import KeyplanServer

TOKEN = "an-admin-token-of-a-test"

BROKER = {"auth": ("platform", TOKEN), "headers": {"X-Broker-API-Version": "2.17"}}
ASKED = {"service_id": SERVICE, "plan_id": SOLO}
MADE = {**ASKED, "organization_guid": "org", "space_guid": "space"}
LATER = {"accepts_incomplete": "true"}
MATCH = {"If-Match": "-1"}


def b64(text: str) -> str:
    return b64encode(text.encode()).decode()


def put_request(key: str) -> dict[str, Any]:
    return {"request_put": {"key": b64(key), "value": b64("v")}}


class Row(NamedTuple):
    """A request, the operation that it asks for, and the subject that the log has for it; `code`: what it fails with."""

    operation: str
    method: str
    path: str
    subject: str
    options: dict[str, Any]
    code: str = ""
    who: str = "admin"
    known_by: str = "token"


def chamber(operation: str, method: str, path: str, subject: str, code: str = "", **options: Any) -> Row:
    return Row(operation, method, f"/api/{path}", subject, options, code, ADMIN[0], "session")


def broker(operation: str, method: str, path: str, subject: str, code: str = "", **options: Any) -> Row:
    return Row(operation, method, path, subject, {**BROKER, **options}, code)


def inventory_rows() -> Iterator[Row]:
    """A rack, a part of each kind with its actual state, and all of it deleted again."""
    new, known = {"If-None-Match": "*"}, {"If-Match": "*"}
    yield chamber("putInventory", "PUT", "inventory", "", "428", content=b"")
    for outer in ("Zone", "Region"):
        yield chamber(f"put{outer}Definition", "PUT", f"{outer.lower()}/definition", "", "404", json={}, headers=new)
    yield chamber("putRacksRackDefinition", "PUT", "racks/r1/definition", "r1", json={"details": DETAILS}, headers=new)
    parts = (("Blades", 1, {"details": DETAILS, "capacity": CAPACITY}), ("Pdus", 0, ports(2)), ("Tors", 0, ports(2)))
    for kind, number, definition in parts:
        place, name = f"r1/{kind.lower()}/{number}", f"RacksRack{kind}Number"
        path = f"racks/{place}"
        yield chamber(f"put{name}Definition", "PUT", f"{path}/definition", place, json=definition, headers=new)
        yield chamber(f"put{name}Actual", "PUT", f"{path}/actual", place, json={"smState": "working"})
        yield chamber(f"delete{name}Actual", "DELETE", f"{path}/actual", place)
    for kind, number, _ in reversed(parts):
        place = f"r1/{kind.lower()}/{number}"
        yield chamber(
            f"deleteRacksRack{kind}NumberDefinition", "DELETE", f"racks/{place}/definition", place, headers=known
        )
    yield chamber("deleteRacksRackDefinition", "DELETE", "racks/r1/definition", "r1", headers=known)


def hepnos(operation: str, verb: str, *columns: list[bytes]) -> Row:
    options = {"content": pack(*columns), "headers": {"Content-Type": PACKED}}
    return Row(operation, "POST", f"/hepnos/databases/runs/0/{verb}", "runs/0", options)


def queue(operation: str, verb: str, *words: bytes) -> Row:
    options = {"content": pack([b"q", b"int64", *words]), "headers": {"Content-Type": PACKED}}
    return Row(operation, "POST", f"/hepnos/queues/{verb}", "queues/q", options)


FEIGNED = "/f,/g..h\\x00"
"""A key that looks like two keys, a range and a byte."""

DOUBLE = {"success": [put_request("/t/1"), {"request_delete_range": {"key": b64("/t/2"), "range_end": b64("/t/9")}}]}

ROWS: dict[str, list[Row]] = {
    "keyspaces": [
        Row("initRegistry", "POST", "/registry:init", "", {"json": {}}),
        Row("changeRegistryConfiguration", "PATCH", "/config", "", {"json": {"keyspace-api-enabled": True}}),
        Row("createKeySpace", "POST", "/keyspaces", "orders", {"json": {"name": "orders", "application": "shop"}}),
        Row(
            "createKeySpace",
            "POST",
            "/keyspaces",
            "orders",
            {"json": {"name": "orders", "application": "x"}},
            "keyspace_exists",
        ),
        Row("updateKeySpace", "PUT", "/keyspaces/orders", "orders", {"json": {"description": "of the shop"}}),
        Row("setKeySpaceQuota", "PUT", "/keyspaces/orders/quota", "orders", {"json": {"keys": 10, "bytes": None}}),
        Row("disableKeySpace", "POST", "/keyspaces/orders:disable", "orders", {}),
        Row("enableKeySpace", "POST", "/keyspaces/orders:enable", "orders", {}),
        Row("deleteKeySpace", "DELETE", "/keyspaces/orders", "orders", {}),
        Row("undeleteKeySpace", "POST", "/keyspaces/orders:undelete", "orders", {}),
        Row("sweepKeySpace", "POST", "/keyspaces/none:sweep", "none", {}, "keyspace_not_found"),
        Row("repairRegistry", "POST", "/registry:repair", "", {}),
    ],
    "etcd-v2": [
        Row("setEtcdKey", "PUT", "/v2/keys/a/b", "/a/b", {"data": {"value": "1"}}),
        Row("setEtcdKey", "PUT", "/v2/keys/a/b", "/a/b", {"data": {"value": "1", "prevExist": "false"}}, "key_exists"),
        Row("createEtcdKey", "POST", "/v2/keys/queue", "/queue", {"data": {"value": "1"}}),
        Row("deleteEtcdKey", "DELETE", "/v2/keys/a/b", "/a/b", {}),
    ],
    "etcd-v3": [
        Row("putEtcd", "POST", "/v3/kv/put", "/k/é", {"json": {"key": b64("/k/é"), "value": b64("secret")}}),
        Row("deleteRangeEtcd", "POST", "/v3/kv/deleterange", "/k/é", {"json": {"key": b64("/k/é")}}),
        Row(
            "transactEtcd",
            "POST",
            "/v3/kv/txn",
            r"/f\,/g.\.h\\x00",
            {"json": {"success": [put_request(FEIGNED)]}},
        ),
        Row("transactEtcd", "POST", "/v3/kv/txn", "/t/1,/t/2../t/9", {"json": DOUBLE}),
        Row("grantEtcdLease", "POST", "/v3/lease/grant", "ID", {"json": {"TTL": "60"}}),
        Row("revokeEtcdLease", "POST", "/v3/lease/revoke", "7", {"json": {"ID": "7"}}, "lease-not-found"),
        Row("compactEtcd", "POST", "/v3/kv/compaction", "1000000", {"json": {"revision": "1000000"}}, "out_of_range"),
    ],
    "cloudchamber": [
        Row("putUsersName", "PUT", "/api/users/admin?op=login", "admin", {"content": "wrong"}, "403", "local", "local"),
        Row("putUsersName", "PUT", "/api/users/admin?op=login", "admin", {"content": ADMIN[1]}, "", "local", "local"),
        chamber("postUsersName", "POST", "users/eve", "eve", json={"password": "secret", "enabled": True}),
        chamber("deleteUsersName", "DELETE", "users/eve", "eve"),
        chamber("postWorkloadsName", "POST", "workloads/shop", "shop", json={}),
        chamber("putWorkloadsName", "PUT", "workloads/shop", "shop", "409", json={}, headers=MATCH),
        chamber("postWorkloadsNameInstancesInstance", "POST", "workloads/shop/instances/i", "shop/i", json={}),
        chamber(
            "putWorkloadsNameInstancesInstance",
            "PUT",
            "workloads/shop/instances/i",
            "shop/i",
            "409",
            json={},
            headers=MATCH,
        ),
        chamber(
            "putWorkloadsNameInstancesInstanceTarget",
            "PUT",
            "workloads/shop/instances/i/target",
            "shop/i",
            "409",
            json={},
            headers=MATCH,
        ),
        chamber(
            "putWorkloadsNameInstancesInstanceActual", "PUT", "workloads/shop/instances/i/actual", "shop/i", json={}
        ),
        chamber("deleteWorkloadsNameInstancesInstance", "DELETE", "workloads/shop/instances/i", "shop/i"),
        chamber("deleteWorkloadsName", "DELETE", "workloads/shop", "shop"),
        *inventory_rows(),
        chamber("putStepper", "PUT", "stepper?advance=1", ""),
        chamber("deleteSimulationSessionsId", "DELETE", "simulation/sessions/999", "999", "404"),
    ],
    "patroni-broker": [
        broker("provision", "PUT", "/v2/service_instances/db", "db", json=MADE, params=LATER),
        broker("provision", "PUT", "/v2/service_instances/db2", "db2", "422", json=MADE),
        broker("updateInstance", "PATCH", "/v2/service_instances/none", "none", "404", json=ASKED, params=LATER),
        broker("deprovision", "DELETE", "/v2/service_instances/none", "none", "410", params={**ASKED, **LATER}),
        broker("bind", "PUT", "/v2/service_instances/none/service_bindings/b", "none/b", "404", json=ASKED),
        broker("unbind", "DELETE", "/v2/service_instances/none/service_bindings/b", "none/b", "410", params=ASKED),
        broker("getBinding", "GET", "/v2/service_instances/none/service_bindings/b", "none/b", "404"),
        broker("demoteCell", "POST", "/admin/cells/none/demote", "none", "404"),
        broker("recreateInstance", "POST", "/admin/service_instances/none/recreate", "none", "404"),
        broker(
            "actOnInstance",
            "POST",
            "/admin/service_instances/none/actions",
            "none restart",
            "404",
            json={"kind": "restart"},
        ),
    ],
    "explorer": [
        Row("revealRecord", "POST", "/explore/in/-/reveal/none?hex=2f6b", "- /k", {}, "unknown-name"),
    ],
    "hepnos": [
        hepnos("putHepnosPairs", "put", [b"k" * 24], []),
        hepnos("commitHepnos", "commit", [], [], [], [b"k" * 24], [], [], [], []),
        queue("createHepnosQueue", "create", b"0"),
        queue("enterHepnosQueue", "enter", b"a producer", b"60000"),
        queue("putHepnosItems", "put", b"a producer", b"1", b"60000", b"1", b"an item"),
        queue("takeHepnosItem", "take", b"a taker", b"1000"),
        queue("settleHepnosItem", "settle", b"0", b"a taker", b"1"),
        queue("leaveHepnosQueue", "leave", b"a producer", b"1"),
        queue("destroyHepnosQueue", "destroy"),
    ],
}


class Served:
    """A server of every service with an audit log, and what of the log was not looked at yet."""

    def __init__(self, server: KeyplanServer, log: Path) -> None:
        self.log = log
        self.client = httpx.Client(base_url=server.url, timeout=60)
        self.token = {"Authorization": f"Bearer {TOKEN}"}
        self.seen = 0

    def news(self) -> list[AuditRecord]:
        """The lines since it was asked before."""
        found = [line.record for line in read_lines([self.log]) if line.record is not None]
        news, self.seen = found[self.seen :], len(found)
        return news

    def ask(self, row: Row) -> httpx.Response:
        options = dict(row.options)
        if row.path.startswith("/hepnos/"):
            described = self.client.get("/hepnos/databases", headers=self.token).json()["databases"]["runs"][0]
            ring = hashlib.blake2b(described["description"].encode(), digest_size=8).hexdigest()
            options["params"] = {"ring": ring}
        # Why not for CloudChamber: its callers are known by the cookie alone.
        headers = {**({} if row.path.startswith("/api/") else self.token), **options.pop("headers", {})}
        if "auth" in options:
            del headers["Authorization"]
        return self.client.request(row.method, row.path, headers=headers, **options)

    def revision(self) -> int:
        """The store's revision."""
        status = self.client.post("/v3/maintenance/status", json={}, headers=self.token).json()
        return int(status["header"]["revision"])


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("audited")
    (folder / "cloudchamber.yaml").write_text(SETTINGS)
    url = f"lmdb:{folder / 'store'}?durability=none"
    with keyplan.open(url) as store:
        Broker(store).cells.insert("n1", Cell(), lease=store.lease(3_600.0))
    arguments = [
        *(word for name in ROWS if name != "keyspaces" for word in ("--app", name)),
        *("--setting", f"cloudchamber.config={folder}", "--setting", f"hepnos.store=lmdb:{folder / 'nova'}"),
        *("--setting", "keyspaces.sweep=off", "--audit-log", str(folder / "audit.log")),
    ]
    environment = {"KEYPLAN_ADMIN_TOKEN": TOKEN}
    with KeyplanServer(url, *arguments, environment=environment) as server:
        running = Served(server, folder / "audit.log")
        with running.client:
            yield running
    verdict = verified_files([running.log])
    assert verdict.is_whole, verdict


def declared_of(service: str) -> dict[str, Operation]:
    kinds = {kind.__name__ for kind in INTERFACES[service]}
    found = [one for name, one in DECLARED.items() if name.partition(".")[0] in kinds]
    return {one.name: one for one in found if isinstance(one, Operation) and one.noted is not None}


@pytest.mark.slow
@pytest.mark.parametrize("service", ROWS)
def test_each_change_of_a_service_has_its_lines(served: Served, service: str) -> None:
    declared, commits = declared_of(service), 0
    for row in ROWS[service]:
        served.news()
        before = served.revision()
        answer = served.ask(row)
        after = served.revision()
        assert answer.is_success is (row.code == ""), (row.operation, answer.status_code, answer.text)
        news = served.news()
        assert [one.event for one in news] == [Event.BEGUN, Event.FAILED if row.code else Event.DONE], row.operation
        begun, ended = news
        change = declared[row.operation].noted
        assert change is not None
        for one in news:
            told = (one.who, one.known_by, one.address, one.service, one.operation, one.act)
            assert told == (row.who, row.known_by, "127.0.0.1", service, row.operation, change.act)
        subject = str(answer.json()["ID"]) if row.subject == "ID" else row.subject
        made = answer.json()["node"]["key"] if row.operation == "createEtcdKey" else subject
        assert (begun.subject, ended.subject) == ("" if row.subject == "ID" else subject, made)
        assert (begun.of, ended.of) == (0, begun.number)
        assert begun.request == ended.request == answer.headers["x-request-id"]
        assert (begun.code, ended.code, begun.revisions) == ("", row.code, ())
        # Why between: a broker that is served beside renews its claim.
        is_own = service == "hepnos"  # Why: its queues are in a database of its own.
        assert is_own or all(before < revision <= after for revision in ended.revisions), row.operation
        commits += len(ended.revisions)
    assert (commits > 0) is (service != "explorer"), "one only discloses"
    # What is in no subject stands nowhere.
    assert b"secret" not in served.log.read_bytes()
    assert ADMIN[1].encode() not in served.log.read_bytes()


def test_every_declared_change_has_a_row() -> None:
    services = {name for name in INTERFACES if name != "runm" and declared_of(name)}
    assert services == set(ROWS)
    for service in services:
        assert {row.operation for row in ROWS[service]} == set(declared_of(service))


@pytest.mark.slow
def test_a_commit_is_told_by_the_revision_that_the_answer_has(served: Served) -> None:
    served.news()
    put = served.client.post("/v3/kv/put", json={"key": b64("/r"), "value": b64("1")}, headers=served.token)
    (written,) = [one.revisions for one in served.news() if one.event is Event.DONE]
    assert written == (int(put.json()["header"]["revision"]),)
    served.client.put("/v2/keys/r", data={"value": "2"}, headers=served.token)
    (written,) = [one.revisions for one in served.news() if one.event is Event.DONE]
    found = served.client.post("/v3/kv/range", json={"key": b64("/r")}, headers=served.token).json()["kvs"][0]
    assert written == (int(found["mod_revision"]),)


@pytest.mark.slow
def test_what_only_reads_and_who_is_refused_has_no_line(served: Served) -> None:
    served.news()
    transaction = {"success": [{"request_range": {"key": b64("/r")}}]}
    assert served.client.post("/v3/kv/txn", json=transaction, headers=served.token).is_success
    assert served.client.get("/v2/keys/r", headers=served.token).is_success
    assert served.client.get("/keyspaces", headers=served.token).is_success
    wrong = {"Authorization": "Bearer a-token-that-nobody-has"}
    for method, path in (("POST", "/registry:init"), ("PUT", "/v2/keys/r"), ("POST", "/v3/kv/put")):
        assert served.client.request(method, path, json={}, headers=wrong).status_code in {401, 403}
    assert served.client.post("/keyspaces", content=b"{", headers=served.token).status_code in {400, 415}
    assert served.news() == []


@pytest.mark.slow
def test_administrators_read_the_log_over_http_page_by_page(served: Served) -> None:
    whole = [line.record for line in read_lines([served.log])]
    found: list[dict[str, Any]] = []
    while page := served.client.get(f"/audit-log?after={len(found)}&limit=7", headers=served.token).json():
        found += page
    assert [one["number"] for one in found] == [one.number for one in whole if one is not None]
    assert found[0]["previous"] == "0" * 64
    refused = served.client.get("/audit-log?limit=1001", headers=served.token)
    assert refused.status_code == 400
    assert served.client.get("/audit-log", headers={"Host": "127.0.0.1"}).status_code == 403


# ---- in this process -------------------------------------------------------------------------------------------------

PUT = operations_of(GatewayCalls)["put"]


class Noted:
    """A log of one service, in this process; `problem` is called with what it has to tell of problems, in its own thread."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "audit.log"
        self.problem: Callable[[], object] = lambda: None
        self.log = AuditLog(self.path, wall=lambda: 0.0, syncs=False, on_notice=self._told)
        self.audit = ServiceAudit("test", self.log)

    def _told(self, notice: Notice) -> None:
        if notice.is_problem:
            self.problem()

    def told(self) -> list[tuple[str, str, str]]:
        records = [line.record for line in read_lines([self.path]) if line.record is not None]
        return [(one.event.value, one.subject, one.code) for one in records if one.act]


@pytest.fixture
def noted(tmp_path: Path) -> Iterator[Noted]:
    found = Noted(tmp_path)
    with found.log:
        yield found


def test_a_change_of_which_nobody_waited_for_the_first_line_is_told_as_not_made(noted: Noted) -> None:
    has_begun, may_go_on = Flag(), Flag()

    def hold() -> None:
        has_begun.set()
        assert may_go_on.wait(60)

    noted.problem = hold
    with noted.path.open("a") as file:
        file.write("somebody else\n")  # what the log tells of right before it writes the next line

    async def change() -> None:
        async with noted.audit.change(PUT, Asker("ada"), {"keys": "/k"}):
            raise AssertionError("it was not to begin")

    async def run() -> None:
        task = asyncio.create_task(change())
        await asyncio.to_thread(has_begun.wait, 60)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        may_go_on.set()

    asyncio.run(run())
    noted.problem = lambda: None
    assert noted.log.append(Event.OPENED).result()  # behind what was asked for before
    assert noted.told() == [("begun", "/k", ""), ("failed", "/k", "cancelled")]


class Unspeakable:
    def __str__(self) -> str:
        raise ValueError("it has no text")


def test_a_subject_that_cannot_be_told_keeps_no_line_from_being_written(noted: Noted) -> None:
    with noted.audit.change_here(PUT, Asker(), {"keys": Unspeakable()}) as change:
        assert change is not None
        change.note_answer("an answer")
    assert noted.told() == [("begun", "", ""), ("done", "?", "")]


def test_every_way_of_committing_is_noted_with_the_change_that_it_is_made_for(noted: Noted) -> None:
    with MemoryEngine() as inner:
        engine = noted.audit.noting(inner)
        with noted.audit.change_here(PUT, Asker(), {"keys": "/k"}):
            engine.commit(Commit((), (Put(b"a", b"1"),)))
            engine.put_sorted([b"b", b"c"], [b"2", b"3"])
            engine.put_sorted([b"b", b"c"], [b"2", b"3"], overwrite=False)
        with engine.snapshot() as snapshot:
            last = snapshot.revision
    found = [line.record for line in read_lines([noted.path]) if line.record is not None]
    assert found[-1].revisions == (last - 1, last, last)


def test_items_of_a_list_do_not_run_into_one_another() -> None:
    change = Change("delete", "{uuids}")
    lists = [["a,b"], ["a", "b"], ["a\\", "b"], ["a\\,b"], ["a,b", ""], []]
    subjects = [change.subject_of({"uuids": items}) for items in lists]
    assert subjects[:2] == [r"a\,b", "a,b"]
    assert len(set(subjects)) == len(lists)


@pytest.mark.slow
def test_databases_of_hepnos_that_count_revisions_have_them_told(tmp_path: Path) -> None:
    log, store = tmp_path / "audit.log", f"lmdb:{tmp_path / 'nova'}?durability=none&history=1000"
    arguments = ("--app", "hepnos", "--setting", f"hepnos.store={store}", "--audit-log", str(log))
    with KeyplanServer("memory:", *arguments, environment={"KEYPLAN_ADMIN_TOKEN": TOKEN}) as server:
        running = Served(server, log)
        with running.client:
            for row in ROWS["hepnos"]:
                running.news()
                assert running.ask(row).is_success
                told = running.news()[-1]
                assert (told.event, len(told.revisions)) == (Event.DONE, 1)
