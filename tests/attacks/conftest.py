"""The protocols, one after the other."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.attacks.form import Row
from tests.attacks.rows import ROWS
from tests.attacks.runs import Runs


@pytest.fixture(scope="module", params=ROWS, ids=lambda row: row.name)
def row(request: pytest.FixtureRequest) -> Row:
    """Return each protocol."""
    found: Row = request.param
    return found


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Runs]:
    """Serve protocols until the test ends."""
    with ExitStack() as stack:
        yield Runs(tmp_path, stack)
