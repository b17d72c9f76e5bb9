"""The doctor: every kind of fault planted by raw writes, found, and repaired where that can be; data of nobody."""

from collections.abc import Callable
from typing import Final

import pytest

from keyplan.engine import Commit, Delete, Engine, MemoryEngine, Put, RecordingEngine
from keyplan.keyspace import FaultKind, Founding, KeySpaces, Sweeper, Unmanaged, unmanaged
from tests.keyspace.stores import put_raw, raw_content, swept

N: Final = b"\x00" * 7
FENCE_ORDERS: Final = b"\x00kp\x03orders\x00"


def furnished(engine: Engine) -> KeySpaces:
    """orders at 01, disabled users at 02, tombstone old at 03, deleting tmp at 04, legacy runm in 2f."""
    registry = KeySpaces(engine, founding=Founding(skip_printable=False))
    for name in ("orders", "users", "old", "tmp"):
        registry.create(name, "app")
    registry.disable("users")
    put_raw(engine, b"\x01a", b"\x02b", b"\x04c", b"/runm/d")
    registry.adopt("runm", "app", b"/runm/".hex(), allow_legacy_prefix=True)
    swept(registry, "old")
    registry.delete("tmp")
    registry.set_quota("orders", keys=100)
    return registry


def replaced(key: bytes, old: bytes, new: bytes) -> Callable[[Engine], Put]:
    """A write of what stands at a key, changed in one place."""

    def made(engine: Engine) -> Put:
        with engine.snapshot() as snapshot:
            entry = snapshot.get(key)
        assert entry is not None
        assert old in entry.value
        return Put(key, entry.value.replace(old, new))

    return made


def nested_record(engine: Engine) -> Put:
    """A record "sub" as that of orders, with a prefix inside its prefix."""
    value = replaced(ORDERS, b'"prefix":"01"', b'"prefix":"0161"')(engine).value
    return Put(b"\x00kp\x01sub\x00", value.replace(b"orders", b"sub"))


ORDERS: Final = b"\x00kp\x01orders\x00"
HOLDER: Final = b'{"name":"orders","generation":1}'
PLANTED: Final[dict[str, tuple[FaultKind, bool, tuple[Put | Delete | Callable[[Engine], Put], ...]]]] = {
    "no fence": (FaultKind.FENCE, True, (Delete(FENCE_ORDERS),)),
    "a fence of another generation": (
        FaultKind.FENCE,
        True,
        (replaced(FENCE_ORDERS, N + b"\x01\x01", N + b"\x07\x01"),),
    ),
    "an open fence of a disabled key space": (
        FaultKind.FENCE,
        True,
        (replaced(b"\x00kp\x03users\x00", N + b"\x01\x02", N + b"\x01\x01"),),
    ),
    "a fence of another registry": (FaultKind.FENCE, True, (Put(FENCE_ORDERS, N + b"\x01\x01another"),)),
    "no holder": (FaultKind.HOLDER, True, (Delete(b"\x00kp\x02\x01"),)),
    "a holder without a key space": (
        FaultKind.HOLDER,
        True,
        (Put(b"\x00kp\x02\x09", b'{"name":"none","generation":1}'),),
    ),
    "a prefix that two have": (FaultKind.HOLDER, False, (replaced(ORDERS, b'"prefix":"01"', b'"prefix":"02"'),)),
    "a second holder inside": (FaultKind.HOLDER, True, (Put(b"\x00kp\x02\x01a", HOLDER),)),
    "two key spaces, one inside the other": (
        FaultKind.NESTED_PREFIXES,
        False,
        (nested_record, Put(b"\x00kp\x02\x01a", b'{"name":"sub","generation":1}')),
    ),
    "not in the list": (FaultKind.ORDER, True, (Delete(b"\x00kp\x0a" + N + b"\x01"),)),
    "in the list twice": (FaultKind.ORDER, True, (Put(b"\x00kp\x0a" + N + b"\x63", HOLDER),)),
    "no cursor": (FaultKind.DELETION, True, (Delete(b"\x00kp\x08tmp\x00"),)),
    "a cursor of a living key space": (
        FaultKind.DELETION,
        True,
        (Put(b"\x00kp\x08orders\x00", b'{"cursor":"01","not_before":"x","clients_until":"x"}'),),
    ),
    "a mark on a prefix in use": (FaultKind.MARK, True, (Put(b"\x00kp\x06\x01", b'{"kind":"quarantined"}'),)),
    "no mark on a container": (FaultKind.MARK, True, (Delete(b"\x00kp\x06/"),)),
    "a mark on an empty container": (FaultKind.MARK, True, (Put(b"\x00kp\x06\x20", b'{"kind":"legacy_container"}'),)),
    "a fence without a key space": (FaultKind.LEFTOVER, True, (Put(b"\x00kp\x03none\x00", N + b"\x01\x01own"),)),
    "a quota of a tombstone": (FaultKind.LEFTOVER, True, (Put(b"\x00kp\x0cold\x00", b'{"keys":1}'),)),
    "a history that is ahead": (
        FaultKind.HISTORY,
        False,
        (lambda engine: Put(b"\x00kp\x05orders\x00" + N + b"\x05", replaced(ORDERS, b"", b"")(engine).value),),
    ),
    "another range": (FaultKind.RECORD, False, (replaced(ORDERS, b'"end":"02"', b'"end":"03"'),)),
    "another number": (FaultKind.RECORD, False, (replaced(ORDERS, b'"prefix_number":1', b'"prefix_number":9'),)),
    "a time of deletion on a living one": (
        FaultKind.RECORD,
        False,
        (replaced(ORDERS, b'"deleted_at":null', b'"deleted_at":"2026-11-21T02:50:00Z"'),),
    ),
    "a quota that is no JSON": (FaultKind.UNREADABLE, True, (Put(b"\x00kp\x0corders\x00", b"{"),)),
    "a broken log": (FaultKind.AUDIT_BROKEN, False, (Delete(b"\x00kp\x04" + N + b"\x02"),)),
    "no header": (FaultKind.NO_HEADER, True, (Delete(b"\x00kp\x00header"),)),
    "data below a freed prefix": (FaultKind.STRAY_DATA, False, (Put(b"\x03late", b""),)),
}


def test_a_registry_that_keyplan_wrote_is_sound(engine: Engine) -> None:
    diagnosis = furnished(engine).diagnose()
    assert diagnosis.to_json() == {
        "is_sound": True,
        "keyspaces": 5,
        "audit_entries": diagnosis.audit_entries,
        "faults": [],
        "unmanaged": [],
    }


def test_a_store_without_a_registry_is_sound(memory: Engine) -> None:
    put_raw(memory, b"a")
    assert KeySpaces(memory).diagnose().is_sound


@pytest.mark.parametrize("name", PLANTED)
def test_a_fault_is_found_and_repaired_from_the_records(name: str) -> None:
    kind, is_repaired, writes = PLANTED[name]
    with MemoryEngine() as engine:
        registry = furnished(engine)
        data = raw_content(engine)
        made = tuple(write(engine) if callable(write) else write for write in writes)
        engine.commit(Commit((), made))
        faults = registry.diagnose().faults
        assert kind in {fault.kind for fault in faults}
        repaired = registry.repair()
        if is_repaired:
            assert kind in {fault.kind for fault in repaired}
            assert registry.diagnose().faults == []
            assert registry.verify_audit().is_whole
            assert [item.entry.act for item in registry.audit()][-1] == "repair"
        else:
            assert kind in {fault.kind for fault in registry.diagnose().faults}
        assert {key: value for key, value in raw_content(engine).items() if key != b"\x03late"} == data


def test_after_the_cursor_was_lost_the_deletion_goes_on_and_is_not_taken_back() -> None:
    with MemoryEngine() as engine:
        registry = furnished(engine)
        engine.commit(Commit((), (Delete(b"\x00kp\x08tmp\x00"),)))
        registry.repair()
        Sweeper(registry).sweep("tmp")
        assert registry.get("tmp").delete_completed_at is not None
        assert b"\x04c" not in raw_content(engine)


def test_data_of_nobody_is_found_by_codeword(engine: Engine) -> None:
    registry = furnished(engine)
    put_raw(
        engine, b"/ruml", b"/runm", b"/runn", b"z1", b"z2", b"z3", b"\x80\x01x", b"\x80\x02x", b"\xff\xff\xff\xff\xff"
    )
    assert list(unmanaged(registry.engine)) == [
        Unmanaged(b"/", 47, b"/ruml", 2, is_more=False),
        Unmanaged(b"/", 47, b"/runn", 1, is_more=False),
        Unmanaged(b"z", 122, b"z1", 3, is_more=False),
        Unmanaged(b"\x80\x01", 128, b"\x80\x01x", 1, is_more=False),
        Unmanaged(b"\x80\x02", 256, b"\x80\x02x", 1, is_more=False),
        Unmanaged(b"\xff", None, b"\xff\xff\xff\xff\xff", 1, is_more=False),
    ]


def test_finding_data_of_nobody_reads_by_codeword_and_not_by_key() -> None:
    with MemoryEngine() as engine:
        engine.load((b"a%06d" % number, b"") for number in range(20_000))
        with RecordingEngine(engine) as recording:
            (found,) = unmanaged(recording)
            assert (found.keys, found.is_more) == (1_000, True)
            read = sum(
                len(call.result) for call in recording.calls if call.method == "scan" and isinstance(call.result, list)
            )
            assert read < 1_100
