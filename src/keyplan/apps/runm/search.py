"""Object search: the objects that fit filters, ordered and bounded as SearchOptions ask."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final, NamedTuple
from uuid import UUID

from keyplan.apps.runm.constraint import constraints_of
from keyplan.apps.runm.deployment import Deployment, State, Stored
from keyplan.apps.runm.ordering import Options
from keyplan.apps.runm.records import Object
from keyplan.apps.runm.session import Caller
from keyplan.apps.runm.walk import candidates, loaded, walked

__all__ = ["OBJECT_FIELDS", "search"]

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

    A page of the list by UUID costs about what it returns. Without a limit, and sorted by a field, all that the narrowest index
    holds is collected from `state` first, and loaded in batches as it is taken; sorted, for each page anew.
    """
    constraints = constraints_of(deployment, caller, state, filters)
    if options.is_by_identity and options.limit:
        found = walked(deployment, caller, state, constraints, options.after, options.limit)
        return islice(found, options.limit)
    ordered = sorted({uuid for constraint in constraints for uuid in candidates(state, constraint)})
    if options.is_by_identity:
        after = options.after
        rest = ordered if after is None else [uuid for uuid in ordered if uuid > after]
        return loaded(deployment, caller, rest, constraints)
    rows = [
        _Row(stored.record.uuid, tuple(OBJECT_FIELDS[name](stored.record) for name, _ in options.sort))
        for stored in loaded(deployment, caller, ordered, constraints)
    ]
    fields = {name: partial(_cell, place) for place, (name, _) in enumerate(options.sort)}
    page = options.arranged(rows, lambda row: row.uuid.hex, fields)
    return loaded(deployment, caller, [row.uuid for row in page], constraints)


class _Row(NamedTuple):
    """What a sorted list needs of an object."""

    uuid: UUID
    cells: tuple[str, ...]


def _cell(place: int, row: _Row) -> str:
    return row.cells[place]
