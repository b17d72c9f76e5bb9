"""Builds and drops of indexes, and migrations from one layout to another, that are killed."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from msgspec import structs

from keyplan.engine import Commit, Put, WrappedEngine
from keyplan.errors import InvalidInputError
from keyplan.jobs import UNPACED
from keyplan.layout import Counter, Layout, Table, Unique
from keyplan.maintenance import (
    MigrationPlan,
    Migrations,
    build_index,
    clean_up_migration,
    drop_index,
    migrate,
    prepare_index,
)
from keyplan.store import Store
from keyplan.testing.killing import KillScenario
from tests.kills.furniture import SMALL, Scene, fill_site, nothing_is_open
from tests.maintenance.evolving import ENLARGED, Box, Crate, Moved, Old, Reindexed, Shelf, Stated, fill, plan
from tests.maintenance.layouts import Blade, BladeKey, Site, dump, write

__all__ = ["indexes", "migrations"]

# ---- indexes ---------------------------------------------------------------------------------------------------------


def indexes() -> Iterator[Scene]:
    """A unique, a fan-out and a leased index built from nothing and from half; one dropped; one prepared and built."""
    plain = partial(KillScenario, profile=SMALL, holds=_site_is_whole, told=(InvalidInputError,), beside=_write_blades)
    for name in ("by_serial", "by_tag", "member_serial"):
        yield Scene(f"build {name}", plain(job=partial(_build, name), setup=partial(_unbuilt, name)))
    yield Scene("build by_tag, half built", plain(job=partial(_build, "by_tag"), setup=_half_built))
    yield Scene("build by_tag, left with a gap", plain(job=partial(_build, "by_tag"), setup=_left_with_a_gap))
    yield Scene("prepare and build", plain(job=_prepare_and_build, setup=fill_site))
    yield Scene(
        "drop by_tag",
        plain(job=_drop, setup=fill_site, holds=_serials_are_whole, compared=_without_entries_of_tags, told=()),
    )


def _build(name: str, store: Store) -> None:
    build_index(store, Site(store), name, pace=UNPACED)


def _prepare_and_build(store: Store) -> None:
    prepare_index(store, Site(store), "by_tag")
    _build("by_tag", store)


def _drop(store: Store) -> None:
    drop_index(store, Site(store), "by_tag")


_ENTRIES = {"by_serial": b"/site/by-serial/", "by_tag": b"/site/by-tag/", "member_serial": b"/site/member-serial/"}


def _unbuilt(name: str, store: Store) -> None:
    """The index as if it were new."""
    fill_site(store)
    prepare_index(store, Site(store), name)
    write(store, *[key for key in dump(store) if key.startswith(_ENTRIES[name])])


def _half_built(store: Store) -> None:
    """An index that misses entries, and has some that no record calls for."""
    fill_site(store)
    prepare_index(store, Site(store), "by_tag")
    own = [key for key in dump(store) if key.startswith(_ENTRIES["by_tag"])]
    write(store, *own[::2], puts={b"/site/by-tag/strange/r/0": b"", b"/site/by-tag/red/r/77": b""})


class _DyingAtEntries(WrappedEngine):
    """The process dies when it has taken records and is to write their first entries."""

    def commit(self, commit: Commit) -> int:
        if any(
            mutation.key.startswith(_ENTRIES["by_tag"]) for mutation in commit.mutations if isinstance(mutation, Put)
        ):
            raise KeyboardInterrupt
        return self.inner.commit(commit)


def _left_with_a_gap(store: Store) -> None:
    """A builder died with records that it had taken: the verification is what finds them."""
    _unbuilt("by_tag", store)
    with suppress(KeyboardInterrupt):
        build_index(Store(_DyingAtEntries(store.engine)), Site.bound(), "by_tag", pace=UNPACED)


def _write_blades(store: Store) -> None:
    """What an application does: a record comes, one goes, one changes."""
    site = Site(store)
    site.blades.insert(BladeKey("q", "9"), Blade("s9", ["red", "new"]))
    site.blades.delete(BladeKey("r", "2"))
    site.blades.put(BladeKey("r", "3"), Blade("s33", ["changed"]))


def _site_is_whole(store: Store) -> None:
    nothing_is_open(store, Site, leases=1)


def _serials_are_whole(store: Store) -> None:
    nothing_is_open(store, leases=1)
    assert Site(store).by_serial.one("s1") is not None
    assert Site(store).blades.require(BladeKey("r", "1")).tags


def _without_entries_of_tags(store: Store) -> object:
    """All but the state, which names the run, and entries that writers made meanwhile, which may stay."""
    return {key: value for key, value in dump(store).items() if not key.startswith((b"\x00ki", b"/site/by-tag/"))}


# ---- migrations ------------------------------------------------------------------------------------------------------


class Guests(Layout, root="/g/"):
    """A leased table and a counter, before they move."""

    members = Table("members/{member}", key=str, value=Blade, lease=True)
    by_serial = Unique("by-serial/{serial}", of=members, key=str)
    numbers = Counter("numbers", start=5)
    gone = Table("gone/{name}", key=str, value=str)


class People(Layout, root="/g/"):
    """The same elsewhere, without the last table."""

    members = Table("people/{member}", key=str, value=Blade, lease=True)
    by_serial = Unique("serials/{serial}", of=members, key=str)
    tickets = Counter("tickets", start=1)


class _Change(NamedTuple):
    """A layout, what becomes of it, and what applications write by the old and by the new one."""

    old: type[Layout]
    new: type[Layout]
    fill: Callable[[Store], object]
    write_old: Callable[[Store], object]
    write_new: Callable[[Store], object]
    options: Mapping[str, object]
    leases: int = 0

    @property
    def name(self) -> str:
        return self.new.__name__

    def plan(self, store: Store) -> MigrationPlan:
        return plan(store, self.old, self.new, **self.options)

    def migrate(self, store: Store) -> None:
        migrate(store, self.plan(store), pace=UNPACED)

    def switch(self, store: Store) -> None:
        report = migrate(store, self.plan(store), is_switched=True, pace=UNPACED)
        assert report.is_settled, report

    def clean_up(self, store: Store) -> None:
        assert clean_up_migration(store, self.plan(store), pace=UNPACED).is_cleaned

    def carry_out(self, store: Store) -> None:
        """Do all of it, as a person gives one command after the other; whoever begins again begins at the first."""
        self.migrate(store)
        self.switch(store)
        self.clean_up(store)

    def is_over(self, store: Store) -> None:
        nothing_is_open(store, self.new, leases=self.leases)


def _changes() -> Iterator[_Change]:
    of_boxes = partial(_Change, Old, fill=_fill_boxes, write_old=_write_boxes(Old, Box))
    for new in (Moved, Reindexed):
        yield of_boxes(new, write_new=_write_boxes(new, Box), options={})
    inserting = _write_boxes(Stated, _crate, is_only_inserting=True)
    yield of_boxes(Stated, write_new=inserting, options={"conversions": {"boxes": ENLARGED}})
    renamed = {"renames": {"numbers": "tickets"}, "drops": ["gone"]}
    yield _Change(Guests, People, _fill_guests, _write_guests, _write_people, renamed, leases=1)


def migrations() -> Iterator[Scene]:
    """A migration before its switch, after it, its clean-up, and all of it: of keys, of values, of indexes, of leases."""
    plain = partial(KillScenario, profile=SMALL)
    for change in _changes():
        yield Scene(
            f"migrate to {change.name}",
            plain(
                job=change.migrate,
                setup=change.fill,
                beside=change.write_old,
                compared=_without_runs,
            ),
        )
        yield Scene(
            f"switch to {change.name}",
            plain(
                job=change.switch,
                setup=_one_after_the_other(change.fill, change.migrate),
                beside=change.write_new,
                compared=_without_runs,
            ),
        )
        slow = plain(
            job=change.switch,
            setup=_one_after_the_other(change.fill, change.migrate),
            compared=_without_runs,
            step_seconds=2.0,
        )
        yield Scene(f"switch to {change.name}, slow", slow, is_long=change.new is not People)
        yield Scene(
            f"clean up after {change.name}",
            plain(
                job=change.clean_up,
                setup=_one_after_the_other(change.fill, change.migrate, change.switch),
                beside=change.write_new,
                holds=change.is_over,
            ),
        )
        everything = plain(job=change.carry_out, setup=change.fill, holds=change.is_over)
        yield Scene(f"all of {change.name}", everything, is_long=change.new is not People)


def _one_after_the_other(*acts: Callable[[Store], object]) -> Callable[[Store], None]:
    def all_of_them(store: Store) -> None:
        for act in acts:
            act(store)

    return all_of_them


def _crate(name: str, tags: list[str]) -> Crate:
    return Crate(name, 1, tags)


def _fill_boxes(store: Store) -> None:
    fill(store, 3)


def _write_boxes(
    layout: type[Layout], value: Callable[[str, list[str]], object], *, is_only_inserting: bool = False
) -> Callable[[Store], None]:
    """What an application does by a layout: a record comes, one changes."""

    def write_boxes(store: Store) -> None:
        boxes = layout(store).view("boxes")
        boxes.insert(Shelf("b", 9), value("new", ["red"]))
        if not is_only_inserting:
            boxes.put(Shelf("a", 0), value("changed", ["blue"]))

    return write_boxes


def _fill_guests(store: Store) -> None:
    lease = store.engine.lease(100_000.0).id
    guests = Guests(store)
    for number in range(3):
        guests.members.insert(f"m{number}", Blade(f"s{number}"), lease=lease)
    guests.numbers.next(3)
    guests.gone.insert("away", "x")


def _write_guests(store: Store) -> None:
    Guests(store).members.put("m1", Blade("changed"), lease=1)
    Guests(store).numbers.next()


def _write_people(store: Store) -> None:
    People(store).members.insert("m9", Blade("new"), lease=1)


def _without_runs(store: Store) -> object:
    """All but the names and times of runs, and hints where to go on, which a run without work does not write."""
    found = {key: value for key, value in dump(store).items() if not key.startswith(b"\x00km")}
    migrations = Migrations(store)
    states = [structs.replace(state, run="", begun_at="", touched_at="") for _, state in migrations.states.list()]
    turns = [structs.replace(turn, run="") for _, turn in migrations.turns.list()]
    kept = [list(view.list()) for view in (migrations.marks, migrations.layouts)]
    return [found, states, turns, kept]
