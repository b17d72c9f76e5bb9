"""The lines of maintenance: builds, drops, repairs, migrations, backups, restores and copies beside writers and one another."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import combinations_with_replacement

from keyplan.errors import InvalidInputError
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
from tests.maintenance.layouts import Site, dump, write
from tests.schedules.lines import Line, line_name
from tests.schedules.matrix_transfers import TRANSFER_GROUPS
from tests.schedules.scenes import build, drop, repairs
from tests.schedules.writers import WRITERS, two_records

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


def _prepare(store: Store) -> None:
    prepare_index(store, Site(store), "by_serial")


def _drop_tags(store: Store) -> None:
    drop_index(store, Site(store), "by_tag")


def _build_tags(store: Store) -> None:
    build_index(store, Site(store), "by_tag")


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
}


CONTESTING = {"insert taken", "put other"}
"""Writers whose unique value another record may claim while the index is not kept whole: that is for people to decide."""


def sound_for(names: Sequence[str]) -> Invariant:
    """Nothing is found, but for two records that claim one entry where a writer may bring that about."""
    if not CONTESTING & set(names):
        return healthy(Site)

    def sound(outcome: Outcome) -> None:
        found = [finding for finding in check(outcome.store, Site(outcome.store)) if not finding.kind.is_note]
        wrong = [str(finding) for finding in found if finding.kind is not FindingKind.CONTESTED_ENTRY]
        assert not wrong, "\n".join(wrong)

    return sound


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


def repairs_of_faults() -> Iterator[Line]:
    """Each writer beside a check and a repair of a missing, dangling and stale entry."""
    for setup in (missing, dangling, stale):
        for name in RECORD_WRITERS:
            yield Line(line_name(name, f"repair of {setup.__name__}"), partial(of_acts, (name, "repair"), setup))


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
