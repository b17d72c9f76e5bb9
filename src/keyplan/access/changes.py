"""What differs between two states of an access file, by principals: for an audit log. Pure."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from keyplan.access.policy import Policy, Principal
from keyplan.operations import Act

__all__ = ["PrincipalChange", "changes_between"]

_KNOWN_BY: Final = ("tokens", "certificates", "users", "labels")


class PrincipalChange(NamedTuple):
    """A principal that came, went, or has changed: `act` is `add`, `remove` or `change`, and `what` says the lists that differ.

    A list is named as in the file, with what came and what went of grants: `read +prefix:/a/ -everything`. Of tokens, sums are
    told by their first digits.
    """

    name: str
    act: str
    what: str


def changes_between(before: Policy, after: Policy) -> Iterator[PrincipalChange]:
    """Yield what has changed, in the order of names. Lines that have moved, and lists in another order, are no change."""
    names = {one.name for one in (*before.principals, *after.principals)}
    for name in sorted(names):
        old, new = before.named(name), after.named(name)
        act = "change" if old and new else "add" if new else "remove"
        what = ", ".join(_differences(old or Principal(name=name), new or Principal(name=name)))
        if what or act != "change":
            yield PrincipalChange(name, act, what)


def _differences(old: Principal, new: Principal) -> Iterator[str]:
    for key in (*_KNOWN_BY, *Act):
        gone, come = _elements(old, key), _elements(new, key)
        words = [f"+{one}" for one in sorted(come - gone)] + [f"-{one}" for one in sorted(gone - come)]
        if words:
            yield f"{key} {' '.join(words)}"


def _elements(principal: Principal, key: str) -> set[str]:
    if key == "tokens":
        return {
            one.digest.hex()[:8] + (f" until {one.until.isoformat()}" if one.until else "") for one in principal.tokens
        }
    if key in set(Act):
        return {str(grant.on) for grant in principal.grants if grant.act == key}
    return {str(one) for one in getattr(principal, key)}
