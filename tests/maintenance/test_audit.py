"""An audit counts every key once, and groups what a layout does not explain by where it departs."""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec
import pytest

import keyplan
from keyplan.engine import Commit, Put
from keyplan.layout import Counter, Index, Kind, Layout, Parameter, Table, Unique
from keyplan.maintenance import AuditReport, audit
from keyplan.maintenance.departures import _GROUPS_MAX as GROUPS_MAX
from keyplan.store import Store


class Machine(msgspec.Struct):
    serial: str
    tags: list[str] = []


class PortKey(NamedTuple):
    machine: str
    port: int


class Plant(Layout, root="/plant/"):
    machines = Table("machines/{machine}", key=str, value=Machine)
    ports = Table("machine/{machine}/ports/{port}", key=PortKey, value=str, lease=True)
    by_serial = Unique("by-serial/{serial}", of=machines, key=str)
    by_tag = Index("by-tag/{tag}/{machine}", of=machines, key=str, each={"tag": "tags"})
    orders = Counter("next-order")


class Nested(Layout, root="/n/{space:enclosed(before='Test/',after='/',empty=true)}"):
    space = Parameter("")
    users = Table("users/{user}", key=str, value=str)


def with_raw(store: Store, pairs: Mapping[bytes, bytes]) -> None:
    store.engine.commit(Commit((), tuple(Put(key, value) for key, value in pairs.items())))


def audited(store: Store, *, prefix: bytes = b"") -> AuditReport:
    with store.engine.snapshot() as snapshot:
        return audit(snapshot, Plant.bound(), prefix=prefix)


@pytest.fixture
def store() -> Store:
    store = keyplan.open("memory:")
    plant = Plant(store)
    plant.machines.insert("m1", Machine("s1", ["red", "blue"]))
    plant.machines.insert("m2", Machine("s2"))
    plant.ports.insert(PortKey("m1", 80), "open", lease=store.lease(60))
    plant.orders.next()
    return store


def test_every_key_of_a_whole_store_is_explained(store: Store) -> None:
    report = audited(store)
    assert {name: (tally.kind, tally.keys, tally.leased) for name, tally in report.items.items()} == {
        "machines": ("table", 2, 0),
        "ports": ("table", 1, 1),
        "by_serial": ("unique", 2, 0),
        "by_tag": ("index", 2, 0),
        "orders": ("counter", 1, 0),
    }
    assert (report.keys, report.explained, report.percent, report.is_explained) == (8, 8, 100.0, True)
    assert report.items["ports"].key_bytes == len("/plant/machine/m1/ports/80")
    assert report.items["ports"].value_bytes == len("open")
    assert report.departures == ()


def test_an_empty_store_is_explained() -> None:
    with keyplan.open("memory:") as store:
        report = audited(store)
    assert (report.keys, report.percent, report.is_explained) == (0, 100.0, True)


def test_unknown_keys_are_grouped_by_where_they_depart(store: Store) -> None:
    with_raw(
        store,
        {
            b"/plant/machine/m1/ports/x1": b"",
            b"/plant/machine/m2/ports/x22": b"",
            b"/plant/machine/m2/disks/1": b"",
            b"/plant/machines/": b"",
            b"/tmp/lock": b"1",
            b"/tmp/lock2": b"1",
            b"\xff\xfe": b"",
        },
    )
    report = audited(store)
    assert [(group.kind, group.item, group.place, group.keys) for group in report.departures] == [
        (Kind.UNKNOWN, None, "/tmp/", 2),
        (Kind.UNKNOWN, "ports", "machine/{machine}/ports/", 2),
        (Kind.UNKNOWN, None, "", 1),
        (Kind.NAMESPACE, "machines", "machines/", 1),
        (Kind.UNKNOWN, "ports", "machine/{machine}/disks/", 1),
    ]
    ports = report.departures[1]
    assert ports.samples == [b"/plant/machine/m1/ports/x1", b"/plant/machine/m2/ports/x22"]
    assert ports.position == len("/plant/machine/m1/ports/")
    assert (report.keys, report.unknown, report.namespace_keys) == (15, 6, 1)
    assert report.percent == pytest.approx(100 * 8 / 15)


def test_values_that_cannot_be_read_are_not_explained(store: Store) -> None:
    with_raw(
        store,
        {
            b"/plant/machines/m3": b"{",
            b"/plant/next-order": b"x",
            b"/plant/by-serial/s9": b"a/b",
            b"/plant/by-tag/a/m": b"",
        },
    )
    report = audited(store)
    assert {name: tally.unreadable for name, tally in report.items.items() if tally.unreadable} == {
        "machines": 1,
        "by_serial": 1,
        "orders": 1,
    }
    assert report.items["machines"].samples == [b"/plant/machines/m3"]
    assert (report.keys, report.explained, report.unreadable) == (11, 8, 3)  # the counter was explained before


def test_what_keyplan_keeps_and_what_lies_elsewhere_is_counted_apart() -> None:
    with keyplan.open("memory:") as store:
        pairs = {
            b"\x00ki/state": b"",
            b"/n/users/a": b"x",
            b"/n/Test/t1/users/b": b"x",
            b"/plant/machines/m": b'{"serial":""}',
        }
        with_raw(store, pairs)
        with store.engine.snapshot() as snapshot:
            report = audit(snapshot, Nested.bound(), beside=[Plant.bound()])
    assert (report.keys, report.explained, report.own) == (1, 1, 1)
    assert report.elsewhere == {"Nested below another root": 1, "Plant": 1}


def test_only_keys_below_a_prefix_are_counted(store: Store) -> None:
    with_raw(store, {b"/tmp/lock": b"1"})
    assert audited(store, prefix=b"/plant/").percent == 100.0
    assert audited(store, prefix=b"/tmp/").percent == 0.0
    assert audited(store, prefix=b"/plant/by-tag/").keys == 2


def test_the_number_of_groups_is_bounded() -> None:
    with keyplan.open("memory:") as store:
        with_raw(store, {b"/d%d/x" % number: b"" for number in range(GROUPS_MAX + 44)})
        report = audited(store)
    assert (len(report.departures), report.groups_left_out, report.unknown) == (GROUPS_MAX, 44, GROUPS_MAX + 44)


def test_progress_is_told_and_ends_with_all_keys(store: Store) -> None:
    told: list[int] = []
    with store.engine.snapshot() as snapshot:
        audit(snapshot, Plant.bound(), progress=told.append)
    assert told[-1] == 8
