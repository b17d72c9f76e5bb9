"""Rules that watch lists, go on by tokens, follow tables, compact the history under them, and walk by pages."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from keyplan.errors import HistoryCompactedError
from tests.model.agreement import RACKS
from tests.model.machine import Stores
from tests.model.pages import Walk
from tests.model.watchers import LISTS, Copy, WatchedList, Watcher

__all__ = ["WatchRules"]

FOLLOWED_MAX = 2
WALKS_MAX = 2
RACKS_WALKED = [None, None, *RACKS]


class WatchRules(Stores):
    """See the module. Each watch is opened on both stores that have one."""

    def __init__(self) -> None:
        super().__init__()
        # Why: every list is watched all the time, so that whatever is written meets a watch; lags of 1 to 3 steps let some read
        # several revisions at once.
        self.watched = [self._watch(watched, 0, lag=number % 3 + 1) for number, watched in enumerate(LISTS)]
        self.copies: list[Copy] = []
        self.walks: list[Walk] = []
        self.compacted = 0

    def teardown(self) -> None:
        try:
            for pair in self.watched:
                for watcher in pair:
                    watcher.poll(self.model)
            self._poll_copies()
        finally:
            super().teardown()

    @rule(number=st.integers(0, len(LISTS) - 1), lag=st.integers(1, 4))
    def a_list_is_watched_from_now_on(self, number: int, lag: int) -> None:
        self._end(number)
        self.watched[number] = self._watch(LISTS[number], None, lag=lag)

    @rule(number=st.integers(0, len(LISTS) - 1), data=st.data())
    def a_list_is_watched_from_a_revision(self, number: int, data: st.DataObject) -> None:
        """Why: from the oldest that is kept, since what was there then is known of an empty store and of now alone."""
        self._end(number)
        is_whole = self.compacted == 0 and data.draw(st.booleans())
        self.watched[number] = self._watch(LISTS[number], 0 if is_whole else len(self.model.revisions), lag=1)

    @rule(number=st.integers(0, len(LISTS) - 1), data=st.data())
    def a_watch_goes_on_by_a_token(self, number: int, data: st.DataObject) -> None:
        pair = self.watched[number]
        for watcher in pair:
            watcher.poll(self.model)
        kept = [place for place, change in enumerate(pair[0].delivered, 1) if change.revision > self.compacted]
        place = data.draw(st.none() | st.sampled_from(kept)) if kept else None
        for watcher in pair:
            watcher.resume(place)

    @precondition(lambda self: len(self.copies) < FOLLOWED_MAX * 6)
    @rule()
    def tables_are_followed(self) -> None:
        for site in self.sites[:2]:
            self.copies.append(Copy(site.blades.follow(), LISTS[0]))
            self.copies.append(Copy(site.blades.follow("a"), LISTS[1]))
            self.copies.append(Copy(site.members.follow(keep_records=True), LISTS[3]))

    @rule()
    def copies_are_brought_up_to_date(self) -> None:
        self._poll_copies()

    @precondition(lambda self: len(self.model.revisions) > self.compacted)
    @rule(data=st.data())
    def history_is_compacted(self, data: st.DataObject) -> None:
        """Why: watches have read what goes; only followers go on without it."""
        for pair in self.watched:
            for watcher in pair:
                watcher.poll(self.model)
        self.compacted = data.draw(st.integers(self.compacted + 1, len(self.model.revisions)))
        for store, site in zip(self.stores[:2], self.sites, strict=False):
            store.engine.compact(self.compacted)
            with pytest.raises(HistoryCompactedError):
                site.blades.watch(after=self.compacted - 1)

    @rule(
        number=st.integers(0, WALKS_MAX - 1),
        rack=st.sampled_from(RACKS_WALKED),
        limits=st.lists(st.integers(1, 2), min_size=1, max_size=3),
    )
    def pages_are_turned(self, number: int, rack: str | None, limits: list[int]) -> None:
        if number >= len(self.walks):
            self.walks.append(Walk.begin(rack, self.model, len(self.sites)))
        walk = self.walks[min(number, len(self.walks) - 1)]
        for limit in limits:
            if not walk.is_over:
                walk.turn(self.sites, limit, self.model)
        if walk.is_over:
            self.walks.remove(walk)

    def _watch(self, watched: WatchedList, after: int | None, *, lag: int) -> tuple[Watcher, Watcher]:
        """Watch on both stores, from the empty store or from now."""
        revision = 0 if after == 0 else len(self.model.revisions)
        content = {} if after == 0 else watched.content(self.model)
        memory, history = (
            Watcher(site, watched, revision, dict(content), watched.open(site, after), lag) for site in self.sites[:2]
        )
        return memory, history

    def _end(self, number: int) -> None:
        for watcher in self.watched[number]:
            watcher.poll(self.model)
            watcher.close()

    def _poll_copies(self) -> None:
        for copy in self.copies:
            copy.poll(self.model)

    @invariant()
    def watches_deliver_each_change_once(self) -> None:
        for pair in self.watched:
            for watcher in pair:
                watcher.step(self.model)
