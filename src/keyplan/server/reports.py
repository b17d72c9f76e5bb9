"""Reports: a page that an application makes of the records of its layout, such as one section for each PostgreSQL cluster.

An application declares a LayoutReport and names it as an entry point of `keyplan.reports`. It reads from one state of the store
as the caller sees it, without keys of secrets: what is sealed stays sealed. It returns text, never HTML.
"""

from collections.abc import Callable, Iterator
from functools import cache
from importlib.metadata import entry_points
from typing import Any, Final, NamedTuple

from keyplan.errors import KeyplanError
from keyplan.layout import Binding, BoundLayout, Layout

__all__ = ["LayoutReport", "ReportCell", "ReportFact", "ReportSection", "ReportTable", "report_of"]

_GROUP: Final = "keyplan.reports"


class ReportCell(NamedTuple):
    """A text; `is_bad` where somebody should look at it. `record`, a table and a key of it, is the page that it leads to."""

    text: str
    is_bad: bool = False
    record: tuple[str, Any] | None = None


class ReportFact(NamedTuple):
    """Something about a section's subject, with its name."""

    name: str
    shown: ReportCell


class ReportTable(NamedTuple):
    """A table of a section. Each row has as many cells as there are columns."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[ReportCell, ...]]


class ReportSection(NamedTuple):
    """One subject of a report."""

    title: ReportCell
    facts: list[ReportFact]
    grids: list[ReportTable]


class LayoutReport(NamedTuple):
    """What an application makes of a layout.

    `sections` is called with a state of the store, the time in seconds of Unix time, and the token of a page, empty for the
    first. It returns a bounded number of sections and the token of the next page, empty for the last. A record that it cannot
    read is told of in its place.
    """

    title: str
    note: str
    layout: type[Layout]
    sections: Callable[[Binding, float, str], tuple[list[ReportSection], str]]


@cache
def _installed() -> tuple[LayoutReport, ...]:
    return tuple(_loaded())


def _loaded() -> Iterator[LayoutReport]:
    for entry in sorted(entry_points(group=_GROUP)):
        try:
            yield entry.load()
        except (ImportError, KeyplanError):
            continue  # Why: its application needs what is not installed here.


def report_of(bound: BoundLayout) -> LayoutReport | None:
    """Return the report of a layout as an application declares it, at the root that the application gives it."""
    for report in _installed():
        own = report.layout.bound()
        if (own.spec, own.root) == (bound.spec, bound.root):
            return report
    return None
