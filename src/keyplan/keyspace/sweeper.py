"""Deleting in the background (1.7): whatever is to be removed is, batch by batch, at a bounded speed. One batch: removal.py.

Anybody may run it: a server, a command, a thread; one at a time does, by a lease.
"""

from collections.abc import Callable
from threading import Event as Signal
from typing import Final

from keyplan.engine import Capability
from keyplan.errors import (
    AlreadyExistsError,
    CommitOutcomeUnknownError,
    EngineUnavailableError,
    InvalidArgumentError,
    KeyplanError,
    StoppedError,
)
from keyplan.jobs import UNSTOPPED, Pace, Stop, StopCheck
from keyplan.keyspace.answers import KeySpace
from keyplan.keyspace.layout import KeySpaceRegistry
from keyplan.keyspace.names import time_text
from keyplan.keyspace.records import State, Sweeping
from keyplan.keyspace.registry import KeySpaces
from keyplan.keyspace.removal import BATCH_KEYS_DEFAULT, Removal, Stage, SweepProgress
from keyplan.keyspace.rows import rows_of
from keyplan.keyspace.transactions import ONLY
from keyplan.store import Store

__all__ = ["Sweeper"]

_LEASE_SECONDS: Final = 30.0
_LOOK_SECONDS: Final = 5.0
"""Why: a deletion is not urgent; whoever waits for one calls `sweep`."""


def _pass_over(_name: str, _error: KeyplanError) -> None:
    """Say nothing."""


class Sweeper:
    """Removes the data of key spaces that are being deleted.

    At most `batch_keys` keys in a commit, and `keys_per_second` on average (None: no limit). `pause` waits so many seconds.
    `on_failure` is told the name and the error of a deletion that could not go on, and errors of a whole round with no name.
    """

    def __init__(
        self,
        registry: KeySpaces,
        *,
        by: str = "",
        batch_keys: int = BATCH_KEYS_DEFAULT,
        keys_per_second: float | None = None,
        pause: Callable[[float], None] | None = None,
        on_failure: Callable[[str, KeyplanError], object] = _pass_over,
    ) -> None:
        if batch_keys < 1:
            raise InvalidArgumentError(argument="batch_keys", problem="at least one key at a time")
        self._registry = registry
        self._store: Store = registry.store
        self._clock = registry.clock
        self._by = by or "sweeper"
        self._removal = Removal(registry.store, registry.transactions, registry.clock, batch_keys=batch_keys)
        self._pace = Pace(keys_per_second, clock=registry.clock, sleep=pause, argument="keys_per_second")
        self._on_failure = on_failure

    def run(self, stop: Signal) -> None:
        """Sweep whatever is to be swept, again and again, until `stop` is set.

        A failure ends the round, not the sweeper: `on_failure` is told of it, and the next round tries again.
        """
        while not stop.is_set():
            try:
                self.sweep_all(stop=stop)
            except KeyplanError as error:
                self._on_failure("", error)
            stop.wait(_LOOK_SECONDS)

    def sweep_all(self, *, stop: Stop | None = None) -> list[SweepProgress]:
        """Take every deletion as far as it goes now; nothing while another sweeper is at it.

        One round of many: a round that is told to stop returns what it has ended by then, as one that was not.
        """
        if not self._deleting():
            return []
        if not self._store.engine.profile.claims(Capability.LEASES):
            # Why: without leases two may sweep at once; each batch is guarded by the cursor, so that they only share the work.
            return self._swept(stop)
        with self._store.lease(_LEASE_SECONDS) as lease:
            try:
                since = time_text(self._clock.wall())
                KeySpaceRegistry(self._store).sweeper.insert(ONLY, Sweeping(by=self._by, since=since), lease=lease)
            except AlreadyExistsError:
                return []
            return self._swept(stop)

    def _swept(self, stop: Stop | None) -> list[SweepProgress]:
        done: list[SweepProgress] = []
        for name in self._deleting():
            try:
                done.append(self.sweep(name, stop=stop))
            except StoppedError:
                break  # Why no error: it goes on with the next round, whoever makes that.
            except (EngineUnavailableError, CommitOutcomeUnknownError):
                raise  # the store does not answer: none of the others could be swept either
            except KeyplanError as error:
                self._on_failure(name, error)  # one that cannot go on does not stop those behind it
        return done

    def _deleting(self) -> list[str]:
        with self._store.engine.snapshot() as snapshot:
            return [
                row.key
                for row in rows_of(snapshot, "records")
                if row.value is not None and row.value.state is State.DELETING
            ]

    def sweep(self, name: str, *, stop: Stop | None = None) -> SweepProgress:
        """Take one deletion as far as it goes now: to its end, unless it has to wait.

        Raises StoppedError when `stop` is set, between two batches.
        """
        stops = StopCheck(stop, f"the removal of what the key space {name} held")
        stops.check()
        while (progress := self.step(name, stop=stops)).stage is Stage.SWEEPING:
            stops.check()
        return progress

    def step(self, name: str, *, stop: Stop = UNSTOPPED) -> SweepProgress:
        """Remove one batch, or end the deletion when nothing is left, or say what it waits for. Safe to repeat.

        Pauses after a batch, so that the average speed holds, but for a caller who is told to stop.
        """
        progress = self._removal.step(name)
        self._pace.spend(progress.removed_keys, stop)
        return progress

    def wipe(self, keyspace: KeySpace, *, stop: Stop | None = None) -> int:
        """Remove what a key space in the state RESTORING holds; return how many keys. Repeat it after a failure.

        Each commit is guarded by the fence. Raises IllegalTransitionError for one in another state, GenerationMismatchError
        when somebody else restores it meanwhile; StoppedError when `stop` is set, between two batches.
        """
        stops = StopCheck(stop, f"the emptying of the key space {keyspace.name}")
        wiped = 0
        while removed := self._removal.wipe_batch(keyspace):
            self._pace.spend(removed, stops)
            wiped += removed
            stops.check()
        return wiped
