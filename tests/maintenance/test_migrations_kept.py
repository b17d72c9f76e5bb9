"""Which layout a table's records are in travels with them: by a backup, another prefix, a copy."""

from io import BytesIO
from pathlib import Path

import msgspec
import pytest

import keyplan
from keyplan.engine import Commit, Delete, Entry, KeyRange, MemoryEngine, Put, SystemPause, WrappedEngine
from keyplan.errors import SourceUnfinishedError, StoppedError, TargetNotEmptyError
from keyplan.layout import Layout, Parameter, Table
from keyplan.maintenance import (
    Conversion,
    back_up_store,
    copy_store,
    history_of,
    migrate,
    plan_migration,
    restore_store,
)
from keyplan.store import Store, layouts_at, root_key


class Pounds(msgspec.Struct, frozen=True):
    price: int


class Pence(msgspec.Struct, frozen=True):
    price: int
    unit: str = "p"


class InPounds(Layout, root="/{shop}/"):
    shop = Parameter(default="p")
    goods = Table("goods/{name}", key=str, value=Pounds)


class InPence(Layout, root="/{shop}/"):
    shop = Parameter(default="p")
    goods = Table("goods/{name}", key=str, value=Pence)


UP = {"goods": Conversion(lambda old: Pence(old.price * 100), "tests:up")}


def backed_up(store: Store, path: Path, prefix: bytes = b"/p/") -> Path:
    with path.open("wb") as file:
        back_up_store(store.engine, file, prefix=prefix)
    return path


def converted(store: Store, shop: str = "p") -> bool:
    """Run the migration as at every deployment; return whether it may be run."""
    plan = plan_migration(store.engine, InPounds.bound(shop=shop), InPence.bound(shop=shop), conversions=UP)
    if not plan.obstacles:
        assert migrate(store, plan, is_switched=True).is_settled
    return not plan.obstacles


def prices(store: Store, shop: str = "p") -> list[int]:
    return [good.price for _, good in InPence(store, shop=shop).goods.list()]


@pytest.fixture
def pounds(store: Store) -> Store:
    InPounds(store).goods.insert("x", Pounds(5))
    return store


def test_what_comes_from_before_the_migration_is_converted(pounds: Store, tmp_path: Path) -> None:
    path = backed_up(pounds, tmp_path / "before")
    assert converted(pounds)
    assert prices(pounds) == [500]
    restore_store(pounds.engine, path, is_overwriting=True)
    assert history_of(pounds.engine, b"/p/") == []
    assert converted(pounds)
    assert prices(pounds) == [500]


def test_what_was_converted_is_not_converted_again_where_it_comes(pounds: Store, tmp_path: Path) -> None:
    assert converted(pounds)
    path = backed_up(pounds, tmp_path / "after")
    with keyplan.open("memory:") as other:
        restore_store(other.engine, path)
        with other.engine.snapshot() as snapshot:
            found = layouts_at(snapshot, b"/p/")
        assert found is not None
        assert found.layouts == (InPence.bound().fingerprint,)
        converted(other)
        assert prices(other) == [500]
        assert restore_store(other.engine, path).was_complete


def test_it_is_so_below_another_prefix(pounds: Store, tmp_path: Path) -> None:
    assert converted(pounds)
    path = backed_up(pounds, tmp_path / "after")
    with keyplan.open("memory:") as other:
        restore_store(other.engine, path, prefix=b"/q/")
        assert [past.root for past in history_of(other.engine, b"/q/")] == [b"/q/"]
        converted(other, "q")
        assert prices(other, "q") == [500]


def test_a_copy_takes_it_along(pounds: Store) -> None:
    assert converted(pounds)
    with keyplan.open("memory:") as other:
        copy_store(pounds.engine, other.engine, prefix=b"/p/", source_name="here")
        converted(other)
        assert prices(other) == [500]


def test_a_backup_without_it_says_nothing(store: Store) -> None:
    file = BytesIO()
    InPounds(store).goods.insert("x", Pounds(5))
    back_up_store(store.engine, file, prefix=b"/p/")
    assert b"migrations" not in file.getvalue()


class Stopped:
    """Tells a run to end once it has begun to convert."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def is_set(self) -> bool:
        return 500 in {msgspec.json.decode(entry.value)["price"] for entry in raw_goods(self._store)}


def raw_goods(store: Store) -> list[Entry]:
    with store.engine.snapshot() as snapshot:
        return list(snapshot.scan(KeyRange.of_prefix(b"/p/goods/")))


def test_what_is_half_converted_is_not_taken_for_a_whole(pounds: Store, tmp_path: Path) -> None:
    for number in range(100):
        InPounds(pounds).goods.insert(f"g{number}", Pounds(5))
    plan = plan_migration(pounds.engine, InPounds.bound(), InPence.bound(), conversions=UP)
    with pytest.raises(StoppedError):
        migrate(pounds, plan, is_switched=True, stop=Stopped(pounds))
    assert {msgspec.json.decode(entry.value)["price"] for entry in raw_goods(pounds)} == {5, 500}
    with pytest.raises(SourceUnfinishedError, match="converts goods where the records stand"):
        backed_up(pounds, tmp_path / "half")
    with keyplan.open("memory:") as other, pytest.raises(SourceUnfinishedError):
        copy_store(pounds.engine, other.engine, prefix=b"/p/", source_name="here")
    # A whole store takes along what tells them apart.
    path = backed_up(pounds, tmp_path / "whole", b"")
    with keyplan.open("memory:") as other:
        restore_store(other.engine, path)
        again = plan_migration(other.engine, InPounds.bound(), InPence.bound(), conversions=UP)
        assert migrate(other, again, is_switched=True).is_settled
        assert set(prices(other)) == {500}


class Contradicting(WrappedEngine):
    """Somebody writes what a root's layouts are before each commit that would write them."""

    def commit(self, commit: Commit) -> int:
        place = root_key(b"/p/")
        if any(one.key == place for one in commit.mutations if isinstance(one, Put | Delete)):
            with self.inner.snapshot() as snapshot:
                count = len(snapshot.value(place) or b"")
            self.inner.commit(Commit((), (Put(place, b"x" * (count + 1)),)))
        return self.inner.commit(commit)


def test_a_restore_ends_where_somebody_writes_the_same_again_and_again(
    pounds: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert converted(pounds)
    path = backed_up(pounds, tmp_path / "after")
    monkeypatch.setattr(SystemPause, "wait", lambda _: None)
    with Contradicting(MemoryEngine()) as engine, pytest.raises(TargetNotEmptyError):
        restore_store(engine, path)
