"""The lines of what moves records: migrations, backups, restores, copies."""

import io
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cache, partial
from itertools import permutations
from pathlib import Path
from typing import Any

from keyplan.engine import ALL_KEYS, Commit, Delete, Engine, MemoryEngine, Mutation, Put, WrappedEngine
from keyplan.errors import (
    CorruptionError,
    MigrationRefusedError,
    TargetNotEmptyError,
    TargetTakenError,
)
from keyplan.jobs import UNPACED
from keyplan.layout import Layout
from keyplan.maintenance import Claim, CopyReport, back_up_store, copy_store, migrate, restore_store
from keyplan.maintenance.claims import CLAIM_FORM
from keyplan.store import TRANSFER_AREA, Store
from keyplan.testing.checked import assert_healthy
from keyplan.testing.schedules import ACTOR_ERRORS, Outcome, ParkingEngine, Scenario, actor, healthy, settles
from tests.maintenance.backups import filled, write_backup
from tests.maintenance.evolving import Box, Moved, Old, Reindexed, Shelf, cleaned, fill, plan, switched
from tests.maintenance.layouts import Site
from tests.schedules.lines import Line, line_name
from tests.schedules.writers import WRITERS, two_records

__all__ = ["TRANSFER_GROUPS"]

# ---- migrations ------------------------------------------------------------------------------------------------------------

OLD_WRITERS: dict[str, Callable[[Store], object]] = {
    "put": lambda store: Old(store).boxes.put(Shelf("a", 0), Box("other", ["blue"])),
    "insert": lambda store: Old(store).boxes.insert(Shelf("b", 9), Box("new", ["red"])),
    "delete": lambda store: Old(store).boxes.delete(Shelf("a", 0)),
    "rename": lambda store: Old(store).boxes.rename(Shelf("a", 1), Shelf("c", 1)),
    "transaction": lambda store: store.run(_move_name),
}


def _move_name(transaction: object) -> None:
    boxes = Old(transaction).boxes  # type: ignore[arg-type]
    boxes.delete(Shelf("a", 0))
    boxes.put(Shelf("a", 1), Box("box0", ["green"]))


def _two_boxes(store: Store) -> None:
    fill(store, 2)


def _migrates(new: type[Layout]) -> Callable[[Store], None]:
    def migration(store: Store) -> None:
        migrate(store, plan(store, Old, new), pace=UNPACED)

    return migration


def _switches(new: type[Layout]) -> Callable[[Store], None]:
    def switch(store: Store) -> None:
        report = switched(store, Old, new)
        assert report.is_settled, report
        cleaned(store, Old, new)

    return switch


def _migration(new: type[Layout], writer: str) -> Scenario:
    return Scenario(
        actor(_migrates(new), "migrate"),
        actor(OLD_WRITERS[writer], writer),
        setup=_two_boxes,
        layouts=[Old],
        invariants=[settles(_switches(new)), partial(_holds_records_of, new)],
        only_raises=(*ACTOR_ERRORS, MigrationRefusedError),
    )


def _holds_records_of(new: type[Layout], outcome: Outcome) -> None:
    """The new layout holds the records that the writer alone would have left in the old one."""
    writer = outcome.scenario.names[1]
    alone = outcome.in_order([writer] if writer in outcome.answers else [])
    wanted = dict(_rows(Old(alone.store)))
    found = dict(_rows(new(outcome.store)))
    assert found == wanted, f"records: {found} instead of {wanted}"
    healthy(new)(outcome)


def _rows(layout: Any) -> list[tuple[Shelf, Box]]:
    return [*layout.boxes.list("a"), *layout.boxes.list("b"), *layout.boxes.list("c")]


def migrations() -> Iterator[Line]:
    """A migration before its switch beside writers by the old layout; the switch carries over what they did."""
    for new in (Moved, Reindexed):
        for writer in OLD_WRITERS:
            yield Line(line_name(f"migrate to {new.__name__}", writer), partial(_migration, new, writer))


def _settled(new: type[Layout], store: Store) -> None:
    """A migration that was switched; a program by the old layout is still there, which should not."""
    _two_boxes(store)
    report = switched(store, Old, new)
    assert report.is_settled, report


def _cleans(new: type[Layout]) -> Callable[[Store], None]:
    def clean(store: Store) -> None:
        cleaned(store, Old, new)

    return clean


def _is_told(outcome: Outcome) -> None:
    """A record that was acknowledged to a late writer by the old layout is there, or the clean-up did not end."""
    if "late writer" not in outcome.answers or "clean up" not in outcome.answers:
        return
    found = [*Old(outcome.store).boxes.list("b"), *Moved(outcome.store).boxes.list("b")]
    late = Shelf("b", 9)
    assert late in [key for key, _ in found], f"lost: {late} was acknowledged, the clean-up ended, and it is nowhere"


def _cleaning(new: type[Layout]) -> Scenario:
    return Scenario(
        actor(_cleans(new), "clean up"),
        actor(OLD_WRITERS["insert"], "late writer"),
        setup=partial(_settled, new),
        layouts=[Old],
        invariants=[_is_told],
        only_raises=(*ACTOR_ERRORS, MigrationRefusedError),
    )


def cleanings() -> Iterator[Line]:
    """The clean-up of a migration beside a writer by the old layout who is late."""
    yield Line("clean up x late writer", partial(_cleaning, Moved))


# ---- backups, restores, copies ---------------------------------------------------------------------------------------------

TRANSFER_ERRORS = (*ACTOR_ERRORS, CorruptionError, TargetNotEmptyError, TargetTakenError)


def _backs_up(store: Store) -> bytes:
    file = io.BytesIO()
    back_up_store(store.engine, file)
    return file.getvalue()


def _is_restored_whole(outcome: Outcome) -> None:
    with tempfile.TemporaryDirectory(prefix="keyplan-schedules-") as folder, MemoryEngine() as engine:
        path = Path(folder) / "backup"
        path.write_bytes(outcome.answers["backup"])
        restore_store(engine, path)
        assert_healthy(Store(engine), Site)
        with engine.snapshot() as snapshot:
            found = {each.key: each.value for each in snapshot.scan(ALL_KEYS) if each.key.startswith(b"/site/")}
    states = (
        {key: value for key, value in state.items() if key.startswith(b"/site/")}
        for state in _states_of_source(outcome).values()
    )
    assert found in states, f"backup: it holds {found}, which the store never held"


def _backup(names: tuple[str, ...]) -> Scenario:
    actors = [actor(WRITERS[name], name) for name in names]
    return Scenario(
        actor(_backs_up, "backup"),
        *actors,
        setup=two_records,
        layouts=[Site],
        invariants=[healthy(Site), _is_restored_whole],
    )


TWO_WRITERS = [
    ("put new", "delete"),
    ("rename", "rename other"),
    ("swap", "modify"),
    ("insert new", "put other"),
    ("insert new", "delete"),
]


def backups() -> Iterator[Line]:
    """A backup beside two writers is a state that the store had: restored, it is whole."""
    for names in TWO_WRITERS:
        yield Line(line_name("backup", *names), partial(_backup, names))


@cache
def backup_path() -> Path:
    """A backup of two records; the folder is the process's own and goes with it."""
    folder = tempfile.TemporaryDirectory(prefix="keyplan-schedules-")
    _FOLDERS.append(folder)
    store = Store(filled("memory:", {}))
    two_records(store)
    return write_backup(store.engine, Path(folder.name) / "two-records")


_FOLDERS: list[tempfile.TemporaryDirectory[str]] = []


def _restores(store: Store) -> None:
    restore_store(store.engine, backup_path())


def _overwrites(store: Store) -> None:
    restore_store(store.engine, backup_path(), is_overwriting=True)


def _no_silent_loss(outcome: Outcome) -> None:
    """What is there is what some order of those that were told of success leaves, unless no restore was."""
    if not any(name.endswith("restore") for name in outcome.answers):
        return
    assert_whole = healthy(Site)
    assert_whole(outcome)
    found = _of_site(outcome)
    for order in permutations(outcome.answers):
        serial = outcome.in_order(order)
        if serial.answers.keys() == outcome.answers.keys() and _of_site(serial) == found:
            return
    raise AssertionError(f"lost: no order of {', '.join(outcome.answers)} leaves {sorted(found)}")


def _of_site(outcome: Outcome) -> dict[bytes, bytes]:
    return {key: value for key, value, _ in outcome.stored()[0] if key.startswith(b"/site/")}


def _restore(writer: str, *, is_overwriting: bool) -> Scenario:
    return Scenario(
        actor(_overwrites if is_overwriting else _restores, "restore"),
        actor(WRITERS[writer], writer),
        setup=two_records if is_overwriting else None,
        layouts=[Site],
        invariants=[_no_silent_loss],
        only_raises=TRANSFER_ERRORS,
    )


def _two_restores() -> Scenario:
    return Scenario(
        actor(_restores, "restore"),
        actor(_restores, "other restore"),
        layouts=[Site],
        invariants=[_no_silent_loss],
        only_raises=TRANSFER_ERRORS,
    )


def restores() -> Iterator[Line]:
    """A restore into an empty store and over another's content beside a writer; two restores."""
    for is_overwriting in (False, True):
        for writer in ("insert new", "put new", "count", "delete"):
            what = "overwriting restore" if is_overwriting else "restore"
            yield Line(line_name(what, writer), partial(_restore, writer, is_overwriting=is_overwriting))
    yield Line("restore x restore", _two_restores)


def _copies(source: Store, target: Store) -> CopyReport:
    return copy_store(source.engine, target.engine, source_name="source")


class _Looks:
    """Says stop after so many looks."""

    def __init__(self, looks: int) -> None:
        self._left = looks

    def is_set(self) -> bool:
        self._left -= 1
        return self._left < 0

    def wait(self, timeout: float | None = None) -> bool:
        return self.is_set()


def _follows(looks: int) -> Callable[[Store, Store], CopyReport]:
    def follow(source: Store, target: Store) -> CopyReport:
        return copy_store(source.engine, target.engine, source_name="source", follow_until=_Looks(looks))

    return follow


def _beside_source(name: str) -> Callable[[Store, Store], object]:
    return lambda source, _target: WRITERS[name](source)


def _fill_source(source: Store, _target: Store) -> None:
    two_records(source)


def _is_a_copy(outcome: Outcome) -> None:
    """The target holds the source as of the revision that the copy reports; while it followed, as of each that it noted."""
    sources = _states_of_source(outcome)
    target: dict[bytes, bytes] = {}
    for made in outcome.commits:
        if made.engine != _TARGET:
            continue
        _apply(made.commit, target)
        noted = [decoded for each in made.commit.mutations if (decoded := _claim_put(each)) is not None]
        if noted and noted[-1].is_copied and not noted[-1].verified:
            _assert_same(target, sources, noted[-1].followed)
    reports = [answer for answer in outcome.answers.values() if isinstance(answer, CopyReport)]
    if reports:
        stored = {key: value for key, value, _ in outcome.stored()[_TARGET]}
        _assert_same(stored, sources, max(report.revision for report in reports))
        assert_healthy(outcome.stores[_TARGET], Site)


_SOURCE, _TARGET = 0, 1


def _claim_put(mutation: Mutation) -> Claim | None:
    """The claim that a write of the transfer puts; None for any other write."""
    if not isinstance(mutation, Put) or mutation.key not in TRANSFER_AREA:
        return None
    claim = CLAIM_FORM.decode(mutation.value)
    assert isinstance(claim, Claim)
    return claim


def _states_of_source(outcome: Outcome) -> dict[int, dict[bytes, bytes]]:
    """The source at each of its revisions since the copy could begin. Not from its history, which may be forgotten."""
    memory = outcome.scenario.template.memories[_SOURCE]
    state = {entry.key: entry.value for entry in memory.entries.scan(ALL_KEYS)}
    states = {memory.revision: dict(state)}
    for made in outcome.commits:
        if made.engine == _SOURCE:
            _apply(made.commit, state)
            states[made.revision] = dict(state)
    return states


def _apply(commit: Commit, state: dict[bytes, bytes]) -> None:
    for mutation in commit.mutations:
        if isinstance(mutation, Put):
            state[mutation.key] = mutation.value
        elif isinstance(mutation, Delete):
            state.pop(mutation.key, None)
        else:
            for key in [key for key in state if key in mutation.range]:
                del state[key]


def _assert_same(target: Mapping[bytes, bytes], sources: Mapping[int, dict[bytes, bytes]], revision: int) -> None:
    found, wanted = (
        {key: value for key, value in state.items() if key.startswith(b"/site/")}
        for state in (target, sources[revision])
    )
    assert found == wanted, f"copy: at revision {revision} it holds {found} instead of {wanted}"


def _compacts_source(source: Store, _target: Store) -> None:
    assert isinstance(source.engine, ParkingEngine)
    source.engine.compact_all_but(0)


def _copy(names: tuple[str, ...], *, looks: int | None, compactions: int = 0, faults: str = "") -> Scenario:
    return Scenario(
        actor(_copies if looks is None else _follows(looks), "copy"),
        *[actor(_beside_source(name), name) for name in names],
        *[actor(_compacts_source, "compaction")] * compactions,
        faults={"copy": faults},
        setup=_fill_source,
        layouts=[Site],
        engines=2,
        invariants=[_is_a_copy],
        only_raises=TRANSFER_ERRORS,
    )


def _two_copies() -> Scenario:
    return Scenario(
        actor(_copies, "copy"),
        actor(_copies, "other copy"),
        setup=_fill_source,
        layouts=[Site],
        engines=2,
        invariants=[_is_a_copy],
        only_raises=TRANSFER_ERRORS,
    )


class _Dying(WrappedEngine):
    """The process dies when the copy is there, and is not verified yet."""

    def commit(self, commit: Commit) -> int:
        if any(isinstance(write, Put) and b'"verified":"' in write.value for write in commit.mutations):
            claim = next(write.value for write in commit.mutations if isinstance(write, Put))
            if b'"verified":""' not in claim:
                raise KeyboardInterrupt
        return self.inner.commit(commit)


def _stopped_copy(source: Store, target: Store) -> None:
    """A copy that was stopped; the source has changed since."""
    two_records(source)
    with suppress(KeyboardInterrupt):
        copy_store(source.engine, _Dying(target.engine, closes_inner=False), source_name="source")
    WRITERS["put new"](source)


_STRANGERS: dict[str, Callable[[Engine], object]] = {
    "own key": lambda engine: engine.commit(Commit((), (Put(b"/site/other", b"mine"),))),
    "copied key": lambda engine: engine.commit(Commit((), (Put(b"/site/rack/r/blades/1", b"mine"),))),
}


def _is_kept(key: bytes, outcome: Outcome) -> None:
    found = outcome.stores[1].engine.value(key)
    assert found == b"mine", f"lost: what a stranger wrote at {key!r} was acknowledged, and is {found!r}"


def _resumed_copy(stranger: str) -> Scenario:
    key = {"own key": b"/site/other", "copied key": b"/site/rack/r/blades/1"}[stranger]
    return Scenario(
        actor(_copies, "copy"),
        actor(lambda _source, target: _STRANGERS[stranger](target.engine), stranger),
        setup=_stopped_copy,
        layouts=[],
        engines=2,
        invariants=[partial(_is_kept, key)],
        only_raises=TRANSFER_ERRORS,
    )


def copies() -> Iterator[Line]:
    """A copy, and one that follows, beside writers of the source and a compaction; two copies; one that goes on."""
    for stranger in _STRANGERS:
        yield Line(line_name("copy that goes on", stranger), partial(_resumed_copy, stranger))
    for name in ("put new", "delete", "rename"):
        yield Line(line_name("copy", name), partial(_copy, (name,), looks=None))
        for looks in (3, 6):
            yield Line(line_name(f"copy that follows {looks}", name), partial(_copy, (name,), looks=looks))
        yield Line(line_name("copy", name, "compaction"), partial(_copy, (name,), looks=None, compactions=1))
        for looks in (2, 3, 4, 6):
            beside = partial(_copy, (name,), looks=looks, compactions=1)
            yield Line(line_name(f"copy that follows {looks}", name, "compaction"), beside)
        beside = partial(_copy, (name,), looks=4, compactions=2)
        yield Line(line_name("copy that follows 4", name, "compaction", "compaction"), beside)
        gone = partial(_copy, (name,), looks=3, faults="h")
        yield Line(line_name("copy that follows 3", name) + ", history gone at each look", gone)
    two = ("put new", "delete")
    yield Line("copy that follows 4 x put new x delete x compaction", partial(_copy, two, looks=4, compactions=1))
    yield Line("copy x copy", _two_copies)


TRANSFER_GROUPS: dict[str, Callable[[], Iterator[Line]]] = {
    "migrations": migrations,
    "cleanings": cleanings,
    "backups": backups,
    "restores": restores,
    "copies": copies,
}
