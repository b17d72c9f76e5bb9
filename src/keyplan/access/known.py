"""Which operations there are to be granted, as installed packages declare them, and grants that no operation ever asks for.

A package names what it declares by an entry point of the group `keyplan.operations`: a mapping from names to needs, as
`keyplan.operations.needs_of` makes it. Nothing lists operations by hand.
"""

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from difflib import get_close_matches
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Final, NamedTuple

from keyplan.access.policy import Grant, Policy
from keyplan.access.targets import OnApplication, OnKeySpace, OnOperation, OnPrefix, Target
from keyplan.operations import Act, Need, OnKind

__all__ = ["OPERATIONS_GROUP", "IdleGrant", "idle_grants", "known_operations", "problem_of"]

OPERATIONS_GROUP: Final = "keyplan.operations"

_TARGETS: Final = {
    OnKind.KEY_SPACE: "its key space: grant keyspace:NAME, or application:NAME",
    OnKind.APPLICATION: "its application: grant application:NAME",
    OnKind.PREFIX: "the keys that it names: grant prefix:KEY",
}
_KEY_SPACE: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
"""What the name of a key space is made of (KS-13)."""

_NOT_INSTALLED: Final = "if a package that is not installed here has it, all is well"


class IdleGrant(NamedTuple):
    """A grant that lets nobody do anything, with the reason and the remedy."""

    principal: str
    grant: Grant
    problem: str


@cache
def known_operations() -> Mapping[str, Need]:
    """Return all operations that installed packages declare, by name, with what each needs.

    Of a package whose extra is not installed, or that is installed as it was before, nothing is known.
    """
    return _declared(entry_points(group=OPERATIONS_GROUP))


def _operations_at_hand() -> Mapping[str, Need]:
    """Return those that packages declare which this process has imported already: they cost nothing."""
    points = entry_points(group=OPERATIONS_GROUP)
    return _declared(point for point in points if point.module in sys.modules)


def _declared(points: Iterable[EntryPoint]) -> Mapping[str, Need]:
    found: dict[str, Need] = {}
    for point in points:
        # Why suppressed: a package whose extra is not installed has no operations here, and an entry point may be of before.
        with suppress(ImportError, AttributeError):
            found |= point.load()
    return found


def idle_grants(policy: Policy, known: Mapping[str, Need] | None = None) -> Iterator[IdleGrant]:
    """Yield the grants that nothing asks for.

    Those on operations that are misspelt, of another act, or decided elsewhere; and those with a star where none is a pattern.
    Packages that this process has not imported are imported for a grant that none of the others asks for.
    """
    at_hand = None if known is not None else _operations_at_hand()
    for principal, grant in ((one.name, grant) for one in policy.principals for grant in one.grants):
        if not isinstance(grant.on, OnOperation):
            problem = _problem_of_place(grant.on)
        elif at_hand is not None and problem_of(grant.act, grant.on, at_hand) is None:
            continue
        else:
            problem = problem_of(grant.act, grant.on, known_operations() if known is None else known)
        if problem is not None:
            yield IdleGrant(principal, grant, problem)


def problem_of(act: Act, on: OnOperation, known: Mapping[str, Need]) -> str | None:
    """Return why nothing asks for a grant of an act on an operation, or on all of a family; None when something does."""
    if on.name.endswith(".*"):
        return _problem_of_family(act, on, known)
    need = known.get(on.name)
    if need is None:
        near = get_close_matches(on.name, known, n=1)
        meant = f"did you mean operation:{near[0]}?" if near else _NOT_INSTALLED
        return f"there is no operation {on.name}; {meant}"
    if need.on.kind is OnKind.NOTHING:
        return f"{on.name} needs no grant: leave it out"
    if need.on.kind is not OnKind.OPERATION:
        return f"{on.name} is decided on {_TARGETS[need.on.kind]}"
    return None if need.act is act else f"{on.name} needs {need.act}, and {act} is granted: write it under {need.act}"


def _problem_of_place(on: Target) -> str | None:
    """Return why a grant on keys, key spaces or an application is on none, or on other ones than it seems; None otherwise."""
    if isinstance(on, OnKeySpace) and not _KEY_SPACE.fullmatch(on.name):
        return (
            f"no key space can have the name {on.name}: name one, or grant application:NAME for all of an application"
        )
    if isinstance(on, OnApplication) and "*" in on.name:
        return f"no application can have the name {on.name}: name one, or grant everything"
    if isinstance(on, OnPrefix) and on.prefix.endswith(b"*"):
        shorter = on.prefix.rstrip(b"*")
        meant = str(OnPrefix(shorter)) if shorter else "everything"
        return f"it is on keys that begin with a star there: write {meant} for all that begin so without it"
    return None


def _problem_of_family(act: Act, on: OnOperation, known: Mapping[str, Need]) -> str | None:
    needs = [need for name, need in known.items() if on.covers(OnOperation(name))]
    if not needs:
        families = sorted({f"{name.partition('.')[0]}.*" for name in known if "." in name})
        near = get_close_matches(on.name, families, n=1)
        meant = f"did you mean operation:{near[0]}?" if near else _NOT_INSTALLED
        return f"there is no operation whose name begins with {on.name[:-1]}; {meant}"
    if any(need.act is act and need.on.kind is OnKind.OPERATION for need in needs):
        return None
    return f"none of {on.name} needs {act}: leave it out"
