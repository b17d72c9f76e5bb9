"""Data as a page or as JSON, with the headers that keep a browser from running what is stored; files that pages need."""

import hashlib
import json
from importlib.resources import files
from typing import Any, Final, cast

from jinja2 import Environment, PackageLoader, StrictUndefined
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from keyplan.errors import KeyplanError
from keyplan.server.answers import AnswerError, JsonAnswer, answer_error_of, failure
from keyplan.server.explorer.links import BASE, find_link, overview_link
from keyplan.server.explorer.requests import wants_json

__all__ = ["STATIC_FILES", "answer", "failed", "static_file"]

_TYPES: Final = {
    "explorer.css": "text/css; charset=utf-8",
    "explorer.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}

STATIC_FILES: Final = tuple(_TYPES)

_PACKAGE: Final = "keyplan.server.explorer"

_SAFE: Final = {
    # Invariant: nothing that is stored is run, even if a template forgot to escape it: no script or style but the files' own.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self';"
        " base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    # Why: permalinks hold keys.
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_FRESH: Final = {**_SAFE, "Cache-Control": "no-store", "Vary": "Accept"}


def answer(request: Request, template: str, data: Struct) -> Response:
    """Return data as the page that `template` makes of it, or as JSON when that is asked for."""
    if wants_json(request):
        return JsonAnswer(data, headers=_FRESH)
    return _page(request, template, data, 200, {})


def failed(request: Request, error: AnswerError | KeyplanError) -> Response:
    """Return what went wrong: as a page, or in the JSON of every other failure."""
    refusal = error if isinstance(error, AnswerError) else answer_error_of(error)
    if wants_json(request):
        answered = failure(refusal)
        answered.headers.update(_FRESH)
        return answered
    return _page(request, "failure.html", refusal, refusal.status, refusal.headers)


def static_file(name: str) -> Response:
    """Return one of STATIC_FILES. Why for long: their links change with their content."""
    headers = {**_SAFE, "Content-Type": _TYPES[name], "Cache-Control": "public, max-age=604800, immutable"}
    return Response(_CONTENTS[name], headers=headers)


# ---- templates ---------------------------------------------------------------------------------------------------------


def printable(value: object) -> str:
    """Return a text in which everything that does not print, but for line ends, stands as an escape.

    Why: HTML has no way to spell a control character, and marks of direction make text look like other text.
    """
    text = str(value)
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or c == "\n" else c.encode("unicode_escape", "surrogatepass").decode() for c in text
    )


def _pretty(value: object) -> str:
    return printable(json.dumps(value, indent=2, ensure_ascii=False))


def _bytes_text(number: float) -> str:
    """A number of bytes for people."""
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if number >= size:
            return f"{number / size:.1f} {unit}"
    return f"{number:,.0f} bytes"


def _spaced_hex(text: str) -> str:
    """Hexadecimal digits in groups of four bytes."""
    return " ".join(text[place : place + 8] for place in range(0, len(text), 8))


def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader(_PACKAGE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
        # Invariant: whatever a template prints is printable; escaping comes after this.
        finalize=lambda value: printable(value) if isinstance(value, str) and not hasattr(value, "__html__") else value,
    )
    made.filters.update(pretty=_pretty, bytes_text=_bytes_text, spaced_hex=_spaced_hex)
    known: dict[str, object] = {
        "overview_href": overview_link(),
        "find_href": find_link("", is_hex=False, area=""),
        "static_hrefs": {name: f"{BASE}/static/{name}?v={_digest(name)}" for name in STATIC_FILES},
    }
    made.globals.update(cast("Any", known))  # Why: its type knows jinja2's own globals alone.
    return made


def _page(request: Request, template: str, data: object, status: int, headers: dict[str, str]) -> Response:
    text = _ENVIRONMENT.get_template(template).render(page=data, json_href=_json_href(request), path=request.url.path)
    sent = {**headers, **_FRESH, "Content-Type": "text/html; charset=utf-8"}
    return Response(text.encode("utf-8", "replace"), status, headers=sent)


def _json_href(request: Request) -> str:
    if request.method not in {"GET", "HEAD"}:
        return ""
    query = str(request.url.query)
    return f"{request.url.path}?{query}&format=json" if query else f"{request.url.path}?format=json"


def _digest(name: str) -> str:
    return hashlib.sha256(_CONTENTS[name]).hexdigest()[:12]


_CONTENTS: Final = {name: (files(_PACKAGE) / "static" / name).read_bytes() for name in STATIC_FILES}
_ENVIRONMENT: Final = _environment()
