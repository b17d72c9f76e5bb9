"""The long poll (5.5): for simulated time, as the original has it, and for changes of the store, which it left to be done.

An answer comes at once, when what was waited for is so, or after a few seconds, in vain: then ask again.
"""

from collections.abc import Callable, Iterable
from typing import Annotated, Final

from keyplan.apps.cloudchamber.refusals import invalid
from keyplan.apps.cloudchamber.rest_bodies import StoreChange, WatchAnswer
from keyplan.apps.cloudchamber.rest_routes import Resource, Who, rest
from keyplan.apps.cloudchamber.rest_stepper import status_of_stepper
from keyplan.apps.cloudchamber.rest_words import NUMBER, POSITIVE_NUMBER
from keyplan.apps.cloudchamber.watches import RecordEvent
from keyplan.operations import In, Schema

__all__ = ["Watches"]

_NUMBER: Final = "^(-1|[0-9]{1,17})$"


class Watches(Resource):
    """The operation that waits."""

    @rest("GET", "/api/watch", Who.LOGGED_IN, 400, 410, 429, 501, is_polled=True)
    async def wait(
        self,
        *,
        tick: Annotated[
            int | None,
            In(form=NUMBER),
            Schema("answer when it is later than this tick; -1, as without it: at once", pattern=_NUMBER),
        ] = None,
        epoch: Annotated[
            int | None,
            In(form=NUMBER),
            Schema(
                "answer when the stepper's epoch is later than this one; 0, as without it: at once", pattern=_NUMBER
            ),
        ] = None,
        revision: Annotated[
            int | None,
            In(form=POSITIVE_NUMBER),
            Schema("answer when records change after this revision; 0: from now on", pattern="^[0-9]{1,17}$"),
        ] = None,
    ) -> WatchAnswer:
        """Wait a few seconds for simulated time, or for changes of records."""
        stepper = self.web.stepper
        if revision is not None:
            # Why only what was named: who asks for changes and nothing else is not answered because time passes.
            return await self._changes(
                revision,
                lambda: (tick is not None and stepper.now > tick) or (epoch is not None and stepper.epoch > epoch),
            )
        last, begun = -1 if tick is None else tick, 0 if epoch is None else epoch
        is_over = await self.web.waiting.until(
            lambda: stepper.now > last or stepper.epoch > begun,
            self.asked,
            stepper.wakeup,
            seconds_max=self.web.waiting.poll_seconds,
            seconds_to_next=lambda: stepper.seconds_until(last + 1),
        )
        status = status_of_stepper(stepper) if is_over else None
        return WatchAnswer(expired=not is_over, status_response=status)

    async def _changes(self, given: int, is_due: Callable[[], bool]) -> WatchAnswer:
        feed = self.web.feed
        await feed.begin()
        after = await self._revision_to_begin_at(given)
        sees_all = await self._sees_all()

        def shown(events: Iterable[RecordEvent] | None) -> list[StoreChange]:
            return [self._change(one) for one in events or () if sees_all or not _is_of_a_user(one)]

        if feed.known(after) is None:
            changes, after = await feed.caught_up(after)
            found = shown(changes)
        else:
            found, after = shown(feed.known(after)), max(after, feed.reached)
        if not found and not is_due():
            begun = after
            await self.web.waiting.until(
                lambda: is_due() or self._has_changes(begun, shown),
                self.asked,
                feed.wakeup,
                seconds_max=self.web.waiting.poll_seconds,
            )
            # Why asked again: the right may be gone since the wait began.
            sees_all = await self._sees_all()
            known = feed.known(begun)
            # Why not further than `begun` where changes are no longer kept: the client asks again, and history answers.
            found, after = shown(known), begun if known is None else max(begun, feed.reached)
        status = status_of_stepper(self.web.stepper) if is_due() else None
        is_expired = not found and status is None
        return WatchAnswer(expired=is_expired, status_response=status, changes=found, revision=after)

    async def _sees_all(self) -> bool:
        account = self.asked.account
        return account is not None and await self.web.context.read(self.web.accounts.may_manage, account)

    def _has_changes(self, after: int, shown: Callable[[Iterable[RecordEvent] | None], list[StoreChange]]) -> bool:
        known = self.web.feed.known(after)
        return known is None or not self.web.feed.is_following or bool(shown(known))

    async def _revision_to_begin_at(self, given: int) -> int:
        latest = given
        if not 0 < given <= self.web.feed.reached:
            latest = await self.web.context.run(lambda: self.web.chamber.store.revision)
        if given > latest:
            raise invalid(f"revision is {given}, and the store is at {latest}")
        return given or latest

    def _change(self, event: RecordEvent) -> StoreChange:
        return StoreChange(
            kind=event.kind.value,
            key=self.web.chamber.place_of(event.key),
            revision=event.revision,
            old_revision=event.old_revision,
            new_revision=event.new_revision,
        )


def _is_of_a_user(event: RecordEvent) -> bool:
    """Who the users are is told to those who manage them; what is none of the layout's, too."""
    return event.address is None or event.address.table == "users"
