"""Consents of a migration by name: which there are, and which of those that were given name nothing here."""

from collections.abc import Collection, Iterator
from typing import Final

from keyplan.layout import LayoutChange, LayoutPairs

__all__ = ["CODES_ACCEPTED", "refused_consents"]

CODES_ACCEPTED: Final = frozenset({"E17", "E19", "E22"})
"""Breaking changes that are accepted by their code: the store alone shows whether they do harm. Why no others: each has a
consent that names what is lost, or a function, and without either nothing of the table is carried over."""

_OF_TABLES: Final = ("from", "gone", "keys", "lease", "lose", "new", "none", "old")


def refused_consents(
    pairs: LayoutPairs,
    losses: Collection[LayoutChange],
    *,
    drops: Collection[str],
    accepts: Collection[str],
    resolutions: Collection[str],
) -> Iterator[str]:
    """Yield why consents are refused. `losses`: the changes with nothing dropped.

    Why one that names nothing is refused: its author believes that something was decided.
    """
    tables = sorted({*pairs.old.tables, *pairs.new.tables})
    for name in sorted(accepts):
        kind, colon, table = name.partition(":")
        if colon and kind in _OF_TABLES and table not in tables:
            yield f"the consent {name} names no table of either layout; there are: {', '.join(tables)}"
        elif not (colon and kind in _OF_TABLES) and name not in CODES_ACCEPTED:
            codes = ", ".join(sorted(CODES_ACCEPTED, key=lambda code: int(code[1:])))
            known = f"there are {codes}, and {', '.join(f'{one}:TABLE' for one in _OF_TABLES)}"
            yield f"{name} cannot be accepted: {known}; else rename, drop, or give a function"
    fields = {f"{change.item}.{change.field}" for change in losses if change.loses_values}
    gone = {item.name for item in pairs.gone}
    for name in sorted(set(drops) - fields - gone):
        known = ", ".join(sorted(fields | gone)) or "nothing"
        yield f"there is no {name} to drop; what goes is: {known}"
    unique = sorted(name for name, index in pairs.new.indexes.items() if index.is_unique)
    for name in sorted(set(resolutions) - set(unique)):
        known = ", ".join(unique) or "none"
        yield f"{name} is given a Resolution, and is no unique index of the new layout; there are: {known}"
