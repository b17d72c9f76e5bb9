"""The objects that fit filters, by UUID: the way to them that costs least is found by trying all, a few steps each.

So an answer depends on the records alone, and the indexes only make it fast: every object is loaded and held against the whole
filter. Ten objects are found among a hundred thousand by reading about ten; a page of a list of all of them costs what the
page before it cost.
"""

from collections.abc import Iterable, Iterator, Sequence
from heapq import merge
from itertools import chain, groupby, islice
from typing import Final
from uuid import UUID

from keyplan.apps.runm.constraint import Constraint
from keyplan.apps.runm.deployment import Deployment, State, Stored
from keyplan.apps.runm.logs import LOGGER
from keyplan.apps.runm.objects import RulesByScope, stored_objects
from keyplan.apps.runm.session import Caller
from keyplan.apps.runm.sources import EVERYTHING, Source, sources_of
from keyplan.errors import CorruptionError, IndexNotReadyError

__all__ = ["WANTED_MAX", "candidates", "loaded", "walked"]

_TURN: Final = 64
"""Candidates taken in a turn from a source that has to be read to its end."""

_BATCH_MIN: Final = 16
WANTED_MAX: Final = 256
"""Objects loaded at once; what is wanted beyond them is walked to later."""


def walked(
    deployment: Deployment,
    caller: Caller,
    state: State,
    constraints: Sequence[Constraint],
    after: UUID | None,
    wanted: int,
) -> Iterator[Stored]:
    """Return the objects that fit any of the constraints, by UUID, from behind `after`, made for `wanted` to be taken.

    For each constraint every source is read in turns. The one that came to its end, or gave as many objects as are wanted, is
    gone on with when more are taken than that; from `state` as far as is read here, from the latest one later.
    """
    walks = [_walked(deployment, caller, state, one, after, min(wanted, WANTED_MAX)) for one in constraints]
    if len(walks) == 1:
        return walks[0]
    merged = merge(*walks, key=lambda stored: stored.record.uuid)
    return (next(same) for _, same in groupby(merged, key=lambda stored: stored.record.uuid))


def candidates(state: State, constraint: Constraint) -> list[UUID]:
    """Return all that may fit: what the source holds that has the fewest."""
    gathered = [_Gathering(source, state, None) for source in sources_of(constraint)]
    while gathered:
        for one in list(gathered):
            try:
                one.go_on()
            except IndexNotReadyError:
                gathered.remove(one)
                continue
            if one.is_over:
                return one.candidates
    return list(state.runm.objects.keys())


def loaded(
    deployment: Deployment,
    caller: Caller,
    uuids: Sequence[UUID],
    constraints: Sequence[Constraint],
    size: int = WANTED_MAX,
) -> Iterator[Stored]:
    """Load objects in batches, the first of `size`, as they are taken, and yield those that fit any of the constraints.

    A slow reader so holds no snapshot; an object that was changed meanwhile is judged, and given, as it is then.
    """
    start, size = 0, min(max(size, _BATCH_MIN), WANTED_MAX)
    while start < len(uuids):
        batch = uuids[start : start + size]
        start += size
        size = min(2 * size, WANTED_MAX)
        with deployment.reading() as state:
            fitting = _fitting(state, caller, batch, constraints)
        yield from fitting


# ---- the race ----------------------------------------------------------------------------------------------------------


class _Gathering:
    """A source whose candidates are all collected before the first is loaded: they come in another order."""

    def __init__(self, source: Source, state: State, after: UUID | None) -> None:
        self.candidates: list[UUID] = []
        self.is_over = False
        self._uuids = source.uuids(state.runm, after)

    def go_on(self) -> None:
        """Take a turn. Raises IndexNotReadyError."""
        turn = list(islice(self._uuids, _TURN))
        self.candidates += turn
        self.is_over = len(turn) < _TURN


class _Walking:
    """A source that is in order: each turn's candidates are loaded and judged at once, more with each turn."""

    def __init__(self, source: Source, state: State, after: UUID | None, wanted: int) -> None:
        self.source = source
        self.found: list[Stored] = []
        self.after = after
        self.is_over = False
        self._state = state
        self._uuids = source.uuids(state.runm, after)
        self._wanted = wanted
        self._size = max(wanted, _BATCH_MIN)

    @property
    def is_done(self) -> bool:
        """Whether there is nothing more, or as much was found as is wanted."""
        return self.is_over or len(self.found) >= self._wanted

    def go_on(self, caller: Caller, constraint: Constraint) -> None:
        """Take a turn. Raises IndexNotReadyError."""
        batch = list(islice(self._uuids, self._size))
        self.is_over = len(batch) < self._size
        self._size = min(2 * self._size, WANTED_MAX)
        self.found += _fitting(self._state, caller, _each_once(batch, self.after), [constraint])
        if batch:
            self.after = batch[-1]


def _walked(
    deployment: Deployment, caller: Caller, state: State, constraint: Constraint, after: UUID | None, wanted: int
) -> Iterator[Stored]:
    racers: list[_Gathering | _Walking] = [
        _Walking(source, state, after, wanted) if source.is_ordered else _Gathering(source, state, after)
        for source in (*sources_of(constraint), EVERYTHING)
    ]
    while True:
        for one in list(racers):
            try:
                if isinstance(one, _Gathering):
                    one.go_on()
                    if one.is_over:
                        rest = sorted(uuid for uuid in set(one.candidates) if after is None or uuid > after)
                        return loaded(deployment, caller, rest, [constraint], wanted)
                else:
                    one.go_on(caller, constraint)
                    if one.is_done:
                        more = () if one.is_over else _gone_on(deployment, caller, constraint, one.source, one.after)
                        return chain(one.found, more)
            except IndexNotReadyError:
                racers.remove(one)


def _gone_on(
    deployment: Deployment, caller: Caller, constraint: Constraint, source: Source, after: UUID | None
) -> Iterator[Stored]:
    """Go on behind a page, each batch in the state that is the latest then."""
    is_over = False
    while not is_over:
        with deployment.reading(*deployment.ahead.of_index_states()) as state:
            try:
                batch = list(islice(source.uuids(state.runm, after), WANTED_MAX))
            except IndexNotReadyError:
                source = EVERYTHING  # Why: somebody has begun to build the index anew.
                continue
            is_over = len(batch) < WANTED_MAX
            fitting = _fitting(state, caller, _each_once(batch, after), [constraint])
        after = batch[-1] if batch else after
        yield from fitting


def _each_once(ordered: Iterable[UUID], after: UUID | None) -> list[UUID]:
    return [uuid for uuid, _ in groupby(ordered) if uuid != after]


# ---- judged ------------------------------------------------------------------------------------------------------------


def _fitting(state: State, caller: Caller, uuids: Sequence[UUID], constraints: Sequence[Constraint]) -> list[Stored]:
    """The objects that fit any of the constraints, as the caller may read them."""
    state.read_ahead(state.ahead.of_objects(uuids, caller.partition))
    found = stored_objects(state, uuids)
    rules = RulesByScope(state, caller.reader)
    rules.learn(stored.record for stored in found if isinstance(stored, Stored))
    return [one for stored in found if (one := _visible(stored, rules, constraints)) is not None]


def _visible(
    stored: Stored | CorruptionError | None, rules: RulesByScope, constraints: Sequence[Constraint]
) -> Stored | None:
    if stored is None:
        return None
    if isinstance(stored, CorruptionError):
        LOGGER.error("an object cannot be read, and is left out of a search: %s", stored)
        return None
    visible = rules.of(stored.record).visible(stored.record)
    return stored._replace(record=visible) if any(one.holds(visible) for one in constraints) else None
