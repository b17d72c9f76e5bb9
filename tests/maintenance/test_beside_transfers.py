"""What others write while a copy or a restore is at work, or after one that was killed: refused, and never lost."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from threading import Event

import msgspec
import pytest

import keyplan
from keyplan.engine import (
    ALL_KEYS,
    Commit,
    Delete,
    Engine,
    Entry,
    KeyAbsent,
    KeyRange,
    MemoryEngine,
    Put,
    Snapshot,
    WrappedEngine,
    open_engine,
)
from keyplan.errors import (
    CommitConflictError,
    CorruptionError,
    HistoryCompactedError,
    IndexNotReadyError,
    MigrationRefusedError,
    MigrationUnderWayError,
    TargetNotEmptyError,
    TargetTakenError,
)
from keyplan.files import new_file
from keyplan.jobs import Progress
from keyplan.keyspace import KeySpaces, open_key_space
from keyplan.layout import Index, Layout, Table
from keyplan.maintenance import (
    back_up_key_spaces,
    clean_up_migration,
    copy_store,
    migrate,
    prepare_index,
    restore_store,
)
from keyplan.store import Store
from tests.maintenance.backups import content_of, filled, write_backup
from tests.maintenance.evolving import Moved, Old, fill, plan

CONTENT = {b"/site/%05d" % number: b"v" * 20 for number in range(600)}


@pytest.fixture
def source() -> Iterator[Engine]:
    with filled("memory:", CONTENT) as engine:
        yield engine


@pytest.fixture(params=["restore", "copy"])
def bring(request: pytest.FixtureRequest, source: Engine, tmp_path: Path) -> Callable[[Engine], object]:
    if request.param == "copy":
        return lambda target: copy_store(source, target, source_name="a")
    path = write_backup(source, tmp_path / "all.kpb")
    return lambda target: restore_store(target, path)


class AtCommit(WrappedEngine):
    """Somebody else does `act` before the commit of this number; with `dies` the process is killed there."""

    def __init__(self, inner: Engine, number: int, act: Callable[[Engine], object], *, dies: bool = False) -> None:
        super().__init__(inner, closes_inner=False)
        self.number, self.act, self.dies = number, act, dies

    def commit(self, commit: Commit) -> int:
        self.number -= 1
        if self.number == 0:
            self.act(self.inner)
            if self.dies:
                raise KeyboardInterrupt
        return self.inner.commit(commit)


class Counting(WrappedEngine):
    """Counts commits."""

    commits = 0

    def commit(self, commit: Commit) -> int:
        self.commits += 1
        return self.inner.commit(commit)


def commits_of(bring: Callable[[Engine], object]) -> int:
    with Counting(MemoryEngine()) as engine:
        bring(engine)
        return engine.commits


@pytest.mark.parametrize("key", [b"/site/00300", b"/site/00300x", b"/site/99999", b"/a"])
def test_a_write_that_was_acknowledged_meanwhile_is_refused_and_never_lost(
    bring: Callable[[Engine], object], key: bytes
) -> None:
    for number in range(1, commits_of(bring) + 1):
        with MemoryEngine() as inner:
            mine = Commit((), (Put(key, b"mine"),))
            with suppress(TargetNotEmptyError, CorruptionError):
                bring(AtCommit(inner, number, lambda engine, mine=mine: engine.commit(mine)))  # type: ignore[misc]
            assert inner.value(key) == b"mine", number


def test_a_write_of_what_is_being_brought_is_somebody_elses_too(bring: Callable[[Engine], object]) -> None:
    """A number that a counter gives, a record that was not there: whoever was told so relies on it, whatever a backup has."""
    key = b"/site/00300"
    made: list[int] = []
    for number in range(1, commits_of(bring) + 1):

        def insert(engine: Engine, number: int = number) -> None:
            with suppress(CommitConflictError):
                engine.commit(Commit((KeyAbsent(key),), (Put(key, CONTENT[key]),)))
                made.append(number)

        with MemoryEngine() as inner:
            refused = False
            try:
                bring(AtCommit(inner, number, insert))
            except TargetNotEmptyError:
                refused = True
            assert refused is (number in made), number
            assert inner.value(key) == CONTENT[key]
    assert len(made) >= 2


def test_what_is_written_after_a_killed_work_was_verified_is_not_taken_away_by_the_same_command(
    bring: Callable[[Engine], object],
) -> None:
    with MemoryEngine() as inner:
        with pytest.raises(KeyboardInterrupt):
            bring(AtCommit(inner, commits_of(bring), lambda _: None, dies=True))
        assert len(content_of(inner, KeyRange.of_prefix(b"/site/"))) == 600
        inner.commit(Commit((), (Put(b"/site/00001", b"mine"), Put(b"/new", b""), Delete(b"/site/00002"))))
        before = content_of(inner)
        with pytest.raises(TargetNotEmptyError):
            bring(inner)
        assert content_of(inner) == before


STRANGERS: dict[str, Put | Delete] = {
    "a key that was copied": Put(b"/site/00001", b"mine"),
    "a key that is not copied yet": Put(b"/site/00599", b"mine"),
    "a key that the source does not have": Put(b"/site/x", b"mine"),
    "a removal": Delete(b"/site/00001"),
    "a key that is not copied yet, as it would be": Put(b"/site/00599", CONTENT[b"/site/00599"]),
}


@pytest.mark.parametrize("what", STRANGERS)
def test_what_is_written_into_stopped_work_is_not_taken_away_by_the_same_command(
    source: Engine, tmp_path: Path, request: pytest.FixtureRequest, bring: Callable[[Engine], object], what: str
) -> None:
    with MemoryEngine() as inner:
        with pytest.raises(KeyboardInterrupt):
            bring(AtCommit(inner, 3, lambda _: None, dies=True))
        assert content_of(inner, KeyRange.of_prefix(b"/site/"))
        inner.commit(Commit((), (STRANGERS[what],)))
        before = content_of(inner, KeyRange.of_prefix(b"/site/"))
        with pytest.raises(TargetNotEmptyError):
            bring(inner)
        assert content_of(inner, KeyRange.of_prefix(b"/site/")) == before
        if request.node.callspec.params["bring"] == "copy":
            copy_store(source, inner, source_name="a", is_overwriting=True)
        else:
            restore_store(inner, tmp_path / "all.kpb", is_overwriting=True)
        assert content_of(inner) == CONTENT


@pytest.mark.parametrize("what", [*STRANGERS][:4])
def test_what_is_written_into_the_target_of_a_copy_that_follows_is_told_and_never_lost(
    source: Engine, what: str
) -> None:
    stranger, until = STRANGERS[what], Event()

    def told(now: Progress) -> None:
        if now.stage == "following" and not until.is_set():
            inner.commit(Commit((), (stranger,)))
            source.commit(Commit((), (Put(b"/site/later", b""), Delete(b"/site/00007"))))
        if now.stage == "following" and inner.value(b"/site/later") is not None:
            until.set()

    with MemoryEngine() as inner:
        with pytest.raises(TargetNotEmptyError):
            copy_store(source, inner, source_name="a", follow_until=until, progress=told)
        assert inner.value(stranger.key) == (stranger.value if isinstance(stranger, Put) else None)
        assert inner.value(b"/site/00007") is None


def test_a_stopped_copy_goes_on_when_the_source_has_changed(source: Engine) -> None:
    with MemoryEngine() as inner:
        with pytest.raises(KeyboardInterrupt):
            copy_store(source, AtCommit(inner, 3, lambda _: None, dies=True), source_name="a")
        source.commit(Commit((), (Put(b"/site/00001", b"changed"), Delete(b"/site/00002"), Put(b"/site/00003x", b""))))
        report = copy_store(source, inner, source_name="a")
        assert report.is_resumed
        assert content_of(inner) == content_of(source)


def test_copies_across_one_another_do_not_remove_each_others_keys(source: Engine) -> None:
    with MemoryEngine() as inner, filled("memory:", {b"/site/x/1": b"", b"/site/x/2": b""}) as other:

        def across(engine: Engine) -> None:
            with pytest.raises(TargetTakenError):
                copy_store(other, engine, source_name="b", prefix=b"/site/x/")

        copy_store(source, AtCommit(inner, 2, across), source_name="a", prefix=b"/site/")
        assert content_of(inner) == CONTENT


# ---- migrations ------------------------------------------------------------------------------------------------------------


def test_a_prefix_of_which_a_migration_is_under_way_is_not_replaced(tmp_path: Path) -> None:
    with keyplan.open("memory:") as store:
        fill(store, 3)
        path = write_backup(store.engine, tmp_path / "s.kpb", prefix=b"/s/")
        migrate(store, plan(store, Old, Moved))
        before = content_of(store.engine)
        with pytest.raises(MigrationUnderWayError):
            restore_store(store.engine, path, is_overwriting=True)
        with filled("memory:", {b"/s/x": b""}) as other, pytest.raises(MigrationUnderWayError):
            copy_store(other, store.engine, source_name="o", prefix=b"/s/", is_overwriting=True)
        assert content_of(store.engine) == before
        migrate(store, plan(store, Old, Moved), is_switched=True)
        clean_up_migration(store, plan(store, Old, Moved))
        restore_store(store.engine, path, is_overwriting=True)
        assert Old(store).boxes.count() == 3


def test_no_migration_begins_while_its_keys_are_being_replaced(tmp_path: Path) -> None:
    with keyplan.open("memory:") as store:
        fill(store, 3)
        path = write_backup(store.engine, tmp_path / "s.kpb", prefix=b"/s/")
        with pytest.raises(KeyboardInterrupt):
            restore_store(AtCommit(store.engine, 2, lambda _: None, dies=True), path, is_overwriting=True)
        with pytest.raises(MigrationRefusedError, match="a restore into /s/ is not finished"):
            migrate(store, plan(store, Old, Moved))


# ---- states of indexes -----------------------------------------------------------------------------------------------------


class City(msgspec.Struct, frozen=True):
    city: str


class Plain(Layout, root="/s/c/"):
    people = Table("people/{name}", key=str, value=City)


class Indexed(Layout, root="/s/c/"):
    people = Table("people/{name}", key=str, value=City)
    by_city = Index("by-city/{city}/{name}", of=people, key=str)


class IndexedElsewhere(Indexed, root="/t/c/"):
    pass


def test_an_index_that_is_not_whole_is_not_readable_where_its_prefix_is_brought(tmp_path: Path) -> None:
    with keyplan.open("memory:") as store:
        Plain(store).people.insert("a", City("ulm"))
        prepare_index(store, Indexed.bound(), "by_city")
        path = write_backup(store.engine, tmp_path / "s.kpb", prefix=b"/s/")
        with keyplan.open("memory:") as copied, keyplan.open("memory:") as restored:
            copy_store(store.engine, copied.engine, source_name="s", prefix=b"/s/")
            restore_store(restored.engine, path)
            restore_store(restored.engine, path, prefix=b"/t/")
            for target, layout in ((copied, Indexed), (restored, Indexed), (restored, IndexedElsewhere)):
                with pytest.raises(IndexNotReadyError):
                    layout(target).by_city.count()


# ---- a source that forgets -------------------------------------------------------------------------------------------------


class Forgetting(WrappedEngine):
    """The source's history is compacted behind some snapshots, the first after `whole`: a scan of one ends with an error."""

    def __init__(
        self, inner: Engine, snapshots: int, *, whole: int = 0, act: Callable[[], object] = lambda: None
    ) -> None:
        super().__init__(inner, closes_inner=False)
        self.left = snapshots
        self.whole = whole
        self.act = act

    def snapshot(self) -> Snapshot:
        snapshot = self.inner.snapshot()
        if self.whole:
            self.whole -= 1
            return snapshot
        self.left -= 1
        if self.left >= 0:
            scan = snapshot.scan

            def ends(key_range: KeyRange, **options: bool) -> Iterator[Entry]:
                for number, entry in enumerate(scan(key_range, **options)):
                    if number == 500 and key_range != ALL_KEYS and key_range.start == b"/site/":
                        self.inner.commit(Commit((), (Put(b"/site/00001", b"changed"),)))
                        self.act()
                        raise HistoryCompactedError(requested=1, compacted=2)
                    yield entry

            snapshot.scan = ends  # type: ignore[method-assign, assignment]  # Why: to end it.
        return snapshot


def test_a_copy_goes_on_at_a_later_state_when_the_source_forgets_the_first(source: Engine) -> None:
    with open_engine("memory:") as target:
        report = copy_store(Forgetting(source, 5), target, source_name="a", prefix=b"/site/")
        assert content_of(target) == content_of(source)
        assert report.tally.count == 600
    with open_engine("memory:") as target, pytest.raises(HistoryCompactedError):
        copy_store(Forgetting(source, 100), target, source_name="a", prefix=b"/site/")


@pytest.mark.parametrize("key", [b"/site/00001", b"/site/x"])
def test_what_is_written_between_two_states_of_the_source_is_refused_and_never_lost(source: Engine, key: bytes) -> None:
    def writes() -> None:
        target.commit(Commit((), (Put(key, b"mine"),)))

    with open_engine("memory:") as target:
        # The state in which the pairs are checked is whole; that from which they are copied is forgotten.
        with pytest.raises(TargetNotEmptyError):
            copy_store(Forgetting(source, 1, whole=1, act=writes), target, source_name="a", prefix=b"/site/")
        assert target.value(key) == b"mine"


def test_a_store_that_holds_the_marks_is_replaced_whole(tmp_path: Path) -> None:
    with keyplan.open("memory:") as store:
        fill(store, 3)
        migrate(store, plan(store, Old, Moved))
        path = write_backup(store.engine, tmp_path / "all.kpb")
        before = content_of(store.engine)
        store.engine.commit(Commit((), (Put(b"/s/crates/a/0", b"{"),)))
        restore_store(store.engine, path, is_overwriting=True)
        assert content_of(store.engine) == before
        assert Moved(Store(store.engine)).boxes.count() == 3


def test_a_claim_within_a_key_space_is_in_no_backup_of_it(source: Engine, tmp_path: Path) -> None:
    with MemoryEngine() as engine:
        registry = KeySpaces(engine)
        registry.init()
        registry.create("orders", "shop")
        with open_key_space(engine, "orders", "shop") as space, pytest.raises(KeyboardInterrupt):
            copy_store(source, AtCommit(space.engine, 2, lambda _: None, dies=True), source_name="a")
        with new_file(tmp_path / "one.kpb") as file:
            assert back_up_key_spaces(engine, file, name="orders").count == 0
