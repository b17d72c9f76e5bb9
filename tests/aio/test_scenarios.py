"""The scenarios of the synchronous store, on the asynchronous one: records, lists, indexes, transactions, counters, watches."""

# ruff: noqa: F403  # Why: the tests are those of the other folder, all of them, by name.

from tests.store.test_conflicts import *
from tests.store.test_counters import *
from tests.store.test_follow import *
from tests.store.test_indexes import *
from tests.store.test_lists import *
from tests.store.test_records import *
from tests.store.test_transactions import *
from tests.store.test_watch import *
