"""Every block of Python in the documents runs, every relative link leads somewhere."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.markdown import Block, anchors, blocks, links

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted(
    [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "src").rglob("*.md"),
        *(ROOT / "examples").glob("*.md"),
    ]
)
PYTHON = [
    pytest.param(document, runnable, id=str(document.relative_to(ROOT)))
    for document in DOCUMENTS
    if (
        runnable := [
            block for block in blocks(document.read_text()) if block.language == "python" and not block.not_run
        ]
    )
]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def run(program: Path | str, folder: Path) -> None:
    arguments = [str(program)] if isinstance(program, Path) else ["-c", program]
    ran = subprocess.run(
        [sys.executable, "-W", "error", *arguments], cwd=folder, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize(("document", "runnable"), PYTHON)
def test_the_python_of_a_document_runs_from_its_first_block_to_its_last(
    document: Path, runnable: list[Block], tmp_path: Path
) -> None:
    program = ""
    for block in runnable:
        # Why: empty lines before it make a traceback's line numbers those of the document.
        program += "\n" * (block.line - 1 - program.count("\n")) + block.code.rstrip("\n") + "\n"
    path = tmp_path / document.name.replace(".md", ".py")
    path.write_text(program)
    run(path, tmp_path)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_an_example_runs(example: Path, tmp_path: Path) -> None:
    run(example, tmp_path)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: str(document.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    dead = []
    for line, target in links(document.read_text()):
        path, _, anchor = target.partition("#")
        if "://" in target or target.startswith("mailto:"):
            continue
        file = document.parent / path if path else document
        if not file.exists() or (anchor and file.suffix == ".md" and anchor not in anchors(file.read_text())):
            dead.append(f"{document.relative_to(ROOT)}:{line}: {target}")
    assert not dead


def test_blocks_are_found_with_their_lines_and_reasons() -> None:
    text = "# A\n```python\nx = 1\n```\n\n<!-- not run: needs a server -->\n```python\ny\n```\n```\nplain\n```\n"
    assert list(blocks(text)) == [
        Block("python", 3, "x = 1\n", ""),
        Block("python", 8, "y\n", "needs a server"),
        Block("", 11, "plain\n", ""),
    ]


def test_links_in_code_are_not_links() -> None:
    assert list(links("[a](b.md) and [c](d#e)\n```\n[x](y)\n```\n")) == [(1, "b.md"), (1, "d#e")]


def test_anchors_are_spelled_as_headings() -> None:
    assert anchors("# What is where\n## To change ..., open ...\n### `not-found`\n") == {
        "what-is-where",
        "to-change--open-",
        "not-found",
    }
