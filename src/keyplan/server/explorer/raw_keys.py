"""Raw keys below a prefix, level by level of slashes: for areas without a layout, and for what no layout knows."""

from keyplan.engine import KeyRange, Snapshot
from keyplan.errors import InvalidArgumentError
from keyplan.layout import Kind, readings_of, shown_key
from keyplan.server.explorer.answers import Crumb, RawChild, RawPage
from keyplan.server.explorer.areas import Area, Areas
from keyplan.server.explorer.bounds import LIMIT_DEFAULT, READS_MAX
from keyplan.server.explorer.overview import area_crumbs

__all__ = ["raw_crumbs", "raw_page"]

_READ_AT_ONCE = 64


def raw_page(areas: Areas, area_name: str, prefix: bytes, *, start: bytes | None, limit: int) -> RawPage:
    """Return what stands below a prefix, from `start` on: keys, and beginnings of keys up to the next slash.

    Raises InvalidArgumentError for a start outside of the prefix, KeySpaceNotFoundError, KeySpaceDeletedError.
    """
    area = areas.named(area_name)
    whole = KeyRange.of_prefix(prefix)
    if start is not None and start not in whole:
        raise InvalidArgumentError(argument="page", problem="it leaves the prefix")
    with area.engine.snapshot() as snapshot:
        revision = snapshot.revision
        steps = _Steps(snapshot, prefix, whole.start if start is None else start, whole.end)
        found: list[tuple[bytes, bool]] = []
        while len(found) < limit and (step := steps.next(limit - len(found))) is not None:
            found.append(step)
        place = steps.rest()
    return RawPage(
        area=area.name,
        title=area.title,
        crumbs=raw_crumbs(area, prefix),
        prefix=shown_key(prefix),
        hex=prefix.hex(),
        revision=revision,
        children=[_child(area, prefix, raw, is_key=is_key) for raw, is_key in found],
        next=""
        if place is None
        else area.links.raw(prefix, page=place.hex(), limit="" if limit == LIMIT_DEFAULT else str(limit)),
        is_cut=steps.is_cut,
        live_href=area.links.raw_live(prefix),
    )


def raw_crumbs(area: Area, prefix: bytes) -> list[Crumb]:
    """The way to a prefix, slash by slash."""
    crumbs = [*area_crumbs(area), Crumb(text="raw keys", href=area.links.raw())]
    place = 0
    while place < len(prefix):
        segment = _segment(prefix[place:]) or prefix[place:]
        place += len(segment)
        crumbs.append(Crumb(text=shown_key(segment), href=area.links.raw(prefix[:place])))
    return crumbs


class _Steps:
    """What stands below a prefix, in order: a key, or a beginning of keys that ends in a slash."""

    def __init__(self, snapshot: Snapshot, prefix: bytes, place: bytes, end: bytes | None) -> None:
        self._snapshot = snapshot
        self._prefix = prefix
        self._place: bytes | None = place
        self._end = end
        self._ahead: list[bytes] = []
        self._read_next = 1
        self._reads = 0
        self.is_cut = False

    def next(self, wanted: int) -> tuple[bytes, bool] | None:
        """Return the next one, and whether it is a key; None at the end, and where as much was read as may be."""
        raw_key = self._key(wanted)
        if raw_key is None:
            return None
        segment = _segment(raw_key[len(self._prefix) :])
        if segment is None:
            self._place = raw_key + b"\x00"
            self._read_next = min(2 * self._read_next, _READ_AT_ONCE)
            return raw_key, True
        # Why one: what was read ahead lies below the same slash, most likely.
        self._read_next = 1
        whole = self._prefix + segment
        self._place = KeyRange.of_prefix(whole).end
        return whole, False

    def rest(self) -> bytes | None:
        """Return where the next page begins; None: nowhere."""
        return self._place if self.is_cut else self._key(1)

    def _key(self, wanted: int) -> bytes | None:
        """The first key at the place or behind it."""
        while self._place is not None and (self._end is None or self._place < self._end):
            self._ahead = [raw_key for raw_key in self._ahead if raw_key >= self._place]
            if self._ahead:
                return self._ahead[0]
            if self._reads >= READS_MAX:
                self.is_cut = True
                return None
            limit = min(wanted, self._read_next)
            self._ahead = list(self._snapshot.keys(KeyRange(self._place, self._end), limit=limit))
            self._reads += max(1, len(self._ahead))
            if not self._ahead:
                self._place = None
        return None


def _segment(rest: bytes) -> bytes | None:
    """The bytes up to and with the next slash, if they are text that prints; a slash at the very beginning belongs to them."""
    at = rest.find(b"/", 1)
    if at < 0:
        return None
    segment = rest[: at + 1]
    # Why: the byte of a slash occurs in binary keys, too, where it means nothing.
    return segment if shown_key(segment).encode() == segment else None


def _child(area: Area, prefix: bytes, raw: bytes, *, is_key: bool) -> RawChild:
    text = shown_key(raw[len(prefix) :])
    if not is_key:
        return RawChild(text=text, hex=raw.hex(), is_key=False, meaning="", href=area.links.raw(raw))
    return RawChild(text=text, hex=raw.hex(), is_key=True, meaning=_meaning(area, raw), href=area.links.key(raw))


def _meaning(area: Area, raw_key: bytes) -> str:
    for bound, meaning in readings_of(area.bounds, raw_key):
        if meaning.kind not in (Kind.UNKNOWN, Kind.NAMESPACE):
            return f"{meaning.kind.value} of {bound.name}.{meaning.item}"
    return "unknown" if area.layouts else ""
