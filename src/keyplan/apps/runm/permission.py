"""Who may read and write a property: which of a definition's entries holds, and what a reader sees of an object. Pure."""

from collections.abc import Iterable, Mapping, MutableSequence
from typing import Any, Final, NamedTuple

from msgspec import structs

from keyplan.apps.runm.records import Object, ObjectDefinition, Property, PropertyPermission
from keyplan.apps.runm.refusal import denied, property_named

__all__ = ["READ", "WRITE", "PropertyRules", "Reader", "allowed", "changed_keys", "rules_of"]

READ: Final = 1
WRITE: Final = 2

_KEY_BYTES: Final = 64
"""What a text of a set takes beside its characters, about."""


class Reader(NamedTuple):
    """Who asks, as far as permissions go.

    `held` are all roles that the caller has, of which `roles` are those of its session; None: the session says it alone.
    `has_every_project`: it is of the project of whatever it looks at.
    """

    project: str
    roles: frozenset[str]
    held: frozenset[str] | None = None
    has_every_project: bool = False

    def at(self, project: str) -> "Reader":
        """Return the reader of every project as it looks at something of one."""
        return self._replace(project=project)


def allowed(permissions: Iterable[PropertyPermission], reader: Reader) -> int:
    """Return what the most specific entries for this reader allow, as bits; everything when there is no entry for it.

    A project's entry for a role comes before one for the project, that before one for a role, that before one for everybody. Of
    several entries of equal rank, a reader with several roles has what any of them allows. 0 denies.
    """
    best, bits = -1, READ | WRITE
    for entry in permissions:
        is_for = entry.project in {"", reader.project} and (not entry.role or entry.role in reader.roles)
        rank = 2 * bool(entry.project) + bool(entry.role)
        if not is_for or rank < best:
            continue
        bits = entry.permission if rank > best else bits | entry.permission
        best = rank
    return bits


class PropertyRules:
    """The permissions of one definition, for one reader."""

    def __init__(self, permissions: Mapping[str, tuple[PropertyPermission, ...]], reader: Reader) -> None:
        bits = {key: allowed(entries, reader) for key, entries in permissions.items()}
        if reader.held is not None:
            # Why: a role may take something away. A session that leaves it out must not see more for that.
            whole = reader._replace(roles=reader.held)
            bits = {key: bit & allowed(permissions[key], whole) for key, bit in bits.items()}
        self._hidden = frozenset(key for key, bit in bits.items() if not bit & READ)
        self._fixed = frozenset(key for key, bit in bits.items() if not bit & WRITE)

    @property
    def size(self) -> int:
        """About how many bytes it takes."""
        return sum(_KEY_BYTES + len(key) for keys in (self._hidden, self._fixed) for key in keys)

    @property
    def hides(self) -> bool:
        """Whether there is a property that the reader may not read."""
        return bool(self._hidden)

    def visible(self, record: Object) -> Object:
        """Return the object without the properties that the reader may not read.

        Searches look at this view alone, so that what cannot be read cannot be found out by searching either.
        """
        if not self._hidden or not any(one.key in self._hidden for one in record.properties):
            return record
        return structs.replace(record, properties=self.seen(record.properties))

    def hide(self, properties: MutableSequence[Any]) -> None:
        """Take out of a message's properties those that the reader may not read."""
        if self._hidden:
            for position in reversed(range(len(properties))):
                if properties[position].key in self._hidden:
                    del properties[position]

    def seen(self, properties: Iterable[Property]) -> tuple[Property, ...]:
        """Return the properties that the reader may read."""
        return tuple(one for one in properties if one.key not in self._hidden)

    def unseen(self, properties: Iterable[Property]) -> tuple[Property, ...]:
        """Return the properties that the reader may not read; an update by this reader keeps them."""
        return tuple(one for one in properties if one.key in self._hidden)

    def require_writable(self, keys: Iterable[str]) -> None:
        """Raise RefusedError, PERMISSION_DENIED, when a key is not the reader's to write."""
        for key in keys if self._fixed else ():
            if key in self._fixed:
                raise denied(f"{property_named(key)} may not be written by this project and role.")


def rules_of(definition: ObjectDefinition | None, reader: Reader) -> PropertyRules:
    """Return what a definition lets a reader do; everything when there is none."""
    entries = () if definition is None else definition.property_permissions
    return PropertyRules({one.key: one.permissions for one in entries}, reader)


def changed_keys(old: Iterable[Property], new: Iterable[Property]) -> frozenset[str]:
    """Return the keys of the properties that are added, changed or removed."""
    return frozenset(key for key, _ in {(one.key, one.value) for one in old} ^ {(one.key, one.value) for one in new})
