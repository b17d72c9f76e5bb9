"""What a request asks of the explorer: paths and queries read strictly, and which form the answer has."""

import re
from ast import literal_eval
from collections.abc import Collection
from typing import Final

from starlette.requests import Request

from keyplan.errors import InvalidArgumentError
from keyplan.layout import raw_key_of
from keyplan.server.explorer.bounds import LIMIT_DEFAULT, LIMIT_MAX
from keyplan.server.explorer.trees import ItemRequest

__all__ = ["Query", "asked_item", "wants_json"]

_ALWAYS: Final = frozenset({"format"})
_MANY: Final = frozenset({"field"})


class Query:
    """The query of a request. A parameter that there is not, or that stands twice, is refused: it may be a misspelt one."""

    def __init__(self, request: Request, known: Collection[str]) -> None:
        """Read it. Raises InvalidArgumentError."""
        allowed = {*known, *_ALWAYS}
        self._words: dict[str, str] = {}
        self.fields: list[str] = []
        for name, value in request.query_params.multi_items():
            if name not in allowed:
                raise InvalidArgumentError(argument=name, problem=f"the parameters are {', '.join(sorted(allowed))}")
            if name in _MANY:
                self.fields.append(value)
                continue
            if name in self._words:
                raise InvalidArgumentError(argument=name, problem="it is given twice")
            self._words[name] = value
        if self._words.get("format", "html") not in {"html", "json"}:
            raise InvalidArgumentError(argument="format", problem="it is html or json")

    def word(self, name: str) -> str:
        """A parameter's text; empty when it is not given."""
        return self._words.get(name, "")

    def octets(self, name: str) -> bytes:
        """A parameter's bytes, which are given in hexadecimal digits. Raises InvalidArgumentError."""
        return _bytes_of_hex(name, self.word(name))

    def limit(self) -> int:
        """How many lines a page has; LIMIT_DEFAULT when it is not said. Raises InvalidArgumentError."""
        text = self.word("limit") or str(LIMIT_DEFAULT)
        number = int(text) if text.isascii() and text.isdigit() and len(text) <= 4 else 0
        if not 1 <= number <= LIMIT_MAX:
            raise InvalidArgumentError(argument="limit", problem=f"a whole number from 1 to {LIMIT_MAX}")
        return number

    def raw_key(self) -> bytes:
        r"""The raw key of a search: text with \xNN, or hexadecimal digits. Raises InvalidArgumentError."""
        text, form = self.word("key"), self.word("as") or "text"
        if form not in {"text", "hex"}:
            raise InvalidArgumentError(argument="as", problem="it is text or hex")
        if form == "hex":
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


def asked_item(request: Request, query: Query) -> ItemRequest:
    """What the path and the query of a page of a table or index ask for. Raises InvalidArgumentError."""
    path = request.path_params
    return ItemRequest(
        area=path["area"],
        layout=path["layout"],
        item=path["item"],
        words=query.fields,
        starts_with=query.word("starts_with"),
        page=query.word("page"),
        limit=query.limit(),
    )


def wants_json(request: Request) -> bool:
    """Tell whether an answer is to be JSON: by `format`, else by what the client accepts. Browsers accept HTML."""
    form = request.query_params.get("format")
    if form in {"html", "json"}:
        return form == "json"
    accepted = request.headers.get("accept", "")
    return "application/json" in accepted and "text/html" not in accepted


def _bytes_of_hex(name: str, text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError as error:
        raise InvalidArgumentError(argument=name, problem="it is not hexadecimal digits, two for each byte") from error
