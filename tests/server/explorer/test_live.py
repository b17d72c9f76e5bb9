"""Live changes as server-sent events: each once, resumed by the id of the last one, ended by the server's signal."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from keyplan.engine import Commit, Engine, Put
from keyplan.errors import HistoryCompactedError, InvalidWatchTokenError
from keyplan.server import AnswerError, Closing
from keyplan.server.explorer.areas import Areas
from keyplan.server.explorer.layouts import LayoutBook
from keyplan.server.explorer.live import LiveStreams, RawSource, TypedSource
from keyplan.server.explorer.trees import ItemRequest
from tests.server.explorer.conftest import Explorer, areas_of_all
from tests.server.explorer.shop import NAME, Item, ItemKey, Shop

SECONDS_MAX = 60
"""Only a failure waits so long."""


class Heard:
    """What one client hears."""

    def __init__(self, events: AsyncIterator[bytes]) -> None:
        self._events = events
        self._ready: list[tuple[str, str, Any]] = []

    async def next(self) -> tuple[str, str, Any]:
        """The next event: name, id, data. Those that say nothing are passed over."""
        while True:
            while not self._ready:
                text = (await asyncio.wait_for(anext(self._events), SECONDS_MAX)).decode()
                self._ready += [parsed(block) for block in text.split("\n\n") if "event:" in block]
            event = self._ready.pop(0)
            if event[0] != "here":
                return event

    async def ended(self) -> bool:
        return await asyncio.wait_for(anext(self._events, b"end"), SECONDS_MAX) == b"end"


def parsed(block: str) -> tuple[str, str, Any]:
    fields = dict(line.split(": ", 1) for line in block.splitlines())
    return fields["event"], fields.get("id", ""), json.loads(fields["data"])


@pytest.fixture
def areas(engine: Engine, shop: Shop) -> Areas:
    return areas_of_all(engine, LayoutBook({"layout": NAME}))


def typed(areas: Areas, item: str = "items", *words: str, after: str = "") -> Callable[[], TypedSource]:
    return lambda: TypedSource(areas, ItemRequest("-", "Shop", item, words), after=after)


def test_changes_are_told_and_resumed_behind_the_last_one_read(areas: Areas, shop: Shop) -> None:
    async def main() -> None:
        streams = LiveStreams(Closing())
        answer = await streams.open(typed(areas, "items", "a"), who="ada")
        heard = Heard(answer.events())
        name, place, _ = await heard.next()
        assert (name, bool(place)) == ("open", True)
        shop.items.insert(ItemKey("a", "9"), Item("Nine"))
        shop.items.insert(ItemKey("b", "9"), Item("of another shelf"))
        shop.items.update(ItemKey("a", "9"), Item("Neun"))
        shop.items.delete(ItemKey("a", "9"))
        inserted, changed, removed = [await heard.next() for _ in range(3)]
        assert [one[0] for one in (inserted, changed, removed)] == ["inserted", "changed", "removed"]
        assert inserted[2]["fields"] == {"shelf": "a", "item": "9"}
        assert (changed[2]["old"]["title"], changed[2]["new"]["title"]) == ("Nine", "Neun")
        assert removed[2]["href"] == f"/explore/in/-/key?hex={b'shop/items/a/9'.hex()}"
        answer.close()
        again = await streams.open(typed(areas, "items", "a", after=inserted[1]), who="ada")
        heard = Heard(again.events())
        assert (await heard.next())[0] == "open"
        assert [(await heard.next())[:2] for _ in range(2)] == [changed[:2], removed[:2]]
        again.close()
        assert streams.number == 0

    asyncio.run(main())


def test_an_index_can_be_watched(areas: Areas, shop: Shop) -> None:
    async def main() -> None:
        answer = await LiveStreams(Closing()).open(typed(areas, "by_colour", "red"), who="ada")
        heard = Heard(answer.events())
        await heard.next()
        shop.items.update(ItemKey("a", "1"), Item("Ada's notes", "blue"))
        assert (await heard.next())[0] == "removed"
        answer.close()

    asyncio.run(main())


def test_a_record_that_cannot_be_read_is_told_and_what_follows_it_too(areas: Areas, shop: Shop, engine: Engine) -> None:
    async def main() -> None:
        answer = await LiveStreams(Closing()).open(typed(areas), who="ada")
        heard = Heard(answer.events())
        await heard.next()
        engine.commit(Commit((), (Put(b"shop/items/a/8", b"{oops"),)))
        shop.items.insert(ItemKey("a", "9"), Item("Nine"))
        name, _, data = await heard.next()
        assert (name, data["detail"]["raw_key"]) == ("damaged", b"shop/items/a/8".hex())
        assert (await heard.next())[0] == "inserted"
        answer.close()

    asyncio.run(main())


def test_raw_keys_have_the_id_of_their_revision_only_at_its_end(areas: Areas, engine: Engine) -> None:
    async def main() -> None:
        streams = LiveStreams(Closing())
        answer = await streams.open(lambda: RawSource(areas, "-", b"x/", after=""), who="ada")
        heard = Heard(answer.events())
        await heard.next()
        revision = engine.commit(Commit((), (Put(b"x/1", b"\x00<b>"), Put(b"x/2", b""), Put(b"y", b""))))
        first, second = await heard.next(), await heard.next()
        assert [(one[0], one[1], one[2]["key"]) for one in (first, second)] == [
            ("inserted", "", "x/1"),
            ("inserted", str(revision), "x/2"),
        ]
        assert first[2]["new"] == "\\x00<b>"
        answer.close()

    asyncio.run(main())


def test_the_server_s_signal_ends_a_stream(areas: Areas) -> None:
    async def main() -> None:
        closing = Closing()
        answer = await LiveStreams(closing).open(typed(areas), who="ada")
        heard = Heard(answer.events())
        await heard.next()
        asyncio.get_running_loop().call_soon(closing.set)
        assert (await heard.next())[0] == "closing"
        assert await heard.ended()
        answer.close()

    asyncio.run(main())


def test_there_are_not_more_streams_than_so_many(areas: Areas) -> None:
    async def main() -> None:
        streams = LiveStreams(Closing(), streams_max=1)
        first = await streams.open(typed(areas), who="ada")
        with pytest.raises(AnswerError) as caught:
            await streams.open(typed(areas), who="ada")
        assert (caught.value.status, caught.value.code) == (503, "overloaded")
        first.close()
        (await streams.open(typed(areas), who="ada")).close()

    asyncio.run(main())


def test_one_caller_leaves_room_for_others(areas: Areas) -> None:
    async def main() -> None:
        streams = LiveStreams(Closing(), of_caller_max=1)
        first = await streams.open(typed(areas), who="ada")
        with pytest.raises(AnswerError, match="you have as many"):
            await streams.open(typed(areas), who="ada")
        (await streams.open(typed(areas), who="bob")).close()
        first.close()
        (await streams.open(typed(areas), who="ada")).close()
        assert streams.number == 0

    asyncio.run(main())


def test_a_history_that_is_gone_and_a_token_of_another_list_are_refused(
    areas: Areas, shop: Shop, engine: Engine, explorer: Explorer
) -> None:
    async def main() -> None:
        streams = LiveStreams(Closing())
        answer = await streams.open(typed(areas), who="ada")
        token = (await Heard(answer.events()).next())[1]
        answer.close()
        with pytest.raises(InvalidWatchTokenError):
            await streams.open(typed(areas, "visitors", after=token), who="ada")
        shop.items.insert(ItemKey("a", "8"), Item("Eight"))
        engine.compact(shop.items.insert(ItemKey("a", "9"), Item("Nine")))
        with pytest.raises(HistoryCompactedError):
            await streams.open(typed(areas, after=token), who="ada")
        assert streams.number == 0

    asyncio.run(main())
    refused = explorer.get("/explore/in/-/changes/Shop/items?after=nonsense", accept="text/event-stream")
    assert refused.status_code == 400
