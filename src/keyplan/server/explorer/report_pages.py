"""A report as a page: what an application says of its records, with links to them."""

from keyplan.engine import Clock
from keyplan.errors import UnknownNameError
from keyplan.layout import BoundLayout
from keyplan.server.explorer.answers import (
    Crumb,
    ReportCellView,
    ReportFactView,
    ReportPage,
    ReportSectionView,
    ReportTableView,
)
from keyplan.server.explorer.areas import Area, Areas
from keyplan.server.explorer.overview import area_crumbs
from keyplan.server.reports import ReportCell, ReportSection, report_of
from keyplan.store import Store

__all__ = ["report_page"]


def report_page(areas: Areas, area_name: str, label: str, page: str, clock: Clock) -> ReportPage:
    """Return a page of a layout's report. Raises UnknownNameError where there is none, InvalidArgumentError for the token."""
    area = areas.named(area_name)
    bound = area.layout(label)
    report = report_of(bound)
    if report is None:
        raise UnknownNameError(kind="report", name=label, known=[])
    now = clock.wall()
    with Store(area.engine, clock=clock).snapshot() as state:
        found, following = report.sections(state, now, page)
        revision = state.revision
    place = area.links.report(label)
    return ReportPage(
        area=area.name,
        title=report.title,
        note=report.note,
        crumbs=[*area_crumbs(area), Crumb(text=report.title, href=place)],
        revision=revision,
        sections=[_section(area, bound, one) for one in found],
        next=area.links.report(label, page=following) if following else "",
    )


def _section(area: Area, bound: BoundLayout, section: ReportSection) -> ReportSectionView:
    def cell(shown: ReportCell) -> ReportCellView:
        if shown.record is None:
            return ReportCellView(text=shown.text, is_bad=shown.is_bad, href="")
        table, key = shown.record
        href = area.links.key(bound.table(table).keys.encode(key))
        return ReportCellView(text=shown.text, is_bad=shown.is_bad, href=href)

    return ReportSectionView(
        title=cell(section.title),
        facts=[ReportFactView(name=fact.name, value=cell(fact.shown)) for fact in section.facts],
        tables=[
            ReportTableView(title=grid.title, columns=list(grid.columns), rows=[[*map(cell, row)] for row in grid.rows])
            for grid in section.grids
        ],
    )
