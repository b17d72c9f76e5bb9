"""One commit of a decision about a unit, in the making: writes planned, records that stay left alone, all of it guarded."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from keyplan.engine import Commit, Guard, Mutation
from keyplan.jobs import Lookup, as_read
from keyplan.store import Write, keys_to_observe, plan_writes

__all__ = ["Draft"]


@dataclass
class Draft:
    """A commit in the making."""

    read: Lookup
    guards: dict[bytes, Guard] = field(default_factory=dict)
    mutations: dict[bytes, Mutation] = field(default_factory=dict)

    def write(self, writes: Sequence[Write], kept: Iterable[bytes] = ()) -> None:
        """Plan writes; records of `kept` stay as they are, with their history, and get the entries that they lack."""
        keys = [raw_key for write in writes for raw_key in keys_to_observe(write)]
        self.read.fetch(keys)
        plan = plan_writes(writes, {raw_key: self.read.get(raw_key) for raw_key in keys})
        self.guards |= plan.guards
        self.mutations |= plan.mutations
        for raw_key in kept:
            self.mutations.pop(raw_key, None)
        for raw_key in self.mutations:
            self.guards.setdefault(raw_key, as_read(raw_key, self.read.get(raw_key)))

    def commit(self, guards: Mapping[bytes, Guard]) -> Commit:
        """The commit, with further guards by raw key."""
        return Commit(tuple({**guards, **self.guards}.values()), tuple(self.mutations.values()), self.read.epoch)
