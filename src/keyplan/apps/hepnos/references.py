"""References: storable pointers to a product, or to an element of a stored vector, that are loaded when they are asked for."""

from typing import Any

import msgspec

from keyplan.apps.hepnos.access import StoreAccess
from keyplan.apps.hepnos.errors import MissingError
from keyplan.apps.hepnos.product_id import ProductID
from keyplan.apps.hepnos.types import register_type
from keyplan.errors import InvalidInputError

__all__ = ["Ref"]


class Ref(msgspec.Struct, frozen=True):
    """A reference to the product of an id, or to the element `index` of it. Equal when the product is the same one.

    Store it as any other value: alone, in a list, or as a field of a dataclass or Struct.
    """

    raw: bytes
    index: int | None = None

    @classmethod
    def to(cls, product: ProductID, index: int | None = None) -> "Ref":
        """Return a reference, without asking whether the product is there. Raises InvalidInputError for no product."""
        if not product or (index is not None and index < 0):
            raise InvalidInputError(source="reference", problem="it points at a product, or at an element from 0 on")
        return cls(product.raw, index)

    @property
    def product(self) -> ProductID:
        """The id of what it points at."""
        return ProductID(self.raw)

    def load(self, datastore: StoreAccess, type: Any = None) -> Any:  # noqa: A002  # Why: the word of the document.
        """Return what it points at; the type is the one that the product's id names unless given. Raises MissingError."""
        value = datastore.load_product(self.product, type)
        if value is None or (self.index is not None and self.index >= len(value)):
            raise MissingError(table="products", key=f"{self.product.label}#{self.product.type}", index=self.index)
        return value if self.index is None else value[self.index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ref) and other.raw == self.raw

    def __hash__(self) -> int:
        return hash(self.raw)


register_type("ref", Ref)
