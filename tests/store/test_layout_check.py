"""Layouts that are not the store's: told when they are bound, by a warning or an error, and none that fits by mistake."""

import asyncio
import warnings
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import pytest
from msgspec import Struct

import keyplan
from keyplan import Index, Layout, Parameter, Table, aio
from keyplan.engine import Commit, Engine, MemoryEngine, Put, RecordingEngine, WrappedEngine
from keyplan.errors import (
    CorruptionError,
    EngineUnavailableError,
    InvalidInputError,
    LayoutMismatchError,
    MigrationRefusedError,
)
from keyplan.keyspace import KeySpaces, open_key_space
from keyplan.layout import Mode
from keyplan.maintenance import MigrationPlan, clean_up_migration, migrate, note_layout, plan_migration
from keyplan.maintenance import roll_back_migration as roll_back
from keyplan.store import LayoutWarning, NotedLayout, RootLayouts, Store, root_key, root_note


class Book(Struct):
    title: str
    author: str = ""


class Old(Layout[Mode], root="/lib/"):
    books = Table("books/{book}", key=int, value=Book)
    by_author = Index("authors/{author}/{book}", of=books, key=str)
    notes = Table("notes/{note}", key=str, value=str)


class New(Layout[Mode], root="/lib/"):
    books = Table("volumes/{book}", key=int, value=Book)
    by_author = Index("authors/{author}/{book}", of=books, key=str)
    notes = Table("notes/{note}", key=str, value=str)


class Elsewhere(New[Mode], root="/library/"):
    pass


class Notes(Layout, root="/lib/"):
    """A tool's: one table of them all."""

    notes = Table("notes/{note}", key=str, value=str)


class Shared(Layout, root="/lib/"):
    """Another application's, below the same root."""

    loans = Table("loans/{loan}", key=int, value=str)


class Indexless(Layout, root="/lib/"):
    books = Table("volumes/{book}", key=int, value=Book)


class Grown(New, root="/lib/"):
    loans = Table("loans/{loan}", key=int, value=str)


class Bound(Grown, root="/lib/"):
    """The notes stand elsewhere."""

    notes = Table("remarks/{note}", key=str, value=str)


class Shelved(New, root="/lib/"):
    """With one table more, which takes no steps."""

    shelves = Table("shelves/{shelf}", key=int, value=str)


class Remarked(Shelved, root="/lib/"):
    """The notes stand elsewhere."""

    notes = Table("remarks/{note}", key=str, value=str)


class Lent(Layout, root="/lib/"):
    """What becomes of `Shared`."""

    loans = Table("lent/{loan}", key=int, value=str)


class Tenant(Layout, root="/{tenant}/"):
    tenant = Parameter()
    notes = Table("notes/{note}", key=str, value=str)


def plan(engine: Engine, old: type[Layout] = Old, new: type[Layout] = New) -> MigrationPlan:
    return plan_migration(engine, old.bound(), new.bound(), name="0001_volumes")


def run(engine: Engine) -> None:
    migrate(Store(engine), plan(engine))


def switch(engine: Engine) -> None:
    assert migrate(Store(engine), plan(engine), is_switched=True).is_settled


def back(engine: Engine) -> None:
    assert roll_back(Store(engine), plan(engine)).is_rolled_back


def finish(engine: Engine) -> None:
    assert clean_up_migration(Store(engine), plan(engine)).is_cleaned


@pytest.fixture
def engine() -> Engine:
    engine = MemoryEngine()
    Old(Store(engine)).books.insert(1, Book("Dune", "Herbert"))
    return engine


def told(engine: Engine, *layouts: type[Layout[Any]]) -> set[type[Layout[Any]]]:
    """The layouts that a store refuses that is opened anew."""
    found = set()
    for layout in layouts:
        try:
            layout(Store(engine, layout_check="refuse"))
        except LayoutMismatchError:
            found.add(layout)
    return found


class Story(NamedTuple):
    steps: tuple[Callable[[Engine], None], ...]
    told: set[type[Layout]]


STORIES = {
    "never migrated": Story((), set()),
    "both at work": Story((run,), set()),
    "switched": Story((run, switch), {Old}),
    "rolled back": Story((switch, back), {New}),
    "switched once more": Story((switch, back, switch), {Old}),
    "over": Story((switch, finish), {Old}),
}


@pytest.mark.parametrize("name", STORIES)
def test_a_store_tells_who_has_the_layout_that_was_left(engine: Engine, name: str) -> None:
    for step in STORIES[name].steps:
        step(engine)
    assert told(engine, Old, New, Notes, Shared) == STORIES[name].told


def test_an_old_program_is_told_from_the_moment_at_which_the_switch_begins(engine: Engine) -> None:
    with pytest.raises(ZeroDivisionError):
        migrate(Store(engine), plan(engine), is_switched=True, progress=lambda _: print(1 // 0))
    assert told(engine, Old, New) == {Old}


def test_a_layout_is_told_by_what_of_it_the_store_has_otherwise(engine: Engine) -> None:
    switch(engine)
    assert told(engine, Indexless, Grown, Notes, Shared) == {Indexless, Grown}


def test_it_is_said_what_differs_how_it_came_to_that_and_what_to_do(engine: Engine) -> None:
    switch(engine)
    with pytest.raises(LayoutMismatchError) as refused:
        Old(Store(engine, layout_check="refuse"))
    facts = refused.value.facts
    assert facts["layout"] == f"Old ({Old.bound().fingerprint})"
    assert facts["stored"] == f"New ({New.bound().fingerprint})"
    assert (facts["root"], facts["problem"]) == ("/lib/", "0001_volumes has led away from it")
    assert facts["differences"] == ("books: its keys are books/{book}, no longer volumes/{book}",)
    assert facts["advice"] == "run a program of New"


def test_a_warning_names_the_line_that_binds_and_comes_once_for_each_store(engine: Engine) -> None:
    switch(engine)
    store = Store(engine, layout_check="warn")
    with pytest.warns(LayoutWarning, match="0001_volumes") as found:
        Old(store)
    assert [warning.filename for warning in found] == [__file__]
    Old(store)  # a second warning would be an error here
    with store.transaction() as transaction:
        Old(transaction)


def test_a_warning_that_is_made_an_error_is_one_each_time(engine: Engine) -> None:
    switch(engine)
    store = Store(engine, layout_check="warn")
    for _ in range(2):
        with warnings.catch_warnings():
            warnings.simplefilter("error", LayoutWarning)
            with pytest.raises(LayoutWarning):
                Old(store)


@pytest.mark.parametrize("kind", ["transaction", "snapshot"])
def test_a_layout_that_is_bound_to_a_block_first_is_looked_at_too(engine: Engine, kind: str) -> None:
    switch(engine)
    with getattr(Store(engine, layout_check="refuse"), kind)() as binding, pytest.raises(LayoutMismatchError):
        Old(binding)


def test_binding_costs_one_read_once(engine: Engine) -> None:
    switch(engine)
    recorded = RecordingEngine(engine)
    store = Store(recorded, layout_check="warn")
    for _ in range(3):
        New(store)
        with store.transaction() as transaction:
            New(transaction)
    assert [call.method for call in recorded.calls if call.method != "snapshot"] == ["get"]


def test_a_root_that_everything_has_left_says_where_it_went(engine: Engine) -> None:
    migrated = plan(engine, New, Elsewhere)
    assert migrate(Store(engine), migrated, is_switched=True).is_settled
    with pytest.raises(LayoutMismatchError, match="everything is below /library/"):
        New(Store(engine, layout_check="refuse"))
    assert roll_back(Store(engine), migrated).is_rolled_back
    assert told(engine, New, Elsewhere) == {Elsewhere}


def test_a_store_that_was_never_migrated_notes_a_layout_when_it_is_told_to(engine: Engine) -> None:
    assert told(engine, Old, New) == set()
    note_layout(engine, Old.bound())
    note_layout(engine, Old.bound())
    assert told(engine, Old, New) == {New}
    with pytest.raises(MigrationRefusedError, match="the store notes another layout"):
        note_layout(engine, New.bound())
    switch(engine)
    assert told(engine, Old, New) == {Old}


def test_what_was_restored_below_another_prefix_is_the_same_layout(engine: Engine) -> None:
    noted = RootLayouts(b"/q/", (NotedLayout.of(Tenant.bound(tenant="p")),))
    engine.commit(Commit((), (root_note(noted),)))
    Tenant(Store(engine, layout_check="refuse"), tenant="q")


def test_layouts_that_fit_one_another_come_and_go_together(engine: Engine) -> None:
    note_layout(engine, New.bound())
    assert told(engine, New, Grown) == {Grown}
    assert migrate(Store(engine), plan(engine, New, Grown)).is_settled  # which takes no steps, and is noted
    for is_switched, out in ((False, set[type[Layout]]()), (True, {New, Grown})):
        migrate(Store(engine), plan(engine, Grown, Bound), is_switched=is_switched)
        assert told(engine, New, Grown) == out
    assert roll_back(Store(engine), plan(engine, Grown, Bound)).is_rolled_back
    assert told(engine, New, Grown, Bound) == {Bound}


class Unreachable(WrappedEngine):
    def value(self, key: bytes) -> bytes | None:
        raise EngineUnavailableError(engine="test")


def test_a_store_that_cannot_say_it_refuses_and_does_not_warn(engine: Engine) -> None:
    Old(Store(Unreachable(engine), layout_check="warn"))
    with pytest.raises(EngineUnavailableError):
        Old(Store(Unreachable(engine), layout_check="refuse"))
    engine.commit(Commit((), (Put(root_key(b"/lib/"), b"{"),)))
    Old(Store(engine, layout_check="warn"))
    with pytest.raises(CorruptionError):
        Old(Store(engine, layout_check="refuse"))
    damaged = NotedLayout("0" * 16, "Newer", description="{")
    engine.commit(Commit((), (root_note(RootLayouts(b"/lib/", (damaged,))),)))
    Old(Store(engine, layout_check="warn"))
    with pytest.raises(InvalidInputError):
        Old(Store(engine, layout_check="refuse"))


def test_another_word_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="'never' is not warn, refuse, off"):
        keyplan.open("memory:", layout_check="never")  # type: ignore[call-overload]  # the point of the test


def test_a_key_space_has_layouts_of_its_own() -> None:
    with MemoryEngine() as engine:
        spaces = KeySpaces(engine)
        for name in ("one", "two"):
            spaces.create(name, "library")
        for name, refused in (("one", {Old}), ("two", set())):
            with open_key_space(engine, name, "library") as store:
                if name == "one":
                    switch(store.engine)
                assert told(store.engine, Old, New) == refused


# ---- several applications below one root, and programs that come late ------------------------------------------------------


def lend(engine: Engine, *, is_back: bool = False) -> None:
    """Another application migrates."""
    lent = plan_migration(engine, Shared.bound(), Lent.bound(), name="0001_lent")
    assert migrate(Store(engine), lent, is_switched=True).is_settled
    if is_back:
        assert roll_back(Store(engine), lent).is_rolled_back
    else:
        assert clean_up_migration(Store(engine), lent).is_cleaned


def why(engine: Engine, layout: type[Layout[Any]]) -> str:
    with pytest.raises(LayoutMismatchError) as refused:
        layout(Store(engine, layout_check="refuse"))
    return f"{refused.value.facts['problem']}; {refused.value.facts['advice']}"


def test_what_another_application_migrates_leaves_what_is_noted_of_this_one(engine: Engine) -> None:
    every = New, Shelved, Old, Shared, Lent, Notes
    note_layout(engine, New.bound())
    assert migrate(Store(engine), plan(engine, New, Shelved)).is_settled
    for is_back, left in ((True, {Old, Lent}), (False, {Old, Shared})):
        lend(engine, is_back=is_back)
        assert told(engine, *every) == left
    note_layout(engine, Lent.bound())
    assert migrate(Store(engine), plan(engine, Shelved, Remarked), is_switched=True).is_settled
    assert told(engine, *every) == {New, Shelved, Old, Shared, Notes}


def test_an_application_that_notes_its_layout_beside_another_one(engine: Engine) -> None:
    note_layout(engine, New.bound())
    note_layout(engine, Shared.bound())
    assert told(engine, New, Old, Shared, Lent) == {Old, Lent}
    lend(engine)
    with pytest.raises(MigrationRefusedError, match="the store notes another layout"):
        note_layout(engine, Shared.bound())


def test_whose_migration_it_was_and_which_program_to_run(engine: Engine) -> None:
    switch(engine)
    finish(engine)
    lend(engine)
    assert why(engine, Old) == "0001_volumes has led away from it; run a program of New"
    assert why(engine, Shared) == "0001_lent has led away from it; run a program of Lent"
    assert why(engine, Remarked).startswith("another one is noted; run a program of New; or ")


def test_a_migration_that_is_over_is_not_said_to_be_under_way(engine: Engine) -> None:
    assert migrate(Store(engine), plan(engine)) is not None
    assert why(engine, Bound).startswith("0001_volumes is under way between others;")
    switch(engine)
    finish(engine)
    assert migrate(Store(engine), plan(engine, New, Shelved)).is_settled
    assert why(engine, Bound).startswith("the last migration, 0001_volumes, has led to another one;")


@pytest.mark.parametrize("is_switched", [False, True])
def test_who_carries_a_late_record_over_leaves_the_layout_that_the_store_is_in(
    engine: Engine,
    is_switched: bool,  # noqa: FBT001
) -> None:
    switch(engine)
    finish(engine)
    assert migrate(Store(engine), plan(engine, New, Shelved)).is_settled
    lend(engine)
    Old(Store(engine)).books.insert(2, Book("It", "King"))
    migrate(Store(engine), plan(engine), is_switched=is_switched)
    assert told(engine, Old, New, Shelved) == {Old}
    switch(engine)
    finish(engine)
    assert told(engine, Old, New, Shelved) == {Old}
    assert New(Store(engine)).books.require(2).title == "It"


# ---- asyncio: a layout is looked at before its first operation -------------------------------------------------------------

FIRSTS: dict[str, Callable[[Any], Awaitable[object]]] = {
    "read": lambda layout: layout.books.get(1),
    "whole": lambda layout: layout.books.count(),
    "list": lambda layout: anext(layout.books.list(), None),
    "write": lambda layout: layout.books.put(1, Book("It")),
    "watch": lambda layout: layout.books.watch().poll(0),
    "index": lambda layout: layout.by_author.count("Herbert"),
}


@pytest.mark.parametrize("first", FIRSTS)
def test_an_awaited_store_refuses_the_first_operation_and_all_others(engine: Engine, first: str) -> None:
    switch(engine)

    async def refused() -> None:
        store = aio.Store(engine, layout_check="refuse")
        await New(store).books.get(1)
        for _ in range(2):
            with pytest.raises(LayoutMismatchError):
                await FIRSTS[first](Old(store))
        with pytest.raises(LayoutMismatchError):
            async with Old(store).transaction() as transaction:
                await FIRSTS["write"](transaction)

    before = engine.value(b"/lib/books/1")
    asyncio.run(refused())
    assert engine.value(b"/lib/books/1") == before


def test_an_awaited_store_warns_once(engine: Engine) -> None:
    switch(engine)

    async def warned() -> int:
        store = aio.Store(engine, layout_check="warn")
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            await asyncio.gather(*(Old(store).books.get(1) for _ in range(4)))
            await Old(store).books.get(1)
        return len(found)

    assert asyncio.run(warned()) == 1
