"""The registry's keys byte for byte, the prefixes of key spaces, and the proof that the two never meet."""

from itertools import pairwise
from typing import Final, NamedTuple

import pytest

from keyplan.codec import Element, element_of_spec
from keyplan.errors import CorruptionError, InvalidKeyError, InvalidRecordError
from keyplan.keyspace import (
    Configuration,
    DataKey,
    Fence,
    FenceForm,
    HistoryKey,
    KeySpaceRange,
    KeySpaceRecord,
    KeySpaceRegistry,
    OrderedDataKey,
    OrderedKeySpaces,
    SessionKey,
    State,
    UvarintKeySpaces,
)
from keyplan.layout import CompiledKeys, Kind, Layout, Only, describe, layout_of_description
from keyplan.layout.rules import EngineLimits, Severity, lint


class Golden(NamedTuple):
    """A key of the registry in hexadecimal digits, its table, and the Python key."""

    table: str
    key: object
    raw: str


# keyspaces.md 1.5, in its order; 6b 70 is "kp", 6f72... is "orders".
GOLDEN: Final = (
    Golden("header", Only(), "00 6b70 00 686561646572"),
    Golden("records", "orders", "00 6b70 01 6f7264657273 00"),
    Golden("holders", b"\x01", "00 6b70 02 01"),
    Golden("holders", b"\x80\x01", "00 6b70 02 8001"),
    Golden("holders", b"/runm/", "00 6b70 02 2f72756e6d2f"),
    Golden("fences", "orders", "00 6b70 03 6f7264657273 00"),
    Golden("audit", 1, "00 6b70 04 0000000000000001"),
    Golden("history", HistoryKey("orders", 2), "00 6b70 05 6f7264657273 00 0000000000000002"),
    Golden("marks", b"\x03", "00 6b70 06 03"),
    Golden("sessions", SessionKey("orders", 0x32695), "00 6b70 07 6f7264657273 00 0000000000032695"),
    Golden("deletions", "orders", "00 6b70 08 6f7264657273 00"),
    Golden("configuration", Only(), "00 6b70 09 636667"),
    Golden("order", 258, "00 6b70 0a 0000000000000102"),
    Golden("usage", "orders", "00 6b70 0b 6f7264657273 00"),
    Golden("quotas", "orders", "00 6b70 0c 6f7264657273 00"),
    Golden("sweeper", Only(), "00 6b70 0d 73776565706572"),
    Golden("audit_head", Only(), "00 6b70 0e 6175646974"),
    Golden("leases", 0x32695, "00 6b70 0f 0000000000032695"),
    Golden("floors", "orders", "00 6b70 10 6f7264657273 00"),
)

# keyspaces.md 1.3: number, unsigned LEB128, length first.
PREFIXES: Final = (
    (1, "01", "01"),
    (109, "6d", "6d"),
    (116, "74", "74"),
    (127, "7f", "7f"),
    (128, "8001", "8080"),
    (129, "8101", "8081"),
    (255, "ff01", "80ff"),
    (256, "8002", "8100"),
    (300, "ac02", "812c"),
    (16383, "ff7f", "bfff"),
    (16384, "808001", "c04000"),
    (2097151, "ffff7f", "dfffff"),
    (2097152, "80808001", "e0200000"),
    (268435455, "ffffff7f", "efffffff"),
)


def keys_of(layout: type[Layout], table: str) -> CompiledKeys:
    return layout.bound().table(table).keys


def prefix_codec(layout: type[Layout]) -> Element[object]:
    """The codec of the prefixes of a layout of key spaces."""
    return layout.spec.tables["data"].template.fields[0].element


# ---- the registry --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda golden: f"{golden.table} {golden.raw}")
def test_a_key_of_the_registry_has_the_specified_bytes_and_they_mean_it(golden: Golden) -> None:
    raw = bytes.fromhex(golden.raw)
    assert keys_of(KeySpaceRegistry, golden.table).encode(golden.key) == raw
    assert keys_of(KeySpaceRegistry, golden.table).decode(raw) == golden.key
    meaning = KeySpaceRegistry.bound().meaning(raw)
    assert (meaning.kind, meaning.item, meaning.key) == (Kind.RECORD, golden.table, golden.key)


def test_every_table_of_the_registry_has_a_key_here_and_names_its_source() -> None:
    assert {golden.table for golden in GOLDEN} == set(KeySpaceRegistry.spec.tables)
    assert [item.name for item in KeySpaceRegistry.spec.items if not item.note] == []


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "a\x00", "é", "n" * 65])
def test_what_is_no_name_of_a_key_space_is_refused(name: str) -> None:
    with pytest.raises(InvalidKeyError):
        keys_of(KeySpaceRegistry, "records").encode(name)


def test_no_name_is_the_start_of_another() -> None:
    shorter, longer = (keys_of(KeySpaceRegistry, "records").encode(name) for name in ("order", "orders"))
    assert not longer.startswith(shorter)
    assert shorter < longer


def test_the_history_of_a_name_is_listed_without_that_of_names_that_begin_alike() -> None:
    start, end = keys_of(KeySpaceRegistry, "history").range(("order",))
    assert (start, end) == (b"\x00kp\x05order\x00", b"\x00kp\x05order\x01")
    inside = keys_of(KeySpaceRegistry, "history").encode(HistoryKey("order", 2**64 - 1))
    beside = keys_of(KeySpaceRegistry, "history").encode(HistoryKey("orders", 1))
    assert end is not None
    assert start <= inside < end <= beside


def test_only_sessions_the_sweeper_and_marks_of_leases_are_leased() -> None:
    leased = [table.name for table in KeySpaceRegistry.spec.tables.values() if table.has_lease]
    assert leased == ["sessions", "sweeper", "leases"]


def test_a_record_is_stored_as_the_api_shows_it_with_its_place_in_the_list_and_the_epoch_of_its_prefix() -> None:
    """keyspaces.md 1.5, the record's JSON, without its line breaks; R9 asks for the epoch, KS-22 for the order."""
    record = KeySpaceRecord(
        id="orders",
        name="orders",
        application="shop",
        prefix="01",
        prefix_number=1,
        range=KeySpaceRange("01", "02"),
        state=State.ENABLED,
        generation=1,
        created_at="2026-11-21T02:50:00Z",
        sequence=7,
        prefix_epoch=2,
    )
    raw = (
        b'{"id":"orders","name":"orders","application":"shop","description":"",'
        b'"prefix":"01","prefix_number":1,"range":{"start":"01","end":"02"},'
        b'"state":"ENABLED","generation":1,'
        b'"created_at":"2026-11-21T02:50:00Z","deleted_at":null,"delete_completed_at":null,'
        b'"sequence":7,"prefix_epoch":2}'
    )
    form = KeySpaceRegistry.spec.tables["records"].form
    assert form.encode(record) == raw
    assert form.decode(raw) == record


def test_the_switches_have_the_names_and_defaults_of_the_document() -> None:
    """`By default the configuration keyspace-api-enabled will be set to false`; self-registration: `by default it is`."""
    form = KeySpaceRegistry.spec.tables["configuration"].form
    assert form.encode(Configuration()) == (
        b'{"keyspace-api-enabled":false,"self-registration-enabled":true,"reservations":[],"skip-printable":false,'
        b'"protected":[],"prefix-bytes-max":4,"max-client-lease-seconds":60,"reuse-cooldown-seconds":60,'
        b'"delete-grace-seconds":0}'
    )


@pytest.mark.parametrize(
    ("fence", "raw"),
    [
        (Fence(1, State.ENABLED, "own"), "0000000000000001 01 6f776e"),
        (Fence(1, State.DISABLED, "own"), "0000000000000001 02 6f776e"),
        (Fence(258, State.DELETING, "\u00e9"), "0000000000000102 03 c3a9"),
        (Fence(2**64 - 1, State.DELETED, "\0"), "ffffffffffffffff 04 00"),
        (Fence(3, State.RESTORING, "own"), "0000000000000003 05 6f776e"),
    ],
)
def test_a_fence_is_its_generation_one_byte_of_state_and_the_registry_s_id(fence: Fence, raw: str) -> None:
    assert FenceForm().encode(fence) == bytes.fromhex(raw)
    assert FenceForm().decode(bytes.fromhex(raw)) == fence


@pytest.mark.parametrize(
    "raw",
    [
        "",
        "01",
        "0000000000000001",
        "000000000000000101",
        "00000000000000010061",
        "00000000000000010661",
        "000000000000000101ff",
    ],
)
def test_what_is_no_fence_is_corrupt(raw: str) -> None:
    with pytest.raises(CorruptionError):
        FenceForm().decode(bytes.fromhex(raw))


@pytest.mark.parametrize(
    "fence",
    [
        Fence(-1, State.ENABLED, "own"),
        Fence(2**64, State.ENABLED, "own"),
        Fence(1, State.ENABLED, ""),
        Fence(1, State.ENABLED, "\ud800"),
    ],
)
def test_a_fence_that_says_less_or_more_is_refused(fence: Fence) -> None:
    with pytest.raises(InvalidRecordError):
        FenceForm().encode(fence)


# ---- prefixes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("number", "uvarint", "ordered"), PREFIXES, ids=[str(row[0]) for row in PREFIXES])
def test_a_key_of_a_key_space_is_its_prefix_and_the_applications_key(number: int, uvarint: str, ordered: str) -> None:
    for layout, kind, prefix in (
        (UvarintKeySpaces, DataKey, bytes.fromhex(uvarint)),
        (OrderedKeySpaces, OrderedDataKey, bytes.fromhex(ordered)),
    ):
        compiled = keys_of(layout, "data")
        for key in (b"", b"k", b"\x00\xff"):
            assert compiled.encode(kind(number, key)) == prefix + key
            assert compiled.decode(prefix + key) == kind(number, key)


@pytest.mark.parametrize(
    ("layout", "number", "start", "end"),
    [
        (UvarintKeySpaces, 1, "01", "02"),
        (UvarintKeySpaces, 127, "7f", "80"),
        (UvarintKeySpaces, 128, "8001", "8002"),
        (UvarintKeySpaces, 255, "ff01", "ff02"),
        (OrderedKeySpaces, 128, "8080", "8081"),
        (OrderedKeySpaces, 255, "80ff", "81"),
    ],
)
def test_the_range_of_a_key_space_ends_where_its_last_byte_grows(
    layout: type[Layout], number: int, start: str, end: str
) -> None:
    """R3, AC-01, AC-02; for the ordered code with carry: 80 ff, then 81, before the next prefix 81 00."""
    assert keys_of(layout, "data").range((number,)) == (bytes.fromhex(start), bytes.fromhex(end))


@pytest.mark.parametrize("number", [0, -1, 2**28, True, "1", None])
@pytest.mark.parametrize("layout", [UvarintKeySpaces, OrderedKeySpaces])
def test_what_is_no_number_of_a_key_space_is_refused(layout: type[Layout], number: object) -> None:
    with pytest.raises(InvalidKeyError):
        keys_of(layout, "data").encode((number, b"k"))


@pytest.mark.parametrize(
    ("layout", "raw"),
    [
        (UvarintKeySpaces, "00"),
        (UvarintKeySpaces, ""),
        (UvarintKeySpaces, "80"),
        (UvarintKeySpaces, "8100"),
        (UvarintKeySpaces, "8000"),
        (UvarintKeySpaces, "8080808001"),
        (OrderedKeySpaces, "00"),
        (OrderedKeySpaces, "80"),
        (OrderedKeySpaces, "8001"),
        (OrderedKeySpaces, "f010000000"),
    ],
)
def test_what_no_prefix_begins_is_nobodys(layout: type[Layout], raw: str) -> None:
    """R4: reserved, unterminated, over-long. A key that goes on after its prefix is that key space's."""
    assert keys_of(layout, "data").decode(bytes.fromhex(raw)) is None


def test_the_owner_of_a_key_is_read_from_its_first_bytes() -> None:
    """AC-15: `8001ff` is number 128's, `00...` the registry's, `90` nobody's."""
    assert keys_of(UvarintKeySpaces, "data").decode(b"\x80\x01\xff") == DataKey(128, b"\xff")
    assert not UvarintKeySpaces.bound().meaning(b"\x00kp\x01orders\x00").is_known
    assert not UvarintKeySpaces.bound().meaning(b"\x90").is_known


def test_no_prefix_is_the_start_of_another_and_ranges_are_disjoint() -> None:
    """AC-04, for neighbours in byte order: if any two prefixes nested, two neighbours would."""
    numbers = [*range(1, 700), *range(16_300, 16_600), 2**21 - 1, 2**21, 2**28 - 1]
    for layout in (UvarintKeySpaces, OrderedKeySpaces):
        codec = prefix_codec(layout)
        prefixes = sorted(codec.encode(number) for number in numbers)
        assert not any(after.startswith(before) for before, after in pairwise(prefixes))


def test_only_the_ordered_code_keeps_order() -> None:
    """AC-14: sorted codes of 1 to 40000 are in numeric order; in LEB128, 311 of them are followed by a smaller one."""
    ordered = [prefix_codec(OrderedKeySpaces).encode(number) for number in range(1, 40_001)]
    uvarint = [prefix_codec(UvarintKeySpaces).encode(number) for number in range(1, 40_000)]
    assert ordered == sorted(ordered)
    assert sum(after < before for before, after in pairwise(uvarint)) == 311


@pytest.mark.parametrize(("layout", "boundaries"), [(UvarintKeySpaces, 384), (OrderedKeySpaces, 257)])
def test_key_spaces_share_as_many_boundaries_as_specified(layout: type[Layout], boundaries: int) -> None:
    """AC-14: key spaces 1 to 255; a boundary is shared where the end of one, written out, is the start of the next."""
    width = 4
    compiled = keys_of(layout, "data")
    found = set()
    for number in range(1, 256):
        start, end = compiled.range((number,))
        assert end is not None
        found |= {start.ljust(width, b"\x00"), end.ljust(width, b"\x00")}
    assert len(found) == boundaries


def test_the_codecs_are_those_that_the_registry_names() -> None:
    assert prefix_codec(UvarintKeySpaces) == element_of_spec("uvarint(least=1,bytes_max=4)")
    assert prefix_codec(OrderedKeySpaces) == element_of_spec("prefix_varint(least=1,bytes_max=4)")


# ---- lint ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", [KeySpaceRegistry, UvarintKeySpaces, OrderedKeySpaces])
def test_a_layout_has_no_finding_graver_than_a_note_but_the_order_of_leb128(layout: type[Layout]) -> None:
    found = [finding for finding in lint(layout.spec).findings if finding.severity is not Severity.NOTE]
    assert [(finding.rule, finding.subject, finding.is_waived) for finding in found] == (
        [("L7", "data.number", True)] if layout is UvarintKeySpaces else []
    )


@pytest.mark.parametrize("layout", [KeySpaceRegistry, UvarintKeySpaces, OrderedKeySpaces])
def test_every_key_of_the_registry_fits_lmdb_and_keys_of_applications_are_their_own_affair(
    layout: type[Layout],
) -> None:
    report = lint(layout.spec, limits=EngineLimits(key_bytes_max=511))
    report.check()
    assert [finding.subject for finding in report.of_rule("L10")] == ([] if layout is KeySpaceRegistry else ["data"])


def test_the_order_of_leb128_is_shown_by_two_keys() -> None:
    """Anchors 1.3: 256 = `80 02` sorts before 129 = `81 01`, so the next region's boundary is not the next number."""
    (disorder,) = lint(UvarintKeySpaces.spec).of_rule("L7")
    assert disorder.witness is not None
    assert disorder.second is not None
    compiled = keys_of(UvarintKeySpaces, "data")
    smaller, greater = compiled.decode(disorder.second), compiled.decode(disorder.witness)
    assert isinstance(smaller, DataKey)
    assert isinstance(greater, DataKey)
    assert disorder.witness < disorder.second
    assert smaller.number < greater.number


@pytest.mark.parametrize("layout", [UvarintKeySpaces, OrderedKeySpaces])
def test_no_key_of_the_registry_is_a_key_of_a_key_space(layout: type[Layout]) -> None:
    """R1: everything that starts with byte 00 is the registry's: no collision, no directory, and its lists leak nothing."""
    report = lint(KeySpaceRegistry.spec, others=[layout.spec])
    for rule in ("L1", "L2", "L3"):
        assert report.of_rule(rule) == ()
    assert [finding for finding in report.of_rule("L4") if finding.severity is not Severity.NOTE] == []
    assert len(report.of_rule("L6")) == 1


@pytest.mark.parametrize("layout", [KeySpaceRegistry, UvarintKeySpaces, OrderedKeySpaces])
def test_the_description_reads_back(layout: type[Layout]) -> None:
    described = describe(layout.spec)
    assert describe(layout_of_description(described)) == described
