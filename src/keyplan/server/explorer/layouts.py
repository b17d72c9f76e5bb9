"""The layouts that the explorer reads keys by: those it was given, and those of key spaces by their application's name."""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from importlib.metadata import EntryPoint
from typing import NamedTuple
from urllib.parse import parse_qsl

from keyplan.errors import InvalidInputError, KeyplanError
from keyplan.keyspace import KeySpaceRegistry
from keyplan.layout import BoundLayout
from keyplan.store import installed_layouts, layout_named, root_values

__all__ = ["LayoutBook", "ShownLayout", "read_layouts", "registry_layout"]

_SOURCE = "explorer.layout"
_OF_KEY_SPACE = "layout."


class ShownLayout(NamedTuple):
    """A layout, and the name by which pages and links call it, alone of its area."""

    label: str
    bound: BoundLayout


class LayoutBook:
    """The layouts of the whole store, and of each key space."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        """Read the settings `layout` and `layout.KEYSPACE`. Raises InvalidInputError, UnknownNameError, InvalidKeyError."""
        self.given = read_layouts(settings.get("layout", ""))
        self._of_keyspace = {
            name.removeprefix(_OF_KEY_SPACE): read_layouts(settings[name])
            for name in settings
            if name.startswith(_OF_KEY_SPACE)
        }
        self._of_application = lru_cache(256)(_layouts_of_application)

    def of_keyspace(self, name: str, application: str) -> tuple[ShownLayout, ...]:
        """Return the layouts of a key space.

        Those that a setting names for it; else the installed ones that are called like its application, or begin with that name
        and a dash; else those of the whole store.
        """
        own = self._of_keyspace.get(name)
        return own if own is not None else self._of_application(application) or self.given


def registry_layout() -> ShownLayout:
    """The layout of the registry of key spaces itself."""
    return ShownLayout("keyspace", KeySpaceRegistry.bound())


def read_layouts(text: str) -> tuple[ShownLayout, ...]:
    """Read `NAME[?PARAMETER=VALUE&...],...`: installed names, module:Class, FILE.json; with values of the root's parameters.

    Raises InvalidInputError, UnknownNameError, InvalidKeyError.
    """
    found: list[ShownLayout] = []
    for word in filter(None, (part.strip() for part in text.split(","))):
        name, _, parameters = word.partition("?")
        try:
            pairs = parse_qsl(parameters, keep_blank_values=True, strict_parsing=bool(parameters))
        except ValueError as error:
            raise InvalidInputError(source=_SOURCE, problem=f"{word!r} is not NAME?PARAMETER=VALUE&...") from error
        kind = layout_named(name, source=_SOURCE)
        bound = kind.bound(**root_values(kind, pairs, source=_SOURCE))
        label = name if name in installed_layouts() else bound.name
        found.append(ShownLayout(_unused(label, found), bound))
    return tuple(found)


def _unused(label: str, others: list[ShownLayout]) -> str:
    """The label, with a number behind it where another layout has it."""
    taken = {other.label for other in others}
    number = 2
    name = label
    while name in taken:
        name = f"{label}-{number}"
        number += 1
    return name


def _layouts_of_application(application: str) -> tuple[ShownLayout, ...]:
    return tuple(_bound(name, entry) for name, entry in _called(application)) if application else ()


def _called(application: str) -> Iterator[tuple[str, EntryPoint]]:
    for name, entry in installed_layouts().items():
        if (name == application or name.startswith(f"{application}-")) and _is_usable(entry):
            yield name, entry


def _is_usable(entry: EntryPoint) -> bool:
    """Tell whether the layout can be imported here, and bound without parameters."""
    try:
        entry.load().bound()
    except (ImportError, KeyplanError):
        return False
    return True


def _bound(name: str, entry: EntryPoint) -> ShownLayout:
    return ShownLayout(name, entry.load().bound())
