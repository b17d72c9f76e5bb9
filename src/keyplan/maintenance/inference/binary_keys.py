"""Templates of binary keys, as far as the evidence goes: from a sample, by widths, first bytes, separators and columns."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Final

from keyplan.codec import U8, SlashPath, Tail, Text, TextTail
from keyplan.layout import Field, Literal
from keyplan.maintenance.inference.columns import fields_of_columns, uuid_stands_at
from keyplan.maintenance.inference.decisions import Confidence
from keyplan.maintenance.inference.found import Note, Part, shared_start
from keyplan.maintenance.inference.naming import unused
from keyplan.maintenance.inference.survey import is_text_key
from keyplan.maintenance.inference.words import DIVIDERS

__all__ = ["binary_templates"]

_WIDTHS_MAX: Final = 6
_TAGS_MAX: Final = 32
_WIDTH_KEYS_MIN: Final = 2
_TEXT_BYTES_MAX: Final = 4095

Templates = list[tuple[Part, ...]]


def binary_templates(keys: Sequence[bytes], notes: list[Note]) -> Templates:
    """Return templates that spell all keys of a sample. What was decided, and what stays unknown, is added to `notes`."""
    return [tuple(parts) for parts in _templates(sorted(keys), b"", notes)]


def _templates(keys: Sequence[bytes], before: bytes, notes: list[Note]) -> list[list[Part]]:
    """The templates of keys that all begin with `before`, which is not looked at again."""
    bare = [key[len(before) :] for key in keys]
    head: list[Part] = [Literal(before)] if before else []
    whole = _whole(bare, before, notes)
    if whole is not None:
        return [head + whole]
    common = b"" if _begins_with_uuid(bare) else shared_start(bare)
    groups = _tagged([key[len(common) :] for key in bare])
    if groups:
        tagged = before + common
        _say(notes, tagged, f"{len(groups)} kinds of keys by the next byte", "most kinds are regular", Confidence.FAIR)
        split = [(tag, [tagged + key for key in group]) for tag, group in sorted(groups.items())]
        return [parts for tag, group in split for parts in _templates(group, tagged + tag, notes)]
    by_width: dict[int, list[bytes]] = defaultdict(list)
    for key in bare:
        by_width[len(key)].append(key)
    start, recognized = _recognized(bare)
    if all(is_text_key(key[start:]) for key in bare):
        return [head + recognized + _text_or_bytes([key[start:] for key in bare], before, recognized, notes)]
    if len(by_width) <= _WIDTHS_MAX and min(map(len, by_width.values())) >= _WIDTH_KEYS_MIN:
        reason = ", ".join(f"{len(group)} of {width} bytes" for width, group in sorted(by_width.items()))
        _say(notes, before, "a template for each width", reason, Confidence.FAIR)
        return [head + _columns(group, before, notes) for _, group in sorted(by_width.items())]
    return [head + recognized + _text_or_bytes([key[start:] for key in bare], before, recognized, notes)]


def _whole(keys: Sequence[bytes], before: bytes, notes: list[Note]) -> list[Part] | None:
    """One template for all keys, where one form fits them; None otherwise."""
    if len(set(keys)) == 1 and before:
        return [Literal(keys[0])]
    path = _levelled_path(keys)
    if path is not None:
        _say(notes, before, "a path behind its level", f"so in {len(keys)} of {len(keys)} keys", Confidence.HIGH)
        return path
    if len({len(key) for key in keys}) == 1 and keys[0]:
        return None if _has_letter_tags(keys) else _columns(keys, before, notes)
    return _ended_name(keys, before, notes)


def _columns(keys: Sequence[bytes], before: bytes, notes: list[Note]) -> list[Part]:
    parts = fields_of_columns(keys, set())
    shown = " ".join(part.element.spec for part in parts if isinstance(part, Field))
    is_known = not any(isinstance(part, Field) and part.element.code == "fixed" for part in parts)
    confidence = Confidence.LOW if not is_known else Confidence.FAIR if len(keys) < 8 else Confidence.HIGH
    _say(notes, before, f"{len(keys[0])} bytes: {shown}", f"fits each of {len(keys)} keys in the sample", confidence)
    return parts


def _levelled_path(keys: Sequence[bytes]) -> list[Part] | None:
    path = SlashPath()
    fits = all(len(key) > 1 and key[0] == key.count(b"/", 1) and path.language.accepts(key[1:]) for key in keys)
    if not fits or len(keys) < _WIDTH_KEYS_MIN:
        return None
    return [Field("path", "level", U8()), Field("path", None, path)]


def _ended_name(keys: Sequence[bytes], before: bytes, notes: list[Note]) -> list[Part] | None:
    """Names that a zero byte ends, with the same fixed width behind it."""
    names, rests = zip(*(key.partition(b"\x00")[::2] for key in keys), strict=True)
    widths = {len(rest) for rest in rests}
    if len(widths) != 1 or not all(len(name) + 1 <= len(key) for name, key in zip(names, keys, strict=True)):
        return None
    if not all(is_text_key(name) for name in names) or not all(b"\x00" in key for key in keys):
        return None
    _say(notes, before, "a name that a zero byte ends", f"so in each of {len(keys)} keys", Confidence.FAIR)
    parts: list[Part] = [Field("name", None, Text(exclude="", bytes_max=_bound(names))), Literal(b"\x00")]
    return parts + (fields_of_columns(rests, {"name"}) if rests[0] else [])


def _tagged(keys: Sequence[bytes]) -> dict[bytes, list[bytes]]:
    """The keys by their first byte, when it tells kinds of keys apart; empty otherwise."""
    groups: dict[bytes, list[bytes]] = defaultdict(list)
    for key in keys:
        groups[key[:1]].append(key)
    if len(groups) < 2 or len(groups) > _TAGS_MAX or len(keys) < 2 * len(groups) or b"" in groups:
        return {}
    if _begins_with_uuid(keys):
        return {}
    regular = [group for group in groups.values() if _is_regular([key[1:] for key in group])]
    return dict(groups) if 2 * len(regular) > len(groups) else {}


def _is_regular(keys: Sequence[bytes]) -> bool:
    if _whole(keys, b"x", []) is not None:
        return True
    start, recognized = _recognized(keys)
    return bool(recognized) and all(is_text_key(key[start:]) for key in keys)


def _has_letter_tags(keys: Sequence[bytes]) -> bool:
    tags = Counter(key[0] for key in keys)
    is_split = 1 < len(tags) <= _TAGS_MAX and min(tags.values()) > 1
    is_split = is_split and bytes(tags).isalpha()
    return is_split and not _begins_with_uuid(keys)


def _begins_with_uuid(keys: Sequence[bytes]) -> bool:
    return min(map(len, keys)) >= 16 and uuid_stands_at(keys, 0)


def _recognized(keys: Sequence[bytes]) -> tuple[int, list[Part]]:
    """Fields of fixed widths at the start of keys of any length, as far as they are recognized, and where they end."""
    shortest = min(map(len, keys))
    common = shared_start(keys)
    if is_text_key(common) and len(common) < shortest:
        head: list[Part] = [Literal(common)]
        start = len(common)
    else:
        head, start = [], 0
    taken: set[str] = set()
    recognized = fields_of_columns([key[start:shortest] for key in keys], taken) if shortest > start else []
    while recognized:
        part = recognized[0]
        if isinstance(part, Field) and part.element.code == "fixed":
            break
        width = part.element.width if isinstance(part, Field) else len(part.raw)
        if isinstance(part, Literal) and all(is_text_key(key[start:]) for key in keys):
            break
        head.append(recognized.pop(0))
        start += width or 0
    if head and isinstance(head[-1], Field) and head[-1].element.code == "u8":
        return start - 1, head[:-1]  # Why: the last byte of the shortest key is any byte of the longer ones.
    return start, head


def _text_or_bytes(rests: Sequence[bytes], before: bytes, head: Sequence[Part], notes: list[Note]) -> list[Part]:
    taken = {part.name for part in head if isinstance(part, Field)}
    has_empty = any(not rest for rest in rests)
    if not all(not rest or is_text_key(rest) for rest in rests):
        reason = f"lengths vary in {len(rests)} keys, and no form fits them"
        _say(notes, before, "unknown bytes", reason, Confidence.LOW)
        return [Field(unused("unknown", taken), None, Tail(empty=has_empty))]
    divider = _first_divider(rests)
    if divider is not None:
        raw = divider.encode()
        names = [rest.partition(raw)[0] for rest in rests]
        first = Text(exclude=divider, bytes_max=_bound(names), empty=any(not name for name in names))
        reason = f"{divider!r} stands in each of {len(rests)} keys"
        _say(notes, before, f"a name, {divider!r}, and text to the end", reason, Confidence.FAIR)
        name = unused("name", taken)
        other = unused("name", {*taken, name})
        return [Field(name, None, first), Literal(raw), Field(other, None, TextTail())]
    _say(notes, before, "text to the end", f"so in {len(rests)} keys", Confidence.FAIR)
    return [Field(unused("name", taken), None, TextTail(empty=has_empty))]


def _first_divider(rests: Sequence[bytes]) -> str | None:
    """The divider that stands in every text, with something behind it; of several the one that comes first."""
    furthest = {
        divider: max(rest.index(divider.encode()) for rest in rests)
        for divider in DIVIDERS
        if all(divider.encode() in rest[:-1] for rest in rests)
    }
    return min(furthest, key=lambda divider: furthest[divider], default=None)


def _bound(names: Sequence[bytes]) -> int:
    return 255 if max(map(len, names)) <= 255 else max(_TEXT_BYTES_MAX, *map(len, names))


def _say(notes: list[Note], before: bytes, decision: str, reason: str, confidence: Confidence) -> None:
    shown = "".join(f"\\x{byte:02x}" if not 0x20 <= byte <= 0x7E else chr(byte) for byte in before)
    notes.append(Note(shown or "(first)", decision, reason, confidence))
