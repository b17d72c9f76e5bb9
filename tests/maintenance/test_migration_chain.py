"""A chain of drawn layouts, with programs of both layouts between the steps and runs that break off, against plain dicts."""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keyplan.engine import Commit, Engine, MemoryEngine, WrappedEngine
from keyplan.errors import CommitOutcomeUnknownError, MigrationRefusedError
from keyplan.maintenance import check, clean_up_migration, migrate
from keyplan.store import Store
from tests.maintenance.evolving import NO_WAIT
from tests.maintenance.layouts import dump
from tests.maintenance.shapes import CHANGES, FIRST, Change, Record, Shape, changed, key_of, layout_of, record_class

EXAMPLES = int(os.environ.get("KEYPLAN_CHAINS", "100"))
"""Chains that are tried; hours' worth of them by the environment."""

OLD_NAMES, NEW_NAMES = ("a", "b", "c"), ("d", "e", "f")
"""While both layouts are in use each has its own: what both have changed is left to people, and is tried elsewhere."""


class Write(msgspec.Struct, frozen=True):
    """A program puts a record, or deletes it."""

    name: int
    price: int
    kind: str
    is_delete: bool


class Step(msgspec.Struct, frozen=True):
    """A change; what is written before it, beside it by either layout, behind it; where each of its runs breaks off."""

    change: str
    before: tuple[Write, ...]
    beside_old: tuple[Write, ...]
    beside_new: tuple[Write, ...]
    after: tuple[Write, ...]
    breaks: tuple[int, ...]


WRITES = st.lists(
    st.builds(Write, st.integers(0, 2), st.integers(1, 9), st.sampled_from("xy"), st.booleans()), max_size=3
).map(tuple)
BREAKS = st.tuples(*[st.integers(-9, 9)] * 3)
STEPS = st.builds(Step, st.sampled_from(sorted(CHANGES)), WRITES, WRITES, WRITES, WRITES, BREAKS)


class Breaking(WrappedEngine):
    """Breaks off at a commit: negative, the process dies before it; positive, its answer is lost; 0, never."""

    def __init__(self, inner: Engine, at: int) -> None:
        super().__init__(inner, closes_inner=False)
        self._at, self._turn = at, 0

    def commit(self, commit: Commit) -> int:
        self._turn += 1
        if self._turn == -self._at:
            raise KeyboardInterrupt
        revision = self.inner.commit(commit)
        if self._turn == self._at:
            raise CommitOutcomeUnknownError(engine="memory", mutations=len(commit.mutations))
        return revision


class Chain:
    """A store that goes through a chain of layouts, and its model."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.shape = FIRST
        self.model: dict[str, Record] = {}
        self.done: list[Change] = []
        if FIRST.has_extras:
            layout: Any = layout_of(FIRST)(store)
            layout.extras.insert("one", "extra")
        for number, name in enumerate((*OLD_NAMES, *NEW_NAMES), 1):
            self.write(FIRST, (Write(0, number, "xy"[number % 2], is_delete=False),), (name,))

    def write(self, shape: Shape, writes: tuple[Write, ...], names: tuple[str, ...]) -> None:
        """Let a program write by a layout; the model has each record as the newest layout has it."""
        goods: Any = layout_of(shape)(self.store)
        for write in writes:
            name = names[write.name]
            known = self.model.pop(name, None)
            if known is not None and (write.is_delete or (shape.is_filed and known["kind"] != write.kind)):
                goods.goods.delete(key_of(shape, name, known))
            if not write.is_delete:
                record = shape.record(name, write.price, write.kind)
                self.model[name] = record
                goods.goods.put(key_of(shape, name, record), record_class(shape)(**record))

    def run(self, act: Callable[[Store], Any], at: int) -> Any:
        """Run something that breaks off at a commit, and give it again."""
        try:
            return act(Store(Breaking(self.store.engine, at)))
        except (KeyboardInterrupt, CommitOutcomeUnknownError):
            return act(self.store)

    def go(self, step: Step, number: int) -> bool:
        """Carry out one step; return whether the chain goes on."""
        change = changed(self.shape, step.change, number)
        if change is None:
            return True
        self.write(self.shape, step.before, OLD_NAMES)
        plan = change.plan(self.store)
        assert plan.obstacles == (), plan.obstacles
        fill, switch, clean = step.breaks
        self.run(lambda store: migrate(store, change.plan(store), backoff=NO_WAIT), fill)
        self.write(self.shape, step.beside_old, OLD_NAMES)
        carried = {name: change.carried(record) for name, record in self.model.items()}
        self.shape, self.model = change.new, carried
        if change.is_moving:
            self.write(self.shape, step.beside_new, NEW_NAMES)
        report = self.run(lambda store: migrate(store, change.plan(store), is_switched=True, backoff=NO_WAIT), switch)
        assert report.is_settled, report
        self.write(self.shape, step.after, NEW_NAMES)
        if plan.steps:
            accepts = {**change.options, "accepts": ["gone:goods"]}
            cleaning = Change(change.old, change.new, accepts, change.carried, is_moving=change.is_moving)
            cleaned = self.run(lambda store: clean_up_migration(store, cleaning.plan(store), backoff=NO_WAIT), clean)
            assert cleaned.is_cleaned, cleaned
        self.done.append(change)
        self.compare()
        return True

    def compare(self) -> None:
        """What is stored is what the model has, and nothing else."""
        layout: Any = layout_of(self.shape)(self.store)
        found = {
            key.name if self.shape.is_filed else key: msgspec.structs.asdict(good) for key, good in layout.goods.list()
        }
        assert found == self.model
        assert list(check(self.store, layout)) == []
        if self.shape.has_extras:
            assert layout.extras.require("one") == "extra"
        root = self.shape.root.encode()
        others = [key for key in dump(self.store) if not key.startswith((root, b"\x00k"))]
        left = [key for key in dump(self.store) if key[:3] == b"\x00km" and key[3:4] in b"cmor"]
        assert (others, left) == ([], [])

    def deploy_again(self, changes: Iterable[Change] | None = None) -> None:
        """Migrations of the chain are given again, as at every deployment: nothing is done, or it is refused in words."""
        before = dump(self.store)
        for change in self.forward() if changes is None else changes:
            with suppress(MigrationRefusedError):
                migrate(self.store, change.plan(self.store), is_switched=True, backoff=NO_WAIT)
        assert dump(self.store) == before

    def forward(self) -> Iterator[Change]:
        """The changes whose old layout the chain has not come back to: giving one of the others again is a step of its own."""
        for number, change in enumerate(self.done):
            if all(other.new != change.old for other in self.done[number:]):
                yield change


@pytest.mark.slow
@settings(max_examples=EXAMPLES)
@given(steps=st.lists(STEPS, min_size=2, max_size=5))
def test_a_chain_of_layouts_leaves_what_the_model_has(steps: list[Step]) -> None:
    with Store(MemoryEngine()) as store:
        chain = Chain(store)
        if all(chain.go(step, number) for number, step in enumerate(steps)):
            chain.deploy_again()


@pytest.mark.parametrize("first", sorted(CHANGES))
def test_each_change_and_each_way_back(first: str) -> None:
    quiet = Step(first, (), (), (), (), (0, 0, 0))
    with Store(MemoryEngine()) as store:
        chain = Chain(store)
        for number in range(3):
            chain.go(quiet, number)
        chain.deploy_again()


@pytest.mark.parametrize(
    "names",
    [
        ("raise", "add", "raise"),
        ("raise", "remove", "move"),
        ("remove", "form"),
        ("file", "raise", "file"),
        ("form", "add", "remove", "raise"),
    ],
)
def test_a_chain_that_went_wrong_before(names: tuple[str, ...]) -> None:
    with Store(MemoryEngine()) as store:
        chain = Chain(store)
        for number, name in enumerate(names):
            assert chain.go(Step(name, (), (), (), (), (0, 0, 0)), number)
        chain.deploy_again(chain.done)
