"""The v2 keys API as somebody sees it who is granted a part of the store: a cell of Patroni's, beside others."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from keyplan.engine import Commit, Engine, Put, open_engine
from keyplan.server import PolicyAccess
from tests.attacks.world import TOKENS, policy_of
from tests.servers.gateways import GatewayServer

SECONDS_MAX: Final = 45.0
DENIED: Final = {
    "errorCode": 110,
    "message": "The request requires user authentication",
    "cause": "Insufficient credentials",
    "index": 0,
}
GRANTS: Final = {
    "ada": dict.fromkeys(("read", "write", "administer"), "everything"),
    "cell": dict.fromkeys(("read", "write"), "prefix:/service/batman/"),
    "shop": dict.fromkeys(("read", "write"), "prefix:/service/robin/"),
    "reader": {"read": "prefix:/service/batman/"},
}


class Keys:
    """The keys as somebody."""

    def __init__(self, url: str, who: str) -> None:
        headers = {"authorization": f"Bearer {TOKENS[who]}"}
        self._http = httpx.Client(base_url=url + "/v2/keys", headers=headers, timeout=SECONDS_MAX)

    def ask(self, method: str, key: str, **form: str) -> tuple[int, Any]:
        query = {} if method in {"PUT", "POST"} else form
        answer = self._http.request(method, key, params=query, data=form if not query else None)
        return answer.status_code, answer.json() if answer.content else None

    def put(self, key: str, value: str = "1", **form: str) -> int:
        status, answer = self.ask("PUT", key, value=value, **form)
        assert status in {200, 201}, answer
        index: int = answer["node"]["modifiedIndex"]
        return index

    def shown(self, key: str) -> list[str]:
        """The keys that a recursive listing shows."""
        status, answer = self.ask("GET", key, recursive="true")
        assert status == 200, answer
        return list(_keys(answer["node"]))

    def close(self) -> None:
        self._http.close()


def _keys(node: dict[str, Any]) -> Iterator[str]:
    for child in node.get("nodes", ()):
        yield child["key"]
        yield from _keys(child)


@pytest.fixture(params=["memory:", "lmdb:"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    with open_engine(f"lmdb:{tmp_path}/store" if request.param == "lmdb:" else request.param) as opened:
        yield opened


@pytest.fixture
def server(engine: Engine, tmp_path: Path) -> Iterator[GatewayServer]:
    file = tmp_path / "access.toml"
    file.write_text(policy_of(GRANTS))
    file.chmod(0o600)
    with GatewayServer(engine, access=PolicyAccess.of_file(file)) as served:
        yield served


class Clients:
    def __init__(self, url: str) -> None:
        self.ada, self.cell, self.shop, self.reader = (Keys(url, who) for who in GRANTS)


@pytest.fixture
def clients(server: GatewayServer) -> Iterator[Clients]:
    made = Clients(server.url)
    made.ada.put("/service/robin/leader", "r1")
    yield made
    for one in vars(made).values():
        one.close()


# ---- reading and listing -------------------------------------------------------------------------------------------------


def test_a_cell_finds_its_own_beside_others(clients: Clients) -> None:
    clients.cell.put("/service/batman/leader", "b1")
    clients.cell.put("/service/batman/members/b1", "up")
    own = ["/service/batman/leader", "/service/batman/members", "/service/batman/members/b1"]
    assert clients.cell.shown("/service/batman") == own
    assert clients.cell.shown("/service") == ["/service/batman", *own]
    assert clients.cell.shown("/") == ["/service", "/service/batman", *own]
    assert clients.reader.shown("/service/batman/") == own
    assert "/service/robin/leader" in clients.ada.shown("/")
    assert clients.cell.ask("GET", "/service/batman/leader")[1]["node"]["value"] == "b1"


@pytest.mark.parametrize("path", ["/service/robin/leader", "/service/robin", "/service/batman2", "/elsewhere"])
def test_what_lies_outside_is_refused_in_etcds_words(clients: Clients, path: str) -> None:
    for method, form in (
        ("GET", {}),
        ("GET", {"recursive": "true"}),
        ("GET", {"wait": "true"}),
        ("PUT", {"value": "x"}),
        ("PUT", {"value": "x", "prevExist": "true"}),
        ("PUT", {"value": "x", "prevIndex": "1"}),
        ("PUT", {"dir": "true", "ttl": "1"}),
        ("POST", {"value": "x"}),
        ("DELETE", {}),
        ("DELETE", {"recursive": "true"}),
    ):
        assert clients.cell.ask(method, path, **form) == (401, DENIED), (method, form)
    assert clients.ada.ask("GET", "/service/robin/leader")[1]["node"]["value"] == "r1"


def test_what_is_above_is_seen_and_not_touched(clients: Clients) -> None:
    clients.cell.put("/service/batman/leader")
    for method, form in (
        ("PUT", {"value": "x"}),
        ("PUT", {"dir": "true"}),
        ("PUT", {"dir": "true", "prevExist": "true", "ttl": "1"}),
        ("POST", {"value": "x"}),
        ("DELETE", {"dir": "true"}),
        ("DELETE", {"recursive": "true"}),
    ):
        assert clients.cell.ask(method, "/service", **form) == (401, DENIED), (method, form)
    assert clients.cell.ask("GET", "/service")[0] == 200


def test_a_file_in_the_place_of_the_own_directory_is_anothers(clients: Clients) -> None:
    clients.ada.put("/service/batman", "a file")
    assert clients.cell.ask("GET", "/service/batman")[0] == 404
    assert clients.cell.ask("PUT", "/service/batman", value="x") == (401, DENIED)
    assert clients.ada.ask("GET", "/service/batman")[1]["node"]["value"] == "a file"


# ---- writing -------------------------------------------------------------------------------------------------------------


def test_all_kinds_of_writes_are_done_in_the_own_part(clients: Clients) -> None:
    cell = clients.cell
    index = cell.put("/service/batman/leader", "b1", prevExist="false", ttl="100")
    assert cell.ask("PUT", "/service/batman/leader", value="x", prevExist="false")[0] == 412
    assert cell.ask("PUT", "/service/batman/leader", value="b2", prevIndex=str(index))[0] == 200
    assert cell.ask("PUT", "/service/batman/leader", value="b3", prevValue="b1")[0] == 412
    assert cell.ask("PUT", "/service/batman/leader", refresh="true", ttl="50", prevExist="true")[0] == 200
    first, second = (cell.ask("POST", "/service/batman/queue", value=value)[1]["node"]["key"] for value in "12")
    assert [first, second] == cell.shown("/service/batman/queue")
    assert cell.ask("DELETE", "/service/batman/queue", dir="true")[0] == 403
    assert cell.ask("DELETE", "/service/batman/queue", recursive="true")[0] == 200
    assert cell.ask("DELETE", "/service/batman/leader", prevValue="b2")[0] == 200


def test_a_cell_is_removed_by_its_own_principal(clients: Clients) -> None:
    clients.cell.put("/service/batman/members/b1")
    assert clients.cell.ask("DELETE", "/service/batman", recursive="true")[0] == 200
    assert clients.cell.ask("GET", "/service/batman")[0] == 404
    assert clients.ada.shown("/service") == ["/service/robin", "/service/robin/leader"]


def test_who_may_read_writes_nothing(clients: Clients) -> None:
    clients.cell.put("/service/batman/leader", "b1")
    for method, form in (("PUT", {"value": "x", "prevValue": "guess"}), ("DELETE", {}), ("POST", {"value": "x"})):
        assert clients.reader.ask(method, "/service/batman/leader", **form) == (401, DENIED)


def test_an_own_directory_ends_with_its_time_and_takes_its_own_alone(clients: Clients) -> None:
    clients.cell.ask("PUT", "/service/batman/short", dir="true", ttl="1")
    index = clients.cell.put("/service/batman/short/x")
    waited = clients.cell.ask("GET", "/service/batman", wait="true", recursive="true", waitIndex=str(index + 1))
    assert waited[1]["action"] == "expire"
    assert clients.cell.ask("GET", "/service/batman/short")[0] == 404
    assert clients.shop.ask("GET", "/service/robin/leader")[0] == 200


def test_what_others_changed_is_counted_before_an_own_write(clients: Clients, engine: Engine) -> None:
    before = clients.cell.put("/service/batman/leader", "b1")
    engine.commit(Commit((), (Put(b"/service/batman/leader", b"by another program"), Put(b"/service/robin/x", b"1"))))
    status, answer = clients.cell.ask("PUT", "/service/batman/leader", value="b2")
    assert (status, answer["prevNode"]["value"]) == (200, "by another program")
    assert answer["node"]["modifiedIndex"] == before + 3, "two changes of others have numbers of their own"
    told = clients.cell.ask("GET", "/service/batman/leader", wait="true", waitIndex=str(before + 1))[1]
    assert (told["action"], told["node"]["value"]) == ("update", "by another program")


# ---- waiting -------------------------------------------------------------------------------------------------------------


def test_a_wait_is_told_of_the_own_events_alone(clients: Clients) -> None:
    index = clients.cell.put("/service/batman/leader", "b1")
    for number in range(150):  # Why so many: more than a stream may leave unread.
        clients.shop.put("/service/robin/leader", str(number))
    own = clients.cell.put("/service/batman/leader", "b2")
    for path in ("/", "/service", "/service/batman"):
        told = clients.cell.ask("GET", path, wait="true", recursive="true", waitIndex=str(index + 1))[1]
        assert (told["node"]["value"], told["node"]["modifiedIndex"]) == ("b2", own)


def test_a_wait_that_has_begun_passes_over_others_events(clients: Clients, server: GatewayServer) -> None:
    clients.cell.put("/service/batman/leader", "b1")
    told: list[Any] = []
    waiting = threading.Thread(
        target=lambda: told.append(clients.cell.ask("GET", "/", wait="true", recursive="true")[1])
    )
    waiting.start()
    with httpx.Client(base_url=server.url, headers={"authorization": f"Bearer {TOKENS['ada']}"}) as http:
        while http.get("/v2/stats/store").json()["watchers"] != 1:
            pass
    clients.shop.put("/service/robin/leader", "r2")
    assert not told
    clients.cell.put("/service/batman/leader", "b2")
    waiting.join(SECONDS_MAX)
    assert told[0]["node"]["value"] == "b2"


def test_who_waits_is_told_that_all_that_is_above_has_gone(clients: Clients) -> None:
    index = clients.cell.put("/service/batman/leader", "b1")
    assert clients.ada.ask("DELETE", "/service", recursive="true")[0] == 200
    told = clients.cell.ask("GET", "/service/batman/leader", wait="true", waitIndex=str(index + 1))[1]
    assert (told["action"], told["node"]["key"]) == ("delete", "/service")
    assert "robin" not in str(told)
