r"""The keys of HEPnOS, a layout for each kind of database: as its document has them, and as its C++ program writes them.

    data set   [1] aaa/bbb                                       01 61 61 61 2f 62 62 62
    run        UUID run                                          24 bytes
    subrun     UUID run subrun                                   32 bytes
    event      UUID run subrun event                             40 bytes
    product    UUID run subrun event label # type                41 bytes and more

Each kind has databases of its own, therefore layouts of its own: in one database a run's key of 24 bytes would be the name of
a data set as well. Numbers are 64-bit big-endian; numbers after # in the notes are the rulings in this folder's README.
"""

from typing import Annotated, Final, NamedTuple, Self
from uuid import UUID

from keyplan.codec import U64, SlashPath, Text, TextTail
from keyplan.layout import Layout, Table, Waiver

__all__ = [
    "CPP_LAYOUTS",
    "INVALID_NUMBER",
    "LAYOUTS",
    "DataSetKey",
    "EventKey",
    "HEPnOSCppDataSets",
    "HEPnOSCppEvents",
    "HEPnOSCppProducts",
    "HEPnOSCppRuns",
    "HEPnOSCppSubRuns",
    "HEPnOSDataSets",
    "HEPnOSEvents",
    "HEPnOSProducts",
    "HEPnOSRuns",
    "HEPnOSSubRuns",
    "ProductKey",
    "RunKey",
    "SubRunKey",
]

INVALID_NUMBER: Final = 2**64 - 1
"""InvalidRunNumber, InvalidSubRunNumber, InvalidEventNumber: in a product's key, a number that its container lacks (#8)."""

# #8: the invalid number is the number of nothing, so it is no number of a container.
Number = Annotated[int, U64(most=INVALID_NUMBER - 1)]

ProductNumber = Annotated[int, U64()]

# #9, #10: a label may be empty and holds no "#", so that the first "#" ends it; a type may hold more of them.
LABEL_BYTES_MAX: Final = 4096
Label = Annotated[str, Text(exclude="#", bytes_max=LABEL_BYTES_MAX, empty=True)]


UNBOUNDED: Final = (
    "the document knows no bound for names; a key over the engine's limit is refused before anything is written"
)


class DataSetKey(NamedTuple):
    """A data set: the full name of the one that it lies in, "" at the top, and its own name."""

    parent: str
    name: Annotated[str, SlashPath(components_max=1)]

    @classmethod
    def of_path(cls, path: str) -> Self:
        """Return the key of a data set by its full name, "aaa/bbb/ccc"."""
        parent, _, name = path.rpartition("/")
        return cls(parent, name)

    @property
    def path(self) -> str:
        """The full name."""
        return f"{self.parent}/{self.name}" if self.parent else self.name


class RunKey(NamedTuple):
    """A run of a data set."""

    dataset: UUID
    run: Number


class SubRunKey(NamedTuple):
    """A subrun of a run."""

    dataset: UUID
    run: Number
    subrun: Number


class EventKey(NamedTuple):
    """An event of a subrun."""

    dataset: UUID
    run: Number
    subrun: Number
    event: Number


class ProductKey(NamedTuple):
    """A product of an event; of a subrun, run or data set when the numbers that it lacks are INVALID_NUMBER."""

    dataset: UUID
    run: ProductNumber
    subrun: ProductNumber
    event: ProductNumber
    label: Label
    type: Annotated[str, TextTail()]


class HEPnOSDataSets(Layout):
    """The databases of data sets: the level in a byte, then the full name; the value is the data set's UUID."""

    datasets = Table(
        b"{parent.level:u8}{parent:directory}{name}",
        key=DataSetKey,
        value=UUID,
        place=("parent.level", "parent", "name"),
        note="DataSet databases; placed by the whole key (#4), listed by level and full name with a slash (#3)",
    )

    waivers = (
        Waiver(
            "L7",
            "datasets.parent",
            "the document sorts by bytes: within a level, children of 'a!' precede those of 'a'",
        ),
        Waiver("L10", "datasets", UNBOUNDED),
    )


class HEPnOSRuns(Layout):
    """The databases of runs."""

    runs = Table(
        b"{dataset}{run}", key=RunKey, value=None, place="dataset", note="Run databases: 24 bytes, no value (#13)"
    )


class HEPnOSSubRuns(Layout):
    """The databases of subruns."""

    subruns = Table(
        b"{dataset}{run}{subrun}",
        key=SubRunKey,
        value=None,
        place=("dataset", "run"),
        note="SubRun databases: 32 bytes (#6), no value",
    )


class HEPnOSEvents(Layout):
    """The databases of events."""

    events = Table(
        b"{dataset}{run}{subrun}{event}",
        key=EventKey,
        value=None,
        place=("dataset", "run", "subrun"),
        note="Event databases: 40 bytes, no value",
    )


class HEPnOSProducts(Layout):
    """The databases of products."""

    products = Table(
        b"{dataset}{run}{subrun}{event}{label}#{type}",
        key=ProductKey,
        value=bytes,
        place=("dataset", "run", "subrun"),
        note="Product databases: [item][label]#[type], placed like the events of the same subrun (#21)",
    )

    waivers = (Waiver("L10", "products", UNBOUNDED),)


LAYOUTS: Final[tuple[type[Layout], ...]] = (HEPnOSDataSets, HEPnOSRuns, HEPnOSSubRuns, HEPnOSEvents, HEPnOSProducts)
"""One layout for each kind of database, in the document's order."""


# ---- the C++ program -------------------------------------------------------------------------------------------------------


class HEPnOSCppDataSets(Layout):
    """Data sets as the C++ program writes them: levels from 1, and a slash before names that are not at the top."""

    datasets = Table(
        b"{parent.depth:u8}{parent:directory(leading=true)}{name}",
        key=DataSetKey,
        value=UUID,
        place="parent",
        note="2.2: 01 aaa, 02 /aaa/bbb; placed by the parent's name (#4)",
    )

    waivers = (
        Waiver(
            "L7", "datasets.parent", "the program sorts by bytes: within a level, children of 'a!' precede those of 'a'"
        ),
        Waiver("L10", "datasets", UNBOUNDED),
    )


class HEPnOSCppRuns(Layout):
    """Runs as the C++ program writes them: 40 bytes like an event's key, with invalid numbers."""

    runs = Table(b"{dataset}{run}" + b"\xff" * 16, key=RunKey, value=None, place="dataset", note="2.2: 40 bytes (#6)")


class HEPnOSCppSubRuns(Layout):
    """Subruns as the C++ program writes them: 40 bytes like an event's key, with an invalid number."""

    subruns = Table(
        b"{dataset}{run}{subrun}" + b"\xff" * 8,
        key=SubRunKey,
        value=None,
        place=("dataset", "run"),
        note="2.2: 40 bytes (#6)",
    )


class HEPnOSCppEvents(HEPnOSEvents):
    """Events as the C++ program writes them: the document's keys."""


class HEPnOSCppProducts(HEPnOSProducts):
    """Products as the C++ program writes them: the document's keys."""


CPP_LAYOUTS: Final[tuple[type[Layout], ...]] = (
    HEPnOSCppDataSets,
    HEPnOSCppRuns,
    HEPnOSCppSubRuns,
    HEPnOSCppEvents,
    HEPnOSCppProducts,
)
"""One layout for each kind of database of the C++ program, in the document's order."""
