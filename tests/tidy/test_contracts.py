"""The import contracts break when they should: each is shown one import that it forbids."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tidy.sources import ROOT

pytestmark = pytest.mark.slow

LAYERS = "imports point downward, and every package has a layer"
PURE = "codec, protobuf, layout: no clock, disk, network, thread, process or log"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The product and its contracts, in a folder that may be changed."""
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def broken_contracts(folder: Path) -> list[str]:
    program = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    ran = subprocess.run(
        [sys.executable, "-c", program, "--no-cache"],
        cwd=folder,
        env={"PYTHONPATH": str(folder / "src"), "PATH": "", "PYTHONUTF8": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Contracts:" in ran.stdout, ran.stdout + ran.stderr
    return [line.partition(" BROKEN")[0] for line in ran.stdout.splitlines() if " BROKEN" in line]


@pytest.mark.parametrize(
    ("module", "statement", "contract"),
    [
        ("codec/element.py", "import keyplan.layout", LAYERS),
        ("engine/interface.py", "def f() -> None:\n    import keyplan.layout", LAYERS),
        ("cli/__init__.py", "import keyplan.apps", LAYERS),
        ("unplaced/__init__.py", "", LAYERS),
        ("codec/element.py", "import time", PURE),
        ("layout/access.py", "import logging", PURE),
        ("codec/element.py", "import keyplan.protobuf", LAYERS),
        ("protobuf/schema.py", "import keyplan.engine", LAYERS),
        ("protobuf/schema.py", "import socket", PURE),
        ("engine/memory.py", "import keyplan.engine.lmdb", "engines do not know one another"),
        ("engine/interface.py", "import lmdb", "lmdb is imported by its engine alone"),
        (
            "store/store.py",
            "import greenlet",
            "greenlet is imported by keyplan.aio and by the batons of schedules alone",
        ),
        ("keyspace/registry.py", "import httpx", "HTTP is spoken by server, client, regions and the applications"),
        ("engine/interface.py", "import rich", "what is for people stays in cli and in the applications"),
        ("engine/interface.py", "import keyplan.testing", "nothing but tests imports keyplan.testing"),
        ("engine/interface.py", "import hypothesis", "hypothesis and pytest are imported by keyplan.testing alone"),
    ],
)
def test_a_forbidden_import_breaks_its_contract(copy: Path, module: str, statement: str, contract: str) -> None:
    changed = copy / "src/keyplan" / module
    changed.parent.mkdir(exist_ok=True)
    with changed.open("a") as file:
        file.write(f"\n{statement}\n")
    assert contract in broken_contracts(copy)


def test_applications_do_not_know_one_another(copy: Path) -> None:
    for name, statement in (("one", ""), ("other", "import keyplan.apps.one")):
        folder = copy / "src/keyplan/apps" / name
        folder.mkdir()
        (folder / "__init__.py").write_text(statement)
    assert "applications do not know one another" in broken_contracts(copy)


def test_the_contracts_hold_as_the_code_is(copy: Path) -> None:
    assert broken_contracts(copy) == []
