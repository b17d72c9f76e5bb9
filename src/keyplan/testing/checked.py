"""A store that is checked when a test is done with it: every index says what the records say, and every key has a meaning."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from keyplan.layout import BoundLayout, Layout
from keyplan.maintenance import check
from keyplan.store import Store

__all__ = ["assert_healthy", "check_after"]


def assert_healthy(store: Store, *layouts: type[Layout] | Layout | BoundLayout) -> None:
    """Fail with a line for each finding that a check of the layouts has, but for notes. The layouts may share a root."""
    bounds = [layout.bound() if isinstance(layout, type) else layout for layout in layouts]
    findings = [
        str(finding)
        for place, bound in enumerate(bounds)
        for finding in check(store, bound, beside=_others(bounds, place))
        if not finding.kind.is_note
    ]
    if findings:
        raise AssertionError("the store is not healthy:\n" + "\n".join(findings))


@contextmanager
def check_after(store: Store, *layouts: type[Layout] | Layout | BoundLayout) -> Iterator[Store]:
    """Give the store, check it when the block ends without an error, and close it.

    @pytest.fixture
    def store():
        with check_after(keyplan.open("memory:"), Site) as store:
            yield store
    """
    with store:
        yield store
        assert_healthy(store, *layouts)


def _others(bounds: Sequence[Layout | BoundLayout], place: int) -> list[Layout | BoundLayout]:
    return [bound for other, bound in enumerate(bounds) if other != place]
