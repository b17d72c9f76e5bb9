"""What happens between a look at a ring and what is done after it: loads beside a rebalance, two who make one ring."""

from collections.abc import Callable

import pytest

from keyplan.engine import ALL_KEYS, Commit, Engine, MemoryEngine, Put, Snapshot, WrappedEngine
from keyplan.errors import CommitConflictError, CorruptionError, RingMismatchError
from keyplan.ring import placement_of, rebalance, ring_of
from keyplan.store import Store
from tests.ring.sites import Blade, BladeKey, Site, memories


class Between(WrappedEngine):
    """Calls `between` once, before the next commit, load or snapshot, as another process might act then."""

    def __init__(self, inner: Engine) -> None:
        super().__init__(inner)
        self.before_write: Callable[[], object] | None = None
        self.before_snapshot: list[Callable[[], object]] = []

    def commit(self, commit: Commit) -> int:
        self._act()
        return self.inner.commit(commit)

    def load(self, entries: object) -> int:
        self._act()
        return self.inner.load(entries)  # type: ignore[arg-type]

    def snapshot(self) -> Snapshot:
        if self.before_snapshot:
            self.before_snapshot.pop(0)()
        return self.inner.snapshot()

    def _act(self) -> None:
        act, self.before_write = self.before_write, None
        if act is not None:
            act()


def moving_pairs() -> list[tuple[bytes, bytes]]:
    """A record, with its index entries, that lies in database 0 of two and in database 2 of three."""
    two, three = placement_of(Site.bound(), 2), placement_of(Site.bound(), 3)
    encode = Site.bound().tables["blades"].keys.encode
    keys = (BladeKey(str(number), "1") for number in range(1_000))
    key = next(key for key in keys if (two.of_key(encode(key)), three.of_key(encode(key))) == (0, 2))
    with Store(MemoryEngine()) as store:
        Site(store).blades.put(key, Blade("s1", ("t",)))
        with store.engine.snapshot() as snapshot:
            return list(snapshot.pairs(ALL_KEYS))


def test_a_load_beside_a_rebalance_is_refused_or_moved() -> None:
    first = Between(MemoryEngine())
    engines: list[Engine] = [first, *memories(2)]
    old = ring_of(engines[:2], Site)
    first.before_write = lambda: rebalance(engines)
    with pytest.raises(RingMismatchError):
        old.load(moving_pairs())
    new = Site(Store(ring_of(engines, Site)))
    assert list(new.blades.list()) == []


def test_a_load_is_refused_whole_where_a_key_exists() -> None:
    engines = memories(2)
    ring = ring_of(engines, Site)
    pairs = moving_pairs()
    assert ring.load(pairs) == len(pairs)
    with pytest.raises(CommitConflictError):
        ring.load(pairs)


def test_a_load_between_keys_that_exist_goes_through() -> None:
    ring = ring_of(memories(2), Site)
    ring.load([(b"b", b"")])
    assert ring.load([(b"a", b""), (b"c", b"")]) == 2
    with ring.snapshot() as snapshot:
        assert list(snapshot.keys(ALL_KEYS)) == [b"a", b"b", b"c"]


def test_a_settled_ring_is_looked_through_for_what_lies_in_the_wrong_database() -> None:
    engines = memories(3)
    ring = ring_of(engines, Site)
    pairs = moving_pairs()
    engines[0].load(pairs)  # as a program may that knows nothing of the ring
    done = rebalance(engines)
    assert done.moved == len(pairs)
    ((key, blade),) = Site(Store(ring)).blades.list()
    assert Site(Store(ring)).blades.get(key) == blade == Blade("s1", ("t",))


def test_what_stands_where_it_belongs_is_not_overwritten() -> None:
    engines = memories(3)
    ring = ring_of(engines, Site)
    pairs = moving_pairs()
    engines[0].load(pairs)
    ring.load(pairs)
    (raw_key,) = [key for key, _ in pairs if Site.bound().tables["blades"].keys.decode(key) is not None]
    engines[2].commit(Commit((), (Put(raw_key, b'{"serial":"s1","tags":["t"],"watts":5}'),)))
    rebalance(engines)
    assert [value for key, value in pairs_of(engines[2]) if key == raw_key] == [
        b'{"serial":"s1","tags":["t"],"watts":5}'
    ]
    assert raw_key not in dict(pairs_of(engines[0]))


def pairs_of(engine: Engine) -> list[tuple[bytes, bytes]]:
    with engine.snapshot() as snapshot:
        return list(snapshot.pairs(ALL_KEYS))


def test_a_count_that_another_program_made_wrong_can_be_taken_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    engines = memories(3)
    Site(Store(ring_of(engines[:2], Site))).blades.put(BladeKey("a", "1"), Blade("sa", ("t",)))
    rebalancing = __import__("keyplan.ring.rebalance", fromlist=["_Rebalance"])._Rebalance
    count = rebalancing._count

    def count_and_write(run: object) -> int:
        counted: int = count(run)
        engines[0].load([(b"z", b"")])
        return counted

    with monkeypatch.context() as patch:
        patch.setattr(rebalancing, "_count", count_and_write)
        with pytest.raises(CorruptionError, match="recount"):
            rebalance(engines)
    with pytest.raises(CorruptionError, match="recount"):
        rebalance(engines)
    assert rebalance(engines, recount=True).databases == 3
    assert len(list(Site(Store(ring_of(engines, Site))).blades.list())) == 1


def test_two_who_make_one_ring_both_have_it() -> None:
    shared = memories(2)

    def other() -> None:
        Site(Store(ring_of(shared, Site))).blades.put(BladeKey("a", "1"), Blade("sa", ("t",)))

    first = Between(shared[0])
    # Why at the second: the first snapshot found no description, and the second is asked whether there are keys.
    first.before_snapshot = [lambda: None, other]
    ring = ring_of([first, shared[1]], Site)
    assert [key for key, _ in Site(Store(ring)).blades.list()] == [BladeKey("a", "1")]
