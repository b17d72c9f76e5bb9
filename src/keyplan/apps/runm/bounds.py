"""What one call may reach of a deployment, and the partitions as it sees them: those outside its bounds are not there."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, NamedTuple
from uuid import UUID

from keyplan.apps.runm.layout import Runm
from keyplan.apps.runm.readable import readable, readable_many
from keyplan.apps.runm.records import Partition
from keyplan.errors import InvalidKeyError

__all__ = ["EVERY_PROJECT", "UNBOUNDED", "Bounds", "SeenPartitions"]

EVERY_PROJECT: Final = "*"
"""The project of a session that asks for all projects of its principal. Without an access file it is a name as any other."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a caller may reach at most; None: all that there is.

    `partitions` are names, and UUIDs in their one spelling. `roles` are all that the caller has, of which a session may leave
    out some. `is_isolated`: each session reaches its own partition and project alone. `has_every_project`: a session may ask
    for all `projects` at once.
    """

    partitions: frozenset[str] | None = None
    projects: frozenset[str] | None = None
    roles: frozenset[str] | None = None
    is_isolated: bool = False
    has_every_project: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether what concerns all partitions is this caller's to decide."""
        return self.partitions is None and not self.is_isolated

    def holds(self, record: Partition) -> bool:
        """Whether a partition lies within."""
        return self.partitions is None or record.uuid.hex in self.partitions or record.name in self.partitions

    def holds_project(self, project: str) -> bool:
        """Whether a project lies within."""
        return self.projects is None or project in self.projects


UNBOUNDED: Final = Bounds()
"""Of whoever is asked nothing, as in the original."""


class SeenPartitions(NamedTuple):
    """The partitions of one state that lie within bounds."""

    runm: Runm
    bounds: Bounds

    def get(self, uuid: UUID) -> Partition | None:
        """Return the partition of a UUID."""
        record = self.runm.partitions.get(uuid)
        # Why twice: a call of the original's clients takes no more steps than before there were bounds.
        return record if self.bounds.partitions is None else self._seen(record)

    def get_many(self, uuids: Sequence[UUID]) -> list[Partition | None]:
        """Return the partition of each UUID, None where there is none, or none that can be read."""
        return [self._seen(record) for record in readable_many(self.runm.partitions, uuids)]

    def exists(self, uuid: UUID) -> bool:
        """Whether there is a partition of this UUID. Why not by its record: without bounds one that cannot be read is there."""
        return self.runm.partitions.exists(uuid) if self.bounds.partitions is None else self.get(uuid) is not None

    def listed(self, first: UUID, below: UUID | None, limit: int | None = None) -> Iterator[Partition]:
        """Yield the partitions of a range, by UUID."""
        found = readable(self.runm.partitions.rows(at_least=first, below=below))
        return islice((record for _, record in found if self.bounds.holds(record)), limit)

    def named(self, name: str) -> Partition | None:
        """Return the partition of a name; None also for a text that no key can have, and so no partition as its name."""
        try:
            return self._seen(self.runm.partitions_by_name.one(name))
        except InvalidKeyError:
            return None

    def beginning(self, text: str) -> Iterator[Partition]:
        """Yield the partitions whose names begin so. Raises InvalidKeyError."""
        found = readable(self.runm.partitions_by_name.rows(starts_with=text))
        return (record for _, record in found if self.bounds.holds(record))

    def uuids_named(self, text: str, *, is_beginning: bool) -> list[UUID]:
        """Return the UUIDs of the partitions that have a name, or the beginning of one. Raises InvalidKeyError."""
        if is_beginning:
            return [record.uuid for record in self.beginning(text)]
        uuid = self.runm.partitions_by_name.key_of(text)
        uuids = [] if uuid is None else [uuid]
        if self.bounds.partitions is None:
            return uuids
        return [record.uuid for record in self.get_many(uuids) if record is not None]

    def _seen(self, record: Partition | None) -> Partition | None:
        return record if record is not None and self.bounds.holds(record) else None
