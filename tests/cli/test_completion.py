"""Completion: the scripts, and what a shell is answered when it asks."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Protocol

import pytest

from keyplan.cli.main import main
from tests.cli.conftest import SITE, Keyplan

SCRIPT = Path(sys.executable).parent / "keyplan"


class Shell(Protocol):
    """What bash would be answered for the words of a command line, the last of which is completed."""

    def __call__(self, *words: str, layout: str = "") -> list[str]: ...


@pytest.fixture
def completions(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    def ask(*words: str, layout: str = "") -> list[str]:
        monkeypatch.setenv("KEYPLAN_LAYOUT", layout)
        monkeypatch.setenv("COMP_WORDS", " ".join(["keyplan", *words]))
        monkeypatch.setenv("COMP_CWORD", str(len(words)))
        monkeypatch.setenv("_KEYPLAN_COMPLETE", "complete_bash")
        with pytest.raises(SystemExit):
            main([])
        printed = capsys.readouterr()
        assert printed.err == ""
        return printed.out.split()

    return ask


@pytest.mark.parametrize(
    ("shell", "line"),
    [
        ("bash", "complete -o default -F _keyplan_completion keyplan"),
        ("zsh", "compdef _keyplan_completion keyplan"),
        ("fish", "complete --command keyplan"),
    ],
)
def test_the_script_of_a_shell_is_printed(run: Keyplan, shell: str, line: str) -> None:
    answer = run("completion", shell)
    assert (answer.code, line in answer.out, "_KEYPLAN_COMPLETE=complete_" + shell in answer.out) == (0, True, True)


def test_an_unknown_shell_is_a_usage_error(run: Keyplan) -> None:
    assert run("completion", "tcsh").code == 2


def test_commands_are_completed(completions: Shell) -> None:
    assert completions("l") == ["ls", "list", "lock", "lint"]
    assert completions("cloud") == ["cloudchamber"]


def test_an_applications_commands_are_completed(completions: Shell) -> None:
    assert sorted(completions("cloudchamber", "i")) == ["import", "index"]


def test_items_of_the_layout_are_completed(completions: Shell) -> None:
    assert completions("get", "b", layout=SITE) == ["boxes", "by_name", "by_tag"]
    assert completions("tree", "h", layout=SITE) == ["holders"]
    assert completions("ls", "--layout", "cloudchamber", "rack") == ["racks"]


def test_items_without_a_layout_or_of_a_wrong_one_are_none(completions: Shell) -> None:
    assert completions("get", "b") == []
    assert completions("get", "b", layout="nothing") == []


def test_options_and_installed_layouts_are_completed(completions: Shell) -> None:
    assert completions("list", "--rev") == ["--reverse"]
    assert completions("list", "--layout", "cloudchamber-") == ["cloudchamber-go", "cloudchamber-indexed"]


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes_with_the_printed_script() -> None:
    program = (
        'eval "$(keyplan completion bash)"; COMP_WORDS=(keyplan expl); COMP_CWORD=1; _keyplan_completion keyplan;'
        ' echo "${COMPREPLY[@]}"'
    )
    path = f"{SCRIPT.parent}:{os.environ['PATH']}"
    ran = subprocess.run(
        ["bash", "-c", program], env={**os.environ, "PATH": path}, capture_output=True, text=True, check=True
    )
    assert ran.stdout == "explain\n"
