"""Object search: filters expanded to what they ask for, the index that has the fewest candidates, and the objects checked.

A filter gives one source of candidates for each index that can answer a part of it. The sources are read in turns, and the one
that ends first, having the fewest, is taken; its objects are loaded and held against the whole filter. So an answer depends on
the records alone, the indexes only make it fast, and ten objects are found among a hundred thousand by reading about ten.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final, NamedTuple
from uuid import UUID

from keyplan.apps.runm.constraint import Constraint, constraints_of
from keyplan.apps.runm.deployment import Deployment, State, Stored
from keyplan.apps.runm.layout import Runm
from keyplan.apps.runm.logs import LOGGER
from keyplan.apps.runm.objects import RulesByScope, stored_objects
from keyplan.apps.runm.ordering import Options
from keyplan.apps.runm.records import Object
from keyplan.apps.runm.session import Caller
from keyplan.errors import CorruptionError, IndexNotReadyError

__all__ = ["OBJECT_FIELDS", "search"]

_TURN: Final = 64
"""Candidates taken from each source in a turn."""

_BATCH_MIN: Final = 16
_BATCH_MAX: Final = 256
"""Objects loaded at once."""

OBJECT_FIELDS: Final[Mapping[str, Callable[[Object], str]]] = {
    "uuid": lambda record: record.uuid.hex,
    "name": lambda record: record.name,
    "object_type": lambda record: record.object_type,
    "project": lambda record: record.project,
    "partition": lambda record: record.partition.hex,
}
"""What objects can be sorted by."""


def search(
    deployment: Deployment, caller: Caller, state: State, filters: Sequence[Any], options: Options
) -> Iterator[Stored]:
    """Return the objects that fit any of the ObjectFilters, as the caller may see them, ordered and bounded by the options.

    The candidates are collected from `state`. Objects are loaded in batches as they are taken, so that a slow reader holds no
    snapshot; one that was changed meanwhile is judged, and given, as it is then.
    """
    constraints = constraints_of(deployment, caller, state, filters)
    candidates: set[UUID] = set()
    for constraint in constraints:
        candidates.update(_candidates(constraint, state.runm))
    ordered = sorted(candidates)
    if options.is_by_identity:
        first = UUID(options.marker) if options.marker else None
        rest = ordered if first is None else [uuid for uuid in ordered if uuid > first]
        size = min(max(options.limit or _BATCH_MAX, _BATCH_MIN), _BATCH_MAX)
        return islice(_loaded(deployment, caller, rest, constraints, size), options.limit or None)
    rows = [
        _Row(stored.record.uuid, tuple(OBJECT_FIELDS[name](stored.record) for name, _ in options.sort))
        for stored in _loaded(deployment, caller, ordered, constraints)
    ]
    fields = {name: partial(_cell, place) for place, (name, _) in enumerate(options.sort)}
    page = options.arranged(rows, lambda row: row.uuid.hex, fields)
    return _loaded(deployment, caller, [row.uuid for row in page], constraints)


class _Row(NamedTuple):
    """What a sorted list needs of an object."""

    uuid: UUID
    cells: tuple[str, ...]


def _cell(place: int, row: _Row) -> str:
    return row.cells[place]


def _candidates(constraint: Constraint, runm: Runm) -> list[UUID]:
    """The candidates of the source that has the fewest. Without any index that may be read, every object is one."""
    sources = [(source, list[UUID]()) for source in constraint.sources(runm)]
    while sources:
        readable = []
        for source, found in sources:
            try:
                turn = list(islice(source, _TURN))
            except IndexNotReadyError:
                continue
            if len(turn) < _TURN:
                return [*found, *turn]
            found.extend(turn)
            readable.append((source, found))
        sources = readable
    return list(runm.objects.keys())


def _loaded(
    deployment: Deployment,
    caller: Caller,
    uuids: Sequence[UUID],
    constraints: Sequence[Constraint],
    size: int = _BATCH_MAX,
) -> Iterator[Stored]:
    """Load the objects in batches, the first of `size`."""
    start = 0
    while start < len(uuids):
        batch = uuids[start : start + size]
        start += size
        size = min(2 * size, _BATCH_MAX)
        with deployment.reading(*deployment.foresight.of_objects(batch, caller.partition)) as state:
            found = stored_objects(state, batch)
            rules = RulesByScope(state, caller.reader)
            rules.learn(stored.record for stored in found if isinstance(stored, Stored))
            fitting = [one for stored in found if (one := _fitting(stored, rules, constraints)) is not None]
        yield from fitting


def _fitting(
    stored: Stored | CorruptionError | None, rules: RulesByScope, constraints: Sequence[Constraint]
) -> Stored | None:
    if stored is None:
        return None
    if isinstance(stored, CorruptionError):
        LOGGER.error("an object cannot be read, and is left out of a search: %s", stored)
        return None
    visible = rules.of(stored.record).visible(stored.record)
    return stored._replace(record=visible) if any(one.holds(visible) for one in constraints) else None
