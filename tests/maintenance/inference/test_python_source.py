"""The inferred layout as a module: it imports, describes itself as the inference does, and type checkers accept it."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

import keyplan
from keyplan.layout import Layout, describe
from keyplan.maintenance import Inference, infer
from tests.maintenance.inference.foreign_stores import inferred
from tests.maintenance.inference.shipped_stores import FILLINGS

AWKWARD = {
    b'/say "hi"/{x}/%d' % number: json.dumps({"class": number, "a-b": [{"c": None}], "count": 1}).encode()
    for number in range(3)
} | {b"/\xc3\xbc/only": b'{"a": 1, "b": [1, "x", null, {"c": 2.5}]}'}


def inferences() -> dict[str, Inference]:
    """One inference of each kind of store, by the name of its module."""
    found = {"awkward": inferred(AWKWARD), "nothing": inferred({})}
    for name, fill in FILLINGS.items():
        with keyplan.open("memory:") as store:
            fill(store, range(12))
            with store.engine.snapshot() as snapshot:
                prefix = b"\x00kp" if name == "registry" else b""
                found[name.replace(" ", "_")] = infer(snapshot, prefix=prefix, name="Adopted")
    return found


@pytest.mark.slow
def test_modules_describe_what_was_inferred_and_pass_a_strict_type_checker(tmp_path: Path) -> None:
    for name, found in inferences().items():
        path = tmp_path / f"adopted_{name}.py"
        path.write_text(found.python, encoding="utf-8")
        module_spec = importlib.util.spec_from_file_location(path.stem, path)
        assert module_spec is not None
        assert module_spec.loader is not None
        module = importlib.util.module_from_spec(module_spec)
        sys.modules[path.stem] = module
        try:
            module_spec.loader.exec_module(module)
        finally:
            del sys.modules[path.stem]
        layout: type[Layout] = vars(module)[found.description["layout"]]
        assert describe(layout.spec) == found.description, name
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", str(tmp_path)],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_a_module_reads_as_a_person_would_write_it() -> None:
    pairs = {b"/jobs/%d" % number: b'{"owner": "a", "retries": 2}' for number in range(3)}
    pairs |= {b"/jobs/%d/log/%04d" % (number, line): b"text" for number in range(3) for line in range(3)}
    assert inferred(pairs).python == (
        '"""Inferred from 12 keys."""\n'
        "\n"
        "from typing import NamedTuple\n"
        "\n"
        "import msgspec\n"
        "\n"
        "from keyplan.layout import Layout, Table\n"
        "\n"
        "\n"
        "class JobsRecord(msgspec.Struct, kw_only=True, omit_defaults=True):\n"
        "    owner: str\n"
        "    retries: int\n"
        "\n"
        "\n"
        "class JobsLogKey(NamedTuple):\n"
        "    job: int\n"
        "    log: int\n"
        "\n"
        "\n"
        'class Inferred(Layout, root="/"):\n'
        '    """Inferred from 12 keys."""\n'
        "\n"
        '    jobs = Table("jobs/{job}", key=int, value=JobsRecord)\n'
        '    jobs_log = Table("jobs/{job}/log/{log:decimal(width=4)}", key=JobsLogKey, value=str)\n'
    )
