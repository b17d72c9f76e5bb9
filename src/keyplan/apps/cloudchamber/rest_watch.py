"""The long poll (5.5): for simulated time, as the original has it, and for changes of the store, which it left to be done.

An answer comes at once, when what was waited for is so, or after a few seconds, in vain: then ask again.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from starlette.responses import Response

from keyplan.apps.cloudchamber.changes import ChangeFeed
from keyplan.apps.cloudchamber.refusals import invalid
from keyplan.apps.cloudchamber.rest_bodies import message_answer
from keyplan.apps.cloudchamber.rest_routes import AuthenticatedRequest, Handler, Operation, Query
from keyplan.apps.cloudchamber.rest_stepper import status_of_stepper, whole_number
from keyplan.apps.cloudchamber.stepper import Stepper
from keyplan.apps.cloudchamber.waiting import Waiting
from keyplan.apps.cloudchamber.waiting_bodies import StoreChange, WatchAnswer
from keyplan.apps.cloudchamber.watches import RecordEvent

__all__ = ["poll_seconds", "watch_operations"]

_POLL_SECONDS_MAX: Final = 5.0
_NUMBER: Final = "^(-1|[0-9]{1,17})$"


def poll_seconds(inactivity_seconds: float) -> float:
    """Return how long a poll waits: so long that a session outlives it."""
    return min(_POLL_SECONDS_MAX, inactivity_seconds / 2)


def watch_operations(handler: Handler, stepper: Stepper, waiting: Waiting, feed: ChangeFeed) -> Sequence[Operation]:
    """Return the operation that waits."""
    watching = _Watching(handler, stepper, waiting, feed)
    queries = (
        Query("tick", "answer when it is later than this tick; -1, as without it: at once", pattern=_NUMBER),
        Query("epoch", "answer when the stepper's epoch is not this one", pattern=_NUMBER),
        Query("revision", "answer when records change after this revision; 0: from now on", pattern="^[0-9]{1,17}$"),
    )
    return [
        Operation(
            "GET",
            "/api/watch",
            watching.wait,
            "Wait a few seconds for simulated time, or for changes of records.",
            WatchAnswer,
            queries=queries,
            failures="400 403 410 429 501",
            has_slash=True,
            is_polled=True,
        )
    ]


class _Watching:
    def __init__(self, handler: Handler, stepper: Stepper, waiting: Waiting, feed: ChangeFeed) -> None:
        self._handler = handler
        self._stepper = stepper
        self._waiting = waiting
        self._feed = feed
        self._seconds_max = poll_seconds(handler.sessions.inactivity_seconds)

    async def wait(self, request: AuthenticatedRequest) -> Response:
        request.require_session()
        is_due = self._is_due(request)
        if "revision" in request.http.query_params:
            return await self._changes(request, is_due)
        stepper = self._stepper
        is_over = await self._waiting.until(
            is_due,
            request,
            stepper.wakeup,
            seconds_max=self._seconds_max,
            seconds_to_next=lambda: stepper.seconds_to_next,
        )
        status = status_of_stepper(stepper) if is_over else None
        return message_answer(WatchAnswer(expired=not is_over, status_response=status))

    def _is_due(self, request: AuthenticatedRequest) -> Callable[[], bool]:
        """Whether simulated time is what was waited for; never, where changes were asked for and nothing else."""
        tick, epoch = whole_number(request, "tick", -1), whole_number(request, "epoch", 0)
        query, stepper = request.http.query_params, self._stepper
        if "revision" not in query:
            return lambda: stepper.now > tick or stepper.epoch != epoch
        has_tick, has_epoch = "tick" in query, "epoch" in query
        return lambda: (has_tick and stepper.now > tick) or (has_epoch and stepper.epoch != epoch)

    async def _changes(self, request: AuthenticatedRequest, is_due: Callable[[], bool]) -> Response:
        feed = self._feed
        await feed.begin()
        after = await self._revision_to_begin_at(request)
        sees_all = await self._handler.context.read(self._handler.accounts.may_manage, request.caller())

        def shown(events: Iterable[RecordEvent] | None) -> list[StoreChange]:
            return [self._change(one) for one in events or () if sees_all or not _is_of_a_user(one)]

        if feed.known(after) is None:
            changes, after = await feed.caught_up(after)
            found = shown(changes)
        else:
            found, after = shown(feed.known(after)), max(after, feed.reached)
        if not found and not is_due():
            begun = after
            await self._waiting.until(
                lambda: is_due() or self._has_changes(begun, shown),
                request,
                feed.wakeup,
                seconds_max=self._seconds_max,
            )
            # Why asked again: the right may be gone since the wait began.
            sees_all = await self._handler.context.read(self._handler.accounts.may_manage, request.caller())
            known = feed.known(begun)
            # Why not further than `begun` where changes are no longer kept: the client asks again, and history answers.
            found, after = shown(known), begun if known is None else max(begun, feed.reached)
        status = status_of_stepper(self._stepper) if is_due() else None
        is_expired = not found and status is None
        return message_answer(WatchAnswer(expired=is_expired, status_response=status, changes=found, revision=after))

    def _has_changes(self, after: int, shown: Callable[[Iterable[RecordEvent] | None], list[StoreChange]]) -> bool:
        known = self._feed.known(after)
        return known is None or not self._feed.is_following or bool(shown(known))

    async def _revision_to_begin_at(self, request: AuthenticatedRequest) -> int:
        given = whole_number(request, "revision", 0)
        store = self._handler.chamber.store
        latest = (
            await self._handler.context.run(lambda: store.revision) if not 0 < given <= self._feed.reached else given
        )
        if not 0 <= given <= latest:
            raise invalid(f"revision is {given}, and the store is at {latest}")
        return given or latest

    def _change(self, event: RecordEvent) -> StoreChange:
        return StoreChange(
            kind=event.kind.value,
            key=self._handler.chamber.place_of(event.key),
            revision=event.revision,
            old_revision=event.old_revision,
            new_revision=event.new_revision,
        )


def _is_of_a_user(event: RecordEvent) -> bool:
    """Who the users are is told to those who manage them; what is none of the layout's, too."""
    return event.address is None or event.address.table == "users"
