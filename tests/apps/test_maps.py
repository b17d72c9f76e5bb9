"""The maps and reference pages of the shipped layouts, kept beside the code, are current.

KEYPLAN_REWRITE=1 writes them anew; read the difference before it is committed.
"""

import os
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

import pytest

from keyplan.layout import Layout, render_docs, render_map

SHIPPED = sorted(entry_points(group="keyplan.layouts"), key=lambda entry: entry.name)


@pytest.mark.parametrize("entry", SHIPPED, ids=lambda entry: entry.name)
@pytest.mark.parametrize("form", ["map", "md"])
def test_the_stored_page_of_a_layout_is_current(entry: EntryPoint, form: str, repository: Path) -> None:
    layout: type[Layout] = entry.load()
    current = render_map(layout.spec) if form == "map" else render_docs(layout.spec)
    stored = repository / "docs" / "reference" / "layouts" / f"{entry.name}.{form}"
    if os.environ.get("KEYPLAN_REWRITE"):
        stored.write_text(current, encoding="utf-8")
    assert stored.read_text(encoding="utf-8") == current


def test_every_stored_page_is_of_a_shipped_layout(repository: Path) -> None:
    folder = repository / "docs" / "reference" / "layouts"
    assert {path.stem for path in folder.iterdir()} == {entry.name for entry in SHIPPED}
