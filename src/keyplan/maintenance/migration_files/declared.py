"""The declaration of a migration file: its two layouts, what is consented to, the functions. No store is known here."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeVar

from keyplan.errors import InvalidInputError
from keyplan.maintenance.migration import Conversion, Resolution, Transform

__all__ = ["KeptLayout", "Migration", "is_unwritten", "unwritten"]

F = TypeVar("F", bound=Callable[..., Any])

_UNWRITTEN: Final = "_keyplan_unwritten"


class KeptLayout(NamedTuple):
    """A layout as it was when a migration file was written: its name, and its fingerprint.

    name: the class as `module:Class`, or the name of an installed layout; empty where only the description is left.
    fingerprint: that of the description, which is kept beside the files as `layouts/FINGERPRINT.json`.
    """

    name: str
    fingerprint: str

    def __str__(self) -> str:
        return f"{self.name or 'the layout'} ({self.fingerprint})"


@dataclass(frozen=True, kw_only=True)
class Migration:
    """A migration from one layout to the next, as the object `migration` of its file.

    renames, drops, conversions, transforms, resolutions and accepts are those of `plan_migration`. Raises InvalidInputError for
    what is none of these.
    """

    old: KeptLayout
    new: KeptLayout
    renames: Mapping[str, str] = field(default_factory=dict)
    drops: Collection[str] = ()
    conversions: Mapping[str, Conversion] = field(default_factory=dict)
    transforms: Sequence[Transform] = ()
    resolutions: Mapping[str, Resolution] = field(default_factory=dict)
    accepts: Collection[str] = ()

    def __post_init__(self) -> None:
        for name, what, is_right in (
            ("old", "a KeptLayout", isinstance(self.old, KeptLayout)),
            ("new", "a KeptLayout", isinstance(self.new, KeptLayout)),
            ("renames", "a dict of old names and new ones", _maps(self.renames, str)),
            ("drops", "a tuple of names", _lists(self.drops, str)),
            ("conversions", "a dict of tables and Conversions", _maps(self.conversions, Conversion)),
            ("transforms", "a tuple of Transforms", _lists(self.transforms, Transform)),
            ("resolutions", "a dict of indexes and Resolutions", _maps(self.resolutions, Resolution)),
            ("accepts", "a tuple of names", _lists(self.accepts, str)),
        ):
            if not is_right:
                raise InvalidInputError(source="Migration", problem=f"{name} is not {what}")

    @property
    def functions(self) -> tuple[Callable[..., Any], ...]:
        """The functions that make new records of old ones."""
        return (
            *(conversion.function for conversion in self.conversions.values()),
            *(transform.function for transform in self.transforms),
            *(resolution.function for resolution in self.resolutions.values()),
        )


def unwritten(function: F) -> F:
    """Mark a function that `keyplan migrate new` has drafted, and nobody has written yet: its migration is not run.

    Whoever writes the function takes the line away.
    """
    setattr(function, _UNWRITTEN, True)
    return function


def is_unwritten(function: Callable[..., Any]) -> bool:
    """Return whether a function is only drafted."""
    return hasattr(function, _UNWRITTEN)


def _maps(value: object, kind: type) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(name, str) and isinstance(one, kind) for name, one in value.items()
    )


def _lists(value: object, kind: type) -> bool:
    if not isinstance(value, Collection) or isinstance(value, str | bytes | Mapping):
        return False
    return all(isinstance(one, kind) for one in value)
