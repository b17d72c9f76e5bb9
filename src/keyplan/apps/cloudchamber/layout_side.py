"""The two layouts by name, for commands, settings and migrations."""

from enum import StrEnum
from typing import Any

from keyplan.apps.cloudchamber.layout import CloudChamber, CloudChamberGo
from keyplan.layout import BoundLayout

__all__ = ["LayoutSide"]


class LayoutSide(StrEnum):
    """One of the two layouts."""

    DOCUMENT = "document"
    GO = "go"

    @property
    def other(self) -> "LayoutSide":
        """The layout that a migration leads to, or comes from."""
        return LayoutSide.GO if self is LayoutSide.DOCUMENT else LayoutSide.DOCUMENT

    def bound(self, namespace: str = "") -> BoundLayout:
        """Return its layout under a name space, without indexes."""
        layout: Any = CloudChamber if self is LayoutSide.DOCUMENT else CloudChamberGo
        bound: BoundLayout = layout.bound(namespace=namespace)
        return bound
