"""A request's query and form as etcd reads them: which source counts, what a boolean and a number are, what is refused."""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple
from urllib.parse import unquote_to_bytes

from keyplan.server.etcd_v2.answers import Code, KeysFailure

__all__ = ["FORM_TYPE", "KeysForm", "has_broken_escape", "is_text", "media_type_of", "read_form"]

FORM_TYPE: Final = "application/x-www-form-urlencoded"

_BOOLEANS: Final = {
    **dict.fromkeys(("1", "t", "T", "TRUE", "true", "True"), True),
    **dict.fromkeys(("0", "f", "F", "FALSE", "false", "False"), False),
}
_UINT64_MAX: Final = (1 << 64) - 1
_HEXDIGITS: Final = frozenset(b"0123456789abcdefABCDEF")


class KeysForm(NamedTuple):
    """The parameters of a request, checked. None: not given."""

    value: str
    ttl_seconds: int | None
    previous_value: str
    previous_index: int
    must_exist: bool | None
    is_directory: bool
    is_recursive: bool
    is_refresh: bool
    is_wait: bool
    is_stream: bool
    wait_index: int
    wants_no_value: bool


def read_form(method: str, query: bytes, body: bytes | None, *, problem: str = "") -> KeysForm:
    """Return the parameters of a request; `body` is its form, None when it has none. Raises KeysFailure with index 0.

    `problem` is what was wrong with the form's content type.
    """
    if problem:
        raise KeysFailure(Code.INVALID_FORM, problem)
    fields = _Fields(_pairs(body or b"") + _pairs(query))
    previous_index = fields.number("prevIndex", Code.INDEX_NOT_A_NUMBER)
    wait_index = fields.number("waitIndex", Code.INDEX_NOT_A_NUMBER)
    is_recursive = fields.boolean("recursive")
    fields.boolean("sorted")
    is_wait = fields.boolean("wait")
    is_directory = fields.boolean("dir")
    fields.boolean("quorum")
    is_stream = fields.boolean("stream")
    if is_wait and method != "GET":
        raise KeysFailure(Code.INVALID_FIELD, '"wait" can only be used with GET requests')
    previous_value = fields.text("prevValue")
    if "prevValue" in fields and not previous_value:
        raise KeysFailure(Code.PREVIOUS_VALUE_REQUIRED, '"prevValue" cannot be empty')
    wants_no_value = fields.boolean("noValueOnSuccess")
    ttl_seconds = fields.number("ttl", Code.TTL_NOT_A_NUMBER) if fields.text("ttl") else None
    must_exist = fields.boolean("prevExist", "invalid value for prevExist") if "prevExist" in fields else None
    is_refresh = fields.boolean("refresh", "invalid value for refresh")
    if is_refresh and fields.text("value"):
        raise KeysFailure(Code.VALUE_ON_REFRESH, "A value was provided on a refresh")
    if is_refresh and ttl_seconds is None:
        raise KeysFailure(Code.TTL_REQUIRED_ON_REFRESH, "No TTL value set")
    return KeysForm(
        fields.text("value"),
        ttl_seconds,
        previous_value,
        previous_index,
        must_exist,
        is_directory,
        is_recursive,
        is_refresh,
        is_wait,
        is_stream,
        wait_index,
        wants_no_value,
    )


class _Fields:
    """Names and first values."""

    def __init__(self, pairs: Sequence[tuple[str, str]]) -> None:
        self._first: dict[str, str] = {}
        for name, value in pairs:
            self._first.setdefault(name, value)

    def __contains__(self, name: str) -> bool:
        return name in self._first

    def text(self, name: str) -> str:
        return self._first.get(name, "")

    def boolean(self, name: str, cause: str = "") -> bool:
        """Return a boolean, false when it is not given; given without a value it is malformed."""
        text = self._first.get(name)
        if text is None:
            return False
        if text not in _BOOLEANS:
            raise KeysFailure(Code.INVALID_FIELD, cause or f'invalid value for "{name}"')
        return _BOOLEANS[text]

    def number(self, name: str, code: Code) -> int:
        """Return an unsigned number, 0 when it is not given."""
        text = self._first.get(name)
        if text is None:
            return 0
        if not (text.isascii() and text.isdigit() and len(text) <= 20) or int(text) > _UINT64_MAX:
            raise KeysFailure(code, f'invalid value for "{name}"')
        return int(text)


def _pairs(raw: bytes) -> list[tuple[str, str]]:
    """Split a query or a form. Raises KeysFailure for a broken escape and for a semicolon, with the words of etcd's parser."""
    pairs: list[tuple[str, str]] = []
    for part in raw.split(b"&"):
        if not part:
            continue
        if b";" in part:
            raise KeysFailure(Code.INVALID_FORM, "invalid semicolon separator in query")
        name, _, value = part.partition(b"=")
        pairs.append((_unescaped(name), _unescaped(value)))
    return pairs


def _unescaped(raw: bytes) -> str:
    """Return a text; bytes that are no UTF-8 are escaped in it, so that a value is stored as it was sent."""
    broken = _broken_escape(raw)
    if broken is not None:
        shown = broken.decode("utf-8", "replace")
        raise KeysFailure(Code.INVALID_FORM, f'invalid URL escape "{shown}"')
    return unquote_to_bytes(raw.replace(b"+", b" ")).decode("utf-8", "surrogateescape")


def has_broken_escape(raw: bytes) -> bool:
    """Tell whether a percent sign is not followed by two hexadecimal digits."""
    return _broken_escape(raw) is not None


def is_text(raw: bytes) -> bool:
    """Tell whether bytes with escapes are UTF-8."""
    try:
        unquote_to_bytes(raw).decode()
    except UnicodeDecodeError:
        return False
    return True


def _broken_escape(raw: bytes) -> bytes | None:
    if b"%" in raw:
        for piece in raw.split(b"%")[1:]:
            if len(piece) < 2 or not _HEXDIGITS.issuperset(piece[:2]):
                return b"%" + piece[:2]
    return None


# ---- the body's media type --------------------------------------------------------------------------------------------

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
