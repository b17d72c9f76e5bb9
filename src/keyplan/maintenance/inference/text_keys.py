"""Templates of text keys out of a tree of places: literals and fields decided from the root down, fields with their codecs."""

from collections.abc import Sequence
from typing import Final

from keyplan.codec import TextTail
from keyplan.layout import Field, Literal, Template
from keyplan.maintenance.inference.decisions import Confidence, Decision, decide
from keyplan.maintenance.inference.found import Found, Note, Part, joined
from keyplan.maintenance.inference.key_tree import KeyNode
from keyplan.maintenance.inference.naming import field_name
from keyplan.maintenance.inference.stored_values import ValueProfile
from keyplan.maintenance.inference.words import WordProfile

__all__ = ["TextTemplates"]

_TEMPLATES_MAX: Final = 200
_IRREGULAR_MIN: Final = 24
_IRREGULAR_KEYS_MAX: Final = 2
"""So many templates below one place, most of them with so few keys, are no layout: files in folders."""


class TextTemplates:
    """Reads the templates off a tree. The tree is used up."""

    def __init__(self, separator: str) -> None:
        self._separator = separator
        self.notes: list[Note] = []

    def found(self, root: KeyNode) -> list[Found]:
        """Return the tables that explain every key of the tree."""
        return self._below(root, ())

    def _below(self, place: KeyNode, parts: tuple[Part, ...]) -> list[Found]:
        """The tables of the keys that end at a place or behind it. `parts` lead to it, the separator behind them included."""
        found = []
        if place.values is not None:
            found.append(Found(joined(self._ended(parts)), place.values, place.values.count))
        if place.is_leaf:
            return found
        decision = decide(place)
        self._note(decision, parts, has_rest=place.rest is not None)
        behind: list[Found] = []
        noted = len(self.notes)
        profile, inner = _gathered(place, decision)
        if profile.count:
            fields = self._fields(profile, parts, decision.literals)
            behind += self._below(inner, (*parts, *fields, self._literal(b"")))
        for word in decision.literals:
            behind += self._below(place.words[word], (*parts, self._literal(word)))
        if _is_irregular(behind):
            del self.notes[noted:]  # Why: what was decided below is not used.
            behind = [self._anything(behind, parts, has_empty=b"" in place.words)]
        return found + behind

    def _literal(self, word: bytes) -> Literal:
        return Literal(word + self._separator.encode())

    def _ended(self, parts: tuple[Part, ...]) -> tuple[Part, ...]:
        """The parts of a key that ends here: without the separator behind the last."""
        last = parts[-1]
        assert isinstance(last, Literal)
        return (*parts[:-1], Literal(last.raw[: -len(self._separator)]))

    def _fields(self, profile: WordProfile, parts: tuple[Part, ...], literals: Sequence[bytes]) -> list[Part]:
        before = self._word_before(parts)
        taken = {part.name for part in parts if isinstance(part, Field)}
        divided = profile.division()
        if divided is None:
            name = field_name(before, profile.kind, taken)
            return [Field(name, None, profile.element(separators=self._separator, reserved=literals))]
        divider, pieces = divided
        made: list[Part] = []
        for number, piece in enumerate(pieces):
            name = field_name("", piece.kind, taken)
            taken.add(name)
            separators = self._separator + divider
            made += [] if not number else [Literal(divider.encode())]
            made.append(Field(name, None, piece.element(separators=separators)))
        self._say(parts, f"fields divided by {divider!r}", f"each of {profile.distinct} words has it", Confidence.FAIR)
        return made

    def _word_before(self, parts: tuple[Part, ...]) -> str:
        last = parts[-1] if parts else None
        if not isinstance(last, Literal):
            return ""
        words = last.raw.decode().split(self._separator)
        return words[-2] if len(words) > 1 else ""

    def _anything(self, behind: Sequence[Found], parts: tuple[Part, ...], *, has_empty: bool) -> Found:
        values = ValueProfile()
        for one in behind:
            values.merge(one.values)
        name = field_name("path", "name", {part.name for part in parts if isinstance(part, Field)})
        reason = f"{len(behind)} templates would hold {values.count} keys: no structure that repeats"
        self._say(parts, "any path", reason, Confidence.LOW)
        return Found(joined((*parts, Field(name, None, TextTail(empty=has_empty)))), values, values.count)

    def _note(self, decision: Decision, parts: tuple[Part, ...], *, has_rest: bool) -> None:
        if not decision.reasons:
            return
        kinds = ["a field"] if decision.values or has_rest else []
        kinds += ["literals"] if any(decision.literals) else []
        self._say(parts, " beside ".join(kinds), "; ".join(decision.reasons), decision.confidence)

    def _say(self, parts: tuple[Part, ...], decision: str, reason: str, confidence: Confidence) -> None:
        place = Template(joined(parts), is_text=True).plain
        self.notes.append(Note(place or "(first)", decision, reason, confidence))


def _gathered(place: KeyNode, decision: Decision) -> tuple[WordProfile, KeyNode]:
    """All words that are values of the field at a place, and one place behind them all."""
    profile, inner = place.folded_words(), place.rest
    if inner is None:
        inner = KeyNode()
        inner.parents = 0
    for word in decision.values:
        profile.add(word)
        inner.merge(place.words.pop(word))
    return profile, inner


def _is_irregular(behind: Sequence[Found]) -> bool:
    few = sum(found.keys <= _IRREGULAR_KEYS_MAX for found in behind)
    return len(behind) > _TEMPLATES_MAX or (len(behind) > _IRREGULAR_MIN and 2 * few > len(behind))
