"""Numbers that callers hand in: a float, a bool or a text is refused before anything is read or written."""

from collections.abc import Callable
from typing import Any

import pytest

from keyplan.errors import InvalidInputError, InvalidRecordError, LayoutError
from keyplan.layout import Counter, Layout
from keyplan.store import Store
from tests.store.layouts import Blade, BladeKey, Rack, Site

KEY = BladeKey("r1", "1")
NOT_WHOLE: list[Any] = [True, False, 1.0, 2.5, "1", b"1"]

CALLS: list[tuple[str, Callable[[Site, Any], object]]] = [
    ("count", lambda site, number: site.ports.next(number)),
    ("number", lambda site, number: site.ports.advance_to(number)),
    ("limit", lambda site, number: site.racks.list(limit=number)),
    ("limit", lambda site, number: site.racks.keys(limit=number)),
    ("limit", lambda site, number: site.racks.entries(limit=number)),
    ("limit", lambda site, number: site.racks.rows(limit=number)),
    ("limit", lambda site, number: site.racks.page(limit=number)),
    ("limit", lambda site, number: site.by_tag.list(limit=number)),
    ("limit", lambda site, number: site.by_serial.keys(limit=number)),
    ("limit", lambda site, number: site.by_serial.rows(limit=number)),
    ("expected_revision", lambda site, number: site.racks.put("a", Rack("x"), expected_revision=number)),
    ("expected_revision", lambda site, number: site.racks.update("a", Rack("x"), expected_revision=number)),
    ("expected_revision", lambda site, number: site.racks.delete("a", expected_revision=number)),
    ("expected_revision", lambda site, number: site.blades.put(KEY, Blade(), expected_revision=number)),
    ("lease", lambda site, number: site.members.put("m", Blade(), lease=number)),
    ("lease_id", lambda site, number: store_of(site).resume_lease(number)),
]


def store_of(site: Site) -> Store:
    store = site._binding  # Why: a layout does not tell its binding.
    assert isinstance(store, Store)
    return store


@pytest.mark.parametrize("number", NOT_WHOLE, ids=repr)
@pytest.mark.parametrize(("source", "call"), CALLS)
def test_what_is_no_whole_number_is_refused(
    site: Site, source: str, call: Callable[[Site, Any], object], number: Any
) -> None:
    site.racks.insert("a", Rack("room"))
    site.ports.next()
    revision = site.revision

    with pytest.raises(InvalidInputError) as caught:
        call(site, number)

    assert caught.value.facts["source"] == source
    assert site.revision == revision
    assert site.ports.peek() == 33001


@pytest.mark.parametrize("after", [True, 1.0, b"token"], ids=repr)
def test_a_watch_begins_after_a_whole_number_or_a_token(site: Site, after: Any) -> None:
    with pytest.raises(InvalidInputError):
        site.racks.watch(after=after)


@pytest.mark.parametrize("seconds", [True, "1", None], ids=repr)
def test_a_lease_lives_for_a_number_of_seconds(store: Store, seconds: Any) -> None:
    with pytest.raises(InvalidInputError):
        store.lease(seconds)


@pytest.mark.parametrize("start", [True, 1.0, "1"], ids=repr)
def test_a_counter_starts_at_a_whole_number(start: Any) -> None:
    with pytest.raises(LayoutError):

        class Wrong(Layout, root="/w/"):
            port = Counter("port", start=start)


def test_no_lease_is_no_lease(site: Site) -> None:
    with pytest.raises(InvalidRecordError):
        site.members.put("m", Blade(), lease=0)
