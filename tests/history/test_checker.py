"""The checker finds what is wrong: histories written by hand, each of which breaks one promise, and one that breaks none."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from keyplan.engine import ALL_KEYS, Delete, Entry, Event, EventKind, KeyAbsent, KeyRange, KeyUnchanged, Put
from keyplan.testing.history import (
    NEVER,
    Act,
    Failure,
    Fault,
    History,
    Outcome,
    Read,
    Record,
    Truth,
    Watched,
    Write,
    Wrong,
    check_history,
    encode_record,
    read_records,
    tagged_guard,
    tagged_mutation,
)

# The store is at revision 10, and empty. 11 writes a and b together, 12 writes a again, 13 deletes b and marks c.
A11 = Entry(b"a", b"~p.1~", 11, 11, 1, 0)
B11 = Entry(b"b", b"~p.1~", 11, 11, 1, 0)
A12 = Entry(b"a", b"~q.1~", 11, 12, 2, 0)
C13 = Entry(b"c", b"~p.3~", 13, 13, 1, 0)
CREATED_A = Event(EventKind.CREATED, b"a", 11, A11, None)
CREATED_B = Event(EventKind.CREATED, b"b", 11, B11, None)
UPDATED_A = Event(EventKind.UPDATED, b"a", 12, A12, A11)
DELETED_B = Event(EventKind.DELETED, b"b", 13, None, B11)
CREATED_C = Event(EventKind.CREATED, b"c", 13, C13, None)
LOG = (CREATED_A, CREATED_B, UPDATED_A, DELETED_B, CREATED_C)

ONE_KEY = KeyRange(b"a", b"a\x00")
ABSENT_A = (tagged_guard(KeyAbsent(b"a")),)
UNCHANGED_A = (tagged_guard(KeyUnchanged(b"a", 11)),)
PUT_BOTH = (tagged_mutation(Put(b"a", b"~p.1~")), tagged_mutation(Put(b"b", b"~p.1~")))
PUT_A = (tagged_mutation(Put(b"a", b"~q.1~")),)
PUT_C = (tagged_mutation(Delete(b"b")), tagged_mutation(Put(b"c", b"~p.3~")))
PUT_LOST = (tagged_mutation(Put(b"a", b"~q.9~")),)

FIRST = Write("p", 1, 1.0, 2.0, ABSENT_A, PUT_BOTH, Outcome.ACKNOWLEDGED, 11)
SECOND = Write("q", 1, 3.0, 4.0, UNCHANGED_A, PUT_A, Outcome.ACKNOWLEDGED, 12)
LATE = Write("q", 2, 4.5, 5.0, UNCHANGED_A, PUT_LOST, Outcome.CONFLICT, 0, (Failure(0, b"a", 12),))
THIRD = Write("p", 3, 6.0, NEVER, (), PUT_C, Outcome.UNKNOWN)
BEFORE = Truth(10, entries=())
AFTER = Truth(13, entries=(A12, C13))
TRUE: list[Record] = [
    BEFORE,
    Truth(13, LOG),
    AFTER,
    FIRST,
    SECOND,
    LATE,
    THIRD,
    Read("p", 2.1, 2.9, 11, ALL_KEYS, (A11, B11)),
    Read("p", 2.5, 4.2, 12, ONE_KEY, (A12,)),
    Read("p", 4.1, 4.2, 12, ALL_KEYS, (B11,), 1, is_reversed=True),
    Watched("q", 7, ALL_KEYS, 10, 1.0, 4.4, 12, (CREATED_A, CREATED_B, UPDATED_A)),
    Watched("q", 7, ALL_KEYS, 10, 5.0, 8.0, 13, (DELETED_B, CREATED_C)),
    Watched("q", 8, ONE_KEY, 11, 5.0, 8.0, 13, (UPDATED_A,)),
    Act("p", 1, "put both", "~p.1~", 0.9, 2.1, Outcome.ACKNOWLEDGED, 11),
    Act("p", 3, "mark", "~p.3~", 5.9, 7.0, Outcome.UNKNOWN),
    Act("q", 2, "compare and set", "~q.9~", 4.4, 5.1, Outcome.REFUSED),
    Fault(2.0, "kill the leader", "m1"),
]


def wrongs(records: list[Record]) -> set[Wrong]:
    """What the checker finds."""
    return {finding.wrong for finding in check_history(History(records))}


def changed(old: Record, **changes: object) -> list[Record]:
    """The true history with one record changed."""
    assert old in TRUE
    new: Record = msgspec.structs.replace(old, **changes)
    return [new if record == old else record for record in TRUE]


def with_log(*events: Event) -> list[Record]:
    """The true history with another log."""
    return changed(TRUE[1], events=events)


def test_a_true_history_holds() -> None:
    assert check_history(History(TRUE)) == []


def test_an_unknown_commit_may_not_have_happened() -> None:
    records: list[Record] = [
        BEFORE,
        Truth(12, LOG[:3]),
        Truth(12, entries=(A12, B11)),
        FIRST,
        SECOND,
        THIRD,
    ]
    assert check_history(History(records)) == []


def test_a_snapshot_may_be_older_than_what_was_written_after_it_was_taken() -> None:
    assert wrongs([*TRUE, Read("r", 2.5, 9.0, 11, ALL_KEYS, (A11, B11))]) == set()


def test_a_watch_may_begin_before_the_log() -> None:
    earlier = Event(EventKind.CREATED, b"a", 9, Entry(b"a", b"", 9, 9, 1, 0), None)
    events = (earlier, CREATED_A, UPDATED_A)
    assert wrongs([*TRUE, Watched("r", 1, ONE_KEY, 8, 5.0, 8.0, 12, events)]) == set()
    assert wrongs([*TRUE, Watched("r", 1, ONE_KEY, 8, 5.0, 8.0, 12, (earlier, UPDATED_A))]) == {Wrong.WATCH}


def test_a_commit_without_an_effect_has_no_revision_of_its_own() -> None:
    idle = Write("r", 1, 4.1, 4.2, (), (tagged_mutation(Delete(b"z")),), Outcome.ACKNOWLEDGED, 12)
    assert wrongs([*TRUE, idle]) == set()
    assert wrongs([*TRUE, msgspec.structs.replace(idle, revision=11)]) == {Wrong.TIME}


ELSEWHERE = Entry(b"a", b"~q.1~", 11, 12, 2, 5)
BROKEN: dict[str, tuple[Callable[[], list[Record]], set[Wrong]]] = {
    "an acknowledged write is lost": (
        lambda: [*TRUE, Write("r", 1, 6.0, 9.0, (), PUT_LOST, Outcome.ACKNOWLEDGED, 13)],
        {Wrong.LOST},
    ),
    "an acknowledged write is at another revision": (
        lambda: changed(SECOND, revision=13),
        {Wrong.LOST, Wrong.TWICE, Wrong.TIME},
    ),
    "two clients were told the same revision": (
        lambda: [*TRUE, Write("r", 1, 3.0, 4.0, (), PUT_A, Outcome.ACKNOWLEDGED, 12)],
        {Wrong.LOST},
    ),
    "an unknown write happened twice": (
        lambda: [
            BEFORE,
            Truth(
                12,
                (
                    Event(EventKind.CREATED, b"a", 11, A11, None),
                    Event(EventKind.UPDATED, b"a", 12, Entry(b"a", b"~p.1~", 11, 12, 2, 0), A11),
                ),
            ),
            Truth(12, entries=(Entry(b"a", b"~p.1~", 11, 12, 2, 0),)),
            Write("p", 1, 1.0, NEVER, (), PUT_BOTH[:1], Outcome.UNKNOWN),
        ],
        {Wrong.TWICE},
    ),
    "an acknowledged write happened again": (
        lambda: [
            *TRUE[:1],
            Truth(14, (*LOG, Event(EventKind.UPDATED, b"a", 14, Entry(b"a", b"~q.1~", 11, 14, 3, 0), A12))),
            Truth(14, entries=(Entry(b"a", b"~q.1~", 11, 14, 3, 0), C13)),
            *TRUE[3:],
        ],
        {Wrong.TWICE},
    ),
    "half of a transaction is there": (
        lambda: [BEFORE, Truth(11, (CREATED_A,)), Truth(11, entries=(A11,)), FIRST],
        {Wrong.LOST, Wrong.HALF},
    ),
    "half of an unknown transaction is there": (
        lambda: [
            BEFORE,
            Truth(11, (CREATED_A,)),
            Truth(11, entries=(A11,)),
            msgspec.structs.replace(FIRST, outcome=Outcome.UNKNOWN, revision=0),
        ],
        {Wrong.HALF},
    ),
    "a refused write is there": (
        lambda: changed(THIRD, outcome=Outcome.REFUSED, end=7.0),
        {Wrong.REFUSED},
    ),
    "a write that had a conflict is there": (
        lambda: changed(
            THIRD,
            outcome=Outcome.CONFLICT,
            end=7.0,
            guards=(tagged_guard(KeyAbsent(b"a")),),
            failed=(Failure(0, b"a", 12),),
        ),
        {Wrong.REFUSED},
    ),
    "a revision that nobody made": (lambda: [record for record in TRUE if record != THIRD], {Wrong.STRANGER}),
    "a write on a lease that nobody asked for": (
        lambda: [
            BEFORE,
            Truth(12, (*LOG[:2], msgspec.structs.replace(UPDATED_A, entry=ELSEWHERE))),
            Truth(12, entries=(ELSEWHERE, B11)),
            FIRST,
            SECOND,
        ],
        {Wrong.LOST, Wrong.HALF},
    ),
    "a commit whose guard did not hold": (
        lambda: changed(SECOND, guards=(tagged_guard(KeyUnchanged(b"a", 10)),)),
        {Wrong.GUARD},
    ),
    "an unknown commit whose guard did not hold": (lambda: changed(THIRD, guards=ABSENT_A), {Wrong.GUARD}),
    "a conflict where there was none": (
        lambda: changed(LATE, guards=(tagged_guard(KeyUnchanged(b"a", 12)),)),
        {Wrong.CONFLICT},
    ),
    "a conflict that tells a wrong revision": (
        lambda: changed(LATE, failed=(Failure(0, b"a", 11),)),
        {Wrong.CONFLICT},
    ),
    "a conflict that names one guard of two": (
        lambda: changed(LATE, guards=(*UNCHANGED_A, *ABSENT_A)),
        {Wrong.CONFLICT},
    ),
    "a conflict of a time that is over": (
        lambda: changed(LATE, guards=ABSENT_A, failed=(Failure(0, b"a", 11),)),
        {Wrong.CONFLICT},
    ),
    "a revision that goes backwards": (
        lambda: [
            msgspec.structs.replace(SECOND, begin=0.1, end=0.2) if record == SECOND else record for record in TRUE
        ],
        {Wrong.TIME},
    ),
    "an unknown write that is older than its beginning": (
        lambda: [*TRUE, Read("r", 4.0, 5.5, 13, ONE_KEY, (A12,))],
        {Wrong.TIME},
    ),
    "a stale read": (lambda: [*TRUE, Read("r", 4.1, 4.2, 11, ONE_KEY, (A11,))], {Wrong.TIME}),
    "a read that goes behind another read": (
        lambda: [*TRUE, Read("r", 6.5, 6.6, 13, ONE_KEY, (A12,)), Read("r", 6.7, 6.8, 12, ONE_KEY, (A12,))],
        {Wrong.TIME},
    ),
    "a read that goes behind a watch": (
        lambda: [*TRUE, Read("r", 8.1, 8.2, 12, ONE_KEY, (A12,))],
        {Wrong.TIME},
    ),
    "a read of what was written later": (
        lambda: [*TRUE, Read("r", 2.1, 2.2, 12, ONE_KEY, (A12,))],
        {Wrong.TIME},
    ),
    "a read of another value": (
        lambda: [*TRUE, Read("r", 2.1, 2.2, 11, ONE_KEY, (A11._replace(value=b"x"),))],
        {Wrong.READ},
    ),
    "a list that leaves a record out": (lambda: [*TRUE, Read("r", 2.1, 2.2, 11, ALL_KEYS, (A11,))], {Wrong.READ}),
    "a list that shows a deleted record": (
        lambda: [*TRUE, Read("r", 7.0, 9.0, 13, ALL_KEYS, (A12, B11, C13))],
        {Wrong.READ},
    ),
    "a list that mixes two revisions": (
        lambda: [*TRUE, Read("r", 2.1, 4.9, 11, ALL_KEYS, (A12, B11))],
        {Wrong.READ},
    ),
    "an event delivered twice": (
        lambda: [*TRUE, Watched("r", 1, ONE_KEY, 11, 5.0, 9.0, 13, (UPDATED_A, UPDATED_A))],
        {Wrong.WATCH},
    ),
    "an event delivered again by the next poll": (
        lambda: [
            *TRUE,
            Watched("r", 1, ONE_KEY, 11, 5.0, 6.0, 12, (UPDATED_A,)),
            Watched("r", 1, ONE_KEY, 11, 6.0, 9.0, 13, (UPDATED_A,)),
        ],
        {Wrong.WATCH},
    ),
    "an event left out": (lambda: [*TRUE, Watched("r", 1, ALL_KEYS, 12, 5.0, 9.0, 13, (CREATED_C,))], {Wrong.WATCH}),
    "events out of order": (
        lambda: [*TRUE, Watched("r", 1, ALL_KEYS, 12, 5.0, 9.0, 13, (CREATED_C, DELETED_B))],
        {Wrong.WATCH},
    ),
    "an event of another range": (
        lambda: [*TRUE, Watched("r", 1, ONE_KEY, 12, 5.0, 9.0, 13, (CREATED_C,))],
        {Wrong.WATCH},
    ),
    "an event that tells another value before": (
        lambda: [
            *TRUE,
            Watched("r", 1, ONE_KEY, 11, 5.0, 9.0, 12, (msgspec.structs.replace(UPDATED_A, previous=None),)),
        ],
        {Wrong.WATCH},
    ),
    "a watch that goes backwards": (
        lambda: [*TRUE, Watched("r", 1, ONE_KEY, 13, 5.0, 9.0, 12)],
        {Wrong.WATCH},
    ),
    "a log with a gap": (
        lambda: with_log(CREATED_A, CREATED_B, DELETED_B, CREATED_C),
        {Wrong.LOG, Wrong.LOST, Wrong.CONFLICT, Wrong.READ, Wrong.WATCH},
    ),
    "a log with an event twice": (lambda: with_log(*LOG, CREATED_C), {Wrong.LOG, Wrong.WATCH}),
    "a log that does not lead to what is stored": (
        lambda: changed(AFTER, entries=(A12, B11, C13)),
        {Wrong.LOG},
    ),
    "no log": (lambda: TRUE[3:], {Wrong.LOG}),
    "a typed operation that was done twice": (
        lambda: [
            *TRUE,
            Act("r", 1, "append", "~r.1~", 1.0, NEVER, Outcome.UNKNOWN),
            Truth(
                15,
                (
                    Event(EventKind.CREATED, b"x", 14, Entry(b"x", b"[~r.1~]", 14, 14, 1, 0), None),
                    Event(EventKind.CREATED, b"y", 15, Entry(b"y", b"[~r.1~]", 15, 15, 1, 0), None),
                ),
            ),
        ],
        {Wrong.ACT, Wrong.STRANGER, Wrong.LOG},
    ),
    "a typed operation that was acknowledged and is not there": (
        lambda: [*TRUE, Act("r", 1, "append", "~r.1~", 1.0, 2.0, Outcome.ACKNOWLEDGED, 11)],
        {Wrong.ACT},
    ),
    "a typed operation that was refused and is there": (
        lambda: [*TRUE, Act("r", 1, "append", "~q.1~", 1.0, 2.0, Outcome.REFUSED)],
        {Wrong.ACT},
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_history_is_found_out(name: str) -> None:
    build, expected = BROKEN[name]
    assert wrongs(build()) == expected


def test_a_history_reads_back_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "client.jsonl"
    path.write_bytes(b"".join(map(encode_record, TRUE)))
    assert list(read_records(path)) == TRUE


def test_an_operation_that_was_begun_and_not_ended_is_unknown(tmp_path: Path) -> None:
    path = tmp_path / "client.jsonl"
    begun = msgspec.structs.replace(FIRST, outcome=Outcome.UNKNOWN, end=NEVER, revision=0)
    path.write_bytes(encode_record(begun) + encode_record(FIRST)[:-1])
    assert History(read_records(path)).writes == [begun]
    path.write_bytes(encode_record(begun) + encode_record(FIRST))
    assert History(read_records(path)).writes == [FIRST]
