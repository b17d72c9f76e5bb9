"""Functions that make new records of old ones: of a record alone, or of keys and records."""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias, TypeVar

from keyplan.errors import CorruptionError, InvalidArgumentError, InvalidRecordError, RecordError
from keyplan.layout import BoundTable
from keyplan.store import IndexEntry

__all__ = [
    "UNREADABLE",
    "Conversion",
    "Converted",
    "Keyed",
    "Made",
    "Resolution",
    "Transform",
    "called",
    "described_functions",
]

T = TypeVar("T")

UNREADABLE = (CorruptionError, RecordError)
"""What a record raises that cannot be carried over."""


class Keyed(NamedTuple):
    """A record with its key, and the name of its table where the function could mean several."""

    key: Any
    record: Any
    table: str = ""


Made: TypeAlias = Keyed | Iterable[Keyed] | None
"""What a function makes: one record, several, or none."""


@dataclass(frozen=True)
class Conversion:
    """A function from a record of the old layout to one of the new: pure, and the same every time.

    `name` and `version` stand for it in the store: raise the version when its answers change. `inverse` makes of a new record
    the old one of which `function` makes just this; with it, what programs of the new layout write can be taken back.
    """

    function: Callable[[Any], Any]
    name: str
    version: int = 1
    inverse: Callable[[Any], Any] | None = None

    def __post_init__(self) -> None:
        require_arguments(self.function, 1, "a record; a function of key and record is a Transform's")
        require_arguments(self.inverse, 1, "a new record")

    def __str__(self) -> str:
        return f"{self.name}@{self.version}"


@dataclass(frozen=True)
class Transform:
    """A function from a key and its records of the old layout to records of the new, keys included: pure, the same every time.

    function: called with the key and a record of each table of `of`, in that order; None where a table has none at the key.
        It returns a `Keyed`, several, or None: nothing is made of the record. Fields of keys may come, go, be split or joined.
    of: old tables. Those of one transform have keys of the same fields, and their records of one key become new ones together;
        they are removed in the end.
    into: new tables. A `Keyed` that names no table is of the first.
    inverse: called with a new key and its record; it returns the `Keyed` of the old layout that `function` makes just this of,
        by name where `of` has several tables. With it, what programs of the new layout write can be taken back.
    name, version: what stands for the functions in the store; raise the version when answers change.
    """

    function: Callable[..., Made]
    name: str
    of: tuple[str, ...]
    into: tuple[str, ...]
    version: int = 1
    inverse: Callable[[Any, Any], Made] | None = None

    def __post_init__(self) -> None:
        require_arguments(self.function, 1 + len(self.of), f"a key and a record of each of {', '.join(self.of)}")
        require_arguments(self.inverse, 2, "a new key and its record")

    @property
    def item(self) -> str:
        """What plans and reports call it: the old table that comes first."""
        return self.of[0]

    def __str__(self) -> str:
        return f"{self.name}@{self.version}"


@dataclass(frozen=True)
class Resolution:
    """A function of a key and its record that claims a unique entry that another record has.

    It returns the record as it shall be, or None: it is removed. Who has the entry is the first in the order of keys, unless a
    program wrote meanwhile. `name` and `version` stand for it in the store.
    """

    function: Callable[[Any, Any], Any]
    name: str
    version: int = 1

    def __post_init__(self) -> None:
        require_arguments(self.function, 2, "a key and its record")

    def __str__(self) -> str:
        return f"{self.name}@{self.version}"


def described_functions(
    conversions: Mapping[str, Conversion], transforms: Sequence[Transform], resolutions: Mapping[str, Resolution]
) -> str:
    """The functions as one text, for the migration's id."""
    transformed = [f"{'+'.join(one.of)}>{'+'.join(one.into)}={one}" for one in transforms]
    described = [f"{table}={conversion}" for table, conversion in sorted(conversions.items())]
    described += sorted(transformed)
    return ",".join([*described, *(f"{index}!{one}" for index, one in sorted(resolutions.items()))])


def require_arguments(function: Callable[..., Any] | None, number: int, what: str) -> None:
    """Raise InvalidArgumentError for a function that cannot be called with so many arguments. `what`: they, in words."""
    try:
        signature = inspect.signature(function) if callable(function) else None
    except ValueError:
        return  # Why: some functions written in C do not say.
    try:
        if signature is not None:
            signature.bind(*range(number))
    except TypeError as error:
        problem = f"{getattr(function, '__name__', 'it')} is called with {what}: {error}"
        raise InvalidArgumentError(argument="function", problem=problem) from error


def called(table: str, call: Callable[[], T]) -> T:
    """Return what a call of somebody's function returns. Raises InvalidRecordError when it raises, or ends the program."""
    try:
        return call()
    except (Exception, SystemExit) as error:
        # Why not its message: it may quote the record.
        problem = f"the function raised {type(error).__name__}"
        raise InvalidRecordError(table=table, problem=problem) from error


class Converted(NamedTuple):
    """A record in the new layout."""

    table: BoundTable
    key: object
    raw_key: bytes
    raw_value: bytes
    index_entries: Mapping[bytes, IndexEntry]
