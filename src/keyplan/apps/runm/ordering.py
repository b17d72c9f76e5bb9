"""Sorting and paging as SearchOptions ask for it: sort fields, a marker to go on after, a limit. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from keyplan.apps.runm.identity import parsed_uuid
from keyplan.apps.runm.refusal import invalid

__all__ = ["Options", "options_of"]

T = TypeVar("T")

_DESCENDING = 1


class Options(NamedTuple):
    """Checked search options. `sort` are pairs of a field and whether it is descending; no `limit`: 0; no `marker`: empty."""

    limit: int
    marker: str
    sort: tuple[tuple[str, bool], ...]

    def arranged(
        self, items: Iterable[T], identity: Callable[[T], str], fields: Mapping[str, Callable[[T], str]]
    ) -> list[T]:
        """Return the page of `items` that is asked for: sorted, after the marker, not more than the limit.

        Items that are equal in every sort field are in the order of their identities. Raises RefusedError when the list is
        sorted by a field, and the marker is not in it any more.
        """
        ordered = sorted(items, key=identity)
        for name, is_descending in reversed(self.sort):
            ordered.sort(key=fields[name], reverse=is_descending)
        return self.page(ordered, identity)

    def page(self, ordered: Sequence[T], identity: Callable[[T], str]) -> list[T]:
        """Return the part of a sorted list after the marker, up to the limit."""
        start = 0
        if self.marker:
            if self.is_by_identity:
                start = sum(1 for item in ordered if identity(item) <= self.marker)
            else:
                places = (number for number, item in enumerate(ordered) if identity(item) == self.marker)
                start = next(places, -1) + 1
                if not start:
                    raise invalid("the marker is not in the list any more; begin again.")
        return list(ordered[start : start + self.limit] if self.limit else ordered[start:])

    @property
    def after(self) -> UUID | None:
        """The marker of a list whose identities are UUIDs."""
        return UUID(self.marker) if self.marker else None

    @property
    def is_by_identity(self) -> bool:
        """Whether the list is in the order of UUIDs or codes, so that any marker has a place in it."""
        return not self.sort


def options_of(message: Any, fields: Iterable[str], *, identity: str) -> Options:
    """Return the options of a SearchOptions message. `identity` is what markers are: "uuid" or "code".

    Raises RefusedError, INVALID_ARGUMENT, for an unknown field, a field that comes twice, and a marker that cannot be one.
    """
    known = frozenset(fields)
    sort = tuple((one.field, one.direction == _DESCENDING) for one in message.sort_fields)
    names = [name for name, _ in sort]
    if not known.issuperset(names) or len(set(names)) < len(names):
        raise invalid(f"sort fields are, each once, of {', '.join(sorted(known))}.")
    if sort == ((identity, False),):
        sort = ()
    marker = message.marker
    if marker and identity == "uuid":
        uuid = parsed_uuid(marker)
        if uuid is None:
            raise invalid("the marker is no UUID.")
        marker = uuid.hex
    return Options(message.limit, marker, sort)
