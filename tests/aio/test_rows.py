"""Rows and pages, awaited: a damaged record is reported in its place."""

import keyplan.aio
from keyplan.engine import Commit, MemoryEngine, Put
from keyplan.layout import Async, Damaged
from keyplan.store import Store
from tests.aio.layouts import Hall, Rack, run


def test_rows_and_pages_go_past_what_is_damaged() -> None:
    async def scenario() -> None:
        engine = MemoryEngine()
        with Store(engine) as plain:
            for name in "abc":
                Hall(plain).racks.insert(name, Rack(name, ["t"]))
            engine.commit(Commit((), (Put(b"/hall/racks/b", b"{broken"),)))
            async with keyplan.aio.Store(plain.engine) as store:
                hall: Hall[Async] = Hall(store)
                for rows in (hall.racks.rows(), hall.by_room.rows(), hall.by_tag.rows("t")):
                    found = [(row.key, isinstance(row, Damaged)) async for row in rows]
                    assert found == [("a", False), ("b", True), ("c", False)]
                page = await hall.racks.page()
                assert [key for key, _ in page.records] == ["a", "c"]
                assert [row.key for row in page.damaged] == ["b"]
                async with hall.transaction() as tx:
                    assert [row.key async for row in tx.racks.rows()] == ["a", "b", "c"]

    run(scenario)
