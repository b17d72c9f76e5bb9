"""How what a request asks of the explorer stands in its query, and which form its answer has."""

import re
from ast import literal_eval
from typing import Final

from starlette.requests import Request

from keyplan.errors import InvalidArgumentError
from keyplan.layout import raw_key_of
from keyplan.operations import WordForm, whole_number, words
from keyplan.server.explorer.bounds import LIMIT_DEFAULT, LIMIT_MAX

__all__ = ["FORMAT", "HEX", "HEX_OR_NONE", "LIMIT", "SPELLING", "searched_key", "wants_json"]

# Why an empty word is none, here and below: forms of pages send all their fields.


def _bytes_of_hex(name: str, text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError as error:
        raise InvalidArgumentError(argument=name, problem="it is not hexadecimal digits, two for each byte") from error


_DIGITS: Final = {"pattern": "^([0-9a-fA-F]{2})*$"}

HEX: Final = WordForm(_bytes_of_hex, bytes.hex, _DIGITS)
HEX_OR_NONE: Final = WordForm(lambda name, text: _bytes_of_hex(name, text) if text else None, bytes.hex, _DIGITS)


def _limit(name: str, text: str) -> int:
    return whole_number(name, text, least=1, most=LIMIT_MAX) if text else LIMIT_DEFAULT


LIMIT: Final = WordForm(_limit, str, {"type": "integer", "minimum": 1, "maximum": LIMIT_MAX, "default": LIMIT_DEFAULT})
"""How many lines a page has at most."""

_SPELLED: Final = words({"text": "text", "hex": "hex"})
SPELLING: Final = _SPELLED._replace(read=lambda name, text: _SPELLED.read(name, text or "text"))
"""How the key of a search is spelled."""

FORMAT: Final = words({"html": "html", "json": "json"})
"""The form of the answer."""


def searched_key(text: str, spelling: str) -> bytes:
    r"""Return the raw key of a search: text with \xNN, or hexadecimal digits. Raises InvalidArgumentError."""
    if spelling == "hex":
        return _bytes_of_hex("key", text)
    try:
        return _pasted_key(text)
    except ValueError as error:
        raise InvalidArgumentError(argument="key", problem=str(error)) from error


def _pasted_key(text: str) -> bytes:
    r"""Read a key that was copied from somewhere: blanks around it, quotes, and the b'...' of a program are no part of it.

    A key that begins or ends so is written with \xNN. Raises ValueError.
    """
    text = text.strip()
    quoted = re.fullmatch(r"(b?)(['\"])(.*)\2", text, re.DOTALL)
    if quoted is None:
        return raw_key_of(text)
    if not quoted[1]:
        return raw_key_of(quoted[3])
    try:
        literal = literal_eval(text)
    except (SyntaxError, ValueError) as error:
        raise ValueError(f"{text} is no bytes of Python") from error
    return bytes(literal)


def wants_json(request: Request) -> bool:
    """Tell whether an answer is to be JSON: by `format`, else by what the client accepts. Browsers accept HTML."""
    form = request.query_params.get("format")
    if form in {"html", "json"}:
        return form == "json"
    accepted = request.headers.get("accept", "")
    return "application/json" in accepted and "text/html" not in accepted
