"""The lines of migrations: every two of runs, programs of both layouts, builds, restores, copies, other migrations and people.

Of each way that tests/maintenance/goods.py has, from each state that a migration is in. Each schedule is judged by the audit of
its history, and then the migration is brought to its end. Two runs are tried with one stopped at each of its calls while the
other goes on; a run and a program in every order that matters.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from itertools import combinations_with_replacement
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from keyplan.engine import Commit, Engine, MemoryEngine, WrappedEngine
from keyplan.errors import (
    CommitOutcomeUnknownError,
    CorruptionError,
    InvalidInputError,
    MigrationRefusedError,
    TargetNotEmptyError,
    TargetTakenError,
)
from keyplan.jobs import UNPACED
from keyplan.maintenance import (
    Contest,
    FindingKind,
    Migrations,
    build_index,
    check,
    clean_up_migration,
    copy_store,
    migrate,
    prepare_index,
    restore_store,
    roll_back_migration,
)
from keyplan.store import Store
from keyplan.testing.schedules import ACTOR_ERRORS, Outcome, Preemptions, Scenario, actor
from tests.maintenance.backups import write_backup
from tests.maintenance.goods import ELSEWHERE, WAYS, Good, Goods, Held, Way, fill_goods
from tests.maintenance.layouts import write
from tests.schedules.lines import Line, line_name
from tests.schedules.matrix_moved_counters import moved_counters
from tests.schedules.migrating import NO_WAIT, OLD_WRITERS, Story, decided, ended, new_writers
from tests.schedules.migration_audit import MIGRATION, NEW, OLD, PERSON, RESTORE, ROLLBACK, SECOND, Audit

__all__ = ["MIGRATION_GROUPS"]

Act = Callable[[Store], object]

MAY_BE_REFUSED: Final = (
    *ACTOR_ERRORS,
    MigrationRefusedError,
    InvalidInputError,
    CommitOutcomeUnknownError,
    CorruptionError,
    TargetNotEmptyError,
    TargetTakenError,
)

# ---- what is done --------------------------------------------------------------------------------------------------------


def _fill(story: Story, store: Store) -> None:
    migrate(store, story.planned(), backoff=NO_WAIT, pace=UNPACED)


def _switch(story: Story, store: Store) -> None:
    migrate(store, story.planned(), is_switched=True, backoff=NO_WAIT, pace=UNPACED)


def _clean_up(story: Story, store: Store) -> None:
    clean_up_migration(store, story.planned(), backoff=NO_WAIT, pace=UNPACED)


def _roll_back(story: Story, store: Store) -> None:
    roll_back_migration(store, story.planned(), backoff=NO_WAIT, pace=UNPACED)


def _fill_anew(story: Story, store: Store) -> None:
    migrate(store, story.way.plan(store), backoff=NO_WAIT, pace=UNPACED)


def _switch_anew(story: Story, store: Store) -> None:
    migrate(store, story.way.plan(store), is_switched=True, backoff=NO_WAIT, pace=UNPACED)


def _clean_up_anew(story: Story, store: Store) -> None:
    clean_up_migration(store, story.way.plan(store), backoff=NO_WAIT, pace=UNPACED)


def _retried(act: Callable[[Story, Store], None], story: Story, store: Store) -> None:
    """Whoever is told that an answer is lost gives the same plan again, and does not look."""
    try:
        act(story, store)
    except CommitOutcomeUnknownError:
        act(story, store)


def _built(story: Story, store: Store) -> None:
    """A build by the new layout, of what the migration may be building."""
    layout = story.way.new.bound()
    for name in layout.indexes:
        build_index(store, layout, name, backoff=NO_WAIT, pace=UNPACED)


def _rebuilt(story: Story, store: Store) -> None:
    """A build by the old layout."""
    layout = story.way.old.bound()
    name = next(iter(layout.indexes))
    prepare_index(store, layout, name)
    build_index(store, layout, name, backoff=NO_WAIT, pace=UNPACED)


def _restored(story: Story, store: Store) -> None:
    restore_store(store.engine, _backup(is_empty=story.way.old is Held), is_overwriting=True)


def _copied(story: Story, store: Store) -> None:
    copy_store(
        _source(is_empty=story.way.old is Held), store.engine, source_name="source", prefix=b"/g/", is_overwriting=True
    )


@cache
def _source(*, is_empty: bool) -> Engine:
    """A store with other goods, which a restore and a copy bring."""
    store = Store(MemoryEngine())
    if is_empty:
        return store.engine
    for name, price in (("a", 4), ("r", 6)):
        Goods(store).goods.insert(name, Good(price, name.upper(), "x", [f"{name}1"]))
    return store.engine


@cache
def _backup(*, is_empty: bool) -> Path:
    """The same as a file; the folder is the process's own and goes with it."""
    folder = TemporaryDirectory(prefix="keyplan-schedules-")
    _FOLDERS.append(folder)
    return write_backup(_source(is_empty=is_empty), Path(folder.name) / "goods", prefix=b"/g/")


_FOLDERS: list[TemporaryDirectory[str]] = []


def _second(story: Story, store: Store) -> None:
    assert story.second is not None
    migrate(store, story.second, backoff=NO_WAIT, pace=UNPACED)


def _decide(story: Story, store: Store) -> None:
    decided(store, story.way, [Contest(b"/g/goods/a", None, "")])


def _lose_entry(_story: Story, store: Store) -> None:
    """Somebody removes an index entry of a new record behind every layout's back."""
    write(store, b"/g/ware-codes/A", b"/g/items/p")


RUNS: Final[Mapping[str, Callable[[Story, Store], None]]] = {
    "fill": _fill,
    "switch": _switch,
    "clean up": _clean_up,
    "fill, planned anew": _fill_anew,
    "switch, planned anew": _switch_anew,
    "clean up, planned anew": _clean_up_anew,
    "fill, retried": partial(_retried, _fill),
    "switch, retried": partial(_retried, _switch),
    "clean up, retried": partial(_retried, _clean_up),
}
OTHERS: Final[Mapping[str, tuple[str, Callable[[Story, Store], None]]]] = {
    "roll back": (ROLLBACK, _roll_back),
    "roll back, retried": (ROLLBACK, partial(_retried, _roll_back)),
    "build": (MIGRATION, _built),
    "build by the old layout": (MIGRATION, _rebuilt),
    "restore": (RESTORE, _restored),
    "copy": (RESTORE, _copied),
    "second migration": (SECOND, _second),
    "decide": (PERSON, _decide),
    "an entry is lost": (PERSON, _lose_entry),
}


def _act(story: Story, name: str) -> tuple[str, Act]:
    """In whose name somebody acts, and what he does."""
    if name in RUNS:
        return MIGRATION, partial(RUNS[name], story)
    if name in OTHERS:
        label, act = OTHERS[name]
        return label, partial(act, story)
    if name == "an old program":
        name = story.way.old_writers[0]
    if name in OLD_WRITERS:
        return OLD, OLD_WRITERS[name]
    return NEW, new_writers(story.way)[name]


# ---- from where ----------------------------------------------------------------------------------------------------------


class _Dying(WrappedEngine):
    """The process dies before this commit."""

    def __init__(self, inner: Engine, number: int) -> None:
        super().__init__(inner, closes_inner=False)
        self._left = number

    def commit(self, commit: Commit) -> int:
        self._left -= 1
        if self._left == 0:
            raise KeyboardInterrupt
        return self.inner.commit(commit)


def _dies(act: Callable[[Story, Store], None], number: int, story: Story, store: Store) -> None:
    try:
        act(story, Store(_Dying(store.engine, number)))
    except KeyboardInterrupt:
        return


STATES: Final[Mapping[str, tuple[str, ...]]] = {
    "fresh": (),
    "begun": ("fill dies",),
    "filled": ("fill",),
    "contested": ("fill", "an old program", "new change"),
    "switching": ("fill", "an old program", "switch dies"),
    "settled": ("switch",),
    "cleaning": ("switch", "clean up dies"),
    "over": ("switch", "clean up"),
    "going back": ("switch", "roll back dies"),
    "damaged": ("switch", "an entry is lost"),
}
"""What was done before, in a store with goods that was planned for."""

_DYING: Final[Mapping[str, Callable[[Story, Store], None]]] = {
    "fill dies": partial(_dies, _fill, 2),
    "switch dies": partial(_dies, _switch, 3),
    "clean up dies": partial(_dies, _clean_up, 3),
    "roll back dies": partial(_dies, _roll_back, 3),
}

_DYING_AS: Final = {name: ROLLBACK if name == "roll back dies" else MIGRATION for name in _DYING}


def _begun(story: Story, state: str, store: Store) -> None:
    """The set-up."""
    story.labels.clear()
    story.does(store, OLD, lambda store: fill_goods(store, story.way))
    story.plan = story.way.plan(store)
    assert story.plan.obstacles == (), story.plan.obstacles
    if story.way.old is Goods:
        story.second = ELSEWHERE.plan(store)
    for name in STATES[state]:
        label, act = (_DYING_AS[name], partial(_DYING[name], story)) if name in _DYING else _act(story, name)
        story.does(store, label, act)


# ---- the verdict ---------------------------------------------------------------------------------------------------------


class Verdicts:
    """Judges each outcome of a scenario, and brings each that it has not seen yet to its end."""

    __name__ = "audited"

    def __init__(self, story: Story, state: str, labels: Mapping[str, str]) -> None:
        self._story = story
        self._labels = labels
        acts = {name.partition("#")[0] for name in labels}
        is_plain = set(labels.values()) <= {MIGRATION, OLD} and state in {"fresh", "begun", "filled", "switching"}
        self._is_contested = not is_plain
        is_beside = is_plain and state != "switching" and acts - {"fill", "fill, planned anew"} <= OLD_WRITERS.keys()
        self._is_beside = is_beside
        self._judged: dict[object, str] = {}

    def __call__(self, outcome: Outcome) -> None:
        """Raise AssertionError with what is wrong."""
        story = self._story
        labels = self._of(outcome)
        audit = Audit({MIGRATION: story.way, ROLLBACK: story.way, SECOND: ELSEWHERE})
        events = outcome.history()
        audit.follow(events, labels)
        if self._is_beside:
            _is_untouched(outcome.store, story.way)
        state = (outcome.stored(), repr((audit.writers, audit.bases)))
        fault = self._judged.get(state)
        if fault is None:
            fault = self._judged[state] = self._ended(outcome, audit, labels, len(events))
        if fault:
            raise AssertionError(fault)

    def _ended(self, outcome: Outcome, audit: Audit, labels: dict[int, str], known: int) -> str:
        store, way, label = outcome.store, self._story.way, MIGRATION
        second = ELSEWHERE.new.bound().fingerprint
        if any(state.new == second and not state.is_cleaned for _, state in Migrations(store).states.list()):
            way, label = ELSEWHERE, SECOND
        audit.takes_loss = True
        tables = {**way.old.spec.tables, **way.new.spec.tables} if "new delete" in self._labels else ()
        accepts = tuple(f"gone:{name}" for name in ("goods", "wares", "labels") if name in tables)
        try:
            ended(store, way, labels, label=label, accepts=accepts, is_contested=self._is_contested)
            audit.follow(outcome.history()[known:], labels)
            audit.finish(label)
        except (AssertionError, MigrationRefusedError) as error:
            return f"in the end: {type(error).__name__}: {error}"
        return ""

    def _of(self, outcome: Outcome) -> dict[int, str]:
        """Who wrote which revision."""
        labels = dict(self._story.labels)
        for made in outcome.commits:
            labels.setdefault(made.revision, self._labels[made.actor])
        names = outcome.scenario.names
        for event in outcome.history():
            if event.revision not in labels:
                # Why: nobody was told of it. Its answer was lost, its program crashed, or a lease ended.
                who = outcome.faults[0].actor if outcome.faults else names.index("revoke")
                labels[event.revision] = self._labels[names[who]]
        return labels


def _is_untouched(store: Store, way: Way) -> None:
    """Beside programs of the old layout alone, nothing that they read is changed; new records they take for unknown keys."""
    found = [str(one) for one in check(store, way.old(store)) if one.kind is not FindingKind.UNKNOWN_KEY]
    assert not found, "\n".join(found)


def _pair(way: Way, state: str, names: tuple[str, ...], faults: str = "") -> Scenario:
    story = Story(way)
    acts = {name: _act(story, name) for name in names}
    twice = len(set(names)) < len(names)
    labels = {f"{name}#{number}" if twice else name: acts[name][0] for number, name in enumerate(names, 1)}
    return Scenario(
        *[actor(acts[name][1], name) for name in names],
        setup=partial(_begun, story, state),
        layouts=[way.old],
        invariants=[Verdicts(story, state, labels)],
        only_raises=MAY_BE_REFUSED,
        faults={next(iter(labels)): faults} if faults else "",
    )


# ---- the lines -----------------------------------------------------------------------------------------------------------

_RUNS_OF: Final[Mapping[str, tuple[str, ...]]] = {
    "fresh": ("fill", "switch"),
    "begun": ("fill", "switch"),
    "filled": ("fill", "switch"),
    "contested": ("switch",),
    "switching": ("switch",),
    "settled": ("switch", "clean up", "roll back"),
    "damaged": ("clean up",),
    "cleaning": ("clean up",),
    "over": ("switch", "clean up"),
    "going back": ("roll back",),
}
_ANEW: Final = ("fill, planned anew", "switch, planned anew", "clean up, planned anew")
_OF_NEW: Final = ("new change", "new recode", "new insert", "new delete")
_SWITCHED: Final = {"settled", "cleaning", "over"}


def _writers_of(way: Way, state: str, run: str) -> Iterator[str]:
    if way.is_in_place:
        if state == "fresh" and run == "fill":
            yield from way.old_writers
        elif state in {"settled", "over"}:
            yield from _OF_NEW
        return
    if way.takes_new_writers:
        yield from way.old_writers
        yield from ("new insert", "new insert of a") if state == "fresh" else (*_OF_NEW, "new insert of a taken code")
    else:
        yield from _OF_NEW if state in _SWITCHED else way.old_writers


def _others_of(way: Way, state: str) -> Iterator[str]:
    yield "build"
    if state not in {"fresh", "over", "going back", "settled"}:
        yield "roll back"
    # Why not later: entries that both layouts have are swept by a build of the layout that is gone.
    if state not in _SWITCHED and state != "switching":
        yield "build by the old layout"
    if way.old is Goods:
        yield from ("restore", "copy", "second migration")


def _pairs(way: Way) -> Iterator[tuple[str, str, str]]:
    """Every state with every two that may meet there."""
    for state, runs in _RUNS_OF.items():
        if state in {"going back", "damaged"} and way.is_in_place:
            continue
        if state == "damaged":
            yield from ((state, "clean up", other) for other in ("clean up", "switch"))
            continue
        if state == "contested":
            if not way.is_in_place and way.takes_new_writers:
                yield from ((state, run, "decide") for run in ("switch", "switch, planned anew"))
            continue
        for run, other in combinations_with_replacement(runs, 2):
            yield state, run, other
        for run in runs:
            for other in (*_ANEW, *_others_of(way, state), *_writers_of(way, state, run)):
                yield state, run, other


_SHORT: Final = {
    ("fresh", "switch"),
    ("filled", "switch"),
    ("settled", "clean up"),
    ("settled", "roll back"),
    ("damaged", "clean up"),
    ("going back", "roll back"),
}


_WAYS_BESIDE_ALL: Final = {"in place", "joined", "split, sharing"}
"""Whose runs the suite has beside everything, and broken: without copies, two records to one, one to two that share an entry.

Why not all: a build, a restore and a second migration look at states, and not at what becomes of a record. The suite has a
run of every way beside itself and beside every writer.
"""
_SHORT_TOO: Final = {("moved", "contested", "switch", "decide"), ("split, sharing", "fresh", "fill", "fill")}
"""Each is alone in noticing a fault of `migration_mutants.py`."""


def _is_short(name: str, state: str, run: str, other: str) -> bool:
    """Whether the suite has it: a run twice, and beside others, from the states that a migration is in for long.

    A copy does what a restore does.
    """
    if (name, state, run, other) in _SHORT_TOO:
        return True
    is_long = other == "copy" or (other in RUNS and other not in {run, f"{run}, planned anew"})
    is_writer = other in OLD_WRITERS or other.startswith("new ")
    return (state, run) in _SHORT and not is_long and (name in _WAYS_BESIDE_ALL or is_writer or other == run)


def migrations(name: str) -> Iterator[Line]:
    """Every two beside one another, from every state."""
    way = WAYS[name]
    for state, run, other in _pairs(way):
        line = f"{state}: {line_name(run, other)}"
        is_writer = other in OLD_WRITERS or other.startswith("new ")
        yield Line(
            line,
            partial(_pair, way, state, (run, other)),
            None if is_writer else Preemptions(1, is_hashed=False),
            is_long=not _is_short(name, state, run, other),
        )


def broken_migrations() -> Iterator[Line]:
    """Runs that crash at each call, or are not told of each commit; and who then gives the same plan again."""
    for name, way in WAYS.items():
        for state, run in sorted(_SHORT):
            if state in {"going back", "damaged"} and way.is_in_place:
                continue
            is_beside_all = name in _WAYS_BESIDE_ALL
            broken = partial(_pair, way, state, (run,), "cun")
            yield Line(f"{name}: {state}: {run}, broken", broken, is_long=state == "fresh" or not is_beside_all)
            again = f"{run}, retried"
            retried = partial(_pair, way, state, (again,), "un")
            yield Line(f"{name}: {state}: {again}", retried, is_long=state != "fresh" or not is_beside_all)
            if not way.is_in_place:
                for writer in way.old_writers[:2]:
                    beside = partial(_pair, way, state, (run, writer), "cun")
                    yield Line(f"{name}: {state}: {run}, broken x {writer}", beside, Preemptions(1), is_long=True)


MIGRATION_GROUPS: dict[str, Callable[[], Iterator[Line]]] = {
    "moved counters": moved_counters,
    **{f"migrations, {name}": partial(migrations, name) for name in WAYS},
    "broken migrations": broken_migrations,
}
