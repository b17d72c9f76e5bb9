"""The same operations on a dictionary, in memory, on LMDB and on LMDB without history: all agree after every step."""

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from keyplan.errors import KeyplanError
from keyplan.store import Store, open_store
from tests.model.dictionary import Delete, Dictionary, Insert, Modify, Operation, Put, Rename, Update
from tests.store.layouts import Blade, BladeKey, Site, index_faults

pytestmark = pytest.mark.timeout(
    3600
)  # Why: the long profile, and a failure that is being made smaller, take their time.

# Why: names that are one another's beginnings and literals of the templates find what leaks.
RACKS = ["a", "ab", "rack"]
SERIALS = ["s", "s2", "by-serial"]
TAGS = ["x", "xy", "blades"]

BOUND = Site.bound()

keys = st.builds(BladeKey, st.sampled_from(RACKS), st.sampled_from(["1", "11"]))
blades = st.builds(
    Blade,
    st.none() | st.sampled_from(SERIALS),
    st.lists(st.sampled_from(TAGS), max_size=3),
    st.integers(0, 3),
)
operations = st.one_of(
    st.builds(Insert, keys, blades),
    st.builds(Put, keys, blades),
    st.builds(Update, keys, blades),
    st.builds(Modify, keys, st.integers(0, 3)),
    st.builds(Delete, keys),
    st.builds(Rename, keys, keys),
)


class AbandonedError(Exception):
    """What a transaction's block is left with when it shall write nothing."""


def outcome(site: Site, operation: Operation) -> str:
    """What comes of the operation on a store or a transaction."""
    try:
        match operation:
            case Insert(key, blade):
                site.blades.insert(key, blade)
            case Put(key, blade):
                site.blades.put(key, blade)
            case Update(key, blade):
                site.blades.update(key, blade)
            case Modify(key, watts):
                site.blades.modify(key, lambda old: Blade(old.serial, old.tags, watts))
            case Delete(key):
                site.blades.delete(key)
            case Rename(key, new_key):
                site.blades.rename(key, new_key)
    except KeyplanError as error:
        return type(error).__name__
    return "done"


def check(site: Site, expected: Dictionary) -> None:
    """Everything that can be read says what the dictionary says."""
    listed = expected.listed()
    assert list(site.blades.list()) == listed
    assert list(site.blades.keys(reverse=True)) == [key for key, _ in reversed(listed)]
    assert [site.blades.get(key) for key, _ in listed] == [blade for _, blade in listed]
    for rack in RACKS:
        of_rack = [key for key, _ in listed if key.rack == rack]
        assert list(site.blades.keys(rack)) == of_rack
        assert list(site.blades.keys(rack, limit=1, reverse=True)) == of_rack[-1:]
        assert site.blades.count(starts_with=rack) == sum(1 for key, _ in listed if key.rack.startswith(rack))
    for tag in TAGS:
        assert list(site.by_tag.keys(tag)) == expected.tagged(tag)
        assert list(site.by_tag.list(tag)) == [(key, expected.records[key]) for key in expected.tagged(tag)]
    for serial in SERIALS:
        holder = next((key for key, blade in expected.records.items() if blade.serial == serial), None)
        assert site.by_serial.key_of(serial) == holder
        assert site.by_serial.one(serial) == (None if holder is None else expected.records[holder])


class StoreAgreesWithDictionary(RuleBasedStateMachine):
    """One dictionary and three stores, given the same operations."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="keyplan-model-"))
        urls = [
            "memory:",
            f"lmdb:{self.folder / 'history'}?durability=none",
            f"lmdb:{self.folder / 'plain'}?durability=none&history=off",
        ]
        self.stores: list[Store] = [open_store(url) for url in urls]
        self.sites = [Site(store) for store in self.stores]
        self.model = Dictionary()

    def teardown(self) -> None:
        for store in self.stores:
            store.close()
        shutil.rmtree(self.folder)

    @rule(operation=operations)
    def one_commit(self, operation: Operation) -> None:
        expected = self.model.apply(operation)
        assert [outcome(site, operation) for site in self.sites] == [expected] * 3

    @rule(work=st.lists(operations, min_size=2, max_size=6))
    def one_transaction(self, work: list[Operation]) -> None:
        expected = self.model.apply_all(work)
        for site in self.sites:
            with site.transaction() as tx:
                assert [outcome(tx, operation) for operation in work] == expected
                check(tx, self.model)

    @rule(work=st.lists(operations, min_size=1, max_size=4), before=st.lists(operations, max_size=2))
    def a_part_of_a_transaction_is_undone(self, work: list[Operation], before: list[Operation]) -> None:
        self.model.apply_all(before)
        for site in self.sites:
            with site.transaction() as tx:
                for operation in before:
                    outcome(tx, operation)
                self._abandon(tx, work)
                check(tx, self.model)

    @rule(work=st.lists(operations, min_size=1, max_size=4))
    def an_abandoned_transaction(self, work: list[Operation]) -> None:
        for site in self.sites:
            self._abandon(site, work)

    @staticmethod
    def _abandon(site: Site, work: list[Operation]) -> None:
        try:
            with site.transaction() as tx:
                for operation in work:
                    outcome(tx, operation)
                raise AbandonedError
        except AbandonedError:
            pass

    @precondition(lambda self: self.model.records)
    @rule(work=st.lists(operations, min_size=1, max_size=3))
    def a_snapshot_stays_what_it_was(self, work: list[Operation]) -> None:
        before = Dictionary(dict(self.model.records))
        self.model.apply_all(work)
        for site in self.sites:
            with site.snapshot() as pinned:
                for operation in work:
                    outcome(site, operation)
                check(pinned, before)

    @invariant()
    def stores_say_what_the_dictionary_says(self) -> None:
        for site in self.sites:
            check(site, self.model)

    @invariant()
    def indexes_equal_what_the_records_ask_for(self) -> None:
        for store in self.stores:
            assert index_faults(store, BOUND) == []

    @invariant()
    def stores_with_revisions_agree_on_history(self) -> None:
        memory, history = self.sites[:2]
        assert memory.revision == history.revision
        assert list(memory.blades.entries()) == list(history.blades.entries())


TestStoreAgreesWithDictionary = StoreAgreesWithDictionary.TestCase
# Why: a third of the profile's examples, since each has twenty steps on three stores: 10 s by default, and far more with
# KEYPLAN_HYPOTHESIS=long.
TestStoreAgreesWithDictionary.settings = settings(max_examples=settings().max_examples // 3, stateful_step_count=20)
