"""Every key that the Patroni broker's document prints, byte for byte, and what the rulings make of the keys around them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from keyplan import Secret
from keyplan.apps.patroni import DEFAULT_IMAGE, Broker, Member, MemberKey, NodeKey, RegistrationKey
from keyplan.errors import CorruptionError, InvalidKeyError, InvalidRecordError
from keyplan.layout import BoundLayout, Kind

FIRST: Final = "f16bc34d-c3de-4843-9dc6-b183cbce2238"
SECOND: Final = "c65d2e1a-eb6b-401e-ac9b-195f8f942d26"
HOST: Final = "{}.patroni.patroni1.patroni.bosh"

DOCUMENT: Final[tuple[tuple[str, str, object], ...]] = (
    ("/service/f1/members/f16bc34d-c3de-4843-9dc6-b183cbce2238", "members", MemberKey("f1", FIRST)),
    ("/service/f1/members/c65d2e1a-eb6b-401e-ac9b-195f8f942d26", "members", MemberKey("f1", SECOND)),
    (
        "/postgresql-patroni/0.patroni.patroni1.patroni.bosh:cf-cb71d10a-c84c-455f-9dbf-ff9bd1e1b8db:5432",
        "registrations",
        RegistrationKey("postgresql-patroni", HOST.format(0), "cf-cb71d10a-c84c-455f-9dbf-ff9bd1e1b8db", 5432),
    ),
    (
        "/postgresql-patroni/1.patroni.patroni1.patroni.bosh:cf-d0cfa70a-12de-441f-94e7-65a64cb583c0:5432",
        "registrations",
        RegistrationKey("postgresql-patroni", HOST.format(1), "cf-d0cfa70a-12de-441f-94e7-65a64cb583c0", 5432),
    ),
    ("/routing/allocation/f1", "allocations", "f1"),
    ("/routing/nextport", "next_port", ()),
    (
        "/serviceinstances/f1/nodes/f16bc34d-c3de-4843-9dc6-b183cbce2238/backend",
        "nodes",
        NodeKey("f1", FIRST),
    ),
    (
        "/serviceinstances/f1/nodes/c65d2e1a-eb6b-401e-ac9b-195f8f942d26/backend",
        "nodes",
        NodeKey("f1", SECOND),
    ),
)

BESIDE_THE_DOCUMENT: Final[tuple[tuple[str, str, object], ...]] = (
    # 1.3 and 4.2: what Patroni keeps beside its members.
    ("/service/f1/initialize", "initializations", "f1"),
    ("/service/f1/leader", "leaders", "f1"),
    ("/service/f1/optime/leader", "optimes", "f1"),
    ("/service/f1/status", "statuses", "f1"),
    ("/service/f1/config", "configurations", "f1"),
    ("/service/f1/history", "histories", "f1"),
    ("/service/f1/sync", "syncs", "f1"),
    ("/service/f1/failover", "failovers", "f1"),
    ("/service/f1/failsafe", "failsafes", "f1"),
    # 1.5: another image; the broker's own record of an instance.
    (
        "/dingo-postgresql-5432/10.244.21.8:cf-cb71d10a:8008",
        "registrations",
        RegistrationKey("dingo-postgresql-5432", "10.244.21.8", "cf-cb71d10a", 8008),
    ),
    ("/serviceinstances/f1/state", "instances", "f1"),
    # 1.6: what the broker derives, in a directory that version 2 of etcd's protocol does not list.
    ("/_broker/ports/33006", "instance_by_port", 33006),
    (f"/_broker/addresses/10.244.21.8:32768/f1/{FIRST}", "members_by_address", ("10.244.21.8:32768", "f1", FIRST)),
    (f"/_broker/nodes/{FIRST}", "node_by_name", FIRST),
    (f"/_broker/intents/f1/{FIRST}", "node_intents", NodeKey("f1", FIRST)),
)


@pytest.fixture(scope="module")
def broker() -> BoundLayout:
    return Broker.bound()


golden = pytest.mark.parametrize(
    ("raw_key", "item", "key"),
    [(raw_key.encode(), item, key) for raw_key, item, key in DOCUMENT + BESIDE_THE_DOCUMENT],
    ids=[raw_key for raw_key, _, _ in DOCUMENT + BESIDE_THE_DOCUMENT],
)


@golden
def test_a_key_is_spelled_as_the_document_prints_it(
    broker: BoundLayout, raw_key: bytes, item: str, key: object
) -> None:
    if item in broker.counters:
        assert broker.counters[item].raw_key == raw_key
        return
    assert (broker.tables.get(item) or broker.indexes[item]).keys.encode(key) == raw_key


@golden
def test_a_raw_key_is_read_as_what_the_document_says(
    broker: BoundLayout, raw_key: bytes, item: str, key: object
) -> None:
    meaning = broker.meaning(raw_key)
    assert (meaning.item, meaning.key) == (item, key)
    kinds = {**dict.fromkeys(broker.tables, Kind.RECORD), **dict.fromkeys(broker.indexes, Kind.INDEX_ENTRY)}
    assert meaning.kind is kinds.get(item, Kind.COUNTER)


def test_the_image_of_the_document_is_the_default() -> None:
    assert DEFAULT_IMAGE == "postgresql-patroni"


# ---- values ------------------------------------------------------------------------------------------------------------

MEMBER_OF_THE_DOCUMENT: Final = b"""{
  "role": "master",
  "state": "running",
  "conn_url": "postgres://replicator:replicator@10.244.21.8:32768/postgres",
  "api_url": "http://127.0.0.1:8008/patroni",
  "xlog_location": 83886336
}"""

# Written by Patroni 4.1.5.
MEMBER_OF_TODAY: Final = (
    b'{"conn_url":"postgres://127.0.0.1:25433/postgres","api_url":"http://127.0.0.1:28009/patroni","state":"running",'
    b'"role":"replica","version":"4.1.5","xlog_location":53417672,"replay_lsn":53417672,"receive_lsn":53417672,'
    b'"replication_state":"streaming","timeline":6,"tags":{"nofailover":true}}'
)


def test_the_member_of_the_document_is_read(broker: BoundLayout) -> None:
    member = broker.tables["members"].form.decode(MEMBER_OF_THE_DOCUMENT)
    assert member == Member(
        role="master",
        state="running",
        conn_url=Secret("postgres://replicator:replicator@10.244.21.8:32768/postgres"),
        api_url="http://127.0.0.1:8008/patroni",
        xlog_location=83886336,
    )


def test_a_member_of_today_is_written_back_with_everything_that_it_said(broker: BoundLayout) -> None:
    form = broker.tables["members"].form
    assert json.loads(form.encode(form.decode(MEMBER_OF_TODAY))) == json.loads(MEMBER_OF_TODAY)


def test_every_key_of_a_real_cluster_is_explained_and_its_value_is_read_and_written_back(
    broker: BoundLayout, shared: Path
) -> None:
    recorded = json.loads((shared / "data" / "etcd-v2" / "patroni-keys.json").read_bytes())
    found = dict(leaves(recorded["node"]))
    assert sorted(found) == [
        *(f"/service/f1/{name}" for name in ("config", "failover", "failsafe", "history", "initialize", "leader")),
        "/service/f1/members/n1",
        "/service/f1/members/n2",
        *(f"/service/f1/{name}" for name in ("status", "sync")),
    ]
    for key, value in found.items():
        meaning = broker.meaning(key.encode())
        assert meaning.kind is Kind.RECORD
        assert meaning.item is not None
        form = broker.tables[meaning.item].form
        written = form.encode(form.decode(value.encode())).decode()
        assert written == value or json.loads(written) == json.loads(value)


def leaves(node: dict[str, Any]) -> Iterator[tuple[str, str]]:
    if "value" in node:
        yield node["key"], node["value"]
    for child in node.get("nodes", ()):
        yield from leaves(child)


def test_an_allocated_port_is_decimal_text(broker: BoundLayout) -> None:
    form = broker.tables["allocations"].form
    assert form.encode(33006) == b"33006"
    assert form.decode(b"33006") == 33006


@pytest.mark.parametrize("raw", [b"0", b"65536", b"033006", b"-1", b"", b"33006\n", b"http"])
def test_a_port_outside_1_to_65535_is_damage(broker: BoundLayout, raw: bytes) -> None:
    with pytest.raises(CorruptionError):
        broker.tables["allocations"].form.decode(raw)


@pytest.mark.parametrize("port", [0, 65536])
def test_a_port_outside_1_to_65535_is_not_written(broker: BoundLayout, port: int) -> None:
    with pytest.raises(InvalidRecordError):
        broker.tables["allocations"].form.encode(port)


def test_the_next_port_is_decimal_text_and_starts_at_33000(broker: BoundLayout) -> None:
    counter = broker.counters["next_port"]
    assert counter.start == 33000
    assert counter.encode(33007) == b"33007"
    assert counter.decode(b"33007") == 33007


@pytest.mark.parametrize(
    ("table", "raw", "value"),
    [
        ("initializations", b"", ""),
        ("initializations", b"7710453740755543520", "7710453740755543520"),
        ("leaders", b"n1", "n1"),
        ("optimes", b"53417672", 53417672),
        ("nodes", b"10.244.21.8", "10.244.21.8"),
        ("registrations", b"10.244.21.8:32768", "10.244.21.8:32768"),
        ("failsafes", b'{"n1":"http://127.0.0.1:28008/patroni"}', {"n1": "http://127.0.0.1:28008/patroni"}),
        ("configurations", b'{"ttl":30,"loop_wait":10}', {"ttl": 30, "loop_wait": 10}),
        ("histories", b"[]", []),
    ],
)
def test_a_value_is_read_as_its_writer_meant_it(broker: BoundLayout, table: str, raw: bytes, value: object) -> None:
    assert broker.tables[table].form.decode(raw) == value


def test_what_is_alive_hangs_on_a_lease_and_nothing_else_does(broker: BoundLayout) -> None:
    """Members and leaders are Patroni's; registrations, cells and reports a cell's; claims a broker's; routers a router's."""
    leased = {name for name, table in broker.tables.items() if table.spec.has_lease}
    assert leased == {"members", "leaders", "registrations", "cells", "reports", "claims", "routers"}


# ---- derived indexes ---------------------------------------------------------------------------------------------------


def entries_of(layout: BoundLayout, table: str, key: object, record: object) -> dict[bytes, bytes]:
    return {raw_key: value for index in layout.tables[table].indexes for raw_key, value in index.entries(key, record)}


def test_a_member_is_found_by_the_address_that_it_advertises(broker: BoundLayout) -> None:
    member = broker.tables["members"].form.decode(MEMBER_OF_THE_DOCUMENT)
    assert entries_of(broker, "members", MemberKey("f1", FIRST), member) == {
        b"/_broker/addresses/10.244.21.8:32768/f1/f16bc34d-c3de-4843-9dc6-b183cbce2238": b"",
    }


@pytest.mark.parametrize("url", [None, "", "postgres://", "postgres://a\x01b:1/x", "10.0.0.1:5432", "postgres://h:x/"])
def test_a_member_without_a_readable_address_has_no_entry(broker: BoundLayout, url: str | None) -> None:
    assert (
        entries_of(broker, "members", MemberKey("f1", FIRST), Member(conn_url=None if url is None else Secret(url)))
        == {}
    )


def test_an_address_leads_to_its_member(broker: BoundLayout) -> None:
    raw_key = f"/_broker/addresses/10.244.21.8:32768/f1/{FIRST}".encode()
    assert broker.indexes["members_by_address"].primary_key(raw_key, b"") == MemberKey("f1", FIRST)


def test_members_at_one_address_are_listed_without_those_at_a_longer_one(broker: BoundLayout) -> None:
    start, end = broker.indexes["members_by_address"].keys.range(("10.244.21.8:3276",))
    assert (start, end) == (b"/_broker/addresses/10.244.21.8:3276/", b"/_broker/addresses/10.244.21.8:32760")


def test_a_port_leads_to_the_instance_that_has_it(broker: BoundLayout) -> None:
    assert entries_of(broker, "allocations", "f1", 33006) == {b"/_broker/ports/33006": b"f1"}
    assert broker.indexes["instance_by_port"].primary_key(b"/_broker/ports/33006", b"f1") == "f1"


def test_a_node_leads_to_its_instance(broker: BoundLayout) -> None:
    entries = entries_of(broker, "nodes", NodeKey("f1", FIRST), "10.244.21.8")
    raw_key = b"/_broker/nodes/f16bc34d-c3de-4843-9dc6-b183cbce2238"
    raw_value = b"serviceinstances/f1/nodes/f16bc34d-c3de-4843-9dc6-b183cbce2238/backend"
    assert entries == {raw_key: raw_value}
    assert broker.indexes["node_by_name"].primary_key(raw_key, raw_value) == NodeKey("f1", FIRST)


# ---- keys that are none ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw_key", "nearest", "agreed"),
    [
        # 1.6 (1): the singular of the heading.
        (b"/serviceinstance/f1", "registrations", b"/serviceinstance/f1"),
        # 1.5: the later form's records inside Patroni's directory.
        (b"/service/f1/state", "statuses", b"/service/f1/stat"),
        (b"/service/f1/nodes/n1", "members", b"/service/f1/"),
        # Directories, which etcd's version 2 lists and the shared key space does not hold.
        (b"/service", "members", b"/service"),
        (b"/service/f1", "members", b"/service/f1"),
        (b"/routing/allocation", "allocations", b"/routing/allocation"),
        (b"/serviceinstances/f1", "nodes", b"/serviceinstances/f1"),
        # A registration with a colon too many, without a port, or with a port that is none.
        (b"/postgresql-patroni/a::a:0", "registrations", b"/postgresql-patroni/a:"),
        (b"/postgresql-patroni/h:c:5432:udp", "registrations", b"/postgresql-patroni/h:c:5432"),
        (b"/postgresql-patroni/h:c", "registrations", b"/postgresql-patroni/h:c"),
        (b"/postgresql-patroni/h:c:05432", "registrations", b"/postgresql-patroni/h:c:"),
        (b"/routing/nextport/x", "next_port", b"/routing/nextport"),
        (b"/service/f1/members/a/b", "members", b"/service/f1/members/a"),
        (b"/_broker/ports/0", "instance_by_port", b"/_broker/ports/"),
    ],
    ids=lambda value: value.decode() if isinstance(value, bytes) else value,
)
def test_a_key_that_no_template_spells_is_unknown_and_says_where_it_departs(
    broker: BoundLayout, raw_key: bytes, nearest: str, agreed: bytes
) -> None:
    meaning = broker.meaning(raw_key)
    assert meaning.kind is Kind.UNKNOWN
    assert (meaning.item, meaning.position) == (nearest, len(agreed))


@pytest.mark.parametrize("raw_key", [b"/", b"/service/", b"/service/f1/members/", b"/routing/allocation/"])
def test_a_marker_of_a_directory_is_no_record(broker: BoundLayout, raw_key: bytes) -> None:
    assert broker.meaning(raw_key).kind is Kind.NAMESPACE


@pytest.mark.parametrize(
    "key",
    [
        RegistrationKey("service", "h", "c", 1),
        RegistrationKey("routing", "h", "c", 1),
        RegistrationKey("serviceinstances", "h", "c", 1),
        RegistrationKey("_broker", "h", "c", 1),
        RegistrationKey("i", "h:1", "c", 1),
        RegistrationKey("i", "h", "c:1", 1),
        RegistrationKey("i", "h", "c", 0),
        RegistrationKey("a/i", "h", "c", 1),
    ],
    ids=str,
)
def test_a_registration_that_could_be_read_as_another_is_refused(broker: BoundLayout, key: RegistrationKey) -> None:
    with pytest.raises(InvalidKeyError):
        broker.tables["registrations"].keys.encode(key)


@pytest.mark.parametrize("instance", ["", "a/b", "a\n", "x" * 256])
def test_an_instance_has_an_id_that_fits_into_a_key(broker: BoundLayout, instance: str) -> None:
    with pytest.raises(InvalidKeyError):
        broker.tables["allocations"].keys.encode(instance)


def test_every_item_says_what_it_stands_for() -> None:
    assert [item.name for item in Broker.spec.items if not item.note] == []
