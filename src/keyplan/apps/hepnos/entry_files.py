"""Subruns whose events are the entries of one file: which file that is, so that nothing of another joins them unsaid.

Entry 0 of two files is event 0 of a subrun, and they need not have anything to do with each other. A file whose events are
numbered by entry is therefore noted with its subruns, in a JSON product `numbered-by-entry`, before their events are made.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cached_property
from hashlib import blake2b
from os import SEEK_END
from typing import Final, NoReturn

import msgspec
import numpy as np
from msgspec import structs

from keyplan.apps.hepnos.bulk import create_items, sorted_rows
from keyplan.apps.hepnos.columns import Columns, key_matrix, raw_keys
from keyplan.apps.hepnos.databases import Databases
from keyplan.apps.hepnos.dataset_ref import DataSetRef
from keyplan.apps.hepnos.keys import ITEM_BYTES, Kind, product_suffix
from keyplan.apps.hepnos.layout import INVALID_NUMBER
from keyplan.apps.hepnos.numbered import SubRun
from keyplan.engine import KeyRange
from keyplan.errors import CommitConflictError, CorruptionError, InvalidInputError

__all__ = ["EntryFile", "EntrySubruns", "entry_file"]

_LABEL: Final = "numbered-by-entry"
_SUBRUN_BYTES: Final = ITEM_BYTES - 8
_LOOKED_AT_BYTES: Final = 64 << 10
"""Of a file's begin and of its end. Why these: ROOT's UUID stands in the first, what Parquet has of all columns in the last."""
_PIECES: Final = 64
_PIECE_BYTES: Final = 4 << 10
"""What is looked at between, evenly. Why: Parquet has no UUID, and files of a size may begin with constant columns and end
without statistics. Why not all: whoever loads one column of many would wait until all are read."""


class EntryFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file, by its name for people and by what tells it from others wherever it lies."""

    name: str
    digest: str
    is_tentative: bool = False
    """True in a note until its subrun was seen without events behind it: who makes events from then on finds the note."""


def entry_file(path: str, part: str = "") -> EntryFile:
    """Return what a file, or a tree of it, is known by: its size, the bytes at its begin and at its end, and pieces between.

    A copy that differs in a few bytes is taken for the same file, unless it has a UUID of its own, as ROOT's have.
    """
    digest = blake2b(part.encode(), digest_size=16)
    try:
        with open(path, "rb") as file:
            size = file.seek(0, SEEK_END)
            digest.update(size.to_bytes(8))
            looked_at = [(0, _LOOKED_AT_BYTES), (max(0, size - _LOOKED_AT_BYTES), _LOOKED_AT_BYTES)]
            between = [(size * piece // (_PIECES + 1), _PIECE_BYTES) for piece in range(1, _PIECES + 1)]
            for begin, length in (*looked_at, *between):
                file.seek(begin)
                digest.update(file.read(length))
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
            self._note(structs.replace(self._file, is_tentative=not same_events), same_events=same_events)
            if not same_events:
                self.refuse_others()  # Why again: another may have been first.
                self._settle(self._file)

    def _note(self, file: EntryFile, *, same_events: bool) -> None:
        fresh = [key for key, noted in self._noted().items() if noted is None]
        taken = self._with_events(fresh)
        if taken:  # Why again: another loader of the file may have begun, and its note is older than its events.
            taken &= {key for key, noted in self._noted().items() if noted is None}
        if taken and not same_events:
            self._refuse_events(min(taken))
        fresh = [key for key in fresh if key not in taken]
        if fresh:
            create_items(self._dataset, *zip(*[self._keys[key] for key in fresh], strict=True))
        self._put(fresh, file, mode="new")

    def _settle(self, file: EntryFile) -> None:
        """Let notes last, but for those with events behind them, whose loader may have looked before there was a note.

        Raises InvalidInputError unless all last. Of two loaders of one file either may be first, with either.
        """
        tentative = {key: noted for key, noted in self._noted().items() if noted is not None and noted.is_tentative}
        taken = self._with_events(tentative)
        for key in taken:
            # Why suppressed: another loader has settled or removed it since. What stands there is read again below.
            with suppress(CommitConflictError):
                self._databases.remove(Kind.PRODUCT, key, value=msgspec.json.encode(tentative[key]))
        self._put(sorted(tentative.keys() - taken), file, mode="exist")
        for key, noted in self._noted().items():
            if noted is None or noted.is_tentative:
                self._refuse_events(key)

    @property
    def _databases(self) -> Databases:
        return self._dataset.datastore.databases

    def _put(self, keys: Sequence[bytes], file: EntryFile, *, mode: str) -> None:
        value = msgspec.json.encode(file)
        for database, own in self._databases.shares(Kind.PRODUCT, keys).items():
            self._databases.put(Kind.PRODUCT, database, own, [value] * len(own), mode=mode)

    def _noted(self) -> dict[bytes, EntryFile | None]:
        found: dict[bytes, EntryFile | None] = {}
        for database, own in self._databases.shares(Kind.PRODUCT, self._keys).items():
            with self._databases.snapshot(Kind.PRODUCT, database) as snapshot:
                found.update(zip(own, map(self._read, own, snapshot.values(own)), strict=True))
        return found

    def _read(self, key: bytes, value: bytes | None) -> EntryFile | None:
        try:
            return None if value is None else msgspec.json.decode(value, type=EntryFile)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            product = f"{SubRun(self._dataset, self._keys[key]).path} {_LABEL}"
            raise CorruptionError(problem="the note of a file cannot be read", product=product) from error

    def _with_events(self, keys: Iterable[bytes]) -> set[bytes]:
        """Return the notes whose subruns have events. One look, unless events stand in or among them: each is another."""
        found = set[bytes]()
        for database, own in self._databases.shares(Kind.EVENT, sorted(keys)).items():
            notes = {key[:_SUBRUN_BYTES]: key for key in own}
            subruns, at = list(notes), 0
            with self._databases.snapshot(Kind.EVENT, database) as snapshot:
                while at < len(subruns):
                    begin, end = subruns[at], KeyRange.of_prefix(subruns[-1]).end
                    first = next(iter(snapshot.keys(KeyRange(begin, end), limit=1)), None)
                    if first is None:
                        break
                    if (subrun := first[:_SUBRUN_BYTES]) in notes:
                        found.add(notes[subrun])
                    at = bisect_right(subruns, subrun)
        return found

    def _refuse_events(self, key: bytes) -> NoReturn:
        run, subrun = self._keys[key]
        self._refuse(f"subrun {run} {subrun} has events that are not numbered by entry")

    def _refuse(self, told: str) -> NoReturn:
        other = "load it into another data set" if self._file is None else "give this file another subrun, --subrun"
        problem = f"{told}; {other}, or say that its events are these, --same-events"
        raise InvalidInputError(source=self._source, problem=problem)
