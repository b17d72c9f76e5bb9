"""Roots of the same layout with other parameters that lie below this one: what is there belongs to them.

CloudChamber's production root holds the roots of its tests: `/CloudChamber/V0.1/` and `/CloudChamber/V0.1/Test/Standard/` are
one template with two values. A key that this root's templates do not spell, but that begins with a longer root which the
template can produce, is none of this root's business.
"""

from functools import cached_property

from keyplan.layout import BoundLayout

__all__ = ["NestedRoots"]


class NestedRoots:
    """The roots below one bound layout's root that other parameters give."""

    def __init__(self, bound: BoundLayout) -> None:
        self._template = bound.spec.root
        self._root = bound.root
        self._latest = b""

    @cached_property
    def _states(self) -> frozenset[int]:
        """Where the automaton of roots stands behind this root."""
        states = frozenset({0})
        for byte in self._root:
            states = self._template.automaton.step(states, byte)
        return states

    def root_of(self, raw_key: bytes) -> bytes | None:
        """Return the shortest of these roots that the key lies below; None when it lies below none."""
        if not self._template.fields or not raw_key.startswith(self._root):
            return None
        if self._latest and raw_key.startswith(self._latest):
            return self._latest  # Why: keys come in order, and a nested root holds many.
        states, automaton = self._states, self._template.automaton
        for position in range(len(self._root), len(raw_key)):
            states = automaton.step(states, raw_key[position])
            if not states:
                return None
            prefix = raw_key[: position + 1]
            # Why: the automaton drops long bounds on lengths; the language is exact.
            if not states.isdisjoint(automaton.accepting) and self._template.language.accepts(prefix):
                self._latest = prefix
                return prefix
        return None
