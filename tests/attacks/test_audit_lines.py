"""Who may write nothing leaves no line in the audit log: a disk that they fill would keep everybody else from writing."""

import asyncio
from base64 import b64encode
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from keyplan.audit_log import AuditLog, read_lines
from keyplan.engine import MemoryEngine
from keyplan.server import Application, PolicyAccess, etcd_v2, etcd_v3
from tests.attacks.world import BANK, TOKENS, World

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
        assert set(noted) == {who}, "who may write elsewhere is told of, too, where they are refused"
    else:
        assert (statuses, noted) == ([403] * 5 + [401] * 3, [])
