"""What `keyplan patroni top` shows, as lines of text for a width and a height. Nothing here touches a store or a terminal."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple

from keyplan.apps.patroni.clusters import RUNNING, ClusterView, NodeView, role_of
from keyplan.cli import printable

__all__ = ["Line", "lines_of"]

_COLUMNS: Final = ("member", "role", "state", "TL", "lag", "cell", "address")
_GIVEN_UP: Final = (6, 2, 3, 5)
"""Which columns a narrow terminal does without, in this order. Member, role and lag stay."""
_MEMBER: Final = 0
_MEMBER_WIDTH_MIN: Final = 8
_INDENT: Final = "  "
_UNITS: Final = ("B", "kB", "MB", "GB", "TB")
_UNIT: Final = 1_000


class Line(NamedTuple):
    """A line, and how it looks: `head`, `good`, `bad`, `busy`, or nothing."""

    text: str
    look: str = ""


def lines_of(views: Sequence[ClusterView], *, now: float, width: int = 0, height: int = 0) -> list[Line]:
    """Return the view of clusters as of `now`, in seconds of Unix time. A width or height of 0 is no bound.

    Where they are too high, the last line says how many are not shown.
    """
    lines = [Line(_title(views, now), "head")]
    rows = [[_row(view, node) for node in view.nodes] for view in views]
    columns = _columns([row for each in rows for row in each], width)
    if columns:
        lines.append(Line(_INDENT + _spelled(_COLUMNS, columns), "head"))
    for view, members in zip(views, rows, strict=True):
        lines.append(_cluster_line(view))
        if view.operation.endswith("in-progress"):
            lines.append(Line(f"{_INDENT}{view.operation.partition(' ')[0]}: {view.message}", "busy"))
        if view.archive is not None:
            lines.append(Line(f"{_INDENT}{view.archive.text}", "" if view.archive.is_well else "bad"))
        lines += [Line(f"{_INDENT}{view.former}", "busy")] * bool(view.former)
        for node, row in zip(view.nodes, members, strict=True):
            lines.append(Line(_INDENT + _spelled(row, columns), "" if _is_well(node) else "bad"))
        lines += [Line(f"{_INDENT}cannot be read: {record}", "bad") for record in view.damaged]
    if 0 < height < len(lines):
        left = len(lines) - height + 1
        lines = [*lines[: height - 1], Line(f"... {left} more lines; name a cluster to see it alone", "head")]
    return [line._replace(text=_cut(printable(line.text), width)) for line in lines]


def _title(views: Sequence[ClusterView], now: float) -> str:
    at = datetime.fromtimestamp(now, UTC).strftime("%H:%M:%SZ")
    count = len(views)
    failsafe = sum(bool(view.failsafe_leader) for view in views)
    leaderless = sum(not view.leader for view in views) - failsafe
    under_way = sum(view.operation.endswith("in-progress") for view in views)
    parts = [at, f"{count} cluster{'s' * (count != 1)}"]
    parts += [f"{leaderless} without leader"] * bool(leaderless)
    parts += [f"{failsafe} in failsafe mode"] * bool(failsafe)
    parts += [f"{under_way} operation{'s' * (under_way != 1)} under way"] * bool(under_way)
    return "  ".join(parts)


def _cluster_line(view: ClusterView) -> Line:
    parts = [view.instance, f"port {view.port}" if view.port else "no port"]
    parts += [f"reads {view.replica_port}"] * bool(view.replica_port)
    if view.failsafe_leader:
        parts.append(f"{view.failsafe_leader} leads in failsafe mode, without its store")
    else:
        parts.append(f"leader {view.leader}" if view.leader else "no leader")
    parts += [f"PostgreSQL {view.version}"] * bool(view.version)
    parts += ["paused"] * view.is_paused
    if view.operation.endswith("failed"):
        parts.append(f"{view.operation.partition(' ')[0]} failed: {view.message}")
    return Line("  ".join(parts), "good" if view.leader else "bad")


def _row(view: ClusterView, node: NodeView) -> tuple[str, ...]:
    state = node.state or node.report or "-"
    cells = (
        node.name,
        role_of(view, node) or "-",
        f"{state}, restart pending" if node.is_restart_pending else state,
        "-" if node.timeline is None else str(node.timeline),
        "-" if node.lag_bytes is None else _amount(node.lag_bytes),
        node.cell + " (dead)" * (bool(node.cell) and not node.cell_is_alive) or "-",
        node.address or "-",
    )
    # Why: names are others' choice, and a terminal obeys control characters.
    return tuple(map(printable, cells))


def _is_well(node: NodeView) -> bool:
    return node.state in RUNNING and (node.cell_is_alive or not node.cell)


def _amount(number: int) -> str:
    """A number of bytes in at most three digits, as in 12 kB."""
    value, unit = float(number), 0
    while value >= _UNIT and unit + 1 < len(_UNITS):
        value, unit = value / _UNIT, unit + 1
    return f"{value:.0f} {_UNITS[unit]}"


# ---- columns -------------------------------------------------------------------------------------------------------------


def _columns(rows: Sequence[Sequence[str]], width: int) -> list[tuple[int, int]]:
    """Return which columns there is room for, each with its width. The members' names are cut where nothing else helps."""
    if not rows:
        return []
    widths = {number: max(len(row[number]) for row in (_COLUMNS, *rows)) for number in range(len(_COLUMNS))}
    for number in _GIVEN_UP:
        if _total(widths) > width > 0:
            del widths[number]
    over = _total(widths) - width
    if over > 0 and width > 0:
        widths[_MEMBER] = max(_MEMBER_WIDTH_MIN, widths[_MEMBER] - over)
    return list(widths.items())


def _total(widths: dict[int, int]) -> int:
    return len(_INDENT) + sum(widths.values()) + 2 * (len(widths) - 1)


def _spelled(row: Sequence[str], columns: Sequence[tuple[int, int]]) -> str:
    return "  ".join(_cut(row[number], width).ljust(width) for number, width in columns).rstrip()


def _cut(text: str, width: int) -> str:
    return text if width <= 0 or len(text) <= width else text[: max(0, width - 1)] + "…"
