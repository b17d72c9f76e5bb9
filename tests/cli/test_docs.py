"""docs/reference/cli.md is true: its examples run, and every command, option and exit code is in it."""

import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from keyplan import errors
from keyplan.cli import failures
from keyplan.cli.main import COMMANDS
from keyplan.errors import KeyplanError
from tests.cli.conftest import Keyplan
from tests.docs.markdown import blocks

REPOSITORY = Path(__file__).parents[2]
DOCUMENT = (REPOSITORY / "docs" / "reference" / "cli.md").read_text()


class Example(NamedTuple):
    """A command as the document has it, and the lines that it should print."""

    line: int
    command: str
    printed: list[str]


def examples() -> Iterator[Example]:
    for block in blocks(DOCUMENT):
        if block.language != "console":
            continue
        found: list[Example] = []
        for number, line in enumerate(block.code.splitlines(), start=block.line):
            if line.startswith("$ "):
                found.append(Example(number, line.removeprefix("$ "), []))
            else:
                found[-1].printed.append(line)
        yield from found


def test_the_examples_print_what_the_document_says(
    run: Keyplan, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shutil.copytree(REPOSITORY / "examples", tmp_path / "examples")
    wrong = []
    for example in examples():
        program, *words = shlex.split(example.command)
        if program == "export":
            for word in words:
                monkeypatch.setenv(*word.split("=", 1))
            continue
        assert program == "keyplan"
        answer = run(*words)
        printed = (answer.out + answer.err).splitlines()
        if example.printed[-1:] == ["..."]:
            printed = [*printed[: len(example.printed) - 1], "..."]
        if printed != example.printed:
            wrong.append((example.line, example.command, printed))
    assert wrong == []


def sections() -> dict[str, str]:
    """The text below each heading of a command."""
    parts = re.split(r"^### `keyplan ([\w-]+)`$", DOCUMENT, flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], (re.split(r"^##", text, flags=re.MULTILINE)[0] for text in parts[1::2]), strict=True))


def test_every_command_has_a_heading_and_no_other() -> None:
    assert list(sections()) == list(COMMANDS)


def options_of(run: Keyplan, *command: str) -> set[str]:
    """The options in the help of a command, or in that of each command of a group."""
    text = run(*command, "--help").out
    commands = re.findall(r"^  (\w+) ", text.partition("\nCommands:\n")[2], flags=re.MULTILINE)
    own = set(re.findall(r"^ +(?:-\w, )?(--[a-z-]+)", text, flags=re.MULTILINE))
    return own.union(*(options_of(run, *command, inner) for inner in commands))


SHARED = {
    "--store",
    "--keyspace",
    "--layout",
    "--layout-check",
    "--parameter",
    "--config",
    "--secrets",
    "--json",
    "--help",
}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_of_a_command_is_in_its_section(run: Keyplan, command: str) -> None:
    options = options_of(run, command)
    documented = set(re.findall(r"`(--[a-z-]+)", sections()[command]))
    assert options - SHARED - {"--waived"} <= documented
    assert documented - SHARED - {"--no-waived"} <= options


def own_exit_codes() -> list[tuple[type[KeyplanError], int]]:
    """The classes that say their exit code themselves, and what they say."""
    found = [getattr(errors, name) for name in errors.__all__]
    kinds = [kind for kind in found if issubclass(kind, KeyplanError) and kind is not KeyplanError]
    return [(kind, kind.exit_code) for kind in kinds if "exit_code" in vars(kind)]


def test_every_exit_code_has_a_row_and_no_other() -> None:
    table = DOCUMENT.partition("## Exit codes")[2]
    rows = [int(number) for number in re.findall(r"^\| (\d+) \|", table, flags=re.MULTILINE)]
    others = (
        failures.FINDINGS,
        failures.USAGE,
        failures.NOT_INSTALLED,
        KeyplanError.exit_code,
        failures.OUTPUT_FAILED,
        failures.HUNG_UP,
        failures.INTERRUPTED,
        failures.TERMINATED,
    )
    assert rows == sorted({0, *others, *(code for _, code in own_exit_codes())})


def test_every_class_of_errors_stands_in_the_row_of_its_exit_code() -> None:
    for kind, code in own_exit_codes():
        (row,) = re.findall(rf"^\| {code} \|.*$", DOCUMENT, flags=re.MULTILINE)
        assert f"`{kind.code}`" in row
