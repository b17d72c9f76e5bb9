"""Slash-separated paths in binary keys, alone or behind a byte that tells how deep they are.

    path        aaa/bbb/ccc       61 61 61 2f 62 62 62 2f 63 63 63
    level_path  [2]aaa/bbb/ccc    02 61 61 61 2f 62 62 62 2f 63 63 63
    directory   aaa/bbb           61 61 61 2f 62 62 62 2f

With the level in front, the children of a path are exactly the keys that begin with their level, the path and a slash.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Final

from keyplan.codec.element import Element, Parameter, register_element
from keyplan.codec.language import ANY_BYTE, Bytes, Choice, Language, Refined, Repeat, Series, byte_class, literal
from keyplan.codec.limited import limit_parameters, limited, optional_limit, utf8_bytes, utf8_text, within_limit
from keyplan.codec.utf8 import ASCII, character

__all__ = ["Directory", "LevelPath", "SlashPath"]

PATH_COMPONENTS_MAX: Final = 256
"""Why: the level, one less, is stored in one byte."""

_COMPONENT: Final = Repeat(character(ASCII & ~byte_class(b"/\x00")), 1)
_STEP: Final[Language] = Series((_COMPONENT, literal(b"/")))
_PATH: Final[Language] = Series(
    (_COMPONENT, Repeat(Series((literal(b"/"), _COMPONENT)), 0, PATH_COMPONENTS_MAX - 1)),
)


def _path_of_level(level: int) -> Language:
    return Series((_COMPONENT, Repeat(Series((literal(b"/"), _COMPONENT)), level, level)))


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

    def members_where(self, attribute: str, value: object) -> Language | None:
        if attribute != "level" or not isinstance(value, int):
            return None
        is_possible = 0 <= value < PATH_COMPONENTS_MAX
        return limited(_path_of_level(value), self._limit) if is_possible else Bytes(0)

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

    def slices(self) -> Sequence[tuple[Language, Language]]:
        return [
            (level + self._path.language, level + (self._path.members_where("level", number) or Bytes(0)))
            for number in range(PATH_COMPONENTS_MAX)
            for level in (literal(bytes([number])),)
        ]

    def parameters(self) -> dict[str, Parameter]:
        return self._path.parameters()


def _is_level_right(raw: bytes) -> bool:
    return raw[0] == raw.count(b"/", 1)


@register_element
class Directory(Element[str]):
    """Where a path of up to 256 components lies: the components before its last, each followed by "/"; the top is "".

    In front of a name it makes lists of a directory's children exact. Templates may derive `level`, the number of its
    components, which is the level of the paths in it.
    """

    code = "directory"
    is_ordered = False
    disorder = "names with characters before the slash: 'a!' before 'a'"
    attributes: ClassVar[Mapping[str, Callable[[object], object]]] = {"level": lambda value: _directory_level(str(value))}

    @property
    def value_type(self) -> type:
        return str

    @property
    def language(self) -> Language:
        return Repeat(_STEP, 0, PATH_COMPONENTS_MAX - 1)

    def encode(self, value: str) -> bytes:
        raw = utf8_bytes(self, value)
        if not value:
            return raw
        self._check(value)
        return raw + b"/"

    def decode(self, raw: bytes) -> str:
        value = utf8_text(self, raw)
        if not value:
            return value
        if not value.endswith("/"):
            self.refuse(raw, "no slash at the end")
        self._check(value[:-1])
        return value[:-1]

    def encode_start(self, value: str) -> bytes:
        raw = utf8_bytes(self, value)
        if value.startswith("/") or value.endswith("/") or "//" in value or "\x00" in value:
            self.refuse(value, "no directory starts so: a component is empty or holds NUL")
        return raw

    def members_where(self, attribute: str, value: object) -> Language | None:
        if attribute != "level" or not isinstance(value, int) or not 0 <= value < PATH_COMPONENTS_MAX:
            return Choice(())
        return Repeat(_STEP, value, value)

    def _check(self, value: str) -> None:
        components = value.split("/")
        if "" in components:
            self.refuse(value, "a component is empty", component=components.index(""))
        if "\x00" in value:
            self.refuse(value, "NUL in a component", position=value.index("\x00"))
        if len(components) >= PATH_COMPONENTS_MAX:
            self.refuse(
                value, "too many components", components_max=PATH_COMPONENTS_MAX - 1, components_found=len(components)
            )


def _directory_level(value: str) -> int:
    return value.count("/") + 1 if value else 0
