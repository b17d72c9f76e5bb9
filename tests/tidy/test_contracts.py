"""The import contracts break when they should: each is shown one import that it forbids, all in one copy of the product."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tidy.sources import ROOT

pytestmark = pytest.mark.slow

LAYERS = "imports point downward, and every package has a layer"
PURE = "codec, protobuf, layout: no clock, disk, network, thread, process or log"

# A module, a statement that is added to it, what is told of it, and the contract that tells it.
FORBIDDEN = [
    ("codec/element.py", "import keyplan.layout", "keyplan.codec.element -> keyplan.layout (l.", LAYERS),
    (
        "engine/interface.py",
        "def f() -> None:\n    import keyplan.layout",
        "keyplan.engine.interface -> keyplan.layout (l.",
        LAYERS,
    ),
    ("cli/__init__.py", "import keyplan.apps", "keyplan.cli -> keyplan.apps (l.", LAYERS),
    ("unplaced/__init__.py", "", "not listed as layers:\n\n- keyplan.unplaced", LAYERS),
    ("codec/element.py", "import time", "keyplan.codec.element -> time (l.", PURE),
    ("layout/access.py", "import logging", "keyplan.layout.access -> logging (l.", PURE),
    ("codec/element.py", "import keyplan.protobuf", "keyplan.codec.element -> keyplan.protobuf (l.", LAYERS),
    ("protobuf/schema.py", "import keyplan.engine", "keyplan.protobuf.schema -> keyplan.engine (l.", LAYERS),
    ("protobuf/schema.py", "import socket", "keyplan.protobuf.schema -> socket (l.", PURE),
    (
        "engine/memory.py",
        "import keyplan.engine.lmdb",
        "keyplan.engine.memory -> keyplan.engine.lmdb (l.",
        "engines do not know one another",
    ),
    (
        "engine/interface.py",
        "import lmdb",
        "keyplan.engine.interface -> lmdb (l.",
        "lmdb is imported by its engine alone",
    ),
    (
        "store/store.py",
        "import greenlet",
        "keyplan.store.store -> greenlet (l.",
        "greenlet is imported by keyplan.aio and by the batons of schedules alone",
    ),
    (
        "keyspace/registry.py",
        "import httpx",
        "keyplan.keyspace.registry -> httpx (l.",
        "HTTP is spoken by server, client, regions and the applications",
    ),
    (
        "engine/interface.py",
        "import rich",
        "keyplan.engine.interface -> rich (l.",
        "what is for people stays in cli and in the applications",
    ),
    (
        "engine/interface.py",
        "import keyplan.testing",
        "keyplan.engine.interface -> keyplan.testing (l.",
        "nothing but tests imports keyplan.testing",
    ),
    (
        "engine/interface.py",
        "import hypothesis",
        "keyplan.engine.interface -> hypothesis (l.",
        "hypothesis and pytest are imported by keyplan.testing alone",
    ),
    ("apps/one/__init__.py", "", "", ""),
    (
        "apps/other/__init__.py",
        "import keyplan.apps.one",
        "keyplan.apps.other -> keyplan.apps.one (l.",
        "applications do not know one another",
    ),
]


def copied(folder: Path) -> Path:
    """The product and its contracts, in a folder that may be changed."""
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


def broken_contracts(folder: Path) -> dict[str, str]:
    """The contracts that are broken there, each with what is told of it."""
    program = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    ran = subprocess.run(
        [sys.executable, "-c", program, "--no-cache"],
        cwd=folder,
        # Why columns: what is told of an import stands on one line.
        env={"PYTHONPATH": str(folder / "src"), "PATH": "", "PYTHONUTF8": "1", "COLUMNS": "400"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Contracts:" in ran.stdout, ran.stdout + ran.stderr
    broken = [line.partition(" BROKEN")[0] for line in ran.stdout.splitlines() if " BROKEN" in line]
    told = ran.stdout.partition("Broken contracts\n")[2]
    parts = re.split(rf"^({'|'.join(map(re.escape, broken))})\n-+$", told, flags=re.MULTILINE) if broken else [""]
    return dict(zip(parts[1::2], (re.sub(r"- +", "- ", part) for part in parts[2::2]), strict=True))


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What is told of a copy with everything in it that is forbidden. Why all at once: a run reads a thousand files."""
    folder = copied(tmp_path_factory.mktemp("forbidden"))
    for module, statement, _, _ in FORBIDDEN:
        changed = folder / "src/keyplan" / module
        changed.parent.mkdir(exist_ok=True)
        with changed.open("a") as file:
            file.write(f"\n{statement}\n")
    return broken_contracts(folder)


@pytest.mark.parametrize(("told", "contract"), [one[2:] for one in FORBIDDEN if one[3]])
def test_a_forbidden_import_breaks_its_contract(broken: dict[str, str], told: str, contract: str) -> None:
    assert contract in broken
    assert told in broken[contract]


def test_the_contracts_hold_as_the_code_is(tmp_path: Path) -> None:
    assert broken_contracts(copied(tmp_path)) == {}
