"""Which backup a time is restored from, over all that an instance has been: by a model of what was to be seen."""

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import product
from typing import NamedTuple

from keyplan.apps.patroni import BookKey
from keyplan.apps.patroni.backups.books import beginning_of
from keyplan.apps.patroni.backups.records import Archive, Backup, BackupBook, Span
from keyplan.apps.patroni.refusals import RefusedError
from tests.apps.patroni.archived import POLICY


class Line(NamedTuple):
    """What an archive can be restored to: the value after each commit, by time; and its book."""

    values: list[tuple[float, int]]
    book: BackupBook


class World:
    """An instance whose archives are kept in two ways: as books, and as all that was ever seen of it."""

    def __init__(self) -> None:
        self.now = 0.0
        self.value = 0
        self.seen: list[tuple[float, int]] = [(0.0, 0)]
        self.lines = [Line([(0.0, 0)], self._book(0))]
        self.current, self.former = 0, -1
        self.had = [(0.0, 0)]

    def _book(self, number: int) -> BackupBook:
        archive = Archive(stanza=f"s{number}", policy=POLICY)
        return BackupBook(archive=archive, spans=[Span(since=self.now)])

    def commit(self) -> None:
        self.value += 1
        self._write(self.value)

    def _write(self, value: int) -> None:
        self.lines[self.current].values.append((self.now, value))
        self.seen.append((self.now, value))

    def back_up(self) -> None:
        line = self.lines[self.current]
        label = f"{line.book.archive.stanza}-{len(line.book.backups)}"
        # Why before: a backup of second n may have ended within it.
        line.book.backups.append(Backup(label=label, kind="full", began_at=self.now - 3, ended_at=self.now - 2))

    def _end(self) -> None:
        """What flushes commits something, when the span is over."""
        book = self.lines[self.current].book
        book.spans = [*book.spans[:-1], Span(since=book.spans[-1].since, until=self.now)]
        self.now += 1
        self.lines[self.current].values.append((self.now, self.lines[self.current].values[-1][1]))
        self.now += 1

    def restore(self, target: float) -> None:
        value = self.restored(target)
        if value is None:
            return
        self._end()
        self.former, self.current = self.current, len(self.lines)
        self.lines.append(Line([(self.now, value)], self._book(self.current)))
        self.seen.append((self.now, value))
        self.had.append((self.now, self.current))

    def go_back(self) -> None:
        if self.former < 0:
            return
        self._end()
        self.current, self.former = self.former, self.current
        book = self.lines[self.current].book
        book.spans = [*book.spans, Span(since=self.now)]
        self.had.append((self.now, self.current))
        self._write(self.lines[self.current].values[-1][1])

    def restored(self, target: float) -> int | None:
        """What a restore to a time comes to, carried out as PostgreSQL would; None where it is refused."""
        books = [(BookKey("f1", line.book.archive.stanza), line.book) for line in self.lines]
        try:
            beginning = beginning_of("f1", books, datetime.fromtimestamp(target, UTC))
        except RefusedError:
            return None
        line = next(line for line in self.lines if line.book is beginning.book)
        assert beginning.backup.ended_at <= target
        if beginning.target is None:
            return line.values[-1][1]
        until = beginning.target.timestamp()
        assert line.values[-1][0] > until or self.lines[self.current] is line, (
            "a recovery ends at the first commit behind"
        )
        return [value for at, value in line.values if at <= until][-1]

    def visible(self, target: float) -> int:
        return [value for at, value in self.seen if at <= target][-1]

    def could_begin(self, target: float) -> bool:
        """Whether there was a backup of what the instance was at a time."""
        line = self.lines[[number for since, number in self.had if since <= target][-1]]
        return any(made.ended_at + 1 <= target for made in line.book.backups)


def histories() -> Iterator[World]:
    for acts in product(("commit", "back_up", "restore", "go_back"), repeat=5):
        world = World()
        for act in ("back_up", *acts, "commit"):
            world.now += 10
            if act == "restore":
                world.restore(world.now - 25)
            else:
                getattr(world, act)()
        world.now += 10
        yield world


def test_a_time_is_restored_as_it_was_then_whatever_was_restored_in_place_since() -> None:
    compared = refused = 0
    for world in histories():
        for target in range(0, int(world.now), 5):
            found = world.restored(target)
            if found is None:
                refused += 1
                assert not world.could_begin(target), (target, [line.book.backups for line in world.lines])
            else:
                compared += 1
                assert found == world.visible(target), (target, world.seen, [line.book.spans for line in world.lines])
    assert compared > refused > 0
