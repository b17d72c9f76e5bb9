"""Some events of a data set, chosen by position or by a mask, and what they have by name."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from keyplan.apps.hepnos.chosen_events import chosen_events
from keyplan.apps.hepnos.collection import Collection, Collections
from keyplan.apps.hepnos.dataset_ref import DataSetRef
from keyplan.apps.hepnos.numbered import Event

__all__ = ["EventSelection"]


class EventSelection:
    """Some events of a data set, in an order of their own: an array of EVENT_COLUMNS, 24 bytes for each."""

    __slots__ = ("_collections", "_events", "dataset")

    def __init__(self, dataset: DataSetRef, events: npt.NDArray[Any]) -> None:
        self.dataset = dataset
        self._events = events
        self._collections: Collections | None = None

    def to_numpy(self) -> npt.NDArray[Any]:
        """Return the events as an array of EVENT_COLUMNS."""
        return self._events

    def collections(self, schema: str | None = None) -> Collections:
        """Return what the events have, by name: what the tables of the data set are by the rules of a schema.

        Which schema is found from the columns that there are, unless one is named: NanoAOD, PHYSLITE, edm4hep, Delphes,
        TreeMaker; "plain" is none of them: each table is a collection. Raises InvalidInputError for another name.
        """
        if schema is not None:
            return Collections(self.dataset, self._events, schema)
        if self._collections is None:
            self._collections = Collections(self.dataset, self._events)
        return self._collections

    def __getitem__(self, key: Any) -> Any:
        """Return the collection of a name, the event at a position, or those that a slice, a mask or positions choose.

        Raises MissingError for a name, IndexError for a position that there is not.
        """
        if isinstance(key, str):
            found: Collection = self.collections()[key]
            return found
        if isinstance(key, int | np.integer) and not isinstance(key, bool):
            run, subrun, event = self._events[int(key)].tolist()
            return Event(self.dataset, (run, subrun, event))
        return EventSelection(self.dataset, chosen_events(self._events, key))

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and key in self.collections()

    def __len__(self) -> int:
        return len(self._events)

    def __iter__(self) -> Iterator[Event]:
        return (Event(self.dataset, tuple(numbers)) for numbers in self._events.tolist())

    def __repr__(self) -> str:
        return f"<{len(self)} events of {self.dataset.path}>"
