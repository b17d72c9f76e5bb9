"""A job: long work in a store that one process holds, by a record there. Every commit of the work is guarded by the record.

So who takes the work over writes the record anew, and the earlier holder changes nothing any more; a cursor that stands in the
record moves in the commit of the work that it tells of; and a process that dies leaves a record that anybody goes on from.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple, Protocol, Self, TypeVar

from msgspec import structs

from keyplan.codec import ValueForm
from keyplan.engine import (
    SYSTEM_CLOCK,
    Clock,
    Commit,
    Delete,
    Engine,
    Entry,
    Guard,
    KeyAbsent,
    KeyUnchanged,
    Mutation,
    Put,
    Snapshot,
    utc_time,
)
from keyplan.errors import CommitConflictError, CommitOutcomeUnknownError, CorruptionError, KeyplanError
from keyplan.jobs.pace import UNPACED, UNSTOPPED, Pace, StopCheck
from keyplan.jobs.record import JobRecord

__all__ = ["JOB_BYTES_MAX", "NO_CONDITIONS", "Conditions", "FixedConditions", "Held", "Job", "Seen", "as_read", "look"]

JOB_BYTES_MAX: Final = 2_000
"""What a commit of a job needs beside the work: the guard of its record, of at most 511 bytes, one more, and the record, whose
command is bounded, written anew."""

_TRIES_MAX: Final = 5
"""Why: an answer that is lost again and again, or conditions that move faster than they are looked at, is told."""

_TOUCH_SECONDS: Final = 5.0
"""Why: who looks at a job wants to know that it moves; more often would cost its commits."""

R = TypeVar("R", bound=JobRecord)


class Held(NamedTuple):
    """A guard that many commits rest on, and the epoch in which it holds."""

    guard: Guard
    epoch: str


def as_read(raw_key: bytes, entry: Entry | None) -> Guard:
    """Return the guard that a key still is as it was read."""
    return KeyAbsent(raw_key) if entry is None else KeyUnchanged(raw_key, entry.mod_revision)


@dataclass(frozen=True, slots=True)
class Seen(Generic[R]):
    """The record of a job as it was read: its entry, and the epoch; without an entry there was none."""

    key: bytes
    entry: Entry | None
    record: R | None
    epoch: str

    @property
    def held(self) -> Held:
        """That the record is as it was read."""
        return Held(as_read(self.key, self.entry), self.epoch)


def look(snapshot: Snapshot, key: bytes, form: ValueForm[Any]) -> "Seen[Any]":
    """Return the record that stands at a key. Raises CorruptionError."""
    entry = snapshot.get(key)
    try:
        return Seen(key, entry, None if entry is None else form.decode(entry.value), snapshot.epoch)
    except CorruptionError as error:
        raise CorruptionError(**{**error.facts, "raw_key": key.hex()}) from error


class Conditions(Protocol):
    """What else has to hold in every commit of a job."""

    def guards(self) -> tuple[Guard, ...]:
        """Return the guards, as of the last look."""
        ...

    def look_again(self) -> bool:
        """Tell whether the guards have moved since, so that a commit that they refused is made again."""
        ...


class FixedConditions(NamedTuple):
    """Guards that are asked for at each commit, and mean the end of the work when they do not hold."""

    asked: Callable[[], tuple[Guard, ...]] = tuple

    def guards(self) -> tuple[Guard, ...]:
        """Return the guards."""
        return self.asked()

    def look_again(self) -> bool:
        """Tell that nothing has moved."""
        return False


NO_CONDITIONS: Final = FixedConditions()


class Job(Generic[R]):
    """Work that this process holds, by the record that it has read or written.

    `lost` makes the error that says that somebody else has the work, of a sentence. `conditions` are further guards of
    every commit. With `is_shared` others may hold the same record, and it is not changed to tell how far the work is.
    `stops` is looked at before each commit but the last: work that is told to stop leaves its record, and ends there. `pace` is
    told of each commit; the work spends its batches there.
    """

    def __init__(
        self,
        engine: Engine,
        seen: "Seen[R]",
        form: ValueForm[Any],
        *,
        lost: Callable[[str], KeyplanError],
        conditions: Conditions = NO_CONDITIONS,
        clock: Clock = SYSTEM_CLOCK,
        is_shared: bool = False,
        stops: StopCheck = UNSTOPPED,
        pace: Pace = UNPACED,
    ) -> None:
        assert seen.record is not None
        self.engine = engine
        self.record: R = seen.record
        self.stops = stops
        self.pace = pace
        self._seen = seen
        self._form = form
        self._lost = lost
        self._conditions = conditions
        self._clock = clock
        self._is_shared = is_shared
        self._touched = clock.monotonic()
        self._now: dict[str, Any] = {}

    @classmethod
    def begin(
        cls,
        engine: Engine,
        seen: "Seen[R]",
        record: R,
        form: ValueForm[Any],
        *,
        lost: Callable[[str], KeyplanError],
        mutations: Iterable[Mutation] = (),
        guards: Iterable[Guard] = (),
        **options: Any,
    ) -> Self:
        """Write the record over what was seen, with further mutations in the same commit: begin the work, or take it over.

        `options` are those of the class. Raises CommitConflictError when somebody came between.
        """
        put = Put(seen.key, form.encode(record))
        engine.commit(Commit((seen.held.guard, *guards), (put, *mutations), seen.epoch))
        job = cls(engine, _written(engine, seen.key, record, form), form, lost=lost, **options)
        job.pace.committed()
        return job

    @property
    def held(self) -> Held:
        """What holds while nobody else has taken the work over."""
        return self._seen.held

    def tell(self, stage: str, done: int = 0) -> None:
        """Say how far the work is; the record says so with one of the next commits."""
        self._now = {"stage": stage, "done": done}

    def commit(
        self, mutations: Iterable[Mutation] = (), *, guards: Iterable[Guard] = (), record: R | None = None
    ) -> None:
        """Write while this process has the work; with `record`, which replaces the job's in the same commit.

        A commit whose answer was lost is made again: its guard lets it be made once. Raises the error of `lost` when somebody
        else has the work, or the conditions do not hold; CommitConflictError when one of `guards` does not hold; StoppedError,
        nothing written, when the work is told to stop.
        """
        self.stops.check()
        new = self._as_told(record)
        writes = tuple(mutations)
        if new is None:
            self._send(writes, tuple(guards), is_applied=bool)
            return
        put = Put(self._seen.key, self._form.encode(new))
        self._send((*writes, put), tuple(guards), is_applied=lambda: self._stands(new))
        try:
            self._seen = _written(self.engine, self._seen.key, new, self._form)
        except CommitConflictError as error:
            raise self._lost("another process does this work now") from error
        self.record = new
        self._touched = self._clock.monotonic()

    def end(
        self, *, leaving: R | None = None, mutations: Iterable[Mutation] = (), guards: Iterable[Guard] = ()
    ) -> None:
        """Take the record away: the work is done. The conditions are not asked any more.

        `leaving`: the record of other work, which this one was to replace and has not begun to, is written back.
        `mutations` are written in the same commit. Raises CommitConflictError when one of `guards` does not hold.
        """
        self._conditions = NO_CONDITIONS
        key = self._seen.key
        last = Delete(key) if leaving is None else Put(key, self._form.encode(leaving))
        self._send((*mutations, last), tuple(guards), is_applied=lambda: self._stands(leaving))

    def _as_told(self, record: R | None) -> R | None:
        """Return the record to write, with how far the work is when it is time to say so; None: it stays."""
        if self._is_shared or self._clock.monotonic() - self._touched < _TOUCH_SECONDS:
            return record
        now = utc_time(self._clock.wall())
        return structs.replace(self.record if record is None else record, touched_at=now, **self._now)

    def _send(
        self, mutations: tuple[Mutation, ...], guards: tuple[Guard, ...], *, is_applied: Callable[[], bool]
    ) -> None:
        held = self._seen.held
        for number in range(_TRIES_MAX):
            try:
                # Why the record's epoch: what was seen since was seen in it, or it is over, and the commit is refused.
                self.engine.commit(Commit((held.guard, *self._conditions.guards(), *guards), mutations, held.epoch))
                self.pace.committed()
            except CommitOutcomeUnknownError:
                # Why again: the same bytes at the same keys, under a guard that no later work leaves standing; should the lost
                # one arrive late, it changes nothing or is refused.
                if is_applied():
                    return
                continue
            except CommitConflictError as error:
                if is_applied() or self._is_to_go_on(error, mutations, guards, number):
                    return
                continue
            return
        raise CommitOutcomeUnknownError(engine=self.engine.profile.name, mutations=len(mutations))

    def _is_to_go_on(
        self, error: CommitConflictError, mutations: tuple[Mutation, ...], guards: tuple[Guard, ...], number: int
    ) -> bool:
        """Tell whether a commit that was refused was made before all the same; False: make it again. Raises what it means."""
        if not self._has_record():
            raise self._lost("another process does this work now") from error
        if self._conditions.look_again():
            if number + 1 < _TRIES_MAX:
                return False
            raise self._lost("the registry of key spaces changes faster than this can follow: begin again") from error
        if not guards:
            raise self._lost("another process does this work now, or the key space was taken out of it") from error
        if number and self._holds(mutations):
            return True  # Why: a lost answer's commit was made; its own writes are what the guards find.
        raise error

    def _has_record(self) -> bool:
        with self.engine.snapshot() as snapshot:
            return Held(as_read(self._seen.key, snapshot.get(self._seen.key)), snapshot.epoch) == self._seen.held

    def _stands(self, record: R | None) -> bool:
        with self.engine.snapshot() as snapshot:
            entry = snapshot.get(self._seen.key)
        if entry is None or record is None:
            return entry is None and record is None
        # Why not by its value alone: a record that is written again as it stands has not been written yet.
        return as_read(entry.key, entry) != self._seen.held.guard and entry.value == self._form.encode(record)

    def _holds(self, mutations: Iterable[Mutation]) -> bool:
        with self.engine.snapshot() as snapshot:
            return all(
                snapshot.value(mutation.key) == (mutation.value if isinstance(mutation, Put) else None)
                for mutation in mutations
                if isinstance(mutation, Put | Delete)
            )


def _written(engine: Engine, key: bytes, record: R, form: ValueForm[Any]) -> "Seen[R]":
    """The entry that was just written. Raises CommitConflictError when it is somebody else's by now."""
    with engine.snapshot() as snapshot:
        entry = snapshot.get(key)
        epoch = snapshot.epoch
    if entry is None or entry.value != form.encode(record):
        raise CommitConflictError(failed=())
    return Seen(key, entry, record, epoch)
