"""Programs of both layouts and runs of a migration in any order, against a model that merges by hand."""

from dataclasses import dataclass

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from keyplan.engine import MemoryEngine
from keyplan.maintenance import check, migrate
from keyplan.store import Store
from tests.maintenance.evolving import NO_WAIT, Box, Moved, Old, Shelf, cleaned, plan, switched

KEYS = st.integers(0, 2)
VALUES = st.integers(0, 3)
ACTS = st.one_of(
    st.tuples(st.sampled_from(["old", "new"]), KEYS, st.none() | VALUES),
    st.just(("run", 0, None)),
    st.just(("switched run", 0, None)),
)


@dataclass
class Sides:
    """One record: what either layout has, and what they had when they were last brought together."""

    old: str | None = None
    new: str | None = None
    base: tuple[str | None, str | None] | None = None
    is_contested: bool = False

    def merge(self) -> None:
        """Bring them together, as the table in docs/decisions/0040 says."""
        self.is_contested = False
        if self.base is None:
            if self.old is None:
                return
            if self.new not in {None, self.old}:
                self.is_contested = True
                return
            self.new, self.base = self.old, (self.old, self.old)
            return
        if self.old == self.base[0]:
            return
        if self.new == self.base[1] or self.old == self.new:
            self.new = self.old
            self.base = None if self.old is None else (self.old, self.old)
        else:
            self.is_contested = True


@pytest.mark.slow
@settings(max_examples=40)
@given(acts=st.lists(ACTS, max_size=14))
@example(acts=[("old", 0, 0), ("new", 0, 0), ("old", 0, None)])
def test_any_order_of_writers_and_runs_merges_as_the_model_does(acts: list[tuple[str, int, int | None]]) -> None:
    model = [Sides() for _ in range(3)]
    with Store(MemoryEngine()) as store:
        layouts: dict[str, Old | Moved] = {"old": Old(store), "new": Moved(store)}
        for act, number, value in acts:
            if act in layouts:
                name = None if value is None else f"box{number}-{value}"
                _write(layouts[act], number, name)
                setattr(model[number], act, name)
            else:
                migrate(store, plan(store, Old, Moved), is_switched=act == "switched run", backoff=NO_WAIT)
                for sides in model:
                    sides.merge()
        report = switched(store, Old, Moved)
        for sides in model:
            sides.merge()
        assert sorted(contest.old_key for contest in report.contested) == [
            b"/s/boxes/a/%d" % number for number, sides in enumerate(model) if sides.is_contested
        ]
        assert _names(layouts["old"]) == [sides.old for sides in model]
        assert _names(layouts["new"]) == [sides.new for sides in model]
        if not report.contested:
            assert report.is_settled
            cleaned(store, Old, Moved, accepts=["gone:boxes"])
            assert list(check(store, Moved(store))) == []
            assert _names(layouts["new"]) == [sides.new for sides in model]


def _write(layout: Old | Moved, number: int, name: str | None) -> None:
    if name is None:
        layout.boxes.delete(Shelf("a", number), missing_ok=True)
    else:
        layout.boxes.put(Shelf("a", number), Box(name, [f"tag{name[-1]}"]))


def _names(layout: Old | Moved) -> list[str | None]:
    boxes = [layout.boxes.get(Shelf("a", number)) for number in range(3)]
    return [None if box is None else box.name for box in boxes]
