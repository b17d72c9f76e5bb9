"""Damage to the registry: whatever entry is lost or cannot be read, repair makes it again as it was, or leaves all as it is.

And one damaged entry stops nobody who does not ask for it.
"""

from collections.abc import Iterator
from itertools import product
from threading import Event as Signal
from threading import Thread
from typing import Final

import pytest

from keyplan.engine import (
    ALL_KEYS,
    Commit,
    Delete,
    DeleteRange,
    Engine,
    KeyRange,
    MemoryEngine,
    Put,
    Snapshot,
    WrappedEngine,
)
from keyplan.errors import CorruptionError, EngineLimitError, EngineUnavailableError, KeyplanError, PrefixInUseError
from keyplan.keyspace import (
    FaultKind,
    Founding,
    KeySpaceRegistry,
    KeySpaces,
    Mark,
    MarkKind,
    OwnerKind,
    Role,
    Stage,
    State,
    Sweeper,
    open_key_space,
)
from keyplan.keyspace.rows import key_of
from keyplan.keyspace.soundness import Fault
from keyplan.layout import Only
from keyplan.testing.faults import FakeClock
from tests.keyspace.furnished import ENTRIES, furniture, registry_of
from tests.keyspace.stores import Item, Shop, put_raw, raw_content, swept

AUDIT: Final = b"\x00kp\x04"
HEAD: Final = b"\x00kp\x0eaudit"
USAGE: Final = b"\x00kp\x0b"

_PREFIX: Final = KeySpaceRegistry.bound().tables


def without_log(content: dict[bytes, bytes]) -> dict[bytes, bytes]:
    return {key: value for key, value in content.items() if not key.startswith(AUDIT) and key != HEAD}


DAMAGES: Final = {"garbage": b"{brok", "lost": None}


@pytest.mark.parametrize(("raw_key", "damage"), list(product(ENTRIES, DAMAGES)), ids=str)
def test_any_one_entry_is_made_again_as_it_was_or_nothing_is_changed(raw_key: bytes, damage: str) -> None:
    with furniture() as (engine, registry):
        before, data = registry_of(engine), raw_content(engine)
        value = DAMAGES[damage]
        engine.commit(Commit((), (Delete(raw_key) if value is None else Put(raw_key, value),)))
        damaged = registry_of(engine)
        for fault in registry.diagnose().faults:
            assert fault.raw_key, fault
            assert "`keyplan " in fault.remedy, fault
            assert fault == Fault.from_json(fault.to_json())
        registry.repair()
        after = registry_of(engine)
        for key, content in without_log(after).items():
            assert content in (before[key], damaged.get(key)), f"{key!r} is {content!r}"
        for key in without_log(before):
            assert key in after or key == raw_key or key.startswith(USAGE), f"{key!r} was taken away"
        assert raw_content(engine) == data
        is_mark = raw_key.startswith(b"\x00kp\x06") and raw_key != b"\x00kp\x06/"
        is_told = is_mark or raw_key.startswith((AUDIT, USAGE, b"\x00kp\x05", b"\x00kp\x0c")) or raw_key == HEAD
        if not is_told:
            assert without_log(after) == without_log(before)
            assert registry.diagnose(with_unmanaged=False).faults == []


KEPT_BACK: Final = b'{"kind":"quarantined","until":null,"first_key":null,"epoch":0}'
NAMED: Final = [key for key in ENTRIES if key[3] in b"\x01\x02" or b"tmp" in key]


@pytest.mark.slow
@pytest.mark.parametrize("raw_key", ENTRIES, ids=str)
def test_two_damaged_entries_take_nothing_away(raw_key: bytes) -> None:
    for other, damage in product(NAMED, DAMAGES.values()):
        with furniture() as (engine, registry):
            before = registry_of(engine)
            writes = tuple(Delete(key) if damage is None else Put(key, damage) for key in {raw_key, other})
            engine.commit(Commit((), writes))
            damaged = registry_of(engine)
            registry.repair()
            after = registry_of(engine)
            for key, content in without_log(after).items():
                possible = (before[key], damaged.get(key), KEPT_BACK if key == raw_key else None)
                assert content in possible, f"{other!r}: {key!r} is {content!r}"
            for key in without_log(before):
                assert key in after or key in {raw_key, other} or key.startswith(USAGE), f"{other!r}: {key!r} is gone"


# ---- what was seen --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lost", ["all", "end"])
def test_a_log_that_was_cut_with_its_head_shows_of_nothing_that_it_never_was(memory: Engine, lost: str) -> None:
    """Old stores have no head; and whoever removes the end of a log may remove it as well."""
    registry = KeySpaces(memory)
    registry.create("a", "app")
    registry.create("b", "bank")
    with open_key_space(memory, "b", "bank", session_seconds=None) as store:
        Shop(store).items.put("x", Item("x"))
    cut = [KeyRange.of_prefix(AUDIT)] if lost == "all" else [KeyRange(key_of("audit", 2), AUDIT + b"\xff")]
    record = KeyRange.of_prefix(key_of("records", "b"))
    memory.commit(Commit((), tuple(DeleteRange(one) for one in (*cut, KeyRange.of_prefix(HEAD), record))))
    before = without_log(registry_of(memory))
    assert FaultKind.AUDIT_BROKEN in {fault.kind for fault in registry.diagnose().faults}
    assert registry.repair() == []
    assert without_log(registry_of(memory)) == before
    with pytest.raises(PrefixInUseError):
        registry.create("thief", "thief", prefix="02", adopt_existing_data=True)
    assert registry.create("c", "app").prefix == "03"  # what is damaged stops nobody else
    assert registry.verify_audit().broken_at == (1 if lost == "all" else 2)


def damage(engine: Engine, table: str, key: object, value: bytes = b"{brok") -> None:
    engine.commit(Commit((), (Put(_PREFIX[table].keys.encode(key), value),)))


def test_an_unreadable_record_keeps_its_prefix_and_its_handles(memory: Engine) -> None:
    registry = KeySpaces(memory)
    registry.create("a", "bank")
    record = memory.value(_PREFIX["records"].keys.encode("a"))
    assert record is not None
    with open_key_space(memory, "a", "bank", session_seconds=None) as handle:
        damage(memory, "records", "a")
        # The log is cut, so that the record cannot be made again.
        memory.commit(Commit((), (Delete(_PREFIX["audit"].keys.encode(1)),)))
        registry.repair()
        Shop(handle).items.put("x", Item("1"))
    assert registry.owner_of(b"\x02x").kind is OwnerKind.UNMANAGED
    with pytest.raises(KeyplanError):
        registry.create("thief", "thief", prefix="01", adopt_existing_data=True)
    assert registry.create("other", "other").prefix != "01"
    damage(memory, "records", "a", record)
    assert [fault.kind for fault in registry.diagnose().faults] == [FaultKind.AUDIT_BROKEN]


def test_a_damaged_deletion_keeps_the_grace_that_was_given() -> None:
    clock = FakeClock()
    with MemoryEngine(clock=clock) as engine:
        registry = KeySpaces(engine, clock=clock)
        registry.create("a", "bank")
        put_raw(engine, b"\x01precious")
        registry.configure({"delete-grace-seconds": 86_400, "max-client-lease-seconds": 0})
        registry.delete("a")
        given = registry.deletion("a")
        registry.configure({"delete-grace-seconds": 0})
        damage(engine, "deletions", "a")
        assert [fault.kind for fault in registry.repair()] == [FaultKind.DELETION]
        assert registry.deletion("a") == given
        assert Sweeper(registry).sweep("a").stage is Stage.WAITING
        clock.advance(90_000)
        damage(engine, "deletions", "a")
        registry.repair()
        with pytest.raises(KeyplanError, match="removed"):
            registry.undelete("a")
        assert Sweeper(registry).sweep("a").stage is Stage.COMPLETED


@pytest.mark.parametrize("damaged", [b"{brok", b'{"format_version":1,"cluster":"c","prefix_codec":"morse"}', None])
def test_a_lost_header_is_not_taken_for_no_registry(memory: Engine, damaged: bytes | None) -> None:
    founding = Founding(prefix_codec="ordered")
    registry = KeySpaces(memory, founding=founding)
    registry.create("a", "bank")
    header = registry.header()
    key = b"\x00kp\x00header"
    memory.commit(Commit((), (Delete(key) if damaged is None else Put(key, damaged),)))
    for refused in (
        lambda: KeySpaces(memory).create("b", "shop"),
        lambda: KeySpaces(memory).init(),
        lambda: KeySpaces(memory, role=Role.CLIENT).get("a"),
        lambda: open_key_space(memory, "a", "bank", default_prefix=b"/x/"),
    ):
        with pytest.raises(CorruptionError):
            refused()
    KeySpaces(memory).repair()
    assert registry.header() == header
    assert registry.diagnose().is_sound


def test_lost_switches_are_not_taken_for_the_defaults(memory: Engine) -> None:
    registry = KeySpaces(memory)
    registry.create("a", "bank")
    switches = registry.configure({"protected": ["a"], "keyspace-api-enabled": True})
    memory.commit(Commit((), (Delete(b"\x00kp\x09cfg"),)))
    with pytest.raises(CorruptionError):
        registry.delete("a")
    with pytest.raises(CorruptionError):
        open_key_space(memory, "a", "bank", default_prefix=b"/x/")
    assert [fault.kind for fault in registry.repair()] == [FaultKind.CONFIGURATION]
    assert registry.configuration() == switches


# ---- one damaged entry stops nobody ------------------------------------------------------------------------------------------


TABLES: Final = {"records": "a", "fences": "a", "quotas": "a", "marks": b"\x05", "deletions": "a", "audit": 4}


@pytest.mark.parametrize("table", TABLES)
def test_one_damaged_entry_stops_no_other_key_space(memory: Engine, table: str) -> None:
    registry = KeySpaces(memory)
    for name in ("a", "b", "c"):
        registry.create(name, "app")
    registry.configure({"max-client-lease-seconds": 0})
    registry.delete("b")
    if table == "deletions":
        registry.delete("a")
    damage(memory, table, TABLES[table])
    page = registry.list()
    assert {"b", "c"} <= {keyspace.name for keyspace in page.keyspaces}
    assert page.damaged == (("a",) if table == "records" else ())
    assert registry.create("n", "app").name == "n"
    registry.disable("c")
    failures: list[str] = []
    done = Sweeper(registry, on_failure=lambda name, _error: failures.append(name)).sweep_all()
    assert [(one.name, one.stage) for one in done] == [("b", Stage.COMPLETED)]
    assert failures == (["a"] if table == "deletions" else [])
    registry.diagnose()
    registry.repair()
    with open_key_space(memory, "n", "app", session_seconds=None) as store:
        Shop(store).items.put("x", Item("1"))
    memory.commit(Commit((), (Delete(_PREFIX[table].keys.encode(TABLES[table])),)))


@pytest.mark.parametrize("table", [name for name in _PREFIX if name not in {"sessions", "sweeper"}])
def test_a_key_that_is_none_of_its_table_stops_nobody(table: str) -> None:
    with MemoryEngine() as engine:
        registry = KeySpaces(engine)
        registry.create("a", "app")
        start, _ = _PREFIX[table].keys.range(())
        engine.commit(Commit((), (Put(start + b"bad!name\xff", b"{}"), Put(AUDIT + b"\xff" * 8, b"{}"))))
        registry.diagnose()
        registry.repair()
        assert registry.create("b", "app").name == "b"


class Hiccup(WrappedEngine):
    """Out of reach for one call."""

    def __init__(self, inner: Engine) -> None:
        super().__init__(inner, closes_inner=False)
        self.left = 1

    def snapshot(self) -> Snapshot:
        if self.left:
            self.left -= 1
            raise EngineUnavailableError(engine="memory", problem="hiccup")
        return self.inner.snapshot()


def test_a_sweeper_outlives_a_failure(memory: Engine) -> None:
    KeySpaces(memory).create("a", "app")
    KeySpaces(memory).configure({"max-client-lease-seconds": 0})
    KeySpaces(memory).delete("a")
    failed, stop = Signal(), Signal()

    class Rounds(Signal):
        """Waits for nothing between rounds, and ends when the deletion has."""

        def wait(self, timeout: float | None = None) -> bool:
            if KeySpaces(memory).get("a").state is State.DELETED:
                self.set()
            return self.is_set()

    stop = Rounds()
    registry = KeySpaces(Hiccup(memory))
    sweeper = Sweeper(registry, on_failure=lambda _name, _error: failed.set())
    thread = Thread(target=sweeper.run, args=(stop,))
    thread.start()
    thread.join(30)
    assert not thread.is_alive()
    assert failed.is_set()
    assert KeySpaces(memory).get("a").state is State.DELETED


class Limited(WrappedEngine):
    """Takes no commit that removes a key below 01: too large for it, say."""

    def commit(self, commit: Commit) -> int:
        removed = [one.range.start if isinstance(one, DeleteRange) else one.key for one in commit.mutations]
        if any(key.startswith(b"\x01") for key in removed):
            raise EngineLimitError(engine="memory", limit="commit_bytes", allowed=1, actual=2)
        return self.inner.commit(commit)


def test_a_deletion_that_cannot_go_on_stops_none_behind_it(memory: Engine) -> None:
    registry = KeySpaces(memory)
    for name in ("a", "b"):
        registry.create(name, "app")
    registry.configure({"max-client-lease-seconds": 0})
    memory.commit(Commit((), (Put(b"\x01x", b""), Put(b"\x02x", b""))))
    for name in ("a", "b"):
        registry.delete(name)
    failures: list[tuple[str, str]] = []
    sweeper = Sweeper(KeySpaces(Limited(memory)), on_failure=lambda name, error: failures.append((name, error.code)))
    assert [(one.name, one.stage) for one in sweeper.sweep_all()] == [("b", Stage.COMPLETED)]
    assert failures == [("a", "engine-limit")]


# ---- the log --------------------------------------------------------------------------------------------------------------


def entries_of(engine: Engine) -> Iterator[tuple[bytes, bytes]]:
    with engine.snapshot() as snapshot:
        yield from [(entry.key, entry.value) for entry in snapshot.scan(KeyRange.of_prefix(AUDIT))]


@pytest.mark.parametrize("number", range(1, 6))
@pytest.mark.parametrize("change", ["edited", "garbage", "removed"])
def test_the_log_names_the_entry_that_is_not_as_it_was_written(memory: Engine, number: int, change: str) -> None:
    registry = KeySpaces(memory)
    for name in "abcde":
        registry.create(name, "app")
    key, value = list(entries_of(memory))[number - 1]
    writes: dict[str, Put | Delete] = {
        "edited": Put(key, value.replace(b'"actor":"admin"', b'"actor":"nobod"')),
        "garbage": Put(key, b"{brok"),
        "removed": Delete(key),
    }
    memory.commit(Commit((), (writes[change],)))
    verdict = registry.verify_audit()
    assert (verdict.is_whole, verdict.broken_at, verdict.entries) == (False, number, number - 1)
    memory.commit(Commit((), (Put(key, value),)))
    assert registry.verify_audit().is_whole


LOGS: Final[dict[str, tuple[list[int], int]]] = {
    # What stands at the places of the log after it was tampered with (0: nothing), and the first that is wrong.
    "tail": ([1, 2, 3, 0, 0], 4),
    "last": ([1, 2, 3, 4, 0], 5),
    "head": ([0, 0, 3, 4, 5], 1),
    "middle": ([1, 0, 0, 4, 5], 2),
    "all": ([0, 0, 0, 0, 0], 1),
    "neighbours": ([1, 3, 2, 4, 5], 2),
    "first two": ([2, 1, 3, 4, 5], 1),
    "last two": ([1, 2, 3, 5, 4], 4),
    "far apart": ([5, 2, 3, 4, 1], 1),
    "moved up": ([1, 3, 4, 5, 0], 2),
    "doubled": ([1, 2, 2, 4, 5], 3),
}


@pytest.mark.parametrize("places", LOGS)
@pytest.mark.parametrize("with_head", [True, False])
def test_the_doctor_says_where_a_log_was_cut_or_put_in_another_order(
    memory: Engine, places: str, *, with_head: bool
) -> None:
    registry = KeySpaces(memory)
    for name in "abcde":
        registry.create(name, "app")
    kept = list(entries_of(memory))
    stands, first = LOGS[places]
    writes = [
        Put(key, kept[number - 1][1]) if number else Delete(key) for (key, _), number in zip(kept, stands, strict=True)
    ]
    if not with_head:
        writes.append(Delete(_PREFIX["audit_head"].keys.encode(Only())))
    memory.commit(Commit((), tuple(writes)))
    (told,) = [fault.problem for fault in registry.diagnose().faults if fault.kind is FaultKind.AUDIT_BROKEN]
    assert f"entry {first}:" in told
    memory.commit(Commit((), tuple(Put(key, value) for key, value in kept)))


def test_an_entry_that_was_put_in_is_noticed(memory: Engine) -> None:
    registry = KeySpaces(memory)
    registry.create("a", "app")
    twin = dict(entries_of(memory))[AUDIT + bytes(7) + b"\x01"]
    memory.commit(Commit((), (Put(AUDIT + bytes(7) + b"\x02", twin),)))
    assert registry.verify_audit().broken_at == 2
    memory.commit(Commit((), (Delete(AUDIT + bytes(7) + b"\x02"),)))


def test_a_log_with_a_damaged_end_goes_on_and_says_where_it_is_damaged(memory: Engine) -> None:
    registry = KeySpaces(memory)
    registry.create("a", "app")
    damage(memory, "audit", 1)
    registry.create("b", "app")
    verdict = registry.verify_audit()
    assert (verdict.is_whole, verdict.broken_at) == (False, 1)
    memory.commit(Commit((), (Delete(_PREFIX["audit"].keys.encode(1)),)))


def test_all_is_read_in_one_state(memory: Engine) -> None:
    """A key space that is made and filled between two looks of one diagnosis is not data of nobody."""
    registry = KeySpaces(memory)
    registry.create("a", "app")
    found: list[object] = []

    class Late(WrappedEngine):
        calls = 0
        at_call = 0

        def snapshot(self) -> Snapshot:
            self.calls += 1
            if self.calls == self.at_call:
                name = f"new{self.at_call}"
                made = KeySpaces(self.inner).create(name, "new")
                put_raw(self.inner, made.raw_prefix + b"x")
            return self.inner.snapshot()

    for at_call in range(1, 5):
        late = Late(memory, closes_inner=False)
        late.at_call = at_call
        found += KeySpaces(late).diagnose().unmanaged
    assert found == []
    with memory.snapshot() as snapshot:
        assert any(True for _ in snapshot.scan(ALL_KEYS))


def test_a_mark_that_cannot_be_read_is_told_once_and_keeps_its_prefix_from_being_given_out() -> None:
    clock = FakeClock()
    with MemoryEngine(clock=clock) as engine:
        registry = KeySpaces(engine, clock=clock, founding=Founding(profile="none", skip_printable=False))
        registry.create("old", "a")
        registry.create("bank", "a", prefix=b"/b/".hex(), allow_legacy_prefix=True)
        swept(registry, "old")
        for prefix in (b"\x01", b"/", b"\x02", b"/b/"):
            damage(engine, "marks", prefix)
        assert len(registry.diagnose(with_unmanaged=False).faults) >= 4
        registry.repair()
        assert registry.diagnose(with_unmanaged=False).faults == []
        kept_back = {b"\x02": Mark(kind=MarkKind.QUARANTINED), b"/": Mark(kind=MarkKind.LEGACY_CONTAINER)}
        assert dict(registry.marks()) == {b"\x01": Mark(kind=MarkKind.COOLING_DOWN, epoch=1), **kept_back}
        clock.advance(10_000)
        assert registry.create("new", "a").prefix == "03"


def test_data_of_a_key_space_within_a_freed_prefix_is_not_astray() -> None:
    clock = FakeClock()
    with MemoryEngine(clock=clock) as engine:
        registry = KeySpaces(engine, clock=clock)
        registry.create("old", "a", prefix=b"/a/".hex(), allow_legacy_prefix=True)
        registry.create("old2", "a", prefix="0161", allow_legacy_prefix=True)
        swept(registry, "old")
        swept(registry, "old2")
        clock.advance(100)
        registry.create("new", "a", prefix=b"/a/b/".hex(), allow_legacy_prefix=True)
        registry.create("new2", "a", prefix="01")
        put_raw(engine, b"/a/b/x", b"\x01a1")
        assert registry.diagnose(with_unmanaged=False).faults == []
        assert b"\x01a" not in dict(registry.marks())
        put_raw(engine, b"/a/a")
        assert [fault.kind for fault in registry.diagnose(with_unmanaged=False).faults] == [FaultKind.STRAY_DATA]
