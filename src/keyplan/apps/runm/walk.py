"""The objects that fit filters, by UUID: the way to them that costs least is found by trying all, a few steps each.

So an answer depends on the records alone, and the indexes only make it fast: every object is loaded and held against the whole
filter. Ten objects are found among a hundred thousand by reading about ten; a page of a list of all of them costs what the
page before it cost.
"""

from collections.abc import Iterable, Iterator, Sequence
from heapq import merge
from itertools import chain, groupby, islice
from operator import attrgetter
from typing import Any, Final
from uuid import UUID

from keyplan.apps.runm.constraint import Constraint
from keyplan.apps.runm.deployment import PROVIDER, Deployment, State
from keyplan.apps.runm.kept_rules import rules_in
from keyplan.apps.runm.objects import sub_types_or_errors
from keyplan.apps.runm.permission import PropertyRules, Reader
from keyplan.apps.runm.read_ahead import Scope
from keyplan.apps.runm.readable import log_damage
from keyplan.apps.runm.session import Caller
from keyplan.apps.runm.shown import object_messages
from keyplan.apps.runm.sources import EVERYTHING, Source, sources_of
from keyplan.errors import CorruptionError, IndexNotReadyError

__all__ = ["BATCH_MIN", "TURN", "WANTED_MAX", "candidates", "in_order", "loaded", "walked"]

TURN: Final = 128
"""Candidates taken in the first turn from a source that has to be read to its end, where no number of objects is wanted."""

_TURN_MAX: Final = 1_024
BATCH_MIN: Final = 16
"""Candidates taken at least where a number of objects is wanted: some of them may not fit."""

_NO_SOURCE: Final = (IndexNotReadyError, CorruptionError)
"""Why an index is no source: it may not be read, or an entry of it cannot. The objects are one all the same."""

WANTED_MAX: Final = 256
"""Objects loaded at once; what is wanted beyond them is walked to later."""


def walked(
    deployment: Deployment,
    caller: Caller,
    state: State,
    constraints: Sequence[Constraint],
    after: UUID | None,
    wanted: int,
) -> Iterator[Any]:
    """Return the Objects that fit any of the constraints, by UUID, from behind `after`, made for `wanted` to be taken.

    For each constraint every source is read in turns. The one that came to its end, or gave as many objects as are wanted, is
    gone on with when more are taken than that; from `state` as far as is read here, from the latest one later.
    """
    walks = [_walked(deployment, caller, state, one, after, min(wanted, WANTED_MAX)) for one in constraints]
    if len(walks) == 1:
        return walks[0]
    merged = merge(*walks, key=_uuid_of)
    return (next(same) for _, same in groupby(merged, key=_uuid_of))


def candidates(state: State, constraint: Constraint) -> list[UUID]:
    """Return all that may fit: what the source holds that has the fewest."""
    gathered = [_Gathering(source, state, None, TURN) for source in sources_of(constraint)]
    while gathered:
        for one in list(gathered):
            try:
                one.go_on()
            except _NO_SOURCE as error:
                _note(error)
                gathered.remove(one)
                continue
            if one.is_over:
                return one.candidates
    return list(state.runm.objects.keys())


def loaded(
    deployment: Deployment,
    caller: Caller,
    state: State,
    uuids: Sequence[UUID],
    constraints: Sequence[Constraint],
    size: int = WANTED_MAX,
) -> Iterator[Any]:
    """Load objects in batches, the first of `size` from `state` at once, others as they are taken; return those that fit any.

    A slow reader so holds no snapshot; an object that was changed meanwhile is judged, and given, as it is then.
    """
    size = min(max(size, BATCH_MIN), WANTED_MAX)
    first = _fitting(deployment, state, caller, uuids[:size], constraints)
    return chain(first, _loaded_later(deployment, caller, uuids[size:], constraints, size))


def _loaded_later(
    deployment: Deployment, caller: Caller, uuids: Sequence[UUID], constraints: Sequence[Constraint], size: int
) -> Iterator[Any]:
    start = 0
    while start < len(uuids):
        size = min(2 * size, WANTED_MAX)
        with deployment.reading() as state:
            fitting = _fitting(deployment, state, caller, uuids[start : start + size], constraints)
        start += size
        yield from fitting


# ---- the race ----------------------------------------------------------------------------------------------------------


class _Gathering:
    """A source whose candidates are all collected before the first is loaded: they come in another order."""

    def __init__(self, source: Source, state: State, after: UUID | None, size: int) -> None:
        self.candidates: list[UUID] = []
        self.is_over = False
        self._uuids = source.uuids(state.runm, after)
        self._size = size

    def go_on(self) -> None:
        """Take a turn, a longer one each time. Raises IndexNotReadyError."""
        turn = list(islice(self._uuids, self._size))
        self.candidates += turn
        self.is_over = len(turn) < self._size
        self._size = min(2 * self._size, _TURN_MAX)


class _Walking:
    """A source that is in order: each turn's candidates are loaded and judged at once, more with each turn."""

    def __init__(self, source: Source, state: State, after: UUID | None, wanted: int) -> None:
        self.source = source
        self.found: list[Any] = []
        self.after = after
        self.is_over = False
        self._state = state
        self._uuids = source.uuids(state.runm, after)
        self._wanted = wanted
        self._size = max(wanted, BATCH_MIN)

    @property
    def is_done(self) -> bool:
        """Whether there is nothing more, or as much was found as is wanted."""
        return self.is_over or len(self.found) >= self._wanted

    def go_on(self, deployment: Deployment, caller: Caller, constraint: Constraint) -> None:
        """Take a turn. Raises IndexNotReadyError."""
        batch = list(islice(self._uuids, self._size))
        self.is_over = len(batch) < self._size
        self._size = min(2 * self._size, WANTED_MAX)
        self.found += _fitting(deployment, self._state, caller, in_order(batch, self.after), [constraint])
        if batch:
            self.after = batch[-1]


def _walked(
    deployment: Deployment, caller: Caller, state: State, constraint: Constraint, after: UUID | None, wanted: int
) -> Iterator[Any]:
    racers: list[_Gathering | _Walking] = [
        _Walking(source, state, after, wanted)
        if source.is_ordered
        else _Gathering(source, state, after, max(wanted, BATCH_MIN))
        for source in (*sources_of(constraint), EVERYTHING)
    ]
    while True:
        for one in list(racers):
            try:
                if isinstance(one, _Gathering):
                    one.go_on()
                    if one.is_over:
                        rest = in_order(one.candidates, after)
                        return loaded(deployment, caller, state, rest, [constraint], wanted)
                else:
                    one.go_on(deployment, caller, constraint)
                    if one.is_done:
                        more = () if one.is_over else _gone_on(deployment, caller, constraint, one.source, one.after)
                        return chain(one.found, more)
            except _NO_SOURCE as error:
                _note(error)
                racers.remove(one)
                if not racers:
                    raise


def _gone_on(
    deployment: Deployment, caller: Caller, constraint: Constraint, source: Source, after: UUID | None
) -> Iterator[Any]:
    """Go on behind a page, each batch in the state that is the latest then."""
    is_over = False
    while not is_over:
        with deployment.reading(*deployment.ahead.of_index_states()) as state:
            try:
                batch = list(islice(source.uuids(state.runm, after), WANTED_MAX))
            except _NO_SOURCE as error:
                if source is EVERYTHING:
                    raise
                _note(error)
                source = EVERYTHING  # Why: somebody has begun to build the index anew, or an entry of it is damaged.
                continue
            is_over = len(batch) < WANTED_MAX
            fitting = _fitting(deployment, state, caller, in_order(batch, after), [constraint])
        after = batch[-1] if batch else after
        yield from fitting


def in_order(uuids: Iterable[UUID], after: UUID | None) -> list[UUID]:
    """Return each of the UUIDs behind `after` once, in their order. Why by number: UUIDs compare themselves in Python."""
    known = {uuid.int: uuid for uuid in uuids}
    least = -1 if after is None else after.int
    return [known[number] for number in sorted(known) if number > least]


def _note(error: IndexNotReadyError | CorruptionError) -> None:
    if isinstance(error, CorruptionError):
        log_damage(error)


# ---- judged ------------------------------------------------------------------------------------------------------------


_uuid_of: Final = attrgetter("uuid")


def _fitting(
    deployment: Deployment, state: State, caller: Caller, uuids: Sequence[UUID], constraints: Sequence[Constraint]
) -> list[Any]:
    """The Objects that fit any of the constraints, as the caller may read them."""
    state.read_ahead(state.ahead.of_objects(uuids, caller.partition))
    shown = object_messages(deployment, state, uuids)
    found = [(message, held) for message in shown if (held := [one for one in constraints if one.holds_place(message)])]
    rules = _Rules(state, caller.reader)
    rules.learn(message.uuid for message, _ in found if message.object_type == PROVIDER)
    fitting = []
    for message, held in found:
        try:
            rules.of(message).hide(message.properties)
        except CorruptionError as error:  # Why left out: nobody knows which of its properties may be shown.
            log_damage(error)
            continue
        if any(one.holds_rest(message) for one in held):
            fitting.append(message)
    return fitting


class _Rules:
    """Which permissions hold for which of the objects that a state has."""

    def __init__(self, state: State, reader: Reader) -> None:
        self._state = state
        self._reader = reader
        self._rules: dict[tuple[str, str, str, str], PropertyRules] = {}
        self._sub_types: dict[str, str | CorruptionError] = {}

    def learn(self, uuids: Iterable[str]) -> None:
        """Read what stands beside these providers, at once."""
        known = list(map(UUID, uuids))
        if known:
            found = sub_types_or_errors(self._state.beside.providers, known)
            self._sub_types.update((uuid.hex, one) for uuid, one in zip(known, found, strict=True))

    def of(self, message: Any) -> PropertyRules:
        """Return the rules for an object: those of the most explicit definition for its partition, type and sub-type.

        Raises CorruptionError.
        """
        sub_type = self._sub_types.get(message.uuid, "")
        if isinstance(sub_type, CorruptionError):
            raise sub_type
        project = message.project if self._reader.has_every_project else ""
        place = message.partition, message.object_type, sub_type, project
        rules = self._rules.get(place)
        if rules is None:
            partition = UUID(place[0])
            scope = Scope(partition, *place[1:3])
            self._state.ahead.note_scope(partition, scope)
            reader = self._reader.at(project) if self._reader.has_every_project else self._reader
            rules = self._rules[place] = rules_in(self._state, scope, reader)
        return rules
