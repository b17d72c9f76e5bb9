"""Which of several faults a request is answered with: what the path says, then who asks, headers, words, and the body last."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from keyplan.server import BODY_BYTES_MAX
from tests.apps.cloudchamber.site import Site, site_of

FAULTY: dict[str, Any] = {"content": b"{", "headers": {"If-Match": "x"}}
UNREAD: dict[str, Any] = {"content": b"{", "headers": {"If-Match": '"1"'}}
WRITES: dict[str, Any] = {"content": b"{}", "headers": {"If-Match": '"1"'}}

NO_PAGE = "404 page not found"
DENIED = "CloudChamber: permission denied"
NO_SESSION = "CloudChamber: no session active"
NO_MATCH = 'CloudChamber: match value "x" is not recognized as a valid integer'
NO_BODY = "CloudChamber: the body cannot be read: "
LOGGED_IN_ALREADY = "CloudChamber: session already has a logged in user"


CASES: list[tuple[str, str, str, dict[str, Any], int, str]] = [
    # the path: of users it is what the original routes
    ("nobody", "POST", "/api/users/9x", FAULTY, 404, NO_PAGE),
    ("nobody", "PUT", "/api/users/9x?op=login", FAULTY, 404, NO_PAGE),
    ("nobody", "GET", "/api/users/%ff", {}, 400, "CloudChamber: the path is no UTF-8"),
    ("nobody", "PATCH", "/api/users/plain", FAULTY, 404, NO_PAGE),
    # who asks
    ("nobody", "POST", "/api/users/bob", FAULTY, 403, DENIED),
    ("plain", "POST", "/api/users/bob", FAULTY, 403, DENIED),
    ("nobody", "GET", "/api/users?right=none", {}, 403, DENIED),
    ("nobody", "GET", "/api/racks/r/blades/x", {}, 403, NO_SESSION),
    ("nobody", "GET", "/api/blades?condition=none", {}, 403, NO_SESSION),
    ("nobody", "PUT", "/api/workloads/w", FAULTY, 403, DENIED),
    ("plain", "PUT", "/api/workloads/w", FAULTY, 403, DENIED),
    ("plain", "PUT", "/api/workloads/w/instances/i/target", FAULTY, 403, DENIED),
    ("plain", "GET", "/api/simulation/sessions/x", {}, 403, DENIED),
    ("plain", "PUT", "/api/stepper?advance=x", {}, 403, DENIED),
    ("plain", "PUT", "/api/users/admin", FAULTY, 403, DENIED),
    ("plain", "PUT", "/api/users/admin?password", FAULTY, 403, DENIED),
    # then what is sent
    ("nobody", "PUT", "/api/users/plain", FAULTY, 400, "http: named cookie not present"),
    ("plain", "PUT", "/api/users/plain?op=login", FAULTY, 400, LOGGED_IN_ALREADY),
    (
        "plain",
        "PUT",
        "/api/users/plain?op=x&password",
        FAULTY,
        400,
        "CloudChamber: invalid user operation requested (?op=x)",
    ),
    ("plain", "GET", "/api/users?right=none", {}, 400, 'CloudChamber: there is no right "none"'),
    ("admin", "PUT", "/api/users/plain", FAULTY, 400, NO_MATCH),
    ("admin", "PUT", "/api/users/plain", UNREAD, 400, NO_BODY),
    ("admin", "PUT", "/api/workloads/w", FAULTY, 400, NO_MATCH),
    ("admin", "PUT", "/api/workloads/w", {"content": b"{"}, 400, 'CloudChamber: match value ""'),
    ("admin", "PUT", "/api/workloads/w", UNREAD, 400, NO_BODY),
    ("admin", "DELETE", "/api/workloads/w", {"headers": {"If-Match": "x"}}, 400, NO_MATCH),
    ("admin", "PUT", "/api/stepper?mode=manual&advance=x", FAULTY, 400, 'CloudChamber: requested rate "x"'),
    ("admin", "PUT", "/api/stepper?mode=other", FAULTY, 400, NO_MATCH),
    ("admin", "PUT", "/api/stepper?mode=other", WRITES, 400, 'CloudChamber: mode "other" is invalid'),
    ("admin", "GET", "/api/racks/r/blades/x", {}, 400, 'strconv.ParseInt: parsing "x": invalid syntax'),
    ("admin", "GET", "/api/simulation/sessions/x", {}, 400, 'strconv.ParseInt: parsing "x": invalid syntax'),
    ("admin", "DELETE", "/api/simulation/sessions/x", {}, 400, 'strconv.ParseInt: parsing "x": invalid syntax'),
    ("admin", "GET", "/api/simulation/sessions/9", {}, 404, "CloudChamber: session 9 not found"),
    # and what the act finds
    ("admin", "PUT", "/api/workloads/W", WRITES, 404, 'CloudChamber: workload "w" not found'),
    ("admin", "DELETE", "/api/workloads/W", {}, 404, 'CloudChamber: workload "w" not found'),
    ("admin", "GET", "/api/workloads/w/instances/I", {}, 404, 'CloudChamber: instance "i" not found'),
    ("admin", "POST", "/api/workloads/w/instances/I", WRITES, 404, 'CloudChamber: workload "w" not found'),
    ("admin", "PUT", "/api/users/plain", WRITES, 409, 'CloudChamber: user "plain" has a newer version'),
]


def test_a_request_with_several_faults_is_answered_with_the_first(tmp_path: Path) -> None:
    async def act(site: Site) -> list[tuple[int, str]]:
        admin = await site.logged_in()
        await admin.post("/api/users/plain", json={"password": "word", "enabled": True})
        clients = {"admin": admin, "plain": await site.logged_in("plain", "word"), "nobody": site.client()}
        answers = [await clients[who].request(method, path, **asked) for who, method, path, asked, _, _ in CASES]
        return [(answer.status_code, answer.text) for answer in answers]

    with site_of("memory:", tmp_path) as site:
        found = site.run(act)
    told = [(case[:3], status, text[: len(case[5])]) for case, (status, text) in zip(CASES, found, strict=True)]
    assert told == [(case[:3], *case[4:]) for case in CASES]


def test_who_may_not_is_told_so_before_a_body_is_read_that_does_not_say_how_long_it_is(tmp_path: Path) -> None:
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(BODY_BYTES_MAX // 65_536 + 2):
            yield b" " * 65_536

    async def act(site: Site) -> list[int]:
        admin = await site.logged_in()
        await admin.post("/api/users/plain", json={"password": "word", "enabled": True})
        plain = await site.logged_in("plain", "word")
        return [
            (await client.put(path, content=endless(), headers={"If-Match": '"1"'})).status_code
            for client in (site.client(), plain, admin)
            for path in ("/api/users/admin", "/api/users/admin?password")
        ]

    with site_of("memory:", tmp_path) as site:
        assert site.run(act) == [400, 403, 403, 403, 413, 413]
