"""Memory does not grow with the store, and what is kept does not depend on the order of keys."""

import random

import pytest

from keyplan.engine import Entry
from keyplan.maintenance import infer
from keyplan.maintenance.inference import key_tree
from keyplan.maintenance.inference.key_tree import MERGED_WORDS_MAX, KeyNode, KeyTree
from keyplan.maintenance.inference.sample import Sample
from tests.maintenance.inference.foreign_stores import pairs_of, stored, templates


def filled(keys: set[str]) -> tuple[KeyNode, int]:
    """The tree of these keys, and the most places that it had."""
    tree, most = KeyTree("/"), 0
    for number, key in enumerate(sorted(keys)):
        tree.add(Entry(key.encode(), b"x", 1, 1, 1, 0))
        if number % 100 == 0:
            most = max(most, sum(1 for _ in tree.root.below()))
    return tree.finish(), most


@pytest.mark.slow
def test_a_hundred_thousand_keys_under_one_prefix_are_one_table() -> None:
    with stored(pairs_of((f"/big/k{number}" for number in range(100_000)), "")) as snapshot:
        found = infer(snapshot)
    assert (templates(found), found.table_keys) == (["/big/{big:text}"], {"big": 100_000})


def test_the_tree_of_places_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_tree, "PLACES_MAX", 1_000)
    chosen = random.Random(3)
    words = [f"w{number}" for number in range(16)]
    keys = {"/".join(chosen.choices(words, k=3)) for _ in range(6_000)}
    assert len(keys) > 3_000
    root, most = filled(keys)
    assert most <= 1_003
    assert root.keys == len(keys)


def test_the_tree_is_bounded_also_where_nothing_is_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_tree, "PLACES_MAX", 500)
    chosen = random.Random(5)
    keys = {"/".join(chosen.choices("abcdef", k=chosen.randrange(1, 12))) for _ in range(4_000)}
    root, most = filled(keys)
    assert most <= 520
    assert root.keys == len(keys)


def test_no_place_keeps_more_words_than_its_bound() -> None:
    root, _ = filled({f"t{number % 300}/users/u{number}" for number in range(6_000)})
    assert max(len(place.words) for place in root.below()) <= MERGED_WORDS_MAX


def test_a_sample_is_the_same_in_every_order_and_merges() -> None:
    members = [b"%d" % number for number in range(1_000)]
    forwards, backwards, halves, other = (Sample[None](64) for _ in range(4))
    for member in members:
        forwards.add(member, None)
        (halves if int(member) % 2 else other).add(member, None)
    for member in reversed(members):
        backwards.add(member, None)
    halves.merge(other)
    assert list(forwards) == list(backwards) == list(halves)
    assert len(forwards) == 64
    assert 700 < forwards.distinct() < 1_300


def test_a_sample_counts_few_members_exactly() -> None:
    sample = Sample[int](64)
    for number in range(200):
        sample.add(b"%d" % (number % 20), number)
    assert (sample.distinct(), dict(sample.items())[b"7"]) == (20, 7)
