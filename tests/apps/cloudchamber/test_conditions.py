"""Several records under conditions on their revisions; AC numbers are those of the specification's section 7."""

import threading

import pytest

from keyplan.apps.cloudchamber import Blade, BladeKey, Capacity, CloudChamber, User
from keyplan.apps.cloudchamber.conditions import (
    ANY,
    NEW,
    REQUIRED,
    Address,
    Relation,
    RevisionCondition,
    at_revision,
    delete_records,
    read_records,
    write_records,
)
from keyplan.errors import AlreadyExistsError, InvalidInputError, NotFoundError, StaleRecordError

BOB = Address("users", "bob")
BLADES = [Address("blades", BladeKey("rack1", number)) for number in (1, 2)]


def user(number: int) -> User:
    return User(name="bob", user_id=number)


def test_creating_what_is_there_names_it_and_changes_nothing(chamber: CloudChamber) -> None:
    """AC-22."""
    revision = write_records(chamber, {BOB: (user(1), NEW)})
    with pytest.raises(AlreadyExistsError) as caught:
        write_records(chamber, {BOB: (user(2), NEW)})
    assert (caught.value.key, caught.value.revision) == ("bob", revision)
    assert read_records(chamber, {BOB: REQUIRED}).records[BOB][1:4:2] == (user(1), revision)


def test_an_update_at_an_old_revision_tells_what_was_asked_and_what_is(chamber: CloudChamber) -> None:
    """AC-23, AC-24."""
    first = write_records(chamber, {BOB: (user(1), NEW)})
    second = write_records(chamber, {BOB: (user(2), at_revision(first))})
    with pytest.raises(StaleRecordError) as caught:
        write_records(chamber, {BOB: (user(3), at_revision(first))})
    facts = caught.value.facts
    assert (facts["expected_revision"], facts["condition"], facts["actual_revision"]) == (first, "==", second)
    assert chamber.users.require("bob") == user(2)
    assert write_records(chamber, {BOB: (user(4), ANY)}) > second


def test_deletes_at_a_revision_and_at_any(chamber: CloudChamber) -> None:
    """AC-25."""
    first = write_records(chamber, {BOB: (user(1), ANY)})
    revision = write_records(chamber, {BOB: (user(2), ANY)})
    for expected, actual in ((first, revision), (None, 0), (revision, 0)):
        if expected is None:
            delete_records(chamber, {BOB: at_revision(revision)})
            continue
        with pytest.raises(StaleRecordError) as caught:
            delete_records(chamber, {BOB: at_revision(expected)})
        assert caught.value.actual_revision == actual
    before = chamber.revision
    delete_records(chamber, {BOB: ANY})
    assert chamber.revision == before


def test_of_two_blades_one_is_absent(chamber: CloudChamber) -> None:
    """AC-27, AC-28."""
    one, two = BLADES
    revision = write_records(chamber, {one: (Blade(boot_on_power_on=True), NEW)})
    found = read_records(chamber, {one: ANY, two: ANY})
    assert (found.revision, list(found.records)) == (revision, [one])
    with pytest.raises(NotFoundError) as read:
        read_records(chamber, {one: REQUIRED, two: REQUIRED})
    with pytest.raises(NotFoundError) as deleted:
        delete_records(chamber, {one: REQUIRED, two: REQUIRED})
    assert read.value.key == deleted.value.key == BladeKey("rack1", 2)
    assert read_records(chamber, {one: REQUIRED}).records[one].revision == revision
    delete_records(chamber, {one: ANY, two: ANY})
    assert chamber.blades.count() == 0


def test_five_records_of_one_write_have_its_revision(chamber: CloudChamber) -> None:
    """AC-29."""
    addresses = [Address("users", f"user{number}") for number in range(5)]
    revision = write_records(chamber, {address: (User(), NEW) for address in addresses})
    found = read_records(chamber, dict.fromkeys(addresses, REQUIRED))
    assert [found.records[address].revision for address in addresses] == [revision] * 5


@pytest.mark.parametrize(
    ("relation", "offset", "holds"),
    [
        (Relation.EQUAL, 0, True),
        (Relation.EQUAL, 1, False),
        (Relation.NOT_EQUAL, 0, False),
        (Relation.NOT_EQUAL, 1, True),
        (Relation.LESS, 0, False),
        (Relation.LESS, 1, True),
        (Relation.LESS_OR_EQUAL, 0, True),
        (Relation.LESS_OR_EQUAL, -1, False),
        (Relation.GREATER_OR_EQUAL, 0, True),
        (Relation.GREATER_OR_EQUAL, 1, False),
        (Relation.GREATER, 0, False),
        (Relation.GREATER, -1, True),
    ],
)
def test_the_records_revision_is_compared_with_the_one_given(
    chamber: CloudChamber, relation: Relation, offset: int, *, holds: bool
) -> None:
    chamber.users.insert("first", User())
    revision = chamber.users.insert("bob", user(1))
    condition = {BOB: at_revision(revision + offset, relation)}
    if holds:
        assert read_records(chamber, condition).records[BOB].revision == revision
    else:
        with pytest.raises(StaleRecordError):
            read_records(chamber, condition)


@pytest.mark.parametrize(
    ("relation", "holds"),
    [(Relation.LESS, True), (Relation.LESS_OR_EQUAL, True), (Relation.NOT_EQUAL, True), (Relation.GREATER, False)],
)
def test_an_absent_record_compares_as_revision_0(chamber: CloudChamber, relation: Relation, *, holds: bool) -> None:
    if holds:
        assert read_records(chamber, {BOB: at_revision(1, relation)}).records == {}
    else:
        with pytest.raises(StaleRecordError):
            read_records(chamber, {BOB: at_revision(1, relation)})


def test_a_comparison_with_revision_0_is_refused_before_anything_is_written(chamber: CloudChamber) -> None:
    with pytest.raises(InvalidInputError):
        at_revision(0)
    with pytest.raises(InvalidInputError):
        write_records(chamber, {BOB: (user(1), RevisionCondition(Relation.EQUAL, 0))})
    with pytest.raises(InvalidInputError):
        at_revision(1, Relation.NEW)
    assert chamber.users.count() == 0


def test_reads_of_two_records_never_see_half_of_a_commit(chamber: CloudChamber) -> None:
    """AC-34, short: the writer stops when the reader has seen it change often enough."""
    one, two = BLADES
    done = threading.Event()

    def write() -> None:
        cores = 0
        while not done.is_set():
            cores += 1
            blade = Blade(capacity=Capacity(cores=cores))
            write_records(chamber, {one: (blade, ANY), two: (blade, ANY)})

    writer = threading.Thread(target=write)
    writer.start()
    try:
        seen: set[int] = set()
        while len(seen) < 20:
            found = read_records(chamber, {one: ANY, two: ANY}).records
            assert len(found) in {0, 2}
            if found:
                assert found[one].record == found[two].record
                assert found[one].revision == found[two].revision
                seen.add(found[one].revision)
    finally:
        done.set()
        writer.join()
