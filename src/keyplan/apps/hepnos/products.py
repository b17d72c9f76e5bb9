"""Products: typed values with a label, on any container. A product's id is its raw key, and nothing else."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, Protocol
from uuid import UUID

from keyplan.apps.hepnos.errors import MissingError, TypeMismatchError
from keyplan.apps.hepnos.keys import Kind, product_item, product_range, product_suffix, split_product
from keyplan.apps.hepnos.layout import INVALID_NUMBER, ProductKey
from keyplan.apps.hepnos.types import ProductType, product_type, type_of_value
from keyplan.errors import CorruptionError, InvalidInputError

if TYPE_CHECKING:  # Why: a container belongs to a store, and a store makes containers.
    from keyplan.apps.hepnos.store import DataStore

__all__ = ["MODES", "Container", "ProductID", "ProductSource", "Writer", "checked_mode"]

MODES: Final = ("overwrite", "new", "exist")


class Writer(Protocol):
    """Where writes go: the store, at once and durably; a batch; or an asynchronous engine."""

    def write(self, kind: Kind, raw_key: bytes, value: bytes, mode: str) -> None:
        """Write one key. Modes: "overwrite"; "new": what exists is left; "exist": only what exists is written."""
        ...


class ProductSource(Protocol):
    """Where products are loaded from instead of the store: a prefetcher, or a batch's preloaded products."""

    def raw_product(self, raw_key: bytes) -> bytes | None:
        """Return a product's stored bytes, or None."""
        ...


def checked_mode(mode: str) -> str:
    """Return a mode of writing. Raises InvalidInputError."""
    if mode not in MODES:
        raise InvalidInputError(source="mode", problem=f"a mode is one of {', '.join(MODES)}, not {mode!r}")
    return mode


class ProductID:
    """The id of a product: its raw key, which may be kept anywhere. False when it is empty."""

    __slots__ = ("raw",)

    def __init__(self, raw: bytes = b"") -> None:
        self.raw = raw

    @classmethod
    def of(cls, dataset: UUID, label: str, type_name: str, *numbers: int) -> "ProductID":
        """Return the id of a product by up to three numbers of its container, without asking the store."""
        return cls(product_item(dataset, numbers) + product_suffix(label, type_name))

    @property
    def dataset(self) -> UUID:
        """The data set's UUID."""
        return self._key.dataset

    @property
    def run(self) -> int | None:
        """The run's number; None for a product of a data set."""
        return _number(self._key.run)

    @property
    def subrun(self) -> int | None:
        """The subrun's number; None for a product of a run or data set."""
        return _number(self._key.subrun)

    @property
    def event(self) -> int | None:
        """The event's number; None for a product of another container."""
        return _number(self._key.event)

    @property
    def label(self) -> str:
        """What the user called it."""
        return self._key.label

    @property
    def type(self) -> str:
        """The name of its type."""
        return self._key.type

    def to_json(self) -> dict[str, object] | None:
        """Return what the id says, without the numbers that its container lacks; None when it is empty."""
        if not self:
            return None
        numbers = {"run": self.run, "subrun": self.subrun, "event": self.event}
        present = {name: number for name, number in numbers.items() if number is not None}
        texts = {name: text for name, text in (("label", self.label), ("type", self.type)) if text}
        return {"dataset_id": str(self.dataset), **present, **texts}

    @property
    def _key(self) -> ProductKey:
        key = split_product(self.raw)
        if key is None:
            raise CorruptionError(raw_key=self.raw.hex(), problem="it is no id of a product")
        return key

    def __bool__(self) -> bool:
        return bool(self.raw)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ProductID) and other.raw == self.raw

    def __hash__(self) -> int:
        return hash(self.raw)

    def __repr__(self) -> str:
        return f"<product {self.to_json()}>" if self else "<no product>"


def _number(number: int) -> int | None:
    return None if number == INVALID_NUMBER else number


class Container(ABC):
    """What products hang on: a data set, run, subrun or event. A handle; the container need not exist."""

    __slots__ = ("datastore",)

    datastore: "DataStore"

    @property
    @abstractmethod
    def item(self) -> bytes:
        """The 40 bytes that the keys of its products begin with."""

    @property
    @abstractmethod
    def path(self) -> str:
        """How messages name it: "nova/2019 12096 1 7"."""

    def product_id(self, label: str, type: Any) -> ProductID:  # noqa: A002  # Why: the word of the document.
        """Return the id that a product of this label and type has, stored or not."""
        return ProductID(self.item + product_suffix(label, product_type(type).name))

    def store(
        self,
        label: str,
        value: Any,
        *,
        type: Any = None,  # noqa: A002  # Why: as above.
        mode: str = "overwrite",
        start: int = 0,
        end: int | None = None,
        into: Writer | None = None,
    ) -> ProductID:
        """Store a product under a label and its type, which is the value's own unless given; return its id.

        Of a vector, `start` and `end` store a part. `mode`: "new" leaves a product that exists, "exist" writes only over one.
        `into` a batch or an asynchronous engine it is written later. Raises TypeMismatchError, InvalidLabelError,
        EngineLimitError.
        """
        kind = type_of_value(value) if type is None else product_type(type)
        if start or end is not None:
            value = _part(kind, value, start, end)
        raw_key = self.item + product_suffix(label, kind.name)
        (into or self.datastore).write(Kind.PRODUCT, raw_key, kind.encode(value), checked_mode(mode))
        return ProductID(raw_key)

    def load(
        self,
        label: str,
        type: Any,  # noqa: A002  # Why: as above.
        default: Any = None,
        *,
        missing: str = "default",
        source: ProductSource | None = None,
    ) -> Any:
        """Return the product of this label and type, or `default`; `missing="raise"`: MissingError.

        `source`: a prefetcher or preloaded products. A product of another type under the label is another product. Raises
        CorruptionError when the stored bytes are none of the type.
        """
        kind = product_type(type)
        raw_key = self.item + product_suffix(label, kind.name)
        raw = (self.datastore if source is None else source).raw_product(raw_key)
        if raw is not None:
            return kind.decode(raw)
        if missing == "raise":
            raise MissingError(table="products", key=f"{self.path} {label}#{kind.name}")
        return default

    def products(self, label: str | None = None, *, is_prefix: bool = False) -> Iterator[ProductID]:
        """Yield the ids of the products, sorted by label and type: all, those of one label, or of labels that begin with it."""
        item = self.item
        databases = self.datastore.databases
        with databases.snapshot(Kind.PRODUCT, databases.place(Kind.PRODUCT, item)) as snapshot:
            yield from map(ProductID, snapshot.keys(product_range(item, label, is_prefix=is_prefix)))

    def delete_product(self, label: str, type: Any) -> bool:  # noqa: A002  # Why: as above.
        """Remove a product; return False when there was none."""
        return self.datastore.remove(Kind.PRODUCT, self.product_id(label, type).raw)


def _part(kind: ProductType, value: Any, start: int, end: int | None) -> Any:
    if not kind.is_vector:
        raise TypeMismatchError(type=kind.name, problem="it has no parts")
    stop = len(value) if end is None else end
    if not 0 <= start <= stop <= len(value):
        raise InvalidInputError(source="range", problem=f"{start} to {stop} is no part of {len(value)} elements")
    return value[start:stop]
