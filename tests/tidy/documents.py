"""What the documents must keep true: the map names every package, every error has a paragraph, one word for one thing."""

import re
from collections.abc import Iterator, Set
from typing import Final

from tests.tidy.sources import Finding, Source

_PACKAGE: Final = re.compile(r"`(keyplan(?:\.[a-z_]+)+)`")
_HEADING: Final = re.compile(r"^#{2,4} `([a-z_-]+)`")
_ROW: Final = re.compile(r"^\|\s*([a-z ]+?)\s*\|\s*([^|]+?)\s*\|\s*[^|]*\|\s*$")
_QUOTED: Final = re.compile(r"`[^`]*`|\"[^\"]*\"|\]\([^)]*\)")


def map_gaps(architecture: Source, packages: Set[str], modules: Set[str]) -> Iterator[Finding]:
    """Packages that the map does not mention, and names on the map that are not there."""
    mentioned: dict[str, int] = {}
    for number, line in enumerate(architecture.lines, start=1):
        for name in _PACKAGE.findall(line):
            mentioned.setdefault(name, number)
    for package in sorted(packages - mentioned.keys()):
        yield Finding(architecture.path, 1, f"{package} is not on the map", "a line that says what is inside")
    for name, number in mentioned.items():
        if name not in packages | modules:
            yield Finding(architecture.path, number, f"{name} is on the map but not in src", "the name it has now")


def error_gaps(reference: Source, codes: Set[str]) -> Iterator[Finding]:
    """Error codes without a paragraph, and paragraphs without a code."""
    headings: dict[str, int] = {}
    for number, line in enumerate(reference.lines, start=1):
        if found := _HEADING.match(line):
            headings[found[1]] = number
    for code in sorted(codes - headings.keys()):
        yield Finding(reference.path, 1, f"the error {code} has no paragraph", "meaning, usual cause, what to do")
    for code, number in headings.items():
        if code not in codes:
            yield Finding(reference.path, number, f"there is no error {code}", "the code that keyplan.errors has")
        body = "\n".join(reference.lines[number : _next_heading(reference, number)])
        for part in ("**Meaning.**", "**Usual cause.**", "**What to do.**"):
            if part not in body:
                yield Finding(reference.path, number, f"the paragraph of {code} lacks {part}", "all three parts")


def _next_heading(source: Source, after: int) -> int:
    return next((n for n in range(after, len(source.lines)) if source.lines[n].startswith("#")), len(source.lines))


def banned_words(glossary: Source) -> dict[str, str]:
    """The rows of the glossary's table "Words we do not use": the word, and what to say."""
    banned: dict[str, str] = {}
    is_inside = False
    for line in glossary.lines:
        if line.startswith("#"):
            is_inside = "Words we do not use" in line
        elif is_inside and (row := _ROW.match(line)) and row[1] != "not":
            banned[row[1]] = row[2]
    return banned


def banned_synonyms(source: Source, banned: dict[str, str]) -> Iterator[Finding]:
    """Second words for one thing. Code and what stands in quotation marks are others' words."""
    is_code = False
    for number, line in enumerate(source.lines, start=1):
        if line.lstrip().startswith("```"):
            is_code = not is_code
        if is_code:
            continue
        prose = _QUOTED.sub("", line).lower()
        for word, use in banned.items():
            if re.search(rf"\b{word}s?\b", prose):
                yield Finding(source.path, number, f"the word {word}", use)
