"""Lines again in batches of one: work on two records then looks at several states, as work on thousands does."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module

import pytest

from keyplan.jobs import batch_of, batches_of, read_batches
from tests.schedules.lines import Line
from tests.schedules.matrix_maintenance import MAINTENANCE_GROUPS
from tests.schedules.matrix_writers import WRITER_GROUPS

__all__ = ["BATCH_GROUPS"]


_SIZES = {
    "keyplan.maintenance.index_build": "_BATCH_RECORDS_MAX",
    "keyplan.maintenance.migration.driver": "_BATCH_RECORDS_MAX",
}


@contextmanager
def batches_of_one() -> Iterator[None]:
    """Let builds, checks and migrations take one record or key at a time."""
    with pytest.MonkeyPatch.context() as patch:
        for module, name in _SIZES.items():
            patch.setattr(import_module(module), name, 1)
        for function in (batch_of, batches_of, read_batches):
            patch.setattr(function, "__defaults__", (1,))
        yield


GROUPS_AGAIN = ("checks", "builds", "repairs", "drops", "migrations")
"""Work in batches beside writers that change what it has passed, and what it has still to come to."""


def in_batches_of_one() -> Iterator[Line]:
    """The lines of these groups that are explored to their end in the suite."""
    groups = {**WRITER_GROUPS, **MAINTENANCE_GROUPS}
    for group in GROUPS_AGAIN:
        for line in groups[group]():
            if line.strategy is None and not line.is_long:
                yield replace(line, under=batches_of_one)


BATCH_GROUPS: dict[str, Callable[[], Iterator[Line]]] = {"batches of one": in_batches_of_one}
