"""The scenarios of leases and stores, on the asynchronous store, but for those that are about threads or other processes."""

# ruff: noqa: F403  # Why: the tests are those of the other folder, all of them, by name.

from tests.store.test_lease import *
from tests.store.test_store import *
