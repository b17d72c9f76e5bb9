"""The lines of maintenance: builds, drops, repairs, migrations, backups, restores and copies beside writers and one another."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import combinations_with_replacement, groupby

import msgspec

from keyplan.engine import Entry
from keyplan.errors import InvalidInputError
from keyplan.jobs import UNPACED
from keyplan.maintenance import FindingKind, build_index, check, drop_index, prepare_index
from keyplan.store import Store
from keyplan.testing.schedules import (
    ACTOR_ERRORS,
    Actor,
    Invariant,
    Outcome,
    Preemptions,
    Scenario,
    actor,
    healthy,
    settles,
)
from tests.maintenance.layouts import Blade, BladeKey, Site, dump, write
from tests.schedules.lines import Line, line_name
from tests.schedules.matrix_transfers import TRANSFER_GROUPS
from tests.schedules.scenes import build, drop, repairs
from tests.schedules.writers import ONE, TWO, WRITERS, two_records

__all__ = ["MAINTENANCE_GROUPS"]

Act = Callable[[Store], object]

RECORD_WRITERS = (
    "insert new",
    "insert taken",
    "put new",
    "put other",
    "modify",
    "delete",
    "rename",
    "rename other",
    "swap",
)
MAY_BE_READABLE = (*ACTOR_ERRORS, InvalidInputError)
"""What a build raises, too, that finds its index readable."""

REPAIRED = (
    FindingKind.MISSING_ENTRY,
    FindingKind.DANGLING_ENTRY,
    FindingKind.STALE_ENTRY,
    FindingKind.WRONG_ENTRY,
)
_SERIALS = b"/site/by-serial/"


def unbuilt(store: Store) -> None:
    """Two records, and their unique index as if it were new."""
    two_records(store)
    prepare_index(store, Site(store), "by_serial")
    write(store, *[key for key in dump(store) if key.startswith(_SERIALS)])


def write_only(store: Store) -> None:
    """Two records, and their unique index whole, but not readable."""
    two_records(store)
    prepare_index(store, Site(store), "by_serial")


def missing(store: Store) -> None:
    two_records(store)
    write(store, _SERIALS + b"s1")


def dangling(store: Store) -> None:
    two_records(store)
    write(store, puts={_SERIALS + b"s3": b"rack/r/blades/3"})


def stale(store: Store) -> None:
    two_records(store)
    write(store, puts={_SERIALS + b"s3": b"rack/r/blades/1"})


def wrong(store: Store) -> None:
    """A third record whose entry points at the first."""
    two_records(store)
    WRITERS["insert new"](store)
    write(store, puts={_SERIALS + b"s3": b"rack/r/blades/1"})


def half_built(store: Store) -> None:
    """An index that is write-only, whose entries point elsewhere: at a record that does not call for it, at none."""
    write_only(store)
    write(store, puts={_SERIALS + b"s1": b"rack/r/blades/2", _SERIALS + b"s2": b"rack/r/blades/9"})


def one_wrong(store: Store) -> None:
    """An index that is write-only and whole, but for an entry that points at the other record."""
    write_only(store)
    write(store, puts={_SERIALS + b"s1": b"rack/r/blades/2"})


def _insert_ninth(store: Store) -> None:
    """The record that an entry of `half_built` points at comes."""
    Site(store).blades.insert(BladeKey("r", "9"), Blade("s2"))


def _second_calls_for_first(store: Store) -> None:
    """As above, and it is the record that did not call for it."""
    Site(store).blades.put(TWO, Blade("s1"))


def _first_calls_for_third(store: Store) -> None:
    """The record that the entry of `wrong` points at calls for it from now on."""
    Site(store).blades.put(ONE, Blade("s3"))


def _repair_wrong_first(store: Store) -> None:
    """Put entries right in their place; a repair of all kinds removes what points elsewhere before it writes."""
    repairs(FindingKind.WRONG_ENTRY)(store)
    repairs(*REPAIRED)(store)


def _repair_and_insert_taken(store: Store) -> None:
    """An entry goes, and comes again for another record."""
    repairs(*REPAIRED)(store)
    WRITERS["insert taken"](store)


def _remove_stale_and_insert_taken(store: Store) -> None:
    """An entry that points at a record which does not call for it goes, and comes again for a third record."""
    repairs(FindingKind.STALE_ENTRY)(store)
    WRITERS["insert taken"](store)


def _prepare(store: Store) -> None:
    prepare_index(store, Site(store), "by_serial")


def _drop_tags(store: Store) -> None:
    drop_index(store, Site(store), "by_tag")


def _build_tags(store: Store) -> None:
    build_index(store, Site(store), "by_tag", pace=UNPACED)


def _prepare_and_build(store: Store) -> None:
    _prepare(store)
    build(store)


ACTS: dict[str, Act] = {
    **{name: WRITERS[name] for name in RECORD_WRITERS},
    "build": build,
    "drop": drop,
    "drop tags": _drop_tags,
    "build tags": _build_tags,
    "prepare": _prepare,
    "prepare and build": _prepare_and_build,
    "repair": repairs(*REPAIRED),
    "insert ninth": _insert_ninth,
    "second calls for first": _second_calls_for_first,
    "first calls for third": _first_calls_for_third,
    "repair wrong first": _repair_wrong_first,
    "repair and insert taken": _repair_and_insert_taken,
    "remove stale and insert taken": _remove_stale_and_insert_taken,
}


CONTESTING = {
    "insert taken",
    "put other",
    "insert ninth",
    "second calls for first",
    "first calls for third",
    "repair and insert taken",
    "remove stale and insert taken",
}
"""Writers whose unique value another record may claim while the index is not kept whole: that is for people to decide."""


def sound_for(names: Sequence[str]) -> Invariant:
    """Nothing is found, but for two records that claim one entry where a writer may bring that about.

    And no unique entry was ever taken from a record that calls for it.
    """
    if not CONTESTING & set(names):
        whole = healthy(Site)

        def healthy_all_along(outcome: Outcome) -> None:
            whole(outcome)
            no_entry_was_taken(outcome)

        return healthy_all_along

    def sound(outcome: Outcome) -> None:
        found = [finding for finding in check(outcome.store, Site(outcome.store)) if not finding.kind.is_note]
        wrong = [str(finding) for finding in found if finding.kind is not FindingKind.CONTESTED_ENTRY]
        assert not wrong, "\n".join(wrong)
        no_entry_was_taken(outcome)

    return sound


def no_entry_was_taken(outcome: Outcome) -> None:
    """Whoever wrote a unique entry first keeps it, as long as its record calls for it."""
    stored: dict[bytes, Entry] = {}
    begun = outcome.scenario.template.memories[0].revision
    by_revision = groupby(outcome.history(), key=lambda event: event.revision)
    for revision, events in by_revision:
        changes = list(events)
        for event in changes:
            if event.entry is None:
                stored.pop(event.key, None)
            else:
                stored[event.key] = event.entry
        for event in changes:
            is_of_set_up = revision <= begun
            if is_of_set_up or event.entry is None or event.previous is None or not event.key.startswith(_SERIALS):
                continue
            loser = stored.get(b"/site/" + event.previous.value)
            if event.entry.value != event.previous.value and loser is not None:
                serial = msgspec.json.decode(loser.value, type=Blade).serial
                assert serial != event.key.removeprefix(_SERIALS).decode(), (
                    f"taken: revision {revision} takes {event.key!r} from {event.previous.value!r}, which calls for it"
                )


def of_acts(
    names: Sequence[str],
    setup: Act,
    *,
    invariants: Sequence[Invariant] = (),
    faults: dict[str, str] | str = "",
    only_raises: tuple[type[BaseException], ...] = MAY_BE_READABLE,
) -> Scenario:
    actors: list[Actor] = [actor(ACTS[name], name) for name in names]
    return Scenario(
        *actors,
        setup=setup,
        layouts=[Site],
        invariants=(*invariants, sound_for(names)),
        faults=faults,
        only_raises=only_raises,
    )


def builds() -> Iterator[Line]:
    """Each writer beside a build of a unique index."""
    for name in RECORD_WRITERS:
        yield Line(line_name(name, "build"), partial(of_acts, (name, "build"), unbuilt))
    for name in ("insert ninth", "second calls for first", "put new", "delete"):
        yield Line(line_name(name, "build of the half built"), partial(of_acts, (name, "build"), half_built))
    for name in ("second calls for first", "delete", "swap"):
        yield Line(line_name(name, "build of one wrong"), partial(of_acts, (name, "build"), one_wrong))
    for name in ("repair and insert taken", "repair"):
        yield Line(
            line_name(name, "build of the half built"),
            partial(of_acts, (name, "build"), half_built),
            Preemptions(2, is_hashed=False),
        )
    for name in ("put new", "delete"):
        # Why: what one builder read before, it writes after the other one has swept.
        yield Line(
            line_name(name, "build", "build, one preemption"),
            partial(of_acts, (name, "build", "build"), unbuilt),
            Preemptions(1, is_hashed=False),
        )


def repairs_of_faults() -> Iterator[Line]:
    """Each writer beside a check and a repair of a missing, dangling and stale entry."""
    for setup in (missing, dangling, stale):
        for name in RECORD_WRITERS:
            yield Line(line_name(name, f"repair of {setup.__name__}"), partial(of_acts, (name, "repair"), setup))
    for name in ("insert ninth", "second calls for first", "repair and insert taken", "repair"):
        for setup in (wrong, half_built):
            yield Line(line_name(name, f"repair of {setup.__name__}"), partial(of_acts, (name, "repair"), setup))
    beside = ("insert ninth", "second calls for first", "put new", "delete", "rename", "swap", "repair")
    for name in (*beside, "remove stale and insert taken"):
        names = (name, "repair wrong first")
        yield Line(line_name(*names, "half built"), partial(of_acts, names, half_built))
    for name in ("first calls for third", "modify", "repair"):
        names = (name, "repair wrong first")
        yield Line(line_name(*names, "wrong"), partial(of_acts, names, wrong))


def drops() -> Iterator[Line]:
    """Each writer beside a drop of the unique index, and of the one of tags."""
    for which in ("drop", "drop tags"):
        for name in RECORD_WRITERS:
            yield Line(line_name(name, which), partial(of_acts, (name, which), two_records))


def maintainers() -> Iterator[Line]:
    """Maintainers beside one another, on an index that is write-only, and on one that is readable."""
    for names in combinations_with_replacement(("build", "drop", "repair", "prepare"), 2):
        bound = Preemptions(2) if names == ("build", "build") else None
        yield Line(line_name(*names, "write-only"), partial(of_acts, names, unbuilt), bound, is_long=bound is not None)
    for names in combinations_with_replacement(("drop", "prepare and build", "repair"), 2):
        bound = Preemptions(2) if names == ("prepare and build", "prepare and build") else None
        yield Line(
            line_name(*names, "readable"), partial(of_acts, names, two_records), bound, is_long=bound is not None
        )
    yield Line("drop tags x build tags, readable", partial(of_acts, ("drop tags", "build tags"), two_records))
    yield Line("drop x build, readable", partial(of_acts, ("drop", "build"), two_records))


def threes() -> Iterator[Line]:
    """A writer beside a build and a repair, a prepare, another build."""
    for name in ("put new", "delete", "insert new", "rename", "swap"):
        for third in ("repair", "prepare"):
            yield Line(line_name(name, "build", third), partial(of_acts, (name, "build", third), unbuilt), is_long=True)
        yield Line(
            line_name(name, "build", "build"),
            partial(of_acts, (name, "build", "build"), unbuilt),
            Preemptions(2),
            is_long=True,
        )


def _build_to_the_end(store: Store) -> None:
    try:
        build(store)
    except InvalidInputError:
        return  # it is readable already


def broken_builds() -> Iterator[Line]:
    """A build with each fault at each call beside a writer; the next build ends it."""
    for name in ("put new", "delete", "insert new", "rename", "swap"):
        yield Line(
            line_name(name, "broken build"),
            partial(
                of_acts,
                (name, "build"),
                unbuilt,
                invariants=(settles(_build_to_the_end),),
                faults={"build": "cun"},
            ),
            is_long=True,
        )


MAINTENANCE_GROUPS: dict[str, Callable[[], Iterator[Line]]] = {
    "builds": builds,
    "repairs": repairs_of_faults,
    "drops": drops,
    "maintainers": maintainers,
    "threes": threes,
    "broken builds": broken_builds,
    **TRANSFER_GROUPS,
}
