"""A pytest plugin: `pytest_plugins = ["keyplan.testing.pytest_plugin"]` in a conftest.py gives the fixture `check_after`."""

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from keyplan.store import Store
from keyplan.testing import checked

__all__ = ["check_after"]


@pytest.fixture(scope="session")
def check_after() -> Callable[..., AbstractContextManager[Store]]:
    """Give a wrapper that checks a store when the test is done with it.

    with check_after(keyplan.open(url), Site) as store:
        yield store
    """
    return checked.check_after
