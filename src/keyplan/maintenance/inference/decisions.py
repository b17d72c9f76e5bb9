"""Which words of a place are literals of a template, and which values of a field: decided from evidence, with the reason."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from keyplan.maintenance.inference.key_tree import KeyNode, Likeness, groups_of, likeness

__all__ = ["Confidence", "Decision", "decide"]

ALIKE_MIN: Final = 6
"""So many words that are weakly alike are values. Why: few layouts have six lists of one kind beside one another."""

RECURRING_LEAVES_MAX: Final = 32
RECURRING_LISTS_MAX: Final = 5
_ODD_SHARE_MAX: Final = 0.02

_DIGITS: Final = frozenset(b"0123456789")

_RESERVED_BYTES_MAX: Final = 64
"""Why: a name that a field must not take is refused by the codec `text`, up to this length."""


class Confidence(Enum):
    """How sure a decision is."""

    HIGH = "high"
    FAIR = "fair"
    LOW = "low"
    """The evidence would bear the other decision as well."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What the words of one place are. `reasons` say why, with the numbers that it rests on."""

    literals: tuple[bytes, ...]
    values: tuple[bytes, ...]
    confidence: Confidence
    reasons: tuple[str, ...]


def decide(place: KeyNode) -> Decision:
    """Divide the words of a place into literals and values."""
    groups = groups_of(place)
    literals: list[bytes] = []
    values: list[bytes] = []
    reasons: list[str] = []
    confidence = Confidence.HIGH
    is_alone = len(groups) == 1 and place.rest is None
    folded = 0 if place.rest_words is None else place.rest_words.distinct
    if folded:
        reasons.append(f"about {folded} words that programs make up or that are alike")
    for group in groups:
        judged = _judge(place, group, is_alone=is_alone)
        if judged is None:
            literals += group
            continue
        (values if judged.is_value else literals).extend(group)
        reasons.append(judged.reason)
        confidence = min(confidence, judged.confidence, key=_sureness)
    if values or place.rest is not None:
        values += [word for word in literals if word and not _can_be_reserved(word)]
    if place.is_folding and place.parents > 1:
        # Why: where places were merged, a word may have been folded behind one of them; what is no value behind another would
        # then be a key that nothing spells.
        values += [word for word in literals if word and word not in values and not _is_recurring(place, [word])]
    odd = _odd_ones(place, literals, values)
    if odd:
        values += odd
        reasons.append(f"{len(odd)} of another kind counted with the {len(values)}, as damaged or exceptional")
    return Decision(
        tuple(sorted(word for word in literals if word not in values)),
        tuple(sorted(values)),
        confidence,
        tuple(reasons),
    )


@dataclass(frozen=True, slots=True)
class _Judgement:
    is_value: bool
    confidence: Confidence
    reason: str


def _value(confidence: Confidence, reason: str) -> _Judgement:
    return _Judgement(is_value=True, confidence=confidence, reason=reason)


def _literal(confidence: Confidence, reason: str) -> _Judgement:
    return _Judgement(is_value=False, confidence=confidence, reason=reason)


def _judge(place: KeyNode, group: Sequence[bytes], *, is_alone: bool) -> _Judgement | None:
    """Judge words that are alike; None when nothing needs saying: a single word is itself."""
    if not group[0]:
        return None
    if place.rest is not None and not _is_recurring(place, group):
        level = likeness(place.words[group[0]], place.rest)
        if level is not Likeness.NONE:
            return _value(Confidence.FAIR, f"{_quoted(group)} like the others beside")
    if len(group) == 1:
        return _single(place, group[0], is_alone=is_alone)
    levels = sorted(likeness(place.words[word], place.words[group[0]]) for word in group[1:])
    level = levels[len(levels) // 2]
    if place.words[group[0]].is_leaf:
        judged = _judge_leaves(place, group, level, is_alone=is_alone)
    else:
        judged = _judge_lists(place, group, level)
    if _is_numbered(group) and not (judged.is_value and judged.confidence is not Confidence.LOW):
        return _value(Confidence.FAIR, f"{len(group)} words that differ in their number alone: {_quoted(group)}")
    return judged


def _single(place: KeyNode, word: bytes, *, is_alone: bool) -> _Judgement | None:
    if is_alone and place.parents > 1 and not _is_recurring(place, [word]):
        return None
    is_doubtful = place.words[word].is_leaf or _DIGITS.intersection(word)
    if is_alone and is_doubtful and place.parents == 1:
        return _literal(Confidence.LOW, f"{_quoted([word])} is the only word seen here: literal, or the first value")
    return None


def _judge_leaves(place: KeyNode, group: Sequence[bytes], level: Likeness, *, is_alone: bool) -> _Judgement:
    number = len(group)
    if number <= RECURRING_LEAVES_MAX and _is_recurring(place, group):
        return _recurring(place, group)
    if level is Likeness.FIELDS:
        return _value(Confidence.HIGH, f"{number} records with the same fields: {_quoted(group)}")
    if number >= ALIKE_MIN:
        return _value(Confidence.HIGH, f"{number} keys with values of one kind: {_quoted(group)}")
    if place.parents > 1:
        return _value(Confidence.FAIR, f"{_quoted(group)} differ from one of {place.parents} places to the next")
    if is_alone:
        return _value(Confidence.LOW, f"{_quoted(group)}: values, or the {number} names of settings")
    return _literal(Confidence.LOW, f"{_quoted(group)}: literals like those beside, or {number} values")


def _judge_lists(place: KeyNode, group: Sequence[bytes], level: Likeness) -> _Judgement:
    number = len(group)
    if level is Likeness.STRUCTURE:
        return _value(Confidence.HIGH, f"{number} words with the same parts below: {_quoted(group)}")
    if level is Likeness.PART and number > 2:
        return _value(Confidence.FAIR, f"{number} words with the same part below: {_quoted(group)}")
    if _is_valueless(place.words[group[0]]):
        sureness = Confidence.FAIR if number > 2 else Confidence.LOW
        return _value(sureness, f"{number} words with keys without values below: {_quoted(group)}")
    if number <= RECURRING_LISTS_MAX and _is_recurring(place, group):
        return _recurring(place, group)
    if level in (Likeness.FIELDS, Likeness.PART) and _is_of_records(place.words[group[0]]):
        return _value(Confidence.HIGH, f"{number} lists of records with the same fields: {_quoted(group)}")
    if number >= ALIKE_MIN:
        return _value(Confidence.FAIR, f"{number} lists of one kind: {_quoted(group)}")
    if place.parents > 1:
        return _value(Confidence.FAIR, f"{_quoted(group)} differ from one of {place.parents} places to the next")
    return _literal(Confidence.LOW, f"{_quoted(group)}: literals, or {number} values; their lists are of one kind")


def _is_recurring(place: KeyNode, group: Sequence[bytes]) -> bool:
    """Whether the words come again behind most of the places that were merged into this one."""
    if place.parents < 2:
        return False
    found = sum(place.words[word].parents for word in group) / len(group)
    return found >= (1.5 if place.parents == 2 else place.parents / 2)


def _is_numbered(group: Sequence[bytes]) -> bool:
    """Whether words are one word with different numbers in it: n1 and n2, pod-0 and pod-1."""
    return len({word.translate(None, bytes(_DIGITS)) for word in group}) == 1


def _recurring(place: KeyNode, group: Sequence[bytes]) -> _Judgement:
    reason = f"{_quoted(group)} recur in most of {place.parents} places"
    return _literal(Confidence.HIGH if place.parents > 2 else Confidence.FAIR, reason)


def _is_valueless(place: KeyNode) -> bool:
    """Whether all keys behind a place have no value, as index entries do."""
    profiles = [inner.values for inner in place.below() if inner.values is not None]
    return all(profile.main_kind == "empty" for profile in profiles)


def _is_of_records(place: KeyNode) -> bool:
    """Whether JSON records with fields stand somewhere behind a place."""
    return any(inner.values is not None and inner.values.signature for inner in place.below())


def _can_be_reserved(word: bytes) -> bool:
    """Whether a field beside a literal can be told to leave it out."""
    return word.isascii() and word.decode().isprintable() and b" " not in word and len(word) <= _RESERVED_BYTES_MAX


def _odd_ones(place: KeyNode, literals: Sequence[bytes], values: Sequence[bytes]) -> list[bytes]:
    """Single keys of another kind among very many that are alike: damaged records rather than names of their own."""
    number = len(values) + (0 if place.rest_words is None else place.rest_words.distinct)
    odd = [
        word
        for word in literals
        if word
        and place.words[word].is_leaf
        and not _is_recurring(place, [word])
        and place.parents == 1
        and (place.rest is None or place.rest.is_leaf)
        and all(place.words[other].is_leaf for other in values)
    ]
    return odd if odd and len(odd) <= _ODD_SHARE_MAX * number else []


def _sureness(confidence: Confidence) -> int:
    return (Confidence.LOW, Confidence.FAIR, Confidence.HIGH).index(confidence)


def _quoted(words: Sequence[bytes]) -> str:
    shown = ", ".join(repr(word.decode(errors="replace")) for word in sorted(words)[:4])
    return shown if len(words) <= 4 else f"{shown}, ..."
