"""The explorer as somebody sees it who is granted a part of the store."""

from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

import httpx
import pytest

from keyplan.engine import Commit, MemoryEngine, Put
from keyplan.errors import KeySpaceNotFoundError
from keyplan.keyspace import KeySpace
from keyplan.server import PolicyAccess, service_builders
from keyplan.server.explorer.areas import SeenKeySpaces
from tests.attacks.form import Attacker
from tests.attacks.world import BANK, SHOP, TOKENS, VALUE, World
from tests.servers.gateways import GatewayServer


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with MemoryEngine() as engine:
        made = World(engine, tmp_path / "access.toml")
        # Raw keys that lie in a key space, whose name is not theirs to know.
        made.grants["nothing"] = {"read": f"prefix:{BANK.prefix}"}
        made.write_file()
        yield made


@pytest.fixture
def server(world: World) -> Iterator[GatewayServer]:
    access, builders = PolicyAccess.of_file(world.file), service_builders(["explorer"])
    with GatewayServer(world.engine, access=access, builders=builders, settings={"keyspaces.sweep": "off"}) as served:
        yield served


def page(server: GatewayServer, who: str, path: str) -> Any:
    headers = {"authorization": f"Bearer {TOKENS[who]}", "accept": "application/json"}
    answer = httpx.get(f"{server.url}/explore{path}", headers=headers, timeout=45)
    assert answer.status_code == 200, answer.text
    return answer.json()


def keys_of(found: Any) -> int:
    number: int = found["keys"]["number"]
    return number


def test_the_first_page_counts_what_is_seen(server: GatewayServer, world: World) -> None:
    whole, shop, cell = (page(server, who, "/") for who in ("ada", "shop", "cell"))
    assert [one["name"] for one in whole["keyspaces"]] == [BANK.keyspace, SHOP.keyspace]
    assert [one["name"] for one in shop["keyspaces"]] == [SHOP.keyspace]
    assert cell["keyspaces"] == []
    assert (keys_of(shop), keys_of(cell), keys_of(shop["keyspaces"][0])) == (1, 1, 1)
    assert keys_of(whole) > 4, "the registry's, too"
    assert [one["label"] for one in whole["layouts"]] == ["keyspace"]
    assert shop["layouts"] == []
    assert [one["first_key"] for one in cell["unmanaged"]] == ["/service/batman/known"]
    assert shop["unmanaged"] == []


def test_a_key_space_that_goes_while_the_first_page_is_made_hides_no_other(
    server: GatewayServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = SeenKeySpaces.figures_of

    def gone(self: SeenKeySpaces, keyspace: KeySpace) -> tuple[Any, Any]:
        if keyspace.name == BANK.keyspace:
            raise KeySpaceNotFoundError(name=keyspace.name)
        return figures(self, keyspace)

    monkeypatch.setattr(SeenKeySpaces, "figures_of", gone)
    assert [one["name"] for one in page(server, "ada", "/")["keyspaces"]] == [SHOP.keyspace]


def test_an_area_is_the_own_key_space_without_its_prefix(server: GatewayServer) -> None:
    found = page(server, "bank", f"/in/{BANK.keyspace}/raw")
    assert [one["text"] for one in found["children"]] == ["hidden7f3a", "known"]
    assert page(server, "bank", f"/in/{BANK.keyspace}/key?hex={b'known'.hex()}")["stored"]["value_text"].startswith(
        "secret"
    )
    assert page(server, "reader", f"/in/{BANK.keyspace}/")["keyspace"]["keys"]["number"] == 2


def test_whose_a_key_is_says_nothing_to_who_may_not_see_the_key_space(server: GatewayServer) -> None:
    path = f"/in/-/key?hex={BANK.known.encode().hex()}"
    assert page(server, "ada", path)["owner"]["keyspace"] == BANK.keyspace
    found = page(server, "nothing", path)
    assert (found["stored"] is not None, found["owner"]) == (True, None)
    headers = {"authorization": f"Bearer {TOKENS['nothing']}"}
    led = httpx.get(f"{server.url}/explore/find", params={"key": BANK.known}, headers=headers, timeout=45)
    assert "/in/-/" in led.headers["location"]


def test_what_hangs_on_a_lease_is_shown_to_who_may_only_read(server: GatewayServer, world: World) -> None:
    lease = world.engine.lease(600)
    world.engine.commit(Commit((), (Put(b"/bank/leased", b"1", lease.id),)))
    for who in ("bank", "reader", "nothing"):
        found = page(server, who, f"/in/-/key?hex={b'/bank/leased'.hex()}")["stored"]
        assert (found["lease"], found["lease_ttl_seconds"]) == (lease.id, None), "it is another's"
    assert page(server, "ada", f"/in/-/key?hex={b'/bank/leased'.hex()}")["stored"]["lease_ttl_seconds"] == 600


def sees_key_spaces(server: GatewayServer, who: str) -> bool:
    """Whether the first page still shows somebody key spaces. Their grants may go while it is made: it is refused then."""
    headers = {"authorization": f"Bearer {TOKENS[who]}", "accept": "application/json"}
    answer = httpx.get(f"{server.url}/explore/", headers=headers, timeout=45)
    if answer.status_code == HTTPStatus.UNAUTHORIZED:
        assert answer.json()["error"]["code"] == "access_ended"
        return True
    assert answer.status_code == HTTPStatus.OK, answer.text
    return bool(answer.json()["keyspaces"])


@pytest.mark.parametrize("area", [BANK.keyspace, "-"])
def test_a_stream_of_who_saw_everything_ends_with_their_grants(server: GatewayServer, world: World, area: str) -> None:
    ada = Attacker(server.url, "ada", BANK, world)
    with ada.stream("GET", f"/explore/in/{area}/changes") as stream:
        stream.until("event: open")
        world.grants["ada"] = {}
        world.write_file()
        while sees_key_spaces(server, "ada"):
            pass  # A server looks at its file once in a second.
        world.put({BANK.known: VALUE})
        told = stream.until(VALUE, "event: failed")
    # Which of the two ends it is whoever looks first: the live view, in words, or the gate, which cuts.
    assert (VALUE in told, "access_denied" in told or stream.is_cut) == (False, True), told
