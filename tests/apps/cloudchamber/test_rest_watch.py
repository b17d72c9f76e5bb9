"""Waiting for changes, and the log (5.5), on a clock that the test moves."""

import asyncio
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import keyplan
from keyplan.apps.cloudchamber import (
    CloudChamber,
    Rack,
    RackDetails,
    User,
    Workload,
    begin_indexes,
)
from keyplan.apps.cloudchamber.traces import Trace, Traces
from keyplan.apps.cloudchamber.waiting import poll_seconds
from keyplan.engine import Capability, Commit, Put
from tests.apps.cloudchamber.site import Site, site_of
from tests.apps.cloudchamber.web import SETTINGS

STATUS = {"policy": "Manual", "measuredDelay": "0s", "epoch": "1"}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with site_of("memory:", tmp_path) as built:
        yield built


@pytest.fixture
def stored_site(store_url: str, tmp_path: Path) -> Iterator[Site]:
    """On each engine."""
    with site_of(store_url, tmp_path) as built:
        yield built


async def asked(client: httpx.AsyncClient, path: str) -> Any:
    answer = await client.get(path)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def is_waiting(task: "asyncio.Task[Any]") -> None:
    """Let a request reach the place where it waits."""
    for _ in range(200):
        await asyncio.sleep(0)
    assert not task.done()


async def in_vain(site: Site, request: Coroutine[Any, Any, Any]) -> Any:
    """Let time pass until a request is answered."""
    waiting = asyncio.create_task(request)
    while not waiting.done():
        await asyncio.sleep(0.01)
        site.clock.advance(1)
    return await waiting


# ---- simulated time ------------------------------------------------------------------------------------------------------


def test_a_watch_without_a_question_is_answered_at_once_and_in_vain_after_a_while(site: Site) -> None:
    async def act(site: Site) -> None:
        admin = await site.logged_in()
        assert await asked(admin, "/api/watch") == {"statusResponse": STATUS}
        assert await in_vain(site, asked(admin, "/API/Watch?tick=0&epoch=1")) == {"expired": True}
        assert await in_vain(site, asked(admin, "/api/watch?tick=0&epoch=7")) == {"expired": True}
        assert await asked(admin, "/api/watch?tick=0&epoch=0") == {"statusResponse": STATUS}
        foo = await admin.get("/api/watch?tick=0&epoch=foo")
        assert foo.text == ('CloudChamber: the "epoch" field\'s value "foo" could not be parsed as a decimal number\n')
        assert (await admin.get("/api/watch/")).status_code == 404
        for query in (
            "tick=",
            "epoch=",
            "tick=x",
            "epoch=1.0",
            "tick=9223372036854775808",
            "revision=-1",
            "revision=x",
            "revision=99",
        ):
            refused = await admin.get(f"/api/watch?{query}")
            assert (refused.status_code, refused.text[:14]) == (400, "CloudChamber: ")

    site.run(act)


def test_a_watch_sees_the_step_and_the_change_of_mode(site: Site) -> None:
    async def act(site: Site) -> None:
        admin = await site.logged_in()
        waiting = asyncio.create_task(asked(admin, "/api/watch?tick=0&epoch=1"))
        await is_waiting(waiting)
        await admin.put("/api/stepper?advance=2")
        assert await waiting == {"statusResponse": {**STATUS, "now": "2"}}
        waiting = asyncio.create_task(asked(admin, "/api/watch?tick=2&epoch=1"))
        await is_waiting(waiting)
        await admin.put("/api/stepper?mode=manual", headers={"If-Match": "1"})
        assert await waiting == {"statusResponse": {**STATUS, "now": "2", "epoch": "2"}}

    site.run(act)


@pytest.mark.parametrize(("inactivity", "poll"), [(3600, 5), (10, 5), (9, 4.5), (1, 0.5)])
def test_a_poll_is_shorter_than_a_session(inactivity: float, poll: float) -> None:
    assert poll_seconds(inactivity) == poll


# ---- changes of the store -------------------------------------------------------------------------------------------------


def test_changes_come_in_order_each_once_and_tell_where_to_go_on(stored_site: Site) -> None:
    async def act(site: Site) -> None:
        admin = await site.logged_in()
        chamber, tests = CloudChamber(site.store), CloudChamber(site.store, namespace="Test/Standard/")
        begun = (await _started(site, admin))["revision"]
        waiting = asyncio.create_task(asked(admin, f"/api/watch?revision={begun}"))
        await is_waiting(waiting)
        tests.racks.insert("unseen", Rack())
        first = chamber.racks.insert("rack1", Rack())
        answer = await waiting
        created = {"kind": "created", "key": "racks/rack1", "revision": str(first), "newRevision": str(first)}
        assert answer["changes"] == [created]
        second = chamber.racks.update("rack1", Rack(RackDetails(enabled=True)))
        third = chamber.racks.delete("rack1")
        found: list[Any] = []
        reached = answer["revision"]
        while len(found) < 2:
            answer = await asked(admin, f"/api/watch?revision={reached}")
            found += answer["changes"]
            reached = answer["revision"]
        updated = {
            **created,
            "kind": "updated",
            "revision": str(second),
            "oldRevision": str(first),
            "newRevision": str(second),
        }
        deleted = {"kind": "deleted", "key": "racks/rack1", "revision": str(third), "oldRevision": str(second)}
        assert found == [updated, deleted]
        everything = await asked(admin, f"/api/watch?revision={begun}")
        assert everything == {"changes": [created, updated, deleted], "revision": reached}

    stored_site.run(act)


async def _started(site: Site, client: httpx.AsyncClient) -> Any:
    """Begin to watch from now on: the first answer comes in vain, with the revision to go on from."""
    answer = await in_vain(site, asked(client, "/api/watch?revision=0"))
    assert (answer["expired"], set(answer)) == (True, {"expired", "revision"})
    return answer


def test_what_was_changed_before_anybody_asked_comes_from_the_history(stored_site: Site) -> None:
    async def act(site: Site) -> None:
        admin = await site.logged_in()
        revision = site.store.revision
        chamber = CloudChamber(site.store)
        for number in range(3):
            chamber.workloads.insert(f"w{number}", Workload())
        answer = await asked(admin, f"/api/watch?revision={revision}")
        assert [one["key"] for one in answer["changes"]] == ["workloads/w0", "workloads/w1", "workloads/w2"]
        assert answer["revision"] == str(site.store.revision)

    stored_site.run(act)


def test_history_that_is_gone_is_said_to_be(tmp_path: Path) -> None:
    async def act(site: Site) -> None:
        admin = await site.logged_in()
        chamber = CloudChamber(site.store)
        for number in range(3):
            chamber.workloads.insert(f"w{number}", Workload())
        site.store.engine.compact(site.store.revision)
        gone = await admin.get("/api/watch?revision=1")
        assert gone.status_code == 410

    with site_of(f"lmdb:{tmp_path / 'kv'}?durability=none", tmp_path) as site:
        site.run(act)


def test_who_the_users_are_is_told_to_those_who_manage_them(tmp_path: Path) -> None:
    """Strangers' keys, too; entries of indexes to nobody."""
    url = f"lmdb:{tmp_path}/store"
    with keyplan.open(url) as store:
        begin_indexes(store)

    async def act(site: Site) -> None:
        admin = await site.logged_in()
        assert (await admin.post("/api/users/Plain", json={"password": "x", "enabled": True})).status_code == 200
        plain = await site.logged_in("plain", "x")
        revision = site.store.revision
        chamber = CloudChamber(site.store)
        chamber.users.insert("secretive", User(name="secretive"))
        site.store.engine.commit(Commit((), (Put(b"/CloudChamber/V0.1/strange", b"x"),)))
        chamber.racks.insert("rack1", Rack())
        seen = await asked(plain, f"/api/watch?revision={revision}")
        assert [one["key"] for one in seen["changes"]] == ["racks/rack1"]
        seen = await asked(admin, f"/api/watch?revision={revision}")
        assert [one["key"] for one in seen["changes"]] == ["users/secretive", "strange", "racks/rack1"]

    with site_of(url, tmp_path) as site:
        site.run(act)


def test_changes_and_time_can_be_waited_for_together(site: Site) -> None:
    async def act(site: Site) -> None:
        admin = await site.logged_in()
        revision = site.store.revision
        waiting = asyncio.create_task(asked(admin, f"/api/watch?revision={revision}&tick=0"))
        await is_waiting(waiting)
        await admin.put("/api/stepper?advance")
        assert await waiting == {"statusResponse": {**STATUS, "now": "1"}, "revision": str(revision)}

    site.run(act)


def test_an_engine_that_cannot_watch_says_so(tmp_path: Path) -> None:
    async def act(site: Site) -> None:
        assert not site.store.engine.profile.claims(Capability.WATCH)
        admin = await site.logged_in()
        assert (await admin.get("/api/watch?revision=0")).status_code == 501
        assert (await admin.get("/api/watch")).status_code == 200

    with site_of(f"lmdb:{tmp_path / 'kv'}?history=off", tmp_path) as site:
        site.run(act)


# ---- the log ------------------------------------------------------------------------------------------------------------


def test_the_log_has_the_requests_and_nothing_that_was_sent(site: Site) -> None:
    async def act(site: Site) -> None:
        admin = await site.logged_in()
        assert (await admin.get("/api/logs/policy")).json() == {"maxEntriesHeld": "100"}
        await admin.post("/api/users/Plain", json={"password": "unseen", "enabled": True})
        await admin.get("/api/users/nobody")
        read = await asked(admin, "/api/logs?from=-1&for=100")
        assert read == {
            "lastId": "3",
            "entries": [
                span(1, "PUT /api/users/{name}", "Change what a user may do; or log in, log out, change the password."),
                span(2, "POST /api/users/{name}", "Create a user.", user="admin", impact="Create"),
                span(3, "GET /api/users/{name}", "Read a user.", user="admin", status=404, impact="Read"),
            ],
        }
        assert [one["id"] for one in (await asked(admin, "/api/logs?from=1&for=2"))["entries"]] == ["2", "3"]
        plain = await site.logged_in("plain", "unseen")
        await plain.get("/api/racks/none/blades")
        seen = await asked(plain, "/api/logs?from=1&for=100")
        told = [one["entry"]["event"][0]["text"] for one in seen["entries"]]
        assert told == ["answered 200", "http error 404", "answered 200", 'answered 200, asked by "plain"']
        for query in ("from=x&for=2", "from=&for=2", "from=1&for=0", "from=1&for=1", "from=1&for=-1", "from=1&for=x"):
            assert (await admin.get(f"/api/logs?{query}")).status_code == 400, query
        for query in ("", "?from=1", "?for=100", "/?from=1&for=2"):
            nowhere = await admin.get(f"/api/logs{query}")
            assert (nowhere.status_code, nowhere.text) == (404, "404 page not found\n"), query

    site.run(act)


def span(
    number: int, name: str, reason: str, *, user: str = "", status: int = 200, impact: str = "Modify"
) -> dict[str, Any]:
    """An entry of the log: a span of the original's, with its one event."""
    outcome = "answered 200" if status < 400 else f"http error {status}"
    event = {
        "severity": "Info" if status < 400 else "Warning",
        "text": f'{outcome}, asked by "{user}"' if user else outcome,
        "at": "2023-11-14T22:13:20Z",
    }
    entry = {
        "name": name,
        "spanID": f"{number:016x}",
        "parentID": "0" * 16,
        "traceID": f"{number:032x}",
        "status": "OK: " if status < 400 else f"Error: {outcome}",
        "event": [event],
        **({"infrastructure": True} if impact == "Read" else {}),
        "reason": reason,
        "startedAt": "2023-11-14T22:13:20Z",
        "endedAt": "2023-11-14T22:13:20Z",
        "impacted": [{"impact": impact, "name": "/users"}],
    }
    return {"id": str(number), "entry": entry}


def test_who_reads_the_log_to_its_end_waits_for_the_next_trace(site: Site) -> None:
    async def act(site: Site) -> None:
        admin = await site.logged_in()
        waiting = asyncio.create_task(asked(admin, "/api/logs?from=1&for=9"))
        await is_waiting(waiting)
        await admin.get("/api/faults")
        assert [one["entry"]["name"] for one in (await waiting)["entries"]] == ["GET /api/faults"]
        assert await in_vain(site, asked(admin, "/api/logs?from=2&for=9")) == {"lastId": "2"}
        assert await asked(admin, "/api/logs?from=77&for=9") == {"lastId": "2", "missed": True}

    site.run(act)


def test_traces_that_made_room_are_missed(tmp_path: Path) -> None:
    async def act(site: Site) -> None:
        admin = await site.logged_in()
        for _ in range(104):
            assert (await admin.get("/api/faults")).text == "Injection (Root)"
        read = await asked(admin, "/api/logs?from=3&for=2")
        assert (read["missed"], [one["id"] for one in read["entries"]]) == (True, ["6", "7"])
        assert (await asked(admin, "/api/logs/policy"))["firstId"] == "5"
        assert "missed" not in await asked(admin, "/api/logs?from=5&for=9")

    with site_of("memory:", tmp_path, f"{SETTINGS}simSupport:\n  traceRetentionLimit: 100\n") as site:
        site.run(act)


def test_no_more_traces_are_kept_than_asked_for() -> None:
    traces = Traces(3)
    assert (traces.first_id, traces.last_id, traces.after(0, 9)) == (1, 0, [])
    for number in range(5):
        traces.add(
            Trace(
                name="GET /",
                reason="Read.",
                module="/racks",
                method="GET",
                is_change=False,
                started_at=0,
                seconds=0,
                status=200 + number,
                tick=0,
                user="",
            )
        )
    assert (traces.first_id, traces.last_id) == (3, 5)
    assert [one.id for one in traces.after(0, 9)] == [3, 4, 5]
    assert [one.status for one in traces.after(3, 1)] == [203]
    assert traces.after(5, 9) == []
