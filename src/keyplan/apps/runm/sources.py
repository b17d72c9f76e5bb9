"""Where the objects that fit a filter can come from: a source for each index that can answer a part of it, and the objects.

A source has every object that fits, and others. Most give UUIDs in order and can begin behind any of them, so that a page of a
long list reads about what it returns; the others give them in the order of their index.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from heapq import merge
from itertools import chain, product
from typing import Final, NamedTuple
from uuid import UUID

from keyplan.apps.runm.constraint import Constraint, range_of_digits
from keyplan.apps.runm.layout import ObjectName, PartitionObjectName, Runm
from keyplan.errors import InvalidKeyError

__all__ = ["EVERYTHING", "Source", "sources_of"]

_MERGED_MAX: Final = 64
"""Lists that are read side by side. Why: each keeps a place in the store, and a filter can name a hundred thousand values."""

Places = Sequence[tuple[UUID, str]]
"""Partitions, each with a type that is looked for there."""


class Source(NamedTuple):
    """Candidates as of a state, those behind a UUID if one is given; `is_ordered`: by UUID, perhaps one several times.

    One that is not ordered gives them all, whatever UUID is given. Reading raises IndexNotReadyError.
    """

    uuids: Callable[[Runm, UUID | None], Iterator[UUID]]
    is_ordered: bool


def sources_of(constraint: Constraint) -> Iterator[Source]:
    """Yield the sources of a filter, those that are likely to have few candidates first."""
    if constraint.digits:
        yield Source(partial(_of_digits, constraint.digits), is_ordered=True)
    properties, tags = constraint.properties, constraint.tags
    places = [(partition, code) for partition in sorted(constraint.partitions.values()) for code in constraint.scopes]
    for item in properties.require_items:
        yield _of_items(places, (item,))
    for key in properties.require_keys:
        yield _of_keys(places, (key,))
    for tag in tags.require:
        yield _of_tags(constraint, (tag,))
    if properties.any_items:
        yield _of_items(places, properties.any_items)
    if properties.any_keys:
        yield _of_keys(places, properties.any_keys)
    if tags.any:
        yield _of_tags(constraint, tags.any)
    yield Source(partial(_of_names, constraint, places), is_ordered=False)


def _of_everything(runm: Runm, after: UUID | None) -> Iterator[UUID]:
    return _of_digits("", runm, after)


EVERYTHING: Final = Source(_of_everything, is_ordered=True)
"""Every object of the deployment: good where most of them fit, and where no index may be read."""


def _of_digits(digits: str, runm: Runm, after: UUID | None) -> Iterator[UUID]:
    first, below = range_of_digits(digits, after)
    return runm.objects.keys(at_least=first, below=below)


def _of_items(places: Places, items: Collection[tuple[str, str]]) -> Source:
    ranges = [(*place, *item) for place, item in product(places, sorted(items))]
    return _of_lists(ranges, lambda runm: runm.objects_by_property.keys)


def _of_tags(constraint: Constraint, tags: Collection[str]) -> Source:
    ranges = list(product(sorted(constraint.partitions.values()), sorted(tags)))
    return _of_lists(ranges, lambda runm: runm.objects_by_tag.keys)


def _of_keys(places: Places, keys: Collection[str]) -> Source:
    def uuids(runm: Runm, _after: UUID | None) -> Iterator[UUID]:
        found = (_listed(runm.objects_by_property.keys, (*place, key)) for place in places for key in keys)
        return chain.from_iterable(found)

    return Source(uuids, is_ordered=False)


def _of_lists(ranges: Sequence[tuple[object, ...]], keys_of: Callable[[Runm], Callable[..., Iterator[UUID]]]) -> Source:
    """What stands behind whole index keys: for each of them by UUID."""

    def uuids(runm: Runm, after: UUID | None) -> Iterator[UUID]:
        first, below = (None, None) if after is None else range_of_digits("", after)
        lists = (_listed(keys_of(runm), prefix, at_least=first, below=below) for prefix in ranges)
        return merge(*lists) if is_ordered and len(ranges) > 1 else chain.from_iterable(lists)

    is_ordered = len(ranges) <= _MERGED_MAX
    return Source(uuids, is_ordered)


def _of_names(constraint: Constraint, places: Places, runm: Runm, _after: UUID | None) -> Iterator[UUID]:
    for partition, code in places:
        if not constraint.scopes[code]:
            yield from _of_name(constraint, runm, runm.objects_by_name.keys, (partition, code))
        elif constraint.projects is None:
            yield from _listed(runm.objects_by_project_and_name.keys, (partition, code))
        else:
            for project in sorted(constraint.projects):
                yield from _of_name(constraint, runm, runm.objects_by_project_and_name.keys, (partition, code, project))


def _of_name(
    constraint: Constraint, runm: Runm, keys: Callable[..., Iterator[UUID]], place: tuple[object, ...]
) -> Iterator[UUID]:
    if constraint.name and not constraint.is_name_prefix:
        return _named(runm, (*place, constraint.name))
    return _listed(keys, place, starts_with=constraint.name or None)


def _listed(keys: Callable[..., Iterator[UUID]], prefix: tuple[object, ...], **narrowed: object) -> Iterator[UUID]:
    """What an index holds; nothing for a name or value that no key can have, since no object has it."""
    try:
        return keys(*prefix, **narrowed)
    except InvalidKeyError:
        return iter(())


def _named(runm: Runm, key: tuple[object, ...]) -> Iterator[UUID]:
    try:
        if len(key) == len(ObjectName._fields):
            uuid = runm.objects_by_project_and_name.key_of(ObjectName._make(key))
        else:
            uuid = runm.objects_by_name.key_of(PartitionObjectName._make(key))
    except InvalidKeyError:
        return
    if uuid is not None:
        yield uuid
