"""The ratios by size as one SVG, drawn by hand: a panel for each benchmark, sizes across on a logarithmic axis, ratios up."""

import math
from itertools import groupby
from typing import Final

from benchmarks.measure import Result
from benchmarks.report import Run

__all__ = ["plotted"]

_COLUMNS: Final = 3
_WIDTH: Final = 300
_HEIGHT: Final = 190
_LEFT: Final = 40
_TOP: Final = 34
_PLOT_WIDTH: Final = 240
_PLOT_HEIGHT: Final = 115
_COLOURS: Final = ("#1f6f8b", "#c2570c")
_HEAD: Final = 40


def plotted(run: Run) -> str:
    """Return the drawing: the median of each ratio with its 10th to 90th percentile, and the aim where there is one."""
    sized = [result for result in run.results if result.size is not None and result.ratio is not None]
    panels = [(name, list(results)) for name, results in groupby(sized, key=lambda result: result.benchmark)]
    panels = [(name, results) for name, results in panels if name != "group-commit"]
    rows = math.ceil(len(panels) / _COLUMNS) or 1
    drawn = [_panel(number, name, results) for number, (name, results) in enumerate(panels)]
    width, height = _COLUMNS * _WIDTH, _HEAD + rows * _HEIGHT
    title = "keyplan to hand-written code on py-lmdb, same bytes: ratio of speeds by records stored"
    title += f" ({run.at[:10]}; dashed: the aim)"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif">',
            f'<rect width="{width}" height="{height}" fill="white"/>',
            _text(12, 24, title, size=15),
            *drawn,
            "</svg>\n",
        ]
    )


def _panel(number: int, name: str, results: list[Result]) -> str:
    left = (number % _COLUMNS) * _WIDTH + _LEFT
    top = _HEAD + (number // _COLUMNS) * _HEIGHT + _TOP
    sizes = sorted({result.size or 1 for result in results})
    most = max(1.0, *(result.high for result in results))

    def across(size: int) -> float:
        share = math.log10(size / sizes[0]) / (math.log10(sizes[-1] / sizes[0]) or 1.0)
        return left + 12 + share * (_PLOT_WIDTH - 24)

    def up(ratio: float) -> float:
        return top + _PLOT_HEIGHT * (1 - ratio / most)

    lines = [_text(left, top - 10, name, size=13)]
    for ratio in (0.0, 0.5, 1.0):
        lines += [
            _line(left, up(ratio), left + _PLOT_WIDTH, up(ratio), "#dddddd"),
            _text(left - 28, up(ratio) + 4, f"{ratio:g}"),
        ]
    lines += [_text(across(size) - 12, top + _PLOT_HEIGHT + 15, f"{size:.0e}".replace("+0", "")) for size in sizes]
    aims = {result.aim for result in results if result.aim is not None}
    lines += [_line(left, up(aim), left + _PLOT_WIDTH, up(aim), "#777777", dashes="4 3") for aim in aims]
    for place, (variant, members) in enumerate(groupby(results, key=lambda result: result.variant)):
        colour = _COLOURS[place % len(_COLOURS)]
        points = [(across(member.size or 1), member) for member in members]
        path = " ".join(f"{x:.1f},{up(member.ratio or 0):.1f}" for x, member in points)
        lines.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for x, member in points:
            lines.append(_line(x, up(member.low), x, up(member.high), colour))
            lines.append(f'<circle cx="{x:.1f}" cy="{up(member.ratio or 0):.1f}" r="3" fill="{colour}"/>')
        lines.append(_text(left + 100 + 70 * place, top - 10, variant.partition(",")[0], colour=colour))
    return "\n".join(lines)


def _text(x: float, y: float, words: str, *, size: int = 11, colour: str = "#222222") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{colour}">{words}</text>'


def _line(x: float, y: float, to_x: float, to_y: float, colour: str, *, dashes: str = "") -> str:
    return (
        f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}" stroke="{colour}"'
        + (f' stroke-dasharray="{dashes}"' if dashes else "")
        + "/>"
    )
