"""The guides are true: who types their commands into a shell, in an empty folder and with nothing set, sees what they say.

All console blocks of a guide run in one bash process, after its Python blocks. A block that begins with a comment that names a
file, as in `# plant.py`, is that file; the other Python blocks are a program of their own, which runs first. Blocks below
`<!-- not run: reason -->` are passed over.
"""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.docs.markdown import Block, blocks

ROOT: Final = Path(__file__).resolve().parents[2]
GUIDES: Final = (
    "backup-and-copy",
    "check-and-repair",
    "cloudchamber",
    "evolution",
    "explorer",
    "hepnos",
    "key-spaces",
    "serving",
)
_FILE: Final = re.compile(r"# (?P<name>[\w.-]+\.\w+)\n")
_MARK: Final = "--- the next command ---"
_PORT: Final = re.compile(r"127\.0\.0\.1:(\d{4,5})")
# Why another port: the guide's may be taken here. A server that is given none listens on 8210.
_DEFAULT_PORT: Final = "8210"
# A server is waited for as a reader would: until it has printed its address.
_START: Final = """
start() {{ rm -f server.out; "$@" >server.out 2>server.err &
  until [ -s server.out ] || ! kill -0 $!; do sleep 0.05; done; cat server.out; }}
trap 'kill $(jobs -p) 2>/dev/null; wait' EXIT
echo '{mark}'
"""


class Example(NamedTuple):
    """A command of a guide, and the lines that the guide prints below it."""

    command: str
    lines: list[str]


def examples_of(code: str) -> Iterator[Example]:
    for example in re.split(r"^\$ ", code, flags=re.MULTILINE)[1:]:
        first, *others = example.rstrip("\n").splitlines()
        command = [first, *(line[2:] for line in others if line.startswith("> "))]
        yield Example("\n".join(command), [line.rstrip() for line in others if not line.startswith("> ")])


def is_as_said(found: list[str], said: list[str]) -> bool:
    """Whether lines are those of the guide: `...` stands for any rest, of a line or of all lines."""
    if not said:
        return True
    pattern = "".join(
        "(?:.*\n)*" if line == "..." else re.escape(line).replace(re.escape("..."), ".*") + "\n" for line in said
    )
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in found)) is not None


def environment() -> dict[str, str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {"PATH": path, "HOME": os.environ["HOME"], "LANG": os.environ.get("LANG", "C.UTF-8")}


def free_port() -> str:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return str(listener.getsockname()[1])


def written(text: str, folder: Path) -> list[Block]:
    """The blocks of a guide that are run, once the files among them are in the folder."""
    rest = []
    for block in (block for block in blocks(text) if not block.not_run):
        if block.language != "console" and (named := _FILE.match(block.code)):
            with (folder / named["name"]).open("a") as file:
                file.write(block.code)
        rest.append(block)
    if "examples/" in text:
        shutil.copytree(ROOT / "examples", folder / "examples")
    return rest


def script_of(examples: list[Example]) -> str:
    script = _START.format(mark=_MARK)
    for example in examples:
        command = example.command
        if command.startswith("keyplan serve") and command.endswith("&"):
            listen = "" if "--listen" in command else f" --listen 127.0.0.1:{_DEFAULT_PORT}"
            command = f"start {command.removesuffix('&').rstrip()}{listen}"
        script += f"{command}\necho; echo '{_MARK}'\n"
    return script


def run(arguments: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Both outputs of a program. What it has started ends with it, also when it takes too long."""
    process = subprocess.Popen(
        arguments,
        cwd=folder,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        printed, _ = process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        printed, _ = process.communicate()
        raise AssertionError(f"the program did not end; it had printed:\n{printed}") from None
    return subprocess.CompletedProcess(arguments, process.returncode, printed)


@pytest.mark.slow
@pytest.mark.parametrize("guide", GUIDES)
def test_the_commands_of_a_guide_print_what_it_says(guide: str, tmp_path: Path) -> None:
    text = (ROOT / "docs" / "guide" / f"{guide}.md").read_text()
    ports = {port: free_port() for port in {*_PORT.findall(text), _DEFAULT_PORT}}
    found = written(text, tmp_path)
    program = tmp_path / "guide.py"
    program.write_text("\n".join(block.code for block in found if block.language == "python"))
    examples = [example for block in found if block.language == "console" for example in examples_of(block.code)]
    first = run([sys.executable, str(program)], tmp_path)
    assert first.returncode == 0, first.stdout
    script = _PORT.sub(lambda match: f"127.0.0.1:{ports[match[1]]}", script_of(examples))
    printed = run(["bash", "-c", script], tmp_path).stdout
    for port, other in ports.items():
        printed = printed.replace(f"127.0.0.1:{other}", f"127.0.0.1:{port}")
    answers = [part.strip("\n").splitlines() for part in printed.split(_MARK + "\n")[1:-1]]
    assert len(answers) == len(examples), printed
    wrong = [
        (example.command, lines)
        for example, lines in zip(examples, answers, strict=True)
        if not is_as_said([line.rstrip() for line in lines], example.lines) or fails_silently(example, lines)
    ]
    assert examples
    assert wrong == [], printed


def fails_silently(example: Example, lines: list[str]) -> bool:
    """Whether a command of which the guide shows no output ended with an error of ours, a usage error or the shell's."""
    if example.lines:
        return False
    text = "\n".join(lines)
    return re.search(r"^(keyplan: |Usage: |bash: |curl: |Traceback )", text, flags=re.MULTILINE) is not None


def test_dots_stand_for_the_rest_of_a_line_and_of_all_lines() -> None:
    assert is_as_said(["a b", "c"], ["a ..."]) is False
    assert is_as_said(["a b", "c"], ["a ...", "..."])
    assert is_as_said(["a", "b", "c"], ["a", "...", "c"])
    assert is_as_said(["a b"], ["a b"])
    assert not is_as_said(["a b"], ["a"])
    assert fails_silently(Example("x", []), ["keyplan: there is no store"])
