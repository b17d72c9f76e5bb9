"""What must hold after a run: functions of an `Outcome` that raise AssertionError, on an engine that nothing controls."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import chain, combinations, permutations
from typing import Any, Final, cast

from keyplan.engine import ALL_KEYS, Delete, DeleteRange, Event, Put
from keyplan.errors import CommitOutcomeUnknownError, HistoryCompactedError, InvalidInputError, KeyplanError
from keyplan.layout import BoundLayout, Layout
from keyplan.store import Store
from keyplan.testing.checked import assert_healthy
from keyplan.testing.schedules.outcome import Outcome
from keyplan.testing.schedules.running import Acknowledged
from keyplan.testing.schedules.scenario import Invariant, bound_of

__all__ = [
    "Stays",
    "acknowledged",
    "as_in_some_order",
    "explained_by",
    "healthy",
    "never",
    "settles",
    "stays",
    "watched",
]

_JUDGED_MAX: Final = 10_000
"""States that `healthy` remembers. Why: most traces of an exploration end in one of few."""


def healthy(*layouts: type[Layout] | BoundLayout, leaves: Collection[str] = ()) -> Invariant:
    """A check of the layouts finds nothing, in each store; `leaves` are the codes of findings that must be there.

    Raises InvalidInputError without a layout: nothing would be checked.
    """
    if not layouts:
        raise InvalidInputError(source="healthy", problem="it has no layout to check: name those of the scenario")
    bounds = [bound_of(layout) for layout in layouts]
    judged: dict[object, str] = {}

    def healthy(outcome: Outcome) -> None:
        for store, stored in zip(outcome.stores, outcome.stored(), strict=True):
            fault = judged.get(stored)
            if fault is None:
                if len(judged) >= _JUDGED_MAX:
                    judged.clear()
                fault = judged[stored] = _health(store, bounds, leaves)
            if fault:
                raise AssertionError(fault)

    return healthy


def _health(store: Store, bounds: Sequence[BoundLayout], leaves: Collection[str]) -> str:
    try:
        # Why others: what a scenario keeps beside these layouts is no fault of them.
        assert_healthy(store, *bounds, leaves=leaves, has_others=True)
    except AssertionError as error:
        # Why: a build or a drop in the scenario may leave an index that readers are refused; that is a state, not a fault.
        faults = [line for line in str(error).splitlines()[1:] if not line.startswith("index-not-ready:")]
        return "\n".join(faults)
    return ""


def as_in_some_order(outcome: Outcome) -> None:
    """What is stored is what the actors that succeeded would have left one after the other, in one of their orders.

    So are the answers of actors with `answers=True`; and who succeeded does so in that order, too. An actor that raised has
    committed nothing; one whose answer was lost, or that crashed, may have done all of it or nothing. For actors that are one
    transaction each.
    """
    committed = {commit.actor for commit in outcome.commits}
    for name, error in outcome.errors.items():
        if name in committed and not isinstance(error, CommitOutcomeUnknownError):
            raise AssertionError(f"{name} raised {type(error).__name__} and has committed all the same")
    done = list(outcome.answers)
    open_ended = [name for name, error in outcome.errors.items() if isinstance(error, CommitOutcomeUnknownError)]
    open_ended += outcome.crashed
    compared = [one.name for one in outcome.scenario.actors if one.answers and one.name in outcome.answers]
    wanted = (outcome.stored(), [outcome.answers[name] for name in compared])
    for more in _subsets(open_ended):
        for order in permutations([*done, *more]):
            serial = outcome.in_order(order)
            # Why also whether they succeed: who is refused there stores nothing, which may be what is wanted.
            if serial.answers.keys() >= set(done) and wanted == (
                serial.stored(),
                [serial.answers[name] for name in compared],
            ):
                return
    raise AssertionError(
        "not as in any order of the actors: no order of "
        f"{', '.join([*done, *open_ended])} leaves what is stored, gives these answers and lets the same ones succeed"
    )


def _subsets(names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    return chain.from_iterable(combinations(names, size) for size in range(len(names) + 1))


def acknowledged(outcome: Outcome) -> None:
    """Each commit that returned a revision is that revision of the history, whole and alone; every revision is somebody's.

    The revisions of an actor grow. What a commit deleted is not stored after it. A commit that was refused, or was not carried
    out, is nowhere: as many revisions at most are nobody's as commits were carried out whose answer was lost. History that was
    compacted is not looked at. For scenarios without leases that end, whose deletions nobody commits.
    """
    for number in range(len(outcome.stores)):
        _acknowledged_on(number, outcome)


def _acknowledged_on(number: int, outcome: Outcome) -> None:
    template = outcome.scenario.template.memories[number]
    begun = max(template.revision, outcome.compacted(number))
    history: dict[int, dict[bytes, Event]] = {}
    for event in outcome.history(number):
        if event.revision > begun:
            history.setdefault(event.revision, {})[event.key] = event
    # Why empty where history is gone: what was stored when it begins is not known then.
    first = {entry.key for entry in template.entries.scan(ALL_KEYS)} if begun == template.revision else set()
    latest: dict[str, int] = {}
    owners: dict[int, str] = {}
    for commit in outcome.commits:
        if commit.engine != number or commit.revision < begun:
            continue
        if commit.revision < latest.get(commit.actor, 0):
            raise AssertionError(f"order: {commit.actor} got revision {commit.revision} after {latest[commit.actor]}")
        latest[commit.actor] = commit.revision
        _require_deleted(commit, _stored_after(commit.revision, first, history))
        if commit.revision > begun and _is_revision(commit, history.get(commit.revision, {})):
            if commit.revision in owners:
                if not _has_puts(commit):
                    continue  # it found nothing to delete, and got the latest revision
                both = f"{owners[commit.revision]} and {commit.actor}"
                raise AssertionError(f"twice: {both} got revision {commit.revision}")
            owners[commit.revision] = commit.actor
    orphans = sorted(history.keys() - owners.keys())
    if len(orphans) > _answers_lost(outcome):
        raise AssertionError(f"orphan: revision {orphans[0]} belongs to nobody")


def _answers_lost(outcome: Outcome) -> int:
    """How many commits were carried out without an answer: a fault that was planned may not have come."""
    planned = {(fault.actor, fault.call) for fault in outcome.faults if fault.letter == "u"}
    return sum(
        (step.actor, step.number) in planned and isinstance(step.outcome, CommitOutcomeUnknownError)
        for step in outcome.steps
    )


def _stored_after(revision: int, first: set[bytes], history: Mapping[int, Mapping[bytes, Event]]) -> set[bytes]:
    """The keys that are stored after a revision, as the history tells."""
    stored = set(first)
    for number in sorted(history):
        if number <= revision:
            for key, event in history[number].items():
                (stored.discard if event.entry is None else stored.add)(key)
    return stored


def _require_deleted(commit: Acknowledged, stored: set[bytes]) -> None:
    for mutation in commit.commit.mutations:
        if isinstance(mutation, Delete):
            left = stored & {mutation.key}
        elif isinstance(mutation, DeleteRange):
            left = {key for key in stored if key in mutation.range}
        else:
            continue
        if left:
            raise AssertionError(
                f"kept: revision {commit.revision}, which {commit.actor} got, still has {min(left)!r}, which it deleted"
            )


def _has_puts(commit: Acknowledged) -> bool:
    return any(isinstance(mutation, Put) for mutation in commit.commit.mutations)


def _is_revision(commit: Acknowledged, events: Mapping[bytes, Event]) -> bool:
    """Whether a commit wrote these events, all that it had to write; False: it had nothing to change. Raises AssertionError.

    One that deletes alone and finds nothing is answered the latest revision, which may have deleted the same.
    """
    who = f"revision {commit.revision} of {commit.actor}"
    mutations = commit.commit.mutations
    puts = {mutation.key: mutation for mutation in mutations if isinstance(mutation, Put)}
    for key, put in puts.items():
        entry = events[key].entry if key in events else None
        if entry is None or (entry.value, entry.lease) != (put.value, put.lease):
            raise AssertionError(f"torn: {who} does not hold {key!r} as it was put")
    deleted = {mutation.key for mutation in mutations if isinstance(mutation, Delete)}
    ranges = [mutation.range for mutation in mutations if isinstance(mutation, DeleteRange)]
    found = {key for key in events if key in deleted or any(key in key_range for key_range in ranges)}
    if not puts and found != events.keys():
        return False
    if strange := events.keys() - puts.keys() - found:
        raise AssertionError(f"strange: {who} holds {min(strange)!r}, which it did not write")
    return True


def explained_by(model: Callable[[list[str]], Mapping[str, Any]]) -> Invariant:
    """The answers are those that `model` gives for the actors in the order of their last commits.

    `model` is given the names of the actors that committed, in that order, and returns their answers by name. An actor that
    committed nothing is compared where the model has an answer for it.
    """

    def explained(outcome: Outcome) -> None:
        # Why by their places: several engines count their revisions apart.
        last = {commit.actor: place for place, commit in enumerate(outcome.commits)}
        names = sorted(last, key=lambda name: last[name])
        answers = model(names)
        for name in answers:
            _require_actor(name, outcome, "explained_by")
        for name, answer in outcome.answers.items():
            if name not in answers:
                if name in last:
                    raise AssertionError(f"silent: the model has no answer for {name}, which has committed")
            elif answer != answers[name]:
                raise AssertionError(
                    f"{name} answered {answer!r}; the model answers {answers[name]!r} after {', '.join(names)}"
                )

    return explained


def _require_actor(name: str, outcome: Outcome, source: str) -> None:
    if name not in outcome.scenario.names:
        names = ", ".join(outcome.scenario.names)
        raise InvalidInputError(source=source, problem=f"no actor is called {name!r}: use {names}")


def watched(name: str) -> Invariant:
    """The actor of that name returns (after, events, revision): the history in (after, revision], unless it was compacted."""

    def watched(outcome: Outcome) -> None:
        _require_actor(name, outcome, "watched")
        if name not in outcome.answers:
            error = outcome.errors.get(name)
            if error is None or isinstance(error, HistoryCompactedError):
                return
            raise AssertionError(f"{name} raised {type(error).__name__}: {error}") from error
        after, events, revision = cast("tuple[int, Sequence[Event], int]", outcome.answers[name])
        known = [event for event in outcome.history() if after < event.revision <= revision]
        seen = [event for event in events if event.revision > outcome.compacted()]
        if list(seen) != known:
            missed = [event for event in known if event not in seen]
            raise AssertionError(
                f"the watch of {name} is not the history after {after} up to {revision}: missed {missed}"
            )

    return watched


def never(name: str) -> Invariant:
    """The actor of that name, which checks while others write, has found nothing: what it returns is empty, and not None."""

    def never(outcome: Outcome) -> None:
        _require_actor(name, outcome, "never")
        if name not in outcome.answers:
            return
        found = outcome.answers[name]
        if found is None:
            raise AssertionError(f"silent: {name} returns None, so that nobody knows what it found: let it return that")
        if found:
            raise AssertionError(f"{name} found {found}, although nothing was wrong at any time")

    return never


def settles(function: Callable[..., object]) -> Invariant:
    """After the run `function(store)` ends without an error: the second build, the next run of what crashed.

    Name it before the invariants that hold only then: they are judged in the order given.
    """

    def settles(outcome: Outcome) -> None:
        try:
            function(*outcome.stores)
        except (AssertionError, KeyplanError) as error:
            raise AssertionError(f"{type(error).__name__}: it does not settle: {error}") from error

    return settles


class Stays:
    """A condition that holds after every commit of a run, not only at its end. Made by `stays`."""

    __name__ = "stays"

    def __init__(self, predicate: Callable[..., object]) -> None:
        self.predicate = predicate

    def __call__(self, outcome: Outcome) -> None:
        """Hold at the end, too."""
        self.check(*outcome.stores)

    def check(self, *stores: Store) -> None:
        """Raise what the predicate raises, and AssertionError when it returns False."""
        if self.predicate(*stores) is False:
            raise AssertionError("broken: a condition that should stay true is false in between")


def stays(predicate: Callable[..., object]) -> Stays:
    """`predicate(store)` holds after every commit: it raises, or returns False, when it does not.

    With several engines it is given a store of each. All commits then depend on one another, so that many more schedules are
    run.
    """
    return Stays(predicate)
