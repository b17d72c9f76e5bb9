"""The page that walks through the code names the functions that are called, in order, and shows the bytes that they make."""

import re
from pathlib import Path
from typing import Any

import pytest

from keyplan.layout import generated
from keyplan.store import commits
from tests.docs.markdown import blocks
from tests.docs.walk import GENERATED_FILE, departures, sections, steps_of

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "design" / "walk.md").read_text()
PACKAGES = ROOT / "src" / "keyplan"


def test_the_page_says_what_happens() -> None:
    said = departures(PAGE)
    assert not said, "\n".join(said)


def test_the_page_follows_an_insert_a_look_up_and_a_list() -> None:
    followed = {section.title: section.followed for section in sections(PAGE) if section.code and section.steps}
    calls = [block.code.strip() for block in followed.values() if block is not None]
    assert [re.sub(r"\(.*", "", call) for call in calls] == [
        "inventory.blades.insert",
        "found = inventory.by_serial.one",
        "listed = list",
    ]


def test_generated_functions_are_of_the_file_that_the_page_names() -> None:
    for step in steps_of(PAGE):
        if step.function.file == GENERATED_FILE:
            made = f'generated_function("{step.function.name}"'
            assert made in (PACKAGES / step.generator).read_text(), f"line {step.line}"


def test_every_file_that_the_page_names_is_there() -> None:
    named = set(re.findall(r"`([a-z_]+(?:/[a-z_0-9]+)+\.py)`", PAGE))
    assert "store/plan.py" in named
    gone = [name for name in named if not (PACKAGES / name).exists() and not (ROOT / name).exists()]
    assert not gone


def test_the_generated_function_that_the_page_shows_has_these_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    sources: list[str] = []

    def noted(source: str, *others: Any) -> Any:
        sources.append(source)
        return compile(source, *others)

    monkeypatch.setattr(generated, "compile", noted, raising=False)
    departures(PAGE)
    first, *shown = _lines(next(block.code for block in blocks(PAGE) if "the test of this page" in block.not_run))
    (source,) = [source for source in sources if first in source]
    generated_lines = iter(_lines(source))
    missing = [line for line in shown if line not in generated_lines]
    assert not missing


def _lines(source: str) -> list[str]:
    return [line.strip().removeprefix("try: ") for line in source.strip().splitlines()]


# ---- the comparison finds what it should ------------------------------------------------------------------------------


def line_of(function: str) -> str:
    """The first line of the page that names a function as a step."""
    return next(line for line in PAGE.splitlines() if line.startswith(f"- **`{function}`**"))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        pytest.param(
            lambda: PAGE.replace("**`CommitWriter.insert`**", "**`CommitWriter.add`**"),
            "store/commits.py: CommitWriter.add   <- not called",
            id="another name",
        ),
        pytest.param(
            lambda: PAGE.replace(line_of("State.unpack"), "Somebody reads it."),
            "engine/lmdb/format.py: State.unpack   <- not on the page",
            id="left out",
        ),
        pytest.param(
            lambda: PAGE.replace(
                line_of("admit_commit"), f"{line_of('_is_plainly_distinct')}\n{line_of('admit_commit')}"
            ),
            "An insert: what is called, in this order, each function once:",
            id="twice",
        ),
        pytest.param(
            lambda: PAGE.replace("`store/listing.py`. Given", "`store/levels.py`. Given"),
            "store/listing.py: listing   <- not on the page",
            id="another file",
        ),
        pytest.param(
            lambda: PAGE.replace("Put(key=b'/inventory/by-arch/x64/r1/2'", "Put(key=b'/inventory/by-arch/arm/r1/2'"),
            "_ is Commit(guards=(KeyAbsent(key=b'/inventory/rack/r1/blade/2'), ",
            id="other bytes",
        ),
        pytest.param(
            lambda: PAGE.replace(">>> raw_value\n", ">>> raw_record\n"),
            "raw_record raises NameError",
            id="no such value",
        ),
        pytest.param(
            lambda: PAGE.replace("log 00000000 00000002", "log 00000000 00000003"), "what is printed", id="print"
        ),
    ],
)
def test_a_page_that_says_something_else_is_found(change: Any, expected: str) -> None:
    page = change()
    assert page != PAGE
    assert any(expected in line for line in departures(page))


def test_another_way_through_the_code_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commits, "plan_insertion", lambda raw_key, new: None)  # as for what it does not plan
    said = departures(PAGE)
    assert any("store/plan.py: plan_writes   <- not on the page" in line for line in said)
    assert any("store/plan.py: plan_insertion   <- not called" in line for line in said)


def test_functions_that_are_passed_over_are_not_followed() -> None:
    """As when a lease may have run out: what is looked at then is no part of each read."""
    step = "**`LmdbEngine.snapshot`**, `engine/lmdb/engine.py`"
    listed = PAGE.replace(f"- {step}", f"- {step.replace('`**, ', '` **, ')}")  # a step no more
    page = listed.replace("- **`Environment.begin_read`**", "- `Environment.begin_read`")
    page = page.replace("- **`LmdbSnapshot.__init__`**", "- `LmdbSnapshot.__init__`")
    assert page != PAGE
    assert departures(page)
    assert not departures(page.replace("## Where to go on", f"- {step}.\n\n## Where to go on"))
