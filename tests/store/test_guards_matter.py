"""Each guard of a plan is needed, and together they are enough: planned transactions beside other work, with and without each.

A transaction looks, other work comes, the transaction commits. Where it commits, the store must be as after some order of the
two, and whole if one of these orders leaves it whole. With one guard dropped from its plan, some other work must break that.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from typing import NamedTuple

import pytest

import keyplan.store.session
from keyplan.engine import Commit, Delete, Engine, Guard, KeyRange, MemoryEngine, Put, Reads, Snapshot, WrappedEngine
from keyplan.errors import IndexNotReadyError, KeyplanError
from keyplan.jobs import UNPACED
from keyplan.maintenance import build_index, carry_out, check, drop_index, plan_repairs, prepare_index
from keyplan.store import Plan, Store, plan_writes
from keyplan.store.plan import plan_counts
from tests.store.engines import no_waiting
from tests.store.layouts import Blade, BladeKey, Rack, Site

ONE, TWO, NEW = BladeKey("r", "1"), BladeKey("r", "2"), BladeKey("r", "9")
SITE = KeyRange(b"/site/", b"/site0")
LEASES = (1, 2)
"""Two living leases: their ids."""

Act = Callable[[Site], object]
Content = Mapping[bytes, tuple[bytes, int]]
Answers = tuple[bool, ...]
"""Of each act, whether it was refused."""


class Scenario(NamedTuple):
    """A store, prepared, and the transaction whose guards are dropped one at a time."""

    name: str
    prepare: Sequence[Act]
    transaction: Act


# ---- what stores are prepared by, and what comes between -----------------------------------------------------------------


def put_raw(raw_key: bytes, raw_value: bytes) -> Act:
    return lambda site: engine_of(site).commit(Commit((), (Put(raw_key, raw_value),)))


def delete_raw(raw_key: bytes) -> Act:
    return lambda site: engine_of(site).commit(Commit((), (Delete(raw_key),)))


def store_of(site: Site) -> Store:
    store = site._binding  # Why: a layout does not tell its binding; here each is bound to a store.
    assert isinstance(store, Store)
    return store


def engine_of(site: Site) -> Engine:
    return store_of(site).engine


def repair(site: Site) -> None:
    faults = [finding for finding in check(store_of(site), site) if finding.kind.is_repairable]
    list(carry_out(store_of(site), site, plan_repairs(store_of(site), site, faults)))


def insert(key: BladeKey, serial: str | None) -> Act:
    return lambda site: site.blades.insert(key, Blade(serial, ["t"]))


def put(key: BladeKey, serial: str | None, *tags: str) -> Act:
    return lambda site: site.blades.put(key, Blade(serial, list(tags)))


def member(name: str, lease: int) -> Act:
    return lambda site: site.members.put(name, Blade("s1"), lease=lease)


def swap(site: Site) -> None:
    one, two = site.blades.require(ONE), site.blades.require(TWO)
    site.blades.put(ONE, Blade(None))
    site.blades.put(TWO, Blade(one.serial))
    site.blades.put(ONE, Blade(two.serial))


SERIAL, OTHER_SERIAL = b"/site/by-serial/s1", b"/site/by-serial/s2"
AT_ONE, AT_TWO, AT_NEW = b"rack/r/blades/1", b"rack/r/blades/2", b"rack/r/blades/9"
UNBUILT: list[Act] = [
    insert(ONE, "s1"),
    lambda site: prepare_index(store_of(site), site, "by_serial"),
    delete_raw(SERIAL),
]

SCENARIOS = [
    Scenario("insert", [], insert(NEW, "s1")),
    Scenario("insert over its own entry, left behind", [put_raw(SERIAL, AT_NEW)], insert(NEW, "s1")),
    Scenario("put of a new record", [], put(NEW, "s1")),
    Scenario("update that keeps its entry", [insert(ONE, "s1")], put(ONE, "s1", "u")),
    Scenario("update of the unique field", [insert(ONE, "s1")], put(ONE, "s2")),
    Scenario("update to no entry", [insert(ONE, "s1")], put(ONE, None)),
    Scenario("update to a stale entry of its own", [insert(ONE, None), put_raw(SERIAL, AT_ONE)], put(ONE, "s1")),
    Scenario("update while its index is not built", UNBUILT, put(ONE, "s2")),
    Scenario("update of another's wrong entry", [insert(ONE, "s1"), put_raw(SERIAL, AT_TWO)], put(ONE, "s2")),
    Scenario("delete", [insert(ONE, "s1")], lambda site: site.blades.delete(ONE)),
    Scenario("delete while its index is not built", UNBUILT, lambda site: site.blades.delete(ONE)),
    Scenario(
        "delete with a wrong entry", [insert(ONE, "s1"), put_raw(SERIAL, AT_TWO)], lambda site: site.blades.delete(ONE)
    ),
    Scenario("rename", [insert(ONE, "s1")], lambda site: site.blades.rename(ONE, NEW)),
    Scenario("swap of unique fields", [insert(ONE, "s1"), insert(TWO, "s2")], swap),
    Scenario("another lease", [member("m1", LEASES[0])], member("m1", LEASES[1])),
    Scenario("the counter", [], lambda site: site.ports.next()),
    Scenario("a record without indexes", [], lambda site: site.racks.insert("r", Rack("mine"))),
]

OTHERS: dict[str, Act] = {
    "build": lambda site: build_index(store_of(site), site, "by_serial", pace=UNPACED),
    "repair": repair,
    "drop": lambda site: drop_index(store_of(site), site, "by_serial"),
    "drop of members": lambda site: drop_index(store_of(site), site, "member_by_serial"),
    "insert of the serial": lambda site: site.blades.insert(BladeKey("x", "1"), Blade("s1")),
    "insert of the other serial": lambda site: site.blades.insert(BladeKey("x", "2"), Blade("s2")),
    "put of one": put(ONE, "s3", "other"),
    "put of one with its serial": put(ONE, "s1", "other"),
    "put of two with its serial": put(TWO, "s2", "other"),
    "delete of one": lambda site: site.blades.delete(ONE),
    "insert of the new": insert(NEW, "s5"),
    "hand": delete_raw(SERIAL),
    "other hand": delete_raw(OTHER_SERIAL),
    "member": lambda site: site.members.put("m2", Blade("s1"), lease=LEASES[0]),
    "member again": lambda site: site.members.put("m1", Blade("s1", ["other"]), lease=LEASES[0]),
    "counter": lambda site: site.ports.next(),
    "rack": lambda site: site.racks.insert("r", Rack("other")),
}
JOBS = ("drop", "drop of members", "hand", "other hand", "build", "repair")
"""What writes or removes entries of records that stay as they are."""
WORKS = [(name,) for name in OTHERS] + [(job, name) for job, name in product(JOBS, OTHERS) if job != name]


# ---- one run -------------------------------------------------------------------------------------------------------------


class Interruption(WrappedEngine):
    """Calls `act` once, before its `step`-th call; keeps count."""

    def __init__(self, inner: Engine, step: int, act: Callable[[], object]) -> None:
        super().__init__(inner, closes_inner=False)
        self.steps = 0
        self._step, self._act = step, act

    def snapshot(self) -> Snapshot:
        self._count()
        return self.inner.snapshot()

    def commit(self, commit: Commit) -> int:
        self._count()
        return self.inner.commit(commit)

    def _count(self) -> None:
        self.steps += 1
        if self.steps == self._step:
            self._act()


def prepared(scenario: Scenario) -> Engine:
    engine = MemoryEngine()
    for lease in LEASES:
        assert engine.lease(1_000.0).id == lease
    site = Site(Store(engine, backoff=no_waiting()))
    for act in scenario.prepare:
        act(site)
    return engine


def on(engine: Engine) -> Site:
    return Site(Store(engine, backoff=no_waiting()))


def attempted(act: Act, site: Site) -> bool:
    try:
        act(site)
    except KeyplanError:
        return False
    return True


def commits(scenario: Scenario, engine: Engine) -> bool:
    def transaction(site: Site) -> None:
        with site.transaction() as tx:
            scenario.transaction(tx)

    return attempted(transaction, on(engine))


def content(engine: Engine) -> Content:
    with engine.snapshot() as snapshot:
        return {entry.key: (entry.value, entry.lease) for entry in snapshot.scan(SITE)}


def is_whole(engine: Engine) -> bool:
    """Whether each readable index has exactly what the records call for."""
    site, found = Site.bound(), content(engine)
    readable = []
    for index in site.indexes.values():
        try:
            list(getattr(on(engine), index.name).keys(limit=1))
            readable.append(index)
        except IndexNotReadyError:
            continue
        except KeyplanError:
            return False
    due: dict[bytes, tuple[bytes, int]] = {}
    for index in readable:
        for raw_key, (raw_value, lease) in found.items():
            key = index.table.keys.decode(raw_key)
            if key is not None:
                for entry, value in index.entries(key, index.table.form.decode(raw_value)):
                    if due.setdefault(entry, (value, lease)) != (value, lease):
                        return False
    there = {
        raw_key: pair
        for raw_key, pair in found.items()
        if any(index.keys.decode(raw_key) is not None for index in readable)
    }
    return due == there


def orders(scenario: Scenario, work: Sequence[str]) -> Iterator[tuple[Engine, Answers]]:
    """The store after each order of the transaction and the acts, where the transaction commits; and how the acts went."""
    for place in range(len(work) + 1):
        engine = prepared(scenario)
        before = [attempted(OTHERS[name], on(engine)) for name in work[:place]]
        if commits(scenario, engine):
            after = [attempted(OTHERS[name], on(engine)) for name in work[place:]]
            yield engine, (*before, *after)


def allowed(scenario: Scenario, work: Sequence[str], *, is_last: bool) -> list[tuple[Content, Answers]]:
    """What may be found: where the transaction commits last, a whole store, if some order leaves it whole."""
    after = list(orders(scenario, work))
    whole = [(content(engine), answers) for engine, answers in after if is_whole(engine)]
    return whole if whole and is_last else [(content(engine), answers) for engine, answers in after]


class Outcome(NamedTuple):
    engine: Engine
    is_committed: bool
    answers: Answers
    steps: int
    """How many calls of the engine the work made."""


def interleaved(scenario: Scenario, work: Sequence[str], step: int) -> Outcome:
    """The transaction looks, and commits before the `step`-th call of the work, or behind it (0)."""
    engine = prepared(scenario)
    is_committed = False
    site = on(engine)
    transaction = site.transaction()
    if not attempted(scenario.transaction, transaction.__enter__()):
        transaction.__exit__(KeyplanError, KeyplanError(), None)
        return Outcome(engine, False, (), 0)

    def commit() -> None:
        nonlocal is_committed
        is_committed = attempted(lambda _: transaction.__exit__(None, None, None), site)

    interruption = Interruption(engine, step, commit)
    answers = tuple(attempted(OTHERS[name], on(interruption)) for name in work)
    if step == 0:
        commit()
    return Outcome(engine, is_committed, answers, interruption.steps)


def is_wrong(scenario: Scenario, work: Sequence[str], step: int) -> bool:
    outcome = interleaved(scenario, work, step)
    found = content(outcome.engine), outcome.answers
    return outcome.is_committed and found not in allowed(scenario, work, is_last=step == 0)


# ---- the tests -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_no_work_that_comes_between_leaves_a_store_wrong(scenario: Scenario) -> None:
    for work in WORKS:
        assert not is_wrong(scenario, work, 0), f"{work}, then the commit"
    for name in OTHERS:
        steps = interleaved(scenario, (name,), 0).steps
        for step in range(1, steps + 1):
            assert not is_wrong(scenario, (name,), step), f"the commit before call {step} of {name}"


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_without_any_one_guard_some_work_leaves_a_store_wrong(
    scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = on(prepared(scenario))
    with site.transaction() as tx:
        scenario.transaction(tx)
        guards = tx._binding.collected().guards
        tx._binding.close()
    assert guards
    for guard in guards:
        with monkeypatch.context() as patched:
            drop(guard, patched)
            assert any(is_wrong(scenario, work, 0) for work in WORKS), f"nothing needs {guard}"


def drop(dropped: Guard, patched: pytest.MonkeyPatch) -> None:
    """Let plans be made without the guard; the orders that are compared with are not made of such plans."""

    def without(plan: Plan) -> Plan:
        return Plan({key: guard for key, guard in plan.guards.items() if guard != dropped}, plan.mutations)

    planned = plan_writes
    counted = plan_counts
    patched.setattr(keyplan.store.session, "plan_writes", lambda writes, observed: without(planned(writes, observed)))
    patched.setattr(keyplan.store.session, "plan_counts", lambda counts: without(counted(counts)))
    read = Reads.guards
    patched.setattr(Reads, "guards", lambda reads: (guard for guard in read(reads) if guard != dropped))
