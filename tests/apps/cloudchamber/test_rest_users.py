"""Users and logins over HTTP, as real clients see them; AC numbers are those of the specification's section 7."""

import base64
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

import keyplan
from keyplan.apps.cloudchamber import CloudChamber, Rights, User
from keyplan.engine import Commit, Put
from keyplan.maintenance import FindingKind, check
from tests.apps.cloudchamber.web import Web, served

EVERYTHING = (
    "canManageAccounts",
    "canStepTime",
    "canModifyWorkloads",
    "canModifyInventory",
    "canInjectFaults",
    "canPerformRepairs",
)


def create(admin: httpx.Client, name: str, *rights: str, password: str = "test", enabled: bool = True) -> str:
    """Create a user and return its ETag."""
    body = {"password": password, "enabled": enabled, "rights": dict.fromkeys(rights, True)}
    answer = admin.post(f"/api/users/{name}", json=body)
    assert answer.status_code == 200, answer.text
    return answer.headers["etag"]


def said(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.text


def test_logging_in_and_out(web: Web) -> None:
    """AC-47; wrong password and unknown user are told alike."""
    failed = (403, "CloudChamber: authentication failed, invalid user name or password\n")
    with web.client() as client:
        assert said(client.put("/api/users/ADMIN?op=login", content="wrong")) == failed
        assert said(client.put("/api/users/nobody?op=login", content="wrong")) == failed
        assert not client.cookies
        entered = client.put("/api/users/ADMIN?op=login", content="adminPassword")
        assert said(entered) == (200, 'User "admin" logged in\n')
        assert said(client.put("/api/users/admin?op=login", content="adminPassword")) == (
            400,
            "CloudChamber: session already has a logged in user\n",
        )
        assert said(client.put("/api/users/alice?op=logout")) == (
            400,
            'CloudChamber: user "alice" not logged into this session\n',
        )
        cookie = client.cookies["CC-Session"]
        assert said(client.put("/api/users/Admin?op=logout")) == (200, 'User "admin" logged out\n')
        assert "CC-Session" not in client.cookies
        again = httpx.get(f"{web.server.url}/api/users", cookies={"CC-Session": cookie})
        assert said(again) == (403, "CloudChamber: permission denied\n")


def test_the_cookie_is_kept_from_scripts_and_other_sites_and_sent_with_every_answer(web: Web) -> None:
    with web.client() as client:
        entered = client.put("/api/users/admin?op=login", content="adminPassword")
        words = {word.strip().lower() for word in entered.headers["set-cookie"].split(";")}
        assert {"httponly", "samesite=strict", "path=/", "max-age=2592000"} <= words
        secret = client.cookies["CC-Session"]
        assert len(secret) >= 40
        missing = client.get("/api/users/nobody")
        assert missing.status_code == 404
        assert missing.headers["set-cookie"].startswith(f"CC-Session={secret}")
        assert missing.headers["content-type"] == "text/plain; charset=utf-8"


def test_a_user_is_created_read_and_replaced_under_its_etag(web: Web) -> None:
    """AC-48."""
    with web.as_user() as admin:
        body = {"password": "test", "enabled": True, "rights": {"canStepTime": True, "canInjectFaults": True}}
        made = admin.post("/API/Users/Alice", json=body)
        assert said(made) == (
            200,
            'User "Alice" created, enabled: true, rights: can inject faults, can modify the simulated time',
        )
        etag = made.headers["etag"]
        assert said(admin.post("/api/users/Alice", json=body)) == (
            400,
            'CloudChamber: user "Alice" already exists\n',
        )
        read = admin.get("/api/users/ALICE")
        assert (read.json(), read.headers["etag"]) == ({"enabled": True, "rights": body["rights"]}, etag)
        update = {"enabled": True, "rights": {"canStepTime": True}}
        first = admin.put("/api/users/alice", json=update, headers={"If-Match": etag})
        assert (first.status_code, first.json()) == (200, {"enabled": True, "rights": {"canStepTime": True}})
        assert int(first.headers["etag"].strip('"')) > int(etag.strip('"'))
        stale = admin.put("/api/users/alice", json=update, headers={"If-Match": etag})
        assert said(stale) == (409, 'CloudChamber: user "alice" has a newer version than expected\n')
        missing = admin.put("/api/users/alice", json=update)
        assert said(missing) == (400, 'CloudChamber: match value "" is not recognized as a valid integer\n')
        named = admin.put("/api/users/alice", json=update, headers={"If-Match": '"abc"'})
        assert said(named) == (400, 'CloudChamber: match value "\\"abc\\"" is not recognized as a valid integer\n')
        broken = admin.put("/api/users/alice", content="{", headers={"If-Match": first.headers["etag"]})
        assert broken.status_code == 400
        listed = {one["name"]: one for one in admin.get("/api/users/").json()["users"]}
        assert listed["Alice"] == {"name": "Alice", "uri": "/api/users/Alice"}
        assert listed["admin"]["protected"] is True


def test_if_match_is_a_whole_number_in_quotation_marks_or_not(web: Web) -> None:
    """5.1: quotation marks are trimmed, then it is a number of 64 bits; everything else is refused."""
    no_numbers = ["*", 'W/"7"', '"7", "8"', '"7 "', "7.0", "0x7", "7_0", '"9223372036854775808"', '"', "", "\xb2"]
    update = {"enabled": True}
    with web.as_user() as admin:
        etag = create(admin, "matched")
        for header in no_numbers:
            wrong = admin.put("/api/users/matched", json=update, headers=[(b"If-Match", header.encode("latin-1"))])
            assert wrong.status_code == 400, header
            assert wrong.text.endswith("is not recognized as a valid integer\n"), header
        for header in ('"-1"', "0", '"9223372036854775807"'):
            assert admin.put("/api/users/matched", json=update, headers={"If-Match": header}).status_code == 409
        for form in ("{}", '"{}"', '"+{}"'):
            header = form.format(etag.strip('"'))
            right = admin.put("/api/users/matched", json=update, headers={"If-Match": header})
            assert right.status_code == 200, header
            etag = right.headers["etag"]


def test_of_two_updates_with_one_etag_one_wins(web: Web) -> None:
    """AC-49."""
    with web.as_user() as admin:
        etag = create(admin, "race")
        for _ in range(5):
            with ThreadPoolExecutor(2) as pool:
                put = [
                    pool.submit(admin.put, "/api/users/race", json={"enabled": True}, headers={"If-Match": etag})
                    for _ in range(2)
                ]
                answers = sorted((one.result() for one in put), key=lambda answer: answer.status_code)
            assert [answer.status_code for answer in answers] == [200, 409]
            etag = answers[0].headers["etag"]


def test_the_protected_account_can_neither_be_deleted_nor_disabled(web: Web) -> None:
    """AC-50; the original let it be disabled."""
    with web.as_user() as admin:
        create(admin, "leaving")
        assert said(admin.delete("/api/users/admin")) == (
            403,
            'CloudChamber: user "admin" is protected and cannot be deleted\n',
        )
        etag = admin.get("/api/users/admin").headers["etag"]
        disabled = admin.put("/api/users/admin", json={"rights": {}}, headers={"If-Match": etag})
        assert said(disabled) == (403, 'CloudChamber: user "admin" is protected and cannot be disabled\n')
        assert said(admin.delete("/api/users/leaving")) == (200, 'User "leaving" deleted.')
        assert said(admin.get("/api/users/leaving")) == (404, 'CloudChamber: user "leaving" not found\n')


def test_nobody_gives_a_right_that_he_does_not_have(web: Web) -> None:
    """AC-51, and the same for creating users and for passwords of others."""
    with web.as_user() as admin:
        etag = create(admin, "strong", *EVERYTHING[1:])
        create(admin, "manager", "canManageAccounts", "canStepTime")
        strong_before = web.raw("/CloudChamber/V0.1/users/strong")
        match = {"If-Match": etag}
        with web.as_user("strong", "test") as strong:
            rights = dict.fromkeys(EVERYTHING, True)
            refused = strong.put("/api/users/strong", json={"enabled": True, "rights": rights}, headers=match)
            assert said(refused) == (403, "CloudChamber: permission denied\n")
            assert web.raw("/CloudChamber/V0.1/users/strong") == strong_before
            fewer = {"enabled": True, "rights": {"canStepTime": True}}
            kept = strong.put("/api/users/strong", json=fewer, headers=match)
            assert (kept.status_code, kept.json()) == (200, fewer)
        with web.as_user("manager", "test") as manager:
            for right, status in (("canStepTime", 200), ("canInjectFaults", 403)):
                body = {"password": "x", "enabled": True, "rights": {right: True}}
                assert manager.post(f"/api/users/{right}", json=body).status_code == status
            etag = manager.get("/api/users/admin").headers["etag"]
            stolen = manager.put(
                "/api/users/admin?password", json={"newPassword": "mine", "force": True}, headers={"If-Match": etag}
            )
            assert stolen.status_code == 403
        assert admin.put("/api/users/admin?op=logout").status_code == 200
    with web.as_user():
        pass


def test_the_password_is_kept_as_a_hash_and_shown_nowhere(web: Web) -> None:
    """AC-52."""
    with web.as_user() as admin:
        create(admin, "secretive", password="a very long secret")
        stored = web.raw("/CloudChamber/V0.1/users/secretive")
        assert stored is not None
        assert b"very" not in stored
        hashed = base64.b64decode(json.loads(stored)["passwordHash"])
        assert (hashed[:2], hashed.split(b"$")[2], len(hashed)) == (b"$2", b"10", 60)
        shown = admin.get("/api/users/secretive").text + admin.get("/api/users").text
        assert [word for word in ("$2", "very", "passwordHash") if word in shown] == []
        assert "very" not in web.server.log


def test_changing_a_password(web: Web) -> None:
    with web.as_user() as admin:
        etag = create(admin, "changing", password="old")
        place = "/api/users/changing?password"
        with web.as_user("changing", "old") as user, web.as_user("changing", "old") as elsewhere:
            wrong = {"oldPassword": "guess", "newPassword": "new"}
            assert user.put(place, json=wrong, headers={"If-Match": etag}).status_code == 403
            right = {"oldPassword": "old", "newPassword": "new"}
            assert user.put(place, json=right).status_code == 400
            assert user.put(place, json=right, headers={"If-Match": '"1"'}).status_code == 409
            done = user.put(place, json=right, headers={"If-Match": etag})
            assert said(done) == (200, 'Password changed for user "changing"')
            assert user.get("/api/users/changing").status_code == 200
            assert elsewhere.get("/api/users/changing").status_code == 403
        forced = {"newPassword": "forced", "force": True}
        assert admin.put(place, json=forced, headers={"If-Match": done.headers["etag"]}).status_code == 200
        for bad in ("", "x" * 73, "a\x00b"):
            etag = admin.get("/api/users/changing").headers["etag"]
            body = {"newPassword": bad, "force": True}
            assert admin.put(place, json=body, headers={"If-Match": etag}).status_code == 400
    with web.as_user("changing", "forced"):
        pass


@pytest.mark.parametrize("end", ["disable", "delete", "make anew"])
def test_a_disabled_or_deleted_user_has_no_session_any_more(web: Web, end: str) -> None:
    name = "ending" + end[:4].strip()
    with web.as_user() as admin:
        etag = create(admin, name)
        with web.as_user(name, "test") as user:
            assert user.get("/api/racks/none/blades").status_code == 200
            if end == "disable":
                assert admin.put(f"/api/users/{name}", json={}, headers={"If-Match": etag}).status_code == 200
            else:
                assert admin.delete(f"/api/users/{name}").status_code == 200
            if end == "make anew":
                create(admin, name)
            for _ in range(2):
                assert said(user.get("/api/racks/none/blades")) == (403, "CloudChamber: no session active\n")
            if end == "disable":
                entered = user.put(f"/api/users/{name}?op=login", content="test")
                assert entered.status_code == 403


def test_what_nobody_may_who_is_not_logged_in(web: Web) -> None:
    denied = (403, "CloudChamber: permission denied\n")
    with web.client() as client:
        assert said(client.get("/api/users")) == denied
        assert said(client.get("/api/users/admin")) == denied
        assert said(client.post("/api/users/eve", json={"password": "x"})) == denied
        assert said(client.delete("/api/users/admin")) == denied
        assert said(client.put("/api/users/admin?password", json={})) == denied
        assert said(client.put("/api/users/admin", json={})) == (400, "http: named cookie not present\n")
        forged = httpx.put(f"{web.server.url}/api/users/admin", json={}, cookies={"CC-Session": "x" * 43})
        assert said(forged) == denied


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/api/users/1a"),
        ("GET", "/api/users/a-b"),
        ("GET", "/api/users/a,b"),
        ("PATCH", "/api/users"),
        ("TRACE", "/api/users"),
        ("LOCK", "/API/none"),
    ],
)
def test_what_is_not_routed_is_not_there(web: Web, method: str, path: str) -> None:
    with web.as_user() as admin:
        assert said(admin.request(method, path)) == (404, "404 page not found\n")


def test_an_unknown_operation_is_named(web: Web) -> None:
    with web.as_user() as admin:
        for query, shown in (("op=other", "other"), ("op", "")):
            assert said(admin.put(f"/api/users/alice?{query}")) == (
                400,
                f'CloudChamber: invalid user operation requested (?op={shown}) for user "alice"\n',
            )


def test_guesses_of_a_password_are_bounded(web: Web) -> None:
    with web.as_user() as admin:
        create(admin, "guessed")
    with web.client() as client:
        statuses = [client.put("/api/users/guessed?op=login", content=f"guess{n}").status_code for n in range(11)]
        assert statuses == [403] * 10 + [429]
        refused = client.put("/api/users/guessed?op=login", content="test")
        assert (refused.status_code, int(refused.headers["retry-after"]) in range(1, 62)) == (429, True)


def test_a_damaged_user_is_named_in_the_list_of_the_others_and_can_be_deleted(web: Web) -> None:
    """The record says neither who it is nor what it may: whoever had a session with it has none."""
    key = b"/CloudChamber/V0.1/users/broken"
    with web.as_user() as admin:
        for name in ("Broken", "sound"):
            create(admin, name)
        with web.as_user("broken", "test") as broken, web.store() as store:
            stored = store.engine.value(key)
            store.engine.commit(Commit((), (Put(key, b'{"passwordHash":"unseen'),)))
            assert said(broken.get("/api/racks/none/blades")) == (403, "CloudChamber: no session active\n")
            entered = broken.put("/api/users/broken?op=login", content="test")
            assert entered.status_code == 403
            assert stored is not None
            found = [(one.kind, one.raw_key) for one in check(store, CloudChamber.bound())]
            assert found == [(FindingKind.DAMAGED_RECORD, key)]
        answer = admin.get("/api/users")
        assert answer.headers["cloudchamber-damaged"] == "1; users/broken"
        listed = {one["name"]: one for one in answer.json()["users"]}
        assert listed["broken"] == {"name": "broken", "uri": "/api/users/broken"}
        assert listed["sound"] == {"name": "sound", "uri": "/api/users/sound"}
        assert list(listed) == sorted(listed, key=str.lower)
        named = (500, f"CloudChamber: stored bytes are damaged: {key.decode()}\n")
        assert said(admin.get("/api/users/broken")) == named
        assert said(admin.put("/api/users/broken", json={}, headers={"If-Match": '"1"'})) == named
        assert said(admin.delete("/api/users/broken")) == (200, 'User "broken" deleted.')
        assert web.raw(key.decode()) is None
        assert "unseen" not in web.server.log


def test_a_manager_sees_the_sessions_and_ends_them(web: Web) -> None:
    with web.as_user() as admin:
        create(admin, "watched")
        with web.as_user("watched", "test") as user:
            assert user.get("/api/simulation/sessions").status_code == 403
            assert set(user.get("/api/simulation").json()) == {"frontEndStartedAt", "inactivityTimeout"}
            listed = admin.get("/api/simulation/sessions").json()["sessions"]
            owners = {admin.get(one["uri"]).json()["userName"]: one["uri"] for one in listed}
            assert admin.delete(owners["watched"]).status_code == 200
            assert user.get("/api/users/watched").status_code == 403
            assert said(admin.get("/api/simulation/sessions/999999")) == (
                404,
                "CloudChamber: session 999999 not found\n",
            )


@pytest.mark.slow
def test_no_more_sessions_than_the_settings_allow(tmp_path: Path) -> None:
    settings = "webServer:\n  systemAccount: Root\n  activeSessionLimit: 1\n"
    with served("memory:", tmp_path, settings=settings) as web, web.as_user("root", "SystemPassword") as root:
        assert root.get("/api/users").json() == {
            "users": [{"name": "Root", "uri": "/api/users/Root", "protected": True}]
        }
        made = root.post("/api/users/ann", content=json.dumps({"enabled": True, "password": "ann's"}))
        assert made.status_code == 200, made.text
        with web.client() as another:
            full = another.put("/api/users/ann?op=login", content="ann's")
            assert said(full) == (400, "CloudChamber: the number of active sessions is at its limit\n")
        with web.client() as again:  # whose oldest session makes room
            assert again.put("/api/users/root?op=login", content="SystemPassword").status_code == 200
            assert root.get("/api/users").status_code == 403


@pytest.mark.slow
def test_the_start_migrates_an_old_account_and_cleans_the_test_name_space(tmp_path: Path) -> None:
    """5.2: a record from before there were rights; PreCleanStore as the document has it."""
    url = f"lmdb:{tmp_path / 'kv'}"
    with keyplan.open(url) as store:
        CloudChamber(store).users.insert("admin", User(name="Admin", enabled=True, can_manage_accounts=True))
        tests = CloudChamber(store, namespace="Test/Standard/")
        tests.users.insert("left", User(name="left"))
    with served(url, tmp_path) as web:
        assert "another password" in web.server.log
        assert "mean nothing" not in web.server.log
        with web.store() as store:
            migrated = CloudChamber(store).users.require("admin")
            revision = store.revision
    assert (migrated.can_manage_accounts, migrated.rights, migrated.name) == (False, ALL, "Admin")
    ignored = "store:\n  test: {useUniqueInstance: 1, preCleanStore: 1}\nwebServer: {systemAccount: admin}\n"
    with served(url, tmp_path, settings=ignored) as web:
        assert "these options mean nothing without UseTestNamespace" in web.server.log
    with keyplan.open(url) as store:
        assert store.revision == revision  # D15: production is never cleaned
    test_settings = "store:\n  test: {useTestNamespace: 1, preCleanStore: 1}\nwebServer: {systemAccount: admin}\n"
    with served(url, tmp_path, settings=test_settings) as web, web.as_user("admin", "SystemPassword"):
        pass
    with keyplan.open(url) as store:
        assert list(CloudChamber(store, namespace="Test/Standard/").users.keys()) == ["admin"]
        assert CloudChamber(store).users.require("admin") == migrated
        assert store.revision == revision + 2
    with served(url, tmp_path, settings=test_settings.replace("preCleanStore: 1", "preCleanStore: 0")):
        pass
    with keyplan.open(url) as store:
        assert store.revision == revision + 2


ALL = Rights(
    can_manage_accounts=True,
    can_step_time=True,
    can_modify_workloads=True,
    can_modify_inventory=True,
    can_inject_faults=True,
    can_perform_repairs=True,
)
