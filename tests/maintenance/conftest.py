"""A store on each engine, with a few records and whole indexes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import keyplan
from keyplan.store import Store
from tests.maintenance.layouts import Blade, BladeKey, Site


@pytest.fixture(params=["memory", "lmdb"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory:" if request.param == "memory" else f"lmdb:{tmp_path / 'store'}"


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    with keyplan.open(url, layout_check="off") as opened:  # Why off: tests write by several layouts as they like.
        yield opened


@pytest.fixture
def site(store: Store) -> Site:
    """Three blades: /site/rack/r1/blades/1, r1/blades/2 and r2/blades/1, the first two with serials and tags."""
    site = Site(store)
    site.blades.insert(BladeKey("r1", "1"), Blade("s1", ["red", "blue"]))
    site.blades.insert(BladeKey("r1", "2"), Blade("s2", ["red"]))
    site.blades.insert(BladeKey("r2", "1"), Blade())
    return site
