"""CloudChamber behind an access file: accounts log in as ever, principals may what they are granted, nobody gets further."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import httpx
import pytest
from prometheus_client import CollectorRegistry

import keyplan
from keyplan.apps.cloudchamber import CloudChamber, CloudChamberIndexed, Rack, begin_indexes
from keyplan.apps.cloudchamber.service import build
from keyplan.engine import ALL_KEYS, Commit, Engine, Outside, Put
from keyplan.errors import InvalidInputError, KeyplanError
from keyplan.server import Access, Closing, PolicyAccess, ServiceContext, Stores, Workers
from keyplan.server.peers import User, set_peer
from keyplan.store import IndexStage, IndexState, Store, index_state_key, index_state_value
from keyplan.testing.engine_suite import eventually
from tests.apps.cloudchamber.site import Site, site_of
from tests.apps.cloudchamber.web import SETTINGS

TOKENS: Final = {name: f"the-token-of-{name}-0123456789abcdef" for name in ("ada", "robot", "admin", "nothing")}
ROOT: Final = "/CloudChamber/V0.1/"
TEST_SETTINGS: Final = SETTINGS + "store:\n  test:\n    useTestNamespace: true\n    preCleanStore: true\n"

Act = Callable[[Site], Awaitable[Any]]


def principal(name: str, **grants: list[str]) -> str:
    digest = sha256(TOKENS[name].encode()).hexdigest()
    lines = "".join(f"{act} = {on}\n" for act, on in grants.items())
    return f'[principals.{name}]\ntokens = ["sha256:{digest}"]\n{lines}\n'


EVERY_ACT: Final = {act: ["everything"] for act in ("read", "write", "administer", "audit")}
POLICY: Final = "".join(
    (
        principal("ada", **EVERY_ACT),
        principal(
            "robot",
            read=["operation:getWorkloads", "operation:getLogs", "operation:getWatch"],
            write=["operation:postWorkloadsName", "operation:putRacksRackBladesNumberActual"],
        ),
        principal("admin", read=["operation:getUsers"]),
        principal("nothing") + 'users = ["somebody"]\n',
    )
)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with served(tmp_path) as found:
        yield found


def served_access(folder: Path) -> PolicyAccess:
    file = folder / "access.toml"
    file.write_text(POLICY)
    file.chmod(0o600)
    return PolicyAccess.of_file(file)


def served(folder: Path, settings: str = SETTINGS) -> Any:
    return site_of("memory:", folder, settings, access=served_access(folder))


async def ask(site: Site, name: str, method: str, path: str, **options: Any) -> httpx.Response:
    client = site.client()
    return await client.request(method, path, headers={"Authorization": f"Bearer {TOKENS[name]}"}, **options)


def said(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.text.strip()


# ---- who asks ------------------------------------------------------------------------------------------------------------


def test_accounts_log_in_and_do_what_their_rights_say_whatever_the_file_grants(site: Site) -> None:
    async def act(site: Site) -> None:
        admin = await site.logged_in()
        body = {"password": "test", "enabled": True, "rights": {"canModifyWorkloads": True}}
        assert (await admin.post("/api/users/alice", json=body)).status_code == 200
        alice = await site.logged_in("alice", "test")
        assert (await alice.get("/api/workloads")).status_code == 200
        assert (await alice.get("/api/users")).status_code == 403
        # Why also as a principal without grants: a user of a unix socket cannot leave out who they are.
        alice.headers["Authorization"] = f"Bearer {TOKENS['nothing']}"
        assert (await alice.get("/api/workloads")).status_code == 200
        assert (await alice.get("/api/users")).status_code == 403
        assert said(await site.client().get("/api/workloads")) == (403, "CloudChamber: no session active")

    site.run(act)


def test_a_principal_without_a_session_may_what_is_granted_and_no_more(site: Site) -> None:
    async def act(site: Site) -> None:
        assert (await ask(site, "robot", "GET", "/api/workloads")).status_code == 200
        assert (await ask(site, "ada", "GET", "/api/workloads")).status_code == 200
        for name, path in (("robot", "/api/racks"), ("nothing", "/api/workloads"), ("admin", "/api/workloads")):
            status, text = said(await ask(site, name, "GET", path))
            assert (status, text.startswith("CloudChamber: no grant allows this")) == (403, True), text
        log = (await ask(site, "robot", "GET", "/api/logs?from=-1&for=9")).json()
        assert {entry["entry"]["event"][0]["text"] for entry in log["entries"]} == {"answered 200", "http error 403"}
        body = {"cores": 1, "memoryInMb": 1}
        created = await ask(site, "robot", "POST", "/api/workloads/w1", json=body)
        assert created.status_code != 403, created.text
        assert (await ask(site, "robot", "DELETE", "/api/workloads/w1")).status_code == 403
        where = "/api/racks/ada/blades/1/actual"
        assert (await ask(site, "robot", "PUT", where, json={"smState": "working"})).status_code == 404, "let in"
        assert (await ask(site, "robot", "DELETE", where)).status_code == 403

    site.run(act)


def test_a_principal_is_no_account_though_one_has_its_name(site: Site) -> None:
    """The system account is `admin`, and there is a principal of that name."""

    async def act(site: Site) -> None:
        denied = (403, "CloudChamber: permission denied")
        assert said(await ask(site, "admin", "GET", "/api/users")) == denied
        body = {"password": "test", "enabled": True}
        for name in ("ada", "admin"):
            assert (await ask(site, name, "POST", "/api/users/mallory", json=body)).status_code == 403
            assert (await ask(site, name, "GET", "/api/users/admin")).status_code == 403
            assert (await ask(site, name, "DELETE", "/api/users/admin")).status_code == 403
            password = {"oldPassword": "", "newPassword": "stolen", "force": True}
            changed = await ask(site, name, "PUT", "/api/users/admin?password", json=password)
            assert changed.status_code in {400, 403}
        assert [user.key for user in CloudChamber(site.store).users.rows()] == ["admin"]
        # What anybody may, a principal may: to log in.
        entered = await ask(site, "nothing", "PUT", "/api/users/admin?op=login", content="adminPassword")
        assert entered.status_code == 200

    site.run(act)


def test_a_principal_waits_as_itself(site: Site) -> None:
    async def act(site: Site) -> None:
        CloudChamber(site.store).racks.insert("r1", Rack())
        told = await ask(site, "robot", "GET", "/api/watch?tick=-1")
        assert told.status_code == 200
        revision = site.store.revision
        CloudChamber(site.store).racks.insert("r2", Rack())
        changes = (await ask(site, "robot", "GET", f"/api/watch?revision={revision}")).json()["changes"]
        assert [change["key"] for change in changes] == ["racks/r2"]

    site.run(act)


@pytest.mark.parametrize("path", ["/api/watch?revision=0", "/api/watch?tick=1000&epoch=1", "/api/logs?from=-1&for=9"])
def test_who_waits_is_told_nothing_once_their_grant_has_gone(
    tmp_path: Path, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[PolicyAccess] = []
    allows = PolicyAccess.allows

    def noted(access: PolicyAccess, *asked: Any) -> bool:
        looked.append(access)
        return allows(access, *asked)

    async def act(site: Site) -> None:
        waiting = asyncio.create_task(ask(site, "robot", "GET", path))
        await asyncio.to_thread(eventually, lambda: looked)
        (tmp_path / "access.toml").write_text(principal("robot"))
        # A server looks at its file once in a second.
        await asyncio.to_thread(eventually, lambda: looked[0].policy.named("ada") is None)
        CloudChamber(site.store).racks.insert("r1", Rack())
        assert (await site.client().get("/api/racks")).status_code == 403
        # Whoever looks first ends it: the server, which does so once in a second, or who waits for the change.
        status, text = said(await waiting)
        assert status in {401, 403}, text

    monkeypatch.setattr(PolicyAccess, "allows", noted)
    with served(tmp_path) as site:
        site.run(act)


def test_a_user_of_the_machine_is_a_principal_and_may_still_log_in(site: Site) -> None:
    class Peer:
        user, certificate = User(1001, "somebody"), None

    async def act(site: Site) -> None:
        async def marked(scope: Any, receive: Any, send: Any) -> None:
            set_peer(scope, Peer())  # type: ignore[arg-type]
            await site.application.asgi(scope, receive, send)

        transport = httpx.ASGITransport(marked, client=("127.0.0.1", 50_000))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            assert (await client.get("/api/workloads")).status_code == 403
            entered = await client.put("/api/users/admin?op=login", content="adminPassword")
            assert entered.status_code == 200
            assert (await client.get("/api/workloads")).status_code == 200

    site.run(act)


# ---- what the service reaches --------------------------------------------------------------------------------------------

OTHERS: Final = ("/CloudChambers", "/CloudChamber/V0.2/users/x", "\x00kp", "orders", f"{ROOT}Test/Other/users/eve")


def put(store: Store, *keys: str) -> None:
    store.engine.commit(Commit((), tuple(Put(key.encode(), b"{}") for key in keys)))


def kept(store: Store, *keys: str) -> bool:
    return all(store.engine.value(key.encode()) == b"{}" for key in keys)


OWN: Final = ServiceContext.own


def engine_of(site: Site, folder: Path) -> Engine:
    """Return what another such service reads and writes of the same store."""
    held: list[Engine] = []

    def noted(context: ServiceContext, *places: Any, outside: Outside = Outside.REFUSED) -> Engine:
        held.append(OWN(context, *places, outside=outside))
        return held[-1]

    stores, settings, parts = (
        Stores(site.store.engine, Access()),
        {"config": str(folder)},
        (Access(), Closing(), Workers()),
    )
    with patch.object(ServiceContext, "own", noted):
        build(ServiceContext("cloudchamber", stores, settings, *parts, CollectorRegistry()))
    looking, engine = held
    # The one that only looks which layout the store holds may write nothing.
    with pytest.raises(KeyplanError):
        looking.commit(Commit((), (Put(f"{ROOT}users/x".encode(), b""),)))
    return engine


def test_production_is_its_name_space_without_its_tests(tmp_path: Path, site: Site) -> None:
    put(site.store, *OTHERS, f"{ROOT}users/alice", f"{ROOT}Testing/x")
    engine = engine_of(site, tmp_path)
    with engine.snapshot() as state:
        found = {key.decode() for key in state.keys(ALL_KEYS)}
    assert found == {f"{ROOT}users/alice", f"{ROOT}Testing/x"}


def test_a_test_is_its_own_name_space_and_is_cleaned_alone(tmp_path: Path) -> None:
    with served(tmp_path, TEST_SETTINGS) as site:
        own = (f"{ROOT}Test/Standard", f"{ROOT}Test/Standard/users/old")
        others = (*OTHERS, f"{ROOT}Test/StandardX/users/x", f"{ROOT}Test/Standard0", f"{ROOT}users/alice")
        put(site.store, *own, *others)
        engine = engine_of(site, tmp_path)
        with engine.snapshot() as state:
            assert {key.decode() for key in state.keys(ALL_KEYS)} == set(own)

        async def act(site: Site) -> None:
            admin = await site.logged_in()
            assert (await admin.get("/api/users")).status_code == 200

        site.run(act)
        assert kept(site.store, *others)
        assert not any(site.store.engine.value(key.encode()) for key in own)


def test_indexes_of_the_name_space_are_read_with_their_states(tmp_path: Path) -> None:
    url = f"lmdb:{tmp_path}/chamber.kv?durability=none"
    with keyplan.open(url) as store:
        assert begin_indexes(store) == ()

    async def act(site: Site) -> None:
        admin = await site.logged_in()
        found = (await admin.get("/api/users?right=canManageAccounts")).json()
        assert [user["name"] for user in found["users"]] == ["admin"]
        assert (await admin.get("/api/blades?arch=X64")).status_code == 200
        bound = CloudChamberIndexed.bound()
        state = IndexState(IndexStage.BUILDING)
        written = Put(index_state_key(bound.indexes["users_by_right"]), index_state_value(state))
        site.store.engine.commit(Commit((), (written,)))
        assert (await admin.get("/api/users?right=canManageAccounts")).status_code != 200

    with site_of(url, tmp_path) as site:
        site.run(act)


# ---- the password that everybody can read ----------------------------------------------------------------------------------

DOCUMENTED: Final = "webServer:\n  systemAccount: admin\n"


async def nothing(_site: Site) -> None:
    pass


def test_a_server_that_others_may_ask_does_not_begin_with_the_password_of_the_documents(tmp_path: Path) -> None:
    with (
        served(tmp_path, DOCUMENTED) as site,
        pytest.raises(InvalidInputError, match=r"set webServer\.systemAccountPassword"),
    ):
        site.run(nothing)
    with served(tmp_path) as site:
        site.run(nothing)  # Why: whoever follows the remedy is let in.


def test_an_account_that_has_that_password_is_to_get_another_one_first(tmp_path: Path) -> None:
    url = f"lmdb:{tmp_path / 'kv'}"
    with site_of(url, tmp_path, DOCUMENTED) as alone:
        alone.run(nothing)
    access = served_access(tmp_path)
    with (
        site_of(url, tmp_path, SETTINGS, access=access) as site,
        pytest.raises(InvalidInputError, match=r"admin\?password"),
    ):
        site.run(nothing)

    async def change(site: Site) -> None:
        admin = await site.logged_in("admin", "SystemPassword")
        body = {"oldPassword": "SystemPassword", "newPassword": "of this site"}
        answer = await admin.put("/api/users/admin?password", json=body, headers={"If-Match": "1"})
        assert answer.status_code == 200, answer.text

    with site_of(url, tmp_path, DOCUMENTED) as alone:
        alone.run(change)
    with site_of(url, tmp_path, SETTINGS, access=access) as site:
        site.run(nothing)
