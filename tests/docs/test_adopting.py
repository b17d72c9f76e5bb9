"""The guide to adopting a store is true: its commands run on the file that its first block writes, and print what it says."""

import shlex
from pathlib import Path

import pytest

from keyplan.cli.main import main
from tests.docs.markdown import blocks

GUIDE = (Path(__file__).parents[2] / "docs" / "guide" / "adopting.md").read_text()


def test_the_commands_of_the_guide_print_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    found = list(blocks(GUIDE))
    exec(compile(next(block.code for block in found if block.language == "python"), "adopting.md", "exec"), {})
    wrong = []
    for block in found:
        examples = block.code.split("$ ")[1:] if block.language == "console" else []
        for example in examples:
            command, *expected = example.splitlines()
            program, *words = shlex.split(command)
            if program == "export":
                monkeypatch.setenv(*words[0].split("=", 1))
                continue
            assert program == "keyplan"
            main(words)
            printed = capsys.readouterr()
            lines = (printed.out + printed.err).splitlines()
            if expected[-1:] == ["..."]:
                lines = [*lines[: len(expected) - 1], "..."]
            if lines != expected:
                wrong.append((command, lines))
    assert wrong == []
