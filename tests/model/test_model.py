"""The same operations on a dictionary, in memory, on LMDB and on LMDB without history: all agree after every step."""

import pytest
from hypothesis import settings

from tests.model.lease_rules import LeaseRules
from tests.model.record_rules import RecordRules
from tests.model.watch_rules import WatchRules

pytestmark = pytest.mark.timeout(
    3600
)  # Why: the long profile, and a failure that is being made smaller, take their time.


class StoresAgreeWithTheDictionary(RecordRules, LeaseRules, WatchRules):
    """One dictionary and three stores, given the same operations."""


TestStoresAgreeWithTheDictionary = StoresAgreeWithTheDictionary.TestCase
# Why: half of the profile's examples, since each has forty steps on three stores.
TestStoresAgreeWithTheDictionary.settings = settings(max_examples=settings().max_examples // 2, stateful_step_count=40)
