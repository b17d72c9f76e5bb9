"""A HEPnOS store behind a real server on loopback: the API through it, what it refuses, and what a client makes of it."""

import hashlib
import re
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from keyplan.apps import hepnos
from keyplan.apps.hepnos.examine import examine
from keyplan.apps.hepnos.operations import DatabaseOperations
from keyplan.apps.hepnos.packed import PACKED, pack, unpack
from keyplan.apps.hepnos.queue_operations import QueueOperations
from keyplan.engine import ALL_KEYS, Commit, Delete, KeyAbsent, KeyRange, KeyUnchanged, Put, open_engine
from keyplan.errors import (
    CommitConflictError,
    EngineLimitError,
    EngineOpenError,
    EngineUnavailableError,
    InvalidInputError,
    KeyplanError,
    RingMismatchError,
    StoreMissingError,
    UnauthorizedError,
)
from keyplan.operations import Operation, Place, operations_of
from keyplan.server import Access, Role, Token
from tests.apps.hepnos.served import HepnosServer

OPERATIONS = [one for each in (DatabaseOperations, QueueOperations) for one in operations_of(each).values()]
Settings = Mapping[str, str]


@pytest.fixture(scope="module", params=["frames", "http"])
def server(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[HepnosServer]:
    """The same tests for clients that speak frames, and for those that find none and speak HTTP."""
    folder = tmp_path_factory.mktemp("served")
    store = {"store": f"lmdb:{folder}/store?durability=none", "databases": "datasets=2,events=3,products=2"}
    with HepnosServer({**store, "frames": str(request.param == "frames").lower()}) as running:
        running.folder = folder
        yield running
    with hepnos.open(f"lmdb:{folder}/store") as opened:
        assert {found.finding for found in examine(opened)} <= {"no-container", "no-parent"}


@pytest.fixture
def remote(server: HepnosServer) -> Iterator[hepnos.DataStore]:
    with hepnos.open(server.url) as opened:
        yield opened


@pytest.fixture
def dataset(remote: hepnos.DataStore, request: pytest.FixtureRequest) -> hepnos.DataSet:
    """A data set of the test's own."""
    return remote.root.ensure(f"tests/{hashlib.sha256(request.node.name.encode()).hexdigest()[:12]}")


# ---- the API, through the server -------------------------------------------------------------------------------------------


def test_a_store_behind_a_server_is_the_store_in_the_files(
    dataset: hepnos.DataSet, remote: hepnos.DataStore, server: HepnosServer
) -> None:
    event = dataset.create_run(12).create_subrun(2**64 - 2).create_event(0)
    event.store("energy", 1.5)
    with hepnos.open(f"lmdb:{server.folder}/store?durability=none", create=False) as local:
        assert local.counts() == remote.counts() == {"datasets": 2, "runs": 1, "subruns": 1, "events": 3, "products": 2}
        same = local[dataset.path]
        assert isinstance(same, hepnos.DataSet)
        assert same.uuid == dataset.uuid
        assert [each.numbers for each in same.events()] == [(12, 2**64 - 2, 0)]
        assert same.runs[12].subruns[2**64 - 2].events[0].load("energy", float) == 1.5
        assert local.where(event) == remote.where(event)


def test_containers_are_found_through_the_server(dataset: hepnos.DataSet) -> None:
    subrun = dataset.create_run(1).create_subrun(1)
    assert subrun.create_events([5, 3, 9, 3]) == 3
    assert [each.number for each in subrun] == [3, 5, 9]
    assert [each.number for each in subrun.range(reverse=True, limit=2)] == [9, 5]
    assert (3 in subrun, 4 in subrun) == (True, False)
    assert subrun.get(4) is None
    assert subrun.events.lower_bound(4) == subrun[5]
    assert subrun[5].prev() == subrun[3]
    with pytest.raises(hepnos.MissingError):
        subrun[4]
    dataset.ensure("b/c")
    dataset.ensure("a!")
    assert [each.name for each in dataset.datasets] == ["a!", "b"]


@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reversed"])
def test_a_list_of_many_pages_is_whole_and_in_order(dataset: hepnos.DataSet, *, reverse: bool) -> None:
    numbers = np.random.default_rng(7).permutation(20_000)
    created = dataset.create_items(np.full(20_000, 1), np.full(20_000, 1), numbers)
    assert created == (1, 1, 20_000)
    events = dataset.runs[1].subruns[1].events
    expected = list(range(20_000))[:: -1 if reverse else 1]
    assert list(events.numbers(reverse=reverse)) == expected
    assert list(events.numbers(5_000, 5_100, reverse=reverse)) == list(range(5_000, 5_100))[:: -1 if reverse else 1]
    assert events.count() == dataset.events().count() == 20_000
    assert sorted(dataset.events().to_numpy()["event"].tolist()) == list(range(20_000))


def test_products_go_there_and_back_one_by_one_and_in_bulk(dataset: hepnos.DataSet, remote: hepnos.DataStore) -> None:
    columns = [np.full(500, 1), np.arange(500) // 100, np.arange(500)]
    dataset.create_items(*columns)
    values = [bytes([number % 256]) * (number * 10) for number in range(500)]
    hepnos.store_products(dataset, "raw", bytes, columns, values)
    event = dataset.runs[1].subruns[2].events[250]
    assert event.load("raw", bytes) == values[250]
    assert event.load("none", bytes) is None
    found = {item[-8:]: value for item, value in hepnos.load_products(dataset, "raw", bytes)}
    assert [found[number.to_bytes(8, "big")] for number in range(500)] == values
    assert event.store("raw", b"new", mode="new") == event.product_id("raw", bytes)
    assert event.load("raw", bytes) == values[250]
    event.store("other", b"new", mode="exist")
    assert event.load("other", bytes) is None
    event.store("raw", b"over", mode="exist")
    assert remote.load_product(event.product_id("raw", bytes)) == b"over"
    assert event.delete_product("raw", bytes)
    assert list(event.products()) == []


def test_batches_prefetching_and_workers_use_the_server(dataset: hepnos.DataSet, remote: hepnos.DataStore) -> None:
    subrun = dataset.create_run(1).create_subrun(1)
    with remote.batch(max_operations=64) as batch:
        for number in range(200):
            subrun.create_event(number, into=batch).store("n", number, into=batch)
    with remote.prefetch(batch=50, products=[("n", int)]) as prefetcher:
        assert [prefetcher.load(event, "n", int) for event in prefetcher(subrun)] == list(range(200))
        assert prefetcher.statistics.misses == 0
    with ThreadPoolExecutor(2) as executor:
        processor = hepnos.ParallelProcessor(remote, executor=executor, preload=[("n", int)], piece_events=30)
        seen = list(processor.map(dataset, lambda event, products: int(event.load("n", int, source=products))))
    assert sorted(seen) == list(range(200))
    assert remote.databases.is_shared


def test_an_atomic_batch_is_one_commit_or_nothing(dataset: hepnos.DataSet, remote: hepnos.DataStore) -> None:
    subrun = dataset.create_run(1).create_subrun(1)

    def fail_at_the_second(batch: hepnos.WriteBatch) -> None:
        subrun.create_event(1, into=batch)
        subrun.create_event(-1, into=batch)

    with pytest.raises(hepnos.InvalidNumberError), remote.batch(atomic=True) as batch:
        fail_at_the_second(batch)
    assert subrun.events.count() == 0
    with remote.batch(atomic=True) as batch:
        for number in (3, 1, 2):
            subrun.create_event(number, into=batch)
    assert [each.number for each in subrun] == [1, 2, 3]


def test_what_is_removed_is_gone_with_all_that_it_held(dataset: hepnos.DataSet, remote: hepnos.DataStore) -> None:
    for subrun in (1, 2):
        dataset.create_items([1] * 9, [subrun] * 9, range(9))
        dataset.runs[1].subruns[subrun].events[3].store("x", 1.0)
    dataset.runs[1].subruns[1].delete()
    assert {event.numbers[1] for event in dataset.events()} == {2}
    assert [each.number for each in dataset.runs[1]] == [2]
    dataset.delete()
    assert not dataset.exists()
    with pytest.raises(hepnos.DeletedError):
        dataset.events().count()
    assert remote.root.get(dataset.path) is None


def test_two_who_make_one_data_set_agree_on_its_uuid(server: HepnosServer) -> None:
    def make(_: int) -> str:
        with hepnos.open(server.url) as store:
            return str(store.root.ensure("race/of/many").uuid)

    with ThreadPoolExecutor(4) as threads:
        assert len(set(threads.map(make, range(12)))) == 1


def test_a_number_and_a_key_that_cannot_be_are_refused_before_they_are_sent(dataset: hepnos.DataSet) -> None:
    with pytest.raises(hepnos.InvalidNumberError):
        dataset.create_run(2**64 - 1)
    with pytest.raises(EngineLimitError):
        dataset.store("x" * 600, b"")
    assert list(dataset.runs) == []


def test_a_store_that_is_opened_for_reading_writes_nothing(dataset: hepnos.DataSet, server: HepnosServer) -> None:
    dataset.create_run(1)
    with hepnos.open(server.url, readonly=True) as store:
        same = store[dataset.path]
        assert isinstance(same, hepnos.DataSet)
        assert [run.number for run in same.runs] == [1]
        with pytest.raises(KeyplanError):
            same.create_run(2)
    assert dataset.runs.count() == 1


def test_a_server_makes_no_databases_for_who_uses_it(server: HepnosServer) -> None:
    with pytest.raises(StoreMissingError, match="rebalance"):
        hepnos.open(server.url, databases={"events": 4})
    with pytest.raises(RingMismatchError):
        hepnos.open(server.url, databases={"events": 2})


# ---- what the server refuses ------------------------------------------------------------------------------------------------


class Raw:
    """Requests by hand."""

    def __init__(self, client: httpx.Client, store: hepnos.DataStore) -> None:
        self.client = client
        engine: Any = store.databases.rings
        self.rings = {
            (kind.value, number): hashlib.blake2b(database.description, digest_size=8).hexdigest()
            for kind, ring in engine.items()
            for number, database in enumerate(ring.databases)
        }

    def post(self, kind: str, number: int, verb: str, body: bytes, **options: str) -> httpx.Response:
        query = {"ring": self.rings.get((kind, number), "0" * 16), **options}
        path = f"/hepnos/databases/{kind}/{number}/{verb}"
        return self.client.post(path, params=query, content=body, headers={"Content-Type": PACKED})


@pytest.fixture(scope="module")
def client(server: HepnosServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=60) as opened:
        yield opened


@pytest.fixture
def raw(client: httpx.Client, remote: hepnos.DataStore) -> Raw:
    return Raw(client, remote)


UUID_BYTES = bytes(range(16))
ONE = (1).to_bytes(8, "big")
NOBODY = b"\xff" * 8
RING = b"\x00\x00keyplan.ring"


@pytest.mark.parametrize(
    ("kind", "keys", "values"),
    [
        ("runs", [UUID_BYTES + ONE + ONE], []),
        ("runs", [UUID_BYTES + NOBODY], []),
        ("runs", [UUID_BYTES + ONE], [b"value"]),
        ("runs", [UUID_BYTES + ONE], [b"", b""]),
        ("runs", [UUID_BYTES + ONE, UUID_BYTES + ONE], []),
        ("runs", [RING], []),
        ("runs", [None], []),
        ("subruns", [UUID_BYTES + NOBODY + ONE], []),
        ("datasets", [b"\x00aaa"], [b"short"]),
        ("datasets", [b"\x00aaa"], []),
        ("datasets", [b"\x01aaa"], [UUID_BYTES]),
        ("datasets", [b"\x00a\xff"], [UUID_BYTES]),
        ("datasets", [RING], [UUID_BYTES]),
        ("products", [UUID_BYTES + ONE * 3], [b""]),
        ("products", [UUID_BYTES + ONE * 3 + b"label"], [b""]),
        ("products", [UUID_BYTES + ONE * 3 + b"label#"], [b""]),
    ],
)
def test_keys_and_values_that_the_database_cannot_have_are_refused(
    raw: Raw, remote: hepnos.DataStore, kind: str, keys: list[bytes | None], values: list[bytes]
) -> None:
    before = raw_keys(remote, kind)
    for number in range(remote.counts()[kind]):
        answer = raw.post(kind, number, "put", pack(keys, values))
        assert answer.status_code == 400, answer.text
        answer = raw.post(kind, number, "commit", pack([], keys, values, [], [], [], [], []))
        assert answer.status_code == 400, answer.text
    assert raw_keys(remote, kind) == before


def raw_keys(store: hepnos.OpenStore, kind: str) -> list[bytes]:
    found: list[bytes] = []
    for database in store.databases.rings[hepnos.Kind(kind)].databases:
        with database.snapshot() as snapshot:
            found += [entry.key for entry in snapshot.scan(ALL_KEYS, keys_only=True)]
    return found


def test_a_key_is_taken_by_the_database_that_it_is_placed_on_alone(raw: Raw, remote: hepnos.DataStore) -> None:
    key = UUID_BYTES + ONE * 3
    home = remote.databases.place(hepnos.Kind.EVENT, key)
    statuses = [raw.post("events", number, "put", pack([key], [])).status_code for number in range(3)]
    assert statuses == [200 if number == home else 400 for number in range(3)]
    assert raw.post("events", home, "commit", pack([], [], [], [key], [], [], [], [])).status_code == 200
    assert remote.raw_value(hepnos.Kind.EVENT, key) is None


def test_the_ring_s_description_is_not_removed(raw: Raw, remote: hepnos.DataStore) -> None:
    for body in (
        pack([], [], [], [RING], [], [], [], []),
        pack([], [], [], [], [b""], [None], [], []),
        pack([RING], [], [], [], [], [], [], []),
    ):
        assert raw.post("runs", 0, "commit", body).status_code == 400
    assert remote.databases.rings[hepnos.Kind.RUN].databases[0].fenced_value(b"x", ((RING, b""),))[0] is False
    assert raw.post("runs", 0, "get", pack([RING])).status_code == 200


def test_a_guard_that_does_not_hold_is_a_conflict_for_the_client(dataset: hepnos.DataSet, raw: Raw) -> None:
    key = dataset.create_run(1).raw_key
    assert raw.post("runs", 0, "commit", pack([key], [key], [], [], [], [], [], [])).status_code == 409
    with pytest.raises(CommitConflictError):
        dataset.datastore.databases.rings[hepnos.Kind.RUN].databases[0].commit(
            Commit((KeyAbsent(key),), (Put(key, b""),))
        )


def test_a_value_that_was_read_is_a_guard_for_the_client(dataset: hepnos.DataSet, raw: Raw) -> None:
    dataset.store("x", 1)
    datastore = dataset.datastore
    key = next(key for key in raw_keys(datastore, "products") if key.startswith(dataset.uuid.bytes))
    place = datastore.databases.place(hepnos.Kind.PRODUCT, key)
    database = datastore.databases.rings[hepnos.Kind.PRODUCT].databases[place]

    def write_over(guard: KeyUnchanged) -> None:
        database.commit(Commit((guard,), (Put(key, b"written"),)))

    with database.snapshot() as snapshot:
        (entry,) = snapshot.get_many([key])
        assert entry is not None
        assert entry == snapshot.get(key) == next(snapshot.scan(KeyRange.of_key(key)))
    seen = KeyUnchanged(key, entry.mod_revision)
    for is_deleted in (False, True):
        database.commit(Commit((), (Delete(key) if is_deleted else Put(key, b"another"),)))
        with pytest.raises(CommitConflictError):
            write_over(seen)
    database.put_sorted([key], [entry.value])
    write_over(seen)
    assert database.fenced_value(key, ((RING, database.value(RING)),)) == (True, b"written")
    for fingerprints in ([], [b"short"]):
        body = pack([], [], [], [], [], [], [key], fingerprints)
        assert raw.post("products", place, "commit", body).status_code == 400


@pytest.mark.parametrize(
    ("path", "options", "status"),
    [
        ("runs/7/get", {}, 404),
        ("things/0/get", {}, 404),
        ("runs/0/get", {"ring": "0" * 16}, 409),
        ("runs/0/list", {"limit": "0"}, 400),
        ("runs/0/list", {"limit": "x"}, 400),
        ("runs/0/list", {"limit": "9" * 5_000}, 200),
        ("runs/0/list", {"reverse": "yes"}, 400),
        ("runs/0/put", {"mode": "other"}, 400),
    ],
)
def test_requests_that_mean_nothing_are_refused(raw: Raw, path: str, options: dict[str, str], status: int) -> None:
    kind, number, verb = path.split("/")
    body = pack([b"", None]) if verb == "list" else pack([], []) if verb == "put" else pack([b"x"])
    assert raw.post(kind, int(number), verb, body, **options).status_code == status


@pytest.mark.parametrize("body", [b"", b"\x01", b"\x01\x00\x00\x00\x05\x00\x00\x00abc", pack([b"a"]) + b"x"])
def test_a_body_that_is_none_is_refused(raw: Raw, body: bytes) -> None:
    assert raw.post("runs", 0, "get", body).status_code == 400


def test_another_content_type_is_refused(raw: Raw) -> None:
    path = f"/hepnos/databases/runs/0/get?ring={raw.rings['runs', 0]}"
    assert raw.client.post(path, content=pack([b"x"]), headers={"Content-Type": "text/plain"}).status_code == 415


def test_the_routes_are_described(client: httpx.Client) -> None:
    described = client.get("/openapi.json").json()
    verbs = {path.rpartition("/")[2] for path in described["paths"] if path.startswith("/hepnos/databases/{kind}")}
    assert verbs == {"get", "list", "count", "put", "commit"}
    commit = described["paths"]["/hepnos/databases/{kind}/{number}/commit"]["post"]
    assert list(commit["requestBody"]["content"]) == [PACKED]
    assert {"404", "409", "413", "415", "default"} <= commit["responses"].keys()
    page = described["paths"]["/hepnos/databases/{kind}/{number}/list"]["post"]["responses"]["200"]
    assert (list(page["content"]), list(page["headers"])) == ([PACKED], ["keyplan-more"])
    databases = described["components"]["schemas"]["HepnosStore"]["properties"]["databases"]
    assert databases["additionalProperties"]["items"] == {"$ref": "#/components/schemas/HepnosDatabase"}


@pytest.mark.parametrize("declared", OPERATIONS)
def test_an_operation_stands_in_the_reference(declared: Operation) -> None:
    page = (Path(__file__).parents[3] / "docs/reference/hepnos-http.md").read_text()
    verb = declared.path.removeprefix("/hepnos/databases/{kind}/{number}").removeprefix("/hepnos")
    begins = f"| `{verb[1:]}` |", f"`{declared.method} {declared.path}`"
    (said,) = [part for part in re.split(r"\n\n|\n(?=\|)", page) if part.startswith(begins)]
    assert f"`{declared.needs.act}`" in said
    for parameter in declared.at(Place.QUERY):
        assert re.search(rf"[`?]{parameter.word}\b", page), parameter.word


# ---- who asks, and when the server goes away --------------------------------------------------------------------------------


def test_a_token_is_asked_for_where_the_server_wants_one() -> None:
    access = Access([Token.of_text(Role.CLIENT, "physics", "a-token-of-a-test")], local_role=None)
    with HepnosServer({"store": "memory:hepnos-with-token"}, access=access) as server:
        for token, said in ((None, "was sent no token"), ("another", "does not know the token")):
            with pytest.raises(UnauthorizedError, match=said):
                hepnos.open(server.url, token=token)
        with hepnos.open(server.url, token="a-token-of-a-test") as store:
            store.root.ensure("a").create_run(1)
            assert "a-token-of-a-test" not in repr(store.address)


def test_a_server_that_went_away_is_unavailable_and_its_successor_is_used() -> None:
    settings = {"store": "memory:hepnos-that-stays"}
    engine = open_engine("memory:hepnos-that-stays.runs.0")  # keeps the memory while no server is there
    with HepnosServer(settings) as server:
        store = hepnos.open(server.url)
        dataset = store.root.ensure("a")
        dataset.create_run(1)
    with pytest.raises(EngineUnavailableError):
        dataset.runs.count()
    with pytest.raises(EngineUnavailableError):
        hepnos.open(server.url)
    store.close()
    with pytest.raises(EngineUnavailableError, match="closed"):
        dataset.runs.count()
    engine.close()


@pytest.mark.parametrize(
    "settings",
    [{}, {"store": "memory:", "databases": "events"}, {"store": "memory:", "databases": "events=0"}],
    ids=["no-store", "no-number", "none"],
)
def test_settings_that_cannot_be_are_refused(settings: Settings) -> None:
    with pytest.raises(InvalidInputError):
        HepnosServer(settings)


@pytest.mark.parametrize("url", ["http://", "http://user@host", "http://host:x", "https://host?a=b", "http://a b"])
def test_what_is_no_url_of_a_server_is_refused(url: str) -> None:
    with pytest.raises(EngineOpenError):
        hepnos.open(url)


# ---- forms ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "column",
    [[], [b""], [None], [b"a", b"b"], [b"a", b""], [b"a", None, b"abc"], [None, b"a"], [b"\0\0", b"\0\0"], [b"", b""]],
)
def test_columns_are_unpacked_as_they_were_packed(column: list[bytes | None]) -> None:
    assert unpack(pack(column, column), 2) == [column, column]


def test_a_packed_column_is_counts_lengths_and_bytes() -> None:
    assert pack([b"ab", None]).hex() == "02000000" + "02000000" + "ffffffff" + "6162"
