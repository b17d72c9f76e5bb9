"""Every kind of finding, planted by raw writes and found at its key; nothing found where nothing is wrong."""

import threading
import tracemalloc
from collections.abc import Iterator
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

import keyplan
from keyplan.engine import Commit, Delete, MemoryEngine, Put, Snapshot, WrappedEngine
from keyplan.errors import InvalidInputError
from keyplan.jobs import Progress
from keyplan.maintenance import Finding, FindingKind, check
from keyplan.store import Store
from tests.maintenance.layouts import Blade, BladeKey, Colliding, Nested, Raw, Site, dump, write

BLADE_1 = b"/site/rack/r1/blades/1"
BLADE_2 = b"/site/rack/r1/blades/2"
S1 = b"/site/by-serial/s1"


def found(store: Store, layout: keyplan.Layout) -> list[tuple[str, bytes, bytes | None]]:
    return [(finding.kind.value, finding.raw_key, finding.record_key) for finding in check(store, layout)]


def test_a_healthy_store_has_nothing_to_find(store: Store, site: Site) -> None:
    assert found(store, site) == []


@pytest.mark.parametrize(
    ("key", "value", "kind", "record"),
    [
        (b"/site/by-serial/s9", b"rack/r9/blades/9", "dangling-entry", b"/site/rack/r9/blades/9"),
        (b"/site/by-serial/s9", b"rack/r1/blades/1", "stale-entry", BLADE_1),
        (b"/site/by-serial/s9", b"rack/r1", "damaged-entry", None),
        (b"/site/by-tag/red/r9/9", b"", "dangling-entry", b"/site/rack/r9/blades/9"),
        (b"/site/by-tag/green/r1/1", b"", "stale-entry", BLADE_1),
        (b"/site/by-tag/red/r1/1", b"x", "wrong-entry", BLADE_1),
        (b"/site/rack/r3/blades/1", b"{", "damaged-record", None),
        (b"/site/rack/r3/blades/1", b'{"serial":"a/b"}', "unindexable-record", None),
        (b"/site/next-port", b"no number", "damaged-counter", None),
        (b"/site/next-port", b"32999", "counter-behind", None),
        (b"/site/rack/r1/blade/1", b"", "unknown-key", None),
        (b"/site/rack/r1/", b"", "namespace-key", None),
        (b"/site/members/m", b"{}", "unleased-record", None),
    ],
)
def test_a_planted_fault_is_found_at_its_key(
    store: Store, site: Site, key: bytes, value: bytes, kind: str, record: bytes | None
) -> None:
    write(store, puts={key: value})
    assert found(store, site) == [(kind, key, record)]


def test_a_missing_entry_is_found_at_the_place_where_it_should_be(store: Store, site: Site) -> None:
    write(store, S1, b"/site/by-tag/blue/r1/1")
    assert found(store, site) == [
        ("missing-entry", S1, BLADE_1),
        ("missing-entry", b"/site/by-tag/blue/r1/1", BLADE_1),
    ]


def test_a_unique_entry_that_points_at_nothing_is_found_from_both_sides(store: Store, site: Site) -> None:
    write(store, puts={S1: b"rack/r9/blades/9"})
    assert sorted(found(store, site)) == [
        ("dangling-entry", S1, b"/site/rack/r9/blades/9"),
        ("wrong-entry", S1, BLADE_1),
    ]


def test_two_records_that_claim_one_unique_entry_are_contested_and_not_repairable(store: Store, site: Site) -> None:
    write(store, puts={b"/site/rack/r5/blades/1": b'{"serial":"s1"}'})
    (finding,) = check(store, site)
    assert (finding.kind, finding.raw_key) == (FindingKind.CONTESTED_ENTRY, S1)
    assert finding.record_key == b"/site/rack/r5/blades/1"
    assert not finding.kind.is_repairable


def test_an_entry_on_another_lease_than_its_record_is_found(store: Store, site: Site) -> None:
    lease = store.engine.lease(600.0)
    site.members.put("m", Blade("x"), lease=lease.id)
    assert found(store, site) == []
    write(store, puts={b"/site/member-serial/x": b"m"})
    assert found(store, site) == [("entry-lease", b"/site/member-serial/x", b"/site/members/m")]


def test_a_record_without_a_lease_is_a_note(store: Store, site: Site) -> None:
    write(store, puts={b"/site/members/m": b"{}"})
    (finding,) = check(store, site)
    assert finding.kind.is_note


def test_a_record_on_a_lease_of_a_table_without_leases_is_a_note(store: Store, site: Site) -> None:
    lease = store.engine.lease(600.0)
    write(store, Put(b"/site/rack/r3/blades/1", b"{}", lease.id))
    (finding,) = check(store, site)
    assert (finding.kind.value, finding.kind.is_note) == ("leased-record", True)


def test_an_unknown_key_is_told_with_the_nearest_template(store: Store, site: Site) -> None:
    write(store, puts={b"/site/rack/r1/blade/1": b""})
    (finding,) = check(store, site)
    assert finding.item == "blades"
    assert "departs at byte 19" in finding.detail


def test_a_key_that_two_templates_spell_is_ambiguous(store: Store) -> None:
    write(store, puts={b"/c/a/b": b"text"})
    (finding,) = check(store, Colliding(store))
    assert (finding.kind.value, finding.raw_key) == ("ambiguous-key", b"/c/a/b")
    assert finding.detail == "record of first or record of second"


def test_no_finding_shows_a_value(store: Store, site: Site) -> None:
    write(store, puts={b"/site/rack/r3/blades/1": b'{"serial":"SECRET/1"}', b"/site/next-port": b"SECRET"})
    assert "SECRET" not in " ".join(map(str, check(store, site)))


def test_other_roots_of_the_layout_are_passed_over(store: Store) -> None:
    production, test = Nested(store), Nested(store, space="Test/Standard/")
    production.users.insert("ann", Blade("p"))
    test.users.insert("bob", Blade("t"))
    write(store, b"/cc/Test/Standard/by-serial/t", puts={b"/cc/Test/": b"", b"/cc/Test/Standard/odd": b""})
    assert found(store, production) == [("unknown-key", b"/cc/Test/", None)]
    assert sorted(found(store, test)) == [
        ("missing-entry", b"/cc/Test/Standard/by-serial/t", b"/cc/Test/Standard/users/bob"),
        ("unknown-key", b"/cc/Test/Standard/odd", None),
    ]


def test_what_keyplan_keeps_for_itself_is_passed_over(store: Store) -> None:
    raw = Raw(store)
    raw.numbers.insert(7, b"x")
    write(store, puts={b"\x00ki/site/\x00name": b"{}", b"\x00kp\x00header": b"", b"N\x00": b""})
    assert found(store, raw) == [("unknown-key", b"N\x00", None)]


def test_keys_of_a_layout_beside_are_not_unknown(store: Store, site: Site) -> None:
    class Notes(keyplan.Layout, root="/site/"):
        notes = keyplan.Table("notes/{note}", key=str, value=str)

    notes = Notes(store)
    notes.notes.insert("a", "b")
    assert found(store, site) == [("unknown-key", b"/site/notes/a", None)]
    assert list(check(store, site, beside=[notes])) == []


# ---- in pieces -------------------------------------------------------------------------------------------------------


def plant(store: Store, count: int) -> None:
    write(store, puts={b"/site/by-tag/t/r/%05d" % number: b"" for number in range(count)})


def test_a_check_goes_on_where_it_was_and_loses_nothing(store: Store, site: Site) -> None:
    plant(store, 700)
    whole = {finding.raw_key for finding in check(store, site)}
    pieces: list[Finding] = []
    cursor: str | None = ""
    while cursor is not None:
        piece = check(store, site, resume=cursor, keys_max=100)
        pieces += piece
        cursor = piece.cursor
    assert len(pieces) == len(whole) == 700
    assert {finding.raw_key for finding in pieces} == whole


def test_a_check_that_is_left_in_a_batch_repeats_that_batch(store: Store, site: Site) -> None:
    plant(store, 300)
    begun = check(store, site)
    taken = list(islice(begun, 5))
    rest = list(check(store, site, resume=begun.cursor or ""))
    assert len({finding.raw_key for finding in [*taken, *rest]}) == 300


@pytest.mark.parametrize("cursor", ["x", "x.00", "zz.zz", "."])
def test_a_cursor_of_something_else_is_refused(store: Store, site: Site, cursor: str) -> None:
    with pytest.raises(InvalidInputError):
        check(store, site, resume=cursor)


def test_a_cursor_outside_the_root_is_refused(store: Store, site: Site) -> None:
    fingerprint = Site.bound().fingerprint
    with pytest.raises(InvalidInputError):
        check(store, site, resume=f"{fingerprint}.{b'/other/'.hex()}")


def test_progress_tells_how_many_keys_were_examined(store: Store, site: Site) -> None:
    plant(store, 300)
    told: list[Progress] = []
    list(check(store, site, progress=told.append))
    assert told[0].done == 256
    assert told[-1] == Progress("examining", 300 + 3 + 2 + 3)


def test_keys_of_a_known_layout_of_the_root_are_a_note_and_not_unknown(store: Store, site: Site) -> None:
    class Fewer(keyplan.Layout, root="/site/"):
        blades = keyplan.Table("rack/{rack}/blades/{slot}", key=BladeKey, value=Blade)

    unknown = {finding.kind.value for finding in check(store, Fewer.bound())}
    assert unknown == {"unknown-key"}
    noted = list(check(store, Fewer.bound(), known=[Site.bound()]))
    assert {finding.kind.value for finding in noted} == {"other-layout-key"}
    assert all(finding.kind.is_note for finding in noted)
    assert noted[0].detail == "Site reads it as index entry of by_serial"


# ---- a store that is being written to --------------------------------------------------------------------------------


class Meddling(WrappedEngine):
    """Between two snapshots another writer does one of `acts`."""

    acts: Iterator[Commit] = iter(())

    def snapshot(self) -> Snapshot:
        act = next(self.acts, None)
        if act is not None:
            self.inner.commit(act)
        return self.inner.snapshot()


def test_what_is_put_right_before_it_is_told_is_not_told() -> None:
    engine = Meddling(MemoryEngine())
    with Store(engine) as store:
        site = Site(store)
        site.blades.insert(BladeKey("r", "1"), Blade("s"))
        missing = Commit((), (Delete(b"/site/by-serial/s"),))
        mended = Commit((), (Put(b"/site/by-serial/s", b"rack/r/blades/1"),))
        engine.acts = iter([missing, mended])
        assert list(check(store, site)) == []
        engine.acts = iter([missing])
        assert [finding.kind for finding in check(store, site)] == [FindingKind.MISSING_ENTRY]


@pytest.mark.parametrize(
    ("planted", "meddled", "told"),
    [
        ({b"/site/by-serial/x": b"rack/r/blades/1"}, Delete(b"/site/rack/r/blades/1"), FindingKind.DANGLING_ENTRY),
        (
            {b"/site/by-serial/x": b"rack/r/blades/2"},
            Put(b"/site/rack/r/blades/2", b'{"serial":null}'),
            FindingKind.STALE_ENTRY,
        ),
    ],
    ids=["stale, then dangling", "dangling, then stale"],
)
def test_a_fault_that_changes_its_kind_between_two_looks_is_told_as_it_is_now(
    planted: dict[bytes, bytes], meddled: Delete | Put, told: FindingKind
) -> None:
    engine = Meddling(MemoryEngine())
    with Store(engine) as store:
        site = Site(store)
        site.blades.insert(BladeKey("r", "1"), Blade())
        write(store, puts=planted)
        engine.acts = iter([Commit((), ()), Commit((), (meddled,))])
        (found,) = check(store, site)
        assert (found.kind, found.raw_key) == (told, b"/site/by-serial/x")


class Counting(WrappedEngine):
    """Tells how many snapshots are open."""

    def __init__(self, inner: MemoryEngine) -> None:
        super().__init__(inner)
        self.open = 0

    def snapshot(self) -> Snapshot:
        snapshot = self.inner.snapshot()
        close = snapshot.close
        self.open += 1

        def closed() -> None:
            self.open -= 1
            close()

        snapshot.close = closed  # type: ignore[method-assign]  # Why: to see it.
        return snapshot


@pytest.mark.slow
def test_a_check_of_many_keys_holds_no_snapshot_between_findings() -> None:
    engine = Counting(MemoryEngine())
    with Store(engine) as store:
        engine.load((b"/site/by-tag/t/r/%06d" % number, b"") for number in range(30_000))
        examined = check(store, Site(store))
        count = 0
        for _ in examined:
            count += 1
            assert engine.open == 0
        assert (count, examined.keys_examined, examined.cursor) == (30_000, 30_000, None)


def peak_bytes(keys: int) -> int:
    """The most memory that a check takes which finds something at each of so many keys."""
    with keyplan.open("memory:") as store:
        store.engine.load((b"/site/by-tag/t/r/%06d" % number, b"") for number in range(keys))
        examined = check(store, Site(store))
        next(examined)  # what is made once
        tracemalloc.start()
        try:
            assert sum(1 for _ in examined) == keys - 1
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()


def test_memory_does_not_grow_with_the_store() -> None:
    assert peak_bytes(12_000) < 1 << 20  # a batch takes a third of that; the findings alone would be 3 MiB in a list


def test_a_store_in_use_gives_no_false_alarm(store: Store) -> None:
    site = Site(store)
    is_over = threading.Event()
    failures: list[BaseException] = []

    def write_on() -> None:
        try:
            for turn in range(100_000):
                if is_over.is_set():
                    return
                key = BladeKey("r", str(turn * 7 % 600))
                if turn % 4 == 3:
                    site.blades.delete(key, missing_ok=True)
                else:
                    site.blades.put(key, Blade(f"{key.slot}-{turn % 5}", ["t", f"u{turn % 3}"]))
        except BaseException as error:
            failures.append(error)
            raise

    writer = threading.Thread(target=write_on)
    writer.start()
    try:
        alarms = [finding for _ in range(25) for finding in check(store, site)]
    finally:
        is_over.set()
        writer.join()
    assert failures == []
    assert alarms == []


# ---- whatever is done through the layout -----------------------------------------------------------------------------

KEYS = st.builds(BladeKey, st.sampled_from("ab"), st.sampled_from("12"))
BLADES = st.builds(Blade, st.none() | st.sampled_from("xyz"), st.lists(st.sampled_from("pq"), max_size=3))
OPERATIONS = st.lists(st.tuples(st.sampled_from(["put", "delete", "rename"]), KEYS, KEYS, BLADES), max_size=12)


@given(OPERATIONS)
def test_after_any_operations_there_is_nothing_to_find(operations: list[tuple[str, BladeKey, BladeKey, Blade]]) -> None:
    with keyplan.open("memory:") as store:
        site = Site(store)
        for name, key, other, blade in operations:
            try:
                if name == "put":
                    site.blades.put(key, blade)
                elif name == "delete":
                    site.blades.delete(key, missing_ok=True)
                else:
                    site.blades.rename(key, other)
            except keyplan.KeyplanError:
                pass  # Why: taken names and absent records are refused; the store must be whole all the same.
        assert found(store, site) == []
        assert all(key.startswith(b"/site/") for key in dump(store))
