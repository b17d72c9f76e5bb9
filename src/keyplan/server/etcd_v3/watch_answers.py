"""What one watch answers from its beginning to its end, in whatever it is spoken."""

from collections.abc import AsyncGenerator
from typing import Any, Final

from keyplan.errors import AccessDeniedError, HistoryCompactedError, KeyplanError
from keyplan.server.confined import CallerStore
from keyplan.server.etcd_v3.calls import Calls
from keyplan.server.etcd_v3.failures import PERMISSION_DENIED, failure_of
from keyplan.server.etcd_v3.messages import RECORDS
from keyplan.server.etcd_v3.watching import Selection, Stream, Unread, Watches, WatchHub
from keyplan.server.service import ServiceContext

__all__ = ["OpenedWatch", "WatchAnswers"]

_EMPTY_RANGE: Final = "mvcc: watcher range is empty"
_DENIED: Final = f"rpc error: code = PermissionDenied desc = {PERMISSION_DENIED}"
"""What etcd tells a watch of that its caller may not see what it is on."""


class OpenedWatch:
    """A watch that was asked for: `created` are the answers to that, and `answers` what follows, if anything does.

    `close` lets go of it; closing twice is harmless.
    """

    def __init__(
        self,
        created: list[Any],
        *,
        watches: Watches | None = None,
        hub: WatchHub | None = None,
        stream: Stream | None = None,
    ) -> None:
        self.created = created
        self.stream = stream
        self._hub = hub
        self._watches = watches

    @property
    def is_open(self) -> bool:
        """True for one that goes on after it was created."""
        return self.stream is not None

    @property
    def is_abandoned(self) -> bool:
        """True once it has ended, and neither it nor its client is the reason."""
        return self.stream is not None and self.stream.is_ended and self.stream.error is None

    def close(self) -> None:
        """Forget the watch."""
        if self._watches is not None and self._hub is not None and self.stream is not None:
            self._watches.leave(self._hub, self.stream)
            self._hub = None


class WatchAnswers:
    """Opens watches on one caller's store, and says what they answer."""

    def __init__(
        self,
        context: ServiceContext,
        watches: Watches,
        store: CallerStore,
        calls: Calls,
        *,
        progress_seconds: float,
    ) -> None:
        self._context = context
        self._watches = watches
        self._store = store
        self._calls = calls
        self._progress_seconds = progress_seconds

    async def open(self, selection: Selection, unread: Unread) -> OpenedWatch:
        """Begin a watch, or refuse it in its answers. Raises CallFailure when nothing can be watched now."""
        try:
            return await self._opened(selection, unread)
        except KeyplanError as error:
            raise failure_of(error) from error

    async def _opened(self, selection: Selection, unread: Unread) -> OpenedWatch:
        watch_id = selection.watch_id
        if selection.is_empty:
            return await self.refused(_EMPTY_RANGE)
        try:
            hub, stream, revision = await self._watches.open(self._store, selection, unread)
        except AccessDeniedError:
            return await self.refused(_DENIED, watch_id)
        except HistoryCompactedError as error:
            revision = await self.revision()
            compacted = error.facts["compacted_revision"]
            cancelled = self.answer(revision, watch_id, canceled=True, compact_revision=compacted)
            return OpenedWatch([self.answer(revision, watch_id, created=True), cancelled])
        created = self.answer(revision, watch_id, created=True)
        return OpenedWatch([created], watches=self._watches, hub=hub, stream=stream)

    async def refused(self, reason: str, watch_id: int = -1) -> OpenedWatch:
        """Return a watch that is over as soon as it was made, for this reason."""
        revision = await self.revision()
        return OpenedWatch([self.answer(revision, watch_id, created=True, canceled=True, cancel_reason=reason)])

    async def answers(self, opened: OpenedWatch) -> AsyncGenerator[Any]:
        """Yield what an open watch answers until its end. Raises CallFailure when it ends for what is not its own fault."""
        stream = opened.stream
        assert stream is not None
        watch_id, has_progress = stream.selection.watch_id, stream.selection.has_progress
        while (batch := await stream.next_batch(self._progress_seconds)) is not None:
            events, reached = batch
            if events:
                yield self.answer(reached, watch_id, events=events)
            elif has_progress:
                yield self.answer(reached, watch_id)
        if isinstance(stream.error, HistoryCompactedError):
            compacted = stream.error.facts["compacted_revision"]
            yield self.answer(stream.reached, watch_id, canceled=True, compact_revision=compacted)
        elif isinstance(stream.error, AccessDeniedError):
            yield self.answer(stream.reached, watch_id, canceled=True, cancel_reason=_DENIED)
        elif stream.error is not None:
            raise failure_of(stream.error)

    async def revision(self) -> int:
        """The store's revision now."""
        return await self._context.read(lambda: self._calls.revision)

    def answer(self, revision: int, watch_id: int, **facts: Any) -> Any:
        """Return an answer of a watch."""
        return RECORDS.WatchResponse(header=self._calls.header(revision), watch_id=watch_id, **facts)
