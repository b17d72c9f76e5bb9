"""One unit of a migration on both sides: its old records, what its mark says, and the new records as they are now."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

from keyplan.engine import Entry, Guard
from keyplan.errors import CorruptionError
from keyplan.jobs import Lookup, as_read
from keyplan.layout import shown_key
from keyplan.maintenance.migration.functions import Converted
from keyplan.maintenance.migration.marks import Mark, decoded, digest_of, mark_key, origin_key
from keyplan.maintenance.migration.route import Route
from keyplan.store import IndexEntry

__all__ = ["Sides", "keys_read", "origin_of", "several_leases"]


def several_leases(item: str) -> str:
    """What is said of a unit whose old records hang on different leases, with the remedy."""
    problem = "its records hang on different leases, and what is made of them would hang on that of the first"
    return f"{problem}: give them one lease, or --accept lease:{item}"


def keys_read(migration: bytes, route: Route, unit: bytes) -> list[bytes]:
    """The raw keys that a decision about a unit looks at first. Raises InvalidKeyError when it has no new key."""
    return [*route.source_keys(unit), mark_key(migration, unit), *route.likely_keys(unit)]


@dataclass(frozen=True)
class Sides:
    """A unit as one snapshot has it. `copies`: what stands at the raw keys that its mark names.

    `origins`: by its own raw key, what says of which unit each of these was made; nothing for routes where that is computed.
    """

    route: Route
    unit: bytes
    old: Mapping[bytes, Entry | None]
    mark_key: bytes
    mark_entry: Entry | None
    mark: Mark | None
    copies: Mapping[bytes, Entry | None]
    origins: Mapping[bytes, Entry | None]
    epoch: str

    @classmethod
    def of(cls, migration: bytes, route: Route, unit: bytes, read: Lookup) -> Self:
        """Read both sides of a unit. Raises CorruptionError with a remedy when its mark cannot be read."""
        place = mark_key(migration, unit)
        sources = route.source_keys(unit)
        read.fetch([*sources, place])
        entry = read.get(place)
        mark = None if entry is None else _read_mark(route, unit, entry)
        copies = () if mark is None else tuple(copy.key for copy in mark.new)
        origins = {raw_key: origin_key(migration, raw_key) for raw_key in copies if route.keeps_origins}
        read.fetch([*copies, *origins.values()])
        return cls(
            route,
            unit,
            {raw_key: read.get(raw_key) for raw_key in sources},
            place,
            entry,
            mark,
            {raw_key: read.get(raw_key) for raw_key in copies},
            {place: read.get(place) for place in origins.values()},
            read.epoch,
        )

    @cached_property
    def records(self) -> Sequence[Entry | None]:
        """The old records, in the order of the sources."""
        return tuple(self.old.values())

    @cached_property
    def stays(self) -> bool:
        """Whether the record keeps its key. Raises InvalidKeyError when it has none."""
        return self.route.stays(self.unit)

    @cached_property
    def made(self) -> Sequence[Converted]:
        """What the old records become. Raises what is in UNREADABLE."""
        return self.route.made(self.records)

    @cached_property
    def old_entries(self) -> Mapping[bytes, IndexEntry]:
        """The index entries that the old records have, as they are stored."""
        return self.route.old_entries(self.records)

    @cached_property
    def has_old(self) -> bool:
        """Whether there is an old record."""
        return any(entry is not None for entry in self.records)

    @cached_property
    def old_digest(self) -> bytes:
        """What the old records are like."""
        return digest_of(*self.records)

    @cached_property
    def standing(self) -> Sequence[Entry]:
        """The copies that stand."""
        return tuple(entry for entry in self.copies.values() if entry is not None)

    @property
    def has_old_changed(self) -> bool:
        """Whether the old records are others than the mark says; there is a mark."""
        assert self.mark is not None
        return self.old_digest != self.mark.old

    @property
    def has_new_changed(self) -> bool:
        """Whether a copy is another than the mark says; there is a mark."""
        assert self.mark is not None
        return any(digest_of(self.copies[copy.key]) != copy.digest for copy in self.mark.new)

    @property
    def taken(self) -> bytes | None:
        """The first of the copies' raw keys of which the store says that its record was made of another unit."""
        owned = zip(self.copies, self.origins.values(), strict=bool(self.origins))
        return next((raw_key for raw_key, entry in owned if entry is not None and entry.value != self.unit), None)

    @property
    def lease(self) -> int:
        """The lease of the first old record that is there."""
        return next((entry.lease for entry in self.records if entry is not None), 0)

    @property
    def hangs_on_several(self) -> bool:
        """Whether its old records hang on different leases, or some of them on none."""
        return len({entry.lease for entry in self.records if entry is not None}) > 1

    def is_as_made(self, made: Sequence[Converted], read: Lookup) -> bool:
        """Whether the new records are just what the old ones would become now, and nothing else stands of an earlier time."""
        keys = {one.raw_key for one in made}
        return all(entry.key in keys for entry in self.standing) and all(
            (entry := read.get(one.raw_key)) is not None and (entry.value, entry.lease) == (one.raw_value, self.lease)
            for one in made
        )

    @property
    def guards(self) -> dict[bytes, Guard]:
        """That both sides, the mark and the origins are as they were read, by raw key."""
        both = {**self.old, **self.copies, **self.origins, self.mark_key: self.mark_entry}
        return {raw_key: as_read(raw_key, entry) for raw_key, entry in both.items()}


def _read_mark(route: Route, unit: bytes, entry: Entry) -> Mark:
    try:
        mark: Mark = decoded(entry)
    except CorruptionError as error:
        shown = shown_key(entry.key)
        if route.stays(unit):
            what = "whether it was converted"
            remedy = (
                f"delete it and `keyplan raw delete {shown}`, and write it as the new layout has it after the switch"
            )
        else:
            what = "which of its sides was changed since"
            remedy = f"`keyplan raw delete {shown}`, and both are compared anew"
        problem = f"its mark cannot be read, and nobody can tell {what}: {remedy}"
        raise CorruptionError(raw_key=entry.key.hex(), problem=problem) from error
    return mark


def origin_of(migration: bytes, raw_key: bytes, read: Lookup) -> bytes | None:
    """The unit of which the store says that the record at a new raw key was made."""
    entry = read.get(origin_key(migration, raw_key))
    return None if entry is None else entry.value
