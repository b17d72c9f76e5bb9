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
from keyplan.codec.parameters import flag_parameter, whole_parameter
from keyplan.codec.utf8 import ASCII, character
from keyplan.errors import InvalidKeyError

__all__ = ["Directory", "LevelPath", "SlashPath"]

PATH_COMPONENTS_MAX: Final = 256
"""Why: the level, one less, is stored in one byte."""

_COMPONENT: Final = Repeat(character(ASCII & ~byte_class(b"/\x00")), 1)
_STEP: Final[Language] = Series((_COMPONENT, literal(b"/")))


def _path_of_levels(least: int, most: int) -> Language:
    return _COMPONENT if not most else Series((_COMPONENT, Repeat(Series((literal(b"/"), _COMPONENT)), least, most)))


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
    component. `components_max` bounds the number of components (1: a name), `bytes_max` the length.
    """

    code = "path"
    attributes: ClassVar[Mapping[str, Callable[[object], object]]] = {"level": _level, "name": _name, "parent": _parent}

    def __init__(self, *, components_max: int = PATH_COMPONENTS_MAX, bytes_max: int | None = None) -> None:
        self._components_max = whole_parameter(
            self.code, "components_max", components_max, least=1, most=PATH_COMPONENTS_MAX
        )
        self._limit = optional_limit(self.code, bytes_max, least=1)

    @property
    def value_type(self) -> type:
        return str

    @property
    def language(self) -> Language:
        return limited(_path_of_levels(0, self._components_max - 1), self._limit)

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
        if value.count("/") >= self._components_max:
            self.refuse(value, "too many components", components_max=self._components_max)
        return within_limit(self, value, raw, self._limit)

    def parameters(self) -> dict[str, Parameter]:
        declared: dict[str, Parameter] = {}
        if self._components_max != PATH_COMPONENTS_MAX:
            declared["components_max"] = self._components_max
        return declared | limit_parameters(self._limit)

    def members_where(self, attribute: str, value: object) -> Language | None:
        if attribute != "level" or not isinstance(value, int):
            return None
        is_possible = 0 <= value < self._components_max
        return limited(_path_of_levels(value, value), self._limit) if is_possible else Bytes(0)

    def is_ended_by(self, attribute: str, following: int) -> bool:
        return attribute == "level" and following == byte_class(b"/")

    def _check(self, value: str, raw: bytes) -> None:
        components = value.split("/")
        if "" in components:
            self.refuse(value, "a component is empty", component=components.index(""))
        if "\x00" in value:
            self.refuse(value, "NUL in a component", position=value.index("\x00"))
        if len(components) > self._components_max:
            self.refuse(
                value, "too many components", components_max=self._components_max, components_found=len(components)
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
        try:
            raw = self._path.encode(value)
        except InvalidKeyError as error:
            self.refuse_as(error)
        return bytes([raw.count(b"/")]) + raw

    def decode(self, raw: bytes) -> str:
        try:
            value = self._path.decode(raw[1:])
        except InvalidKeyError as error:
            self.refuse_as(error)
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


def _components(directory: object) -> int:
    return str(directory).count("/") + 1 if directory else 0


def _depth(directory: object) -> int:
    return _components(directory) + 1


@register_element
class Directory(Element[str]):
    """Where a path of up to 256 components lies: the components before its last, each followed by "/"; the top is "".

    In front of a name it makes lists of a directory's children exact. `leading=True` puts a slash before all but the top.
    Templates may derive `level`, the number of components here, and `depth`, that of the paths in it, one more.
    """

    code = "directory"
    is_ordered = False
    disorder = "names with characters before the slash: 'a!' before 'a'"
    attributes: ClassVar[Mapping[str, Callable[[object], object]]] = {
        "depth": _depth,
        "level": _components,
    }

    def __init__(self, *, leading: bool = False) -> None:
        self._has_leading = flag_parameter(self.code, "leading", leading)
        self._leading = "/" if leading else ""

    @property
    def value_type(self) -> type:
        return str

    @property
    def language(self) -> Language:
        return self._of_levels(0, PATH_COMPONENTS_MAX - 1)

    def encode(self, value: str) -> bytes:
        raw = utf8_bytes(self, value)
        if not value:
            return raw
        self._check(value)
        return self._leading.encode() + raw + b"/"

    def decode(self, raw: bytes) -> str:
        text = utf8_text(self, raw)
        if not text:
            return text
        if not (text.startswith(self._leading) and text.endswith("/")):
            self.refuse(raw, "a directory is spelled with a slash at its end" + " and its start" * self._has_leading)
        value = text[len(self._leading) : -1]
        self._check(value)
        return value

    def encode_start(self, value: str) -> bytes:
        raw = utf8_bytes(self, value)
        if value.startswith("/") or value.endswith("/") or "//" in value or "\x00" in value:
            self.refuse(value, "no directory starts so: a component is empty or holds NUL")
        return self._leading.encode() + raw if value else raw

    def parameters(self) -> dict[str, Parameter]:
        return {"leading": True} if self._has_leading else {}

    def members_where(self, attribute: str, value: object) -> Language | None:
        if attribute not in self.attributes or not isinstance(value, int):
            return None
        level = value - 1 if attribute == "depth" else value
        return self._of_levels(level, level) if 0 <= level < PATH_COMPONENTS_MAX else Bytes(0)

    def is_ended_by(self, attribute: str, following: int) -> bool:
        return attribute in {"level", "depth"}

    def _of_levels(self, least: int, most: int) -> Language:
        if not most:
            return Series(())
        inside = Series((literal(self._leading.encode()), Repeat(_STEP, max(least, 1), most)))
        return inside if least else Choice((Series(()), inside))

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
