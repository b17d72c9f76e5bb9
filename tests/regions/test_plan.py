"""Ranges, violations, splits and guards: the document's fixtures, its acceptance cases, and random key spaces."""

import json
import random
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyplan.codec import PrefixVarint, Uvarint
from keyplan.engine import KeyRange
from keyplan.errors import InvalidInputError
from keyplan.keyspace import State
from keyplan.regions import (
    NumberedSpace,
    OwnedRange,
    Region,
    RegisteredSpace,
    Rule,
    StoreMode,
    ViolationKind,
    boundaries_of,
    memcomparable,
    owned_ranges,
    parse_regions,
    parse_rules,
    plan_regions,
    rule_data,
    verify,
)
from tests.regions.scenarios import DEFAULT, F1_RULE, F3, F5, S1_BOUNDS, S1_SPACES, regions_between

BOTH = (StoreMode.RAW, StoreMode.TRANSACTIONAL)


def hexadecimal(keys: Sequence[bytes]) -> list[str]:
    return [key.hex() for key in keys]


def split(regions: Sequence[Region], key: bytes) -> list[Region]:
    """The regions after PD split one of them."""
    number = max(region.id for region in regions) + 1
    after: list[Region] = []
    for region in regions:
        if region.range.start < key and key in region.range:
            after.append(Region(region.id, KeyRange(region.range.start, key)))
            after.append(Region(number, KeyRange(key, region.range.end)))
        else:
            after.append(region)
    return after


# ---- ranges of API V2 (2.8, AC-52) ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "mode", "start", "end"),
    [
        (0, "raw", "7200000000000000fb", "7200000100000000fb"),
        (0, "txn", "7800000000000000fb", "7800000100000000fb"),
        (1, "raw", "7200000100000000fb", "7200000200000000fb"),
        (1, "txn", "7800000100000000fb", "7800000200000000fb"),
        (10, "raw", "7200000a00000000fb", "7200000b00000000fb"),
        (10, "txn", "7800000a00000000fb", "7800000b00000000fb"),
        (100, "raw", "7200006400000000fb", "7200006500000000fb"),
        (100, "txn", "7800006400000000fb", "7800006500000000fb"),
        (0x0102FF, "raw", "720102ff00000000fb", "7201030000000000fb"),
        (0x0102FF, "txn", "780102ff00000000fb", "7801030000000000fb"),
        (0x0001FF, "txn", "780001ff00000000fb", "7800020000000000fb"),
        (16777215, "raw", "72ffffff00000000fb", "7300000000000000fb"),
        (16777215, "txn", "78ffffff00000000fb", "7900000000000000fb"),
        (4242, "raw", "7200109200000000fb", "7200109300000000fb"),
        (0xFFFFFE, "txn", "78fffffe00000000fb", "78ffffff00000000fb"),
    ],
)
def test_the_range_of_a_number_has_the_ends_that_pd_gives_it(number: int, mode: str, start: str, end: str) -> None:
    (owned,) = owned_ranges([NumberedSpace("some", number)], [StoreMode(mode)])
    assert (owned.range.start.hex(), (owned.range.end or b"").hex()) == (start, end)


@pytest.mark.parametrize("number", [-1, 1 << 24, 0xFFFFFFFF])
def test_a_number_of_more_than_three_bytes_is_refused(number: int) -> None:
    with pytest.raises(InvalidInputError, match="16777215"):
        owned_ranges([NumberedSpace("some", number)])


# ---- ranges of prefixes, API V1 ---------------------------------------------------------------------------------------------


def test_prefixes_of_two_bytes_share_a_boundary_only_where_one_ends_at_the_next() -> None:
    spaces = [RegisteredSpace("a", b"\x80\x01"), RegisteredSpace("b", b"\x81\x01"), RegisteredSpace("c", b"\x80\x02")]
    encoded = boundaries_of(owned_ranges(spaces))
    assert hexadecimal(encoded) == [
        "8001000000000000f9",
        "8002000000000000f9",
        "8003000000000000f9",
        "8101000000000000f9",
        "8102000000000000f9",
    ]
    assert hexadecimal(boundaries_of(owned_ranges(spaces, [StoreMode.RAW]))) == ["8001", "8002", "8003", "8101", "8102"]


@pytest.mark.parametrize(
    ("count", "little_endian", "length_first"), [(127, 128, 128), (255, 384, 257), (1000, 1129, 1005)]
)
def test_the_number_of_boundaries_is_the_documents(count: int, little_endian: int, length_first: int) -> None:
    for element, boundaries in ((Uvarint(least=1), little_endian), (PrefixVarint(least=1), length_first)):
        spaces = [RegisteredSpace(str(number), element.encode(number)) for number in range(1, count + 1)]
        assert len(boundaries_of(owned_ranges(spaces))) == boundaries


def test_deleted_key_spaces_and_those_known_to_be_empty_need_no_regions() -> None:
    spaces = [
        RegisteredSpace("gone", b"\x01", State.DELETED),
        RegisteredSpace("going", b"\x02", State.DELETING),
        RegisteredSpace("off", b"\x03", State.DISABLED),
        RegisteredSpace("empty", b"\x04", is_empty=True),
        RegisteredSpace("coming", b"\x05", State.RESTORING),
    ]
    assert [owned.name for owned in owned_ranges(spaces)] == ["going", "off", "empty", "coming"]
    assert [owned.name for owned in owned_ranges(spaces, has_empty=False)] == ["going", "off", "coming"]


def test_ranges_that_overlap_and_prefixes_without_a_byte_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="overlap"):
        owned_ranges([RegisteredSpace("outer", b"/a/"), RegisteredSpace("inner", b"/a/b/")])
    with pytest.raises(InvalidInputError, match="empty"):
        owned_ranges([RegisteredSpace("all", b"")])
    with pytest.raises(InvalidInputError, match="one mode"):
        owned_ranges([RegisteredSpace("some", b"\x01")], BOTH)


# ---- F1, S1 -----------------------------------------------------------------------------------------------------------------


def test_number_0_in_one_region_is_split_at_the_four_keys_that_pd_logged() -> None:
    plan = plan_regions([DEFAULT], regions_between("", "", first=3), parse_rules(json.dumps([F1_RULE]).encode()),
                        cluster="c0ffee", modes=BOTH)  # fmt: skip
    assert hexadecimal(plan.split_keys) == [
        "7200000000000000fb",
        "7200000100000000fb",
        "7800000000000000fb",
        "7800000100000000fb",
    ]
    # PD's own rule guards all four already, and is not ours to delete.
    assert [violation.kind for violation in plan.proof.violations] == [ViolationKind.CROSSES_BOUNDARY]
    assert plan.rules_to_delete == ()


def test_scenario_1_has_exactly_the_violations_of_its_table() -> None:
    plan = plan_regions(S1_SPACES, regions_between(*S1_BOUNDS), cluster="c0ffee")
    assert [violation.data() for violation in plan.proof.violations] == [
        {
            "kind": "spans_keyspaces",
            "region_id": 12,
            "keyspaces": ["orders", "users"],
            "split_keys": ["0200000000000000F8"],
        },
        {
            "kind": "spans_keyspaces",
            "region_id": 15,
            "keyspaces": ["tidb-meta", "tidb-data"],
            "split_keys": ["6E00000000000000F8", "7400000000000000F8"],
        },
        {
            "kind": "crosses_boundary",
            "region_id": 16,
            "keyspaces": ["tidb-data"],
            "split_keys": ["7500000000000000F8"],
        },
    ]
    assert [key.hex().upper() for key in plan.split_keys] == [
        "0200000000000000F8",
        "6E00000000000000F8",
        "7400000000000000F8",
        "7500000000000000F8",
    ]
    assert not plan.proof.is_proven
    regions = regions_between(*S1_BOUNDS)
    for key in plan.split_keys:
        regions = split(regions, key)
    after = plan_regions(S1_SPACES, regions, cluster="c0ffee")
    assert len(regions) == 11
    assert after.proof.is_proven
    assert after.split_keys == ()
    assert all(space.is_covered for space in after.spaces)


def test_scenario_1_in_one_region_needs_seven_splits() -> None:
    plan = plan_regions(S1_SPACES, regions_between("", ""), cluster="c0ffee")
    assert [key.hex()[:2] for key in plan.split_keys] == ["01", "02", "03", "6d", "6e", "74", "75"]


def test_statistics_are_of_the_regions_inside_and_say_whether_they_cover_the_range() -> None:
    described = [
        {"id": 1, "start_key": "", "end_key": "01"},
        {"id": 2, "start_key": "01", "end_key": "0150", "approximate_size": 3, "approximate_keys": 10},
        {"id": 3, "start_key": "0150", "end_key": "02", "approximate_size": 4, "approximate_keys": 5},
        {"id": 4, "start_key": "02", "end_key": "0250"},
        {"id": 5, "start_key": "0250", "end_key": ""},
    ]
    spaces = [RegisteredSpace("a", b"\x01"), RegisteredSpace("b", b"\x02")]
    plan = plan_regions(spaces, parse_regions(json.dumps(described).encode()), cluster="c", modes=[StoreMode.RAW])
    assert plan.data()["keyspaces"] == [
        {
            "name": "a",
            "range": ["01", "02"],
            "covered": True,
            "regions": [2, 3],
            "approximate_size": 7,
            "approximate_keys": 15,
        },
        {
            "name": "b",
            "range": ["02", "03"],
            "covered": False,
            "regions": [4],
            "approximate_size": 0,
            "approximate_keys": 0,
        },
    ]


# ---- holes, overlaps, boundaries that decode to nothing (AC-54) --------------------------------------------------------------


def test_holes_are_reported_and_never_proven() -> None:
    described = [("EA", "EB"), ("EC", "ED"), ("ED", "EE"), ("FE", "FF")]
    regions = [
        {"id": number, "start_key": start, "end_key": end} for number, (start, end) in enumerate(reversed(described))
    ]
    proof = verify([], parse_regions(json.dumps(regions).encode()))
    assert proof.data()["holes"] == [["", "EA"], ["EB", "EC"], ["EE", "FE"], ["FF", ""]]
    assert not proof.is_proven
    assert proof.violations == ()


def test_no_region_at_all_is_one_hole() -> None:
    assert verify([], []).data()["holes"] == [["", ""]]


@pytest.mark.parametrize(
    ("bounds", "overlap"),
    [
        ([("", "50"), ("40", "")], {"region_ids": [0, 1], "range": ["40", "50"]}),
        ([("", ""), ("40", "60")], {"region_ids": [0, 1], "range": ["40", "60"]}),
        ([("", "50"), ("", "50"), ("50", "")], {"region_ids": [0, 1], "range": ["", "50"]}),
        ([("", "50"), ("40", "45"), ("50", "")], {"region_ids": [0, 1], "range": ["40", "45"]}),
    ],
)
def test_overlaps_are_reported_and_never_proven(bounds: list[tuple[str, str]], overlap: dict[str, object]) -> None:
    described = [{"id": number, "start_key": start, "end_key": end} for number, (start, end) in enumerate(bounds)]
    proof = verify([], parse_regions(json.dumps(described).encode()))
    assert proof.data()["overlaps"] == [overlap]
    assert proof.holes == ()
    assert not proof.is_proven


def test_boundaries_that_decode_to_nothing_are_compared_like_all_others() -> None:
    regions = regions_between("", "0100000000000000F8", "72696E64FD436C617374", "")
    proof = verify(owned_ranges([RegisteredSpace("orders", b"\x01")]), regions)
    assert [(violation.kind, violation.region_id) for violation in proof.violations] == [
        (ViolationKind.CROSSES_BOUNDARY, 11)
    ]


# ---- guards (AC-55) ---------------------------------------------------------------------------------------------------------


def guard(end: str = "0200000000000000f8", name: str = "orders") -> Rule:
    described = {
        "id": f"keyplan/c0ffee/{name}",
        "index": 0,
        "labels": [{"key": "keyplan", "value": name}],
        "rule_type": "key-range",
        "data": [{"start_key": "0100000000000000f8", "end_key": end}],
    }
    return parse_rules(json.dumps([described]).encode())[0]


ORDERS = [RegisteredSpace("orders", b"\x01")]
SPLIT = regions_between("", "0100000000000000F8", "0200000000000000F8", "")


def test_the_rule_of_a_key_space_is_the_documents() -> None:
    (rule,) = plan_regions(ORDERS, SPLIT, [], cluster="c0ffee").rules_to_set
    assert rule_data(rule) == {
        "id": "keyplan/c0ffee/orders",
        "index": 0,
        "labels": [{"key": "keyplan", "value": "orders"}],
        "rule_type": "key-range",
        "data": [{"start_key": "0100000000000000f8", "end_key": "0200000000000000f8"}],
    }


def test_rules_that_are_as_planned_leave_nothing_to_do() -> None:
    plan = plan_regions(ORDERS, SPLIT, [guard()], cluster="c0ffee")
    assert not plan.is_needed
    assert plan.proof.is_proven
    assert plan.proof.guards == plan.proof.boundaries


def test_a_rule_whose_end_is_off_by_one_byte_is_a_violation_and_set_again() -> None:
    plan = plan_regions(ORDERS, SPLIT, [guard(end="0200000000000000f9")], cluster="c0ffee")
    assert [violation.data() for violation in plan.proof.violations] == [
        {
            "kind": "guard_missing",
            "region_id": None,
            "keyspaces": ["orders"],
            "split_keys": ["0200000000000000F8"],
        }
    ]
    assert plan.rules_to_set == (guard(),)


def test_the_rule_of_a_deleted_key_space_is_deleted_and_those_of_others_are_left() -> None:
    deleted = [RegisteredSpace("orders", b"\x01", State.DELETED)]
    foreign = [
        Rule("keyspaces/0", (KeyRange(b"r", b"s"),)),
        Rule("keyplan/abc/orders", (KeyRange(b"r", b"s"),)),
        Rule("keyplan/c0ffeee/orders", (KeyRange(b"r", b"s"),)),
    ]
    plan = plan_regions(deleted, regions_between("", ""), [guard(), *foreign], cluster="c0ffee")
    assert plan.rules_to_delete == ("keyplan/c0ffee/orders",)
    assert plan.rules_to_set == ()
    going = [RegisteredSpace("orders", b"\x01", State.DELETING)]
    assert plan_regions(going, SPLIT, [guard(), *foreign], cluster="c0ffee").rules_to_delete == ()


def test_an_empty_key_space_can_be_left_to_merge() -> None:
    empty = [RegisteredSpace("orders", b"\x01", is_empty=True)]
    plan = plan_regions(empty, SPLIT, [guard()], cluster="c0ffee", guards_empty=False)
    assert (plan.split_keys, plan.rules_to_set, plan.rules_to_delete) == ((), (), ("keyplan/c0ffee/orders",))
    assert plan_regions(empty, SPLIT, [guard()], cluster="c0ffee").rules_to_delete == ()


def test_a_placement_rule_guards_the_boundaries_that_it_ends_at() -> None:
    bundle = [
        {
            "group_id": "keyspace-1",
            "group_index": 100,
            "group_override": True,
            "rules": [
                {
                    "group_id": "keyspace-1",
                    "id": "keyspace-1-rule-txn",
                    "start_key": "7800000100000000fb",
                    "end_key": "7800000200000000fb",
                    "role": "voter",
                    "is_witness": False,
                    "count": 3,
                    "label_constraints": [{"key": "zone", "op": "in", "values": ["east"]}],
                }
            ],
        }
    ]
    rules = parse_rules(json.dumps(bundle).encode())
    assert verify(owned_ranges([NumberedSpace("foo", 1)]), regions_between("", ""), rules).guards == (
        bytes.fromhex("7800000100000000fb"),
        bytes.fromhex("7800000200000000fb"),
    )


def test_a_cluster_with_a_slash_cannot_stand_in_a_rules_id() -> None:
    for cluster in ("", "a/b"):
        with pytest.raises(InvalidInputError, match="slashes"):
            plan_regions(ORDERS, SPLIT, [], cluster=cluster)


# ---- captured JSON ----------------------------------------------------------------------------------------------------------


def test_regions_of_three_versions_of_pd_are_read() -> None:
    regions = parse_regions(f"[{F3},{F5}]".encode())
    assert [(region.id, region.size_mebibytes, region.keys) for region in regions] == [
        (46253, 1, 2662654),
        (4824, 105, 503161),
    ]
    assert regions[0].range.start == memcomparable(bytes.fromhex("748000000000000234"))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"{", "not as PD has it"),
        (b'{"count": 2, "regions": [{"id": 1}]}', "not the whole list"),
        (b'{"count": 3, "regions": null}', "not the whole list"),
        (b'[{"id": 1, "start_key": "zz"}]', "not hexadecimal"),
        (b'[{"id": 1, "start_key": "6 d"}]', "not hexadecimal"),
        (b'[{"id": 1, "start_key": "6d 6d"}]', "not hexadecimal"),
        (b'[{"id": 1, "start_key": "02", "end_key": "02"}]', "ends at or before"),
        (b'[{"start_key": "02"}]', "not as PD has it"),
    ],
)
def test_a_region_list_that_cannot_be_relied_on_is_refused(text: bytes, problem: str) -> None:
    with pytest.raises(InvalidInputError, match=problem):
        parse_regions(text)


def test_rules_of_another_type_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="key-range"):
        parse_rules(b'[{"id": "x", "rule_type": "other", "labels": [], "data": []}]')


# ---- the proof object -------------------------------------------------------------------------------------------------------


def test_the_digest_is_of_what_was_judged_whatever_its_order() -> None:
    owned = owned_ranges(ORDERS)
    proof = verify(owned, SPLIT, [guard()])
    assert verify(owned, list(reversed(SPLIT)), [guard()]).inputs_sha256 == proof.inputs_sha256
    assert verify(owned, SPLIT[1:], [guard()]).inputs_sha256 != proof.inputs_sha256
    assert verify(owned, SPLIT, []).inputs_sha256 != proof.inputs_sha256
    assert len(proof.inputs_sha256) == 64


# ---- random key spaces and regions (AC-58) ----------------------------------------------------------------------------------


def judged(owned: Sequence[OwnedRange], regions: Sequence[Region]) -> set[int]:
    """The regions that are wrong, by looking at every pair: the independent answer."""
    wrong: set[int] = set()
    for region in regions:
        start, end = region.range.start, region.range.end
        for one in owned:
            is_disjoint = (end is not None and end <= one.range.start) or (
                one.range.end is not None and one.range.end <= start
            )
            is_inside = start >= one.range.start and (
                one.range.end is None or (end is not None and end <= one.range.end)
            )
            if not is_disjoint and not is_inside:
                wrong.add(region.id)
    return wrong


def random_case(seed: int) -> tuple[list[OwnedRange], list[Region], list[RegisteredSpace]]:
    chance = random.Random(seed)
    element = chance.choice([Uvarint(least=1), PrefixVarint(least=1)])
    numbers = chance.sample([*range(1, 300), *range(16300, 16500)], chance.randint(0, 12))
    spaces = [RegisteredSpace(str(number), element.encode(number)) for number in numbers]
    owned = owned_ranges(spaces)
    some = [memcomparable(chance.randbytes(chance.randint(1, 9))) for _ in range(chance.randint(0, 8))]
    some += chance.sample(boundaries_of(owned), chance.randint(0, len(boundaries_of(owned))))
    bounds = ["", *(key.hex() for key in sorted(set(some))), ""]
    return owned, regions_between(*bounds), spaces


@pytest.mark.slow
def test_planned_splits_leave_no_violation_and_each_of_them_is_needed() -> None:
    for seed in range(1000):
        owned, regions, spaces = random_case(seed)
        plan = plan_regions(spaces, regions, cluster="c")
        assert {violation.region_id for violation in plan.proof.violations} == judged(owned, regions), seed
        after = regions
        for key in plan.split_keys:
            after = split(after, key)
        assert verify(owned, after).is_proven, seed
        for dropped in plan.split_keys:
            less = regions
            for key in plan.split_keys:
                less = less if key == dropped else split(less, key)
            assert verify(owned, less).violations, (seed, dropped)


@given(st.lists(st.tuples(st.binary(max_size=3), st.binary(max_size=3)), max_size=6), st.data())
def test_any_list_of_regions_is_judged_and_a_proof_means_tiles(
    bounds: list[tuple[bytes, bytes]], data: st.DataObject
) -> None:
    regions = [
        Region(number, KeyRange(start, end or None))
        for number, (start, end) in enumerate(bounds)
        if not end or start < end
    ]
    proof = verify([], regions)
    ordered = sorted(regions, key=lambda region: region.range.start)
    is_tiling = (
        bool(ordered)
        and ordered[0].range.start == b""
        and ordered[-1].range.end is None
        and all(one.range.end == other.range.start for one, other in pairwise(ordered))
    )
    assert proof.is_proven == is_tiling
