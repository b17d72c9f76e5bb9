"""A store that is checked when a test is done with it: every index says what the records say, and every key has a meaning."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from keyplan.layout import BoundLayout, Layout, bound_layout_of
from keyplan.maintenance import check, list_indexes
from keyplan.store import Store

__all__ = ["assert_healthy", "check_after"]

_NOT_READY: Final = "index-not-ready"


def assert_healthy(store: Store, *layouts: type[Layout] | Layout | BoundLayout, leaves: Collection[str] = ()) -> None:
    """Fail with a line for each finding that a check of the layouts has, but for notes. The layouts may share a root.

    An index that is not readable is a fault as well, `index-not-ready`: a check misses no entries of it.
    `leaves` are the codes of findings that must be there: what a test planted. One that is not there is a failure too.
    """
    bounds = [layout.bound() if isinstance(layout, type) else layout for layout in layouts]
    findings = [
        finding
        for place, bound in enumerate(bounds)
        for finding in check(store, bound, beside=_others(bounds, place))
        if not finding.kind.is_note
    ]
    unready = [
        f"{_NOT_READY}: the index {index.name} of {bound_layout_of(bound).name} is {index.stage}"
        for bound in bounds
        for index in list_indexes(store, bound)
        if not index.is_readable
    ]
    faults = [str(finding) for finding in findings if finding.kind.value not in leaves]
    faults += unready if _NOT_READY not in leaves else []
    found_codes = {found.kind.value for found in findings} | ({_NOT_READY} if unready else set())
    faults += [f"nothing is found that is {code}" for code in set(leaves) - found_codes]
    if faults:
        raise AssertionError("the store is not as it should be:\n" + "\n".join(faults))


@contextmanager
def check_after(
    store: Store, *layouts: type[Layout] | Layout | BoundLayout, leaves: Collection[str] = ()
) -> Iterator[Store]:
    """Give the store, check it when the block ends without an error, and close it.

    @pytest.fixture
    def store():
        with check_after(keyplan.open("memory:"), Site) as store:
            yield store
    """
    with store:
        yield store
        assert_healthy(store, *layouts, leaves=leaves)


def _others(bounds: Sequence[Layout | BoundLayout], place: int) -> list[Layout | BoundLayout]:
    return [bound for other, bound in enumerate(bounds) if other != place]
