"""Counts the lines of the reading kernel, in the tables of ARCHITECTURE.md, and of what stands beside it.

    python scripts/kernel.py [--check] [MAP]

Writes the counts into the map's section "The reading kernel". With --check it writes nothing and exits with 1 where a file that
is named there is gone or named twice, or a count is off by more than a tenth, and more than fifty lines.

A row of these tables counts the files that its first cell names: `a/b.py` is a file below src/keyplan/, `a/` all files below a
folder; "the rest of `a/`" are the files of a folder, not of the folders in it, that no other row names; "everything else" is
what is left. A row in bold is the sum of the rows above it, from the one after the last such row on.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
SOURCE: Final = ROOT / "src" / "keyplan"

_SECTION: Final = re.compile(r"^## The reading kernel$.*?(?=^## )", re.MULTILINE | re.DOTALL)
_ROW: Final = re.compile(r"^(?P<start>\|(?P<files>[^|]*)\|[^|]*\|)(?P<count> *[\d,]+|) \|$", re.MULTILINE)
_PATH: Final = re.compile(r"`([a-z0-9_/]+(?:\.py|/))`")
_ALLOWED_SHARE: Final = 0.1
_ALLOWED_LINES: Final = 50


def counted(text: str) -> tuple[str, list[str]]:
    """Return the map with the counts as they are now, and what is wrong with the counts and names that it has."""
    section = _SECTION.search(text)
    if section is None:
        return text, ['there is no section "The reading kernel"']
    wrong: list[str] = []
    left = {str(path.relative_to(SOURCE)): _lines(path) for path in sorted(SOURCE.rglob("*.py"))}
    rows = [row for row in _ROW.finditer(section[0]) if _names_files(row["files"])]
    named = [path for row in rows for path in _PATH.findall(row["files"]) if path.endswith(".py")]
    wrong += [f"{path} is named twice" for path in sorted(set(named)) if named.count(path) > 1]
    taken: dict[int, int] = {}
    # Why in this order: what is left of a folder is known when its files and folders are counted.
    for row in sorted(rows, key=lambda row: _rank(row["files"])):
        paths = list(_paths(row["files"], left, wrong, set(named)))
        taken[row.start()] = sum(left.pop(path) for path in paths)
    _add_sums(rows, taken)
    made, at = "", 0
    for row in rows:
        count = taken[row.start()]
        before = int(row["count"].replace(",", "") or 0)
        if abs(before - count) > max(count * _ALLOWED_SHARE, _ALLOWED_LINES):
            wrong.append(f"{row['files'].strip()}: {count:,} lines, not {before:,}")
        made += section[0][at : row.start()] + f"{row['start']} {count:,} |"
        at = row.end()
    return text[: section.start()] + made + section[0][at:] + text[section.end() :], wrong


def _lines(path: Path) -> int:
    return len(path.read_text().splitlines())


def _names_files(cell: str) -> bool:
    return bool(_PATH.search(cell)) or "everything else" in cell or "**" in cell


def _rank(cell: str) -> int:
    return 3 if "everything else" in cell else 2 if "the rest of" in cell else 4 if "**" in cell else 1


def _paths(cell: str, left: dict[str, int], wrong: list[str], named: set[str]) -> Iterator[str]:
    """The files that a row counts, of those that are left."""
    if "**" in cell:
        return
    if "everything else" in cell:
        yield from list(left)
    for path in _PATH.findall(cell):
        if path.endswith(".py"):
            if path in left:
                yield path
            elif not (SOURCE / path).exists():
                wrong.append(f"{path} is gone")
        else:
            found = [one for one in left if one.startswith(path) and one not in named]
            yield from (one for one in found if "the rest of" not in cell or "/" not in one.removeprefix(path))


def _add_sums(rows: list[re.Match[str]], taken: dict[int, int]) -> None:
    total = 0
    for row in rows:
        if "**" in row["files"]:
            taken[row.start()], total = total, 0
        else:
            total += taken[row.start()]


def main(words: list[str]) -> int:
    """Count, and write or check; return the exit code."""
    is_check = "--check" in words
    page = next((Path(word) for word in words if not word.startswith("-")), ROOT / "ARCHITECTURE.md")
    text = page.read_text()
    made, wrong = counted(text)
    if is_check:
        print("\n".join([*wrong, "python scripts/kernel.py counts anew"]) if wrong else "the counts hold")
        return 1 if wrong else 0
    gone = [line for line in wrong if line.endswith(("gone", "twice"))]
    page.write_text(made)
    print("\n".join(gone) or "counted")
    return 1 if gone else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
