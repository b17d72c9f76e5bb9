"""References in arrays of awkward: records called Ref, of `raw` and `index`, whose elements are `hepnos.Ref`.

`array.best[0]`, iteration and `to_list` give a Ref. `array[0].best`, a field of a record, is a record of awkward: it has what a
Ref has, and is equal to it; `array[0].best.ref` is the Ref.
"""

from collections.abc import Callable, Generator, Iterable, Mapping
from typing import Any, Final, cast

import awkward as ak
import numpy as np

from keyplan.apps.hepnos.access import StoreAccess
from keyplan.apps.hepnos.column_types import REF_RECORD, RecordType, wider
from keyplan.apps.hepnos.errors import TypeMismatchError
from keyplan.apps.hepnos.keys import whole_number
from keyplan.apps.hepnos.product_id import ProductID
from keyplan.apps.hepnos.references import Ref

__all__ = ["RefArray", "RefRecord", "as_refs", "from_objects", "is_ref"]

_NAME: Final = "Ref"
_SPELLED: Final = ("keyplan.Ref.raw", "keyplan.Ref.index")


def is_ref(kind: Any, columns: RecordType) -> bool:
    """Tell whether a record of awkward, of these columns, is a reference: it is called Ref, and its columns are a Ref's."""
    return kind.parameter("__record__") == _NAME and wider(REF_RECORD, columns) == REF_RECORD


def as_refs(records: Any) -> Any:
    """Return awkward's content of records of `raw` and `index` as one of references."""
    parameters = {"__record__": _NAME}
    return ak.contents.RecordArray(records.contents, records.fields, length=len(records), parameters=parameters)


class RefRecord(ak.Record):  # type: ignore[misc]  # Why: awkward's classes have no types.
    """A reference as the field of a record: `raw`, `index`, and what a Ref has."""

    @property
    def ref(self) -> Ref:
        """The reference itself. Raises AttributeError for a record of another package that is called so."""
        found = _ref_of(self)
        if found is None:
            raise AttributeError(name="ref", obj=self)
        return found

    @property
    def product(self) -> ProductID:
        """As of `Ref`."""
        return self.ref.product

    def load(self, datastore: StoreAccess, type: Any = None) -> Any:  # noqa: A002  # Why: as of `Ref`.
        """As of `Ref`."""
        return self.ref.load(datastore, type)

    def __getitem__(self, where: Any) -> Any:
        # Why at all: awkward lists a record's own values unless its class has this method.
        return super().__getitem__(where)

    def __eq__(self, other: object) -> Any:
        own = _element(self)
        if isinstance(other, ak.Array):
            return other == own
        return bool(super().__eq__(other) if own is self else own == _element(other))

    def __ne__(self, other: object) -> Any:  # Why said: awkward has one for arrays.
        return other != _element(self) if isinstance(other, ak.Array) else not self == other

    def __hash__(self) -> int:
        ref = _ref_of(self)
        if ref is None:
            raise TypeError("a record that is no reference has no hash")
        return hash(ref)


class RefArray(ak.Array):  # type: ignore[misc]  # Why: as above.
    """References, in lists or not."""

    def __getitem__(self, where: Any) -> Any:
        return _element(super().__getitem__(where))

    def __iter__(self) -> Generator[Any, None, None]:
        yield from map(_element, super().__iter__())


def _element(value: Any) -> Any:
    ref = _ref_of(value) if isinstance(value, RefRecord) else None
    return value if ref is None else ref


def _ref_of(record: RefRecord) -> Ref | None:
    """Return the reference that a record is; None for one of another package, whose records may be called so."""
    if set(record.fields) != {"raw", "index"}:
        return None
    raw, index = record["raw"], record["index"]
    if not isinstance(raw, bytes) or not (index is None or isinstance(index, int | np.integer)):
        return None
    return Ref(raw, None if index is None else int(index))


def _compared(by: Any) -> Callable[[Any, Any], Any]:
    """Return how awkward compares references one by one, each as a Ref is: by the product that it points at."""

    def raw_of(given: Any) -> Any:
        if isinstance(given, Ref):
            return given.raw
        raw = given["raw"] if set(given.fields) == {"raw", "index"} else None
        if not (isinstance(raw, bytes) or (isinstance(raw, ak.Array) and _is_of_bytes(raw))):
            # Why: records of another package may be called so, and have no comparison by that.
            raise TypeError(f"records of {', '.join(given.fields)} are no references, and cannot be compared")
        return raw

    return lambda first, second: by(raw_of(first), raw_of(second))


def _is_of_bytes(array: Any) -> bool:
    return bool(array.layout.purelist_parameter("__array__") == "bytestring")


ak.behavior[_NAME] = RefRecord
ak.behavior["*", _NAME] = RefArray
for _by in (np.equal, np.not_equal):
    for _pair in ((_NAME, _NAME), (_NAME, Ref), (Ref, _NAME)):
        ak.behavior[_by, *_pair] = _compared(_by)


# ---- from values of Python ----------------------------------------------------------------------------------------------


def from_objects(values: Iterable[Any]) -> Any:
    """Return values of Python, lists, dicts, text, references and None among them, as an array.

    Raises TypeMismatchError for a Ref that is none, and for references that stand beside records.
    """
    given = list(values)
    if not any(map(_has_ref, given)):
        return ak.from_iter(given)
    has_others = False

    def named(layout: Any, **_: Any) -> Any:
        nonlocal has_others
        if not layout.is_record or set(_SPELLED).isdisjoint(layout.fields):
            return None
        contents = [layout.content(name) for name in _SPELLED]
        has_others |= len(layout.fields) > len(contents) or contents[0].is_option
        return as_refs(ak.contents.RecordArray(contents, ["raw", "index"], length=len(layout)))

    found = ak.transform(named, ak.from_iter(map(_spelled, given)))
    if has_others:
        raise TypeMismatchError(type="ref", problem="a column has references or other records, and not both")
    return found


def _has_ref(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(map(_has_ref, value.values()))
    return any(map(_has_ref, value)) if isinstance(value, list | tuple) else isinstance(_element(value), Ref)


def _spelled(value: Any) -> Any:
    """Return a value with records for its references. Why such names: to awkward all records of a column are one."""
    ref = _element(value)
    if isinstance(ref, Ref):
        raw, index = cast(object, ref.raw), whole_number(ref.index)
        if not isinstance(raw, bytes) or not (index is None or (type(index) is int and abs(index) < 1 << 63)):
            problem = "it has the bytes of a product's id, and the number of an element of 64 bits or none"
            raise TypeMismatchError(type="ref", problem=problem)
        return dict(zip(_SPELLED, (raw, index), strict=True))
    if isinstance(value, Mapping):
        return {name: _spelled(each) for name, each in value.items()}
    return type(value)(map(_spelled, value)) if isinstance(value, list | tuple) else value
