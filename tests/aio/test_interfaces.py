"""The asynchronous interfaces say what the synchronous ones say, awaited; the views have every operation of theirs."""

import inspect
from collections.abc import AsyncGenerator
from typing import Any

import pytest

import keyplan
import keyplan.aio
from keyplan.aio import views
from keyplan.layout import (
    AsyncChanges,
    AsyncCounterView,
    AsyncIndexView,
    AsyncTableView,
    AsyncUniqueView,
    Changes,
    CounterView,
    IndexView,
    TableView,
    UniqueView,
)
from keyplan.layout import access as sync_module
from keyplan.layout import async_access as async_module
from keyplan.store import Store, Transaction
from scripts.make_async import SOURCE, TARGET, awaited

PAIRS: list[tuple[type, type, type]] = [
    (TableView, AsyncTableView, views.AwaitedTable),
    (UniqueView, AsyncUniqueView, views.AwaitedUnique),
    (IndexView, AsyncIndexView, views.AwaitedIndex),
    (CounterView, AsyncCounterView, views.AwaitedCounter),
]


def operations(view: type) -> dict[str, Any]:
    return {name: value for name, value in vars(view).items() if inspect.isfunction(value) and not name.startswith("_")}


def hints(function: Any, module: Any) -> dict[str, Any]:
    found = inspect.get_annotations(function, globals=vars(module), eval_str=True)
    return {name: str(hint) for name, hint in found.items()}


@pytest.mark.parametrize(("plain", "awaited", "view"), PAIRS, ids=lambda kind: kind.__name__)
def test_an_asynchronous_view_has_the_operations_of_the_synchronous_one(plain: type, awaited: type, view: type) -> None:
    wanted = operations(plain)
    assert operations(awaited).keys() == wanted.keys()
    assert {name for name in vars(view) if not name.startswith("_")} == wanted.keys()
    for name, operation in wanted.items():
        twin = operations(awaited)[name]
        assert [str(p.replace(annotation=p.empty)) for p in inspect.signature(twin).parameters.values()] == [
            str(p.replace(annotation=p.empty)) for p in inspect.signature(operation).parameters.values()
        ], name
        said, asked = hints(operation, sync_module), hints(twin, async_module)
        answer, twin_answer = said.pop("return"), asked.pop("return")
        assert asked == said, name
        expected = answer.replace("access.Changes", "async_access.AsyncChanges")
        if answer.startswith("collections.abc.Iterator["):
            expected = answer.replace("Iterator[", "AsyncGenerator[").removesuffix("]") + ", NoneType]"
            assert not inspect.iscoroutinefunction(twin), name
            twin_answer = twin_answer.replace(", None]", ", NoneType]")
            assert twin_answer.startswith(str(AsyncGenerator).split("'")[1]), name
        else:
            assert inspect.iscoroutinefunction(twin) == ("AsyncChanges" not in expected), name
        assert twin_answer == expected, name


def test_changes_have_the_same_operations() -> None:
    assert operations(AsyncChanges).keys() == operations(Changes).keys()


@pytest.mark.parametrize(("plain", "awaited"), [(Store, keyplan.aio.Store), (Transaction, keyplan.aio.Transaction)])
def test_what_users_call_of_a_store_and_a_transaction_is_there_by_the_same_name(plain: type, awaited: type) -> None:
    own = {"collected", "commit_or_conflict", "session"}  # keyplan's own use of a transaction
    wanted = {name for name in dir(plain) if not name.startswith("_")} - own
    assert wanted <= set(dir(awaited))


def test_the_package_has_the_names_of_the_synchronous_one() -> None:
    # Why the last five: applications put synchronous code of their own on the event loop by them, and have it wait there.
    own = {"KeySpaceStore", "Opening", "PinnedState", "CommitNotifier", "Wakeup", "drive", "is_driven", "wait"}
    assert set(keyplan.aio.__all__) == set(keyplan.__all__) | own


def test_the_awaited_operations_are_made_of_the_others() -> None:
    made = awaited(SOURCE.read_text())
    assert TARGET.read_text() == made, "run `python scripts/make_async.py`"


def test_a_difference_that_is_not_there_is_an_error() -> None:
    with pytest.raises(ValueError, match="no longer says 'def attempt"):
        awaited(SOURCE.read_text().replace("def attempt", "def tried"))
