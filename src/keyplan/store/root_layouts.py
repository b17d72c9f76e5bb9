r"""Which layouts programs may use at a root, as the store notes it, below the bytes `00 kml` of the system area.

    00 6b 6d 6c <digest of the root>     the layouts, each with its description, and the migration that led to them

No note means that nothing was said, and every layout is welcome. keyplan.maintenance writes it, along with the steps of
migrations; here it is read when a layout is bound.
"""

import hashlib
import json
from collections.abc import Iterable
from functools import cache
from typing import Final, Self

import msgspec

from keyplan.engine import Entry, Put, Snapshot
from keyplan.errors import InvalidInputError
from keyplan.layout import BoundLayout, BoundTable, Layout, LayoutSpec, Table, describe, layout_of_description
from keyplan.limits import NOTED_DESCRIPTION_BYTES_MAX
from keyplan.store.decoding import decode_record

__all__ = [
    "LeftLayout",
    "NotedLayout",
    "RootLayouts",
    "RootNotes",
    "layouts_at",
    "root_key",
    "root_layouts_of",
    "root_note",
]

_PLACE_BYTES: Final = 16


class NotedLayout(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A layout as a root notes it: its fingerprint, its name, and its description as JSON, to compare others with.

    The description is empty where it is too long, or where a later layout of the application is noted behind it.
    """

    fingerprint: str
    name: str
    description: str = ""

    @classmethod
    def of(cls, layout: BoundLayout) -> Self:
        """Note a layout as it is bound."""
        described = json.dumps(describe(layout.spec), separators=(",", ":"))
        return cls(layout.fingerprint, layout.name, described if len(described) <= NOTED_DESCRIPTION_BYTES_MAX else "")

    def __str__(self) -> str:
        return f"{self.name} ({self.fingerprint})"

    @property
    def spec(self) -> LayoutSpec | None:
        """The layout; None without a description. Raises what `layout_of_description` raises."""
        try:
            return layout_of_description(json.loads(self.description)) if self.description else None
        except json.JSONDecodeError as error:
            raise InvalidInputError(source=f"the note of the layout {self}", problem=f"not JSON: {error}") from error


class LeftLayout(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A layout that programs are not to use any more: the name of the migration that led away from it, or was rolled back."""

    fingerprint: str
    name: str
    migration: str
    is_rolled_back: bool = False


class RootLayouts(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The layouts that programs may use at a root now: two while a migration is under way, then one; the newest one last.

    Each application below the root has its own, one behind the other. None where everything was moved below `moved_to`.
    `migration`: the name of the one that led here or `is_under_way`. `left`: the layouts that were left, the latest one last.
    """

    root: bytes
    noted: tuple[NotedLayout, ...]
    moved_to: bytes | None = None
    migration: str = ""
    left: tuple[LeftLayout, ...] = ()
    is_under_way: bool = False

    def of_application(self, *layouts: BoundLayout) -> tuple[NotedLayout, ...]:
        """Return what is noted of the application of these layouts: what has something in common with one of them.

        One without a description goes with the next one that has one, or is one of these. Raises what `NotedLayout.spec`
        raises.
        """
        known = {layout.fingerprint for layout in layouts}
        own: list[NotedLayout] = []
        earlier: list[NotedLayout] = []
        for one in self.noted:
            earlier.append(one)
            if one.fingerprint in known:
                own += earlier
                earlier = []
            elif (spec := one.spec) is not None:
                own += earlier if _share_any(spec, layouts) else ()
                earlier = []
        return (*own, *earlier)

    @property
    def layouts(self) -> tuple[str, ...]:
        """The fingerprints of the layouts."""
        return tuple(one.fingerprint for one in self.noted)


def _share_any(spec: LayoutSpec, layouts: Iterable[BoundLayout]) -> bool:
    # Why here: it takes as long to import as the rest of a layout, and hardly any program needs it.
    from keyplan.layout import share_items  # noqa: PLC0415

    return any(share_items(spec, layout.spec) for layout in layouts)


class RootNotes(Layout, root=b"\x00kml"):
    """What a store notes of its roots. Why by a digest: a root may be too long for a longer key."""

    layouts = Table(f"{{place:fixed(width={_PLACE_BYTES})}}".encode(), key=bytes, value=RootLayouts)


@cache
def _notes() -> BoundTable:
    return RootNotes.bound().tables["layouts"]


def root_key(root: bytes) -> bytes:
    """Return the raw key at which the layouts of a root are noted."""
    return _notes().keys.encode(hashlib.sha256(root).digest()[:_PLACE_BYTES])


def root_note(layouts: RootLayouts) -> Put:
    """Return what notes the layouts of a root."""
    return Put(root_key(layouts.root), _notes().form.encode(layouts))


def root_layouts_of(raw_key: bytes, raw_value: bytes) -> RootLayouts:
    """Return what a note says. Raises CorruptionError."""
    found = decode_record(_notes(), raw_key, raw_value)
    assert isinstance(found, RootLayouts)
    return found


def layouts_at(snapshot: Snapshot, root: bytes) -> RootLayouts | None:
    """Return which layouts programs may use at a root now; None where nothing was noted. Raises CorruptionError."""
    entry: Entry | None = snapshot.get(root_key(root))
    return None if entry is None else root_layouts_of(entry.key, entry.value)
