"""Subruns whose events are the entries of one file: which file that is, so that nothing of another joins them unsaid.

Entry 0 of two files is event 0 of a subrun, and they need not have anything to do with each other. A file whose events are
numbered by entry is therefore noted with its subruns, in a JSON product `numbered-by-entry`, before their events are made.
"""

from functools import cached_property
from hashlib import blake2b
from os import SEEK_END
from typing import Final, NoReturn

import msgspec
import numpy as np

from keyplan.apps.hepnos.bulk import create_items, sorted_rows
from keyplan.apps.hepnos.columns import Columns, key_matrix, raw_keys
from keyplan.apps.hepnos.dataset_ref import DataSetRef
from keyplan.apps.hepnos.keys import Kind, product_suffix
from keyplan.apps.hepnos.layout import INVALID_NUMBER
from keyplan.apps.hepnos.numbered import SubRun
from keyplan.errors import CorruptionError, InvalidInputError

__all__ = ["EntryFile", "EntrySubruns", "entry_file"]

_LABEL: Final = "numbered-by-entry"
_LOOKED_AT_BYTES: Final = 64 << 10
"""Of a file's begin and of its end. Why these: ROOT's UUID stands in the first, what Parquet has of all columns in the last."""


class EntryFile(msgspec.Struct, frozen=True):
    """A file, by its name for people and by what tells it from others wherever it lies."""

    name: str
    digest: str


def entry_file(path: str, part: str = "") -> EntryFile:
    """Return what a file, or a tree of it, is known by: its size, and the bytes at its begin and at its end."""
    digest = blake2b(part.encode(), digest_size=16)
    try:
        with open(path, "rb") as file:
            size = file.seek(0, SEEK_END)
            digest.update(size.to_bytes(8))
            for begin in (0, max(0, size - _LOOKED_AT_BYTES)):
                file.seek(begin)
                digest.update(file.read(_LOOKED_AT_BYTES))
    except OSError:
        digest.update(path.encode(errors="replace"))
    return EntryFile(f"{path}:{part}" if part else path, digest.hexdigest())


class EntrySubruns:
    """The subruns of a load's rows. `file` is the one that it loads, None where that numbers events itself."""

    def __init__(self, dataset: DataSetRef, source: str, file: EntryFile | None, columns: Columns) -> None:
        self._dataset = dataset
        self._source = source
        self._file = file
        # Why a look at neighbours first: rows of a subrun stand together as a rule, and sorting all costs more than all else.
        is_first = np.ones(len(columns[0]), np.bool_)
        is_first[1:] = np.logical_or.reduce([column[1:] != column[:-1] for column in columns])
        self._columns = [column[is_first] for column in columns]

    @cached_property
    def _keys(self) -> dict[bytes, tuple[int, int]]:
        """The subruns by the raw keys of their notes, in order."""
        ordered, starts, _ = sorted_rows(self._columns)
        run, subrun = (column[starts] for column in ordered)
        nothing = np.full(len(starts), INVALID_NUMBER, np.uint64)
        items = raw_keys(key_matrix(self._dataset.uuid, [run, subrun, nothing]))
        suffix = product_suffix(_LABEL, "json")
        numbers = zip(run.tolist(), subrun.tolist(), strict=True)
        return dict(zip([item + suffix for item in items], numbers, strict=True))

    def refuse_others(self) -> None:
        """Raise InvalidInputError when the events of a subrun are the entries of another file.

        A loader asks before it writes, and again behind it: of two that meet in a subrun at least one sees the other.
        """
        for key, noted in self._noted().items():
            if noted is not None and (self._file is None or noted.digest != self._file.digest):
                run, subrun = self._keys[key]
                self._refuse(f"the events of subrun {run} {subrun} are the entries of {noted.name}")

    def begin(self, *, same_events: bool) -> None:
        """Refuse what other files have, and note a file that numbers events by entry; with `same_events` nothing is refused.

        Raises InvalidInputError, before anything is written, also for a subrun that has events and no note.
        """
        if not same_events:
            self.refuse_others()
        if self._file is not None:
            self._note(self._file, same_events=same_events)
            if not same_events:
                self.refuse_others()  # Why again: another may have been first.

    def _note(self, file: EntryFile, *, same_events: bool) -> None:
        fresh = [key for key, noted in self._noted().items() if noted is None]
        taken = {key for key in fresh if self._has_events(*self._keys[key])}
        if taken and not same_events:
            run, subrun = self._keys[min(taken)]
            self._refuse(f"subrun {run} {subrun} has events that are not numbered by entry")
        fresh = [key for key in fresh if key not in taken]
        if fresh:
            create_items(self._dataset, *zip(*[self._keys[key] for key in fresh], strict=True))
        databases, value = self._dataset.datastore.databases, msgspec.json.encode(file)
        for database, own in databases.shares(Kind.PRODUCT, fresh).items():
            databases.put(Kind.PRODUCT, database, own, [value] * len(own), mode="new")

    def _noted(self) -> dict[bytes, EntryFile | None]:
        databases = self._dataset.datastore.databases
        found: dict[bytes, EntryFile | None] = {}
        for database, own in databases.shares(Kind.PRODUCT, self._keys).items():
            with databases.snapshot(Kind.PRODUCT, database) as snapshot:
                found.update(zip(own, map(self._read, own, snapshot.values(own)), strict=True))
        return found

    def _read(self, key: bytes, value: bytes | None) -> EntryFile | None:
        try:
            return None if value is None else msgspec.json.decode(value, type=EntryFile)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            product = f"{SubRun(self._dataset, self._keys[key]).path} {_LABEL}"
            raise CorruptionError(problem="the note of a file cannot be read", product=product) from error

    def _has_events(self, run: int, subrun: int) -> bool:
        return SubRun(self._dataset, (run, subrun)).events.first() is not None

    def _refuse(self, told: str) -> NoReturn:
        other = "load it into another data set" if self._file is None else "give this file another subrun, --subrun"
        problem = f"{told}; {other}, or say that its events are these, --same-events"
        raise InvalidInputError(source=self._source, problem=problem)
