"""An import told to people and to programs: lines of text, rack by rack, and JSON data. Pure."""

from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from typing import Any, Final

from keyplan.apps.cloudchamber.definition import Definition
from keyplan.apps.cloudchamber.import_plan import ImportChange, ImportPlan

__all__ = ["counted", "definition_line", "plan_data", "plan_lines", "plan_summary"]

RACKS_SHOWN_MAX: Final = 50
"""Why: a screenful; `--json` has them all."""

_FIELDS_SHOWN_MAX: Final = 4
_ALONE: Final = frozenset({"region", "zone", "rack", "pdu", "tor"})
"""Why: of these there is one in most places, and `rack` says as much as `1 rack`."""
_NOUNS: Final = ("region", "zone", "rack", "pdu", "tor", "further pdu", "further tor", "blade", "list key")


def counted(number: int, noun: str) -> str:
    """Return `1 rack`, `2 racks`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def definition_line(definition: Definition) -> str:
    """Return how much a definition states."""
    zones = [zone for region in definition.regions for zone in region.zones]
    racks = [rack for zone in zones for rack in zone.racks]
    parts = [
        counted(len(definition.regions), "region"),
        counted(len(zones), "zone"),
        counted(len(racks), "rack"),
        counted(sum(len(rack.blades) for rack in racks), "blade"),
    ]
    return ", ".join(parts[2:] if definition.is_older else parts)


def plan_lines(plan: ImportPlan) -> Iterator[str]:
    """Yield a line for each rack and kind of change: `+` made, `~` changed, `-` deleted."""
    by_rack = [(rack, list(changes)) for rack, changes in groupby(plan.changes, key=lambda change: change.place.rack)]
    width = max((len(rack) for rack, _ in by_rack[:RACKS_SHOWN_MAX]), default=0)
    for rack, changes in by_rack[:RACKS_SHOWN_MAX]:
        for sign, some in _by_sign(changes):
            told = _updates(some) if sign == "~" else _nouns(some)
            yield f"{sign} {rack:<{width}}  {told}"
    if len(by_rack) > RACKS_SHOWN_MAX:
        yield f"  and {counted(len(by_rack) - RACKS_SHOWN_MAX, 'rack')} more"


def plan_summary(plan: ImportPlan, *, is_done: bool) -> str:
    """Return how many records are (to be) made, changed, deleted and left alone; what is none of them is not mentioned."""
    numbers = (len(plan.creates), len(plan.updates), len(plan.deletes), plan.unchanged)
    future = ("to create", "to update", "to delete", "unchanged")
    past = ("created", "updated", "deleted", "unchanged")
    words = past if is_done else future
    return ", ".join(f"{number:,} {word}" for number, word in zip(numbers, words, strict=True) if number)


def plan_data(plan: ImportPlan) -> dict[str, Any]:
    """Return the plan as JSON data: the place of every change, and for updates the fields; never a value."""
    return {
        "create": [_place_data(change) for change in plan.creates],
        "update": [{**_place_data(change), "fields": list(change.changed_fields)} for change in plan.updates],
        "delete": [_place_data(change) for change in plan.deletes],
        "unchanged": plan.unchanged,
    }


def _place_data(change: ImportChange) -> dict[str, Any]:
    return {"table": change.place.table, **change.place.facts}


def _by_sign(changes: list[ImportChange]) -> Iterator[tuple[str, list[ImportChange]]]:
    kinds = {
        "-": [change for change in changes if change.new is None],
        "~": [change for change in changes if change.old is not None and change.new is not None],
        "+": [change for change in changes if change.old is None],
    }
    return ((sign, some) for sign, some in kinds.items() if some)


def _nouns(changes: list[ImportChange]) -> str:
    """`rack, pdu, tor, 8 blades`."""
    counts = Counter(change.place.noun for change in changes)
    return ", ".join(
        noun if counts[noun] == 1 and noun in _ALONE else counted(counts[noun], noun) for noun in _NOUNS if counts[noun]
    )


def _updates(changes: list[ImportChange]) -> str:
    """`pdu (ports.3), blade 2 (capacity.cores)`."""
    told: list[str] = []
    for change in changes[:_FIELDS_SHOWN_MAX]:
        fields = change.changed_fields
        shown = ", ".join(fields[:_FIELDS_SHOWN_MAX]) + (", ..." if len(fields) > _FIELDS_SHOWN_MAX else "")
        number = "" if change.place.number is None else f" {change.place.number}"
        told.append(f"{change.place.noun}{number}{f' ({shown})' if shown else ''}")
    more = len(changes) - _FIELDS_SHOWN_MAX
    return ", ".join(told) + (f" and {counted(more, 'record')} more" if more > 0 else "")
