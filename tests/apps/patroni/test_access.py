"""The broker with an access file: each operation for whom it is granted to; and what of a store is the broker's own."""

import asyncio
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from keyplan.apps.patroni import Broker, InstanceState
from keyplan.apps.patroni.admin_routes import Administration
from keyplan.apps.patroni.cluster_login import new_store_credentials
from keyplan.apps.patroni.osb_routes import ServiceBroker
from keyplan.apps.patroni.service import build
from keyplan.engine import Commit, MemoryEngine, Put
from keyplan.errors import AccessDeniedError, InvalidInputError
from keyplan.operations import operations_of
from keyplan.server import Access, Application, PolicyAccess, Service, ServiceContext, layout_areas
from keyplan.store import Store
from tests.apps.patroni.osb_platform import SERVICE, SOLO

TOKENS: Final = {name: f"the-token-of-{name}-0123456789abcdef" for name in ("ada", "platform", "viewer", "nothing")}
DECLARED: Final = [one for kind in (ServiceBroker, Administration) for one in operations_of(kind).values()]
VERSION: Final = {"X-Broker-API-Version": "2.17"}
BODY: Final = {"service_id": SERVICE, "plan_id": SOLO, "organization_guid": "org", "space_guid": "space"}


def principal(name: str, **grants: list[str]) -> str:
    digest = sha256(TOKENS[name].encode()).hexdigest()
    lines = "".join(f"{act} = {on}\n" for act, on in grants.items())
    return f'[principals.{name}]\ntokens = ["sha256:{digest}"]\n{lines}\n'


POLICY: Final = "".join(
    (
        principal("ada", **{act: ["everything"] for act in ("read", "write", "administer", "audit")}),
        principal(
            "platform",
            read=["operation:getCatalog", "operation:getLastOperation"],
            write=["operation:provision", "operation:deprovision"],
        ),
        principal("viewer", read=["everything"]),
        principal("nothing"),
    )
)


class Served:
    """A broker in this process, and requests to it, each as somebody."""

    def __init__(self, application: Application, runner: asyncio.Runner, engine: MemoryEngine) -> None:
        self.application = application
        self.engine = engine
        self._runner = runner

    def ask(self, name: str | None, method: str, path: str, **options: Any) -> httpx.Response:
        async def asked() -> httpx.Response:
            transport = httpx.ASGITransport(self.application.asgi, client=("127.0.0.1", 50_000))
            auth = ("platform", TOKENS[name]) if name else None
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", auth=auth) as client:
                return await client.request(method, path, headers=VERSION, **options)

        return self._runner.run(asked())


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Served]:
    file = tmp_path / "access.toml"
    file.write_text(POLICY)
    file.chmod(0o600)
    engine = MemoryEngine()
    application = Application.build(engine, {"patroni-broker": build}, access=PolicyAccess.of_file(file))
    with asyncio.Runner() as runner:
        running = application.running()
        runner.run(running.__aenter__())
        yield Served(application, runner, engine)
        runner.run(running.__aexit__(None, None, None))


def filled(path: str) -> str:
    return path.format(instance="i", binding="b", cell="c", space="s", name="n")


@pytest.mark.parametrize("name", ["platform", "viewer", "nothing"])
def test_each_operation_is_for_whom_it_is_granted_to(broker: Served, name: str) -> None:
    granted = {
        "platform": {"getCatalog", "getLastOperation", "provision", "deprovision"},
        "viewer": {one.name for one in DECLARED if one.needs.act == "read"},
        "nothing": set(),
    }[name]
    before = broker.engine.snapshot().revision
    for one in DECLARED:
        answer = broker.ask(name, one.method, filled(one.path), json={} if one.method in {"PUT", "PATCH"} else None)
        if one.name in granted:
            assert answer.status_code not in {401, 403}, one.name
        else:
            assert answer.status_code == 403, one.name
            assert answer.json()["description"].startswith("no grant allows this"), one.name
    assert broker.engine.snapshot().revision == before


def test_who_is_not_known_is_asked_to_log_in(broker: Served) -> None:
    for one in DECLARED:
        answer = broker.ask(None, one.method, filled(one.path))
        assert answer.status_code == 401, one.name
        assert answer.headers["WWW-Authenticate"].startswith("Basic ")


def test_a_platform_makes_instances_with_what_it_is_granted_and_reads_no_more(broker: Served) -> None:
    path = "/v2/service_instances/mine"
    begun = broker.ask("platform", "PUT", f"{path}?accepts_incomplete=true", json=BODY)
    # Why refused: there are no cells. It was let in, and the broker's own words say so.
    assert (begun.status_code, "cell" in begun.json()["description"]) == (400, True)
    assert broker.ask("platform", "GET", path).status_code == 403
    assert broker.ask("platform", "GET", "/admin/service_instances").status_code == 403
    assert broker.ask("ada", "GET", "/admin/service_instances").status_code == 200


def own_of(engine: MemoryEngine) -> Any:
    contexts: list[ServiceContext] = []

    def noted(context: ServiceContext) -> Service:
        contexts.append(context)
        return build(context)

    Application.build(engine, {"patroni-broker": noted}, access=Access())
    return contexts[0].own(*layout_areas(Broker.bound(), read_only={"registrations"}))


def test_the_broker_writes_its_directories_and_reads_below_its_root() -> None:
    engine = MemoryEngine()
    own = own_of(engine)
    written = ("/service/c/leader", "/routing/nextport", "/serviceinstances/i/state", "/_broker/cells/c")
    own.commit(Commit((), tuple(Put(key.encode(), b"x") for key in written)))
    others = ("/CloudChamber/V0.1/users/alice", "/postgresql-patroni/h:c:5432", "/servicesx", "orders", "\x00kp", "0")
    for key in others:
        with pytest.raises(AccessDeniedError, match="patroni-broker"):
            own.commit(Commit((), (Put(key.encode(), b"x"),)))
    engine.commit(Commit((), tuple(Put(key.encode(), b"y") for key in others)))
    assert own.value(b"/postgresql-patroni/h:c:5432") == b"y"
    for key in ("orders", "\x00kp", "0"):
        with pytest.raises(AccessDeniedError):
            own.value(key.encode())


def test_findings_are_read_beside_what_is_others(broker: Served) -> None:
    broker.engine.commit(Commit((), (Put(b"/CloudChamber/V0.1/users/alice", b"{}"), Put(b"/other/h:c:1", b"h:2"))))
    found = broker.ask("ada", "GET", "/admin/findings")
    assert found.status_code == 200, found.text
    assert [one["subject"] for one in found.json()["findings"]] == ["other/h:c:1"]
    assert "alice" not in found.text


def test_a_process_of_gateways_knows_clusters_and_is_no_broker(tmp_path: Path) -> None:
    engine, settings = MemoryEngine(), {"patroni-broker.part": "clusters"}
    with pytest.raises(InvalidInputError, match="without an access file no cluster is known"):
        Application.build(engine, {"patroni-broker": build}, access=Access(), settings=settings)
    file, store = tmp_path / "access.toml", Store(engine)
    file.write_text(POLICY)
    file.chmod(0o600)
    Broker(store).instances.put("f1", InstanceState(store_credentials=new_store_credentials("f1")))
    services: list[Service] = []

    def noted(context: ServiceContext) -> Service:
        services.append(build(context))
        return services[-1]

    access = PolicyAccess.of_file(file)
    application = Application.build(engine, {"patroni-broker": noted}, access=access, settings=settings)
    with asyncio.Runner() as runner:
        running = application.running()
        runner.run(running.__aenter__())
        (service,) = services
        assert service.principals is not None
        assert [principal.name for principal in service.principals()] == ["cluster:f1"]
        assert Served(application, runner, engine).ask("ada", "GET", "/v2/catalog").status_code == 404
        runner.run(running.__aexit__(None, None, None))
