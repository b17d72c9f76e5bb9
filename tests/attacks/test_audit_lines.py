"""Who may write nothing leaves no line in the audit log: a disk that they fill would keep everybody else from writing.

Who may write elsewhere leaves one where they are refused.
"""

import asyncio
from base64 import b64encode
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from keyplan.access import change_access_file, change_principal, remove_principal
from keyplan.audit_log import AuditLog, read_lines, verified_files
from keyplan.engine import MemoryEngine
from keyplan.server import Application, PolicyAccess, etcd_v2, etcd_v3
from keyplan.server.auditing import REFUSALS_MAX
from keyplan.testing.faults import FakeClock
from tests.attacks import hepnos
from tests.attacks.form import Attacker
from tests.attacks.world import BANK, SHOP, TOKENS, World
from tests.server.etcd_v3.json_client import JsonClient
from tests.servers.gateways import GatewayServer

KEY: Final = b64encode(BANK.known.encode()).decode()
V3: Final = {
    "kv/put": {"key": KEY, "value": KEY},
    "kv/deleterange": {"key": KEY},
    "kv/txn": {"success": [{"request_put": {"key": KEY, "value": KEY}}]},
    "lease/grant": {"TTL": "60"},
    "lease/revoke": {"ID": "1"},
}


async def asked(application: Application, who: str) -> list[int]:
    """The statuses of every way to change something by the protocols of etcd."""
    headers = {"Authorization": f"Bearer {TOKENS[who]}"}
    transport = httpx.ASGITransport(application.asgi)
    async with (
        application.running(),
        httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=headers) as client,
    ):
        answers = [await client.post(f"/v3/{path}", json=body) for path, body in V3.items()]
        path = f"/v2/keys{BANK.known}"
        answers += [
            await client.put(path, data={"value": "1"}),
            await client.post(path, data={"value": "1"}),
            await client.delete(path),
        ]
    return [answer.status_code for answer in answers]


@pytest.mark.parametrize("who", ["auditor", "reader", "nothing", "shop"])
def test_who_may_write_nothing_leaves_no_line(who: str, tmp_path: Path) -> None:
    builders: dict[str, Any] = {"etcd-v2": etcd_v2.build, "etcd-v3": etcd_v3.build}
    log = tmp_path / "audit.log"
    with MemoryEngine() as engine, AuditLog(log, wall=lambda: 0.0, syncs=False) as audit_log:
        access = PolicyAccess.of_file(World(engine, tmp_path / "access.toml").file)
        application = Application.build(engine, builders, access=access, audit_log=audit_log)
        statuses = asyncio.run(asked(application, who))
    noted = [line.record.who for line in read_lines([log]) if line.record is not None and line.record.act]
    if who == "shop":
        assert statuses == [403] * 3 + [200] * 2 + [401] * 3
    else:
        assert (statuses, noted) == ([403] * 5 + [401] * 3, [])


@pytest.mark.parametrize("revision", ["1", "1000000"])
def test_who_may_write_nothing_leaves_no_line_where_they_forget_their_own_history(
    revision: str, tmp_path: Path
) -> None:
    log = tmp_path / "audit.log"
    with MemoryEngine() as engine, AuditLog(log, wall=lambda: 0.0, syncs=False) as audit_log:
        access = PolicyAccess.of_file(World(engine, tmp_path / "access.toml").file)
        with GatewayServer(engine, access=access, audit_log=audit_log) as server:
            for who in ("auditor", "reader", "nothing", "shop"):
                with JsonClient(server.url, token=TOKENS[who]) as client:
                    client.post("/v3/kv/compaction", {"revision": revision})
    assert [lines_in(log, who) for who in ("auditor", "reader", "nothing")] == [[], [], []]
    assert [line[0] for line in lines_in(log, "shop")][:1] == ["begun"]


def lines_in(log: Path, who: str) -> list[tuple[str, str, str, str, int]]:
    """What the log tells of somebody: event, act, subject, code, and whether it is of a beginning."""
    records = [line.record for line in read_lines([log]) if line.record is not None]
    return [(one.event, one.act, one.subject, one.code, one.of and 1) for one in records if one.who == who]


def test_who_may_write_elsewhere_leaves_one_line_where_they_are_refused(tmp_path: Path) -> None:
    builders: dict[str, Any] = {"etcd-v2": etcd_v2.build, "etcd-v3": etcd_v3.build}
    log, known = tmp_path / "audit.log", BANK.known
    with MemoryEngine() as engine, AuditLog(log, wall=lambda: 0.0, syncs=False) as audit_log:
        access = PolicyAccess.of_file(World(engine, tmp_path / "access.toml").file)
        application = Application.build(engine, builders, access=access, audit_log=audit_log)
        asyncio.run(asked(application, "shop"))
    refused = [line for line in lines_in(log, "shop") if line[3] == "access-denied"]
    assert refused == [
        ("refused", act, known, "access-denied", 0) for act in ("put", "delete", "transact", "set", "create", "delete")
    ]
    assert verified_files([log]).is_whole
    begun = [line for line in lines_in(log, "shop") if line[0] == "begun"]
    assert {line[1] for line in begun} == {"grant lease", "revoke lease"}


INSIDE: Final = b64encode(SHOP.known.encode()).decode()
PUT_INSIDE: Final = {"request_put": {"key": INSIDE, "value": INSIDE}}
PUT_OUTSIDE: Final = {"request_put": {"key": KEY, "value": KEY}}
IS_THERE: Final = {"key": INSIDE, "target": "CREATE", "result": "GREATER", "createRevision": "0"}


@pytest.mark.parametrize(
    ("transaction", "lines"),
    [
        ({"success": [PUT_INSIDE]}, ["begun", "done"]),
        ({"success": [PUT_INSIDE, PUT_OUTSIDE]}, ["refused"]),
        ({"success": [{"request_txn": {"success": [PUT_OUTSIDE]}}, PUT_INSIDE]}, ["refused"]),
        ({"success": [PUT_INSIDE], "failure": [PUT_OUTSIDE]}, ["begun", "done"]),
        ({"compare": [IS_THERE], "success": [PUT_INSIDE], "failure": [PUT_OUTSIDE]}, ["begun", "done"]),
        ({"compare": [IS_THERE], "success": [PUT_OUTSIDE], "failure": [PUT_INSIDE]}, ["begun", "failed"]),
        ({"compare": [IS_THERE], "success": [PUT_OUTSIDE], "failure": [PUT_OUTSIDE]}, ["refused"]),
        ({"compare": [IS_THERE | {"key": KEY}], "success": [PUT_INSIDE]}, ["refused"]),
        ({"compare": [IS_THERE | {"key": "AA==", "range_end": "AA=="}], "success": [PUT_INSIDE]}, ["refused"]),
        ({"success": [{"request_delete_range": {"key": INSIDE, "range_end": "AA=="}}]}, ["refused"]),
    ],
)
def test_one_line_where_the_request_alone_tells_that_it_is_refused(
    transaction: dict[str, Any], lines: list[str], tmp_path: Path
) -> None:
    log = tmp_path / "audit.log"
    with MemoryEngine() as engine, AuditLog(log, wall=lambda: 0.0, syncs=False) as audit_log:
        access = PolicyAccess.of_file(World(engine, tmp_path / "access.toml").file)
        with (
            GatewayServer(engine, access=access, audit_log=audit_log) as server,
            JsonClient(server.url, token=TOKENS["shop"]) as client,
        ):
            status, _ = client.post("/v3/kv/txn", transaction)
    assert ([line[0] for line in lines_in(log, "shop")], status == 200) == (lines, lines[-1] == "done")


def test_the_line_of_a_key_whose_name_is_made_names_it(tmp_path: Path) -> None:
    log = tmp_path / "audit.log"
    with MemoryEngine() as engine, AuditLog(log, wall=lambda: 0.0, syncs=False) as audit_log:
        access = PolicyAccess.of_file(World(engine, tmp_path / "access.toml").file)
        with GatewayServer(engine, access=access, audit_log=audit_log) as server:
            headers = {"Authorization": f"Bearer {TOKENS['shop']}"}
            made = httpx.post(f"{server.url}/v2/keys/shop/queue", data={"value": "1"}, headers=headers).json()
    key = made["node"]["key"]
    assert key.startswith("/shop/queue/0")
    assert lines_in(log, "shop") == [("begun", "create", "/shop/queue", "", 0), ("done", "create", key, "", 1)]


def test_readers_of_hepnos_leave_no_line_and_writers_of_other_data_sets_one(tmp_path: Path) -> None:
    log = tmp_path / "audit.log"
    with MemoryEngine() as engine, AuditLog(log, wall=lambda: 0.0, syncs=False) as audit_log:
        world = World(engine, tmp_path / "access.toml")
        hepnos.ROW.settle(world)
        settings = {"hepnos.store": f"memory:{tmp_path.name}"}
        with GatewayServer(
            engine,
            access=PolicyAccess.of_file(world.file),
            builders=hepnos.ROW.services,
            settings=settings,
            audit_log=audit_log,
        ) as server:
            for who in ("reader", "shop"):
                attacker = Attacker(server.url, who, BANK, world)
                for attack in (hepnos.write, hepnos.delete, hepnos.delete_all, hepnos.condition):
                    assert not attack(attacker).is_reached
    assert lines_in(log, "reader") == []
    told = lines_in(log, "shop")
    assert {(line[0], line[3], line[4]) for line in told} == {("refused", "access-denied", 0)}
    assert len(told) == 5


def test_a_change_of_the_access_file_has_its_lines_before_it_counts(tmp_path: Path) -> None:
    log, clock = tmp_path / "audit.log", FakeClock()
    with MemoryEngine() as engine, AuditLog(log, wall=lambda: 0.0, syncs=False) as audit_log:
        world = World(engine, tmp_path / "access.toml")
        access = PolicyAccess.of_file(world.file, clock=clock)
        with GatewayServer(engine, access=access, clock=clock, audit_log=audit_log) as server:

            def put(who: str) -> int:
                headers = {"Authorization": f"Bearer {TOKENS[who]}"}
                return httpx.put(f"{server.url}/v2/keys/shop/a", data={"value": "1"}, headers=headers).status_code

            assert put("nothing") == 401
            change_access_file(
                world.file,
                lambda text: change_principal(
                    remove_principal(text, "shop", source="x"), "nothing", added={"write": ["prefix:/"]}, source="x"
                ),
            )
            change_access_file(
                world.file, lambda text: change_principal(text, "nothing", added={"read": ["prefix:/"]}, source="x")
            )
            clock.advance(2.0)
            assert (put("shop"), put("nothing")) == (401, 201)
    records = [line.record for line in read_lines([log]) if line.record is not None and line.record.act]
    told = [(one.event, one.operation, one.known_by, one.act, one.subject) for one in records]
    digits = sha256(TOKENS["shop"].encode()).hexdigest()[:8]
    gone = " ".join(f"{act} -application:shop," for act in ("read", "write", "administer")).rstrip(",")
    assert told[:2] == [
        ("done", "accessFile", "access file", "change principal", "nothing: read +prefix:/, write +prefix:/"),
        ("done", "accessFile", "access file", "remove principal", f"shop: tokens -{digits}, {gone}"),
    ]
    assert [line[1] for line in told[2:]] == ["setEtcdKey", "setEtcdKey"]
    assert verified_files([log]).is_whole


def test_who_is_refused_again_and_again_leaves_few_lines(tmp_path: Path) -> None:
    log = tmp_path / "audit.log"
    with MemoryEngine() as engine, AuditLog(log, wall=lambda: 0.0, syncs=False) as audit_log:
        clock = FakeClock()
        access = PolicyAccess.of_file(World(engine, tmp_path / "access.toml").file, clock=clock)
        with GatewayServer(engine, access=access, clock=clock, audit_log=audit_log) as server:
            headers = {"Authorization": f"Bearer {TOKENS['shop']}"}
            with httpx.Client(base_url=f"{server.url}/v2/keys", headers=headers) as client:
                for _ in range(REFUSALS_MAX + 5):
                    assert client.put(BANK.known, data={"value": "1"}).status_code == 401
                assert client.put(SHOP.known, data={"value": "1"}).is_success
    assert [line[0] for line in lines_in(log, "shop")] == ["refused"] * REFUSALS_MAX + ["begun", "done"]
