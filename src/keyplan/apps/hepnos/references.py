"""References: storable pointers to a product, or to an element of a stored vector, that are loaded when they are asked for."""

from typing import Any, cast

import msgspec

from keyplan.apps.hepnos.access import StoreAccess
from keyplan.apps.hepnos.errors import MissingError, TypeMismatchError
from keyplan.apps.hepnos.keys import whole_number
from keyplan.apps.hepnos.product_id import ProductID
from keyplan.apps.hepnos.types import product_type, register_type
from keyplan.errors import CorruptionError, InvalidInputError

__all__ = ["Ref"]


class Ref(msgspec.Struct, frozen=True):
    """A reference to the product of an id, or to the element `index` of it. Equal when the product is the same one.

    Store it as any other value: alone, in a list, or as a field of a dataclass or Struct.
    """

    raw: bytes
    index: int | None = None

    @classmethod
    def to(cls, product: ProductID, index: Any = None) -> "Ref":
        """Return a reference, without asking whether the product is there. Raises InvalidInputError for no product."""
        at, given = whole_number(index), cast(object, product)
        is_index = at is None or (type(at) is int and at >= 0)
        if not isinstance(given, ProductID) or not given or not is_index:
            problem = "it points at the id of a product, as `store` returns it, or at an element of it from 0 on"
            raise InvalidInputError(source="reference", problem=problem)
        return cls(given.raw, at)

    @property
    def product(self) -> ProductID:
        """The id of what it points at."""
        return ProductID(self.raw)

    def load(self, datastore: StoreAccess, type: Any = None) -> Any:  # noqa: A002  # Why: the word of the document.
        """Return what it points at; the type is the one that the product's id names unless given.

        Raises MissingError; TypeMismatchError for another type than it is stored as, or an element of what has none.
        """
        stored_as = self.product.type
        try:
            value = datastore.load_product(self.product, type)
        except CorruptionError as error:
            asked = stored_as if type is None else product_type(type).name
            if asked == stored_as:
                raise
            raise TypeMismatchError(type=asked, problem=f"the product is stored as {stored_as}") from error
        if self.index is not None and value is not None and not hasattr(value, "__len__"):
            problem = "it has no elements: refer to it without an index"
            raise TypeMismatchError(type=stored_as, problem=problem)
        if value is None or (self.index is not None and self.index >= len(value)):
            raise MissingError(table="products", key=f"{self.product.label}#{self.product.type}", index=self.index)
        return value if self.index is None else value[self.index]

    def __eq__(self, other: object) -> bool:
        return other.raw == self.raw if isinstance(other, Ref) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.raw)


register_type("ref", Ref)
