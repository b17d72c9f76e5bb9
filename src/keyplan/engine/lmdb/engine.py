"""The LMDB engine: the contract's eight methods over one environment."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Final, overload

import lmdb

from keyplan.engine.admission import admit_commit, admit_ttl, admitted_batches, refuse_writing, require
from keyplan.engine.fences import Fences, FencesHolder
from keyplan.engine.interface import (
    NO_LEASE,
    Commit,
    Engine,
    Guard,
    KeyRange,
    Lease,
    Snapshot,
    Watch,
)
from keyplan.engine.lineage import Lineage
from keyplan.engine.lmdb.foreign import ForeignLmdb
from keyplan.engine.lmdb.format import HEADER
from keyplan.engine.lmdb.lease import LmdbLease
from keyplan.engine.lmdb.options import (
    HISTORY_REVISIONS_DEFAULT,
    LMDB_DEFAULTS,
    TURN_SECONDS_DEFAULT,
    Durability,
    LmdbOptions,
    profile_of,
)
from keyplan.engine.lmdb.sharing import acquire, release
from keyplan.engine.lmdb.snapshot import HistorySnapshot, RawSnapshot, have_values, unusable
from keyplan.engine.lmdb.watch import LmdbWatch
from keyplan.engine.lmdb.write import WriteTransaction
from keyplan.engine.profile import Capability, Profile
from keyplan.engine.sorted_keys import check_sorted
from keyplan.engine.url import EngineUrl
from keyplan.errors import EngineUnavailableError
from keyplan.files import FILE_MODE

__all__ = ["LmdbEngine", "mode_of", "open_lmdb"]


_DURABILITIES: Final = tuple(mode.value for mode in Durability)

_TRIMMED_PARTS_MAX: Final = 1_000
"""Why: compacting by hand holds the write lock for a few milliseconds at a time."""


class LmdbEngine(Engine):
    """A folder with an LMDB store, shared by threads and processes. Engines of one process on one path share its files.

    A process that was forked must open the store again: the parent's engines refuse to work in it.
    """

    def __init__(self, path: str | Path, options: LmdbOptions = LMDB_DEFAULTS) -> None:
        self._is_closed = True  # until the files are open
        self._environment = acquire(Path(path), options)
        self._options = options
        self._profile = profile_of(options, is_locked=self._environment.is_locked)
        self._reader = HistorySnapshot if options.has_history else RawSnapshot
        self._header_bytes = HEADER.size if options.has_history else 0
        self._monotonic = options.clock.monotonic
        self._is_closed = False

    @property
    def profile(self) -> Profile:
        return self._profile

    def lineage(self) -> Lineage:
        self.check_open()
        return self._environment.lineage

    def check_open(self) -> None:
        """Raise EngineUnavailableError after `close`, and in a forked process."""
        if self._is_closed or self._environment.problem is not None:
            raise self._unavailable()

    def snapshot(self) -> Snapshot:
        # Why: the shortest way that keeps the contract; a list or a get begins here, and its speed is felt.
        environment = self._environment
        if self._is_closed or environment.problem is not None:
            raise self._unavailable()
        if self._monotonic() >= environment.look_at:
            environment.look_at_leases()
        return self._reader(environment.begin_read(), environment.databases, environment.live, environment.held)

    def fenced_snapshot(self, prefix: bytes, fences: Fences) -> Snapshot | None:
        environment = self._environment
        if self._is_closed or environment.problem is not None:
            raise self._unavailable()
        if self._monotonic() >= environment.look_at:
            environment.look_at_leases()
        transaction, held = environment.begin_read(), environment.held
        snapshot = self._reader(transaction, environment.databases, environment.live, held, prefix)
        try:
            if have_values(transaction, fences, self._header_bytes, held):
                return snapshot
        except BaseException:
            snapshot.close()
            raise
        snapshot.close()
        return None

    def value(self, key: bytes) -> bytes | None:
        environment = self._environment
        if self._is_closed or environment.problem is not None:
            raise self._unavailable()
        if self._monotonic() >= environment.look_at:
            environment.look_at_leases()
        # Why without a snapshot: making one costs as much as reading a small value.
        transaction = environment.begin_read()
        try:
            stored = transaction.get(key)
        except lmdb.BadValsizeError:
            return None  # a key that is empty or too long is never stored
        except lmdb.Error as error:
            raise unusable(error) from error
        finally:
            transaction.abort()
            environment.live.discard(id(transaction))
        return None if stored is None else stored[self._header_bytes :]

    def fenced_value(self, key: bytes, fences: Fences) -> tuple[bool, bytes | None]:
        environment = self._environment
        if self._is_closed or environment.problem is not None:
            raise self._unavailable()
        if self._monotonic() >= environment.look_at:
            environment.look_at_leases()
        transaction = environment.begin_read()  # Why without a snapshot: as in `value`.
        try:
            seen = environment.held.get(id(fences))
            if (seen is None or seen[0] != transaction.id() or seen[1] is not fences) and not have_values(
                transaction, fences, self._header_bytes, environment.held
            ):
                return False, None
            stored = transaction.get(key)
        except lmdb.BadValsizeError:
            return True, None  # a key that is empty or too long is never stored
        except lmdb.Error as error:
            raise unusable(error) from error
        finally:
            transaction.abort()
            environment.live.discard(id(transaction))
        return True, None if stored is None else stored[self._header_bytes :]

    def fenced_reader(
        self, prefix: bytes, holder: FencesHolder, otherwise: Callable[[bytes], bytes | None]
    ) -> Callable[[bytes], bytes | None]:
        environment, header_bytes, monotonic = self._environment, self._header_bytes, self._monotonic
        add, discard = environment.live.add, environment.live.discard
        seen: tuple[int, object, object] = (
            -1,
            None,
            None,
        )  # a transaction's number, what held after it, and in which files

        def value(key: bytes) -> bytes | None:
            # Why written out once more: the path of every single read in a key space, and a tenth of it is a frame.
            nonlocal seen
            if self._is_closed or environment.problem is not None:
                raise self._unavailable()
            if monotonic() >= environment.look_at:
                environment.look_at_leases()
            try:
                transaction = environment.lmdb.begin(environment.databases.data)
                add(id(transaction))
            except lmdb.Error:
                transaction = environment.begin_read()
            try:
                fences, held, number = holder.fences, environment.held, transaction.id()
                if seen[0] != number or seen[1] is not fences or seen[2] is not held:
                    if not have_values(transaction, fences, header_bytes, held):
                        return otherwise(key)
                    seen = (number, fences, held)
                stored = transaction.get(prefix + key)
            except lmdb.BadValsizeError:
                return None  # a key that is empty or too long is never stored
            except lmdb.Error as error:
                raise unusable(error) from error
            finally:
                transaction.abort()
                discard(id(transaction))
            return None if stored is None else stored[header_bytes:]

        return value

    def commit(self, commit: Commit) -> int:
        if self._is_closed or self._environment.problem is not None or self._options.is_readonly:
            self._check_writable()
        admit_commit(self._profile, commit)
        return self._environment.write(partial(WriteTransaction.commit, commit=commit))

    def watch(self, key_range: KeyRange, *, after: int) -> Watch:
        self.check_open()
        require(self._profile, Capability.WATCH)
        return LmdbWatch(self._environment, key_range, after=after, check_open=self.check_open)

    def lease(self, ttl_seconds: float, *, resume: int = NO_LEASE) -> Lease:
        self.check_open()
        admit_ttl(self._profile, ttl_seconds)
        if resume != NO_LEASE:
            # Why also where nothing can be written: what is left of a lease is worth knowing.
            return self._held(resume, self._environment.living_lease(resume).ttl_seconds)
        self._check_writable()
        return self._held(self._environment.write(lambda target: target.grant_lease(ttl_seconds)), ttl_seconds)

    def _held(self, lease: int, ttl_seconds: float) -> LmdbLease:
        return LmdbLease(
            self._environment,
            lease,
            ttl_seconds=ttl_seconds,
            check_open=self.check_open,
            check_writable=self._check_writable,
        )

    def compact(self, revision: int) -> None:
        self._check_writable()
        require(self._profile, Capability.REVISIONS)
        self._environment.write(lambda target: target.compact(revision))
        while self._environment.write(lambda target: target.trim_log(parts_max=_TRIMMED_PARTS_MAX)):
            pass

    def load(self, entries: Iterable[tuple[bytes, bytes]]) -> int:
        self._check_writable()
        loaded = 0
        for batch in admitted_batches(entries, self._profile):
            self._environment.write(partial(WriteTransaction.load, pairs=batch))
            loaded += len(batch)
        return loaded

    def put_sorted(
        self,
        keys: Sequence[bytes],
        values: Sequence[bytes] | None = None,
        *,
        guards: Sequence[Guard] = (),
        overwrite: bool = True,
    ) -> int:
        if self._options.has_history:
            return super().put_sorted(keys, values, guards=guards, overwrite=overwrite)
        self._check_writable()
        check_sorted(keys, values, self._profile)
        if not keys:
            return 0
        admit_commit(self._profile, Commit(tuple(guards)))
        pairs = _Pairs(keys, values)
        work = partial(WriteTransaction.put_sorted, pairs=pairs, guards=tuple(guards), overwrite=overwrite)
        return self._environment.write(work)

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            release(self._environment)

    def _check_writable(self) -> None:
        self.check_open()
        if self._options.is_readonly:
            raise refuse_writing(self._profile)

    def _unavailable(self) -> EngineUnavailableError:
        problem = self._environment.problem or "the engine was closed"
        return EngineUnavailableError(engine=self._profile.name, problem=problem)


class _Pairs(Sequence[tuple[bytes, bytes]]):
    """Keys with their values, paired as they are asked for, every time anew: a failed batch is carried out again.

    Why not a list: LMDB lets go of each pair before it takes the next, and `zip` then uses one tuple for all of them.
    """

    def __init__(self, keys: Sequence[bytes], values: Sequence[bytes] | None) -> None:
        self._keys = keys
        self._values = values

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        return zip(self._keys, repeat(b"") if self._values is None else self._values)  # noqa: B905  # Why: they were counted.

    @overload
    def __getitem__(self, at: int) -> tuple[bytes, bytes]: ...
    @overload
    def __getitem__(self, at: slice) -> list[tuple[bytes, bytes]]: ...
    def __getitem__(self, at: int | slice) -> tuple[bytes, bytes] | list[tuple[bytes, bytes]]:
        if isinstance(at, slice):
            return list(self)[at]
        return self._keys[at], b"" if self._values is None else self._values[at]


def _is_spellable(path: str) -> bool:
    """Tell whether the system can be asked for such a path at all."""
    try:
        return b"\x00" not in os.fsencode(path)
    except UnicodeEncodeError:
        return False


def mode_of(url: EngineUrl) -> int:
    """Return the mode that the files of a new store get. Whoever may write them must read them, and the owner may do both."""
    text = url.options.get("mode")
    if text is None:
        return FILE_MODE
    mode = int(text, 8) if text.isascii() and text.isdigit() and set(text) <= set("01234567") and len(text) <= 4 else 0
    if mode & ~0o666 or mode & FILE_MODE != FILE_MODE or (mode & 0o222) << 1 & ~mode:
        raise url.refuse("mode must be one of 0600, 0640, 0660, 0644, 0664, 0666: who else may read or write the files")
    return mode


def open_lmdb(url: EngineUrl) -> Engine:
    """Open `lmdb:PATH`; options: `history` (off, or a number), `durability`, `readonly`, `create`, `mode`, `turn_seconds`.

    With `database`, a database of another program's file for reading: the one of that name, or without one the main database.
    """
    url.check_options({"create", "database", "durability", "history", "mode", "readonly", "turn_seconds"})
    if url.address.startswith("//") and not url.address.startswith("///"):
        raise url.refuse("lmdb: takes a path, not a host: lmdb:./folder or lmdb:/folder")
    path = url.address.removeprefix("//")
    if not path:
        raise url.refuse("lmdb: needs the path of a folder")
    if not _is_spellable(path):
        raise url.refuse("the path holds a character that no file name can have")
    if "database" in url.options:
        return ForeignLmdb(path, url.options["database"])
    is_off = url.options.get("history") == "off"
    return LmdbEngine(
        path,
        LmdbOptions(
            history_revisions_max=0 if is_off else url.number("history", default=HISTORY_REVISIONS_DEFAULT, minimum=1),
            durability=Durability(url.choice("durability", _DURABILITIES, default="full")),
            is_readonly=url.flag("readonly", default=False),
            create=url.flag("create", default=True),
            turn_seconds=url.number("turn_seconds", default=int(TURN_SECONDS_DEFAULT), minimum=0),
            mode=mode_of(url) if "mode" in url.options else FILE_MODE,
        ),
    )
