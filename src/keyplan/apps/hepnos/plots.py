"""Drawings, by matplotlib without a display: how full and how even databases are, and a spectrum."""

from collections.abc import Sequence
from itertools import groupby
from os import PathLike, fspath
from typing import Any, Final

from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator

from keyplan.apps.hepnos.extent import Extent, unevenness
from keyplan.errors import InvalidInputError

__all__ = ["plot_extents", "plot_spectrum"]

_FILLED: Final = "#1f6f8b"
_MEAN: Final = "#c2570c"
_GREY: Final = "#555555"
_NUMBERED_MAX: Final = 16
"""Why: more bars than these have no room for a number above each."""


def plot_extents(extents: Sequence[Extent], path: "str | PathLike[str]", *, title: str = "") -> None:
    """Draw the keys of each database, and their bytes on disk where they are known: a row for each kind. PNG, SVG or PDF.

    Raises InvalidInputError when the file cannot be written, or its ending names no format.
    """
    kinds = [(kind, list(rows)) for kind, rows in groupby(extents, key=lambda extent: extent.kind)]
    has_bytes = any(extent.disk_bytes is not None for extent in extents)
    figure = Figure(figsize=(11 if has_bytes else 6.5, 0.7 + 1.75 * len(kinds)), layout="constrained")
    axes = figure.subplots(len(kinds), 2 if has_bytes else 1, squeeze=False)
    figure.suptitle(title or "How full and how even the databases are", fontsize=12, fontweight="bold")
    for row, (kind, rows) in enumerate(kinds):
        _bars(axes[row][0], [extent.keys for extent in rows], unit="")
        axes[row][0].set_ylabel(kind, fontsize=11, fontweight="bold", color="black")
        if has_bytes:
            _bars(axes[row][1], [extent.disk_bytes or 0 for extent in rows], unit="B")
    axes[0][0].set_title("keys", fontsize=10, color=_GREY, loc="center", pad=18)
    if has_bytes:
        axes[0][1].set_title("on disk", fontsize=10, color=_GREY, loc="center", pad=18)
    for axis in axes[-1]:
        axis.set_xlabel("number of the database", fontsize=9, color=_GREY)
    _save(figure, path)


def _bars(axis: Any, counts: Sequence[int], *, unit: str) -> None:
    numbers = list(range(len(counts)))
    shown = EngFormatter(unit=unit, places=None, sep=" " if unit else "")
    short = EngFormatter(unit=unit, places=1, sep=" " if unit else "")
    bars = axis.bar(numbers, counts, width=0.7, color=_FILLED)
    top = max([*counts, 1])
    if len(counts) <= _NUMBERED_MAX:
        labels = [f"{count:,}" if not unit and count < 10_000 else short(count) for count in counts]
        # Why a white ground: the line of the mean goes through numbers of databases just below it.
        box = {"facecolor": "white", "edgecolor": "none", "pad": 0.8}
        axis.bar_label(bars, labels=labels, fontsize=8, padding=3, bbox=box)
    if len(counts) > 1:
        mean = sum(counts) / len(counts)
        axis.axhline(mean, color=_MEAN, linewidth=1.2, linestyle="--", zorder=1.5)
        note = f"dashed: the mean; fullest {unevenness(list(counts)):.1%} above it"
        axis.text(1.0, 1.04, note, transform=axis.transAxes, ha="right", va="bottom", fontsize=8, color=_MEAN)
    axis.set_ylim(0, top * 1.22)
    axis.set_xlim(-0.6, max(len(counts), 4) - 0.4)
    axis.set_xticks(numbers[:: 1 + len(numbers) // _NUMBERED_MAX])
    axis.yaxis.set_major_locator(MaxNLocator(nbins=3, integer=True))
    axis.yaxis.set_major_formatter(shown)
    _plain(axis)


def plot_spectrum(
    values: Any,
    path: "str | PathLike[str]",
    *,
    title: str,
    quantity: str,
    unit: str,
    limits: tuple[float, float],
    bins: int = 40,
) -> None:
    """Draw how often each value occurs, with the error of a count's square root. Raises InvalidInputError as above."""
    figure = Figure(figsize=(7, 4.4), layout="constrained")
    axis: Any = figure.subplots()
    counts, edges, _ = axis.hist(values, bins=bins, range=limits, histtype="stepfilled", color=_FILLED, alpha=0.35)
    axis.stairs(counts, edges, color=_FILLED, linewidth=1.4)
    middles = (edges[:-1] + edges[1:]) / 2
    seen = counts > 0
    axis.errorbar(middles[seen], counts[seen], counts[seen] ** 0.5, fmt="none", ecolor=_GREY, elinewidth=0.9)
    outside = len(values) - int(counts.sum())
    axis.set_title(title, fontsize=12, fontweight="bold", loc="left")
    note = f"{len(values):,} entries" + (f", {outside:,} outside" if outside else "")
    axis.text(0.985, 0.96, note, transform=axis.transAxes, ha="right", va="top", fontsize=9, color=_GREY)
    axis.set_xlabel(f"{quantity} / {unit}", loc="right")
    width = (limits[1] - limits[0]) / bins
    axis.set_ylabel(f"entries per {unit}" if width == 1 else f"entries per {width:g} {unit}", loc="top")
    axis.set_xlim(*limits)
    axis.set_ylim(0, max(1.0, float((counts + counts**0.5).max())) * 1.12)
    axis.yaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    _plain(axis)
    _save(figure, path)


def _plain(axis: Any) -> None:
    axis.spines[["top", "right"]].set_visible(False)
    axis.tick_params(labelsize=8, color=_GREY)


def _save(figure: Figure, path: "str | PathLike[str]") -> None:
    try:
        # Why no date: equal data make equal files.
        metadata = {"Date": None} if fspath(path).endswith(".svg") else None
        figure.savefig(fspath(path), dpi=150, metadata=metadata)
    except (OSError, ValueError) as error:
        raise InvalidInputError(
            source=fspath(path), problem="it cannot be written, or is no PNG, SVG or PDF"
        ) from error
