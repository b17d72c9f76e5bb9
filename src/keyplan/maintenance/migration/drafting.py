"""One commit of a decision about a unit, in the making: writes planned, records that stay left alone, all of it guarded."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from keyplan.engine import Commit, Guard, Mutation
from keyplan.jobs import Lookup, as_read
from keyplan.store import Write, keys_to_observe, plan_writes

__all__ = ["Draft", "guarded_commit", "planned"]


def planned(
    writes: Sequence[Write], read: Lookup, kept: Iterable[bytes] = ()
) -> tuple[dict[bytes, Guard], dict[bytes, Mutation]]:
    """Return guards and mutations of writes, by raw key; records of `kept` stay as they are, with their history."""
    keys = [raw_key for write in writes for raw_key in keys_to_observe(write)]
    read.fetch(keys)
    plan = plan_writes(writes, {raw_key: read.get(raw_key) for raw_key in keys})
    mutations = dict(plan.mutations)
    for raw_key in kept:
        mutations.pop(raw_key, None)
    return dict(plan.guards), mutations


def guarded_commit(read: Lookup, guards: Mapping[bytes, Guard], mutations: Mapping[bytes, Mutation]) -> Commit:
    """Return a commit that rests on these guards, and writes over nothing but what was read: every other key is guarded, too.

    Why here: marks, origins and entries are written by several parts of a migration, and none of them is to forget one.
    """
    read.fetch(mutations)
    written = {raw_key: as_read(raw_key, read.get(raw_key)) for raw_key in mutations}
    return Commit(tuple({**written, **guards}.values()), tuple(mutations.values()), read.epoch)


@dataclass
class Draft:
    """A commit in the making."""

    read: Lookup
    guards: dict[bytes, Guard] = field(default_factory=dict)
    mutations: dict[bytes, Mutation] = field(default_factory=dict)

    def write(self, writes: Sequence[Write], kept: Iterable[bytes] = ()) -> None:
        """Plan writes; records of `kept` stay as they are, with their history, and get the entries that they lack."""
        guards, mutations = planned(writes, self.read, kept)
        self.guards |= guards
        self.mutations |= mutations

    def commit(self, guards: Mapping[bytes, Guard]) -> Commit:
        """The commit, with further guards by raw key."""
        return guarded_commit(self.read, {**guards, **self.guards}, self.mutations)
