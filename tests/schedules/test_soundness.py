"""The exhaustive search beside the plain one, on programs drawn by chance: both come to the same ends."""

import random
from collections.abc import Callable, Sequence

import pytest

from keyplan.engine import (
    ALL_KEYS,
    SYSTEM_CLOCK,
    Commit,
    Delete,
    DeleteRange,
    KeyAbsent,
    KeyRange,
    KeyUnchanged,
    Put,
    RangeUnchanged,
    Snapshot,
)
from keyplan.errors import CommitConflictError, KeyplanError, LeaseNotFoundError
from keyplan.store import Store
from keyplan.testing.schedules import (
    Actor,
    Exhaustive,
    Outcome,
    Preemptions,
    Scenario,
    Strategy,
    actor,
    actor_waits,
    explore,
    passes,
    renews,
)
from keyplan.testing.schedules.batons import Batons
from keyplan.testing.schedules.bounded import StateKeys
from keyplan.testing.schedules.running import Run
from keyplan.testing.schedules.surroundings import controlled_surroundings

KEYS = [b"a", b"b", b"c"]
WATCHED = KeyRange(b"a", b"c")


class Program:
    """A small program of engine calls: what it does next depends on what it has seen."""

    def __init__(self, chance: random.Random, kinds: str) -> None:
        self.name = "".join(chance.choice(kinds) for _ in range(chance.randint(1, 3)))
        self.seeds = [chance.randrange(1_000) for _ in self.name]

    def __call__(self, store: Store) -> object:
        self.seen: list[object] = []
        self.snapshots: list[Snapshot] = []
        for kind, seed in zip(self.name, self.seeds, strict=True):
            chance = random.Random(seed)
            try:
                ACTS[kind](self, store, chance)
            except KeyplanError as error:
                self.seen.append(type(error).__name__)
        return tuple(self.seen)

    def open(self, store: Store, chance: random.Random) -> None:
        """Look, and leave the snapshot open for later."""
        self.snapshots.append(store.engine.snapshot())
        self.seen.append(self.snapshots[-1].value(chance.choice(KEYS)))

    def read_late(self, store: Store, chance: random.Random) -> None:
        """Commit, then read from the oldest snapshot, as what was seen says."""
        self.put(store, chance)
        if self.snapshots:
            if self.seen[0] is None:
                self.seen.append(self.snapshots[0].value(chance.choice(KEYS)))
            else:
                self.seen.append([entry.value for entry in self.snapshots[0].scan(ALL_KEYS, limit=2)])

    def update(self, store: Store, chance: random.Random) -> None:
        """Read a key and write another under a guard; once more when it is refused."""
        read, write = chance.choice(KEYS), chance.choice(KEYS)
        for _ in range(2):
            with store.engine.snapshot() as snapshot:
                entry = snapshot.get(read)
            guard = KeyAbsent(read) if entry is None else KeyUnchanged(read, entry.mod_revision)
            value = b"" if entry is None else entry.value
            try:
                store.engine.commit(Commit((guard,), (Put(write, value + b"+"),)))
            except CommitConflictError:
                self.seen.append("refused")
            else:
                return

    def put(self, store: Store, chance: random.Random) -> None:
        store.engine.commit(Commit((), (Put(chance.choice(KEYS), b"%d" % chance.randrange(3)),)))

    def delete(self, store: Store, chance: random.Random) -> None:
        store.engine.commit(Commit((), (Delete(chance.choice(KEYS)),)))

    def clear(self, store: Store, chance: random.Random) -> None:
        store.engine.commit(Commit((), (DeleteRange(KeyRange(chance.choice(KEYS), None)),)))

    def sum_up(self, store: Store, chance: random.Random) -> None:
        """Write a number of keys under a guard of their range."""
        with store.engine.snapshot() as snapshot:
            keys = tuple(snapshot.keys(WATCHED))
            revision = snapshot.revision
        store.engine.commit(Commit((RangeUnchanged(WATCHED, revision, keys),), (Put(b"c", b"%d" % len(keys)),)))

    def value(self, store: Store, chance: random.Random) -> None:
        self.seen.append(store.engine.value(chance.choice(KEYS)))

    def poll(self, store: Store, chance: random.Random) -> None:
        """Wait for a change of a range that a watch tells, or for the time."""
        with store.engine.snapshot() as snapshot:
            after = snapshot.revision
        watch = store.engine.watch(WATCHED, after=after)
        self.seen.append([(event.key, event.entry is None) for event in watch.poll(1.0)])
        watch.close()

    def wait(self, store: Store, chance: random.Random) -> None:
        key = chance.choice(KEYS)
        actor_waits(lambda: store.engine.value(key) is not None)
        self.seen.append(store.engine.value(key))

    def lease(self, store: Store, chance: random.Random) -> None:
        lease = store.engine.lease(5)
        try:
            store.engine.commit(Commit((), (Put(chance.choice(KEYS), b"leased", lease.id),)))
            self.seen.append(lease.seconds_left())
        except LeaseNotFoundError:
            self.seen.append("over")

    def tell_time(self, store: Store, chance: random.Random) -> None:
        """Write what the clock shows."""
        now = SYSTEM_CLOCK.monotonic()
        store.engine.commit(Commit((), (Put(chance.choice(KEYS), b"%d" % now),)))


ACTS: dict[str, Callable[[Program, Store, random.Random], None]] = {
    "o": Program.open,
    "r": Program.read_late,
    "u": Program.update,
    "p": Program.put,
    "d": Program.delete,
    "c": Program.clear,
    "s": Program.sum_up,
    "v": Program.value,
    "w": Program.poll,
    "a": Program.wait,
    "l": Program.lease,
    "t": Program.tell_time,
}


def set_up(store: Store) -> None:
    store.engine.commit(Commit((), (Put(b"a", b"0"), Put(b"b", b"1"))))


def ends_of(
    actors: list[Actor], strategy: Strategy, faults: str, *, schedules_max: int = 100_000
) -> tuple[int, set[object]]:
    """Return how many schedules were run, and what came of them."""
    ends: set[object] = set()

    def note(outcome: Outcome) -> None:
        ends.add((outcome.stored(), repr(sorted(outcome.answers.items())), outcome.crashed, outcome.faults))

    scenario = Scenario(*actors, setup=set_up, invariants=[note], faults=faults, may_wait_forever=True)
    found = explore(scenario, strategy=strategy, seconds_max=60, schedules_max=schedules_max)
    assert found.failures == []
    return found.schedules, ends


def drawn(seed: int, kinds: str) -> list[Actor]:
    """Two or three programs of such acts; where time matters, beside one that lets it pass."""
    chance = random.Random(seed)
    programs = [Program(chance, kinds) for _ in range(chance.choice([2, 2, 3]))]
    actors = [actor(program, f"{program.name}-{place}") for place, program in enumerate(programs)]
    if set("ltw") & set(kinds):
        actors.insert(chance.randrange(len(actors)), passes(10))
    return actors


PLAIN_SCHEDULES_MAX = 700
"""What has more schedules is left out: a program drawn by chance may be of any size."""


def compared(seed: int, kinds: str, faults: str) -> bool:
    """Explore a drawn scenario by both searches; False when it is too large for the plain one."""
    actors = drawn(seed, kinds)
    count, plain = ends_of(actors, Preemptions(1_000, is_hashed=False), faults, schedules_max=PLAIN_SCHEDULES_MAX)
    if count == PLAIN_SCHEDULES_MAX:
        return False
    reduced_count, reduced = ends_of(actors, Exhaustive(), faults)
    names = [each.name for each in actors]
    assert reduced == plain, f"seed {seed}, {names}: {len(plain - reduced)} ends were left out"
    assert reduced_count <= count
    return True


@pytest.mark.parametrize(
    ("kinds", "faults"),
    [("oruspdcv", ""), ("orup", "cun"), ("wpd", ""), ("wpdt", ""), ("apdv", ""), ("lpdv", ""), ("ltwau", "")],
)
def test_both_searches_come_to_the_same_ends(kinds: str, faults: str) -> None:
    assert sum(compared(seed, kinds, faults) for seed in range(12)) >= 6


def test_who_waits_for_what_another_takes_away_is_let_go_before_that() -> None:
    def take_and_give(store: Store) -> None:
        store.engine.commit(Commit((), (Delete(b"a"),)))
        store.engine.commit(Commit((), (Put(b"a", b"new"),)))

    def wait(store: Store) -> bytes | None:
        actor_waits(lambda: store.engine.value(b"a") is not None)
        return store.engine.value(b"a")

    _, ends = ends_of([actor(take_and_give), actor(wait)], Exhaustive(), "")
    assert {end[1] for end in ends if isinstance(end, tuple)} == {
        f"[('take_and_give', None), ('wait', {value!r})]" for value in (b"0", None, b"new")
    }


def test_who_looks_at_the_clock_meets_who_lets_time_pass() -> None:
    def tell_time(store: Store) -> None:
        store.engine.commit(Commit((), (Put(b"a", b"%d" % SYSTEM_CLOCK.monotonic()),)))
        store.engine.commit(Commit((), (Put(b"b", b"%d" % SYSTEM_CLOCK.monotonic()),)))

    found, ends = ends_of([actor(tell_time), passes(10)], Exhaustive(), "")
    assert (found, {end[0] for end in ends if isinstance(end, tuple)}) == (
        3,
        {(((b"a", b"%d" % first, 0), (b"b", b"%d" % second, 0)),) for first, second in LOOKS},
    )


LOOKS = [(1_000, 1_000), (1_000, 1_010), (1_010, 1_010)]
"""What two looks at the clock show beside one who lets ten seconds pass: also when that is before the first of them."""


def test_a_condition_is_asked_by_the_clock_of_its_actor() -> None:
    def waits_for_the_time(store: Store) -> float:
        actor_waits(lambda: SYSTEM_CLOCK.wall() >= 1_700_000_010)
        return SYSTEM_CLOCK.wall()

    _, ends = ends_of([actor(waits_for_the_time), passes(5, times=2)], Exhaustive(), "")
    assert {end[1] for end in ends if isinstance(end, tuple)} == {
        "[('passes 5s', None), ('waits_for_the_time', 1700000010.0)]"
    }


def test_who_renews_anothers_leases_meets_all_that_it_does() -> None:
    def holds(store: Store) -> list[bool]:
        lease = store.lease(10)
        store.engine.commit(Commit((), (Put(b"a", b"1", lease.id),)))
        lost = [lease.is_lost]
        store.engine.value(b"b")
        return [*lost, lease.is_lost]

    def revokes(store: Store) -> None:
        store.resume_lease(1, keep_alive=False).revoke()

    holder = actor(holds, "holds")
    actors = [holder, renews(holder), actor(revokes, "revokes")]
    count, plain = ends_of(actors, Preemptions(1_000, is_hashed=False), "")
    reduced_count, reduced = ends_of(actors, Exhaustive(), "")
    assert reduced == plain
    assert reduced_count < count
    answers = {end[1] for end in plain if isinstance(end, tuple)}
    assert any("[False, True]" in told for told in answers)


# ---- states that were gone through ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kinds", ["oruspdcv", "apdv", "tpd", "oruspdcvt"])
def test_so_does_the_search_that_leaves_states_which_it_knows(kinds: str) -> None:
    for seed in (3, 12, 33):
        actors = drawn(seed, kinds)
        count, plain = ends_of(actors, Preemptions(1_000, is_hashed=False), "", schedules_max=PLAIN_SCHEDULES_MAX)
        if count < PLAIN_SCHEDULES_MAX:
            assert ends_of(actors, Preemptions(1_000), "")[1] == plain, f"seed {seed}"


def read_late(store: Store) -> bytes | None:
    snapshot = store.engine.snapshot()
    store.engine.value(b"q")
    return snapshot.value(b"a")


def write_if_unchanged(store: Store) -> None:
    with store.engine.snapshot() as snapshot:
        guard = RangeUnchanged(WATCHED, snapshot.revision, tuple(snapshot.keys(WATCHED)))
    store.engine.commit(Commit((guard,), (Put(b"x", b""),)))


def tell_time_late(store: Store) -> float:
    store.engine.value(b"q")
    now = SYSTEM_CLOCK.monotonic()
    store.engine.value(b"q")
    return now


def put_a(store: Store) -> None:
    store.engine.commit(Commit((), (Put(b"a", b"new"),)))


def key_after(scenario: Scenario, order: Sequence[int]) -> bytes:
    """The digest of the state after these steps, as a search has it that repeats them."""
    with controlled_surroundings():
        run = Run(scenario, Batons(), is_recorded=True)
        run.begin()
        keys = StateKeys(run)
        for place in order:
            run.step(place)
            keys.pass_state()
        key = keys.key()
        run.end()
    return key


@pytest.mark.parametrize(
    ("act", "other"),
    [(read_late, actor(put_a)), (write_if_unchanged, actor(put_a)), (tell_time_late, passes(10))],
    ids=["an open snapshot", "a revision", "the time"],
)
def test_what_an_actor_saw_before_and_will_use_is_part_of_a_state(act: Callable[[Store], object], other: Actor) -> None:
    scenario = Scenario(act, other, setup=set_up, invariants=[])
    assert key_after(scenario, (0, 1)) != key_after(scenario, (1, 0))
    assert key_after(scenario, (0, 1)) == key_after(scenario, (0, 1))
