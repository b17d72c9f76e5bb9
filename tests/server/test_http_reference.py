"""The reference pages of HTTP are what the descriptions say."""

from pathlib import Path

import pytest

from tests.server.http_reference import PAGES, Page


@pytest.mark.parametrize(("path", "page"), PAGES.items(), ids=[path.name for path in PAGES])
def test_the_reference_is_current(path: Path, page: Page) -> None:
    assert path.read_text() == page.text(), "python -m tests.server.http_reference writes it anew"
