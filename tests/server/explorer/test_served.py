"""The explorer of a real `keyplan serve`: found by the command line's options, and its stream over a connection."""

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from keyplan.store import open_store
from tests.server.explorer.shop import NAME, Item, ItemKey, Shop
from tests.servers.keyplan_server import KeyplanServer

SECONDS_MAX = 60


def events(lines: Iterator[str]) -> Iterator[tuple[str, str, str]]:
    """Name, id and data of the events of a stream."""
    fields: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(": ")
        if line:
            fields[name] = value
        elif "event" in fields:
            yield fields["event"], fields.get("id", ""), fields["data"]
            fields = {}


@pytest.mark.slow
def test_pages_and_changes_come_from_a_server_and_end_with_it(tmp_path: Path) -> None:
    url = f"lmdb:{tmp_path / 'store.kv'}"
    with (
        KeyplanServer(
            url, "--app", "explorer", "--layout", NAME, environment={"PYTHONPATH": str(Path.cwd())}
        ) as server,
        httpx.Client(base_url=server.url, trust_env=False, timeout=SECONDS_MAX) as client,
        open_store(url) as store,
    ):
        shop = Shop(store)
        shop.items.insert(ItemKey("a", "1"), Item("Ball"))
        assert "Ball" in client.get("/explore/in/-/list/Shop/items").text
        assert "/explore/in/{area}/key" in client.get("/openapi.json").json()["paths"]
        stream = client.get("/explore/in/-/live/Shop/items?format=json").json()["stream"]
        with client.stream("GET", stream) as answer:
            heard = events(answer.iter_lines())
            assert next(heard)[0] == "open"
            shop.items.insert(ItemKey("a", "2"), Item("Doll"))
            name, last, data = next(one for one in heard if one[0] != "here")
            assert (name, json.loads(data)["fields"]) == ("inserted", {"shelf": "a", "item": "2"})
        shop.items.delete(ItemKey("a", "1"))
        with client.stream("GET", stream, headers={"Last-Event-ID": last}) as answer:
            heard = events(answer.iter_lines())
            assert next(heard)[0] == "open"
            assert next(one for one in heard if one[0] != "here")[0] == "removed"
            server.process.terminate()
            assert next(one for one in heard if one[0] != "here")[0] == "closing"
        assert server.stop() == 0
