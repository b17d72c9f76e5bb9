"""Slash-separated paths in binary keys, alone or behind a byte that tells how deep they are.

    path        aaa/bbb/ccc       61 61 61 2f 62 62 62 2f 63 63 63
    level_path  [2]aaa/bbb/ccc    02 61 61 61 2f 62 62 62 2f 63 63 63

With the level in front, the children of a path are exactly the keys that begin with their level, the path and a slash.
"""

from collections.abc import Callable, Mapping
from typing import ClassVar, Final

from keyplan.codec.element import Element, Parameter, register_element
from keyplan.codec.language import ANY_BYTE, Bytes, Language, Refined, Repeat, Series, byte_class, literal
from keyplan.codec.limited import limit_parameters, limited, optional_limit, utf8_bytes, utf8_text, within_limit
from keyplan.codec.utf8 import ASCII, character

__all__ = ["LevelPath", "SlashPath"]

PATH_COMPONENTS_MAX: Final = 256
"""Why: the level, one less, is stored in one byte."""

_COMPONENT: Final = Repeat(character(ASCII & ~byte_class(b"/\x00")), 1)
_PATH: Final[Language] = Series(
    (_COMPONENT, Repeat(Series((literal(b"/"), _COMPONENT)), 0, PATH_COMPONENTS_MAX - 1)),
)


def _level(path: object) -> int:
    return str(path).count("/")


def _parent(path: object) -> str:
    return str(path).rpartition("/")[0]


def _name(path: object) -> str:
    return str(path).rpartition("/")[2]


@register_element
class SlashPath(Element[str]):
    """A path of 1 to 256 components joined by "/", in UTF-8; a component is not empty and holds no NUL.

    Templates may derive `level` (the number of slashes), `parent` ("" for a path of one component) and `name`, the last
    component. `bytes_max` bounds the length.
    """

    code = "path"
    attributes: ClassVar[Mapping[str, Callable[[object], object]]] = {"level": _level, "name": _name, "parent": _parent}

    def __init__(self, *, bytes_max: int | None = None) -> None:
        self._limit = optional_limit(self.code, bytes_max, least=1)

    @property
    def value_type(self) -> type:
        return str

    @property
    def language(self) -> Language:
        return limited(_PATH, self._limit)

    def encode(self, value: str) -> bytes:
        raw = utf8_bytes(self, value)
        self._check(value, raw)
        return raw

    def decode(self, raw: bytes) -> str:
        value = utf8_text(self, raw)
        self._check(value, raw)
        return value

    def encode_start(self, value: str) -> bytes:
        raw = utf8_bytes(self, value)
        if value.startswith("/") or "//" in value or "\x00" in value:
            self.refuse(value, "no path starts so: a component is empty or holds NUL")
        return within_limit(self, value, raw, self._limit)

    def parameters(self) -> dict[str, Parameter]:
        return limit_parameters(self._limit)

    def _check(self, value: str, raw: bytes) -> None:
        components = value.split("/")
        if "" in components:
            self.refuse(value, "a component is empty", component=components.index(""))
        if "\x00" in value:
            self.refuse(value, "NUL in a component", position=value.index("\x00"))
        if len(components) > PATH_COMPONENTS_MAX:
            self.refuse(
                value, "too many components", components_max=PATH_COMPONENTS_MAX, components_found=len(components)
            )
        within_limit(self, value, raw, self._limit)


@register_element
class LevelPath(Element[str]):
    """A path as `path` writes it behind one byte with its level, so that the paths of one level stand together.

    `bytes_max` bounds the path without its level.
    """

    code = "level_path"
    attributes: ClassVar[Mapping[str, Callable[[object], object]]] = SlashPath.attributes
    is_ordered = False
    disorder = "paths of different levels: 'b' before 'a/a'"

    def __init__(self, *, bytes_max: int | None = None) -> None:
        self._path = SlashPath(bytes_max=bytes_max)

    @property
    def value_type(self) -> type:
        return str

    @property
    def language(self) -> Language:
        return Refined(Series((Bytes(ANY_BYTE), self._path.language)), _is_level_right)

    def encode(self, value: str) -> bytes:
        raw = self._path.encode(value)
        return bytes([raw.count(b"/")]) + raw

    def decode(self, raw: bytes) -> str:
        value = self._path.decode(raw[1:])
        if not _is_level_right(raw):
            self.refuse(raw, "the level does not count the slashes", level_expected=_level(value), level_found=raw[0])
        return value

    def parameters(self) -> dict[str, Parameter]:
        return self._path.parameters()


def _is_level_right(raw: bytes) -> bool:
    return raw[0] == raw.count(b"/", 1)
