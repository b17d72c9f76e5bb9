"""The same in each run: strings that replay, in another process and by threads; and what is told when something differs."""

import os
import random
import secrets
import subprocess
import sys
import threading
import time
import uuid
from itertools import count, islice
from pathlib import Path

import pytest

from keyplan.engine import SYSTEM_CLOCK
from keyplan.errors import InvalidInputError
from keyplan.limits import SCHEDULE_ACTORS_MAX, SCHEDULE_STEPS_MAX
from keyplan.store import Store
from keyplan.testing.schedules import (
    BatonKind,
    Exhaustive,
    Fault,
    NotDeterministicError,
    Outcome,
    Scenario,
    Schedule,
    actor,
    explore,
    replay,
)
from keyplan.testing.schedules.strings import parse_schedule, text_of
from tests.maintenance.layouts import Blade, BladeKey, Site
from tests.schedules.matrix import GROUPS
from tests.schedules.planted import put_beside_build
from tests.schedules.scenes import (
    R1,
    guards_left_out,
    of_absent_entry,
    one_record,
)

STALE = "ab25a"

IN_ANOTHER_PROCESS = """
import sys
from tests.schedules.planted import planted_replay
print(planted_replay(sys.argv[1]), end="")
"""


@pytest.mark.parametrize("baton", ["greenlets", "threads"])
def test_a_string_replays_the_same_script_byte_for_byte(baton: BatonKind, repository: Path) -> None:
    with guards_left_out(of_absent_entry):
        failure = explore(put_beside_build(), baton=baton).failures[0]
        other: BatonKind = "threads" if baton == "greenlets" else "greenlets"
        outcome = replay(put_beside_build(), failure.text, baton=other)
        assert (outcome.script, outcome.failure) == (failure.script, failure.message)
        assert [replay(put_beside_build(), failure.text).script for _ in range(10)] == [failure.script] * 10
    elsewhere = subprocess.run(
        [sys.executable, "-c", IN_ANOTHER_PROCESS, failure.text],
        capture_output=True,
        text=True,
        check=True,
        cwd=repository,
        timeout=120,
    )
    assert elsewhere.stdout == failure.script


WITHOUT_GREENLET = """
import sys
sys.modules["greenlet"] = None  # an import of it fails
from keyplan.testing.schedules.batons import HAS_GREENLETS
from tests.schedules.test_repeating import told_of_explorations
assert not HAS_GREENLETS
print(told_of_explorations(), end="")
assert not any(name.startswith("greenlet.") for name in sys.modules)
"""


def told_of_explorations() -> str:
    """What a planted defect and some lines of the matrix come to, in words that are the same in each run."""
    with guards_left_out(of_absent_entry):
        failure = explore(put_beside_build()).failures[0]
    told = [str(failure)]
    for group in ("ports", "drops", "watches", "hepnos queues"):
        for line in islice(GROUPS[group](), 4):
            # Why a number of schedules: what seconds allow depends on the machine.
            found = explore(line.make(), strategy=line.strategy or Exhaustive(), seconds_max=600, schedules_max=300)
            told.append(f"{line.name}: {found.schedules}, {found.cut}, {found.is_complete}, {sorted(found.coverage)}")
    return "\n".join(told)


def test_without_greenlet_threads_find_the_same(repository: Path) -> None:
    run = [sys.executable, "-c", WITHOUT_GREENLET]
    told = subprocess.run(run, capture_output=True, text=True, check=False, cwd=repository, timeout=300)
    assert (told.stdout, told.returncode) == (told_of_explorations(), 0), told.stderr


def test_the_string_of_the_specification_is_that_of_its_set_up() -> None:
    def set_up(store: Store) -> None:
        Site(store).ports.advance_to(33001)

    def modify(store: Store) -> None: ...

    def count(store: Store) -> None: ...

    assert Scenario(modify, count, setup=set_up).digest == "f370ac30"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "not a schedule"),
        ("kps2:f370ac30:-:ab", "not a schedule"),
        ("kps1:{digest}:-:a1b", "not a schedule"),
        ("kps1:{digest}:-:aab", "not a schedule"),
        ("kps1:{digest}:-:ab0", "not a schedule"),
        ("kps1:{digest}:a2x:ab", "not a schedule"),
        ("kps1:{digest}:a2u.a2c:ab", "not a schedule: 'a2u.a2c' has two faults at one call"),
        ("kps1:{digest}:a99u:ab", "the fault a99u does not happen to actor put_in_transaction: it makes 2 calls"),
        ("kps1:{digest}:a99c:ab", "the fault a99c does not happen to actor put_in_transaction: it makes 2 calls"),
        ("kps1:{digest}:a1u:ab", "the fault a1u does not happen to actor put_in_transaction: its call 1 is snapshot"),
        ("kps1:{digest}:-:ac", "not a schedule: there is no actor c"),
        ("kps1:{digest}:-:" + "ab" * 9_000, "not a schedule: it has more than 16,384 characters"),
        ("kps1:{digest}:-:a2001", "not a schedule: a2001 are too many steps; an actor makes 2,000"),
        ("kps1:{digest}:-:" + "a9999999b9999999" * 500, "not a schedule: a9999999 are too many steps"),
        ("kps1:01234567:-:ab", "of another scenario \\(01234567, this is"),
        ("kps1:{digest}:-:a9b", "actor a cannot step at step 3: it has ended"),
        ("kps1:{digest}:a2c:a2b", "actor a cannot step at step 2: it has crashed"),
    ],
)
def test_a_string_that_does_not_fit_is_refused(text: str, problem: str) -> None:
    scenario = put_beside_build()
    with pytest.raises(InvalidInputError, match=problem):
        replay(scenario, text.replace("{digest}", scenario.digest))


def test_the_longest_schedule_that_there_can_be_has_a_string_that_is_read() -> None:
    def modify(store: Store) -> None: ...

    scenario = Scenario(*[modify] * SCHEDULE_ACTORS_MAX)
    longest = Schedule(
        (Fault(6, SCHEDULE_STEPS_MAX, "u"), Fault(7, SCHEDULE_STEPS_MAX, "u")),
        tuple(range(SCHEDULE_ACTORS_MAX)) * SCHEDULE_STEPS_MAX,
    )
    assert parse_schedule(scenario, text_of(scenario, longest)) == longest


def test_an_actor_that_draws_its_own_lots_is_told() -> None:
    def draw(store: Store) -> None:
        Site(store).blades.insert(BladeKey("r", f"{random.random()}"), Blade())

    with pytest.raises(NotDeterministicError, match=r"differs at step 1(?s:.*)--- run 1(?s:.*)--- run 2"):
        explore(Scenario(draw, setup=one_record, layouts=[Site]))


def test_identifiers_and_secrets_are_the_same_in_each_run() -> None:
    seen = set()

    def name(store: Store) -> None:
        names = (uuid.uuid4().hex, secrets.token_hex(8))
        seen.add(names)
        Site(store).blades.insert(BladeKey("r", names[0]), Blade(names[1]))

    found = explore(Scenario(name, actor(name, "other"), setup=one_record, layouts=[Site]), complete=True)
    assert found.failures == []
    assert len(seen) == 2
    assert uuid.uuid4().hex not in {names[0] for names in seen}


def test_time_stands_for_actors_alone() -> None:
    times = []

    def look(store: Store) -> None:
        times.append((SYSTEM_CLOCK.wall(), SYSTEM_CLOCK.monotonic()))
        Site(store).blades.modify(R1, lambda blade: blade)

    explore(Scenario(look, actor(look, "other"), setup=one_record, layouts=[Site]))
    assert len(set(times)) == 1
    assert abs(SYSTEM_CLOCK.wall() - time.time()) < 60


def test_a_search_that_does_not_repeat_shows_two_runs_that_differ() -> None:
    begun = count()

    def calls_less_after_a_while(store: Store) -> None:
        for _ in range(3 if next(begun) < 8 else 1):
            Site(store).blades.modify(R1, lambda blade: blade)

    scenario = Scenario(calls_less_after_a_while, actor(calls_less_after_a_while, "other"), setup=one_record)
    with pytest.raises(NotDeterministicError, match="the same schedule was run twice and differs at step") as told:
        explore(scenario)
    first, second = str(told.value).split("--- run 1\n")[1].split("\n--- run 2\n")
    assert first != second


def test_what_an_invariant_draws_was_not_drawn_by_the_set_up() -> None:
    drawn: set[str] = set()

    def set_up(store: Store) -> None:
        drawn.update(uuid.uuid4().hex for _ in range(10))

    def judge(outcome: Outcome) -> None:
        assert drawn.isdisjoint(uuid.uuid4().hex for _ in range(10))

    assert explore(Scenario(calls_nothing, setup=set_up, invariants=[judge])).failures == []
    assert len(drawn) == 10


def calls_nothing(_store: Store) -> None: ...


def test_what_could_not_be_replaced_whole_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    before = os.urandom
    with monkeypatch.context() as patch:
        patch.delattr(random, "_urandom")
        with pytest.raises(KeyError):
            explore(Scenario(calls_nothing))
    assert os.urandom is before
    times = []

    def look(_store: Store) -> None:
        times.append(SYSTEM_CLOCK.wall())

    explore(Scenario(look))
    assert set(times) == {1_700_000_000.0}


def test_two_threads_explore_at_once_and_one_ends_before_the_other() -> None:
    has_begun, may_go_on = threading.Event(), threading.Event()
    times: list[float] = []

    def look(store: Store) -> None:
        store.engine.value(b"a")
        times.append(SYSTEM_CLOCK.wall())

    def waits_once(outcome: Outcome) -> None:
        has_begun.set()
        assert may_go_on.wait(60)

    thread = threading.Thread(target=lambda: explore(Scenario(calls_nothing, invariants=[waits_once])))
    other = threading.Thread(target=lambda: explore(Scenario(look, actor(look, "b"), invariants=[slow])))
    second_begun, second_may = threading.Event(), threading.Event()

    def slow(outcome: Outcome) -> None:
        second_begun.set()
        assert second_may.wait(60)

    thread.start()
    assert has_begun.wait(60)
    other.start()
    assert second_begun.wait(60)
    may_go_on.set()
    thread.join()
    second_may.set()
    other.join()
    assert len(times) > 2
    assert set(times) == {1_700_000_000.0}
    assert SYSTEM_CLOCK.wall() != 1_700_000_000.0


@pytest.mark.parametrize("baton", ["greenlets", "threads"])
def test_a_call_from_a_thread_that_no_actor_is_is_refused(baton: BatonKind) -> None:
    refused = []

    def start_another(store: Store) -> None:
        Site(store).blades.modify(R1, lambda blade: blade)

        def commit() -> None:
            try:
                Site(store).blades.modify(R1, lambda blade: blade)
            except InvalidInputError as error:
                refused.append(str(error))

        thread = threading.Thread(target=commit)
        thread.start()
        thread.join()

    # Why also here: the thread may keep to itself what it was told, and what it should do was not done.
    with pytest.raises(InvalidInputError, match="an engine call came from a thread that no actor is"):
        explore(Scenario(start_another, setup=one_record, layouts=[Site]), baton=baton)
    assert all("an engine call came from a thread that no actor is" in text for text in refused)
    assert refused


def test_a_lease_of_a_store_that_an_actor_makes_is_kept_by_no_thread() -> None:
    before = set(threading.enumerate())
    kept: list[threading.Thread] = []

    def takes_turns(store: Store) -> None:
        # Why another store: so do a registry and its sweeper, of the engine that they are given.
        with Store(store.engine, clock=SYSTEM_CLOCK).lease(5.0):
            kept.extend(set(threading.enumerate()) - before)

    explore(Scenario(calls_nothing, takes_turns, actor(takes_turns, "b")), baton="greenlets")
    assert kept == []
