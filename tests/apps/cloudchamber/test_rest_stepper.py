"""Simulated time over HTTP (5.5): the original's quirks, each kept or mended, on a clock that the test moves."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from starlette.requests import Request

from keyplan.apps.cloudchamber.records import User
from keyplan.apps.cloudchamber.refusals import RefusedError
from keyplan.apps.cloudchamber.sessions import AuthenticatedRequest, SessionTable
from keyplan.apps.cloudchamber.stepper import RATE_MAX, Stepper
from keyplan.apps.cloudchamber.waiting import Waiting, Wakeup
from keyplan.errors import AccessDeniedError
from keyplan.layout import Versioned
from keyplan.server import Closing
from keyplan.testing.faults import FakeClock
from tests.apps.cloudchamber.site import Site, site_of
from tests.apps.cloudchamber.web import SETTINGS

STEPPER = "/api/stepper"
MANUAL = {"policy": "Manual", "measuredDelay": "0s", "epoch": "1"}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with site_of("memory:", tmp_path) as built:
        yield built


async def until(count: str, client: httpx.AsyncClient) -> None:
    """Wait until so many wait for a tick."""
    for _ in range(3_000):
        if await waiters(client) == count:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(await waiters(client))


async def waiters(client: httpx.AsyncClient) -> str:
    return str((await client.get(STEPPER)).json().get("waiterCount", "0"))


def match(epoch: int) -> dict[str, str]:
    return {"If-Match": f'"{epoch}"'}


def test_time_stands_at_0_until_somebody_steps_it(site: Site) -> None:
    """Zero values are left out: `now` is absent at tick 0, and so is all that is told of it alone."""

    async def act(site: Site) -> None:
        admin = await site.logged_in()
        begun = await admin.get("/API/Stepper/")
        assert (begun.json(), begun.headers["etag"]) == (MANUAL, '"1"')
        assert (await admin.get(f"{STEPPER}/now")).json() == {}
        site.clock.advance(1800)
        assert (await admin.put(f"{STEPPER}?advance")).json() == {"ticks": "1"}
        assert (await admin.put(f"{STEPPER}?advance=")).json() == {"ticks": "2"}
        assert (await admin.put(f"{STEPPER}?advance=5")).json() == {"ticks": "7"}
        assert (await admin.get(f"{STEPPER}/now")).json() == {"ticks": "7"}
        assert (await admin.get(STEPPER)).json() == {**MANUAL, "now": "7"}

    site.run(act)


RATE = 'requested rate "{}" could not be parsed as a positive decimal number'
MODE = "mode \"{}\" is invalid.  Supported modes are 'manual' and 'automatic'"
NO_CHANGES = {
    "advance=0": RATE.format("0"),
    "advance=-1": RATE.format("-1"),
    "advance=two": RATE.format("two"),
    "advance=1.5": RATE.format("1.5"),
    "advance=9223372036854775808": RATE.format("9223372036854775808"),
    "mode=": MODE.format(""),
    "mode=badChoice": MODE.format("badChoice"),
    "mode=Manual": MODE.format("Manual"),
    "mode=manual=10": "manual mode does not accept additional arguments",
    "mode=automatic:": RATE.format(""),
    "mode=automatic:0": RATE.format("0"),
    "mode=automatic:-1": RATE.format("-1"),
    "mode=automatic:x": RATE.format("x"),
    "mode=automatic:1:2": RATE.format("1:2"),
    "mode=automatic:1000000001": RATE.format("1000000001"),
}


def test_what_is_no_step_and_no_mode_is_refused_in_the_originals_words_and_changes_nothing(site: Site) -> None:
    async def act(site: Site) -> None:
        admin = await site.logged_in()
        for query, text in NO_CHANGES.items():
            refused = await admin.put(f"{STEPPER}?{query}", headers=match(1))
            assert (refused.status_code, refused.text) == (400, f"CloudChamber: {text}\n"), query
        for query in ("", "?speed=2"):
            nowhere = await admin.put(f"{STEPPER}{query}", headers=match(1))
            assert (nowhere.status_code, nowhere.text) == (404, "404 page not found\n")
        assert (await admin.get(STEPPER)).json() == MANUAL

    site.run(act)


def test_time_does_not_pass_its_end(site: Site) -> None:
    async def act(site: Site) -> None:
        admin = await site.logged_in()
        last = 2**63 - 1
        assert (await admin.put(f"{STEPPER}?advance={last}")).json() == {"ticks": str(last)}
        assert (await admin.put(f"{STEPPER}?advance")).status_code == 400

    site.run(act)


def test_a_number_may_have_a_sign_as_in_the_original(site: Site) -> None:
    async def act(site: Site) -> None:
        admin = await site.logged_in()
        assert (await admin.put(f"{STEPPER}?advance=%2B3")).json() == {"ticks": "3"}

    site.run(act)


def test_a_change_of_mode_begins_an_epoch_and_matches_the_last_one(site: Site) -> None:
    """A stale epoch is a 400, as in the original; -1 is any, and then, too, the ETag is the epoch that began (mended)."""

    async def act(site: Site) -> None:
        admin = await site.logged_in()
        first = await admin.put(f"{STEPPER}?mode=automatic:5", headers=match(1))
        assert (first.json(), first.headers["etag"]) == (
            {"policy": "Measured", "measuredDelay": "0.200s", "epoch": "2"},
            '"2"',
        )
        stale = await admin.put(f"{STEPPER}?mode=manual", headers=match(1))
        assert (stale.status_code, stale.text) == (
            400,
            "CloudChamber: Set simulated time policy operation failed\n",
        )
        for header in (
            {},
            {"If-Match": "*"},
            match(3),
            match(-2),
        ):  # 3 the original took: it may be of another server's life
            assert (await admin.put(f"{STEPPER}?mode=manual", headers=header)).status_code == 400
        anew = await admin.put(f"{STEPPER}?mode=manual", headers={"If-Match": "-1"})
        assert (anew.json(), anew.headers["etag"]) == ({**MANUAL, "epoch": "3"}, '"3"')
        for mode, delay in (
            ("automatic", "1s"),
            ("automatic:1", "1s"),
            ("automatic=10", "0.100s"),
            ("automatic:3", "0.333333333s"),
            ("automatic:1000000000", "0.000000001s"),
        ):
            answer = await admin.put(f"{STEPPER}?mode={mode}", headers={"If-Match": "-1"})
            assert answer.json()["measuredDelay"] == delay

    site.run(act)


def test_in_automatic_mode_ticks_pass_by_themselves_and_cannot_be_stepped(site: Site) -> None:
    async def act(site: Site) -> None:
        admin = await site.logged_in()
        await admin.put(f"{STEPPER}?advance=3")
        await admin.put(f"{STEPPER}?mode=automatic:10", headers=match(1))
        site.clock.advance(0.29)
        assert (await admin.get(f"{STEPPER}/now")).json() == {"ticks": "5"}
        site.clock.advance(5)
        assert (await admin.get(f"{STEPPER}/now")).json() == {"ticks": "55"}
        refused = await admin.put(f"{STEPPER}?advance")
        assert (refused.status_code, refused.text) == (
            409,
            "CloudChamber: time passes by itself: set the mode to manual first\n",
        )
        await admin.put(f"{STEPPER}?mode=manual", headers=match(2))
        site.clock.advance(100)
        assert (await admin.put(f"{STEPPER}?advance")).json() == {"ticks": "56"}

    site.run(act)


def test_now_after_a_tick_waits_for_the_next(site: Site) -> None:
    """`now?after=t` is answered when tick > t, with the whole status; who waits is counted; a negative t is a 400."""

    async def act(site: Site) -> None:
        admin = await site.logged_in()
        await admin.put(f"{STEPPER}?advance=3")
        assert (await admin.get(f"{STEPPER}/now?after=2")).json() == {**MANUAL, "now": "3"}
        waiting = [asyncio.create_task(admin.get(f"{STEPPER}/now?after={tick}")) for tick in (3, 5)]
        await until("2", admin)
        await admin.put(f"{STEPPER}?advance")
        assert (await waiting[0]).json() == {**MANUAL, "now": "4", "waiterCount": "1"}
        await until("1", admin)
        assert not waiting[1].done()
        await admin.put(f"{STEPPER}?mode=automatic:10", headers=match(1))
        site.clock.advance(0.2)
        assert (await waiting[1]).json() == {"policy": "Measured", "measuredDelay": "0.100s", "now": "6", "epoch": "2"}
        for after in ("-1", "x", ""):
            refused = await admin.get(f"{STEPPER}/now?after={after}")
            problem = f'the "after" field\'s value "{after}" could not be parsed as a positive decimal number'
            assert (refused.status_code, refused.text) == (400, f"CloudChamber: {problem}\n")

    site.run(act)


def test_a_server_that_stops_lets_nobody_wait(site: Site) -> None:
    async def act(site: Site) -> None:
        admin = await site.logged_in()
        waiting = asyncio.create_task(admin.get(f"{STEPPER}/now?after=9"))
        await until("1", admin)
        site.application.closing.set()
        assert (await waiting).status_code == 503

    site.run(act)


def test_stepping_takes_a_right_and_reading_a_session(site: Site) -> None:
    async def act(site: Site) -> None:
        admin, nobody = await site.logged_in(), site.client()
        for name, rights in (("Walker", {"canStepTime": True}), ("Sitter", {"canManageAccounts": True})):
            body = {"password": "x", "enabled": True, "rights": rights}
            assert (await admin.post(f"/api/users/{name}", json=body)).status_code == 200
        walker, sitter = await site.logged_in("walker", "x"), await site.logged_in("sitter", "x")
        assert (await walker.put(f"{STEPPER}?advance")).json() == {"ticks": "1"}
        for query in ("advance", "mode=manual", "nonsense"):
            assert (await sitter.put(f"{STEPPER}?{query}", headers=match(1))).status_code == 403
            assert (await nobody.put(f"{STEPPER}?{query}", headers=match(1))).status_code == 403
        for path in (
            STEPPER,
            f"{STEPPER}/now",
            "/api/watch",
            "/api/logs?from=-1&for=9",
            "/api/logs/policy",
            "/api/faults",
        ):
            assert (await sitter.get(path)).status_code == 200
            refused = await nobody.get(path)
            assert (refused.status_code, refused.text) == (403, "CloudChamber: no session active\n")

    site.run(act)


def test_the_settings_say_how_time_begins(tmp_path: Path) -> None:
    settings = f"{SETTINGS}simSupport:\n  stepperPolicy: Automatic\n  traceRetentionLimit: 150\n"

    async def act(site: Site) -> None:
        admin = await site.logged_in()
        site.clock.advance(2.5)
        assert (await admin.get(STEPPER)).json() == {
            "policy": "Measured",
            "measuredDelay": "1s",
            "now": "2",
            "epoch": "1",
        }
        assert (await admin.get("/api/logs/policy")).json()["maxEntriesHeld"] == "150"

    with site_of("memory:", tmp_path, settings) as site:
        site.run(act)


def test_a_client_that_is_gone_waits_no_longer() -> None:
    async def gone() -> dict[str, str]:
        return {"type": "http.disconnect"}

    async def act() -> None:
        clock = FakeClock()
        sessions = SessionTable(clock, inactivity_seconds=60, sessions_max=1)
        waiting = Waiting(clock, Closing(), sessions)
        session = sessions.open(Versioned("ada", User(name="ada"), 1, 1, 1, 0))
        with pytest.raises(RefusedError) as caught:
            await waiting.until(lambda: False, AuthenticatedRequest(Request({"type": "http"}, gone), session), Wakeup())
        assert caught.value.status == 503

    asyncio.run(act())


def test_a_principal_whose_grant_has_gone_is_not_told_that_it_is_over() -> None:
    async def still_here() -> dict[str, str]:
        await asyncio.Event().wait()
        raise AssertionError

    async def denied() -> None:
        raise AccessDeniedError(who="robot", act="read", where="operation:getWatch")

    async def act() -> None:
        clock = FakeClock()
        waiting = Waiting(clock, Closing(), SessionTable(clock, inactivity_seconds=60, sessions_max=1))
        request = Request({"type": "http"}, still_here)
        with pytest.raises(AccessDeniedError):
            await waiting.until(lambda: True, AuthenticatedRequest(request, None, "robot", denied), Wakeup())
        with pytest.raises(RefusedError) as caught:
            await waiting.until(lambda: True, AuthenticatedRequest(request, None, "robot"), Wakeup())
        assert caught.value.status == 403

    asyncio.run(act())


def test_a_stepper_tells_when_a_tick_comes_and_no_rate_makes_that_at_once() -> None:
    clock = FakeClock()
    stepper = Stepper(clock)
    assert stepper.seconds_until(1) is None
    stepper.run(4)
    clock.advance(0.1)
    assert stepper.seconds_until(1) == pytest.approx(0.15)
    assert stepper.seconds_until(5) == pytest.approx(1.15)
    assert stepper.seconds_until(0) == 0
    stepper.run(RATE_MAX)
    assert stepper.seconds_until(10 * RATE_MAX) == pytest.approx(10)
    with pytest.raises(RefusedError):
        stepper.advance(1)
