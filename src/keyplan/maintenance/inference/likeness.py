"""How like two places of a tree are: whether the words that lead to them may be values of one field."""

from collections.abc import Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from keyplan.maintenance.inference.stored_values import ValueProfile

if TYPE_CHECKING:
    from keyplan.maintenance.inference.places import Place

__all__ = ["Likeness", "groups_of", "is_like", "likeness"]

_DEPTH_MAX: Final = 16
_STRUCTURE_WORDS_MAX: Final = 24
"""Why: words that many places share are data, as user names below several attributes, and not the names of parts."""

_COMPARED_WORDS_MAX: Final = 8


class Likeness(IntEnum):
    """What two places share, from nothing to the most telling.

    WEAK: keys of the same depth, with values of the same kind. FIELDS: JSON records with mostly the same fields. PART: one
    word behind them and no other, as `by-name`. STRUCTURE: the same words behind them, as `tor` and `blades` behind each rack.
    """

    NONE = 0
    WEAK = 1
    FIELDS = 2
    PART = 3
    STRUCTURE = 4


def is_like(left: "Place", right: "Place") -> bool:
    """Tell whether two places have anything in common."""
    return likeness(left, right) is not Likeness.NONE


def likeness(left: "Place", right: "Place", depth: int = 0) -> Likeness:
    """Compare two places: the values that stand there, then what is behind them."""
    if left.is_leaf is not right.is_leaf:
        return Likeness.NONE
    by_values = _by_values(left.values, right.values)
    if by_values is Likeness.NONE or left.is_leaf or depth >= _DEPTH_MAX:
        return by_values
    common = _common_words(left, right)
    if common:
        return _by_common_words(left, right, common, depth)
    behind = likeness(_typical(left), _typical(right), depth + 1)
    # Why: what is behind both may be of one structure by chance of a single word; their own fields say more.
    return Likeness.NONE if behind is Likeness.NONE else min(max(behind, by_values), Likeness.FIELDS)


def groups_of(place: "Place") -> list[list[bytes]]:
    """The words of a place in groups that are alike, each with its heaviest word first."""
    groups: list[list[bytes]] = []
    for word in sorted(place.words, key=lambda word: (-place.words[word].keys, word)):
        inner = place.words[word]
        for group in groups:
            if _may_be_value(word) and _may_be_value(group[0]) and is_like(inner, place.words[group[0]]):
                group.append(word)
                break
        else:
            groups.append([word])
    return groups


def _may_be_value(word: bytes) -> bool:
    """Whether a word may be a value: not the empty one behind a last separator, and not `by-name`, the name of an index."""
    return bool(word) and not word.startswith((b"by-", b"by_"))


def _by_values(left: ValueProfile | None, right: ValueProfile | None) -> Likeness:
    if left is None or right is None:
        return Likeness.WEAK  # Why: a record may be absent where others have one.
    if left.main_kind != right.main_kind:
        return Likeness.NONE
    mine, its = left.signature, right.signature
    if not mine and not its:
        return Likeness.WEAK if left.json_kinds == right.json_kinds else Likeness.NONE
    return Likeness.FIELDS if 2 * len(mine & its) >= len(mine | its) else Likeness.NONE


def _common_words(left: "Place", right: "Place") -> Sequence[bytes]:
    """The words that lead on from both, when they are most of those of one."""
    fewer, more = sorted((left.words, right.words), key=len)
    common = sorted(fewer.keys() & more.keys())
    return common if common and 2 * len(common) >= len(fewer) and len(fewer) <= _STRUCTURE_WORDS_MAX else []


def _by_common_words(left: "Place", right: "Place", common: Sequence[bytes], depth: int) -> Likeness:
    compared = common[:_COMPARED_WORDS_MAX]
    levels = [likeness(left.words[word], right.words[word], depth + 1) for word in compared]
    if 2 * levels.count(Likeness.NONE) > len(levels):
        return Likeness.NONE
    inner = [left.words[word] for word in compared]
    kinds = {place.values.main_kind for place in inner if place.values is not None and place.is_leaf}
    if len(common) == 1:
        # Why: one word such as by-uuid stands behind things that have nothing else in common.
        is_all = left.words.keys() == right.words.keys() and left.rest is right.rest is None
        if is_all:
            return Likeness.STRUCTURE if inner[0].is_leaf else Likeness.PART
        return min(levels[0], Likeness.FIELDS)
    if len(kinds) > 1 or not all(place.is_leaf for place in inner):
        return Likeness.STRUCTURE
    # Why: keys of one kind behind the same words may as well be several attributes of the same things.
    return max(levels)


def _typical(place: "Place") -> "Place":
    """Where most keys behind a place are."""
    heaviest = max(place.words.values(), key=lambda inner: inner.keys, default=None)
    if heaviest is None or (place.rest is not None and place.rest.keys >= heaviest.keys):
        assert place.rest is not None
        return place.rest
    return heaviest
