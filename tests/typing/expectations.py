"""What a case expects, what a checker said, and the difference. Comments at the end of a line state what is expected:

    x: int = "a"                 # error                                         both checkers refuse this line
    f("a")                       # expect: mypy[arg-type] pyright[reportArgumentType]
    reveal_type(f(1))            # revealed: int                                 both see this type
    reveal_type(g)               # revealed: mypy=def () -> int; pyright=() -> int

A type is compared without the modules of its names: `builtins.int` is `int`.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final, Literal, NamedTuple

Checker = Literal["mypy", "pyright"]
ANY_CODE: Final = "*"

_EXPECT: Final = re.compile(r"#\s*expect:\s*(?P<list>.+)$")
_ERROR: Final = re.compile(r"#\s*error\s*$")
_REVEALED: Final = re.compile(r"#\s*revealed:\s*(?P<type>.+)$")
_CODE: Final = re.compile(r"(mypy|pyright)\[([A-Za-z-]+)\]")
_QUALIFIER: Final = re.compile(r"\b(?:[A-Za-z_]\w*\.)+(?=[A-Za-z_])")


class Said(NamedTuple):
    """One message of a checker, or one that a case expects. `kind` is an error's code or "revealed"."""

    file: str
    line: int
    kind: str
    text: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.kind}{': ' + self.text if self.text else ''}"


def plain_type(text: str) -> str:
    """A type without modules, spaces and mypy's marks: what both checkers agree on."""
    plain = re.sub(r"\s+", " ", _QUALIFIER.sub("", text.strip().strip('"'))).replace("?", "").replace("*", "")
    return _named_tuples(plain)


def _named_tuples(text: str) -> str:
    """What mypy spells `tuple[str, int, fallback=RackKey]` is RackKey."""
    while found := re.search(r", fallback=(\w+)\]", text):
        depth, start = 0, found.start()
        while depth >= 0:
            start -= 1
            depth += {"]": 1, "[": -1}.get(text[start], 0)
        text = text[: start - len("tuple")] + found[1] + text[found.end() :]
    return text


def expected(file: str, text: str, checker: Checker) -> Iterator[Said]:
    """What the comments of a case expect of this checker."""
    for number, line in enumerate(text.splitlines(), start=1):
        if _ERROR.search(line):
            yield Said(file, number, ANY_CODE)
        elif found := _EXPECT.search(line):
            codes = _CODE.findall(found["list"])
            if not codes:
                raise ValueError(f"{file}:{number}: no checker[code] after `expect:`")
            yield from (Said(file, number, code) for name, code in codes if name == checker)
        elif found := _REVEALED.search(line):
            yield Said(file, number, "revealed", plain_type(_for(checker, found["type"])))


def _for(checker: Checker, text: str) -> str:
    """`mypy=X; pyright=Y` gives each its own; a type alone is for both."""
    named = (
        dict(part.strip().split("=", 1) for part in text.split(";")) if text.startswith(("mypy=", "pyright=")) else {}
    )
    return named.get(checker, "") if named else text


def differences(wanted: Iterable[Said], said: Iterable[Said]) -> list[str]:
    """What was expected and not said, and what was said and not expected. `# error` stands for one or more of any code."""
    open_ends = {(one.file, one.line) for one in wanted if one.kind == ANY_CODE}
    exact = sorted(one for one in wanted if one.kind != ANY_CODE)
    rest = sorted((one.file, one.line, one.kind, one.text if one.kind == "revealed" else "") for one in said)
    texts = {(one.file, one.line, one.kind): one.text for one in said}
    missing = [str(one) for one in exact if tuple(one) not in rest]
    surplus = [
        str(Said(file, line, kind, texts[file, line, kind]))
        for file, line, kind, text in rest
        if Said(file, line, kind, text) not in exact and ((file, line) not in open_ends or kind == "revealed")
    ]
    refused = {(file, line) for file, line, kind, _ in rest if kind != "revealed"}
    missing += [f"{file}:{line}: an error" for file, line in sorted(open_ends - refused)]
    return [f"expected, not said: {one}" for one in missing] + [f"said, not expected: {one}" for one in surplus]
