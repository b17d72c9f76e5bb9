"""Ids of products: a product's raw key, and what it says."""

from uuid import UUID

from keyplan.apps.hepnos.keys import product_item, product_suffix, split_product
from keyplan.apps.hepnos.layout import INVALID_NUMBER, ProductKey
from keyplan.errors import CorruptionError

__all__ = ["ProductID"]


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
