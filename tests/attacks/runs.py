"""Protocols that are served to be attacked, each over a store of its own."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from keyplan.engine import MemoryEngine
from tests.attacks.form import ATTACKS, Answer, Attacker, Row
from tests.attacks.world import BANK, Place, World

__all__ = ["Run", "Runs", "attacks_of", "reached"]


class Run(NamedTuple):
    """A protocol that is served over a store of its own."""

    row: Row
    world: World
    url: str

    def attacker(self, who: str, place: Place = BANK) -> Attacker:
        return Attacker(self.url, who, place, self.world)

    def told(self, name: str, who: str, place: Place = BANK) -> Answer:
        return self.row.attacks[name](self.attacker(who, place))


class Runs:
    """Serves protocols, each once for all tests of it that change nothing, and anew for those that do."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder = folder
        self._stack = stack
        self._number = 0

    def begin(self, row: Row) -> Run:
        self._number += 1
        engine = self._stack.enter_context(MemoryEngine())
        world = World(engine, self._folder / f"access-{self._number}.toml")
        row.settle(world)
        return Run(row, world, self._stack.enter_context(row.served(world)).url)


def attacks_of(row: Row) -> Iterator[str]:
    """Yield the attacks that a protocol has a way to try, in their order."""
    yield from (name for name in ATTACKS if name in row.attacks)


def reached(run: Run, name: str, who: str, place: Place = BANK) -> tuple[bool, Answer]:
    """Attack; return whether anything of the place was got, or changed, and what came back."""
    before = run.world.state()
    told = run.told(name, who, place)
    is_changed = run.world.state() != before and not name.startswith("watch")
    return told.is_got or is_changed, told
