"""A reach is the union of areas: disjoint, in order, and the same, key by key, as each area asked by itself."""

from collections.abc import Mapping
from itertools import pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyplan.engine import ALL_KEYS, KeyRange
from keyplan.engine.reach import Area, AreaFence, Reach, Stretch, Terms

FENCES: tuple[AreaFence, ...] = ((b"f1", b"on"), (b"f1", b"off"), (b"f2", b"1"))
KEYS = [bytes(parts) for length in range(3) for parts in product(b"\x00ab\xff", repeat=length)]
STATES: list[Mapping[bytes, bytes]] = [{}, {b"f1": b"on"}, {b"f1": b"off", b"f2": b"1"}, {b"f1": b"on", b"f2": b"1"}]

keys = st.sampled_from(KEYS)
ranges = st.builds(KeyRange, keys, st.none() | keys) | keys.map(KeyRange.of_prefix) | keys.map(KeyRange.of_key)
areas = st.builds(Area, ranges, st.booleans(), st.none() | st.sampled_from(FENCES))
grants = st.lists(areas, max_size=6)


def holds(fence: AreaFence | None, state: Mapping[bytes, bytes]) -> bool:
    return fence is None or state.get(fence[0]) == fence[1]


def met(terms: Terms | None, state: Mapping[bytes, bytes]) -> bool:
    return terms is not None and (not terms or any(holds(fence, state) for fence in terms))


@given(grants)
def test_a_key_is_in_reach_exactly_when_an_area_holds_it(granted: list[Area]) -> None:
    reach = Reach(granted)
    for key, state in product(KEYS, STATES):
        holding = [area for area in granted if key in area.range and holds(area.fence, state)]
        found = reach.at(key)
        assert (found is not None and met(found.read, state)) == bool(holding)
        assert (found is not None and met(found.write, state)) == any(area.can_write for area in holding)


@given(grants)
def test_stretches_share_no_key_and_neighbours_differ(granted: list[Area]) -> None:
    reach = Reach(granted)
    assert not any(stretch.range.is_empty for stretch in reach.stretches)
    for before, after in pairwise(reach.stretches):
        assert before.range.end is not None
        assert before.range.end <= after.range.start
        assert before.range.end < after.range.start or (before.read, before.write) != (after.read, after.write)
    assert reach.fences == {fence for stretch in reach.stretches for fence in stretch.read}
    assert all(set(stretch.write or ()) <= set(stretch.read) or stretch.read == () for stretch in reach.stretches)


@given(grants, st.randoms())
def test_the_order_of_grants_makes_no_difference(granted: list[Area], random: object) -> None:
    shuffled = granted.copy()
    random.shuffle(shuffled)  # type: ignore[attr-defined]  # Hypothesis's own class of Random
    assert Reach(shuffled) == Reach(granted) == Reach(granted * 2)
    assert hash(Reach(shuffled)) == hash(Reach(granted))


@given(grants, ranges)
def test_a_range_is_cut_to_what_is_in_reach(granted: list[Area], asked: KeyRange) -> None:
    reach = Reach(granted)
    found = list(reach.within(asked))
    assert not any(stretch.range.is_empty for stretch in found)
    assert found == sorted(found, key=lambda stretch: stretch.range.start)
    for key in KEYS:
        cut = [stretch for stretch in found if key in stretch.range]
        whole = reach.at(key)
        if key not in asked or whole is None:
            assert cut == []
        else:
            assert [(stretch.read, stretch.write) for stretch in cut] == [(whole.read, whole.write)]


@given(grants, ranges)
def test_a_range_is_covered_exactly_when_each_of_its_keys_is(granted: list[Area], asked: KeyRange) -> None:
    reach = Reach(granted)
    found = reach.covering(asked)
    # Why these keys: each border is one of them, so that no gap lies between two of them unseen.
    asked_for = (asked, *[area.range for area in granted])
    borders = {*[part.start for part in asked_for], *[part.end for part in asked_for if part.end is not None]}
    probes = {probe for key in borders.union(KEYS) for probe in (key, key + b"\x00", key + b"\xff\xff")}
    assert (found is not None) == all(reach.at(probe) is not None for probe in probes if probe in asked)
    assert found is None or found == list(reach.within(asked))


def test_without_grants_nothing_is_in_reach() -> None:
    reach = Reach()
    assert reach.stretches == ()
    assert reach.at(b"") is None
    assert list(reach.within(ALL_KEYS)) == []
    assert reach.covering(ALL_KEYS) is None
    assert reach.covering(KeyRange(b"b", b"a")) == []
    assert not reach.is_everything


@pytest.mark.parametrize(
    ("granted", "is_everything"),
    [
        ([Area(ALL_KEYS, can_write=True)], True),
        ([Area(KeyRange(b"", b"m"), can_write=True), Area(KeyRange(b"m", None), can_write=True)], True),
        ([Area(ALL_KEYS, can_write=True), Area(KeyRange(b"a", b"b"), can_write=False, fence=FENCES[0])], True),
        ([Area(ALL_KEYS)], False),
        ([Area(ALL_KEYS, can_write=True, fence=FENCES[0])], False),
        ([Area(KeyRange(b"\x00", None), can_write=True)], False),
        ([Area(KeyRange(b"", b"m"), can_write=True), Area(KeyRange(b"m\x00", None), can_write=True)], False),
    ],
)
def test_everything_is_every_key_to_write_without_a_fence(granted: list[Area], *, is_everything: bool) -> None:
    assert Reach(granted).is_everything == is_everything
    assert (Reach(granted) == Reach.everything()) == is_everything


def test_a_right_without_a_fence_stays_beside_one_with() -> None:
    fence = FENCES[0]
    reach = Reach([Area(ALL_KEYS), Area(KeyRange.of_prefix(b"b"), can_write=True, fence=fence)])
    assert reach.stretches == (
        Stretch(KeyRange(b"", b"b"), (), None),
        Stretch(KeyRange(b"b", b"c"), (), (fence,)),
        Stretch(KeyRange(b"c", None), (), None),
    )
