"""The map's counts of lines are true, and the files that it tells a newcomer to read are there."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAP = ROOT / "ARCHITECTURE.md"


def count(*words: str | Path) -> tuple[int, list[str]]:
    """Run the script; return its exit code and what it prints."""
    command = [sys.executable, ROOT / "scripts" / "kernel.py", *words]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert not ran.stderr
    return ran.returncode, ran.stdout.splitlines()


def test_the_counts_of_the_map_hold() -> None:
    assert count("--check") == (0, ["the counts hold"])


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param("`store/plan.py` |", "`store/scheme.py` |", "store/scheme.py is gone", id="gone"),
        pytest.param(
            "`store/plan.py` |", "`store/plan.py`, `store/tables.py` |", "store/tables.py is named twice", id="twice"
        ),
    ],
)
def test_a_map_that_names_other_files_is_found(old: str, new: str, expected: str, tmp_path: Path) -> None:
    text = MAP.read_text()
    assert old in text
    page = tmp_path / "map.md"
    page.write_text(text.replace(old, new))
    code, said = count("--check", page)
    assert code == 1
    assert expected in said


def test_a_count_that_is_off_is_found_and_written_anew(tmp_path: Path) -> None:
    text = MAP.read_text()
    (row,) = [line for line in text.splitlines() if line.startswith("| `store/plan.py` |")]
    off = row[: row.rindex("|", 0, -1)] + "| 9,999 |"
    page = tmp_path / "map.md"
    page.write_text(text.replace(row, off))
    code, said = count("--check", page)
    assert code == 1
    lines = len((ROOT / "src" / "keyplan" / "store" / "plan.py").read_text().splitlines())
    assert f"| `store/plan.py`: {lines:,} lines, not 9,999" in {f"| {line}" for line in said}

    assert count(page) == (0, ["counted"])
    assert count("--check", page) == (0, ["the counts hold"])
    assert f"| {lines:,} |" in page.read_text()


def test_every_file_is_counted_once() -> None:
    """The sums of the two tables and what stands beside them are all lines below src/keyplan."""
    section = MAP.read_text().partition("## The reading kernel")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith(("| **", "| everything else"))]
    counts = [int(row.rstrip("| ").rpartition("| ")[2].replace(",", "")) for row in rows]
    lines = sum(len(path.read_text().splitlines()) for path in (ROOT / "src" / "keyplan").rglob("*.py"))
    assert len(counts) == 3
    assert abs(sum(counts) - lines) < lines * 0.1
