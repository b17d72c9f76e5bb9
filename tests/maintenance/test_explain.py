"""What is known about one raw key: meaning, record, entries it should have and has, history, lease."""

import pytest

from keyplan.layout import Kind
from keyplan.maintenance import DueEntry, EntryState, FindingKind, PointedAt, explain_key
from keyplan.store import Store
from tests.maintenance.layouts import Blade, Colliding, Site, write

BLADE_1 = b"/site/rack/r1/blades/1"


def test_a_record_is_explained_with_the_entries_that_it_should_have_and_has(store: Store, site: Site) -> None:
    write(
        store,
        b"/site/by-tag/blue/r1/1",
        puts={b"/site/by-serial/s1": b"rack/r2/blades/1"},
    )
    explanation = explain_key(store.engine, site, BLADE_1)
    assert explanation.meaning.kind is Kind.RECORD
    assert explanation.meaning.fields == {"rack": "r1", "slot": "1"}
    assert explanation.record == Blade("s1", ["red", "blue"])
    assert explanation.entries == (
        DueEntry("by_serial", b"/site/by-serial/s1", EntryState.OF_ANOTHER_RECORD),
        DueEntry("by_tag", b"/site/by-tag/red/r1/1", EntryState.PRESENT),
        DueEntry("by_tag", b"/site/by-tag/blue/r1/1", EntryState.MISSING),
    )
    assert explanation.entry is not None
    assert (explanation.entry.version, explanation.entry.create_revision) == (1, 1)


def test_a_leased_record_is_explained_with_the_life_of_its_lease(store: Store, site: Site) -> None:
    lease = store.engine.lease(600.0)
    site.members.put("m", Blade("x"), lease=lease.id)
    write(store, puts={b"/site/member-serial/x": b"m"})
    explanation = explain_key(store.engine, site, b"/site/members/m")
    assert explanation.entry is not None
    assert explanation.entry.lease == lease.id
    assert explanation.lease_ttl_seconds == 600.0
    assert explanation.lease_seconds_left is not None
    assert 540 < explanation.lease_seconds_left <= 600
    assert [due.state for due in explanation.entries] == [EntryState.ON_ANOTHER_LEASE]


@pytest.mark.parametrize(
    ("value", "points_at", "state"),
    [
        (b"rack/r1/blades/1", BLADE_1, PointedAt.STRANGER),
        (b"rack/r9/blades/9", b"/site/rack/r9/blades/9", PointedAt.NOTHING),
        (b"rack/r3/blades/1", b"/site/rack/r3/blades/1", PointedAt.DAMAGED),
        (b"rack/r4/blades/1", b"/site/rack/r4/blades/1", PointedAt.RECORD),
        (b"junk", None, PointedAt.NOWHERE),
    ],
)
def test_an_index_entry_is_explained_with_what_it_points_at(
    store: Store, site: Site, value: bytes, points_at: bytes | None, state: PointedAt
) -> None:
    write(
        store,
        puts={
            b"/site/by-serial/s9": value,
            b"/site/rack/r3/blades/1": b"{",
            b"/site/rack/r4/blades/1": b'{"serial":"s9"}',
        },
    )
    explanation = explain_key(store.engine, site, b"/site/by-serial/s9")
    assert (explanation.points_at, explanation.pointed_at) == (points_at, state)


def test_a_counter_is_explained_with_its_next_number(store: Store, site: Site) -> None:
    site.ports.next()
    assert explain_key(store.engine, site, b"/site/next-port").next_number == 33001
    write(store, puts={b"/site/next-port": b"x"})
    assert explain_key(store.engine, site, b"/site/next-port").problem != ""


def test_what_cannot_be_read_is_said_and_is_no_error(store: Store, site: Site) -> None:
    write(store, puts={BLADE_1: b"{"})
    explanation = explain_key(store.engine, site, BLADE_1)
    assert (explanation.has_record, explanation.entries) == (False, ())
    assert [finding.kind for finding in explanation.findings] == [FindingKind.DAMAGED_RECORD]
    assert explanation.problem != ""


def test_a_record_that_does_not_fit_an_index_is_shown_with_the_problem(store: Store, site: Site) -> None:
    write(store, puts={BLADE_1: b'{"serial":"a/b"}'})
    explanation = explain_key(store.engine, site, BLADE_1)
    assert (explanation.has_record, explanation.entries) == (True, ())
    assert explanation.problem != ""


def test_a_key_with_two_readings_has_both(store: Store) -> None:
    write(store, puts={b"/c/a/b": b"text"})
    explanation = explain_key(store.engine, Colliding(store), b"/c/a/b")
    assert [meaning.item for meaning in explanation.meanings] == ["first", "second"]


def test_an_absent_or_unknown_key_has_a_meaning_all_the_same(store: Store, site: Site) -> None:
    absent = explain_key(store.engine, site, b"/site/rack/r7/blades/7")
    assert (absent.meaning.item, absent.entry, absent.findings) == ("blades", None, ())
    unknown = explain_key(store.engine, site, b"/site/rock")
    assert (unknown.meaning.kind, unknown.meanings) == (Kind.UNKNOWN, ())
