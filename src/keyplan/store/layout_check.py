"""Whether a layout that is bound to a store is one that programs may use there, as the store notes it; said once for each."""

import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, Literal, get_args
from weakref import WeakSet

from keyplan.engine import Engine
from keyplan.errors import InvalidInputError, KeyplanError, LayoutMismatchError
from keyplan.layout import BoundLayout, shown_key
from keyplan.store.root_layouts import LeftLayout, NotedLayout, RootLayouts, root_key, root_layouts_of

if TYPE_CHECKING:
    from keyplan.layout import LayoutChange

__all__ = ["LAYOUT_CHECKS", "LayoutCheck", "LayoutChecker", "LayoutWarning", "checked_reaction"]

LayoutCheck = Literal["warn", "refuse", "off"]
"""What a store does about a layout that is not its own: a LayoutWarning, LayoutMismatchError, or nothing."""

LAYOUT_CHECKS: Final[tuple[LayoutCheck, ...]] = get_args(LayoutCheck)

_SHOWN_MAX: Final = 8
"""How many differences are told. Why: two layouts that have nothing in common differ in everything."""


class LayoutWarning(UserWarning):
    """A layout was bound to a store that notes another one for its root: what LayoutMismatchError says, as a warning."""


_TO_WHO_BINDS: Final = 4
"""From `say` up to the line that binds a layout: over `check`, `check_layout` of a binding, and `Layout.__init__`."""


def checked_reaction(given: str) -> LayoutCheck:
    """Return the word for a reaction. Raises InvalidInputError for every other one."""
    for known in LAYOUT_CHECKS:
        if given == known:
            return known
    raise InvalidInputError(source="layout_check", problem=f"{given!r} is not {', '.join(LAYOUT_CHECKS)}")


class LayoutChecker:
    """Compares the layouts that are bound to one store with what it notes. Safe for use by several threads.

    A layout is looked at when it is bound first: one short read. What becomes of the store afterwards is not noticed.
    """

    def __init__(self, engine: Engine, reaction: LayoutCheck) -> None:
        self._engine = engine
        self._reaction = checked_reaction(reaction)
        self.known: WeakSet[BoundLayout] | None = None if self._reaction == "off" else WeakSet()
        """The layouts that were looked at; None where none is."""

    def is_due(self, layout: BoundLayout) -> bool:
        """Whether the layout is to be looked at still."""
        return self.known is not None and layout not in self.known

    def check(self, layout: BoundLayout) -> None:
        """Look at a layout that is being bound, and say what is wrong with it.

        Raises LayoutMismatchError where the store refuses. A store that refuses raises what kept it from looking as well; one
        that warns goes on, and looks again at the next binding.
        """
        self.say(layout, self.mismatch(layout), callers=_TO_WHO_BINDS)

    def mismatch(self, layout: BoundLayout) -> KeyplanError | None:
        """Return what is wrong with a layout in this store, or what kept the store from saying it. None: nothing."""
        raw_key = root_key(layout.root)
        try:
            raw_value = self._engine.value(raw_key)
            return None if raw_value is None else mismatch_of(layout, root_layouts_of(raw_key, raw_value))
        except KeyplanError as error:
            return error

    def say(self, layout: BoundLayout, found: KeyplanError | None, *, callers: int = 1) -> None:
        """Warn of what was found, or raise it; see `check`. `callers`: how far above is the line that is to blame."""
        if found is not None and self._reaction == "refuse":
            raise found
        if isinstance(found, LayoutMismatchError):
            warnings.warn(str(found), LayoutWarning, stacklevel=callers + 1)
        # Why behind the warning: where it is made an error, the next binding is to fail as well.
        if self.known is not None and (found is None or isinstance(found, LayoutMismatchError)):
            self.known.add(layout)


def mismatch_of(layout: BoundLayout, found: RootLayouts) -> LayoutMismatchError | None:
    """Return why a layout is none that programs may use at its root; None where it is one, or fits one.

    One that was left fits none. Another one does where no difference concerns a program that has it: see
    `keyplan.layout.program_differences`.
    """
    if layout.fingerprint in found.layouts:
        return None
    left = next((one for one in found.left if one.fingerprint == layout.fingerprint), None)
    own = found.of_application(layout)
    changes = _changes(layout, own)
    if left is None and not changes:
        return None
    facts: dict[str, object] = {"layout": f"{layout.name} ({layout.fingerprint})", "root": shown_key(layout.root)}
    # Why all without: a migration may have left nothing in common.
    stored = own or found.noted
    if stored:
        facts["stored"] = ", ".join(map(str, stored))
    facts["problem"] = _why(found, left, is_shared=stored != found.noted)
    if changes:
        more = [f"and {len(changes) - _SHOWN_MAX} more"] if len(changes) > _SHOWN_MAX else []
        facts["differences"] = (*(f"{one.subject}: {one.message}" for one in changes[:_SHOWN_MAX]), *more)
    ours = f"run a program of {stored[-1].name}" if stored else "run a program of the layout that is there"
    ahead = "; or bring the store along: `keyplan migrate status` says what is due"
    facts["advice"] = ours + ("" if left is not None and not left.is_rolled_back else ahead)
    return LayoutMismatchError(**facts)


def _changes(layout: BoundLayout, noted: Iterable[NotedLayout]) -> tuple["LayoutChange", ...]:
    """Return what differs from the newest of the layouts that are noted; nothing where a program of this one may use one."""
    # Why here: it takes as long to import as the rest of a layout, and hardly any program needs it.
    from keyplan.layout import program_differences  # noqa: PLC0415

    specs = [spec for one in noted if (spec := one.spec) is not None]
    each = [program_differences(spec, layout) for spec in specs]
    return each[-1] if each and all(each) else ()


def _why(found: RootLayouts, left: LeftLayout | None, *, is_shared: bool) -> str:
    """Return how the store came to be in another layout. `is_shared`: the last migration may be another application's."""
    place = (
        "" if found.moved_to is None else f", and everything is below {shown_key(found.moved_to) or 'the empty root'}"
    )
    if left is not None:
        how = "was rolled back, which led to it" if left.is_rolled_back else "has led away from it"
        return f"{left.migration} {how}{place}"
    if is_shared or not found.migration:
        return "another one is noted"
    if found.is_under_way:
        return f"{found.migration} is under way between others"
    is_rolled_back = any(one.is_rolled_back for one in found.left if one.migration == found.migration)
    return f"the last migration, {found.migration}, {'was rolled back' if is_rolled_back else 'has led to another one'}"
