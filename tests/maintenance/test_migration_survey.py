"""What the plan finds when it converts every record: each once, in as many passes as a large table takes."""

from itertools import count

import pytest

import keyplan
from keyplan.errors import StoppedError
from keyplan.maintenance import Conversion, migrate
from keyplan.store import Store
from tests.maintenance.evolving import NO_WAIT, Box, Crate, Old, Shelf, Stated, plan, switched


class Begun:
    """Tells a run to end once it has converted a record."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def is_set(self) -> bool:
        with self._store.engine.snapshot() as snapshot:
            return b"size" in (snapshot.value(b"/s/boxes/a/0") or b"")


def test_records_that_are_converted_where_they_stand_are_not_compared_again(monkeypatch: pytest.MonkeyPatch) -> None:
    shorter = Conversion(lambda box: Crate(box.name[:-1], 1), "tests:shorter")
    with keyplan.open("memory:") as store:
        for number in range(70):
            Old(store).boxes.insert(Shelf("a", number), Box(f"{number:02}x"))
        given = plan(store, Old, Stated, conversions={"boxes": shorter})
        with pytest.raises(StoppedError):
            migrate(store, given, is_switched=True, stop=Begun(store), backoff=NO_WAIT)
        monkeypatch.setattr("keyplan.maintenance.migration.collisions._KEYS_COMPARED", 1)
        # Converted once more, the first ten would all be called 0.
        assert plan(store, Old, Stated, conversions={"boxes": shorter}).obstacles == ()
        monkeypatch.undo()
        assert switched(store, Old, Stated, conversions={"boxes": shorter}).is_settled


def test_a_function_that_makes_something_else_each_time_is_told_where_records_stay() -> None:
    numbers = count()
    restless = Conversion(lambda box: Crate(box.name, next(numbers)), "tests:restless")
    with keyplan.open("memory:") as store:
        Old(store).boxes.insert(Shelf("a", 1), Box("name"))
        (obstacle,) = plan(store, Old, Stated, conversions={"boxes": restless}).obstacles
        assert "/s/boxes/a/1" in obstacle
        assert "makes something else of it each time" in obstacle
