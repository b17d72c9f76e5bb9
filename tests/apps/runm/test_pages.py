"""Pages of lists: that they join to the list, and what one costs, counted in keys that the engine is asked for."""

from collections.abc import Generator, Iterator
from itertools import islice
from typing import Any, Final, NamedTuple
from uuid import UUID

import pytest

from keyplan.apps.runm import Object, Property, ProviderRecord
from keyplan.maintenance import prepare_index
from keyplan.store import Store
from tests.apps.runm.client import EAST, PROJECT, SW, WEST
from tests.apps.runm.conftest import Served, served
from tests.apps.runm.counting import CountingEngine

IMAGES: Final = {"object_type_filter": {"code_filter": {"code": "runm.image"}}}
PAGE: Final = 10


class Counted(NamedTuple):
    """A service, and the engine that counts below it."""

    running: Served
    engine: CountingEngine

    def fill(self, numbers: range, object_type: str = "runm.image", project: str = PROJECT) -> None:
        """Make objects: one tag and property for all, others for each hundredth; UUIDs in no order of the names."""
        runm, beside = self.running.deployment.runm, self.running.deployment.beside
        rest = iter(numbers)
        while batch := list(islice(rest, 200)):
            with self.running.store.transaction() as transaction:
                for number in batch:
                    uuid = UUID(int=number * 0x9E3779B97F4A7C15F39CC0605CEDC835 % 2**128)
                    few = "few" if number % 100 == 0 else "many"
                    record = Object(
                        partition=UUID(WEST),
                        object_type=object_type,
                        uuid=uuid,
                        name=f"n{number:05}",
                        project=project,
                        properties=(Property("k", "all"), Property("f", few)),
                        tags=("all", few),
                    )
                    runm.over(transaction).objects.insert(uuid, record)
                    if object_type == "runm.provider":
                        provider = ProviderRecord(UUID(WEST), "runm.compute", uuid)
                        beside.over(transaction).providers.insert(uuid, provider)

    def pages(
        self, *filters: dict[str, Any], limit: int = PAGE, call: str = "object_find"
    ) -> Iterator[tuple[list[str], int]]:
        """Each page's UUIDs, with the keys that it took to read it."""
        client = self.running.client if call == "object_find" else self.running.api
        marker = ""
        while True:
            self.engine.counts.clear()
            found = getattr(client, call)(SW, any=list(filters), options={"limit": limit, "marker": marker})
            page = [one.uuid for one in found]
            yield page, self.engine.counts["key"]
            if len(page) < limit:
                return
            marker = page[-1]


@pytest.fixture
def counted(lmdb_store: Store) -> Generator[Counted, None, None]:
    engine = CountingEngine(lmdb_store.engine)
    with Store(engine) as store, served(store) as running:
        running.with_partitions()
        yield Counted(running, engine)


BROAD: Final[dict[str, dict[str, Any]]] = {
    "everything": {},
    "a type": IMAGES,
    "a tag of all": {"tag_filter": {"require": ["all"]}},
    "a property of all": {**IMAGES, "property_filter": {"require_items": [{"key": "k", "value": "all"}]}},
    "a key of all": {**IMAGES, "property_filter": {"require_keys": ["k"]}},
    "any of two values": {"property_filter": {"any_items": [{"key": "f", "value": v} for v in ("few", "many")]}},
    "not a value": {**IMAGES, "property_filter": {"forbid_items": [{"key": "f", "value": "few"}]}},
    "the beginning of names": {"name_filter": {"name": "n", "use_prefix": True}},
    "several partitions": {"partition_filter": {"uuids": [EAST, WEST]}},
    "the beginning of UUIDs, and a tag": {
        "uuid_filter": {"uuid": "8", "use_prefix": True},
        "tag_filter": {"any": ["all"]},
    },
}


@pytest.mark.slow
def test_a_page_of_a_broad_list_costs_the_same_however_long_the_list_is(counted: Counted) -> None:
    costs: dict[int, dict[str, int]] = {}
    for size in (100, 400):
        counted.fill(range(0 if size == 100 else 100, size))
        costs[size] = {}
        for name, given in BROAD.items():
            pages = list(counted.pages(given))
            whole = sorted(one.uuid for one in counted.running.client.object_find(SW, any=[given]))
            assert [uuid for page, _ in pages for uuid in page] == whole
            costs[size][name] = max(keys for _, keys in pages)
    for name in BROAD:
        assert costs[400][name] <= max(1.5 * costs[100][name], 6 * PAGE), (name, costs)


def test_a_page_of_few_among_many_costs_what_there_are(counted: Counted) -> None:
    counted.fill(range(1_000))
    few = {"tag_filter": {"require": ["few", "all"]}}
    ((page, keys), (rest, _)) = counted.pages(few, limit=10)
    assert (len(page), rest) == (10, [])
    assert keys <= 120


def test_a_small_projects_pages_do_not_look_at_every_other_projects_objects(counted: Counted) -> None:
    counted.fill(range(1, 1_200), project="p2")
    counted.fill(range(5_000, 5_060))
    pages = list(counted.pages())
    assert [len(page) for page, _ in pages] == [10, 10, 10, 10, 10, 10, 0]
    assert max(keys for _, keys in pages) <= 600


def test_alternatives_are_paged_together_each_object_once(counted: Counted) -> None:
    counted.fill(range(300))
    both: list[dict[str, Any]] = [{"tag_filter": {"require": ["few"]}}, {"tag_filter": {"require": ["all"]}}, IMAGES]
    pages = list(counted.pages(*both))
    assert len({uuid for page, _ in pages for uuid in page}) == sum(len(page) for page, _ in pages) == 300
    assert max(keys for _, keys in pages) <= 24 * PAGE


@pytest.mark.parametrize("limit", [1, 257, 2**31, 2**32 - 1])
def test_a_page_may_have_any_size(counted: Counted, limit: int) -> None:
    counted.fill(range(600))
    page, _ = next(counted.pages(IMAGES, limit=limit))
    assert len(page) == min(limit, 600)
    assert page == sorted(page)


def test_a_filter_of_very_many_values_is_paged(counted: Counted) -> None:
    counted.fill(range(100))
    values = [{"key": "k", "value": f"v{number}"} for number in range(500)]
    given = {"property_filter": {"any_items": [*values, {"key": "k", "value": "all"}]}}
    assert [len(page) for page, _ in counted.pages(given, limit=60)] == [60, 40]


def test_pages_are_whole_while_an_index_may_not_be_read(counted: Counted) -> None:
    counted.fill(range(300))
    runm = counted.running.deployment.bound
    for index in ("objects_by_tag", "objects_by_property"):
        prepare_index(counted.running.store, runm, index)
    pages = list(counted.pages({"tag_filter": {"require": ["few"]}}, limit=2))
    assert [len(page) for page, _ in pages] == [2, 1]


def test_a_page_of_providers_costs_what_it_returns(counted: Counted) -> None:
    counted.fill(range(600), "runm.provider", "")
    whole = [one.uuid for one in counted.running.api.provider_list(SW)]
    for given in (
        {},
        {"provider_type_filter": {"search": "runm.compute"}},
        {"primary_filter": {"search": "n", "use_prefix": True}},
    ):
        pages = list(counted.pages(given, call="provider_list"))
        assert [uuid for page, _ in pages for uuid in page] == whole
        assert max(keys for _, keys in pages) <= 16 * PAGE


def test_a_page_of_partitions_costs_what_it_returns(counted: Counted) -> None:
    for number in range(100):
        counted.running.client.partition_create(partition={"name": f"p{number}"})
    pages: list[list[str]] = []
    marker = ""
    while not pages or pages[-1]:
        counted.engine.counts.clear()
        found = counted.running.client.partition_find(SW, options={"limit": 10, "marker": marker})
        pages.append([one.uuid for one in found])
        assert counted.engine.counts["key"] <= 20
        marker = pages[-1][-1] if pages[-1] else ""
    assert sum(len(page) for page in pages) == len({uuid for page in pages for uuid in page}) == 102
