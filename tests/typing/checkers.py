"""Runs mypy --strict and pyright, once each, over the folder of cases, and reads what they said."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.typing.expectations import Said, plain_type

ROOT: Final = Path(__file__).resolve().parents[2]
_MYPY_REVEALED: Final = re.compile(r'^Revealed type is "(?P<type>.*)"$', re.DOTALL)
_PYRIGHT_REVEALED: Final = re.compile(r'^Type of "(?:.*)" is "(?P<type>.*)"$', re.DOTALL)


def mypy_says(folder: Path, cache: Path) -> list[Said]:
    """The errors and revealed types of `mypy --strict`, with the repository's own settings."""
    ran = subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            "--strict",
            "--output",
            "json",
            "--cache-dir",
            cache,
            *sorted(folder.glob("*.py")),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if ran.returncode not in {0, 1}:
        raise RuntimeError(f"mypy could not run: {ran.stdout}{ran.stderr}")
    return list(_read_mypy(ran.stdout))


def _read_mypy(output: str) -> Iterator[Said]:
    for line in output.splitlines():
        if not line.startswith("{"):
            continue
        message = json.loads(line)
        file = Path(message["file"]).name
        if found := _MYPY_REVEALED.match(message["message"]):
            yield Said(file, message["line"], "revealed", plain_type(found["type"]))
        elif message["severity"] == "error":
            yield Said(file, message["line"], message["code"] or "syntax", message["message"])


def pyright_says(folder: Path) -> list[Said]:
    """The errors and revealed types of pyright in strict mode."""
    ran = subprocess.run(
        [
            sys.executable,
            "-m",
            "pyright",
            "--outputjson",
            "--pythonpath",
            sys.executable,
            "--project",
            _project(folder),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if ran.returncode not in {0, 1}:
        raise RuntimeError(f"pyright could not run: {ran.stdout}{ran.stderr}")
    return list(_read_pyright(ran.stdout))


def _project(folder: Path) -> str:
    """The settings that stand beside the cases: a user's, strict, without the exceptions that keyplan allows itself."""
    return str(folder.parent / "pyrightconfig.json")


def _read_pyright(output: str) -> Iterator[Said]:
    for message in json.loads(output)["generalDiagnostics"]:
        file, line = Path(message["file"]).name, message["range"]["start"]["line"] + 1
        if found := _PYRIGHT_REVEALED.match(message["message"]):
            yield Said(file, line, "revealed", plain_type(found["type"]))
        elif message["severity"] == "error":
            yield Said(file, line, message.get("rule", "syntax"), message["message"].splitlines()[0])
