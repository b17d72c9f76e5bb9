"""What a request's body is: the media type in its Content-Type, and what etcd's parser says of one that is malformed."""

import re
from typing import Final

__all__ = ["media_type_of"]

_WORD: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_TYPE: Final = re.compile(rf"{_WORD}(/{_WORD})?")
_PARAMETER: Final = re.compile(rf';\s*({_WORD})\s*=\s*(?:{_WORD}|"(?:[^"\\\r\n]|\\.)*")')


def media_type_of(text: str) -> tuple[str, str]:
    """Return the media type in lower case, without its parameters, and the problem: empty when there is none.

    No Content-Type is no form, and no problem. A malformed parameter is a problem although the type itself is known.
    """
    if not text:
        return "", ""
    base, semicolon, _ = text.partition(";")
    media_type = base.strip().lower()
    if _TYPE.fullmatch(media_type) is None:
        return "", _problem_of(media_type)
    rest = text[len(base) :].rstrip() if semicolon else ""
    seen: set[str] = set()
    while rest.strip():
        found = _PARAMETER.match(rest)
        if found is None:
            # Why: a semicolon with nothing behind it is ignored by everybody.
            return media_type, "" if rest.strip() == ";" else "mime: invalid media parameter"
        name = found[1].lower()
        if name in seen:
            return "", "mime: duplicate parameter name"
        seen.add(name)
        rest = rest[found.end() :].lstrip()
    return media_type, ""


def _problem_of(media_type: str) -> str:
    kind, slash, subtype = media_type.partition("/")
    if not re.match(_WORD, kind):
        return "mime: no media type"
    if not slash or not re.fullmatch(_WORD, kind):
        return "mime: expected slash after first token"
    if not re.match(_WORD, subtype):
        return "mime: expected token after slash"
    return "mime: unexpected content after media subtype"
