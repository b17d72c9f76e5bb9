"""A store that is checked when a test is done with it: every index says what the records say, and every key has a meaning."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from keyplan.engine import ALL_KEYS
from keyplan.layout import BoundLayout, Layout, bound_layout_of, shown_key
from keyplan.maintenance import SYSTEM_AREA, check, list_indexes
from keyplan.store import Store

__all__ = ["assert_healthy", "check_after"]

_NOT_READY: Final = "index-not-ready"
_OUTSIDE: Final = "key-outside"

_OUTSIDE_MAX: Final = 20
"""Why: a store that holds something else altogether is told by its first keys."""


def assert_healthy(
    store: Store,
    *layouts: type[Layout] | Layout | BoundLayout,
    leaves: Collection[str] = (),
    has_others: bool = False,
) -> None:
    """Fail with a line for each finding that a check of the layouts has, but for notes. The layouts may share a root.

    An index that is not readable is a fault as well, `index-not-ready`: a check misses no entries of it. So is a key outside of
    the roots of all layouts, `key-outside`, unless the store `has_others`; what keyplan itself keeps is passed over.
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
    outside = [] if has_others else _keys_outside(store, [bound_layout_of(bound).root for bound in bounds])
    faults = [str(finding) for finding in findings if finding.kind.value not in leaves]
    faults += unready if _NOT_READY not in leaves else []
    faults += outside if _OUTSIDE not in leaves else []
    found_codes = {found.kind.value for found in findings}
    found_codes |= {code for code, told in ((_NOT_READY, unready), (_OUTSIDE, outside)) if told}
    faults += [f"nothing is found that is {code}" for code in set(leaves) - found_codes]
    if faults:
        raise AssertionError("the store is not as it should be:\n" + "\n".join(faults))


@contextmanager
def check_after(
    store: Store,
    *layouts: type[Layout] | Layout | BoundLayout,
    leaves: Collection[str] = (),
    has_others: bool = False,
) -> Iterator[Store]:
    """Give the store, check it as `assert_healthy` does when the block ends without an error, and close it.

    @pytest.fixture
    def store():
        with check_after(keyplan.open("memory:"), Site) as store:
            yield store
    """
    with store:
        yield store
        assert_healthy(store, *layouts, leaves=leaves, has_others=has_others)


def _keys_outside(store: Store, roots: Sequence[bytes]) -> list[str]:
    """The first keys that lie below none of the roots, told one in a line."""
    told: list[str] = []
    with store.engine.snapshot() as snapshot:
        for raw_key in snapshot.keys(ALL_KEYS):
            if not raw_key.startswith((SYSTEM_AREA, *roots)):
                told.append(f"{_OUTSIDE}: {shown_key(raw_key)} lies below no root of the layouts checked")
            if len(told) == _OUTSIDE_MAX:
                break
    return told


def _others(bounds: Sequence[Layout | BoundLayout], place: int) -> list[Layout | BoundLayout]:
    return [bound for other, bound in enumerate(bounds) if other != place]
