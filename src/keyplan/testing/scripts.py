"""Conversations as tests: `.kpt` files of commands, a line `----`, and the answer expected. No commands are known here.

    # A comment belongs to the step below it.
    explain insert racks r1 {"room": "cellar"}
    ----
    guard  /site/racks/r1  absent  ...

A command may have further lines; a blank line ends the answer. With KEYPLAN_REWRITE=1 in the environment, files are rewritten
with the answers given: read the diff. `conversation.py` has the commands for a store.
"""

import difflib
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from keyplan.errors import InvalidInputError
from keyplan.files import write_over

__all__ = ["REWRITE_VARIABLE", "Step", "check_script", "read_script", "written_script"]

REWRITE_VARIABLE: Final = "KEYPLAN_REWRITE"

_SEPARATOR: Final = re.compile(r"-{4,}")


class Step(NamedTuple):
    """One question and its answer, with the comments above. A step of comments alone has an empty command."""

    comments: tuple[str, ...]
    command: str
    answer: str
    line: int


def read_script(text: str, *, source: str) -> list[Step]:
    """Return the steps of a script. Raises InvalidInputError naming the line of a step without `----`."""
    steps: list[Step] = []
    lines = text.splitlines()
    position = 0
    while position < len(lines):
        if not lines[position].strip():
            position += 1
            continue
        end = next((number for number in range(position, len(lines)) if not lines[number].strip()), len(lines))
        steps.append(_step(lines[position:end], position + 1, source))
        position = end
    return steps


def _step(lines: list[str], first_line: int, source: str) -> Step:
    count = next((number for number, line in enumerate(lines) if not line.startswith("#")), len(lines))
    comments, rest = tuple(lines[:count]), lines[count:]
    if not rest:
        return Step(comments, "", "", first_line)
    separators = [number for number, line in enumerate(rest) if _SEPARATOR.fullmatch(line)]
    if not separators:
        raise InvalidInputError(source=source, line=first_line, problem="the step has no line ----")
    command, answer = rest[: separators[0]], rest[separators[0] + 1 :]
    return Step(comments, "\n".join(command), "\n".join(answer), first_line)


def written_script(steps: list[Step]) -> str:
    """Return the text of a script: `read_script` reads it back."""
    blocks = []
    for step in steps:
        lines = [*step.comments]
        if step.command:
            lines += [step.command, "----"]
        if step.answer:
            lines.append(step.answer)
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks) + "\n"


def check_script(path: Path, respond: Callable[[str], str]) -> None:
    """Ask `respond` every command of the script, in order, and compare the answers.

    Raises AssertionError with the differences; with KEYPLAN_REWRITE=1 writes the answers into the file instead. A blank line
    of an answer is written as `.`, because it would end the answer.
    """
    text = path.read_text(encoding="utf-8")
    steps = read_script(text, source=path.name)
    given = [step._replace(answer=_fit(respond(step.command))) if step.command else step for step in steps]
    if given == steps:
        return
    answered = written_script(given)
    if os.environ.get(REWRITE_VARIABLE) == "1":
        write_over(path, answered)
        return
    difference = difflib.unified_diff(
        written_script(steps).splitlines(), answered.splitlines(), f"{path.name} expects", "answered", lineterm="", n=4
    )
    raise AssertionError("\n".join(difference))


def _fit(answer: str) -> str:
    return "\n".join(line.rstrip() or "." for line in answer.rstrip().split("\n")) if answer.strip() else ""
