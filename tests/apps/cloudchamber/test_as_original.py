"""What a setting has done as the original does it, and what it is without."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from keyplan.errors import InvalidInputError
from tests.apps.cloudchamber.site import Site, site_of
from tests.apps.cloudchamber.web import ADMIN, SETTINGS

FEW_SESSIONS = f"{SETTINGS}  activeSessionLimit: 20\n"


async def login_of_nobody(site: Site) -> int:
    return (await site.client().put("/api/users/nobody?op=login", content="x")).status_code


async def sessions_of_one(site: Site) -> int:
    clients = [await site.logged_in() for _ in range(3)]
    return len((await clients[-1].get("/api/simulation/sessions")).json()["sessions"])


async def cookie(site: Site) -> bool:
    answer = await site.client().put(f"/api/users/{ADMIN[0]}?op=login", content=ADMIN[1])
    return "httponly" in answer.headers["set-cookie"].lower()


async def wait_for_log(site: Site) -> int:
    """How many entries are told by when somebody else asks for something, long after the wait began."""
    admin = await site.logged_in()
    waiting = asyncio.create_task(admin.get("/api/logs?from=1&for=9"))
    for _ in range(100):
        await asyncio.sleep(0.01)
        site.clock.advance(1)
        if waiting.done():
            break
    await admin.get("/api/faults")
    return len((await waiting).json().get("entries", []))


@pytest.mark.parametrize(
    ("name", "act", "here", "there"),
    [
        ("unknown-users", login_of_nobody, 403, 404),
        ("sessions", sessions_of_one, 2, 3),
        ("cookies", cookie, True, False),
        ("logs", wait_for_log, 0, 1),
    ],
)
def test_a_difference_is_undone_by_its_name(
    tmp_path: Path, name: str, act: Callable[[Site], Awaitable[object]], here: object, there: object
) -> None:
    found = []
    for as_original in ("", name):
        with site_of("memory:", tmp_path, FEW_SESSIONS, as_original=as_original) as site:
            found.append(site.run(act))
    assert found == [here, there]


def test_a_name_that_is_none_is_refused_with_those_that_are(tmp_path: Path) -> None:
    with (
        pytest.raises(InvalidInputError, match="must be names of unknown-users, sessions, cookies, logs"),
        site_of("memory:", tmp_path, as_original="sessions,all"),
    ):
        pass
