"""Watches next to a dictionary: what each must deliver, judged from the revisions, and what its changes add up to."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from keyplan.layout import Change, ChangeKind, Changes
from tests.model.dictionary import Changed, Dictionary
from tests.model.operations import Key
from tests.store.layouts import Blade, BladeKey, Site

__all__ = ["LISTS", "TABLES", "Copy", "WatchedList", "Watcher"]

After = int | str | None
Told = tuple[ChangeKind, Key, Blade | None, Blade | None, int]


class WatchedList(NamedTuple):
    """A list that can be watched: how, and whether it holds a record."""

    name: str
    open: Callable[[Site, After], Changes[Any, Blade]]
    holds: Callable[[Key, Blade], bool]

    def expected(self, model: Dictionary, after: int = 0) -> list[Told]:
        """What a watch delivers after a revision."""
        return [
            (kind, change.key, change.old, change.new, revision)
            for revision, changes in enumerate(model.revisions[after:], start=after + 1)
            for change in changes
            if (kind := self._kind(change)) is not None
        ]

    def _kind(self, change: Changed) -> ChangeKind | None:
        had = change.old is not None and self.holds(change.key, change.old)
        has = change.new is not None and self.holds(change.key, change.new)
        if had and has:
            return ChangeKind.CHANGED
        if has:
            return ChangeKind.INSERTED
        return ChangeKind.REMOVED if had else None

    def content(self, model: Dictionary) -> dict[Key, Blade]:
        """What it holds now."""
        return {key: stored.blade for key, stored in model.records.items() if self.holds(key, stored.blade)}


def _is_blade(key: Key) -> bool:
    return not isinstance(key, str)


def _rack(key: Key) -> str:
    return key.rack if isinstance(key, BladeKey) else ""


TABLES: Sequence[WatchedList] = (
    WatchedList("blades", lambda site, after: site.blades.watch(after=after), lambda key, _: _is_blade(key)),
    WatchedList("of a rack", lambda site, after: site.blades.watch("a", after=after), lambda key, _: _rack(key) == "a"),
    WatchedList(
        "of racks that begin so",
        lambda site, after: site.blades.watch(starts_with="a", after=after),
        lambda key, _: _rack(key).startswith("a"),
    ),
    WatchedList("members", lambda site, after: site.members.watch(after=after), lambda key, _: not _is_blade(key)),
)
LISTS: Sequence[WatchedList] = (
    *TABLES,
    WatchedList(
        "by a tag",
        lambda site, after: site.by_tag.watch("x", after=after),
        lambda key, blade: _is_blade(key) and "x" in blade.tags,
    ),
    WatchedList(
        "by tags that begin so",
        lambda site, after: site.by_tag.watch(starts_with="x", after=after),
        lambda key, blade: _is_blade(key) and any(tag.startswith("x") for tag in blade.tags),
    ),
    WatchedList(
        "by serial",
        lambda site, after: site.by_serial.watch(after=after),
        lambda key, blade: _is_blade(key) and blade.serial is not None,
    ),
    WatchedList(
        "members by a tag",
        lambda site, after: site.member_by_tag.watch("x", after=after),
        lambda key, blade: not _is_blade(key) and "x" in blade.tags,
    ),
)


@dataclass
class Watcher:
    """A watch of one list on one store, and what it delivered. `lag` is how many steps pass between two polls."""

    site: Site
    watched: WatchedList
    begin_revision: int
    begin_content: dict[Key, Blade]
    changes: Changes[Any, Blade]
    lag: int
    steps: int = 0
    delivered: list[Change[Any, Blade]] = field(default_factory=list)

    def step(self, model: Dictionary) -> None:
        """Poll if it is time, and compare."""
        self.steps += 1
        if self.steps % self.lag == 0:
            self.poll(model)

    def poll(self, model: Dictionary) -> None:
        """Take what there is: together with what was delivered before it is each change once, and adds up to the list."""
        while more := self.changes.poll():
            self.delivered += more
        told = [tuple(change[:5]) for change in self.delivered]
        assert told == self.watched.expected(model, self.begin_revision)
        content = dict(self.begin_content)
        for change in self.delivered:
            _replay(change, content)
        assert content == self.watched.content(model)

    def resume(self, place: int | None) -> None:
        """Close the watch and go on behind the first `place` changes, by the token of the last of them.

        With None behind all, by the watch's own token, which has moved on over what is not in the list.
        """
        token = self.changes.token
        if place is not None:
            del self.delivered[place:]
            token = self.delivered[-1].token
        self.changes.close()
        self.changes = self.watched.open(self.site, token)

    def close(self) -> None:
        """End the watch."""
        self.changes.close()


def _replay(change: Change[Any, Blade], content: dict[Key, Blade]) -> None:
    before = content.get(change.key)
    assert (before is None) == (change.kind is ChangeKind.INSERTED)
    if before is not None:
        assert change.old == before
    if change.kind is ChangeKind.REMOVED:
        del content[change.key]
    else:
        assert change.new is not None
        content[change.key] = change.new


@dataclass
class Copy:
    """What `follow` of a table adds up to; history may be compacted under it."""

    changes: Changes[Any, Blade]
    watched: WatchedList
    content: dict[Key, Blade] = field(default_factory=dict)
    revisions: dict[Key, int] = field(default_factory=dict)

    def poll(self, model: Dictionary) -> None:
        """Take what there is, of each record only what is newer than before, and compare the copy with the list."""
        is_done = False
        while not is_done:
            # Why: a poll that lists, or finds its history gone, may return nothing although changes are to come.
            was_listing = not self.changes.token
            more = self.changes.poll()
            for change in more:
                assert change.revision > self.revisions.get(change.key, 0)
                self.revisions[change.key] = change.revision
                _replay(change._replace(old=self.content.get(change.key)), self.content)
            is_done = not (more or was_listing) and bool(self.changes.token)
        assert self.content == self.watched.content(model)
