"""Writes the tables of settings into the pages below docs/: each is made of the class that declares them.

    python scripts/settings.py [--check]

A table stands under a line `<!-- settings: MODULE:CLASS [PREFIX] -->`; PREFIX stands before each name in it. With --check it
writes nothing, and exits with 1 where a table is another one than its class makes.
"""

import re
import sys
from importlib import import_module
from pathlib import Path
from typing import Final

from keyplan.settings import settings_table

ROOT: Final = Path(__file__).resolve().parents[1]

_PLACE: Final = re.compile(
    r"^(?P<mark><!-- settings: (?P<module>[\w.]+):(?P<name>\w+)(?: (?P<prefix>\S+))? -->)\n(?:\n(?:\|.*\n)*)?",
    re.MULTILINE,
)


def filled(text: str) -> str:
    """Return a page with its tables as they are now."""
    return _PLACE.sub(_with_table, text)


def _with_table(place: re.Match[str]) -> str:
    kind = getattr(import_module(place["module"]), place["name"])
    return "\n".join([place["mark"], "", *settings_table(kind, place["prefix"] or ""), ""])


def main(words: list[str]) -> int:
    """Fill the pages; return the exit code."""
    stale = 0
    for page in sorted((ROOT / "docs").rglob("*.md")):
        text = page.read_text()
        new = filled(text)
        if new != text:
            stale += 1
            print(f"{page.relative_to(ROOT)}: {'other settings are declared' if '--check' in words else 'written'}")
            if "--check" not in words:
                page.write_text(new)
    return 1 if stale and "--check" in words else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
