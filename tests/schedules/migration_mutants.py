"""Faults planted in migrations, one at a time, and the lines of the matrix that are to notice each."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final, NamedTuple

import msgspec
import pytest

from keyplan.engine import Commit, Delete, Guard, Mutation, Put
from keyplan.maintenance.migration import cleaning, driver, removal, run_context, run_state, taking_back
from keyplan.maintenance.migration.decision import Decision, Outcome
from keyplan.maintenance.migration.marks import TableStage
from keyplan.maintenance.migration.merge import Merger
from keyplan.maintenance.migration.removal import Remover
from keyplan.maintenance.migration.sides import Sides
from keyplan.maintenance.migration.unit_commits import UnitCommits
from keyplan.testing.schedules import ParkingEngine
from keyplan.testing.schedules.steps import Step
from tests.schedules.scenes import guard_key

__all__ = ["MUTANTS", "UNNOTICED", "Mutant"]

_MARK, _ORIGIN, _STATE = b"\x00kmm", b"\x00kmo", b"\x00kms"
_OLD, _NEW = (b"/g/goods/", b"/g/stocks/"), b"/g/wares/"

Plant = Callable[[pytest.MonkeyPatch], object]


class Mutant(NamedTuple):
    """A fault, and where it is to be noticed: groups of the matrix with parts of names of their lines."""

    plant: Plant
    lines: tuple[tuple[str, str], ...]

    @contextmanager
    def planted(self) -> Iterator[None]:
        """What holds while the fault is there."""
        with pytest.MonkeyPatch.context() as patch:
            self.plant(patch)
            yield


def _edits(
    owner: type,
    method: str,
    *,
    guards: Callable[[Guard], bool] = lambda _: True,
    mutations: Callable[[Mutation], bool] = lambda _: True,
) -> Plant:
    """The commits that a method decides go without guards or mutations."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        decide: Callable[..., Decision] = getattr(owner, method)

        def edited(self: Any, *given: Any) -> Decision:
            decision = decide(self, *given)
            if decision.commit is None:
                return decision
            kept = {
                "guards": tuple(filter(guards, decision.commit.guards)),
                "mutations": tuple(filter(mutations, decision.commit.mutations)),
            }
            return replace(decision, commit=msgspec.structs.replace(decision.commit, **kept))

        patch.setattr(owner, method, edited)

    return plant


def _of(*prefixes: bytes) -> Callable[[Guard | Mutation], bool]:
    """Whether a guard or a mutation is of another key."""

    def is_of_another(one: Any) -> bool:
        raw_key: bytes = one.key if isinstance(one, Put | Delete) else guard_key(one)
        return not raw_key.startswith(prefixes)

    return is_of_another


def _always(owner: type, name: str, value: object) -> Plant:
    """A method always returns the same."""
    return lambda patch: patch.setattr(owner, name, lambda *_, **__: value)


def _property(owner: Any, name: str, value: Any) -> Plant:
    return lambda patch: patch.setattr(owner, name, property(lambda _: value))


def _state_unguarded(patch: pytest.MonkeyPatch) -> None:
    """Runs go on after they have lost the migration: nobody looks at its state."""
    carry_out = ParkingEngine.carry_out

    def unguarded(engine: ParkingEngine, step: Step, commit: Commit) -> int:
        kept = tuple(filter(_of(_STATE), commit.guards))
        return carry_out(engine, step, msgspec.structs.replace(commit, guards=kept))

    patch.setattr(ParkingEngine, "carry_out", unguarded)


def _unremembered(patch: pytest.MonkeyPatch) -> None:
    """A table that was converted where it stands is said to be filling all the same."""
    at_stage = run_state.at_stage
    patch.setattr(
        driver,
        "at_stage",
        lambda state, stage, *tables: state if stage is TableStage.SWITCHED else at_stage(state, stage, *tables),
    )


def _stale_kept(patch: pytest.MonkeyPatch) -> None:
    """What an old record does not become any more stays."""
    plan = UnitCommits._plan

    def kept(self: Any, sides: Any, made: Any, gone: Any, lease: int, read: Any) -> Any:
        return plan(self, sides, made, () if made else gone, lease, read)

    patch.setattr(UnitCommits, "_plan", kept)


def _due_at_once(patch: pytest.MonkeyPatch) -> None:
    """Unique entries that serve the old layout are taken before the switch."""
    patch.setattr(UnitCommits, "_due", lambda _self, _sides, entries, _read: dict(entries))


def _shared_entries_removed(patch: pytest.MonkeyPatch) -> None:
    """The clean-up removes every entry of the old records, also those that the new ones have."""

    def entries(self: Any, sides: Any, read: Any) -> Iterator[bytes]:
        own = self._route.old_entries(sides.records)
        read.fetch(own)
        yield from (raw_key for raw_key in own if read.get(raw_key) is not None)

    patch.setattr(Remover, "_entries", entries)
    # Why both: what it takes, the end of the clean-up gives again.
    patch.setattr(run_context, "new_batches", lambda *_: iter(()))


def _decided_by_itself(patch: pytest.MonkeyPatch) -> None:
    """Of a record that both sides have changed the old one holds, and nobody is asked."""
    _property(Sides, "has_new_changed", value=False)(patch)


class _Unchanged(Sides):
    """Units whose old records are always what was carried over."""

    @property
    def has_old_changed(self) -> bool:
        """Never."""
        return False


def _goes_as_it_is(patch: pytest.MonkeyPatch) -> None:
    """The clean-up does not look whether an old record is what was carried over."""
    patch.setattr(removal, "Sides", _Unchanged)


def _copies_not_looked_for(patch: pytest.MonkeyPatch) -> None:
    """The clean-up takes every old record along whose copy has vanished."""
    init = Remover.__init__

    def made(self: Any, *given: Any, takes_vanished: bool) -> None:
        del takes_vanished
        init(self, *given, takes_vanished=True)

    patch.setattr(Remover, "__init__", made)
    patch.setattr(cleaning._Cleaning, "_obstacles", lambda *_: ())


def _marks_left(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(run_state, "_remove_marks", lambda *_: None)


def _claims_unseen(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(run_state, "standing_claims", lambda *_: ())


def _others_unseen(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(run_state, "_obstacles", lambda *_: ())


def _not_gone_over(patch: pytest.MonkeyPatch) -> None:
    """What old programs have removed is not looked for."""
    patch.setattr(run_context, "gone_batches", lambda *_: iter(()))


def _leases_lost(patch: pytest.MonkeyPatch) -> None:
    _property(Sides, "lease", value=0)(patch)


def _withdrawn_unseen(patch: pytest.MonkeyPatch) -> None:
    """A rollback takes nothing back, and removes what was written all the same."""
    patch.setattr(taking_back.Returner, "decide", lambda *_: Decision(Outcome.UNCHANGED))
    init = taking_back.Withdrawer.__init__

    def made(self: Any, migration: bytes, route: Any, accepts: frozenset[str]) -> None:
        init(self, migration, route, frozenset({*accepts, f"lose:{route.item}"}))

    patch.setattr(taking_back.Withdrawer, "__init__", made)


_SPLIT, _MOVED, _SEVERAL = "migrations, split", "migrations, moved", "migrations, several"
_SHARING, _PLACE, _LEASED = "migrations, split, sharing", "migrations, in place", "migrations, leased"

MUTANTS: Final[dict[str, Mutant]] = {
    "the copies are not guarded": Mutant(
        _edits(Merger, "decide", guards=_of(_NEW)), ((_SPLIT, "filled: switch x new"), (_SPLIT, "fresh: switch x new"))
    ),
    "a mark without its copy": Mutant(
        _edits(Merger, "_written", mutations=_of(_NEW)), ((_MOVED, "fresh: switch x switch"),)
    ),
    "a copy without its mark": Mutant(_edits(Merger, "_written", mutations=_of(_MARK)), ((_MOVED, "fresh: switch x"),)),
    "an origin is not written": Mutant(
        _always(UnitCommits, "_origins", {}), ((_SPLIT, "filled: switch x swap"), (_SEVERAL, "filled: switch x swap"))
    ),
    "the new side never changed": Mutant(
        _decided_by_itself, ((_SPLIT, "contested"), (_MOVED, "settled: clean up x new"))
    ),
    "the new side always changed": Mutant(
        _property(Sides, "has_new_changed", value=True), ((_MOVED, "filled: switch x put"),)
    ),
    "the old side never changed": Mutant(
        _property(Sides, "has_old_changed", value=False), ((_MOVED, "filled: switch x put"),)
    ),
    "what was made is not compared": Mutant(
        _always(Sides, "is_as_made", value=True), ((_MOVED, "contested"), (_SPLIT, "contested"))
    ),
    "the state is not guarded": Mutant(
        _state_unguarded, ((_PLACE, "fresh: switch x switch"), (_MOVED, "switch x switch"))
    ),
    "a conversion is not remembered": Mutant(
        _unremembered, (("broken migrations", "in place: fresh"), (_PLACE, "switch x"), (_PLACE, "settled"))
    ),
    "leftovers are not removed": Mutant(_marks_left, ((_MOVED, "settled: clean up x clean up"),)),
    "the remover does not look at the mark": Mutant(_goes_as_it_is, ((_MOVED, "settled: clean up x put"),)),
    "the remover does not guard the old record": Mutant(
        _edits(Remover, "decide", guards=_of(*_OLD)), ((_MOVED, "settled: clean up x put"),)
    ),
    "the remover does not look for the copy": Mutant(
        _copies_not_looked_for, ((_MOVED, "settled: clean up x new delete"),)
    ),
    "the remover takes shared entries": Mutant(
        _shared_entries_removed, (("migrations, sharing", "settled: clean up x clean up"),)
    ),
    "what is made no more stays": Mutant(_stale_kept, ((_SEVERAL, "filled: switch x shrink"), (_SPLIT, "rekind"))),
    "what old programs removed is not looked for": Mutant(_not_gone_over, ((_MOVED, "filled: switch x delete"),)),
    "shared unique entries are taken at once": Mutant(_due_at_once, ((_SHARING, "fill x fill"),)),
    "stale copies keep unique entries": Mutant(
        _always(UnitCommits, "_of_stale_copies", ({}, {})),
        ((_SPLIT, "filled: switch x swap"), (_MOVED, "filled: switch x swap")),
    ),
    "claims are not looked at": Mutant(
        _claims_unseen, (("migrations, joined", "fresh: switch x restore"), (_SHARING, "fresh: switch x restore"))
    ),
    "other migrations are not looked at": Mutant(
        _others_unseen, ((_MOVED, "fresh: switch x second"), (_PLACE, "second"))
    ),
    "leases are left out": Mutant(_leases_lost, ((_LEASED, "fresh: switch x"),)),
    "a rollback takes nothing back": Mutant(_withdrawn_unseen, ((_MOVED, "settled: roll back x new"),)),
}

UNNOTICED: Final[dict[str, str]] = {
    "the old records are not guarded": (
        "A mark has the digest of what was read: a record that was written meanwhile is another one, and is made anew."
    ),
    "the mark is not guarded": "Who writes a mark writes a copy, or what is the same; the copies and the state are guarded.",
    "an origin is not removed": "What is left when a migration is over is removed with its marks.",
    "the remover leaves the entries": "Indexes that the new layout does not have are swept afterwards.",
    "verification skips": "A run looks at every record again before it removes one, and gives it the entries that it lacks.",
    "a record of another is written over": "No way of the matrix makes one record of two goods.",
}
"""Faults that were tried and that nothing notices, each with the reason: other parts of a migration do the same again."""
