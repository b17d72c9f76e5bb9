"""The text of an access file as its tables and statements, each with its lines: what messages and decisions point at.

    [principals.shop]           the table of a principal
    tokens = ["sha256:..."]     a statement: a key, and a list that may go on over several lines

The meaning is tomllib's, which tells no lines: each statement is parsed by itself. It ends with the first line up to which
its lines parse. What goes on over several lines is a list or a text, and ends in a bracket or in three quotation marks.
"""

import re
import tomllib
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from keyplan.errors import InvalidInputError

__all__ = ["PRINCIPALS", "Statement", "Table", "tables_of"]

PRINCIPALS: Final = "principals"
"""The table whose tables are the principals."""

_NAME: Final = re.compile(r"[A-Za-z0-9_.@-]{1,64}")
_ENDS: Final = ("]", '"""', "'''")
_STATEMENT_LINES_MAX: Final = 1_000
"""Why: the end of a statement is looked for line by line, and a list of a thousand grants is one for a machine."""

_UNREADABLE: Final = (ValueError, RecursionError)
"""What tomllib raises. Why not its own error alone: a number of too many digits and too many brackets are others."""

_PLACE: Final = re.compile(r"\s*\(at (?:line (\d+), column \d+|end of document)\)$")


class Statement(NamedTuple):
    """A key with its value; `line` is the number of its first line, from 1, and `lines` are its lines as they stand."""

    key: str
    value: Any
    line: int
    lines: tuple[str, ...]

    def element_lines(self) -> list[int]:
        """Return the lines of the elements of its list; that of the list for all, where a line does not hold whole elements."""
        counts = [self._elements_of(place) for place in range(len(self.lines))]
        found = [self.line + place for place, count in enumerate(counts) for _ in range(count)]
        return found if len(found) == len(self.value) else [self.line] * len(self.value)

    def _elements_of(self, place: int) -> int:
        opened = "" if place == 0 else "x = [\n"
        closed = "" if place == len(self.lines) - 1 else "\n]"
        try:
            (found,) = tomllib.loads(f"{opened}{self.lines[place]}{closed}").values()
        except _UNREADABLE:
            return 0
        return len(found)


class Table(NamedTuple):
    """A principal's table: the name, the number of the line that begins it, and its statements."""

    name: str
    line: int
    statements: list[Statement]

    @property
    def line_last(self) -> int:
        """The number of its last line that is no comment."""
        last = self.statements[-1] if self.statements else None
        return last.line + len(last.lines) - 1 if last else self.line


def tables_of(text: str, *, source: str) -> list[Table]:
    """Return the tables of an access file's text.

    Raises InvalidInputError, which names the line and the remedy: for what is no TOML, for what stands outside a principal's
    table, and for a name or a key that stands twice.
    """
    tables: list[Table] = []
    for line, lines, found in _parsed(text, source):
        place = f"{source}:{line}"
        if lines[0].lstrip().startswith("["):
            table = Table(_name_of(found, place), line, [])
            if twice := next((one for one in tables if one.name == table.name), None):
                problem = f"there is a principal {table.name} in line {twice.line} already: join the two, or rename one"
                raise InvalidInputError(source=place, problem=problem)
            tables.append(table)
            continue
        ((key, value),) = found.items()
        if not tables:
            problem = f"{key!r} stands before the first table: write [{PRINCIPALS}.NAME] above it"
            raise InvalidInputError(source=place, problem=problem)
        _add(tables[-1], Statement(key, value, line, lines), place)
    return tables


def _add(table: Table, statement: Statement, place: str) -> None:
    if twice := next((one for one in table.statements if one.key == statement.key), None):
        problem = f"{table.name} has {statement.key} in line {twice.line} already: join the two lists"
        raise InvalidInputError(source=place, problem=problem)
    table.statements.append(statement)


def _name_of(found: dict[str, Any], place: str) -> str:
    named = found.get(PRINCIPALS)
    if isinstance(named, dict) and len(named) == 1:
        ((name, content),) = named.items()
        if content == {} and _NAME.fullmatch(name):
            return str(name)
    problem = (
        f"a table is [{PRINCIPALS}.NAME], and a name has 1 to 64 letters, digits and _ . @ -, in quotation marks where it"
        " has . or @: write it so"
    )
    raise InvalidInputError(source=place, problem=problem)


def _parsed(text: str, source: str) -> Iterator[tuple[int, tuple[str, ...], dict[str, Any]]]:
    """The number of the first line, the lines and the meaning of each table's head and each statement."""
    # Trap: `splitlines` knows more ends of lines than TOML.
    lines = text.replace("\r\n", "\n").split("\n")
    begin = 0
    while begin < len(lines):
        bound = min(len(lines), begin + _STATEMENT_LINES_MAX)
        ends = (n + 1 for n in range(begin, bound) if n == begin or any(mark in lines[n] for mark in _ENDS))
        parsed = ((end, _meaning(lines[begin:end])) for end in ends)
        end, found = next(((end, found) for end, found in parsed if found is not None), (begin, None))
        if found is None:
            raise _refusal(text, source, begin + 1)
        if found:
            yield begin + 1, tuple(lines[begin:end]), found
        begin = end


def _meaning(lines: list[str]) -> dict[str, Any] | None:
    try:
        return tomllib.loads("\n".join(lines))
    except _UNREADABLE:
        return None


def _refusal(text: str, source: str, line: int) -> InvalidInputError:
    try:
        tomllib.loads(text)
        said = f"a list of more than {_STATEMENT_LINES_MAX} lines"
    except RecursionError:
        said = "brackets within brackets within brackets"
    except ValueError as error:
        said = str(error)
    found = _PLACE.search(said)
    line = int(found[1]) if found and found[1] else line
    said = _PLACE.sub("", said)
    problem = f"it cannot be read as TOML: {said[:1].lower()}{said[1:]}; correct the line"
    return InvalidInputError(source=f"{source}:{line}", problem=problem)
