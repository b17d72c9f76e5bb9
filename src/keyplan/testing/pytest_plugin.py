"""A pytest plugin: `pytest_plugins = ["keyplan.testing.pytest_plugin"]` in a conftest.py gives the fixture `check_after`.

A test that damages its store on purpose says what it leaves: `@pytest.mark.leaves("damaged-record")`.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial

import pytest

from keyplan.store import Store
from keyplan.testing import checked

__all__ = ["check_after", "pytest_configure"]


def pytest_configure(config: pytest.Config) -> None:
    """Tell pytest the marker."""
    config.addinivalue_line("markers", "leaves(*codes): findings of keyplan's check that the test leaves in its store")


@pytest.fixture
def check_after(request: pytest.FixtureRequest) -> Callable[..., AbstractContextManager[Store]]:
    """Give `checked.check_after`, which checks a store when its block ends, for the fixtures of this test's stores.

    It takes the store and its layouts, and knows what the test's marker `leaves` promises.
    """
    marker = request.node.get_closest_marker("leaves")
    return partial(checked.check_after, leaves=() if marker is None else marker.args)
