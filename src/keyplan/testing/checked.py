"""A store that is checked when a test is done with it: every index says what the records say, and every key has a meaning."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

from keyplan.layout import BoundLayout, Layout
from keyplan.maintenance import check
from keyplan.store import Store

__all__ = ["assert_healthy", "check_after"]


def assert_healthy(store: Store, *layouts: type[Layout] | Layout | BoundLayout, leaves: Collection[str] = ()) -> None:
    """Fail with a line for each finding that a check of the layouts has, but for notes. The layouts may share a root.

    `leaves` are the codes of findings that must be there: what a test planted. One that is not there is a failure too.
    """
    bounds = [layout.bound() if isinstance(layout, type) else layout for layout in layouts]
    findings = [
        finding
        for place, bound in enumerate(bounds)
        for finding in check(store, bound, beside=_others(bounds, place))
        if not finding.kind.is_note
    ]
    faults = [str(finding) for finding in findings if finding.kind.value not in leaves]
    faults += [f"nothing is found that is {code}" for code in set(leaves) - {found.kind.value for found in findings}]
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
