"""A page of a run of scripts/hepnos-scale: what it printed, and how events and disk grew, with the kills."""

import html
import platform
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from typing import Any, Final, NamedTuple

from matplotlib.figure import Figure

__all__ = ["Loading", "write_page"]

_EVENTS: Final = "#1f6f8b"
_KILLS: Final = "#c2570c"
_MILLION: Final = 1e6


class Loading(NamedTuple):
    """How a load went: seconds, events and bytes on disk, sampled; and the seconds and events at which a loader was killed."""

    total: int
    loaders: int
    samples: list[tuple[float, int, int]]
    kills: list[tuple[float, int]]


def write_page(path: Path, loading: Loading, lines: list[str]) -> None:
    """Write the page as one file of HTML."""
    rows = [line.partition(": ") for line in lines]
    table = "".join(f"<tr><th>{html.escape(name)}<td>{html.escape(rest)}" for name, _, rest in rows)
    title = f"HEPnOS with {loading.total:,} events"
    at = datetime.now(UTC).isoformat(timespec="minutes")
    machine = f"Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    path.write_text(
        f"""<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width">
<style>body {{ font: 16px/1.5 sans-serif; max-width: 62em; margin: 2em auto; padding: 0 1em }}
table {{ border-collapse: collapse }} th {{ text-align: left; font-weight: 600; padding-right: 1.5em; vertical-align: top }}
td {{ font-variant-numeric: tabular-nums }} svg {{ max-width: 100%; height: auto }}</style>
<h1>{title}</h1><p>scripts/hepnos-scale, {at}, {machine}.</p>
<table>{table}</table>{_drawn(loading)}</html>
"""
    )


def _drawn(loading: Loading) -> str:
    figure = Figure(figsize=(10, 7), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True)
    seconds = [sample[0] for sample in loading.samples]
    above.plot(seconds, [sample[1] / _MILLION for sample in loading.samples], color=_EVENTS, label="events, durable")
    for at, events in loading.kills:
        above.plot([at], [events / _MILLION], "x", color=_KILLS, markersize=9, markeredgewidth=2)
    above.plot([], [], "x", color=_KILLS, label="a loader is killed, and started again")
    above.set_ylabel("millions of events")
    above.legend(frameon=False, loc="upper left")
    below.plot(seconds, [sample[2] / 1e9 for sample in loading.samples], color=_EVENTS)
    below.set_ylabel("GB on disk")
    below.set_xlabel("seconds")
    for axis in (above, below):
        _plain(axis)
    drawing = StringIO()
    figure.savefig(drawing, format="svg", metadata={"Date": None})
    text = drawing.getvalue()
    return text[text.index("<svg") :]


def _plain(axis: Any) -> None:
    axis.set_ylim(bottom=0)
    axis.grid(color="#dddddd")
    axis.spines[["top", "right"]].set_visible(False)
