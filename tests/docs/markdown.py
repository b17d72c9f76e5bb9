"""What the tests of documents read: fenced blocks of code, commands with what they print, and links."""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

_NOT_RUN: Final = re.compile(r"<!-- not run: (?P<reason>\S.*?) -->")
_LINK: Final = re.compile(r"\]\((?P<target>[^)\s]+)\)")
_HEADING: Final = re.compile(r"^#+ (?P<title>.+)$")


class Block(NamedTuple):
    """A fenced block: its language, the line of its first line of code, and why it is not run (empty: it is)."""

    language: str
    line: int
    code: str
    not_run: str


class Example(NamedTuple):
    """A command of a console block, and the lines that the document prints below it."""

    command: str
    lines: list[str]


def blocks(text: str) -> Iterator[Block]:
    """The fenced blocks of a document. `<!-- not run: reason -->` on the line before keeps a block from being run."""
    lines = text.splitlines()
    opening: int | None = None
    for number, line in enumerate(lines):
        if not line.startswith("```"):
            continue
        if opening is None:
            opening = number
            continue
        before = _NOT_RUN.search(lines[opening - 1]) if opening else None
        code = "\n".join(lines[opening + 1 : number]) + "\n"
        yield Block(lines[opening][3:].strip(), opening + 2, code, before["reason"] if before else "")
        opening = None


def examples_of(code: str) -> Iterator[Example]:
    """The commands of a console block: what stands behind `$ `, and behind `> ` on the lines that go on with it."""
    for example in re.split(r"^\$ ", code, flags=re.MULTILINE)[1:]:
        first, *others = example.rstrip("\n").splitlines()
        command = [first, *(line[2:] for line in others if line.startswith("> "))]
        yield Example("\n".join(command), [line.rstrip() for line in others if not line.startswith("> ")])


def links(text: str) -> Iterator[tuple[int, str]]:
    """Line and target of each link outside fenced blocks."""
    is_code = False
    for number, line in enumerate(text.splitlines(), start=1):
        if line.startswith("```"):
            is_code = not is_code
        elif not is_code:
            yield from ((number, found["target"]) for found in _LINK.finditer(line))


def anchors(text: str) -> set[str]:
    """What `#anchor` may name: headings in lower case, without punctuation, spaces as hyphens."""
    found = set()
    for line in text.splitlines():
        if heading := _HEADING.match(line):
            words = re.sub(r"[^\w\- ]", "", heading["title"].lower())
            found.add(words.replace(" ", "-"))
    return found
