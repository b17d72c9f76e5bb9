"""What happens beside actors: leases that end, forgotten history, waits, crashes, restarts; and what scenarios refuse."""

from collections.abc import Callable, Iterator, Sequence

import pytest

from keyplan.engine import ALL_KEYS, SYSTEM_CLOCK, Engine, Event
from keyplan.errors import InvalidInputError, LeaseNotFoundError
from keyplan.store import Store
from keyplan.testing.contract import controls
from keyplan.testing.schedules import (
    BatonKind,
    Outcome,
    ParkingEngine,
    Scenario,
    actor,
    actor_waits,
    compacts,
    explore,
    healthy,
    passes,
    renews,
    replay,
    restarts,
    watched,
)
from keyplan.testing.schedules.batons import ActorKilledError
from keyplan.testing.schedules.watching import ParkingWatch
from tests.maintenance.layouts import Blade, BladeKey, Site
from tests.schedules.matrix_writers import one_member, watching
from tests.schedules.scenes import R1, one_record
from tests.schedules.writers import WRITERS, two_records


def noting(seen: list[str], name: str) -> Callable[[Outcome], None]:
    """Keep how an actor ended in each run."""

    def note(outcome: Outcome) -> None:
        error = outcome.errors.get(name)
        seen.append("done" if name in outcome.answers else "" if error is None else type(error).__name__)

    return note


# ---- watches ---------------------------------------------------------------------------------------------------------------


def test_a_lost_event_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = Scenario(
        actor(watching, "watch"),
        WRITERS["delete"],
        WRITERS["insert new"],
        setup=two_records,
        invariants=[watched("watch")],
    )
    assert explore(scenario, complete=True).failures == []
    poll = ParkingWatch.poll

    def losing(self: ParkingWatch, timeout_seconds: float) -> Sequence[Event]:
        events = poll(self, timeout_seconds)
        revisions = sorted({event.revision for event in events})
        return [event for event in events if len(revisions) < 2 or event.revision != revisions[0]]

    monkeypatch.setattr(ParkingWatch, "poll", losing)
    found = explore(scenario)
    assert found.failures[0].kind == "watched: the"
    assert found.first_failure_at is not None
    assert found.first_failure_at <= 30


def test_compaction_between_a_watch_and_its_poll_is_told() -> None:
    seen: list[str] = []
    told: list[Sequence[Event]] = []

    def note_events(outcome: Outcome) -> None:
        if "watch" in outcome.answers:
            told.append(outcome.answers["watch"][1])

    scenario = Scenario(
        actor(watching, "watch"),
        WRITERS["put new"],
        compacts(),
        setup=two_records,
        invariants=[watched("watch"), noting(seen, "watch"), note_events],
    )
    found = explore(scenario, complete=True)
    assert found.failures == []
    assert {"done", "HistoryCompactedError"} == set(seen)
    assert {False, True} == {bool(events) for events in told}
    assert found.revisions_matter


def test_a_watch_that_comes_in_another_order_alone_makes_revisions_matter() -> None:
    def watches_what_was_changed(store: Store) -> None:
        if "new" in Site(store).blades.require(R1).tags:
            watching(store)

    found = explore(
        Scenario(actor(watches_what_was_changed, "watch"), WRITERS["modify"], setup=one_record, invariants=[]),
        complete=True,
    )
    assert found.revisions_matter


def polls_for_ever(store: Store) -> None:
    watch = store.engine.watch(ALL_KEYS, after=store.revision)
    while not watch.poll(1.0):
        pass


def test_a_wait_for_what_nobody_does_is_a_deadlock() -> None:
    found = explore(Scenario(polls_for_ever, setup=one_record, invariants=[]))
    assert found.failures[0].message.startswith("DeadlockError: polls_for_ever waits")
    assert explore(Scenario(polls_for_ever, setup=one_record, invariants=[], may_wait_forever=True)).failures == []
    beside = Scenario(polls_for_ever, WRITERS["modify"], setup=two_records, invariants=[], may_wait_forever=True)
    assert explore(beside, complete=True).failures == []


@pytest.mark.parametrize("baton", ["greenlets", "threads"])
def test_an_actor_waits_until_another_has_done_its_part(baton: BatonKind) -> None:
    def waits(store: Store) -> Blade | None:
        actor_waits(lambda: Site(store).by_serial.one("s3") is not None)
        return Site(store).by_serial.one("s3")

    scenario = Scenario(
        actor(waits, "waits"),
        WRITERS["insert new"],
        setup=two_records,
        layouts=[Site],
        invariants=[has_answer("waits")],
    )
    assert explore(scenario, complete=True, baton=baton).failures == []
    alone = explore(Scenario(actor(waits, "waits"), setup=two_records, invariants=[]), baton=baton)
    assert alone.failures[0].kind == "deadlock: DeadlockError"


def has_answer(name: str) -> Callable[[Outcome], None]:
    def has_answer(outcome: Outcome) -> None:
        assert outcome.answers[name] is not None

    return has_answer


# ---- leases, crashes ---------------------------------------------------------------------------------------------------------


def test_a_rename_beside_the_end_of_its_lease_is_whole() -> None:
    def rename(store: Store) -> None:
        Site(store).members.rename("m1", "m3")

    seen: list[str] = []
    scenario = Scenario(
        rename, passes(11), setup=one_member, layouts=[Site], invariants=[healthy(Site), noting(seen, "rename")]
    )
    found = explore(scenario, complete=True)
    assert found.failures == []
    assert set(seen) == {"done", "NotFoundError"}  # it looks again when its lease is over


def test_whoever_crashes_leaves_a_lease_that_ends_by_itself() -> None:
    left: list[int] = []
    cleaned_up: list[str] = []
    judged_after: list[int] = []

    def holds(store: Store) -> None:
        try:
            with store.lease(10) as lease, store.snapshot() as state:
                Site(store).members.insert("held", Blade(), lease=lease)
                Site(store).members.update("held", Blade("s9"))
                Site(state).members.count()
        finally:
            cleaned_up.append("held")

    def nothing_is_left(outcome: Outcome) -> None:
        if outcome.crashed:
            judged_after.append(len(cleaned_up))
            cleaned_up.clear()
            outcome.clock.advance(100)
            left.append(Site(outcome.store).members.count())
        else:
            cleaned_up.clear()

    scenario = Scenario(
        actor(holds, "holds"),
        passes(100),
        setup=one_record,
        layouts=[Site],
        invariants=[healthy(Site), nothing_is_left],
        faults={"holds": "c"},
    )
    found = explore(scenario, complete=True)
    assert found.failures == []
    assert set(left) == {0}
    # What it has to do at its end is done when the run before was judged, and before the next one is.
    assert set(judged_after) <= {0, 1}
    assert judged_after[0] == 0


@pytest.mark.parametrize("with_error", [False, True])
@pytest.mark.parametrize("baton", ["greenlets", "threads"])
def test_who_crashed_has_neither_answered_nor_failed_when_the_run_has_ended(
    baton: BatonKind, *, with_error: bool
) -> None:
    def modifies(store: Store) -> str:
        try:
            WRITERS["modify"](store)
        except ActorKilledError:  # as code does that catches everything, and goes on
            return "swallowed"
        finally:
            if with_error:
                raise ValueError("of the clean-up")
        return "done"

    def crashes_alone(outcome: Outcome) -> None:
        assert outcome.crashed != ("modifies",), "crash: at the commit"

    scenario = Scenario(
        modifies,
        setup=two_records,
        invariants=[crashes_alone],
        faults={"modifies": "c"},
        only_raises=(ValueError,),
    )
    failure = explore(scenario, baton=baton).failures[0]
    assert failure.text.split(":")[2:] == ["a1c", "-"]
    assert failure.script == "  modifies  crashed"
    outcome = replay(scenario, failure.text, baton=baton)
    assert (outcome.crashed, outcome.answers, outcome.errors) == (("modifies",), {}, {})
    assert outcome.script == failure.script


@pytest.mark.parametrize(
    ("letter", "ends"),
    [
        ("f", {"done", "EngineUnavailableError"}),  # no call is done
        ("o", {"done"}),  # the store looks again
        ("h", {"done", "HistoryCompactedError"}),
    ],
)
def test_a_fault_happens_at_each_call_that_it_fits(letter: str, ends: set[str]) -> None:
    seen: list[str] = []

    def act(store: Store) -> None:
        watching(store)
        Site(store).blades.modify(R1, lambda blade: Blade(blade.serial, ["new"]))

    scenario = Scenario(
        actor(act, "act"),
        setup=one_record,
        layouts=[Site],
        invariants=[healthy(Site), noting(seen, "act")],
        faults=letter,
    )
    found = explore(scenario, complete=True)
    assert found.failures == []
    assert set(seen) == ends
    # The calls: a snapshot, a watch, two polls, a snapshot, a commit; the first run has no fault. After a conflict comes a
    # second commit, which has its fault in a run of its own.
    assert found.schedules == {"f": 7, "o": 3, "h": 4}[letter]


def test_a_lease_that_is_renewed_in_time_lives() -> None:
    def works(store: Store) -> bool:
        lease = store.lease(10)
        Site(store).members.insert("held", Blade(), lease=lease)
        return "held" in [key for key, _ in Site(store).members.list()]

    lives: dict[tuple[str, ...], bool] = {}

    def note(outcome: Outcome) -> None:
        calls = tuple(step.call for step in outcome.steps if step.call in {"lease", "keep_alive", "passes"})
        lives[calls] = Site(outcome.store).members.exists("held")

    worker = actor(works, "works", answers=True)
    actors = (worker, renews(worker), passes(6, times=2))
    found = explore(
        Scenario(*actors, setup=one_record, layouts=[Site], invariants=[healthy(Site), note]), complete=True
    )
    assert found.failures == []
    assert lives["lease", "passes", "keep_alive", "passes"]
    assert not lives["lease", "keep_alive", "passes", "passes"]
    assert not lives["lease", "passes", "passes"]


def test_a_keeper_dies_with_its_actor() -> None:
    def works(store: Store) -> None:
        Site(store).members.insert("held", Blade(), lease=store.lease(10))

    renewed: set[tuple[str, ...]] = set()

    def note(outcome: Outcome) -> None:
        renewed.add((*outcome.crashed, *[step.call for step in outcome.steps if step.actor == 1]))

    worker = actor(works, "works")
    scenario = Scenario(worker, renews(worker), setup=one_record, invariants=[note], faults={"works": "c"})
    assert explore(scenario, complete=True).failures == []
    assert renewed == {("renews",), ("renews", "keep_alive"), ("works", "renews")}


def test_what_starts_again_after_a_crash_ends_the_work() -> None:
    def two_steps(store: Store) -> None:
        site = Site(store)
        if site.blades.get(BladeKey("q", "1")) is None:
            site.blades.insert(BladeKey("q", "1"), Blade("q1"))
        if site.blades.get(BladeKey("q", "2")) is None:
            site.blades.insert(BladeKey("q", "2"), Blade("q2"))

    def both_are_there(outcome: Outcome) -> None:
        if Site(outcome.store).blades.count("q") != 2:
            raise AssertionError("half: the work was not ended")

    first = actor(two_steps, "first")
    with_restart = Scenario(
        first, restarts(first), setup=one_record, layouts=[Site], invariants=[both_are_there], faults={"first": "c"}
    )
    assert explore(with_restart, complete=True).failures == []
    alone = Scenario(first, setup=one_record, layouts=[Site], invariants=[both_are_there], faults={"first": "c"})
    failure = explore(alone).failures[0]
    assert failure.text.split(":")[2] == "a1c"
    assert replay(alone, failure.text).failure == failure.message


def test_what_starts_again_begins_after_the_crash_also_when_it_waits_first() -> None:
    def waits(store: Store) -> None:
        actor_waits(lambda: True)
        store.engine.value(b"a")

    def only_after_a_crash(outcome: Outcome) -> None:
        assert outcome.crashed or all(step.actor == 0 for step in outcome.steps)

    first = actor(waits, "first")
    scenario = Scenario(first, restarts(first), invariants=[only_after_a_crash], faults={"first": "c"})
    assert explore(scenario, complete=True).failures == []


def test_what_started_again_and_waits_for_ever_is_a_deadlock() -> None:
    def waits(store: Store) -> None:
        store.engine.value(b"a")
        actor_waits(lambda: len(outside) > 0)

    outside: list[int] = []
    first = actor(waits, "first")
    scenario = Scenario(first, restarts(first), invariants=[], faults={"first": "c"})
    assert explore(scenario).failures[0].kind == "deadlock: DeadlockError"
    crashed = Scenario(first, restarts(first), invariants=[], faults={"first": "c"})
    told = {failure.message for failure in explore(crashed).failures}
    assert "DeadlockError: first waits for what nobody does any more" in told
    text = f"kps1:{scenario.digest}:a2c:ab2"
    assert replay(scenario, text).failure == "DeadlockError: first again waits for what nobody does any more"


def test_only_a_call_of_an_engine_finds_it_unavailable() -> None:
    def tells_time(store: Store) -> None:
        SYSTEM_CLOCK.monotonic()
        actor_waits(lambda: store.engine.value(b"a") is None)

    ends: set[str] = set()

    def note(outcome: Outcome) -> None:
        ends.update(outcome.errors)

    scenario = Scenario(actor(tells_time, "tells"), passes(6), invariants=[note], faults="f")
    assert explore(scenario, complete=True).failures == []
    assert ends == set()


# ---- what is refused -------------------------------------------------------------------------------------------------


ALONE = actor(WRITERS["modify"], "alone")


async def asynchronous(store: Store) -> None: ...


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: Scenario(*[WRITERS["modify"]] * 9), "it has 9 actors; give it 1 to 8"),
        (Scenario, "it has 0 actors"),
        (lambda: actor(WRITERS["modify"], "two\nlines"), "is no name"),
        (lambda: actor(asynchronous), "asynchronous functions are not run"),
        (lambda: Scenario(WRITERS["modify"], faults="x"), "'x' is no fault"),
        (lambda: Scenario(WRITERS["modify"], faults={"nobody": "c"}), "no actor is called 'nobody'"),
        (lambda: Scenario(WRITERS["modify"], engines=0), "it has 0 engines; give it 1 to 8"),
        (
            lambda: Scenario(WRITERS["modify"], faults="c", faults_max=0),
            "faults_max is 0; give it 1 to 2 faults in a run",
        ),
        (lambda: Scenario(WRITERS["modify"], faults="c", faults_max=3), "faults_max is 3"),
        (
            lambda: Scenario(*[actor(WRITERS["modify"], name) for name in ("a", "a", "a#1")]),
            "two actors are called 'a#1': give them other names",
        ),
        (lambda: Scenario(restarts(ALONE)), "'alone again' belongs to 'alone', and no actor is called that"),
        (
            lambda: Scenario(ALONE, ALONE, renews(ALONE)),
            "'renews alone' belongs to 'alone', and no actor is called that",
        ),
    ],
)
def test_a_scenario_that_cannot_be_is_refused(make: Callable[[], object], problem: str) -> None:
    with pytest.raises(InvalidInputError, match=problem):
        make()


def begins_asynchronously(store: Store) -> object:
    return asynchronous(store)


def generates(store: Store) -> Iterator[object]:
    yield Site(store).blades.get(R1)


@pytest.mark.parametrize(("function", "kind"), [(generates, "generator"), (begins_asynchronously, "coroutine")])
def test_an_actor_that_returns_what_nobody_runs_has_done_nothing(
    function: Callable[[Store], object], kind: str
) -> None:
    found = explore(Scenario(actor(function, "idle"), setup=one_record, layouts=[Site]))
    assert f"idle returned a {kind} that nobody runs" in found.failures[0].message


def test_an_actor_that_calls_without_end_is_told() -> None:
    def asks_again_and_again(store: Store) -> None:
        while Site(store).blades.get(R1) is not None:
            pass

    found = explore(Scenario(asks_again_and_again, setup=one_record, invariants=[]), schedules_max=1)
    assert "actor asks_again_and_again has made 2,000 calls; is it waiting for somebody?" in found.failures[0].message


def test_a_method_of_the_contract_that_is_not_controlled_is_refused() -> None:
    class Wider(Engine):
        def explode(self) -> None:
            """A method that the contract got."""

    with pytest.raises(TypeError, match="ParkingEngine does not control explode"):
        controls(Wider)(ParkingEngine)


def test_a_lease_that_is_gone_is_the_error_of_whoever_keeps_it_alive() -> None:
    def keep(store: Store) -> float:
        return store.resume_lease(1, keep_alive=False).keep_alive()

    seen: list[str] = []
    scenario = Scenario(keep, passes(11), setup=one_member, layouts=[Site], invariants=[noting(seen, "keep")])
    assert explore(scenario, complete=True).failures == []
    assert set(seen) == {"done", LeaseNotFoundError.__name__}
