"""The permissions that definitions give, kept while the definitions that they were made of are in the store as they were."""

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from keyplan.apps.runm.definitions import resolved
from keyplan.apps.runm.deployment import State
from keyplan.apps.runm.permission import PropertyRules, Reader, rules_of
from keyplan.apps.runm.read_ahead import Scope, remember
from keyplan.engine import Fences
from keyplan.store import NotedState, PinnedState, holds_in

__all__ = ["bytes_of", "rules_in"]

_BYTES_MAX: Final = 20_000
"""Of rules that are kept, with the definitions that they were made of. Why: clients write roles, and thousands are kept."""


class _Kept(NamedTuple):
    """The rules that hold in every state where the fences do."""

    rules: PropertyRules
    fences: Fences


def rules_in(state: State, scope: Scope, reader: Reader) -> PropertyRules:
    """Return what holds for objects of a scope in a state. Raises CorruptionError when a definition cannot be read.

    In a pinned state it is what was made before, as long as all that it was made of has the same value here: no time, revision
    or notice of a change is trusted. A transaction reads the definitions, since they are its premises.
    """
    if not isinstance(state.binding, PinnedState):
        return _made(state, scope, reader)
    kept: dict[Any, _Kept] = state.ahead.rules
    known = kept.get((scope, reader))
    if known is not None and holds_in(state.binding, known.fences):
        return known.rules
    noted = NotedState.of(state.binding)
    rules = _made(state.bound_to(noted), scope, reader)
    fences = noted.fences()
    if fences is not None and _size(scope, reader, fences) <= _BYTES_MAX:
        remember(kept, (scope, reader), _Kept(rules, fences))
    return rules


def bytes_of(fences: Iterable[tuple[bytes, bytes | None]]) -> int:
    """Return how many bytes the values of fences have."""
    return sum(len(value) for _, value in fences if value is not None)


def _made(state: State, scope: Scope, reader: Reader) -> PropertyRules:
    found = resolved(state, scope)
    return rules_of(None if found is None else found[1], reader)


def _size(scope: Scope, reader: Reader, fences: Fences) -> int:
    texts = scope.object_type, scope.sub_type, reader.project, *reader.roles
    return sum(map(len, texts)) + bytes_of(fences)
