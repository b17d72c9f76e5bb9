"""The guides are true: who types their commands into a shell, in an empty folder and with nothing set, sees what they say.

All console blocks of a guide run in one bash process, after its Python blocks. A block that begins with a comment that names a
file, as in `# plant.py`, is that file; all Python blocks together, but for those marked `py`, are a program, which runs first.
Blocks below `<!-- not run: reason -->` are passed over.

Root has a machine for each guide: a network whose ports are all free, processes that end with their first one, and an empty
`/srv` in memory. So the commands run exactly as they stand. Anybody else has the ports replaced by free ones, and passes
over the guides that start PostgreSQL.
"""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from tests.apps.patroni.up_process import why_no_up
from tests.docs.markdown import Block, Example, blocks, examples_of
from tests.servers.patroni import why_no_patroni, write_patroni

ROOT: Final = Path(__file__).resolve().parents[2]
GUIDES: Final = (
    "access",
    "audit",
    "backup-and-copy",
    "check-and-repair",
    "cloudchamber",
    "eight-changes",
    "etcd-gateways",
    "evolution",
    "explorer",
    "hepnos",
    "key-spaces",
    "operating",
    "patroni",
    "patroni-clusters",
    "secret-fields",
    "serving",
)
_STARTS_POSTGRESQL: Final = frozenset({"etcd-gateways", "patroni-clusters"})
_ASKS_WITH_ETCDCTL: Final = frozenset({"operating"})
_FILE: Final = re.compile(r"# (?P<name>[\w./-]+\.\w+)\n")
_SERVER: Final = re.compile(r"(?P<command>keyplan (?:(?:runm )?serve|patroni up) .*?)\s*&")
# Why so long: the processors may be busy with others. It ends what hangs.
_SECONDS_MAX: Final = 300
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
# Why the files are copied: PostgreSQL's user may not enter a test's folder.
_MACHINE: Final = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
_IN_A_MACHINE: Final = """
ip link set lo up && mount -t tmpfs -o mode=755 tmpfs /srv && mkdir /srv/reader && cp -r . /srv/reader && cd /srv/reader || exit
[ ! -d srv ] || cp -r srv/. /srv
PATH=/srv/programs:$PATH
"""


@cache
def has_machines() -> bool:
    """Whether whoever runs this may make machines."""
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        return False
    tried = subprocess.run(
        [*_MACHINE, "bash", "-c", "ip link set lo up && mount -t tmpfs tmpfs /srv"], capture_output=True, check=False
    )
    return tried.returncode == 0


def why_not(guide: str) -> str | None:
    """Return what a guide needs that is not here."""
    if guide in _ASKS_WITH_ETCDCTL and shutil.which("etcdctl") is None:
        return "etcdctl not installed: apt-get install etcd-client"
    if guide not in _STARTS_POSTGRESQL:
        return None
    if not has_machines():
        return "only root can give it a network and a /srv of its own"
    if guide == "patroni-clusters":
        return why_no_up()
    is_debian_12 = Path("/usr/lib/postgresql/15/bin/initdb").exists()
    return why_no_patroni() or (
        None if is_debian_12 else "the guide names PostgreSQL 15: apt-get install postgresql-15"
    )


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
    """The blocks of a guide that are run, once the files among them are in the folder; those of `/srv` in its `srv`."""
    rest = []
    for block in (block for block in blocks(text) if not block.not_run):
        if block.language != "console" and (named := _FILE.match(block.code)):
            path = folder / named["name"].lstrip("/")
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a") as file:
                file.write(block.code)
        if block.language in {"python", "console"}:
            rest.append(block)
    if "examples/" in text:
        shutil.copytree(ROOT / "examples", folder / "examples")
    return rest


def script_of(examples: list[Example]) -> str:
    """What bash runs: the commands, and a mark behind what each has printed."""
    script = (_IN_A_MACHINE if has_machines() else "") + _START.format(mark=_MARK)
    for example in examples:
        command = example.command
        if started := _SERVER.fullmatch(command):
            listen = "" if has_machines() or "--listen" in command else f" --listen 127.0.0.1:{_DEFAULT_PORT}"
            command = f"start {started['command']}{listen}"
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
        printed, _ = process.communicate(timeout=_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        printed, _ = process.communicate()
        raise AssertionError(f"the program did not end; it had printed:\n{printed}") from None
    return subprocess.CompletedProcess(arguments, process.returncode, printed)


@pytest.mark.slow
@pytest.mark.timeout(2 * _SECONDS_MAX)
@pytest.mark.parametrize("guide", GUIDES)
def test_the_commands_of_a_guide_print_what_it_says(guide: str, tmp_path: Path) -> None:
    problem = why_not(guide)
    if problem is not None:
        pytest.skip(f"needs a machine: {problem}")
    text = (ROOT / "docs" / "guide" / f"{guide}.md").read_text()
    ports = {} if has_machines() else {port: free_port() for port in {*_PORT.findall(text), _DEFAULT_PORT}}
    found = written(text, tmp_path)
    if guide in _STARTS_POSTGRESQL:
        (tmp_path / "srv" / "programs").mkdir(parents=True)
        write_patroni(tmp_path / "srv" / "programs" / "patroni")
    program = "\n".join(block.code for block in found if block.language == "python")
    if program:
        (tmp_path / "guide.py").write_text(program)
        first = run([sys.executable, "guide.py"], tmp_path)
        assert first.returncode == 0, first.stdout
    examples = [example for block in found if block.language == "console" for example in examples_of(block.code)]
    script = _PORT.sub(lambda match: f"127.0.0.1:{ports.get(match[1], match[1])}", script_of(examples))
    printed = run([*(_MACHINE if has_machines() else ()), "bash", "-c", script], tmp_path).stdout
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
