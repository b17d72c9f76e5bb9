"""What a writer process does, step by step, decided by its name and a seed alone; and what comes of it, said with dictionaries.

The process that kills it makes the same steps again from the same seed, and so knows what the store must hold.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tests.crash.dictionary import Delete, Dictionary, Insert, Modify, Operation, Put, Rename, Update
from tests.store.layouts import Blade, BladeKey

__all__ = ["Ack", "Expectation", "LeasedPut", "Revoke", "Step", "Together", "steps"]

_SLOTS: Final = [str(number) for number in range(12)]
_TAGS: Final = ["x", "xy", "by-serial", "blades"]


class LeasedPut(NamedTuple):
    """A put on the lease of the process, which is granted at the first of them and after each revocation."""

    key: BladeKey
    blade: Blade


class Revoke(NamedTuple):
    """The end of the process's lease, with all records that are on it."""


class Together(NamedTuple):
    """One transaction: `numbers` from the counter that all writers share, the writer's rack, and blades."""

    numbers: int
    height: int
    operations: tuple[Operation, ...]


Step = Operation | LeasedPut | Revoke | Together


class Ack(NamedTuple):
    """What a writer says of a step that is done.

    `revision`: of its commit, or what was read where there was nothing to write; 0 when it was refused, or is not told.
    `number`: the first that was taken from the counter.
    """

    step: int
    revision: int
    number: int
    outcomes: list[str]


def steps(writer: str, seed: int) -> Iterator[Step]:
    """Yield what the writer does, without end."""
    chance = random.Random(f"{writer} {seed}")
    height = 0
    while True:
        height += 1
        kind = chance.random()
        if kind < 0.5:
            yield _operation(writer, chance)
        elif kind < 0.85:
            operations = tuple(_operation(writer, chance) for _ in range(chance.randint(1, 5)))
            yield Together(chance.randint(1, 4), height, operations)
        elif kind < 0.97:
            yield LeasedPut(_key(writer, chance), _blade(writer, chance))
        else:
            yield Revoke()


def _key(writer: str, chance: random.Random) -> BladeKey:
    return BladeKey(chance.choice([writer, f"{writer}.far"]), chance.choice(_SLOTS))


def _blade(writer: str, chance: random.Random) -> Blade:
    serial = chance.choice([None, *(f"{writer}-{number}" for number in range(8))])
    return Blade(serial, chance.sample(_TAGS, chance.randint(0, 3)), chance.randrange(1_000))


def _operation(writer: str, chance: random.Random) -> Operation:
    key = _key(writer, chance)
    match chance.randrange(6):
        case 0:
            return Insert(key, _blade(writer, chance))
        case 1:
            return Put(key, _blade(writer, chance))
        case 2:
            return Update(key, _blade(writer, chance))
        case 3:
            return Modify(key, chance.randrange(1_000))
        case 4:
            return Delete(key)
        case _:
            return Rename(key, _key(writer, chance))


@dataclass
class Expectation:
    """What the store holds of one writer, after the steps that were applied: its blades, and the height of its rack."""

    blades: Dictionary = field(default_factory=Dictionary)
    height: int = 0
    leases: dict[BladeKey, int] = field(default_factory=dict)
    lease: int = 0
    """The number of the lease that the process has or will take."""

    def copy(self) -> "Expectation":
        return Expectation(Dictionary(dict(self.blades.records)), self.height, dict(self.leases), self.lease)

    def after_death(self) -> "Expectation":
        """The same for the writer's next process: it does not know the lease of this one."""
        following = self.copy()
        following.lease += 1
        return following

    def asks_for_commit(self, step: Step) -> bool:
        """Tell whether the step, if it is not refused, has something to write: a commit with a revision of its own."""
        match step:
            case Delete(key):
                return key in self.blades.records
            case Rename(key, new_key):
                return key != new_key
            case _:
                return True

    def apply(self, step: Step) -> list[str]:
        """Carry the step out. Return what comes of each of its operations."""
        match step:
            case Together(_, height, operations):
                self.height = height
                return [self._apply(operation) for operation in operations]
            case LeasedPut(key, blade):
                outcome = self._apply(Put(key, blade))
                if outcome == "done":
                    self.leases[key] = self.lease
                return [outcome]
            case Revoke():
                for key in [key for key, lease in self.leases.items() if lease == self.lease]:
                    del self.blades.records[key], self.leases[key]
                self.lease += 1
                return ["done"]
            case _:
                return [self._apply(step)]

    def _apply(self, operation: Operation) -> str:
        outcome = self.blades.apply(operation)
        if outcome == "done":
            match operation:
                case Put(key, _) | Delete(key):
                    self.leases.pop(key, None)
                case Rename(key, new_key) if key in self.leases:
                    self.leases[new_key] = self.leases.pop(key)
                case _:
                    pass
        return outcome
