"""The session of an open key space: a leased record that deletion waits for, and a thread that minds the fence."""

from collections.abc import Callable
from contextlib import suppress
from threading import Event as Signal
from threading import Thread, current_thread
from typing import Final

from keyplan.engine import Capability, Clock, Engine, KeyRange, Watch, WrappedEngine
from keyplan.errors import (
    EngineError,
    KeyplanError,
)
from keyplan.keyspace.fence import FenceGuard, refusal
from keyplan.keyspace.layout import KeySpaceRegistry, SessionKey
from keyplan.keyspace.names import time_text
from keyplan.keyspace.records import Session
from keyplan.store import Lease, Store

__all__ = ["SessionHeartbeat"]

_LOOKS: Final = 3
"""The fence is looked at this often in the time of a lease, where it cannot be watched (1.6)."""

_LOOK_SECONDS_MAX: Final = 1.0
"""Why: of an engine on this machine a look takes microseconds; a second is soon enough to hear of a deletion."""

_POLL_SECONDS: Final = 0.5
"""Why: closing a handle waits for the watch to return at most so long."""

_CLOSE_SECONDS_MAX: Final = 5.0


class SessionHeartbeat:
    """The presence of one handle in its key space, from opening to closing.

    `on_end` is called once, in a thread of its own, with the error that closed the handle. A session that was lost is taken up
    again, as long as the fence allows: it tells who has the key space open, the fence who may write.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        name: str,
        generation: int,
        application: str,
        fence: FenceGuard,
        ttl_seconds: float,
        clock: Clock,
        on_end: Callable[[KeyplanError], object] | None,
        on_look: Callable[[], object],
    ) -> None:
        # Why: closing this store ends the renewals, and must not close the engine.
        self._store = Store(WrappedEngine(engine, closes_inner=False), clock=clock)
        self._engine = engine
        self._name = name
        self._generation = generation
        self._application = application
        self._fence = fence
        self._ttl_seconds = ttl_seconds
        self._clock = clock
        self._on_end = on_end
        self._on_look = on_look
        self._closing = Signal()
        self._lease: Lease | None = None
        self._watch: Watch | None = None
        self._thread: Thread | None = None

    @property
    def lease(self) -> int | None:
        """The id of the lease that the session hangs on; None where the engine has none."""
        return None if self._lease is None else self._lease.id

    def begin(self) -> None:
        """Write the session, in a commit that holds only while the key space is open; watch the fence from then on.

        Raises what opening a key space raises for its state.
        """
        if self._engine.profile.claims(Capability.LEASES):
            self._register()
        self._thread = Thread(target=self._work, name=f"keyplan-keyspace-{self._name}", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Take the session away and stop watching. Harmless twice."""
        self._closing.set()
        if self._watch is not None:
            self._watch.close()
        self._leave()
        self._store.close()
        thread = self._thread
        if thread is not None and thread is not current_thread():
            thread.join(_CLOSE_SECONDS_MAX)

    def _leave(self) -> None:
        lease, self._lease = self._lease, None
        if lease is not None:
            # Why: when the store is out of reach, the session goes when its time is over.
            with suppress(EngineError):
                lease.revoke()

    def _register(self) -> None:
        lease = self._store.lease(self._ttl_seconds, on_loss=self._forget)
        session = Session(
            application=self._application, generation=self._generation, opened_at=time_text(self._clock.wall())
        )

        def work(registry: KeySpaceRegistry) -> None:
            error = refusal(self._name, self._generation, registry.fences.get(self._name))
            if error is not None:
                raise error
            registry.sessions.insert(SessionKey(self._name, lease.id), session, lease=lease)

        try:
            KeySpaceRegistry(self._store).run(work)
        except KeyplanError:
            lease.revoke()
            raise
        self._lease = lease
        if self._closing.is_set():
            self._leave()  # Why: the holder closed meanwhile, and found no lease to revoke.

    def _forget(self, lost: Lease) -> None:
        # Why: taken up again with the next look; the fence holds meanwhile.
        if self._lease is lost:
            self._lease = None

    # ---- watching ------------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while not self._closing.is_set():
            try:
                self._wait_for_news()
                if self._closing.is_set() or not self._look():
                    return
            except KeyplanError:
                # Why: out of reach, or disabled while the session was to be taken up again; the next look finds out.
                self._closing.wait(_LOOK_SECONDS_MAX)

    def _wait_for_news(self) -> None:
        """Wait until the fence may have changed: until it did where it can be watched, else for a while."""
        profile = self._engine.profile
        if profile.has_local_reads or not profile.claims(Capability.WATCH):
            # Why: a watch of an engine on this machine wakes for every commit of the process; a look costs less than that.
            seconds = self._ttl_seconds / _LOOKS
            self._closing.wait(min(seconds, _LOOK_SECONDS_MAX) if profile.has_local_reads else seconds)
            return
        if self._watch is None:
            with self._engine.snapshot() as snapshot:
                revision = snapshot.revision
            self._watch = self._engine.watch(KeyRange.of_key(self._fence.key), after=revision)
            return  # Why: what happened before the watch began is found by a look.
        deadline = self._clock.monotonic() + self._ttl_seconds / _LOOKS
        try:
            while not self._closing.is_set() and self._clock.monotonic() < deadline:
                if self._watch.poll(_POLL_SECONDS):
                    return
        except EngineError:
            self._watch.close()
            self._watch = None
            raise

    def _look(self) -> bool:
        """Read the fence; False when the handle was closed for good."""
        self._fence.look()
        error = self._fence.closed_by
        if error is None:
            self._on_look()
            # Why both: a lease may be lost before it stands here, and is not forgotten then.
            is_absent = self._lease is None or self._lease.is_lost
            if is_absent and self._engine.profile.claims(Capability.LEASES) and not self._closing.is_set():
                self._register()
            return True
        # Why: nobody can write through this handle any more, so that the deletion need not wait for it.
        self._leave()
        if self._on_end is not None and not self._closing.is_set():
            # Why: a holder's slow answer must not be waited for by `end`, which it may call itself.
            Thread(target=self._on_end, args=(error,), name=f"keyplan-keyspace-{self._name}-ended", daemon=True).start()
        return False
