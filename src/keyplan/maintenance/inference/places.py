"""The tree of text keys, segment by segment, in bounded memory: words that are alike are folded into one place as they come.

    /site/rack/r17/blades/4     ->  "" > site > rack > r17 > blades > (numbers)

A number, a UUID or the like is folded at once: programs make those up. Other words keep a place each until there are too many
of them at one place; then those that are alike (likeness.py) are folded. What is literal and what varies is decided at the end.
"""

from collections.abc import Collection, Iterator
from typing import Final

from keyplan.engine import Entry
from keyplan.maintenance.inference.likeness import groups_of, is_like
from keyplan.maintenance.inference.stored_values import ValueProfile
from keyplan.maintenance.inference.words import WordProfile, is_identifier

__all__ = ["Place", "PlaceTree"]

WORDS_MAX: Final = 64
"""Words kept apart at one place. Why: a person who declares literals does not write so many."""

MERGED_WORDS_MAX: Final = 2 * WORDS_MAX
"""Words that a place may come to have when others are merged into it."""

PLACES_MAX: Final = 20_000
"""Places in the tree. Why: each takes one to ten kilobytes, most of them for the fields of JSON values."""

SEGMENTS_MAX: Final = 32
"""Why: a key of more segments is a path of files; what is behind them is one word."""


class Place:
    """What was seen behind one word, or behind many that were folded.

    `parents` is how many different places of the store this one stands for. `values` are those of keys that end here. `words`
    leads to the places behind this one; `rest` is the place of all words that were folded, `rest_words` what they were.
    """

    __slots__ = ("is_folding", "keys", "parents", "rest", "rest_words", "values", "words")

    def __init__(self) -> None:
        self.parents = 1
        self.keys = 0
        self.values: ValueProfile | None = None
        self.words: dict[bytes, Place] = {}
        self.rest: Place | None = None
        self.rest_words: WordProfile | None = None
        self.is_folding = False

    @property
    def is_leaf(self) -> bool:
        """Whether no key goes on behind this place."""
        return not self.words and self.rest is None

    def folded(self) -> "Place":
        """The place of folded words, made when there is none."""
        if self.rest is None:
            self.rest = Place()
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

    def merge(self, other: "Place") -> None:
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

    def below(self) -> Iterator["Place"]:
        """This place and all behind it."""
        yield self
        for place in self.words.values():
            yield from place.below()
        if self.rest is not None:
            yield from self.rest.below()


class PlaceTree:
    """Takes in keys in their order, and keeps the number of places bounded."""

    def __init__(self, separator: str, *, has_values: bool = True) -> None:
        self.root = Place()
        self._has_values = has_values
        self._separator = separator.encode()
        self._path: list[tuple[bytes, Place]] = []
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

    def finish(self) -> Place:
        """Return the root, when all keys were taken in."""
        self._close(0)
        return self.root

    def _entered(self, place: Place, word: bytes) -> Place:
        if is_identifier(word):
            place.folded_words().add(word)
            inner = place.folded()
            inner.parents += 1
            return inner
        known = place.words.get(word)
        if known is None:
            known = place.words[word] = Place()
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

    def _fold_all(self, place: Place) -> None:
        """Leave one word or place behind each place. Why: keys without any structure must not fill the memory either."""
        for word in place.words.keys() - self._open_words():
            place.fold(word)
        place.is_folding = True
        for inner in (*place.words.values(), *(() if place.rest is None else (place.rest,))):
            self._fold_all(inner)
