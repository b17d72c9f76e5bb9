"""Which of the two uses a layout instance has: the synchronous one, or the asynchronous one. For type checkers alone.

A layout that is declared as `class Site(Layout[Mode])` is `Site[Sync]` on a store of keyplan, and `Site[Async]` on one of
keyplan.aio; `Site` alone means the first. What an item answers follows from it (docs/decisions).
"""

from collections.abc import Container
from typing import TYPE_CHECKING, Protocol, TypeVar

from keyplan.codec import SecretCipher
from keyplan.layout.bound import BoundLayout

__all__ = ["Async", "Bindable", "Mode", "Sync", "Use_co"]


class Sync:
    """Operations return what they say."""


class Async:
    """Operations are awaited, lists and watches are iterated with `async for`, blocks are entered with `async with`."""


if TYPE_CHECKING:
    # Why: a default of a type variable, which the standard library has from 3.13 on; checkers know it without the package.
    from typing_extensions import TypeVar as _TypeVar

    Mode = _TypeVar("Mode", Sync, Async, default=Sync)
else:
    Mode = TypeVar("Mode", Sync, Async)

Use_co = TypeVar("Use_co", covariant=True)


class Bindable(Protocol[Use_co]):
    """What a layout can be bound to, in either use.

    `secrets` has the keys of secrets that are sealed in the store. `known_layouts` are those that were looked at, and need not
    be given to `check_layout` when they are bound once more; None where no layout is looked at.
    """

    secrets: SecretCipher | None = None
    known_layouts: Container[BoundLayout] | None = None

    @property
    def use(self) -> type[Use_co]:
        """Sync or Async."""
        ...

    def check_layout(self, layout: BoundLayout) -> None:
        """Say, or refuse, that a layout that is being bound is not the one that the store is in. Raises LayoutMismatchError."""
        return
