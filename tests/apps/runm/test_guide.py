"""docs/guide/runm.md is true: its documents are written, its commands run, and what they print compared."""

import os
import re
import shlex
from contextlib import ExitStack
from pathlib import Path

import pytest

from keyplan.apps.runm import cli_client
from keyplan.cli.main import main as keyplan_main
from tests.apps.runm.processes import ServeProcess, server_process
from tests.docs.markdown import blocks

PROGRAMS = {"runm": cli_client.main, "keyplan": keyplan_main}


def run(command: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What a command prints on both outputs."""
    program, *words = shlex.split(command)
    PROGRAMS[program](words)
    captured = capsys.readouterr()
    return captured.out + captured.err


@pytest.mark.slow
def test_the_guides_commands_print_what_it_says(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (repository / "docs" / "guide" / "runm.md").read_text()
    monkeypatch.chdir(tmp_path)
    for variable in [known for known in os.environ if known.startswith(("KEYPLAN_", "RUNM_"))]:
        monkeypatch.delenv(variable)  # Why: a reader has set nothing but what the guide says
    wrong = []
    with ExitStack() as stack:
        for block in blocks(text):
            if block.language == "yaml":
                name = re.match(r"# (\S+)\n", block.code)
                assert name is not None
                (tmp_path / name[1]).write_text(block.code)
            if block.language != "console":
                continue
            for example in re.split(r"^\$ ", block.code, flags=re.MULTILINE)[1:]:
                command, _, printed = example.partition("\n")
                if command.endswith("&"):
                    # Why another port than the guide's: it may be taken here. Clients are told of it by their variables.
                    words = command.removesuffix("&").replace(":10000", ":0").split()[3:]
                    server: ServeProcess = stack.enter_context(server_process(*words))
                    host, _, port = server.address.rpartition(":")
                    monkeypatch.setenv("RUNM_HOST", host)
                    monkeypatch.setenv("RUNM_PORT", port)
                elif command.startswith("export "):
                    for word in command.split()[1:]:
                        monkeypatch.setenv(*word.split("=", 1))
                else:
                    found = run(command, capsys)
                    if found.strip() != printed.strip():
                        wrong.append((command, found))
    assert wrong == []
