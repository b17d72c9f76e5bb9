"""A record nested deeper than anybody reads: its own row says so, and every other row, page and change stands."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from keyplan.engine import Commit, Engine, Put
from keyplan.layout import Layout, Table
from keyplan.server import Closing
from keyplan.server.explorer.layouts import LayoutBook
from keyplan.server.explorer.live import LiveStreams, TypedSource
from keyplan.server.explorer.trees import ItemRequest
from tests.server.explorer.conftest import Explorer, areas_of_all
from tests.server.explorer.test_live import Heard

NAME = "tests.server.explorer.test_deep:Deep"

DEPTHS = [40, 700, 100_000]


class Deep(Layout, root="deep/"):
    things = Table("things/{name}", key=str, value=dict[str, Any])


def nested(depth: int) -> bytes:
    return b'{"a":' + b"[" * depth + b"]" * depth + b"}"


@pytest.mark.parametrize("depth", DEPTHS)
def test_pages_show_a_deep_record_and_its_neighbours(
    explore: Callable[..., Explorer], engine: Engine, depth: int
) -> None:
    pairs = [(b"deep/things/a", b'{"b":1}'), (b"deep/things/deep", nested(depth)), (b"deep/things/z", b'{"b":2}')]
    engine.commit(Commit((), tuple(Put(key, value) for key, value in pairs)))
    explorer = explore(engine, layout=NAME)
    rows = explorer.data("/explore/in/-/list/Deep/things")["rows"]
    assert len(rows) == len(pairs)
    for key, _ in pairs:
        explorer.page(f"/explore/in/-/key?hex={key.hex()}")
        explorer.data(f"/explore/in/-/key?hex={key.hex()}")
    assert all(len(page) < 1_000_000 for page in explorer.crawl(pages_max=60).values())


@pytest.mark.parametrize("depth", DEPTHS)
def test_a_deep_record_does_not_end_the_live_stream(engine: Engine, depth: int) -> None:
    async def main() -> None:
        areas = areas_of_all(engine, LayoutBook({"layout": NAME}))
        streams = LiveStreams(Closing())
        answer = await streams.open(
            lambda: TypedSource(areas, ItemRequest("-", "Deep", "things", ()), after=""), who="ada"
        )
        heard = Heard(answer.events())
        assert (await heard.next())[0] == "open"
        pairs = ((b"deep/things/deep", nested(depth)), (b"deep/things/z", b'{"b":2}'))
        for key, value in pairs:
            engine.commit(Commit((), (Put(key, value),)))
        found = [await heard.next() for _ in pairs]
        assert [one[0] for one in found] == ["damaged" if depth == DEPTHS[-1] else "inserted", "inserted"]
        assert found[1][2]["key"] == "deep/things/z"
        answer.close()

    asyncio.run(main())
