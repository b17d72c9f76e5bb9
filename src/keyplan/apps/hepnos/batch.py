"""Write batches: keys are gathered for each database, and written together in key order, at once or by an executor."""

from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import CancelledError, Executor, Future, ThreadPoolExecutor, wait
from functools import partial
from threading import BoundedSemaphore, Lock
from types import TracebackType
from typing import Final, NamedTuple, Self

from keyplan.apps.hepnos.access import StoreAccess
from keyplan.apps.hepnos.errors import BatchError
from keyplan.apps.hepnos.keys import Kind
from keyplan.apps.hepnos.operations import checked_mode
from keyplan.engine import AscendingKeys, Commit, Guard, KeyAbsent, KeyUnchanged, Put
from keyplan.errors import InvalidInputError, KeyplanError, SplitCommitError
from keyplan.store import Backoff

__all__ = ["MAX_OPERATIONS", "AsyncEngine", "BatchStatistics", "WriteBatch"]

MAX_OPERATIONS: Final = 4_096
"""Why: HEPnOS's own measurements and ours: 128 costs three times as much a key, and beyond this little is won."""

_WAITING_WRITES_MAX: Final = 1_024
"""Why: memory stays bounded when a program writes faster than the disk takes it."""


class BatchStatistics(NamedTuple):
    """What was flushed so far: commits, keys, bytes of keys and of values."""

    flushes: int
    keys: int
    key_bytes: int
    value_bytes: int


class WriteBatch:
    """Gathers writes. A database's share is flushed when it has `max_operations` keys; the rest by `flush`, or the block's end.

    Handles that creating with `into=batch` returns are good at once. Each flush is one durable commit in one database; there is
    no order between databases, and the batch is not atomic, unless it is `atomic`: then it is one commit of one database at
    the end, or nothing. When the block fails, what was not flushed is dropped. For one thread at a time.
    """

    def __init__(
        self,
        datastore: StoreAccess,
        *,
        max_operations: int = MAX_OPERATIONS,
        atomic: bool = False,
        engine: "AsyncEngine | None" = None,
    ) -> None:
        if max_operations < 1 or (atomic and engine is not None):
            problem = "a batch has at least one operation, and is not atomic when it is written asynchronously"
            raise InvalidInputError(source="batch", problem=problem)
        self._datastore = datastore
        self._databases = datastore.databases
        self._places = datastore.databases.places
        self._key_bytes_max = datastore.key_bytes_max
        self._max_operations = max_operations
        self._is_atomic = atomic
        self._engine = engine
        self._shares: dict[tuple[Kind, int, str], dict[bytes, bytes]] = {}
        self._statistics = BatchStatistics(0, 0, 0, 0)

    @property
    def statistics(self) -> BatchStatistics:
        """What was flushed so far, or handed to the asynchronous engine."""
        return self._statistics

    @property
    def pending(self) -> int:
        """How many keys wait."""
        return sum(map(len, self._shares.values()))

    def pending_in(self, kind: str, database: int) -> int:
        """How many keys wait for one database."""
        return sum(
            len(share) for (own, number, _), share in self._shares.items() if (own.value, number) == (kind, database)
        )

    def write(self, kind: Kind, raw_key: bytes, value: bytes, mode: str) -> None:
        """Take a write. Of two writes of one key in one mode, the later counts. Raises EngineLimitError, BatchError."""
        if len(raw_key) > self._key_bytes_max[kind]:
            self._datastore.check_key(kind, raw_key)
        place = (kind, self._places[kind](raw_key), mode)
        share = self._shares.get(place)
        if share is None:
            checked_mode(mode)
            share = self._shares[place] = {}
        share[raw_key] = value
        if len(share) >= self._max_operations and not self._is_atomic:
            self._flush_share(place)

    def flush(self) -> None:
        """Write what waits. Raises BatchError with the keys that failed; the others are written all the same.

        Of an `atomic` batch all waits still when it fails, and may be flushed once more.
        """
        if self._is_atomic:
            self._commit()
            return
        errors: list[BatchError] = []
        for place in list(self._shares):
            try:
                self._flush_share(place)
            except BatchError as error:
                errors.append(error)
        _raise_joined(errors)

    def discard(self) -> None:
        """Drop what waits."""
        self._shares.clear()

    def _flush_share(self, place: tuple[Kind, int, str]) -> None:
        share = self._shares[place]
        ordered = sorted(share)
        keys = AscendingKeys(ordered, key_bytes_max=max(map(len, ordered)))
        values = [share[key] for key in keys]
        kind, database, mode = place
        if self._engine is not None:
            self._engine.put(kind, database, keys, values, mode)
        else:
            try:
                self._databases.put(kind, database, keys, values, mode=mode)
            except KeyplanError as error:
                del self._shares[place]
                raise BatchError(failed=[key.hex() for key in keys], problem=error.summary) from error
        # Why not before: what nobody has taken, as an executor that has ended, and is told by no key, waits still.
        del self._shares[place]
        self._count(keys, values)

    def _count(self, keys: Collection[bytes], values: Collection[bytes]) -> None:
        flushes, count, key_bytes, value_bytes = self._statistics
        self._statistics = BatchStatistics(
            flushes + 1, count + len(keys), key_bytes + sum(map(len, keys)), value_bytes + sum(map(len, values))
        )

    def _commit(self) -> None:
        shares = self._shares
        places = {(kind, database) for kind, database, _ in shares}
        if len(places) > 1:
            first = [next(iter(share)).hex() for share in shares.values()]
            named = sorted(f"{kind.value}.{database}" for kind, database in places)
            raise SplitCommitError(databases=named, raw_keys=first)
        for kind, database in places:
            by_mode = {mode: share for (_, _, mode), share in shares.items()}
            keys = [key for share in by_mode.values() for key in share]
            if len(set(keys)) < len(keys):
                problem = "a key is written in two modes, and one commit has no order between them"
                raise InvalidInputError(source="batch", problem=problem)
            Backoff().until_committed(partial(self._commit_to, kind, database, by_mode))
            self._count(keys, [value for share in by_mode.values() for value in share.values()])
        # Why not before: whoever flushes once more after a failure would be told that all is written.
        self._shares = {}

    def _commit_to(self, kind: Kind, database: int, by_mode: Mapping[str, Mapping[bytes, bytes]]) -> None:
        """Commit to one database, guarded by what was looked up there. Raises CommitConflictError."""
        guards: list[Guard] = []
        puts: dict[bytes, Put] = {}
        with self._databases.snapshot(kind, database) as snapshot:
            for mode, share in by_mode.items():
                for key, value in share.items():
                    if mode != "overwrite":
                        entry = snapshot.get(key)
                        guards.append(KeyAbsent(key) if entry is None else KeyUnchanged(key, entry.mod_revision))
                        if (entry is not None) != (mode == "exist"):
                            continue
                    puts[key] = Put(key, value)
            epoch = snapshot.epoch
        self._databases.rings[kind].commit_in(database, Commit(tuple(guards), tuple(puts.values()), epoch))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.flush()
        else:
            self.discard()


def _raise_joined(errors: Sequence[BatchError]) -> None:
    """Raise one error with the keys of all of them, for what the first was raised for; nothing when there are none."""
    if errors:
        failed = [key for error in errors for key in _failed(error)]
        raise BatchError(failed=failed, problem=errors[0].facts["problem"]) from errors[0].__cause__


def _failed(error: BatchError) -> list[str]:
    keys = error.facts["failed"]
    assert isinstance(keys, list)
    return keys


class AsyncEngine:
    """Writes in the background: `into=engine`, or a batch's `engine=`. Each call returns at once, unless too many wait.

    By threads of its own, or by an executor of threads that is given. Writes of one key are not ordered. `wait` before
    reading what was written.
    """

    def __init__(self, datastore: StoreAccess, *, threads: int = 1, executor: Executor | None = None) -> None:
        self._datastore = datastore
        self._databases = datastore.databases
        self._is_own = executor is None
        self._executor = executor or ThreadPoolExecutor(max(threads, 1), thread_name_prefix="hepnos")
        self._room = BoundedSemaphore(_WAITING_WRITES_MAX)
        self._lock = Lock()
        self._errors: list[BatchError] = []
        self._waiting: set[Future[int]] = set()

    @property
    def errors(self) -> list[BatchError]:
        """What has failed so far, with the keys."""
        with self._lock:
            return list(self._errors)

    def write(self, kind: Kind, raw_key: bytes, value: bytes, mode: str) -> None:
        """Take a write of one key; see `Writer`."""
        self._datastore.check_key(kind, raw_key)
        self.put(kind, self._databases.place(kind, raw_key), [raw_key], [value], checked_mode(mode))

    def put(self, kind: Kind, database: int, keys: Sequence[bytes], values: Sequence[bytes], mode: str) -> None:
        """Take a write of sorted keys into one database."""
        self._room.acquire()
        try:
            future = self._executor.submit(self._databases.put, kind, database, keys, values, mode=mode)
        except BaseException:  # Why: who was refused, as by an executor that has ended, takes no room from the others.
            self._room.release()
            raise
        with self._lock:
            self._waiting.add(future)
        future.add_done_callback(lambda done: self._finished(done, keys))

    def _finished(self, future: "Future[int]", keys: Sequence[bytes]) -> None:
        error = CancelledError() if future.cancelled() else future.exception()
        with self._lock:
            self._waiting.discard(future)
            if error is not None:
                problem = error.summary if isinstance(error, KeyplanError) else type(error).__name__
                failure = BatchError(failed=[key.hex() for key in keys], problem=problem)
                failure.__cause__ = error
                self._errors.append(failure)
        self._room.release()

    def wait(self) -> None:
        """Wait until everything taken so far is written, or has failed; see `errors`."""
        while True:
            with self._lock:
                future = next(iter(self._waiting), None)
            if future is None:
                return
            wait([future])

    def close(self) -> None:
        """Wait, and end the threads. Closing twice is harmless."""
        self.wait()
        if self._is_own:
            self._executor.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        if kind is None:
            _raise_joined(self.errors)
