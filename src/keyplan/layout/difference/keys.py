"""What became of a table's keys: decided by automata, with a key that shows it."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from itertools import chain, islice
from uuid import UUID

from keyplan.errors import InvalidKeyError
from keyplan.layout.difference.inclusion import Labels, key_beyond, key_read_otherwise
from keyplan.layout.difference.pairing import field_labels, field_of, literal_head, plain_shape
from keyplan.layout.rules.decision import CANDIDATES_MAX, key_below, shortest_key
from keyplan.layout.rules.reading import readings, spelled
from keyplan.layout.rules.search import CommonWords, SearchTooLargeError, words
from keyplan.layout.rules.subject import MEMBER_BYTES_SPAN, key_with, members
from keyplan.layout.template import Field, Literal, Template

__all__ = ["KeyComparison", "KeyRelation", "compare_keys"]


class KeyRelation(Enum):
    """How the keys of two whole templates lie to one another."""

    SAME = "same"
    """The same keys, read alike."""
    WIDER = "wider"
    """Every old key is a new one and reads alike; there are further new ones."""
    NARROWER = "narrower"
    """Every new key is an old one and reads alike; some old keys are no keys any more, nor can be spelled otherwise."""
    MOVED = "moved"
    """Records get other keys. An old key that is a new one as well reads alike, so that no record is taken for another."""
    UNSPELLABLE = "unspellable"
    """As MOVED, but some values of an old key's fields have no spelling in the new template."""
    MISREAD = "misread"
    """A key of both templates means one record before and another one after."""
    OTHER_FIELDS = "other fields"
    """The keys have other fields: a new key cannot be computed from an old one."""
    UNDECIDED = "undecided"
    """The question stayed open; see rules/decision.py."""


@dataclass(frozen=True, slots=True)
class KeyComparison:
    """The relation, a key that shows it, and the new key of the same record where there is one.

    For WIDER the witness is a new key that the old template cannot produce; else an old key.
    """

    relation: KeyRelation
    witness: bytes | None = None
    second: bytes | None = None


@lru_cache(maxsize=1024)
def compare_keys(old: Template, new: Template) -> KeyComparison:
    """Compare two whole templates, roots included and bound. Fields are the same by name, renamed ones by their place.

    Exact where the automata are (rules/decision.py); whether two different codecs read the same bytes as the same value is
    judged by samples of their members.
    """
    shared = _shared_head(old, new)
    if shared:
        # Why without it: tables of one shape below hundreds of literals are one question.
        found = compare_keys(_without_head(old, len(shared)), _without_head(new, len(shared)))
        keys = (None if key is None else shared + key for key in (found.witness, found.second))
        return KeyComparison(found.relation, *keys)
    labels = field_labels(old, new)
    if labels is None:
        return KeyComparison(KeyRelation.OTHER_FIELDS, shortest_key(old).key)
    if plain_shape(old) == plain_shape(new) and list(labels.values()) == list(old.field_names):
        return KeyComparison(KeyRelation.SAME)
    heads = literal_head(old), literal_head(new)
    if not (heads[0].startswith(heads[1]) or heads[1].startswith(heads[0])):
        # Why apart: no key is one of both, which takes no automaton to see; most tables that move are such.
        return _moved(old, new, labels, shortest_key(old).key)
    misread = _misread_key(old, new, labels)
    if misread is not None:
        return KeyComparison(KeyRelation.MISREAD, misread)
    boundaries = key_read_otherwise(old, new, labels)
    lost, gained = key_beyond(old, new), key_beyond(new, old)
    if boundaries.is_open or lost.is_open:
        return KeyComparison(KeyRelation.UNDECIDED, shortest_key(old).key)
    if lost.key is None:
        # Why: where it stayed open whether there are more new keys, to say that there are is on the safe side.
        is_same = gained.key is None and not gained.is_open
        return KeyComparison(KeyRelation.SAME if is_same else KeyRelation.WIDER, gained.key)
    unspellable = _unspellable_key(old, new, labels)
    if unspellable is not None:
        is_narrower = gained.key is None and not gained.is_open
        return KeyComparison(KeyRelation.NARROWER if is_narrower else KeyRelation.UNSPELLABLE, unspellable)
    return KeyComparison(KeyRelation.MOVED, lost.key, _respelled(old, new, labels, lost.key))


def _shared_head(old: Template, new: Template) -> bytes:
    heads = literal_head(old), literal_head(new)
    pairs = enumerate(zip(*heads, strict=False))
    shared = heads[0][: next((place for place, (own, other) in pairs if own != other), min(map(len, heads)))]
    # Why: a character of text is not cut.
    return shared.decode("utf-8", "ignore").encode() if old.is_text and new.is_text else shared


def _without_head(template: Template, size: int) -> Template:
    parts = list(template.parts)
    while size:
        first = parts.pop(0)
        assert isinstance(first, Literal)
        if len(first.raw) > size:
            parts.insert(0, Literal(first.raw[size:]))
        size -= min(size, len(first.raw))
    return Template(tuple(parts), template.is_text)


def _moved(old: Template, new: Template, labels: Labels, key: bytes | None) -> KeyComparison:
    """The comparison of templates that have no key in common; `key` is one of the old one."""
    unspellable = _unspellable_key(old, new, labels)
    if unspellable is not None:
        return KeyComparison(KeyRelation.UNSPELLABLE, unspellable)
    return KeyComparison(KeyRelation.MOVED, key, None if key is None else _respelled(old, new, labels, key))


def _misread_key(old: Template, new: Template, labels: Labels) -> bytes | None:
    shared = key_below(old, None, new)
    if shared.key is None and shared.is_proven:
        return None
    parted = key_read_otherwise(old, new, labels).key
    if parted is not None:
        return parted
    for name, old_name in labels.items():
        first, second = field_of(old, old_name), field_of(new, name)
        if first.element == second.element:
            continue
        # Why those of both: where the automata are relaxed, one codec's members may be no likely words of the other.
        own = (raw for element in (first.element, second.element) for _, raw in members(element))
        for raw in chain(_common_members(first, second), own):
            if _reads_otherwise(first, second, raw):
                key = key_with(old, {old_name: raw})
                if key is not None and next(readings(new, key), None) is not None:
                    return key
    return None


def _common_members(first: Field, second: Field) -> Iterator[bytes]:
    """Short bytes that both codecs take, one for each mix of bytes that their automata tell apart."""
    product = CommonWords(*(field.language.automaton(relaxed=True) for field in (first, second)))
    try:
        yield from islice(words(product, bytes_max=first.element.bytes_min + MEMBER_BYTES_SPAN), CANDIDATES_MAX)
    except SearchTooLargeError:
        return


def _reads_otherwise(first: Field, second: Field, raw: bytes) -> bool:
    try:
        return not _are_alike(first.element.decode(raw), second.element.decode(raw))
    except InvalidKeyError:
        return False


def _are_alike(old: object, new: object) -> bool:
    """Whether two values of one field are the same name, number or id: 7 and "7" are, "a%20b" and "a b" are not."""
    return old == new or (type(old) is not type(new) and _written(old) == _written(new))


def _written(value: object) -> str:
    match value:
        case UUID():
            return value.hex
        case bytes():
            return value.decode("utf-8", "surrogateescape")
        case _:
            return str(value)


def _unspellable_key(old: Template, new: Template, labels: Labels) -> bytes | None:
    """An old key whose record has no key in the new template; None when none was found."""
    for name, old_name in labels.items():
        first, second = field_of(old, old_name), field_of(new, name)
        if first.element == second.element:
            continue
        alone = Template((first,), old.is_text), Template((second,), new.is_text)
        beyond = key_beyond(*alone).key
        candidates = [beyond] if beyond is not None else []
        for raw in (*candidates, *(raw for _, raw in members(first.element))):
            if not _has_spelling(first, second, raw):
                key = key_with(old, {old_name: raw})
                if key is not None:
                    return key
    return None


def _has_spelling(first: Field, second: Field, raw: bytes) -> bool:
    try:
        second.element.encode(first.element.decode(raw))
    except InvalidKeyError:
        return False
    return True


def _respelled(old: Template, new: Template, labels: Labels, key: bytes) -> bytes | None:
    """The new key of the record at an old key; None when it cannot be told."""
    fields = next(readings(old, key), None)
    if fields is None:
        return None
    try:
        raw = {
            name: field_of(new, name).element.encode(field_of(old, own).element.decode(fields[own]))
            for name, own in labels.items()
        }
        return spelled(new, raw)
    except InvalidKeyError:
        return None
