"""Commits of a caller who has a reach: admitted by it, and guarded by the fences of what they touch.

A fence's guard is its revision, as it was last seen with the right value. Where it fails nothing was written, and the fence is
read again: with the right value at another revision the commit is sent once more; with another value the right has ended.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from keyplan.engine.admission import admit_commit
from keyplan.engine.confined_reads import READ, WRITE, Border
from keyplan.engine.interface import (
    NO_LEASE,
    Commit,
    DeleteRange,
    Engine,
    FailedGuard,
    Guard,
    KeyAbsent,
    KeyRange,
    KeyUnchanged,
    Mutation,
    Put,
    RangeUnchanged,
)
from keyplan.engine.owned import OwnedLeases
from keyplan.engine.prefixed import failures_of
from keyplan.engine.profile import Profile
from keyplan.engine.reach import AreaFence, Reach, Terms
from keyplan.errors import CommitConflictError, EngineUnavailableError

__all__ = ["FencedCommits", "beside_fences"]

_ATTEMPTS: Final = 5
"""Why: a fence that changes between two tries was rewritten by somebody by hand; nobody does that five times."""


class _Seen(NamedTuple):
    """Fences that were seen with the right value, the guards that say so, and the epoch of their revisions."""

    guards: Mapping[AreaFence, KeyUnchanged]
    epoch: str


class _Touch(NamedTuple):
    """An act for which some terms have to hold."""

    act: str
    where: bytes | KeyRange


class FencedCommits:
    """The way of a caller's commits into `inner`. Safe for use by several threads."""

    def __init__(self, inner: Engine, border: Border, leases: OwnedLeases | None) -> None:
        self._inner = inner
        self._border = border
        self._leases = leases
        self._seen = _Seen({}, "")

    def commit(self, commit: Commit, profile: Profile) -> int:
        """Commit as `Engine.commit` does. Raises AccessDeniedError, and writes nothing, when any of it is outside the reach."""
        reaches = self._border.reaches()
        reach = next(reaches)
        for _ in range(_ATTEMPTS):
            touched = {} if reach.is_everything else self._touched(reach, commit)
            if not touched:
                return self._inner.commit(commit)
            fences = self._fences_for(reach, touched, commit.epoch)
            missing = next((touch for terms, touch in touched.items() if _held_of(terms, fences) is None), None)
            if missing is not None:
                renewed = next(reaches, None)
                if renewed is None:
                    raise self._border.denied(*missing)
                reach = renewed
                continue
            admit_commit(profile, commit)
            guards = tuple({fences.guards[fence]: None for terms in touched if (fence := _held_of(terms, fences))})
            failures = self._send(commit, guards, fences.epoch)
            if isinstance(failures, int):
                return failures
            if all(failure.guard not in guards for failure in failures) and (failures or commit.epoch):
                raise CommitConflictError(failed=failures)
            self._seen = _Seen({}, "")
        raise EngineUnavailableError(engine=profile.name, problem="what the grants depend on changes all the time")

    def _send(self, commit: Commit, guards: tuple[Guard, ...], epoch: str) -> int | tuple[FailedGuard, ...]:
        """Return the revision of the commit, or what has failed. Why no error: it would name the fences to the caller."""
        if commit.epoch not in {"", epoch}:
            return ()
        try:
            return self._inner.commit(Commit((*commit.guards, *guards), commit.mutations, epoch))
        except CommitConflictError as error:
            return failures_of(error)

    # ---- what a commit touches -------------------------------------------------------------------------------------------

    def _touched(self, reach: Reach, commit: Commit) -> dict[Terms, _Touch]:
        """Return the terms under which a commit may be made, with an act that each is for. Raises AccessDeniedError."""
        touched: dict[Terms, _Touch] = {}
        for guard in commit.guards:
            where: bytes | KeyRange = guard.key if isinstance(guard, KeyAbsent | KeyUnchanged) else guard.range
            self._refuse_keys_beside_the_range(guard)
            self._add(touched, reach, _Touch(READ, where))
        for mutation in commit.mutations:
            self._add(touched, reach, _Touch(WRITE, _where(mutation)))
        self._check_leases(commit.mutations)
        return touched

    def _check_leases(self, mutations: Iterable[Mutation]) -> None:
        if self._leases is not None:
            self._leases.check(mutations)
        elif any(isinstance(mutation, Put) and mutation.lease != NO_LEASE for mutation in mutations):
            raise self._border.denied(WRITE, "a lease")

    def _add(self, touched: dict[Terms, _Touch], reach: Reach, touch: _Touch) -> None:
        act, where = touch
        if isinstance(where, bytes):
            stretch = reach.at(where)
            found = None if stretch is None else [stretch]
        else:
            found = reach.covering(where)
        if found is None:
            raise self._border.denied(act, where)
        for stretch in found:
            terms = stretch.read if act == READ else stretch.write
            if terms is None:
                raise self._border.denied(act, where)
            if terms:
                touched.setdefault(terms, touch)

    def _refuse_keys_beside_the_range(self, guard: Guard) -> None:
        """Why: an engine that compares single keys would answer for each key that such a guard names."""
        if isinstance(guard, RangeUnchanged):
            beside = next((key for key in guard.keys if key not in guard.range), None)
            if beside is not None:
                raise self._border.denied(READ, beside)

    # ---- fences ----------------------------------------------------------------------------------------------------------

    def _fences_for(self, reach: Reach, touched: Iterable[Terms], epoch: str) -> _Seen:
        """Return the fences that hold among these, as they were seen last, or as they are now."""
        seen = self._seen
        if epoch in {"", seen.epoch} and all(_held_of(terms, seen) for terms in touched):
            return seen
        fences = sorted({fence for terms in touched for fence in terms})
        with self._inner.snapshot() as snapshot:
            found = snapshot.get_many([key for key, _ in fences])
            now = snapshot.epoch
        guards = {fence: guard for fence, guard in seen.guards.items() if now == seen.epoch and fence in reach.fences}
        for fence, entry in zip(fences, found, strict=True):
            guards.pop(fence, None)
            if entry is not None and entry.value == fence[1]:
                guards[fence] = KeyUnchanged(entry.key, entry.mod_revision)
        self._seen = _Seen(guards, now)
        return self._seen


def _where(mutation: Mutation) -> bytes | KeyRange:
    return mutation.range if isinstance(mutation, DeleteRange) else mutation.key


def _held_of(terms: Terms, seen: _Seen) -> AreaFence | None:
    """Return one of the fences that was seen to hold."""
    return next((fence for fence in terms if fence in seen.guards), None)


def beside_fences(profile: Profile, reach: Reach) -> Profile:
    """Return the limits that are left in commits: the fences of what a commit touches are guards of it."""
    operations_max, bytes_max = profile.commit_operations_max, profile.commit_bytes_max
    if not reach.fences or (operations_max is None and bytes_max is None):
        return profile
    if operations_max is not None:
        # Why a third: a key needs one fence at most, and so many keys may be guarded, and as many written.
        operations_max = max(operations_max - len(reach.fences), operations_max // 3)
    if bytes_max is not None:
        most = None if operations_max is None else 2 * operations_max
        bytes_max = max(bytes_max - sum(sorted((len(key) for key, _ in reach.fences), reverse=True)[:most]), 0)
    return replace(profile, commit_operations_max=operations_max, commit_bytes_max=bytes_max)
