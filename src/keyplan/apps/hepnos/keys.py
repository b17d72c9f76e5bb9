"""From containers to raw keys and back, through the layouts: the only place where the API touches bytes of keys."""

from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from functools import lru_cache
from struct import Struct
from typing import Any, Final
from uuid import UUID

import numpy as np

from keyplan.apps.hepnos.errors import InvalidLabelError, InvalidNameError, InvalidNumberError
from keyplan.apps.hepnos.layout import (
    INVALID_NUMBER,
    DataSetKey,
    EventKey,
    HEPnOSDataSets,
    HEPnOSEvents,
    HEPnOSProducts,
    HEPnOSRuns,
    HEPnOSSubRuns,
    ProductKey,
    RunKey,
    SubRunKey,
)
from keyplan.engine import KeyRange
from keyplan.errors import InvalidKeyError
from keyplan.layout import CompiledKeys, Layout

__all__ = [
    "ITEM_BYTES",
    "NO_EVENT",
    "NUMBER_BYTES",
    "Kind",
    "child_prefix",
    "dataset_key",
    "dataset_range",
    "event_numbers",
    "is_key",
    "is_label",
    "number_key",
    "number_range",
    "path_of_key",
    "product_item",
    "product_range",
    "product_suffix",
    "split_product",
    "whole_number",
]


class Kind(Enum):
    """What a database holds; the value is the name that its databases begin with."""

    DATASET = "datasets"
    RUN = "runs"
    SUBRUN = "subruns"
    EVENT = "events"
    PRODUCT = "products"

    # Why: members are one object each, and Enum's own hash is a Python call in every read and write.
    __hash__ = object.__hash__

    @property
    def granted_below(self) -> bytes:
        """What the kind's keys begin with where a server's access file grants them: `hepnos/events/`."""
        return f"hepnos/{self.value}/".encode()

    @property
    def layout(self) -> type[Layout]:
        """The layout of the kind's databases."""
        return _LAYOUTS[self]


_LAYOUTS: Final[dict[Kind, type[Layout]]] = {
    Kind.DATASET: HEPnOSDataSets,
    Kind.RUN: HEPnOSRuns,
    Kind.SUBRUN: HEPnOSSubRuns,
    Kind.EVENT: HEPnOSEvents,
    Kind.PRODUCT: HEPnOSProducts,
}

_KEYS: Final[dict[Kind, CompiledKeys]] = {
    kind: layout.bound().tables[kind.value].keys for kind, layout in _LAYOUTS.items()
}

_NUMBERED: Final[dict[int, tuple[Kind, Callable[..., object]]]] = {
    1: (Kind.RUN, RunKey),
    2: (Kind.SUBRUN, SubRunKey),
    3: (Kind.EVENT, EventKey),
}
_DATASETS, _PRODUCTS = _KEYS[Kind.DATASET], _KEYS[Kind.PRODUCT]

NUMBER_BYTES: Final = 8
"""Of a key, those that a number has at its end. Why a number here: keys are made by the million, a parent's bytes once."""

ITEM_BYTES: Final = 40
"""Of a product's key, those that say whose it is. Why a number here: a product's key is sliced for each of millions."""

NO_EVENT: Final = INVALID_NUMBER.to_bytes(NUMBER_BYTES, "big")
"""What the items of data sets, runs and subruns end with, in keys of products."""

_EVENT_NUMBERS: Final = Struct(">16x3Q")
"""Why not the layout's decoder: an event is unpacked for every handle of an iteration; `test_bulk.py` holds them together."""

_NOBODY: Final = UUID(int=0)
_ANY_TYPE: Final = "-"


def dataset_key(path: str) -> bytes:
    """Return the raw key of a data set by its full name. Raises InvalidNameError."""
    try:
        return _DATASETS.encode(DataSetKey.of_path(path))
    except InvalidKeyError as error:
        raise InvalidNameError(**error.facts) from error


def path_of_key(raw_key: bytes) -> str | None:
    """Return the full name that the raw key of a data set says; None when it is none."""
    try:
        path = raw_key[1:].decode()
        return path if dataset_key(path) == raw_key else None
    except ValueError:  # Why: InvalidNameError and UnicodeDecodeError both are.
        return None


def dataset_range(parent: str, *, at_least: str | None = None, starts_with: str | None = None) -> KeyRange:
    """Return the range of the children of a data set ("" for those at the top), from a name on. Raises InvalidNameError."""
    try:
        # Why at least a character: "" is no name, and every name comes after it.
        return KeyRange(*_DATASETS.range((parent,), at_least=at_least or None, starts_with=starts_with))
    except InvalidKeyError as error:
        raise InvalidNameError(**error.facts) from error


def whole_number(number: Any) -> Any:
    """Return a whole number of numpy's as Python's; anything else as it is, for the layout to refuse."""
    return int(number) if isinstance(number, np.integer) else number


def number_key(dataset: UUID, numbers: tuple[int, ...]) -> bytes:
    """Return the raw key of a run, subrun or event by one, two or three numbers. Raises InvalidNumberError."""
    kind, make = _NUMBERED[len(numbers)]
    try:
        return _KEYS[kind].encode(make(dataset, *numbers))
    except InvalidKeyError as error:
        raise InvalidNumberError(**error.facts) from error


def child_prefix(dataset: UUID, parents: tuple[int, ...]) -> bytes:
    """Return what the raw keys of all children of a data set, run or subrun begin with: all but the number's NUMBER_BYTES."""
    return number_key(dataset, (*parents, 0))[:-NUMBER_BYTES]


def event_numbers(raw_keys: Sequence[bytes]) -> Iterator[tuple[int, int, int]]:
    """Yield run, subrun and event of the raw keys of events."""
    return _EVENT_NUMBERS.iter_unpack(b"".join(raw_keys))


def number_range(dataset: UUID, parents: tuple[int, ...], *, at_least: int = 0, below: int | None = None) -> KeyRange:
    """Return the range of the children of a data set, run or subrun with numbers in these bounds. Raises InvalidNumberError.

    `below` may be a number that no child has: all numbers are below 2**64 - 1, and below 2**64.
    """
    keys = _KEYS[_NUMBERED[len(parents) + 1][0]]
    start = at_least if type(at_least) is int else whole_number(at_least)
    end = None if below is None else whole_number(below)
    if type(end) is int and end in {INVALID_NUMBER, INVALID_NUMBER + 1}:
        end = None
    try:
        # Why not 0: it is where the range begins anyway. Why its type: False and 0.0 are equal to it, and no numbers.
        return KeyRange(
            *keys.range((dataset, *parents), at_least=None if type(start) is int and start == 0 else start, below=end)
        )
    except InvalidKeyError as error:
        raise InvalidNumberError(**error.facts) from error


# ---- products -----------------------------------------------------------------------------------------------------------


def product_item(dataset: UUID, numbers: tuple[int, ...]) -> bytes:
    """Return the first 40 bytes of the keys of a container's products: missing numbers are the invalid one."""
    run, subrun, event = (*numbers, *(INVALID_NUMBER,) * (3 - len(numbers)))
    return _PRODUCTS.encode(ProductKey(dataset, run, subrun, event, label="", type=_ANY_TYPE))[:ITEM_BYTES]


@lru_cache(4_096)
def product_suffix(label: str, type_name: str) -> bytes:
    """Return what follows the first 40 bytes of a product's key. Raises InvalidLabelError.

    Why apart: a job asks for few labels and types, of millions of items.
    """
    try:
        return _PRODUCTS.encode(ProductKey(_NOBODY, 0, 0, 0, label, type_name))[ITEM_BYTES:]
    except InvalidKeyError as error:
        raise InvalidLabelError(**error.facts) from error


def is_label(text: str) -> bool:
    """Whether a product can have this label."""
    try:
        product_suffix(text, _ANY_TYPE)
    except InvalidLabelError:
        return False
    return True


def product_range(item: bytes, label: str | None = None, *, is_prefix: bool = False) -> KeyRange:
    """Return the range of a container's products: all, those of one label, or of the labels that begin with it."""
    if label is None:
        return KeyRange.of_prefix(item)
    suffix = product_suffix(label, _ANY_TYPE)
    # Why: behind the label come a "#" and the type; the labels that begin with this one go on before the "#".
    return KeyRange.of_prefix(item + suffix[: -len(_ANY_TYPE) - is_prefix])


def is_key(kind: Kind, raw_key: bytes) -> bool:
    """Whether a raw key is one of a kind's layout."""
    return _KEYS[kind].decode(raw_key) is not None


def split_product(raw_key: bytes) -> ProductKey | None:
    """Return what a product's raw key says; None when it is none."""
    key = _PRODUCTS.decode(raw_key)
    assert key is None or isinstance(key, ProductKey)
    return key
