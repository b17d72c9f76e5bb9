"""With an access file: who is known by what, what each operation needs, and services that cannot confine their callers."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from keyplan.access import LOOK_SECONDS, Grant, OnKeySpace, Principal, TokenSum, sum_of_token
from keyplan.engine import Commit, Engine, Put
from keyplan.keyspace import KeySpace, KeySpaces
from keyplan.operations import Act
from keyplan.server import Application, JsonAnswer, PolicyAccess, Service, ServiceContext, caller_of, service_builders
from keyplan.server.keyspaces import routes as registry_routes
from keyplan.server.peers import Certificate, User, set_peer
from tests.server.conftest import ManualClock

NAMES = ("ada", "shop", "bank", "auditor", "reader", "nothing")
TOKENS = {name: f"the-token-of-{name}-0123456789abcdef" for name in NAMES}
EVERYTHING = '["everything"]'


def sums(name: str) -> str:
    return f'["sha256:{sha256(TOKENS[name].encode()).hexdigest()}"]'


POLICY = f"""\
[principals.ada]
tokens = {sums("ada")}
read = {EVERYTHING}
write = {EVERYTHING}
administer = {EVERYTHING}
audit = {EVERYTHING}

[principals.shop]
tokens = {sums("shop")}
certificates = ["subject:CN=shop", "DNS:shop.example"]
users = ["shop"]
read = ["application:shop"]
administer = ["application:shop"]

[principals.bank]
tokens = {sums("bank")}
read = ["keyspace:ledger"]

[principals.auditor]
tokens = {sums("auditor")}
audit = {EVERYTHING}

[principals.reader]
tokens = {sums("reader")}
read = {EVERYTHING}

[principals.nothing]
tokens = {sums("nothing")}
"""


class Peer:
    """The other end of a connection, as a test says it is."""

    def __init__(self, user: User | None = None, certificate: Certificate | None = None) -> None:
        self.user = user
        self.certificate = certificate


KEPT: dict[str, tuple[Principal, ...]] = {}
"""What the service `keeper` keeps: of a test, and nobody in the others."""


@pytest.fixture(autouse=True)
def nobody_kept() -> None:
    KEPT["now"] = ()


@dataclass
class Served:
    """A server in the test's own process; its access file may be rewritten."""

    application: Application
    runner: asyncio.Runner
    file: Path
    clock: ManualClock

    def ask(self, name: str | None, method: str, path: str, peer: Peer | None = None, **options: Any) -> httpx.Response:
        async def told(scope: Scope, receive: Receive, send: Send) -> None:
            if peer is not None:
                set_peer(scope, peer)  # type: ignore[arg-type]
            await self.application.asgi(scope, receive, send)

        async def asked() -> httpx.Response:
            transport = httpx.ASGITransport(told, client=("127.0.0.1", 50_000))
            own = {"Authorization": f"Bearer {TOKENS[name]}"} if name else {}
            headers = {**own, **options.pop("headers", {})}
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
                return await client.request(method, path, headers=headers, **options)

        return self.runner.run(asked())

    def status(self, name: str | None, method: str, path: str, **options: Any) -> int:
        return self.ask(name, method, path, **options).status_code

    def write(self, text: str) -> None:
        self.file.write_text(text)
        self.file.chmod(0o600)
        self.clock.seconds += LOOK_SECONDS


def a_service(name: str, **facts: Any) -> Callable[[ServiceContext], Service]:
    async def who(request: Request) -> Response:
        caller = caller_of(request)
        principal = caller.principal if caller else None
        return JsonAnswer({"role": caller.role if caller else None, "principal": principal.name if principal else None})

    return lambda _context: Service(name, [Route(f"/{name}", who)], **facts)


@pytest.fixture
def served(engine: Engine, clock: ManualClock, tmp_path: Path) -> Iterator[Served]:
    file = tmp_path / "access.toml"
    file.write_text(POLICY)
    file.chmod(0o600)
    registry = KeySpaces(engine)
    registry.init()
    registry.configure({"keyspace-api-enabled": True})
    for name, application in (("orders", "shop"), ("carts", "shop"), ("ledger", "bank"), ("vault", "bank")):
        registry.create(name, application)
    builders = {
        "confined": a_service("confined", is_confined=True),
        "whole": a_service("whole"),
        "own": a_service("own", has_own_access=True),
        "keeper": a_service("keeper", is_confined=True, principals=lambda: KEPT["now"]),
        **service_builders(("etcd-v3",)),
    }
    access = PolicyAccess.of_file(file, clock=clock)
    built = Application.build(engine, builders, access=access, settings={"keyspaces.sweep": "off"}, clock=clock)
    with asyncio.Runner() as runner:
        running = built.running()
        runner.run(running.__aenter__())
        yield Served(built, runner, file, clock)
        runner.run(running.__aexit__(None, None, None))


def denied(answer: httpx.Response) -> tuple[str, str, str]:
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (403, "access_denied")
    return error["detail"]["who"], error["detail"]["act"], error["detail"]["where"]


# ---- who asks --------------------------------------------------------------------------------------------------------


def test_a_token_is_its_principals_and_who_administers_everything_is_an_administrator(served: Served) -> None:
    assert served.ask("shop", "GET", "/confined").json() == {"role": "client", "principal": "shop"}
    assert served.ask("ada", "GET", "/confined").json() == {"role": "admin", "principal": "ada"}
    assert served.ask("auditor", "GET", "/confined").json() == {"role": "client", "principal": "auditor"}


def test_being_on_this_machine_opens_nothing(served: Served) -> None:
    assert served.status(None, "GET", "/confined") == 401
    assert served.status(None, "GET", "/keyspaces") == 401
    assert served.status(None, "GET", "/health") == 200


def test_without_a_token_the_connection_tells_who_asks(served: Served) -> None:
    for peer in (
        Peer(user=User(1001, "shop")),
        Peer(certificate=Certificate("CN=shop", ())),
        Peer(certificate=Certificate("CN=other", ("DNS:shop.example",))),
    ):
        assert served.ask(None, "GET", "/confined", peer).json()["principal"] == "shop"


@pytest.mark.parametrize(
    ("peer", "headers"),
    [
        (Peer(user=User(1001, "other")), {}),
        (Peer(user=User(1001, None)), {}),
        (Peer(certificate=Certificate("CN=other", ())), {}),
        (Peer(user=User(1001, "shop"), certificate=Certificate("CN=other", ())), {}),
        (Peer(user=User(1001, "shop")), {"X-Forwarded-For": "203.0.113.9"}),
        (Peer(certificate=Certificate("CN=shop", ())), {"Via": "1.1 proxy"}),
        (Peer(user=User(1001, "shop")), {"Authorization": "Bearer wrong-0123456789abcdef0123456789"}),
        (Peer(user=User(1001, "shop")), {"Authorization": "Digest whatever"}),
    ],
)
def test_whom_the_file_does_not_know_is_nobody_and_a_wrong_token_hides_the_rest(
    served: Served, peer: Peer, headers: dict[str, str]
) -> None:
    assert served.status(None, "GET", "/confined", peer=peer, headers=headers) == 401


@pytest.mark.parametrize("peer", [Peer(user=User(1, "shop")), Peer(certificate=Certificate("CN=shop", ()))])
def test_a_page_of_another_site_cannot_use_what_a_browser_has(served: Served, peer: Peer) -> None:
    answer = served.ask(None, "GET", "/confined", peer, headers={"Origin": "https://evil.example"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "cross_site")


def test_a_change_of_the_file_counts_after_a_moment(served: Served) -> None:
    assert served.status("shop", "GET", "/keyspaces/orders") == 200
    served.write(POLICY.replace('read = ["application:shop"]', ""))
    assert served.status("shop", "GET", "/keyspaces/orders") == 403
    served.write(POLICY.replace(sums("shop"), "[]"))
    assert served.status("shop", "GET", "/keyspaces/orders") == 401


def kept(name: str, token: str, *grants: Grant) -> Principal:
    return Principal(name=name, tokens=(TokenSum(sum_of_token(token)),), grants=grants)


def test_principals_that_a_service_keeps_count_beside_those_of_the_file(served: Served) -> None:
    token = "the-token-of-a-cluster-0123456789abcdef"
    headers = {"Authorization": f"Bearer {token}"}
    assert served.status(None, "GET", "/confined", headers=headers) == 401
    reads = Grant(Act.READ, OnKeySpace("orders"), 0)
    KEPT["now"] = (kept("cluster:f1", token, reads), kept("cluster:f2", TOKENS["ada"], reads))
    told = {"role": "client", "principal": "cluster:f1"}
    assert served.ask(None, "GET", "/confined", headers=headers).json() == told
    assert served.status(None, "GET", "/keyspaces/orders", headers=headers) == 200
    assert served.status(None, "GET", "/keyspaces/ledger", headers=headers) == 403
    assert served.status(None, "GET", "/whole", headers=headers) == 403
    assert served.ask("ada", "GET", "/confined").json()["principal"] == "ada", "the file comes first"
    served.write(POLICY.replace(sums("shop"), "[]"))
    assert served.status("shop", "GET", "/confined") == 401
    assert served.ask(None, "GET", "/confined", headers=headers).json() == told
    KEPT["now"] = ()
    assert served.status(None, "GET", "/confined", headers=headers) == 401


def test_a_change_that_is_not_sound_opens_nothing_and_is_logged_once(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    opened = POLICY.replace('read = ["keyspace:ledger"]', 'read = ["everything"]')
    for _ in range(3):
        served.write(opened + "oops")
        assert served.status("bank", "GET", "/keyspaces/vault") == 403
        assert served.status("bank", "GET", "/keyspaces/ledger") == 200
    (record,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert f"{served.file}:{opened.count(chr(10)) + 1}" in record.facts["error"]  # type: ignore[attr-defined]


# ---- what operations need --------------------------------------------------------------------------------------------


READS = ("", "/history", "/usage", "/quota")


@pytest.mark.parametrize("path", READS)
def test_a_key_space_is_read_by_whom_it_or_its_application_is_granted_to(served: Served, path: str) -> None:
    assert served.status("shop", "GET", f"/keyspaces/orders{path}") == 200
    assert served.status("bank", "GET", f"/keyspaces/ledger{path}") == 200
    assert served.status("ada", "GET", f"/keyspaces/vault{path}") == 200
    assert denied(served.ask("bank", "GET", f"/keyspaces/vault{path}")) == ("bank", "read", "keyspace:vault")
    assert denied(served.ask("shop", "GET", f"/keyspaces/ledger{path}")) == ("shop", "read", "keyspace:ledger")
    assert denied(served.ask("nothing", "GET", f"/keyspaces/orders{path}")) == ("nothing", "read", "keyspace:orders")


@pytest.mark.parametrize("path", READS)
def test_a_refusal_does_not_tell_what_there_is(served: Served, path: str) -> None:
    there, missing = (served.ask("shop", "GET", f"/keyspaces/{name}{path}") for name in ("vault", "vanished"))
    assert there.json() == {
        **missing.json(),
        "error": {**missing.json()["error"], "detail": there.json()["error"]["detail"]},
    }
    assert served.status("ada", "GET", f"/keyspaces/vanished{path}") == 404


CHANGES: list[tuple[str, str, Any]] = [
    ("PUT", "", {"description": "mine"}),
    ("POST", ":disable", None),
    ("POST", ":enable", None),
    ("PUT", "/quota", {"keys": 5, "bytes": None}),
    ("DELETE", "", None),
    ("POST", ":undelete", None),
    ("POST", ":sweep", None),
]


@pytest.mark.parametrize(("method", "path", "body"), CHANGES)
def test_a_key_space_is_changed_by_whoever_administers_it_alone(
    served: Served, engine: Engine, method: str, path: str, body: Any
) -> None:
    for name, target in (("bank", "ledger"), ("shop", "vault"), ("reader", "orders"), ("auditor", "orders")):
        before = KeySpaces(engine).get(target)
        answer = served.ask(name, method, f"/keyspaces/{target}{path}", json=body)
        assert denied(answer) == (name, "administer", f"keyspace:{target}")
        assert KeySpaces(engine).get(target) == before


def test_whom_an_application_is_granted_administers_its_key_spaces(served: Served) -> None:
    for method, path, body in CHANGES:
        assert served.status("shop", method, f"/keyspaces/orders{path}", json=body) in {200, 202}, path


def test_a_caller_is_refused_before_the_body_is_read(served: Served) -> None:
    answer = served.ask("bank", "PUT", "/keyspaces/vault", content=b"no json", headers={"Content-Type": "text/plain"})
    assert denied(answer) == ("bank", "administer", "keyspace:vault")


def test_a_key_space_is_made_for_an_application_that_is_granted(served: Served, engine: Engine) -> None:
    assert served.status("shop", "POST", "/keyspaces", json={"name": "wishes", "application": "shop"}) == 201
    answer = served.ask("shop", "POST", "/keyspaces", json={"name": "loans", "application": "bank"})
    assert denied(answer) == ("shop", "administer", "application:bank")
    assert [one.name for one in KeySpaces(engine).all()] == ["orders", "carts", "ledger", "vault", "wishes"]


def test_who_makes_a_key_space_takes_no_prefix_but_one_that_is_granted(served: Served) -> None:
    given = {"name": "taken", "application": "shop", "prefix": "2f"}
    assert denied(served.ask("shop", "POST", "/keyspaces", json=given)) == ("shop", "administer", "prefix:/")
    served.write(POLICY.replace('administer = ["application:shop"]', 'administer = ["application:shop", "prefix:/"]'))
    assert served.status("shop", "POST", "/keyspaces", json=given) == 201


def test_who_makes_a_key_space_takes_no_data_that_is_there(served: Served, engine: Engine) -> None:
    served.write(POLICY.replace('administer = ["application:shop"]', 'administer = ["application:shop", "prefix:/"]'))
    engine.commit(Commit((), (Put(b"/others/a", b""),)))
    given = {"name": "taken", "application": "shop", "prefix": b"/others/".hex(), "allow_legacy_prefix": True}
    answer = served.ask("shop", "POST", "/keyspaces", json={**given, "adopt_existing_data": True})
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "forbidden")


def test_a_list_shows_what_may_be_read(served: Served) -> None:
    def shown(name: str, query: str = "") -> list[str]:
        return [one["name"] for one in served.ask(name, "GET", f"/keyspaces{query}").json()["keyspaces"]]

    assert shown("shop") == ["orders", "carts"]
    assert shown("bank") == ["ledger"]
    assert shown("bank", "?name=vault") == []
    assert shown("nothing") == []
    assert shown("reader") == ["orders", "carts", "ledger", "vault"]


def test_the_history_of_a_name_shows_those_of_ones_own_applications(served: Served, engine: Engine) -> None:
    registry = KeySpaces(engine)
    registry.delete("ledger")
    registry.sweep("ledger")
    registry.create("ledger", "shop")

    def owners(name: str) -> list[str]:
        answer = served.ask(name, "GET", "/keyspaces/ledger/history").json()
        return [one["application"] for one in answer["keyspaces"]]

    assert owners("shop") == []
    assert owners("bank") == ["bank"], "the grant is on the name"
    assert owners("reader") == ["bank"]


def test_what_concerns_no_key_space_alone_is_granted_by_operation(served: Served) -> None:
    assert served.status("auditor", "GET", "/audit") == 200
    assert served.status("auditor", "POST", "/audit:verify") == 200
    assert served.status("reader", "GET", "/metrics") == 200
    assert served.status("reader", "GET", "/openapi.json") == 200
    assert denied(served.ask("auditor", "GET", "/config")) == ("auditor", "read", "operation:getRegistryConfiguration")
    assert denied(served.ask("shop", "GET", "/audit")) == ("shop", "audit", "operation:getAudit")
    assert denied(served.ask("shop", "GET", "/metrics")) == ("shop", "read", "operation:getMetrics")
    served.write(POLICY + 'administer = ["operation:changeRegistryConfiguration"]\n')
    assert served.status("nothing", "PATCH", "/config", json={"self-registration-enabled": False}) == 200
    assert served.status("nothing", "GET", "/config") == 403


def test_a_grant_does_not_follow_a_name_to_another_key_space(
    served: Served, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = KeySpaces(engine)
    found = registry_routes._found

    def found_and_made_anew(of: KeySpaces, name: str) -> KeySpace | None:
        seen = found(of, name)
        registry.delete(name)
        registry.sweep(name)
        registry.create(name, "bank")
        return seen

    monkeypatch.setattr(registry_routes, "_found", found_and_made_anew)
    answer = served.ask("shop", "DELETE", "/keyspaces/orders")
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "generation_mismatch")
    assert registry.get("orders").application == "bank"
    assert registry.get("orders").state == "ENABLED"


# ---- services that cannot confine their callers ------------------------------------------------------------------------


def test_a_service_that_cannot_confine_is_for_those_who_may_read_and_write_everything(served: Served) -> None:
    assert served.ask("ada", "GET", "/whole").json()["principal"] == "ada"
    assert denied(served.ask("reader", "GET", "/whole")) == ("reader", "write", "everything")
    for name in ("shop", "bank", "auditor", "nothing"):
        assert denied(served.ask(name, "GET", "/whole")) == (name, "read", "everything")
    assert served.status(None, "GET", "/whole") == 401


def test_a_log_in_of_its_own_lets_nobody_around_the_file(served: Served) -> None:
    assert served.ask(None, "GET", "/own").json() == {"role": None, "principal": None}  # the service's to refuse
    assert denied(served.ask("shop", "GET", "/own")) == ("shop", "read", "everything")
    assert served.status("ada", "GET", "/own") == 200


def test_a_token_of_an_etcd_client_is_a_principals(served: Served) -> None:
    def ranged(authorization: str) -> httpx.Response:
        headers = {"Authorization": authorization} if authorization else {}
        return served.ask(None, "POST", "/v3/kv/range", json={"key": "YQ=="}, headers=headers)

    given = {"name": "any", "password": TOKENS["shop"]}
    assert served.ask(None, "POST", "/v3/auth/authenticate", json=given).json()["token"] == TOKENS["shop"]
    assert ranged(TOKENS["shop"]).json()["message"] == "etcdserver: permission denied"
    assert ranged("").status_code == 400
    assert ranged("wrong-0123456789abcdef0123456789ab").status_code == 401
    assert ranged(TOKENS["ada"]).status_code not in {400, 401, 403}
