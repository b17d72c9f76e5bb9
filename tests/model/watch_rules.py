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

WATCHED_MAX = 3
WALKS_MAX = 2


class WatchRules(Stores):
    """See the module. Each watch is opened on both stores that have one."""

    def __init__(self) -> None:
        super().__init__()
        self.watched: list[tuple[Watcher, Watcher]] = []
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

    @precondition(lambda self: len(self.watched) < WATCHED_MAX)
    @rule(watched=st.sampled_from(LISTS), lag=st.integers(1, 4))
    def a_list_is_watched_from_now_on(self, watched: WatchedList, lag: int) -> None:
        revision, content = len(self.model.revisions), watched.content(self.model)
        memory, history = (
            Watcher(site, watched, revision, dict(content), watched.open(site, None), lag) for site in self.sites[:2]
        )
        self.watched.append((memory, history))

    @precondition(lambda self: len(self.watched) < WATCHED_MAX and self.compacted == 0)
    @rule(watched=st.sampled_from(LISTS))
    def a_list_is_watched_from_the_beginning(self, watched: WatchedList) -> None:
        memory, history = (Watcher(site, watched, 0, {}, watched.open(site, 0), 1) for site in self.sites[:2])
        self.watched.append((memory, history))

    @precondition(lambda self: self.watched)
    @rule(data=st.data(), is_quiet=st.booleans())
    def a_watch_goes_on_by_a_token(self, data: st.DataObject, *, is_quiet: bool) -> None:
        pair = data.draw(st.sampled_from(self.watched))
        for watcher in pair:
            watcher.poll(self.model)
        kept = [place for place, change in enumerate(pair[0].delivered, 1) if change.revision > self.compacted]
        place = data.draw(st.sampled_from(kept)) if kept else 0
        for watcher in pair:
            watcher.resume(place, is_quiet=is_quiet or not kept)

    @precondition(lambda self: self.watched)
    @rule()
    def a_watch_ends(self) -> None:
        for watcher in self.watched.pop(0):
            watcher.poll(self.model)
            watcher.close()

    @precondition(lambda self: len(self.copies) < WATCHED_MAX)
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

    @precondition(lambda self: len(self.walks) < WALKS_MAX)
    @rule(rack=st.none() | st.sampled_from(RACKS), limit=st.integers(1, 3))
    def a_walk_begins(self, rack: str | None, limit: int) -> None:
        walk = Walk.begin(rack, self.model, len(self.sites))
        self.walks.append(walk)
        self._turn(walk, limit)

    @precondition(lambda self: self.walks)
    @rule(number=st.integers(0, WALKS_MAX - 1), limit=st.integers(1, 3))
    def a_page_is_turned(self, number: int, limit: int) -> None:
        self._turn(self.walks[number % len(self.walks)], limit)

    def _turn(self, walk: Walk, limit: int) -> None:
        walk.turn(self.sites, limit, self.model)
        if walk.is_over:
            self.walks.remove(walk)

    def _poll_copies(self) -> None:
        for copy in self.copies:
            copy.poll(self.model)

    @invariant()
    def watches_deliver_each_change_once(self) -> None:
        for pair in self.watched:
            for watcher in pair:
                watcher.step(self.model)
