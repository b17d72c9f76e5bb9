"""What stands at the next level of meaning: the distinct values of a key's next field; and an item's keys, page by page.

Stored keys of other items are leapt over: the template's automaton says which bytes a key of the item could begin with next.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import structs

from keyplan.engine import Entry, KeyRange, Snapshot
from keyplan.errors import InvalidPageTokenError
from keyplan.layout import BoundIndex, BoundTable, Template
from keyplan.store.index_state import index_state_key, refuse_unreadable
from keyplan.store.listing import Listing, listing, sealed, unsealed

__all__ = ["ItemKeyPage", "Level", "LevelPage", "item_key_page", "level_page", "levels"]

_FORMAT: Final = "l1"
_READ_AT_ONCE: Final = 128
_READ_AT_FIRST: Final = 8
_GROWTH: Final = 4


class Level(NamedTuple):
    """One value of the next field. `has_more` tells that the key goes on behind it."""

    value: Any
    has_more: bool


class LevelPage(NamedTuple):
    """A part of a level, and the token that continues it; empty on the last page.

    `is_cut` tells that the page ends early, because as many entries were read as a page may read.
    """

    levels: list[Level]
    next_token: str
    is_cut: bool


class ItemKeyPage(NamedTuple):
    """Some of an item's keys in order, raw and typed, and the token that continues them; empty on the last page.

    `is_cut` as in LevelPage.
    """

    keys: list[tuple[bytes, Any]]
    next_token: str
    is_cut: bool


def levels(item: BoundTable | BoundIndex, prefix: tuple[Any, ...], snapshot: Snapshot) -> Iterator[Level]:
    """Yield the distinct values that the field after `prefix` has in stored keys, in key order.

    One short read for each value, however many records it has; keys of other templates in between are leapt over. Where the end
    of a value does not show in its bytes, the keys of two values may stand among each other, and each key is read.
    Raises IndexNotReadyError.
    """
    if isinstance(item, BoundIndex):
        refuse_unreadable(item, snapshot.get(index_state_key(item)))
    scan = _SkipScan(item, listing(item, prefix), snapshot)
    return iter(lambda: _next_level(item, prefix, scan, _READ_AT_ONCE), None)


def level_page(
    item: BoundTable | BoundIndex,
    prefix: tuple[Any, ...],
    snapshot: Snapshot,
    *,
    starts_with: object = None,
    limit: int,
    token: str = "",
    reads_max: int,
) -> LevelPage:
    """Return at most `limit` values of the field after `prefix`, from where the token says.

    At most some `reads_max` entries are read, whatever lies in between; where the end of a value does not show in its bytes,
    those as well that stand before its first key, once for each value. Raises InvalidKeyError, InvalidPageTokenError.
    """
    listed = listing(item, prefix, starts_with=starts_with)
    scan = _SkipScan(item, structs.replace(listed, range=_rest(item, listed, token)), snapshot, reads_max=reads_max)
    found: list[Level] = []
    while len(found) < limit and (level := _next_level(item, prefix, scan, limit + 1 - len(found))) is not None:
        found.append(level)
    scan.look_ahead()
    return LevelPage(found, _token(item, listed, scan.place), scan.is_cut)


def item_key_page(
    item: BoundTable | BoundIndex,
    prefix: tuple[Any, ...],
    snapshot: Snapshot,
    *,
    starts_with: object = None,
    limit: int,
    token: str = "",
    reads_max: int,
) -> ItemKeyPage:
    """Return at most `limit` keys of the item whose first fields equal `prefix`, from where the token says.

    At most some `reads_max` entries are read, whatever lies in between. Raises InvalidKeyError, InvalidPageTokenError.
    """
    listed = listing(item, prefix, starts_with=starts_with)
    scan = _SkipScan(item, structs.replace(listed, range=_rest(item, listed, token)), snapshot, reads_max=reads_max)
    found: list[tuple[bytes, Any]] = []
    while len(found) < limit and (pair := scan.next_key(limit + 1 - len(found))) is not None:
        found.append(pair)
    scan.look_ahead()
    return ItemKeyPage(found, _token(item, listed, scan.place), scan.is_cut)


def _next_level(item: BoundTable | BoundIndex, prefix: tuple[Any, ...], scan: "_SkipScan", wanted: int) -> Level | None:
    keys = item.keys
    has_more = len(prefix) + 1 < len(keys.template.fields)
    while (pair := scan.next_key(1 if has_more else wanted)) is not None:
        value = keys.shape.split(pair[1])[len(prefix)]
        if not has_more:
            return Level(value, has_more)
        own = listing(item, (*prefix, value))
        if own.is_exact:
            scan.go_to(own.range.end)
            return Level(value, has_more)
        # Why: keys of other values stand in the range as well, before this one or behind it.
        if scan.is_first(pair[0], own):
            return Level(value, has_more)
    return None


# ---- leaping -----------------------------------------------------------------------------------------------------------


class _SkipScan:
    """The stored keys of one item in a range, in key order."""

    def __init__(
        self, item: BoundTable | BoundIndex, listed: Listing, snapshot: Snapshot, *, reads_max: int | None = None
    ) -> None:
        self._keys = item.keys
        self._read_key = listed.read
        self._end = listed.range.end
        self._snapshot = snapshot
        self._reads_left = reads_max
        self._ahead: deque[Entry] = deque()
        self._is_last = False
        self._met: dict[tuple[bytes, ...], bytes | None] = {}  # lists that `is_first` was asked about, with their ends
        # Why growing: where one key is another item's, the next ones most likely are, too, and are to be leapt over.
        self._read_next = _READ_AT_FIRST
        self.place: bytes | None = listed.range.start
        """Where the next key is looked for; None at the end."""
        self.is_cut = False
        """Whether the bound on reads was reached."""

    def go_to(self, place: bytes | None) -> None:
        """Go on at `place`, which lies behind what was found; None: to the end."""
        self.place = None if place is None or (self._end is not None and place >= self._end) else place

    def next_key(self, wanted: int) -> tuple[bytes, Any] | None:
        """Return the next key, raw and typed; None at the end, and where `is_cut`. `wanted` is how many will be asked for."""
        while self.place is not None:
            if not self._ahead and not self._read(wanted):
                return None
            entry = self._ahead.popleft()
            if entry.key < self.place:
                continue
            key = self._read_key(entry.key)
            self._read_next = 1 if key is None else self._read_next
            if key is not None:
                self.go_to(entry.key + b"\x00")
                return entry.key, key
            self.go_to(_next_place(self._keys.template, entry.key))
        return None

    def is_first(self, raw_key: bytes, listed: Listing) -> bool:
        """Tell whether no listed key is stored before `raw_key`, which is one."""
        # Why remembered: all keys of a value come here, and the same others stand before each. Of the ranges that a key stands
        # in, one holds the other, so that few are remembered.
        self._met = {one: end for one, end in self._met.items() if end is None or raw_key < end}
        if listed.compared in self._met:
            return False
        self._met[listed.compared] = listed.range.end
        before = self._snapshot.scan(KeyRange(listed.range.start, raw_key), keys_only=True)
        return not any(listed.read(entry.key) is not None for entry in before)

    def look_ahead(self) -> None:
        """Move `place` to the next key, so that nobody is sent to a page that holds nothing."""
        pair = self.next_key(1)
        if pair is not None:
            self.place = pair[0]

    def _read(self, wanted: int) -> bool:
        """Read some entries ahead; False when there are none, or no more may be read."""
        if self._is_last or self.place is None:
            self.place = None
            return False
        limit = min(wanted, self._read_next)
        if self._reads_left is not None:
            self.is_cut = self._reads_left <= 0
            if self.is_cut:
                return False
            limit = min(limit, self._reads_left)
        self._read_next = min(_GROWTH * self._read_next, _READ_AT_ONCE)
        self._ahead.extend(self._snapshot.scan(KeyRange(self.place, self._end), limit=limit, keys_only=True))
        self._is_last = len(self._ahead) < limit
        if self._reads_left is not None:
            self._reads_left -= max(1, len(self._ahead))
        if not self._ahead:
            self.place = None
        return bool(self._ahead)


def _next_place(template: Template, raw_key: bytes) -> bytes | None:
    """Return the least bytes that lie behind `raw_key` and that a key of the template can begin with; None: there are none.

    The automaton drops long bounds on lengths, so that what is returned may be too small, and never too great.
    """
    automaton = template.automaton
    states = [frozenset({0})]
    for byte in raw_key:
        reached = automaton.step(states[-1], byte) & automaton.live
        if not reached:
            break
        states.append(reached)
    else:
        return raw_key + b"\x00"
    for position in range(len(states) - 1, -1, -1):
        followers = {follower for state in states[position] for follower in automaton.followers[state]}
        least = _least_byte((automaton.classes[follower] for follower in followers & automaton.live), raw_key[position])
        if least is not None:
            return raw_key[:position] + bytes([least])
    return None


def _least_byte(classes: Iterable[int], above: int) -> int | None:
    """The least byte greater than `above` in any of these classes."""
    mask = 0
    for one in classes:
        mask |= one
    mask = mask >> (above + 1) << (above + 1)
    return (mask & -mask).bit_length() - 1 if mask else None


# ---- tokens ------------------------------------------------------------------------------------------------------------


class _Content(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    format: str
    item: str
    fingerprint: str
    arguments: str
    relative_place: bytes


def _fingerprint(item: BoundTable | BoundIndex) -> str:
    table = item.table if isinstance(item, BoundIndex) else item
    return table.layout.fingerprint


def _token(item: BoundTable | BoundIndex, listed: Listing, place: bytes | None) -> str:
    if place is None:
        return ""
    relative_place = place[
        len(listed.range.start) :
    ]  # Invariant: a place is in the range, whose keys all begin as it does.
    return sealed(_Content(_FORMAT, item.name, _fingerprint(item), listed.digest, relative_place))


def _rest(item: BoundTable | BoundIndex, listed: Listing, token: str) -> KeyRange:
    """The part of the range that lies behind the token's place."""
    whole = listed.range
    if not token:
        return whole
    try:
        content = unsealed(token, _Content)
    except ValueError as error:
        raise InvalidPageTokenError(problem="the token is damaged or was never one") from error
    if content.format != _FORMAT:
        raise InvalidPageTokenError(problem="the token is of another version of keyplan")
    if (content.item, content.fingerprint) != (item.name, _fingerprint(item)):
        raise InvalidPageTokenError(problem="the token is of another layout, table or index", item=item.name)
    if content.arguments != listed.digest:
        raise InvalidPageTokenError(problem="the token is of a list with other arguments", item=item.name)
    return KeyRange(whole.start + content.relative_place, whole.end)
