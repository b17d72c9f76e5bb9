"""Commits of a caller who has a reach: admitted by it, and guarded by the fences of what they touch.

A fence's guard is its revision, as it was last seen with the right value. Where it fails nothing was written, and the fence is
read again: with the right value at another revision the commit is sent once more; with another value the right has ended.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final, NamedTuple, TypeAlias

from keyplan.engine.admission import admit_commit
from keyplan.engine.confined_reads import READ, WRITE, Border
from keyplan.engine.interface import (
    NO_LEASE,
    Commit,
    Delete,
    DeleteRange,
    Engine,
    FailedGuard,
    Guard,
    KeyAbsent,
    KeyRange,
    KeyUnchanged,
    Mutation,
    Put,
    RangeEmpty,
    RangeUnchanged,
)
from keyplan.engine.owned import Leases
from keyplan.engine.prefixed import failures_of
from keyplan.engine.profile import Profile
from keyplan.engine.reach import AreaFence, Reach, Terms
from keyplan.errors import CommitConflictError, EngineUnavailableError

__all__ = ["FencedCommits", "beside_fences"]

_ATTEMPTS: Final = 5
"""Why: a fence that changes between two tries was rewritten by somebody by hand; nobody does that five times."""

_NOWHERE: Final[tuple[bytes, bytes | None]] = (b"", b"")
"""Where a stretch that holds no key begins and ends."""


class _Seen(NamedTuple):
    """Fences that were seen with the right value, the guards that say so, and the epoch of their revisions."""

    guards: Mapping[AreaFence, KeyUnchanged]
    epoch: str


_Touch: TypeAlias = tuple[str, bytes | KeyRange]
"""An act for which some terms have to hold, and where. Why no class: one is made for each commit under a fence."""


class FencedCommits:
    """The way of a caller's commits into `inner`. Safe for use by several threads."""

    def __init__(self, inner: Engine, border: Border, leases: Leases | None) -> None:
        self._inner = inner
        self._border = border
        self._leases = leases
        self._seen = _Seen({}, "")
        profile = inner.profile
        self._is_limited = profile.commit_operations_max is not None or profile.commit_bytes_max is not None
        self._profile: tuple[Reach | None, Profile] = (None, profile)

    def profile(self, reach: Reach) -> Profile:
        """Return the limits of the engine inside; where commits have limits, less what the fences take."""
        known, profile = self._profile
        if known is not reach:
            profile = beside_fences(self._inner.profile, reach)
            self._profile = (reach, profile)
        return profile

    def commit(self, commit: Commit) -> int:
        """Commit as `Engine.commit` does. Raises AccessDeniedError, and writes nothing, when any of it is outside the reach."""
        reach, is_renewed = self._border.reach(), False
        for _ in range(_ATTEMPTS):
            touched = {} if reach.is_everything else self._touched(reach, commit)
            if not touched:
                return self._inner.commit(commit)
            seen, guards = self._guards_for(reach, touched, commit.epoch)
            if guards is None:
                if is_renewed:
                    raise self._border.denied(*_first_that_ended(touched, seen))
                reach, is_renewed = self._border.renewed(), True
                continue
            if self._is_limited:
                admit_commit(self.profile(reach), commit)  # Why: the engine inside would count the fences, too.
            failures = self._send(commit, guards, seen.epoch)
            if isinstance(failures, int):
                return failures
            if all(failure.guard not in guards for failure in failures) and (failures or commit.epoch):
                raise CommitConflictError(failed=failures)
            self._seen = _Seen({}, "")
        name = self._inner.profile.name
        raise EngineUnavailableError(engine=name, problem="what the grants depend on changes all the time")

    def _send(self, commit: Commit, guards: tuple[Guard, ...], epoch: str) -> int | tuple[FailedGuard, ...]:
        """Return the revision of the commit, or what has failed. Why no error: it would name the fences to the caller."""
        if commit.epoch and commit.epoch != epoch:
            return ()
        try:
            return self._inner.commit(Commit((*commit.guards, *guards), commit.mutations, epoch))
        except CommitConflictError as error:
            return failures_of(error)

    # ---- what a commit touches -------------------------------------------------------------------------------------------

    def _touched(self, reach: Reach, commit: Commit) -> dict[Terms, _Touch]:
        """Return the terms under which a commit may be made, with an act that each is for. Raises AccessDeniedError."""
        touched: dict[Terms, _Touch] = {}
        # Why the stretch of the key before is kept: the keys of a commit are neighbours, and each passes here.
        start, end = _NOWHERE
        for guard in commit.guards:
            if type(guard) is KeyUnchanged or type(guard) is KeyAbsent:
                key = guard.key
                if not (start <= key and (end is None or key < end)):
                    start, end = self._add_key(touched, reach, READ, key)
            else:
                assert isinstance(guard, RangeEmpty | RangeUnchanged)
                self._refuse_keys_beside_the_range(guard)
                self._add_range(touched, reach, READ, guard.range)
        start, end = _NOWHERE
        has_lease = False
        for mutation in commit.mutations:
            if type(mutation) is Put or type(mutation) is Delete:
                key = mutation.key
                if type(mutation) is Put and mutation.lease != NO_LEASE:
                    has_lease = True
                if not (start <= key and (end is None or key < end)):
                    start, end = self._add_key(touched, reach, WRITE, key)
            else:
                assert isinstance(mutation, DeleteRange)
                self._add_range(touched, reach, WRITE, mutation.range)
        if has_lease:
            self._check_leases(commit.mutations)
        return touched

    def _check_leases(self, mutations: Iterable[Mutation]) -> None:
        """Raise unless the leases that puts hang on are the caller's."""
        if self._leases is None:
            raise self._border.denied(WRITE, "a lease")
        self._leases.check(mutations)

    def _add_key(self, touched: dict[Terms, _Touch], reach: Reach, act: str, key: bytes) -> tuple[bytes, bytes | None]:
        """Add what an act on a key is under; return where its stretch begins and ends. Raises AccessDeniedError."""
        stretch = reach.at(key)
        terms = None if stretch is None else stretch.read if act == READ else stretch.write
        if stretch is None or terms is None:
            raise self._border.denied(act, key)
        if terms:
            touched.setdefault(terms, (act, key))
        return stretch.range.start, stretch.range.end

    def _add_range(self, touched: dict[Terms, _Touch], reach: Reach, act: str, where: KeyRange) -> None:
        """Add what an act on a range is under. Raises AccessDeniedError where any of it is outside."""
        found = reach.covering(where)
        if found is None:
            raise self._border.denied(act, where)
        for stretch in found:
            terms = stretch.read if act == READ else stretch.write
            if terms is None:
                raise self._border.denied(act, where)
            if terms:
                touched.setdefault(terms, (act, where))

    def _refuse_keys_beside_the_range(self, guard: RangeEmpty | RangeUnchanged) -> None:
        """Why: an engine that compares single keys would answer for each key that such a guard names."""
        if type(guard) is RangeUnchanged and guard.keys:
            for key in (min(guard.keys), max(guard.keys)):
                if key not in guard.range:
                    raise self._border.denied(READ, key)

    # ---- fences ----------------------------------------------------------------------------------------------------------

    def _guards_for(
        self, reach: Reach, touched: Iterable[Terms], epoch: str
    ) -> tuple[_Seen, tuple[KeyUnchanged, ...] | None]:
        """Return the fences as they were seen last, or as they are now, and a guard for each of the terms.

        None for the guards where some terms have no fence that holds now.
        """
        seen = self._seen
        if not epoch or epoch == seen.epoch:
            guards = _guards_among(seen, touched)
            if guards is not None:
                return seen, guards
        seen = self._look(reach, {fence for terms in touched for fence in terms})
        return seen, _guards_among(seen, touched)

    def _look(self, reach: Reach, asked: Iterable[AreaFence]) -> _Seen:
        """Read fences; return all that are known to hold now."""
        seen, fences = self._seen, sorted(asked)
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


def _guards_among(seen: _Seen, touched: Iterable[Terms]) -> tuple[KeyUnchanged, ...] | None:
    """Return a guard for each of the terms: of one of its fences, which was seen to hold. None where one has no such fence."""
    guards: dict[AreaFence, KeyUnchanged] = {}
    known = seen.guards
    for terms in touched:
        for fence in terms:
            guard = known.get(fence)
            if guard is not None:
                guards[fence] = guard
                break
        else:
            return None
    return tuple(guards.values())


def _first_that_ended(touched: Mapping[Terms, _Touch], seen: _Seen) -> _Touch:
    """Return an act whose terms do not hold."""
    return next(touch for terms, touch in touched.items() if seen.guards.keys().isdisjoint(terms))


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
