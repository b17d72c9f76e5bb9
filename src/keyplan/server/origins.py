"""Pages of other sites: which of them a browser may let read what is served here, by name. By default none."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from starlette.responses import Response
from starlette.types import Scope

from keyplan.errors import InvalidInputError

__all__ = ["AllowedOrigins"]

_ORIGIN: Final = re.compile(r"https?://(\[[0-9a-f:.]+\]|[a-z0-9_.-]+)(:[0-9]{1,5})?")
_PREFLIGHT: Final = {
    "Access-Control-Allow-Methods": "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS",
    "Access-Control-Allow-Headers": "accept, authorization, content-type, if-match, x-request-id",
    "Access-Control-Max-Age": "600",
}


@dataclass(frozen=True)
class AllowedOrigins:
    """Origins whose pages may ask here as this server's own pages may."""

    names: frozenset[str] = frozenset()

    @classmethod
    def of_texts(cls, texts: Iterable[str], *, source: str = "--allow-origin") -> "AllowedOrigins":
        """Read origins as browsers write them. Raises InvalidInputError, for `*` and `null` too: they are anybody's."""
        given = frozenset(texts)
        for text in given:
            if not _ORIGIN.fullmatch(text):
                problem = (
                    f"{text!r} is no origin as browsers write it, like https://tools.example or http://localhost:3000"
                )
                raise InvalidInputError(source=source, problem=problem)
        return cls(given)

    def named_in(self, scope: Scope) -> bytes | None:
        """Return the allowed origin that a request names, or None."""
        if not self.names:
            return None
        given = next((value for name, value in scope["headers"] if name == b"origin"), b"")
        return given if given.decode("latin-1") in self.names else None

    def headers_for(self, origin: bytes) -> list[tuple[bytes, bytes]]:
        """Return the headers of an answer that the origin's pages may read."""
        return [(b"access-control-allow-origin", origin), (b"vary", b"Origin")]

    def preflight(self, scope: Scope) -> Response | None:
        """Return the answer to a browser that asks whether an allowed origin's page may ask; None for every other request."""
        if scope["method"] != "OPTIONS" or b"access-control-request-method" not in dict(scope["headers"]):
            return None
        return Response(status_code=204, headers=_PREFLIGHT) if self.named_in(scope) else None
