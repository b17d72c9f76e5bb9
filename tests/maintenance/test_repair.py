"""Repairs: planned before anything is done, one guarded commit each, nothing else touched, never against a writer."""

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import keyplan
from keyplan.engine import Commit, Delete, KeyAbsent, KeyUnchanged, MemoryEngine, Put, WrappedEngine
from keyplan.errors import EngineLimitError, InvalidRecordError, UniqueViolationError
from keyplan.maintenance import (
    FindingKind,
    Outcome,
    RepairResult,
    build_index,
    carry_out,
    check,
    drop_index,
    plan_repairs,
    prepare_index,
)
from keyplan.store import Backoff, Store
from tests.maintenance.layouts import Blade, BladeKey, Site, dump, write

BLADE_1 = b"/site/rack/r1/blades/1"
S1 = b"/site/by-serial/s1"


def repaired(store: Store, site: Site) -> list[str]:
    repairs = plan_repairs(store, site, check(store, site))
    return [outcome.result.value for outcome in carry_out(store, site, repairs)]


def test_a_plan_is_plain_data_and_writes_nothing(store: Store, site: Site) -> None:
    write(store, S1)
    before = dump(store)
    with store.engine.snapshot() as snapshot:
        record = snapshot.get(BLADE_1)
    assert record is not None
    (repair,) = plan_repairs(store, site, check(store, site))
    assert repair.commit == Commit(
        (KeyUnchanged(BLADE_1, record.mod_revision), KeyAbsent(S1)), (Put(S1, b"rack/r1/blades/1"),)
    )
    assert repair.what == "write the entry, as the record calls for it"
    assert dump(store) == before


@pytest.mark.parametrize(
    "faults",
    [
        {b"/site/by-serial/s9": b"rack/r9/blades/9"},
        {b"/site/by-serial/s9": b"rack/r1/blades/1"},
        {b"/site/by-serial/s9": b"rack/r1"},
        {b"/site/by-serial/s1": b"rack/r9/blades/9"},
        {b"/site/by-serial/s1": b"rack/r2/blades/1"},
        {b"/site/by-serial/s1": b"damage"},
        {b"/site/by-tag/red/r1/1": b"x"},
        {b"/site/by-tag/green/r1/1": b"", b"/site/by-tag/red/r9/9": b""},
        {b"/site/by-serial/s1": b"rack/r1/blades/2", b"/site/by-serial/s2": b"rack/r1/blades/1"},
    ],
)
def test_a_repair_restores_what_was_before_and_nothing_else(
    store: Store, site: Site, faults: dict[bytes, bytes]
) -> None:
    before = dump(store)
    write(store, puts=faults)
    assert set(repaired(store, site)) <= {"repaired", "gone"}
    assert dump(store) == before
    assert list(check(store, site)) == []


def test_a_missing_entry_of_a_leased_record_is_put_on_its_lease(store: Store, site: Site) -> None:
    lease = store.engine.lease(600.0)
    site.members.put("m", Blade("x"), lease=lease.id)
    before = dump(store)
    write(store, b"/site/member-serial/x")
    assert repaired(store, site) == ["repaired"]
    write(store, puts={b"/site/member-serial/x": b"m"})
    assert repaired(store, site) == ["repaired"]
    assert dump(store) == before
    assert before[b"/site/member-serial/x"] == (b"m", lease.id)


def test_a_counter_behind_its_start_is_left_to_a_person(store: Store, site: Site) -> None:
    """Numbers may have been handed out beyond the start: no record says how many, and none may be handed out twice."""
    write(store, puts={b"/site/next-port": b"5"})
    (repair,) = plan_repairs(store, site, check(store, site))
    assert repair.needs_decision
    assert "keyplan raw put KEY" in repair.what
    assert repaired(store, site) == ["left"]
    assert dump(store)[b"/site/next-port"] == (b"5", 0)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"/site/rack/r3/blades/1", b"{"),
        (b"/site/what", b""),
        (b"/site/rack/r1/", b""),
        (b"/site/next-port", b"x"),
        (b"/site/rack/r3/blades/1", b'{"serial":"s1"}'),
    ],
)
def test_what_takes_a_decision_is_listed_and_left(store: Store, site: Site, key: bytes, value: bytes) -> None:
    write(store, puts={key: value})
    before = dump(store)
    (repair,) = plan_repairs(store, site, check(store, site))
    assert repair.needs_decision
    assert repair.what == f"not repaired: {repair.finding.kind.advice}"
    assert repaired(store, site) == ["left"]
    assert dump(store) == before


def test_a_fault_that_somebody_put_right_is_gone(store: Store, site: Site) -> None:
    write(store, S1)
    repairs = plan_repairs(store, site, check(store, site))
    site.blades.put(BladeKey("r1", "1"), Blade("s1", ["red", "blue"]))
    assert [outcome.result for outcome in carry_out(store, site, repairs)] == [RepairResult.GONE]


def test_an_engine_without_revisions_is_checked_repaired_and_given_indexes(tmp_path: Path) -> None:
    with keyplan.open(f"lmdb:{tmp_path / 'plain'}", history="off") as store:
        site = Site(store)
        site.blades.insert(BladeKey("r1", "1"), Blade("s1", ["red"]))
        before = dump(store)
        write(store, S1, puts={b"/site/by-tag/old/r1/1": b"", b"/site/by-serial/s9": b"rack/r1/blades/1"})
        assert repaired(store, site) == ["repaired"] * 3
        assert dump(store) == before
        assert drop_index(store, site, "by_serial") == 1
        assert build_index(store, site, "by_serial").is_readable
        assert dump(store) == before


class Long(keyplan.Layout, root="/l/"):
    notes = keyplan.Table("notes/{note}", key=str, value=Blade)
    by_serial = keyplan.Index("serial/{serial}/{note}", of=notes, key=str)


class Bare(keyplan.Layout, root="/l/"):
    notes = keyplan.Table("notes/{note}", key=str, value=Blade)


@pytest.fixture
def too_long(tmp_path: Path) -> Iterator[Store]:
    """Three records without entries of the index; the entry of the first would be longer than the engine takes."""
    with keyplan.open(f"lmdb:{tmp_path / 'long'}") as store:
        for name in ("a" * 255, "b", "c"):
            Bare(store).notes.insert(name, Blade("s" * (255 if name[1:] else 1)))
        yield store


def test_a_record_whose_entry_is_too_long_is_a_finding_and_stops_no_other_repair(too_long: Store) -> None:
    kinds = [finding.kind.value for finding in check(too_long, Long.bound())]
    assert kinds == ["unindexable-record", "missing-entry", "missing-entry"]
    repairs = plan_repairs(too_long, Long.bound(), check(too_long, Long.bound()))
    assert [outcome.result.value for outcome in carry_out(too_long, Long.bound(), repairs)] == [
        "left",
        "repaired",
        "repaired",
    ]
    assert [finding.kind.value for finding in check(too_long, Long.bound())] == ["unindexable-record"]


def test_a_build_passes_over_a_record_whose_entry_is_too_long_and_counts_it(too_long: Store) -> None:
    prepare_index(too_long, Long.bound(), "by_serial")
    report = build_index(too_long, Long.bound(), "by_serial")
    assert (report.is_readable, report.entries_written, report.unfit) == (True, 2, 1)


def test_a_repair_that_the_engine_refuses_stops_no_other(store: Store, site: Site) -> None:
    class Refusing(WrappedEngine):
        def commit(self, commit: Commit) -> int:
            if any(isinstance(put, Put) and put.key == S1 for put in commit.mutations):
                raise EngineLimitError(limit="key_bytes_max", allowed=1, actual=2)
            return self.inner.commit(commit)

    write(store, S1, b"/site/by-serial/s2")
    repairs = plan_repairs(store, site, check(store, site))
    outcomes = list(carry_out(Store(Refusing(store.engine)), site, repairs))
    assert [outcome.result.value for outcome in outcomes] == ["failed", "repaired"]
    assert isinstance(outcomes[0].error, EngineLimitError)


class Raising(keyplan.Layout, root="/site/"):
    """An index function that asserts something about records."""

    blades = keyplan.Table("rack/{rack}/blades/{slot}", key=BladeKey, value=Blade)
    by_half = keyplan.Index(
        "half/{half}/{rack}/{slot}", of=blades, key=str, on=lambda _, blade: {"s1": "a"}[str(blade.serial)], version=1
    )


def test_a_record_that_an_index_function_fails_on_is_a_finding_like_any_other(store: Store, site: Site) -> None:
    found = [finding for finding in check(store, Raising.bound()) if finding.kind.value != "unknown-key"]
    assert sorted((finding.kind.value, finding.raw_key) for finding in found) == [
        ("missing-entry", b"/site/half/a/r1/1"),
        ("unindexable-record", b"/site/rack/r1/blades/2"),
        ("unindexable-record", b"/site/rack/r2/blades/1"),
    ]
    assert sum("raised KeyError" in finding.detail for finding in found) == 2
    prepare_index(store, Raising.bound(), "by_half")
    report = build_index(store, Raising.bound(), "by_half")
    assert (report.is_readable, report.entries_written, report.unfit) == (True, 1, 2)
    with pytest.raises(InvalidRecordError):
        Raising(store).blades.put(BladeKey("r9", "9"), Blade("s9"))
    Raising(store).blades.delete(BladeKey("r1", "2"))
    assert site.blades.get(BladeKey("r1", "2")) is None


class Asserting(msgspec.Struct, frozen=True):
    serial: str | None = None

    def __post_init__(self) -> None:
        assert self.serial != "s1"


def test_a_record_whose_class_refuses_it_is_damaged_and_stops_nothing(store: Store, site: Site) -> None:
    class Strict(keyplan.Layout, root="/site/"):
        blades = keyplan.Table("rack/{rack}/blades/{slot}", key=BladeKey, value=Asserting)

    damaged = [finding for finding in check(store, Strict.bound()) if finding.kind.value == "damaged-record"]
    assert [finding.raw_key for finding in damaged] == [BLADE_1]
    assert "raised AssertionError" in damaged[0].detail


def test_each_kind_of_finding_names_what_mends_it() -> None:
    for kind in FindingKind:
        assert "`keyplan " in kind.advice, kind
        assert kind.is_repairable == ("check --repair" in kind.advice), kind


def test_an_index_below_a_root_as_long_as_the_engine_takes_can_be_read(url: str) -> None:
    """The key of its state would be too long to be stored: there is none, so the index is readable."""

    class Deep(keyplan.Layout, root="/" + "d" * 490 + "/"):
        notes = keyplan.Table("{note}", key=str, value=str)
        by_text = keyplan.Unique("t/{text}", of=notes, key=str, bind={"text": ""})

    with keyplan.open(url) as store:
        deep = Deep(store)
        deep.notes.insert("a", "b")
        assert deep.by_text.key_of("b") == "a"
        assert list(check(store, deep)) == []


# ---- races -----------------------------------------------------------------------------------------------------------


class Between(WrappedEngine):
    """Another writer does something just before the next commit."""

    act: Callable[[], object] | None = None

    def commit(self, commit: Commit) -> int:
        act, self.act = self.act, None
        if act is not None:
            act()
        return self.inner.commit(commit)


def outcomes_with(engine: Between, plant: Commit, act: Callable[[Site], object]) -> tuple[list[Outcome], Store, Site]:
    store = Store(engine)
    site = Site(store)
    site.blades.insert(BladeKey("r1", "1"), Blade("s1"))
    engine.inner.commit(plant)
    repairs = plan_repairs(store, site, check(store, site))
    engine.act = lambda: act(site)
    return list(carry_out(store, site, repairs, backoff=Backoff(sleep=lambda _: None))), store, site


def test_an_entry_is_not_removed_from_under_the_record_that_comes_for_it() -> None:
    """The scrubber's classic: dangling when it was seen, called for when it would be deleted."""
    plant = Commit((), (Put(b"/site/by-serial/s9", b"rack/r9/blades/9"),))
    outcomes, store, site = outcomes_with(
        Between(MemoryEngine()), plant, lambda site: site.blades.insert(BladeKey("r9", "9"), Blade("s9"))
    )
    with store:
        assert [outcome.result for outcome in outcomes] == [RepairResult.GONE]
        assert site.by_serial.key_of("s9") == BladeKey("r9", "9")
        assert list(check(store, site)) == []


def test_an_entry_is_not_written_for_a_record_that_has_gone() -> None:
    plant = Commit((), (Delete(b"/site/by-serial/s1"),))
    outcomes, store, site = outcomes_with(
        Between(MemoryEngine()), plant, lambda site: site.blades.delete(BladeKey("r1", "1"))
    )
    with store:
        assert [outcome.result for outcome in outcomes] == [RepairResult.GONE]
        assert dump(store) == {}
        assert list(check(store, site)) == []


def test_a_repair_that_loses_every_race_writes_nothing() -> None:
    class Contended(WrappedEngine):
        is_contended = False

        def commit(self, commit: Commit) -> int:
            if self.is_contended:
                with self.inner.snapshot() as snapshot:
                    entry = snapshot.get(BLADE_1)
                assert entry is not None
                self.inner.commit(Commit((), (Put(BLADE_1, entry.value),)))
            return self.inner.commit(commit)

    engine = Contended(MemoryEngine())
    with Store(engine) as store:
        site = Site(store)
        site.blades.insert(BladeKey("r1", "1"), Blade("s1"))
        write(store, S1)
        repairs = plan_repairs(store, site, check(store, site))
        engine.is_contended = True
        (outcome,) = carry_out(store, site, repairs, backoff=Backoff(sleep=lambda _: None))
        assert outcome.result is RepairResult.CONTENDED
        assert S1 not in dump(store)


def test_a_repairer_beside_writers_and_a_vandal_leaves_indexes_whole(store: Store) -> None:
    """Writers come and go, a vandal removes and adds entries, a repairer repairs; at the end one pass mends the last of it."""
    site = Site(store)
    failures: list[BaseException] = []

    def write_turn(turn: int) -> None:
        key = BladeKey("r", str(turn % 8))
        if turn % 3:
            site.blades.put(key, Blade(f"s{turn % 8}", [f"t{turn % 5}"]))
        else:
            site.blades.delete(key, missing_ok=True)

    def vandal_turn(turn: int) -> None:
        write(store, b"/site/by-serial/s%d" % (turn % 8), puts={b"/site/by-tag/t%d/r/%d" % (turn % 5, turn % 8): b""})

    def repair_turn(_turn: int) -> None:
        repaired(store, site)

    def work(act: Callable[[int], object]) -> None:
        try:
            for turn in range(100):
                act(turn)
        except BaseException as error:
            failures.append(error)
            raise

    threads = [threading.Thread(target=work, args=(act,)) for act in (write_turn, vandal_turn, repair_turn)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    records = {key: value for key, value in dump(store).items() if b"/rack/" in key}
    repaired(store, site)
    assert list(check(store, site)) == []
    assert {key: value for key, value in dump(store).items() if b"/rack/" in key} == records


# ---- any damage to the indexes ---------------------------------------------------------------------------------------

SERIALS = st.sampled_from([b"/site/by-serial/%s" % serial for serial in (b"x", b"y", b"z")])
TAGS = st.sampled_from([b"/site/by-tag/%s/a/1" % tag for tag in (b"p", b"q")])
VALUES = st.sampled_from([b"", b"rack/a/blades/1", b"rack/b/blades/2", b"junk"])
BLADES = st.dictionaries(
    st.builds(BladeKey, st.sampled_from("ab"), st.sampled_from("12")),
    st.builds(Blade, st.none() | st.sampled_from("xyz"), st.lists(st.sampled_from("pq"), max_size=2)),
)


@given(BLADES, st.dictionaries(SERIALS | TAGS, VALUES), st.sets(SERIALS | TAGS))
def test_repairs_restore_any_damage_to_indexes(
    blades: dict[BladeKey, Blade], puts: dict[bytes, bytes], deletes: set[bytes]
) -> None:
    with keyplan.open("memory:") as store:
        site = Site(store)
        for key, blade in blades.items():
            with suppress(UniqueViolationError):
                site.blades.insert(key, blade)
        before = dump(store)
        write(store, *(deletes - puts.keys()), puts=puts)
        repaired(store, site)
        assert list(check(store, site)) == []
        assert dump(store) == before
