"""Layouts, copies, the command line and the asynchronous twin on a PostgreSQL store."""

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from threading import Thread

import pytest

import keyplan
import keyplan.aio
from keyplan.cli.main import main
from keyplan.engine import Commit, Put, open_engine
from keyplan.errors import StoreMissingError, UniqueViolationError
from keyplan.keyspace import KeySpaces
from keyplan.store import Store
from tests.aio.layouts import Hall, run
from tests.aio.layouts import Rack as HallRack
from tests.maintenance.backups import content_of
from tests.servers.postgres import PostgresServer
from tests.store.layouts import Blade, BladeKey, Site

CheckAfter = Callable[..., AbstractContextManager[Store]]


@pytest.fixture
def url(postgres_server: PostgresServer) -> str:
    return postgres_server.local_url(schema=postgres_server.fresh_schema())


@pytest.fixture
def store(url: str, check_after: CheckAfter) -> Iterator[Store]:
    with check_after(keyplan.open(url), Site) as store:
        yield store


def test_records_and_their_index_entries_change_together(store: Store) -> None:
    site = Site(store)
    site.blades.insert(BladeKey("r1", "1"), Blade("s1", ["red", "blue"]))
    site.blades.insert(BladeKey("r1", "2"), Blade("s2", ["red"]))
    with pytest.raises(UniqueViolationError):
        site.blades.insert(BladeKey("r2", "1"), Blade("s1"))
    with site.transaction() as both:
        both.blades.put(BladeKey("r1", "1"), Blade("s3", ["blue"]))
        both.blades.delete(BladeKey("r1", "2"))
        both.flags.insert("on", None)
    assert [key for key, _ in site.by_tag.list("blue")] == [BladeKey("r1", "1")]
    assert list(site.by_tag.list("red")) == []
    assert site.by_serial.one("s3") == Blade("s3", ["blue"])
    assert site.by_serial.one("s2") is None
    page = site.blades.page(limit=1)
    assert [key for key, _ in page.records] == [BladeKey("r1", "1")]


def test_threads_hand_out_each_number_once(store: Store) -> None:
    numbers: list[int] = []
    threads = [Thread(target=lambda: numbers.extend(Site(store).ports.next() for _ in range(5))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(numbers) == list(range(33_000, 33_020))


def test_key_spaces_are_registered_and_fenced(url: str) -> None:
    with keyplan.open(url) as store:
        spaces = KeySpaces(store.engine)
        spaces.create("orders", "shop")
        assert spaces.get("orders").application == "shop"
        assert spaces.diagnose().faults == []


def test_a_store_is_copied_from_lmdb_and_back_by_the_command_line(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = {b"/site/%04d" % number: bytes([number % 256]) * (number % 300) for number in range(1_200)}
    with open_engine(f"lmdb:{tmp_path}/site.kv") as engine:
        engine.commit(Commit((), tuple(Put(key, value) for key, value in content.items())))
    assert main(["copy", "--from", f"lmdb:{tmp_path}/site.kv", "--to", url, "--json"]) == 0
    there = json.loads(capsys.readouterr().out)
    with open_engine(url) as engine:
        assert content_of(engine) == content
    assert main(["copy", "--from", url, "--to", f"lmdb:{tmp_path}/back.kv", "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert (again["count"], again["sha256"]) == (there["count"], there["sha256"])
    with open_engine(f"lmdb:{tmp_path}/back.kv") as engine:
        assert content_of(engine) == content


def test_the_command_line_reads_writes_and_makes_no_store_by_reading(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    layout = ["--layout", "tests.store.layouts:Site"]
    assert main(["ls", "--store", url, *layout]) != 0
    assert "no keyplan store" in capsys.readouterr().err
    with pytest.raises(StoreMissingError):
        open_engine(url, create=False)
    with keyplan.open(url) as store:
        Site(store).blades.insert(BladeKey("r1", "1"), Blade("s1", ["red"]))
    assert main(["list", "blades", "--store", url, *layout]) == 0
    assert "r1" in capsys.readouterr().out
    assert main(["check", "--store", url, *layout]) == 0


def test_the_asynchronous_twin_works_on_it(url: str) -> None:
    async def scenario() -> None:
        async with keyplan.aio.open(url) as store:
            hall = Hall(store)
            await hall.racks.insert("r1", HallRack("a", ["x"]))
            async with hall.transaction() as both:
                await both.racks.insert("r2", HallRack("b", ["x"]))
            assert [key async for key, _ in hall.by_tag.list("x")] == ["r1", "r2"]

    run(scenario)
