"""What names a data set: its store, its full name and its UUID. Runs, subruns, events and bulk operations hold this."""

from abc import abstractmethod
from typing import Any, Final
from uuid import UUID

from keyplan.apps.hepnos.access import ProductSource
from keyplan.apps.hepnos.errors import DeletedError, InvalidNameError
from keyplan.apps.hepnos.keys import Kind, dataset_key, product_item
from keyplan.apps.hepnos.open_store import OpenStore
from keyplan.apps.hepnos.products import Container
from keyplan.errors import CorruptionError

__all__ = ["DELETING", "DataSetRef", "is_deleting", "uuid_of"]

DELETING: Final = b"\x00"
"""What stands behind the UUID in the record of a data set while it is deleted: nobody makes anything in it any more."""


class DataSetRef(Container):
    """A data set as the containers in it see it. Every one is a DataSet, which has the operations on what lies in it.

    Two handles are equal when they are of the same data set of the same store; one that was made again is another.
    """

    __slots__ = ("_is_known", "_record", "_uuid", "name_path")

    def __init__(self, datastore: OpenStore, path: str, uuid: UUID | None) -> None:
        self.datastore = datastore
        self.name_path = path
        self._uuid = uuid
        self._is_known = False
        self._record: tuple[bytes, bytes] | None = None
        """The raw key and value of its record, once it was asked for."""

    @property
    def path(self) -> str:
        return self.name_path

    @property
    def name(self) -> str:
        """The last part of its name."""
        return self.name_path.rpartition("/")[2]

    @property
    def container(self) -> str:
        """The full name of the data set that it lies in; "" at the top."""
        return self.name_path.rpartition("/")[0]

    @property
    def level(self) -> int:
        """How many data sets it lies in: 0 at the top."""
        return self.name_path.count("/")

    @property
    def uuid(self) -> UUID:
        """The UUID that was made with it. Raises InvalidNameError for the root, which has none."""
        if self._uuid is None:
            raise InvalidNameError(problem="the root is no data set: it has no UUID, no runs and no products")
        return self._uuid

    @property
    def is_root(self) -> bool:
        """True for the root of a store."""
        return self._uuid is None

    @property
    def item(self) -> bytes:
        return product_item(self.uuid, ())

    def exists(self) -> bool:
        """Tell whether it is there, with this UUID: one that was deleted and made again is another."""
        raw = self.datastore.raw_value(Kind.DATASET, dataset_key(self.name_path)) if self.name_path else None
        return raw is not None and self._uuid is not None and raw == self._uuid.bytes

    def require(self, *, again: bool = True) -> None:
        """Raise DeletedError when it is not there, with this UUID: what is made in it would be found by nobody.

        Without `again` one look is enough for the handle's life, until `delete` is called on it. Why a look at all, where every
        write is fenced: a batch writes late, and a handle may be of a data set that was never there.
        """
        if again or not self._is_known:
            record = self.record
            self._is_known = self.datastore.raw_value(Kind.DATASET, record[0]) == record[1]
        if not self._is_known:
            raise DeletedError(table="datasets", key=self.name_path)

    @property
    def record(self) -> tuple[bytes, bytes]:
        """The raw key and the value of its record, for as long as it is there."""
        record = self._record
        if record is None:  # Why kept: one look comes with each creation, and need not spell the key anew.
            record = self._record = (dataset_key(self.name_path), self.uuid.bytes)
        return record

    @abstractmethod
    def load_of(self, container: Container, label: str, source: ProductSource | None) -> Any:
        """Return what a container in this data set has of a label; see `Container.load` without a type."""

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, DataSetRef)
            and (other.name_path, other._uuid) == (self.name_path, self._uuid)
            and other.datastore is self.datastore
        )

    def __hash__(self) -> int:
        return hash(self.name_path)

    def __repr__(self) -> str:
        return f"<DataSet {self.name_path or 'root'}>"


def uuid_of(raw: bytes, path: str) -> UUID:
    """Return the UUID that a data set's value is, also of one that is deleted. Raises CorruptionError, which has `path`."""
    if len(raw) != 16 and not is_deleting(raw):
        raise CorruptionError(table="datasets", key=path, problem=f"its UUID has 16 bytes, not {len(raw)}")
    return UUID(bytes=raw[:16])


def is_deleting(raw: bytes) -> bool:
    """Tell whether a data set's value is that of one which is deleted now, or whose deletion was interrupted."""
    return len(raw) == 16 + len(DELETING) and raw.endswith(DELETING)
