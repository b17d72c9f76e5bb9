"""Runs, subruns and events: handles, and the views over the children of a container. Handles cost nothing and check nothing."""

from abc import abstractmethod
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, ClassVar, Generic, Self, TypeVar, overload
from uuid import UUID

from keyplan.apps.hepnos.access import ProductSource, Writer
from keyplan.apps.hepnos.bulk import create_events
from keyplan.apps.hepnos.dataset_ref import DataSetRef
from keyplan.apps.hepnos.errors import DeletedError, MissingError
from keyplan.apps.hepnos.keys import (
    NUMBER_BYTES,
    Kind,
    child_prefix,
    number_key,
    number_range,
    product_item,
    whole_number,
)
from keyplan.apps.hepnos.layout import INVALID_NUMBER
from keyplan.apps.hepnos.products import Container
from keyplan.engine import KeyRange
from keyplan.errors import InvalidInputError

__all__ = ["Event", "Numbered", "Numbers", "Run", "SubRun"]

N = TypeVar("N", bound="Numbered")


class Numbered(Container):
    """A run, subrun or event: its data set and numbers. Two handles are equal when they name the same container."""

    __slots__ = ("_raw_key", "dataset", "numbers")

    kind: ClassVar[Kind]

    def __init__(self, dataset: DataSetRef, numbers: tuple[int, ...], raw_key: bytes | None = None) -> None:
        self.datastore = dataset.datastore
        self.dataset = dataset
        self.numbers = numbers
        self._raw_key = raw_key

    @property
    def number(self) -> int:
        """Its number within its parent."""
        return self.numbers[-1]

    @property
    def raw_key(self) -> bytes:
        """The key that says that it exists; other processes find it by this. Raises InvalidNumberError."""
        raw_key = self._raw_key
        if raw_key is None:
            raw_key = self._raw_key = number_key(self.dataset.uuid, self.numbers)
        return raw_key

    @property
    def item(self) -> bytes:
        return product_item(self.dataset.uuid, self.numbers)

    @property
    def path(self) -> str:
        return f"{self.dataset.path} {' '.join(map(str, self.numbers))}"

    @property
    @abstractmethod
    def siblings(self) -> "Numbers[Any]":
        """The view of its parent's children."""

    def load_by_label(self, label: str, source: ProductSource | None = None) -> Any:
        return self.dataset.load_of(self, label, source)

    def exists(self) -> bool:
        """Tell whether it was created; nothing of a data set that was deleted exists."""
        try:
            return self.datastore.raw_value(self.kind, self.raw_key) is not None
        except DeletedError:
            return False

    def next(self) -> Self | None:
        """Return the next of its siblings, or None: never a child of another parent."""
        found: Self | None = self.siblings.upper_bound(self.number)
        return found

    def previous(self) -> Self | None:
        """Return the one before it among its siblings, or None."""
        found: Self | None = self.siblings.before(self.number)
        return found

    prev = previous

    def delete(self) -> None:
        """Remove it with all that it holds, products first. One that is not there is no error.

        Much is removed by many commits: where it is interrupted, it goes on when it is deleted again.
        """
        self.datastore.remove_container(self.kind, self.raw_key)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Numbered)
            and other.numbers == self.numbers
            and other.dataset.uuid == self.dataset.uuid
            and other.datastore is self.datastore
        )

    def __hash__(self) -> int:
        return hash((self.dataset.uuid, self.numbers))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.path}>"


class Event(Numbered):
    """An event."""

    __slots__ = ()

    kind = Kind.EVENT

    @property
    def item(self) -> bytes:
        return self._raw_key or self.raw_key

    @property
    def subrun(self) -> "SubRun":
        """The subrun that it is of."""
        return SubRun(self.dataset, self.numbers[:2])

    @property
    def siblings(self) -> "Numbers[Event]":
        return self.subrun.events


class SubRun(Numbered):
    """A subrun, and the events in it."""

    __slots__ = ("_events",)

    _events: "Numbers[Event]"
    kind = Kind.SUBRUN

    @property
    def run(self) -> "Run":
        """The run that it is of."""
        return Run(self.dataset, self.numbers[:1])

    @property
    def siblings(self) -> "Numbers[SubRun]":
        return self.run.subruns

    @property
    def events(self) -> "Numbers[Event]":
        """Its events."""
        try:
            return self._events
        except AttributeError:  # Why late: most handles of subruns are only passed by.
            self._events = Numbers(self.dataset, self.numbers, Event)
            return self._events

    def create_event(self, number: int, *, into: Writer | None = None) -> Event:
        """Create an event, unless it exists, and return it; see `Numbers.create`."""
        return self.events.create(number, into=into)

    def create_events(self, numbers: Any, **options: Any) -> int:
        """Create many events at once, from their numbers in any order; return how many are new. See `bulk.create_events`."""
        run, subrun = self.numbers
        return create_events(self.dataset, run, subrun, numbers, **options)

    def get(self, number: int) -> Event | None:
        """Return the event of that number, or None."""
        return self.events.get(number)

    def range(
        self, at_least: int = 0, below: int | None = None, *, reverse: bool = False, limit: int | None = None
    ) -> Iterator[Event]:
        """Yield the events with numbers from `at_least` to before `below`; see `Numbers.range`."""
        return self.events.range(at_least, below, reverse=reverse, limit=limit)

    def __iter__(self) -> Iterator[Event]:
        return iter(self.events)

    def __getitem__(self, number: int) -> Event:
        return self.events[number]

    def __contains__(self, number: int) -> bool:
        return number in self.events


class Run(Numbered):
    """A run, and the subruns in it."""

    __slots__ = ("_subruns",)

    _subruns: "Numbers[SubRun]"
    kind = Kind.RUN

    @property
    def siblings(self) -> "Numbers[Run]":
        return Numbers(self.dataset, (), Run)

    @property
    def subruns(self) -> "Numbers[SubRun]":
        """Its subruns."""
        try:
            return self._subruns
        except AttributeError:  # Why late: as in a subrun.
            self._subruns = Numbers(self.dataset, self.numbers, SubRun)
            return self._subruns

    def create_subrun(self, number: int, *, into: Writer | None = None) -> SubRun:
        """Create a subrun, unless it exists, and return it; see `Numbers.create`."""
        return self.subruns.create(number, into=into)

    def get(self, number: int) -> SubRun | None:
        """Return the subrun of that number, or None."""
        return self.subruns.get(number)

    def range(
        self, at_least: int = 0, below: int | None = None, *, reverse: bool = False, limit: int | None = None
    ) -> Iterator[SubRun]:
        """Yield the subruns with numbers from `at_least` to before `below`; see `Numbers.range`."""
        return self.subruns.range(at_least, below, reverse=reverse, limit=limit)

    def __iter__(self) -> Iterator[SubRun]:
        return iter(self.subruns)

    def __getitem__(self, number: int) -> SubRun:
        return self.subruns[number]

    def __contains__(self, number: int) -> bool:
        return number in self.subruns


class Numbers(Generic[N]):
    """The runs of a data set, the subruns of a run, or the events of a subrun, by their numbers, in numeric order.

    Each read sees the latest state; an iteration sees one state, that of its beginning.
    """

    __slots__ = ("_kind", "_make", "_parents", "_prefix", "dataset", "datastore")

    def __init__(
        self,
        dataset: DataSetRef,
        parents: tuple[int, ...],
        make: Callable[[DataSetRef, tuple[int, ...], bytes | None], N],
    ) -> None:
        self.dataset = dataset
        self.datastore = dataset.datastore
        self._parents = parents
        self._make = make
        self._prefix = b""
        self._kind = (Kind.RUN, Kind.SUBRUN, Kind.EVENT)[len(parents)]

    # ---- one of them ---------------------------------------------------------------------------------------------------

    def create(self, number: int, *, into: Writer | None = None) -> N:
        """Create a child unless it exists, and return it. `into` a batch or an asynchronous engine it is written later.

        Its data set must exist, or MissingError is raised; with `into` that is looked at once for each handle. Its run and
        subrun need not: there are no checks between databases. Raises InvalidNumberError before anything is written.
        """
        number = number if type(number) is int else whole_number(number)
        raw_key = self._key(number)
        self.dataset.require(again=into is None)
        (self.datastore if into is None else into).write(self._kind, raw_key, b"", "new")
        return self._make(self.dataset, (*self._parents, number), raw_key)

    def get(self, number: int) -> N | None:
        """Return the child of that number, or None."""
        return self.handle(number) if number in self else None

    @overload
    def __getitem__(self, number: int) -> N: ...
    @overload
    def __getitem__(self, number: slice) -> list[N]: ...
    def __getitem__(self, number: int | slice) -> N | list[N]:
        """Return the child of that number, or those of the numbers from the slice's first to before its last.

        Raises MissingError, which is a KeyError; InvalidInputError for a slice with a step.
        """
        if isinstance(number, slice):
            if number.step is not None:
                raise InvalidInputError(source="slice", problem="numbers are taken from one to another, without a step")
            return list(self.range(number.start or 0, number.stop))
        found = self.get(number)
        if found is None:
            path = " ".join(map(str, (self.dataset.path, *self._parents, number)))
            raise MissingError(table=self._kind.value, key=path)
        return found

    def __contains__(self, number: int) -> bool:
        return self.datastore.raw_value(self._kind, self._key(number)) is not None

    def handle(self, number: int) -> N:
        """Return a handle of a child that may not exist, without asking the store."""
        return self._make(self.dataset, (*self._parents, whole_number(number)), None)

    # ---- in order ------------------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[N]:
        return self.range()

    def range(
        self, at_least: int = 0, below: int | None = None, *, reverse: bool = False, limit: int | None = None
    ) -> Iterator[N]:
        """Yield the children with numbers from `at_least` to before `below`, in numeric order or reversed."""
        make, dataset, parents = self._make, self.dataset, self._parents
        from_bytes = int.from_bytes
        with self.datastore.databases.snapshot(self._kind, self.database) as snapshot:
            for key in snapshot.keys(self.key_range(at_least, below), reverse=reverse, limit=limit):
                yield make(dataset, (*parents, from_bytes(key[-NUMBER_BYTES:], "big")), key)

    def numbers(
        self, at_least: int = 0, below: int | None = None, *, reverse: bool = False, limit: int | None = None
    ) -> Iterator[int]:
        """Yield the numbers alone of what `range` would yield."""
        key_range = self.key_range(at_least, below)
        with self.datastore.databases.snapshot(self._kind, self.database) as snapshot:
            from_bytes = int.from_bytes
            for key in snapshot.keys(key_range, reverse=reverse, limit=limit):
                yield from_bytes(key[-NUMBER_BYTES:], "big")

    def first(self) -> N | None:
        """Return the first child, or None."""
        return next(self.range(limit=1), None)

    def last(self) -> N | None:
        """Return the last child, or None."""
        return next(self.range(reverse=True, limit=1), None)

    def lower_bound(self, number: int) -> N | None:
        """Return the first child whose number is not less, or None."""
        return next(self.range(number, limit=1), None)

    def upper_bound(self, number: int) -> N | None:
        """Return the first child whose number is greater, or None."""
        found = islice((each for each in self.range(number, limit=2) if each.number > number), 1)
        return next(found, None)

    def next(self, child: N) -> N | None:
        """Return the first child whose number is greater than that one's, or None."""
        return self.upper_bound(child.number)

    def prev(self, child: N) -> N | None:
        """Return the last child whose number is less than that one's, or None."""
        return self.before(child.number)

    def before(self, number: int) -> N | None:
        """Return the last child whose number is less, or None."""
        return next(self.range(below=number, reverse=True, limit=1), None)

    def __len__(self) -> int:
        return self.count()

    def __bool__(self) -> bool:
        # Why: a view is one, however many children it has; and to count them takes a read of all.
        return True

    def count(self) -> int:
        """Return how many children there are."""
        with self.datastore.databases.snapshot(self._kind, self.database) as snapshot:
            return snapshot.count(self.key_range())

    # ---- where they are ------------------------------------------------------------------------------------------------

    @property
    def kind(self) -> Kind:
        """What the children are."""
        return self._kind

    @property
    def parents(self) -> tuple[int, ...]:
        """The numbers that all children share."""
        return self._parents

    @property
    def database(self) -> int:
        """The database that has all of them."""
        return self.datastore.databases.place(self._kind, self._key(0))

    def key_range(self, at_least: int = 0, below: int | None = None) -> KeyRange:
        """Return the raw keys of the children with numbers in these bounds."""
        return number_range(self._uuid, self._parents, at_least=at_least, below=below)

    def _key(self, number: int) -> bytes:
        """Return the raw key of the child of that number. Raises InvalidNumberError."""
        if not self._prefix:
            self._prefix = child_prefix(self._uuid, self._parents)
        if type(number) is int and 0 <= number < INVALID_NUMBER:
            return self._prefix + number.to_bytes(NUMBER_BYTES, "big")
        return number_key(self._uuid, (*self._parents, whole_number(number)))

    @property
    def _uuid(self) -> UUID:
        return self.dataset.uuid
