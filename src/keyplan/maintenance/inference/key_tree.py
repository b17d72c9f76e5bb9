"""The tree of text keys, segment by segment, in bounded memory: words that are alike are folded into one place as they come.

    /site/rack/r17/blades/4     ->  "" > site > rack > r17 > blades > (numbers)

A number, a UUID or the like is folded at once: programs make those up. Other words keep a place each until there are too many
of them at one place; then those that are alike (`likeness`) are folded. What is literal and what varies is decided at the end.
"""

from collections.abc import Collection, Iterator, Sequence
from enum import IntEnum
from typing import Final

from keyplan.engine import Entry
from keyplan.maintenance.inference.stored_values import ValueProfile
from keyplan.maintenance.inference.words import WordProfile, is_identifier

__all__ = ["KeyNode", "KeyTree", "Likeness", "groups_of", "likeness"]

WORDS_MAX: Final = 64
"""Words kept apart at one place. Why: a person who declares literals does not write so many."""

MERGED_WORDS_MAX: Final = 2 * WORDS_MAX
"""Words that a place may come to have when others are merged into it."""

PLACES_MAX: Final = 20_000
"""Places in the tree. Why: each takes one to ten kilobytes, most of them for the fields of JSON values."""

SEGMENTS_MAX: Final = 32
"""Why: a key of more segments is a path of files; what is behind them is one word."""

_DEPTH_MAX: Final = 16
_STRUCTURE_WORDS_MAX: Final = 24
"""Why: words that many places share are data, as user names below several attributes, and not the names of parts."""

_COMPARED_WORDS_MAX: Final = 8


class KeyNode:
    """What was seen behind one word, or behind many that were folded.

    `parents` is how many different places of the store this one stands for. `values` are those of keys that end here. `words`
    leads to the places behind this one; `rest` is the place of all words that were folded, `rest_words` what they were.
    """

    __slots__ = ("is_folding", "keys", "parents", "rest", "rest_words", "values", "words")

    def __init__(self) -> None:
        self.parents = 1
        self.keys = 0
        self.values: ValueProfile | None = None
        self.words: dict[bytes, KeyNode] = {}
        self.rest: KeyNode | None = None
        self.rest_words: WordProfile | None = None
        self.is_folding = False

    @property
    def is_leaf(self) -> bool:
        """Whether no key goes on behind this place."""
        return not self.words and self.rest is None

    def folded(self) -> "KeyNode":
        """The place of folded words, made when there is none."""
        if self.rest is None:
            self.rest = KeyNode()
            self.rest.parents = 0
        return self.rest

    def folded_words(self) -> WordProfile:
        """What the folded words are, made when there are none."""
        if self.rest_words is None:
            self.rest_words = WordProfile()
        return self.rest_words

    def fold(self, word: bytes) -> None:
        """Fold one word."""
        self.folded_words().add(word)
        self.folded().merge(self.words.pop(word))

    def fold_surplus(self, words_max: int, kept: Collection[bytes]) -> None:
        """Fold words when there are too many: those of the largest group that are alike, then the rarest others.

        Words that come again behind most of the places merged into this one may be literals; they, and `kept`, are not folded
        while others are.
        """
        self.is_folding = True
        groups = sorted(groups_of(self), key=len)
        alike = set(groups[-1])
        recurring = {word for word in self.words if self.parents > 1 and 2 * self.words[word].parents >= self.parents}
        foldable = alike - recurring if len(alike) > 1 else set[bytes]()
        rarest = sorted(self.words.keys() - foldable, key=lambda word: (self.words[word].keys, word))
        surplus = rarest[: max(0, len(rarest) - words_max // 2)]
        for word in (*sorted(foldable), *surplus):
            if word not in kept:
                self.fold(word)

    def merge(self, other: "KeyNode") -> None:
        """Take in another place. It must not be used afterwards."""
        self.parents += other.parents
        self.keys += other.keys
        if other.values is not None:
            if self.values is None:
                self.values = other.values
            else:
                self.values.merge(other.values)
        for word, place in other.words.items():
            mine = self.words.get(word)
            if mine is None:
                self.words[word] = place
            else:
                mine.merge(place)
        if len(self.words) > MERGED_WORDS_MAX:
            self.fold_surplus(WORDS_MAX, frozenset())
        if other.rest is not None:
            self.folded().merge(other.rest)
        if other.rest_words is not None:
            self.folded_words().merge(other.rest_words)
        self.is_folding |= other.is_folding

    def below(self) -> Iterator["KeyNode"]:
        """This place and all behind it."""
        yield self
        for place in self.words.values():
            yield from place.below()
        if self.rest is not None:
            yield from self.rest.below()


class KeyTree:
    """Takes in keys in their order, and keeps the number of places bounded."""

    def __init__(self, separator: str, *, has_values: bool = True) -> None:
        self.root = KeyNode()
        self._has_values = has_values
        self._separator = separator.encode()
        self._path: list[tuple[bytes, KeyNode]] = []
        self._words_max = WORDS_MAX
        self._places = 1

    def add(self, entry: Entry) -> None:
        """Take in one key with its value."""
        words = entry.key.split(self._separator, SEGMENTS_MAX)
        path = self._path
        shared = 0
        for (known, _), word in zip(path, words, strict=False):
            if known != word:
                break
            shared += 1
        self._close(shared)
        place = path[-1][1] if path else self.root
        for word in words[shared:]:
            place = self._entered(place, word)
            path.append((word, place))
        self.root.keys += 1
        for _, passed in path:
            passed.keys += 1
        if place.values is None:
            place.values = ValueProfile()
        place.values.add(entry.key, entry.value if self._has_values else None, entry.lease)

    def finish(self) -> KeyNode:
        """Return the root, when all keys were taken in."""
        self._close(0)
        return self.root

    def _entered(self, place: KeyNode, word: bytes) -> KeyNode:
        if is_identifier(word):
            place.folded_words().add(word)
            inner = place.folded()
            inner.parents += 1
            return inner
        known = place.words.get(word)
        if known is None:
            known = place.words[word] = KeyNode()
            self._places += 1
        else:
            # Why the bound: in key order a!b comes between a and a/b, so that one place may be entered twice.
            known.parents = min(known.parents + 1, place.parents)
        return known

    def _close(self, depth: int) -> None:
        """Leave the places deeper than `depth`: their keys have all been seen, since keys come in order."""
        while len(self._path) > depth:
            word, place = self._path.pop()
            parent = self._path[-1][1] if self._path else self.root
            if word not in parent.words:
                continue
            if parent.is_folding and parent.rest is not None and is_like(place, parent.rest):
                parent.fold(word)
            elif len(parent.words) > self._words_max:
                parent.fold_surplus(self._words_max, self._open_words())
        if self._places > PLACES_MAX:
            self._shrink()

    def _open_words(self) -> set[bytes]:
        """Words on the way to the latest key, whose places must stay where they are."""
        return {word for word, _ in self._path}

    def _shrink(self) -> None:
        """Allow fewer words at each place until the tree is small enough."""
        while True:
            self._places = sum(1 for _ in self.root.below())
            if self._places <= PLACES_MAX // 2:
                return
            if self._words_max <= 1:
                self._fold_all(self.root)
                self._places = sum(1 for _ in self.root.below())
                return
            self._words_max //= 2
            for place in list(self.root.below()):
                if len(place.words) > self._words_max:
                    place.fold_surplus(self._words_max, self._open_words())

    def _fold_all(self, place: KeyNode) -> None:
        """Leave one word or place behind each place. Why: keys without any structure must not fill the memory either."""
        for word in place.words.keys() - self._open_words():
            place.fold(word)
        place.is_folding = True
        for inner in (*place.words.values(), *(() if place.rest is None else (place.rest,))):
            self._fold_all(inner)


# ---- how like two places are: whether the words that lead to them may be values of one field -----------------------------


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


def is_like(left: KeyNode, right: KeyNode) -> bool:
    """Tell whether two places have anything in common."""
    return likeness(left, right) is not Likeness.NONE


def likeness(left: KeyNode, right: KeyNode, depth: int = 0) -> Likeness:
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


def groups_of(place: KeyNode) -> list[list[bytes]]:
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


def _common_words(left: KeyNode, right: KeyNode) -> Sequence[bytes]:
    """The words that lead on from both, when they are most of those of one."""
    fewer, more = sorted((left.words, right.words), key=len)
    common = sorted(fewer.keys() & more.keys())
    return common if common and 2 * len(common) >= len(fewer) and len(fewer) <= _STRUCTURE_WORDS_MAX else []


def _by_common_words(left: KeyNode, right: KeyNode, common: Sequence[bytes], depth: int) -> Likeness:
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


def _typical(place: KeyNode) -> KeyNode:
    """Where most keys behind a place are."""
    heaviest = max(place.words.values(), key=lambda inner: inner.keys, default=None)
    if heaviest is None or (place.rest is not None and place.rest.keys >= heaviest.keys):
        assert place.rest is not None
        return place.rest
    return heaviest
