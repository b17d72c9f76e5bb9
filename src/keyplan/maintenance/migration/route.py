"""How records of the old layout become records of the new: in units, each of which is carried over as a whole."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

from keyplan.codec import MASK
from keyplan.engine import Entry
from keyplan.errors import CorruptionError, InvalidRecordError, RecordError
from keyplan.jobs import Lookup
from keyplan.layout import BoundTable, shown_key
from keyplan.maintenance.migration.functions import Converted
from keyplan.store import IndexEntry

__all__ = ["Route", "made_key_shown", "refuse_moved_secrets", "stored_entries", "table_of", "units_of"]


class Route(Protocol):
    """The way of some tables' records. A unit is what is carried over together: the records of all sources at one key.

    A unit is named by the raw key that its record has, or would have, in the first source.
    """

    @property
    def item(self) -> str:
        """What plans, reports and consents call it."""
        ...

    @property
    def sources(self) -> tuple[BoundTable, ...]:
        """The tables of the old layout."""
        ...

    @property
    def targets(self) -> tuple[BoundTable, ...]:
        """The tables of the new layout."""
        ...

    @property
    def keeps_origins(self) -> bool:
        """Whether the store has to say of which unit a record was made, because it cannot be computed."""
        ...

    @property
    def kept_indexes(self) -> frozenset[str]:
        """Old indexes whose entries the new layout has as well."""
        ...

    @property
    def has_other_values(self) -> bool:
        """Whether values are written anew."""
        ...

    def unit_of(self, raw_key: bytes) -> bytes | None:
        """The unit of a source's record; None for a key of something else."""
        ...

    def source_keys(self, unit: bytes) -> tuple[bytes, ...]:
        """The raw keys of a unit's records, in the order of the sources."""
        ...

    def likely_keys(self, unit: bytes) -> tuple[bytes, ...]:
        """The new raw keys that are known before anything is read. Raises InvalidKeyError when a unit has none."""
        ...

    def stays(self, unit: bytes) -> bool:
        """Whether the unit's record keeps its key, so that it cannot stand beside the new one."""
        ...

    def origin_of(self, table: BoundTable, key: object) -> bytes:
        """The unit of which the record at a new key is made. Raises InvalidKeyError; not to be asked with `keeps_origins`."""
        ...

    def made(self, records: Sequence[Entry | None]) -> tuple[Converted, ...]:
        """What a unit's records become; nothing when there are none. Raises what is in UNREADABLE."""
        ...

    @property
    def has_inverse(self) -> bool:
        """Whether new records can be taken back; each is tried, and one that does not come out as it was is refused."""
        ...

    def taken_back(self, entry: Entry) -> tuple[Converted, ...]:
        """The old records of which just this new one is made, in tables of the sources. Raises what is in UNREADABLE."""
        ...

    def old_entries(self, records: Sequence[Entry | None]) -> Mapping[bytes, IndexEntry]:
        """The index entries that a unit's old records have, as they are stored."""
        ...


def units_of(route: Route, place: int, batch: Iterable[Entry], read: Lookup) -> Iterator[bytes]:
    """Yield the units of records of one source, but for those that have a record in an earlier source: each comes once."""
    units = [unit for entry in batch if (unit := _unit_in(route, place, entry.key)) is not None]
    earlier = {unit: route.source_keys(unit)[:place] for unit in units}
    if place:
        read.fetch(raw_key for raw_keys in earlier.values() for raw_key in raw_keys)
    for unit, raw_keys in earlier.items():
        if all(read.get(raw_key) is None for raw_key in raw_keys):
            yield unit


def _unit_in(route: Route, place: int, raw_key: bytes) -> bytes | None:
    """The unit of a record of one source. Why: the range of a source's keys may hold another one's."""
    unit = route.unit_of(raw_key)
    return unit if unit is not None and route.source_keys(unit)[place] == raw_key else None


def made_key_shown(raw_key: bytes, sources: Iterable[BoundTable]) -> str:
    """Return a key of what is made of old records, or of an entry of theirs, for people: a mask where they hold secrets.

    Why: a function, or an index over what is secret no longer, may have put one into it, and nobody has agreed to that yet.
    """
    return MASK if any(source.form.secrets for source in sources) else shown_key(raw_key)


def table_of(tables: Sequence[BoundTable], raw_key: bytes) -> BoundTable:
    """Return the table that the raw key is of."""
    return next(table for table in tables if table.keys.decode(raw_key) is not None)


def stored_entries(table: BoundTable, entry: Entry) -> Mapping[bytes, IndexEntry]:
    """The entries that a stored record has; none when it cannot be read, none of an index that its fields do not fit.

    Why: another program may have left it so.
    """
    if not table.indexes:
        return {}
    try:
        key, record = table.keys.decode(entry.key), table.form.decode(entry.value)
    except CorruptionError:
        return {}
    index_entries: dict[bytes, IndexEntry] = {}
    for index in table.indexes:
        with suppress(RecordError):
            index_entries.update(
                (raw_key, IndexEntry(index, raw_value)) for raw_key, raw_value in index.entries(key, record)
            )
    return index_entries


def refuse_moved_secrets(
    old: Iterable[tuple[BoundTable, Entry]], new: BoundTable, key: object, raw_value: bytes
) -> None:
    """Raise InvalidRecordError for a sealed secret that would come to stand where it does not open."""
    if new.seal is None:
        return
    places: dict[str, Any] = {}
    for table, entry in old:
        if table.seal is not None:
            places |= table.seal.sealed_places(table.keys.decode(entry.key), entry.value)
    for envelope, found in new.seal.sealed_places(key, raw_value).items():
        if places.get(envelope) != found:
            problem = "a sealed secret would come to another layout, table, field or key, for which it was not sealed"
            raise InvalidRecordError(table=new.name, problem=problem)
