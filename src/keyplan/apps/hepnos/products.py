"""Products: typed values with a label, on any container."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

from keyplan.apps.hepnos.access import ProductSource, Writer
from keyplan.apps.hepnos.errors import DeletedError, MissingError, TypeMismatchError
from keyplan.apps.hepnos.keys import Kind, product_range, product_suffix
from keyplan.apps.hepnos.open_store import OpenStore
from keyplan.apps.hepnos.operations import checked_mode
from keyplan.apps.hepnos.product_id import ProductID
from keyplan.apps.hepnos.types import ProductType, product_type, type_of_value
from keyplan.errors import CorruptionError, InvalidInputError

__all__ = ["Container"]


class Container(ABC):
    """What products hang on: a data set, run, subrun or event. A handle; the container need not exist."""

    __slots__ = ("datastore",)

    datastore: OpenStore

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
        EngineLimitError; DeletedError when its data set was deleted.
        """
        kind = type_of_value(value) if type is None else product_type(type)
        if start or end is not None:
            value = _part(kind, value, start, end)
        raw_key = self.item + product_suffix(label, kind.name)
        try:
            (into or self.datastore).write(Kind.PRODUCT, raw_key, kind.encode(value), checked_mode(mode))
        except DeletedError as error:
            raise DeletedError(table="products", key=f"{self.path} {label}#{kind.name}") from error
        return ProductID(raw_key)

    def load(
        self,
        label: str,
        type: Any = None,  # noqa: A002  # Why: as above.
        default: Any = None,
        *,
        missing: str = "default",
        source: ProductSource | None = None,
    ) -> Any:
        """Return the product of this label and type, or `default`; `missing="raise"`: MissingError.

        Without a type it is the only product of the label, and of an event also its rows in the collection of that name;
        several products are refused with InvalidInputError, which names their types. `source`: a prefetcher or preloaded
        products. A product of another type under the label is another product. Raises CorruptionError, which names the
        product, when the stored bytes are none of the type; DeletedError.
        """
        if type is None:
            found = self.load_by_label(label, source)
            if found is None and missing == "raise":
                raise MissingError(table="products", key=f"{self.path} {label}")
            return default if found is None else found
        kind = product_type(type)
        raw_key = self.item + product_suffix(label, kind.name)
        try:
            raw = (self.datastore if source is None else source).raw_product(raw_key)
        except DeletedError as error:
            raise DeletedError(table="products", key=f"{self.path} {label}#{kind.name}") from error
        if raw is not None:
            try:
                return kind.decode(raw)
            except CorruptionError as error:
                raise CorruptionError(**error.facts, product=f"{self.path} {label}#{kind.name}") from error
        if missing == "raise":
            raise MissingError(table="products", key=f"{self.path} {label}#{kind.name}")
        return default

    @abstractmethod
    def load_by_label(self, label: str, source: ProductSource | None = None) -> Any:
        """Return what there is of a label, None for nothing: see `load` without a type."""

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
