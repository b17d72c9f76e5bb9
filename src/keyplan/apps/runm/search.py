"""Object search: the objects that fit filters, ordered and bounded as SearchOptions ask."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from operator import attrgetter
from typing import Any, Final, NamedTuple
from uuid import UUID

from keyplan.apps.runm.constraint import constraints_of
from keyplan.apps.runm.deployment import Deployment, State
from keyplan.apps.runm.ordering import Options
from keyplan.apps.runm.session import Caller
from keyplan.apps.runm.walk import candidates, in_order, loaded, walked

__all__ = ["OBJECT_FIELDS", "search"]

OBJECT_FIELDS: Final[Mapping[str, Callable[[Any], str]]] = {
    name: attrgetter(name) for name in ("uuid", "name", "object_type", "project", "partition")
}
"""What objects can be sorted by."""


def search(
    deployment: Deployment, caller: Caller, state: State, filters: Sequence[Any], options: Options
) -> Iterator[Any]:
    """Return the Objects that fit any of the ObjectFilters, as the caller may see them, ordered and bounded by the options.

    A page of the list by UUID costs about what it returns. Without a limit, and sorted by a field, all that the narrowest index
    holds is collected from `state` first, and loaded in batches as it is taken; sorted, for each page anew.
    """
    constraints = constraints_of(deployment, caller, state, filters)
    if options.is_by_identity and options.limit:
        found = walked(deployment, caller, state, constraints, options.after, options.limit)
        return islice(found, options.limit)
    after = options.after if options.is_by_identity else None
    ordered = in_order((uuid for constraint in constraints for uuid in candidates(state, constraint)), after)
    if options.is_by_identity:
        return loaded(deployment, caller, state, ordered, constraints)
    rows = [
        _Row(message.uuid, tuple(OBJECT_FIELDS[name](message) for name, _ in options.sort))
        for message in loaded(deployment, caller, state, ordered, constraints)
    ]
    fields = {name: partial(_cell, place) for place, (name, _) in enumerate(options.sort)}
    page = options.arranged(rows, lambda row: row.uuid, fields)
    return loaded(deployment, caller, state, [UUID(row.uuid) for row in page], constraints)


class _Row(NamedTuple):
    """What a sorted list needs of an object."""

    uuid: str
    cells: tuple[str, ...]


def _cell(place: int, row: _Row) -> str:
    return row.cells[place]
