"""Changes of a layout for a review on GitHub: a table, the worst first."""

import re
from collections.abc import Collection, Sequence
from typing import Final

from keyplan.layout.difference.change import Impact, LayoutChange
from keyplan.layout.rules.finding import abridged

__all__ = ["changes_in_markdown"]

ROWS_MAX: Final = 500
"""Why: GitHub takes a summary of 1 MiB, and drops a longer one as a whole; nobody reviews more lines."""

_ACTIVE: Final = re.compile(r"[&<>|`*\[\]~@#\\$]|(?<![^\W_])_|_(?![^\W_])")
"""What Markdown, or GitHub, makes something else of: a table's cell, emphasis, a link, HTML, a person, an issue, a formula."""
_LINKED: Final = re.compile(r"(?:@|#|://|\bwww\.|\bGH-|:)(?=\w)", re.IGNORECASE)
"""Where GitHub finds a person, an issue, an address or an emoji, once a page is made: entities are characters again by then."""
_APART: Final = "<!-- -->"
"""Nothing, as a page shows it; what stands before it and behind it are two texts."""
_LINE_ENDS: Final = re.compile(r"[\r\n\v\f\x1c-\x1e\x85\u2028\u2029]+")
_CODE: Final = re.compile(r"`([^`]+)`")


def changes_in_markdown(
    title: str, changes: Sequence[LayoutChange], failures: Collection[LayoutChange], end: str
) -> str:
    """Return a summary in GitHub's Markdown; what fails is in bold. `end` is the line that says how many there are."""
    lines = [f"### {_text(title)}", "", _text(end)]
    if changes:
        lines += ["", "| Class | Code | Of | Change | Witness | Remedy |", "|---|---|---|---|---|---|"]
        ordered = sorted(changes, key=lambda change: -change.impact.rank)
        lines += [_row(change, is_failure=change in failures) for change in ordered[:ROWS_MAX]]
    if len(changes) > ROWS_MAX:
        lines += ["", f"{len(changes) - ROWS_MAX} more changes are not shown."]
    return "\n".join(lines)


def _row(change: LayoutChange, *, is_failure: bool) -> str:
    impact: Impact = change.impact
    keys = [_code(abridged(key)) for key in (change.witness, change.second) if key is not None]
    cells = [
        f"**{impact.value}**" if is_failure else impact.value,
        change.code,
        _code(change.subject),
        _text(change.message),
        " → ".join(keys),
        _text(change.advice),
    ]
    return f"| {' | '.join(cells)} |"


def _text(text: str) -> str:
    """Prose with commands between backticks, as our own messages have them."""
    parts = _CODE.split(text)
    return "".join(_code(part) if number % 2 else _plain(part) for number, part in enumerate(parts))


def _code(text: str) -> str:
    return f"<code>{_plain(text)}</code>"


def _plain(text: str) -> str:
    parts = _LINKED.sub(lambda found: f"{found[0]}\0", _LINE_ENDS.sub(" ", text.replace("\0", " "))).split("\0")
    return _APART.join(_ACTIVE.sub(lambda found: f"&#{ord(found[0])};", part) for part in parts)
