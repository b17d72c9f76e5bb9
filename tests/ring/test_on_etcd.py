"""Rings over a real etcd, and over databases of three engines: reads, writes and growth as over memories."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from uuid import UUID

import pytest

from keyplan.engine import ALL_KEYS, Capability, Engine, MemoryEngine, PrefixedEngine, open_engine
from keyplan.errors import AlreadyExistsError, RingMismatchError, SplitCommitError, UnsupportedByEngineError
from keyplan.ring import RING_KEY, RingEngine, rebalance, ring_of
from keyplan.store import Store
from tests.ring.sites import Blade, BladeKey, NumberKey, Numbers, SerialKey, Site
from tests.servers.etcd import EtcdServer

RACKS = [f"r{number:02}" for number in range(12)]
GROUPS = 40
ALL = {UUID(int=group).bytes + bytes(8): b"%d" % group for group in range(GROUPS)}


@pytest.fixture
def url(etcd_server: EtcdServer) -> str:
    return etcd_server.emptied().url


def on_etcd(url: str, number: int) -> Engine:
    """Open one of the databases that share a server, below a prefix of its own."""
    return PrefixedEngine(open_engine(url), f"{number}/".encode())


@pytest.fixture
def ring(url: str) -> Iterator[RingEngine]:
    with ring_of([on_etcd(url, 0), on_etcd(url, 1)], Site) as opened:
        yield opened


@pytest.fixture
def site(ring: RingEngine) -> Site:
    site = Site(Store(ring))
    for rack in RACKS:
        site.blades.insert(BladeKey(rack, "a"), Blade(f"serial-{rack}", ("new",)))
    return site


def test_records_spread_and_are_listed_in_key_order(ring: RingEngine, site: Site) -> None:
    assert [key.rack for key, _ in site.blades.list()] == RACKS
    assert [key.rack for key in site.blades.keys(reverse=True, limit=2)] == ["r11", "r10"]
    assert [key.rack for key, _ in site.by_tag.list("new")] == RACKS
    counts = [_keys_in(database) for database in ring.databases]
    assert [count % 3 for count in counts] == [0, 0], "a record is not where its index entries are"
    assert sum(counts) == 3 * len(RACKS)
    assert min(counts) > 0


def test_keys_asked_for_together_come_from_their_databases(site: Site) -> None:
    asked = [BladeKey(rack, "a") for rack in ("r07", "r99", "r00", "r11", "r07")]
    found = [blade and blade.serial for blade in site.blades.get_many(asked)]
    assert found == ["serial-r07", None, "serial-r00", "serial-r11", "serial-r07"]


def test_guards_and_unique_indexes_hold(site: Site) -> None:
    assert site.by_serial.key_of(SerialKey("r03", "serial-r03")) == BladeKey("r03", "a")
    with pytest.raises(AlreadyExistsError):
        site.blades.insert(BladeKey("r03", "a"), Blade("other"))


def test_a_transaction_over_two_databases_is_refused_and_nothing_is_written(ring: RingEngine, site: Site) -> None:
    encode = Site.bound().tables["blades"].keys.encode
    homes = {rack: ring.database_of(encode(BladeKey(rack, "a"))) for rack in RACKS}
    first, second = (next(rack for rack in RACKS if homes[rack] == number) for number in (0, 1))

    def delete_both(tx: Site) -> None:
        tx.blades.delete(BladeKey(first, "a"))
        tx.blades.delete(BladeKey(second, "a"))

    with pytest.raises(SplitCommitError):
        site.run(delete_both)
    assert site.blades.count() == len(RACKS)


def test_a_watch_or_a_lease_on_a_ring_is_refused_by_its_capability(ring: RingEngine) -> None:
    for capability, act in (
        (Capability.WATCH, lambda: ring.watch(ALL_KEYS, after=0)),
        (Capability.LEASES, lambda: ring.lease(10)),
        (Capability.REVISIONS, lambda: ring.compact(1)),
    ):
        with pytest.raises(UnsupportedByEngineError) as caught:
            act()
        assert (caught.value.facts["engine"], caught.value.facts["capability"]) == ("ring", capability.value)


def test_a_ring_of_three_engines_grows_on_etcd(url: str, tmp_path: Path) -> None:
    lmdb = f"lmdb:{tmp_path}/one?history=off&durability=none"
    memory = MemoryEngine()
    with ExitStack() as stack:
        engines: list[Engine] = [on_etcd(url, 0), stack.enter_context(open_engine(lmdb)), memory]
        stack.callback(engines[0].close)
        ring = ring_of(engines, Numbers)
        keys = sorted(ALL)
        assert ring.put_sorted(keys, [ALL[key] for key in keys]) == GROUPS
        before = [_pairs_in(engine) for engine in engines]
        new = stack.enter_context(on_etcd(url, 3))
        done = rebalance([*engines, new])
        after = [_pairs_in(engine) for engine in (*engines, new)]
        with pytest.raises(RingMismatchError):
            ring.value(keys[0])
        assert Numbers(Store(ring_of([*engines, new], Numbers))).numbers.get(NumberKey(UUID(int=7), 0)) == b"7"
    assert _union(after) == ALL
    assert (done.moved, done.entries) == (len(after[3]), GROUPS)
    assert after[3], "the new database took nothing"
    for had, has in zip(before, after, strict=False):
        assert has.items() <= had.items(), "something moved onto an old database"


def _keys_in(engine: Engine) -> int:
    return len(_pairs_in(engine))


def _pairs_in(engine: Engine) -> dict[bytes, bytes]:
    with engine.snapshot() as snapshot:
        return {key: value for key, value in snapshot.pairs(ALL_KEYS) if key != RING_KEY}


def _union(databases: Sequence[dict[bytes, bytes]]) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = {}
    for own in databases:
        assert not found.keys() & own.keys(), "a record is in two databases"
        found |= own
    return found
