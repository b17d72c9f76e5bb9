"""Who gets no further than the door of CloudChamber: pages of others, tokens that are not known, too many log-ins.

Their cookie is sent along by browsers whoever has them ask, and the log-in is open to everybody.
"""

from pathlib import Path

import httpx
import pytest

from keyplan.audit_log import AuditLog, read_lines
from keyplan.server import Access
from tests.apps.cloudchamber.site import Site, site_of
from tests.apps.cloudchamber.test_access import served_access

OTHER_PORT = {"Origin": "http://127.0.0.1:9999", "Sec-Fetch-Site": "same-site"}
OTHER_SITE = {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}
OLD_BROWSER = {"Origin": "null"}
UNKNOWN_TOKEN = {"Authorization": "Bearer a-token-that-nobody-was-given"}
OWN_PAGE = {"Origin": "http://127.0.0.1", "Sec-Fetch-Site": "same-origin"}


@pytest.mark.parametrize("has_access_file", [True, False])
@pytest.mark.parametrize(
    ("headers", "status"),
    [(OTHER_PORT, 403), (OTHER_SITE, 403), (OLD_BROWSER, 403), (UNKNOWN_TOKEN, 401), (OWN_PAGE, 200)],
)
def test_a_session_is_not_for_pages_of_others_and_makes_good_no_wrong_token(
    tmp_path: Path, headers: dict[str, str], status: int, *, has_access_file: bool
) -> None:
    access = served_access(tmp_path) if has_access_file else Access()
    with site_of("memory:", tmp_path, access=access) as site:

        async def act(site: Site) -> list[int]:
            admin = await site.logged_in()
            answers = [
                await admin.get("/api/users", headers=headers),
                await admin.post(
                    "/api/workloads/evil", content="{}", headers={**headers, "Content-Type": "text/plain"}
                ),
                await admin.post("/api/users/eve", content='{"password": "x"}', headers=headers),
            ]
            there = await admin.get("/api/workloads"), await admin.get("/api/users")
            assert {name in answer.text for name, answer in zip(("evil", "eve"), there, strict=True)} == {status == 200}
            return [answer.status_code for answer in answers]

        assert site.run(act) == [status] * 3


def test_a_page_of_another_logs_nobody_in(tmp_path: Path) -> None:
    with site_of("memory:", tmp_path) as site:

        async def act(site: Site) -> httpx.Response:
            return await site.client().put("/api/users/admin?op=login", content="adminPassword", headers=OTHER_SITE)

        refused = site.run(act)
    assert (refused.status_code, "set-cookie" in refused.headers) == (403, False)


def test_who_has_no_session_writes_no_more_lines_in_the_audit_log_than_there_are_tries_to_log_in(
    tmp_path: Path,
) -> None:
    path = tmp_path / "audit.log"
    with AuditLog(path, wall=lambda: 0.0, syncs=False) as log, site_of("memory:", tmp_path, audit_log=log) as site:

        async def act(site: Site) -> set[int]:
            client, statuses = site.client(), set()
            for number in range(300):
                for query in ("op=login", "op=logout", "op=other", "password"):
                    for name in (f"user{number}", "n" * 300):
                        answer = await client.put(f"/api/users/{name}?{query}", content="wrong")
                        statuses.add(answer.status_code)
            return statuses

        assert site.run(act) == {400, 403, 429}
    noted = [line.record for line in read_lines([path]) if line.record is not None and line.record.act]
    assert len(noted) == 2 * 100, "the bound of an address"
    assert max(len(record.subject) for record in noted) < 10
