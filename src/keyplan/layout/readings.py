"""What several layouts make of one raw key: all that know it, or the one that comes nearest."""

from collections.abc import Iterable

from keyplan.layout.bound import BoundLayout
from keyplan.layout.meaning import Kind, Meaning

__all__ = ["holds_secrets", "readings_of"]


def readings_of(layouts: Iterable[BoundLayout], raw_key: bytes) -> list[tuple[BoundLayout, Meaning]]:
    """Return the layouts to which the key is a record, an index entry or a counter, the longest root first.

    When only layouts without a root know it, to which all bytes of the right length are keys, or none does: the nearest too, as
    the first. Empty without layouts.
    """
    found = [(bound, bound.meaning(raw_key)) for bound in layouts]
    known = [pair for pair in found if pair[1].kind not in (Kind.UNKNOWN, Kind.NAMESPACE)]
    known.sort(key=lambda pair: -len(pair[0].root))
    if known and known[0][0].root:
        return known
    others = [pair for pair in found if pair not in known and (not known or pair[1].item is not None)]
    nearest = max(others, key=_nearness, default=None)
    return known if nearest is None else [nearest, *known]


def holds_secrets(layouts: Iterable[BoundLayout], raw_key: bytes) -> bool:
    """Tell whether a record with secret fields stands at the key by one of the layouts: its bytes are not to be shown."""
    return any(
        meaning.kind is Kind.RECORD and bool(bound.tables[str(meaning.item)].form.secrets)
        for bound in layouts
        for meaning in bound.meanings(raw_key)
    )


def _nearness(pair: tuple[BoundLayout, Meaning]) -> tuple[bool, bool, int]:
    bound, meaning = pair
    is_below_root = bool(bound.root) and meaning.item is not None
    return meaning.kind is Kind.NAMESPACE, is_below_root, meaning.position
