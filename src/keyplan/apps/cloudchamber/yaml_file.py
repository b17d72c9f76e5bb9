"""A YAML file as a tree of nodes that know their line: mappings with merges applied, sequences, scalars as they are written.

Built from the parser's events rather than by its loader: nothing in a file can make objects, a doubled key is an error, scalars
are read as what their place asks for, and neither deep nesting nor chains of aliases can exhaust memory. PyYAML, an extra, is
imported here alone.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn, TypeAlias

from keyplan.errors import InvalidInputError

__all__ = [
    "FILE_BYTES_MAX",
    "NESTING_MAX",
    "YamlItem",
    "YamlMapping",
    "YamlNode",
    "YamlScalar",
    "YamlSequence",
    "load_yaml_file",
    "parse_yaml",
]

FILE_BYTES_MAX: Final = 64 << 20
"""Why: 64 MiB spell about 200,000 blades out; a definition of that size should use anchors, or several stores."""

NESTING_MAX: Final = 64
"""Why: a definition nests 12 levels; the bound keeps recursion over a hostile file shallow."""

_TOO_DEEP: Final = f"the file nests deeper than {NESTING_MAX} levels"

_LIBYAML_TOO_DEEP: Final = "exceeded maximum nesting depth"
"""Why: libyaml, since 0.2.6, has a bound of its own, a thousand, and its scanner may reach it before we see the 65th level."""


@dataclass(frozen=True, slots=True, eq=False)
class YamlScalar:
    """A scalar as written. `is_plain`: without quotes, so that an empty one or `~` means nothing at all."""

    text: str
    is_plain: bool
    line: int


@dataclass(frozen=True, slots=True, eq=False)
class YamlSequence:
    """A list."""

    items: tuple["YamlNode", ...]
    line: int


class YamlItem(NamedTuple):
    """A key of a mapping as written, the line it stands on, and what it holds."""

    name: str
    line: int
    node: "YamlNode"


@dataclass(frozen=True, slots=True, eq=False)
class YamlMapping:
    """Items by key, folded to lower case; a mapping's own items come before those merged into it."""

    items: Mapping[str, YamlItem]
    line: int


YamlNode: TypeAlias = YamlScalar | YamlSequence | YamlMapping


def load_yaml_file(path: Path, what: str) -> YamlNode | None:
    """Read a file; None when there is nothing in it. Raises InvalidInputError with the file's name and line.

    `what` names the kind of file, for the error when there is none.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(FILE_BYTES_MAX + 1)
    except FileNotFoundError as error:
        raise InvalidInputError(source=str(path), problem=f"no {what} found at {path} (yaml)") from error
    except OSError as error:
        raise InvalidInputError(source=str(path), problem=f"the file cannot be read: {error.strerror}") from error
    if len(raw) > FILE_BYTES_MAX:
        raise InvalidInputError(source=str(path), problem=f"the file is longer than {FILE_BYTES_MAX} bytes")
    return parse_yaml(raw, source=str(path))


def parse_yaml(raw: bytes, *, source: str) -> YamlNode | None:
    """Read one YAML document; None when there is none. Raises InvalidInputError with `source` and line."""
    # Why: the import waits for the first file: neither the layout nor `--help` needs the extra.
    try:
        import yaml  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise InvalidInputError(
            source=source, problem="YAML needs the package 'pyyaml': pip install 'keyplan[yaml]'"
        ) from error
    try:
        text = raw.decode("utf-8-sig")
        loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        return _Builder(source).build(yaml.parse(text, Loader=loader))
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise InvalidInputError(source=source, line=line, problem="the file is not UTF-8") from error
    except yaml.YAMLError as error:
        # Why: the parser's own sentence, without the lines of the file that it would quote.
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "it is no YAML"
        facts = {"line": mark.line + 1} if mark is not None else {}
        if problem == _LIBYAML_TOO_DEEP:
            raise InvalidInputError(source=source, **facts, problem=_TOO_DEEP) from error
        raise InvalidInputError(source=source, **facts, problem=f"the file is not valid YAML: {problem}") from error


@dataclass(slots=True)
class _Open:
    """A mapping or sequence whose end was not seen yet: its children so far, keys and values in turn."""

    anchor: str | None
    line: int
    is_mapping: bool
    children: list[YamlNode] = field(default_factory=list)


class _Builder:
    """From events to a tree, without recursion. An alias is the very node of its anchor, so that no node is made twice."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._anchors: dict[str, YamlNode] = {}
        self._open: list[_Open] = []
        self._root: YamlNode | None = None

    def build(self, events: Iterator[Any]) -> YamlNode | None:
        for event in events:
            match type(event).__name__:
                case "ScalarEvent":
                    self._check_tag(event)
                    is_plain = event.style is None or event.style == ""
                    self._close(YamlScalar(event.value, is_plain, _line(event)), event.anchor)
                case "AliasEvent":
                    self._close(self._aliased(event), None)
                case "MappingStartEvent" | "SequenceStartEvent" as kind:
                    self._check_tag(event)
                    if len(self._open) >= NESTING_MAX:
                        self._refuse(_line(event), _TOO_DEEP)
                    self._open.append(_Open(event.anchor, _line(event), kind == "MappingStartEvent"))
                case "MappingEndEvent" | "SequenceEndEvent":
                    opened = self._open.pop()
                    self._close(self._made(opened), opened.anchor)
                case "DocumentStartEvent" if self._root is not None:
                    self._refuse(_line(event), "the file holds more than one document")
                case _:
                    pass
        return self._root

    def _close(self, node: YamlNode, anchor: str | None) -> None:
        if anchor is not None:
            self._anchors[anchor] = node
        if self._open:
            self._open[-1].children.append(node)
        else:
            self._root = node

    def _made(self, opened: _Open) -> YamlNode:
        if not opened.is_mapping:
            return YamlSequence(tuple(opened.children), opened.line)
        own: dict[str, YamlItem] = {}
        merged: YamlNode | None = None
        for key, value in zip(opened.children[::2], opened.children[1::2], strict=True):
            if not isinstance(key, YamlScalar):
                self._refuse(key.line, "the key of a mapping is a single word")
            name = key.text
            if name == "<<" and key.is_plain:
                if merged is not None:
                    self._refuse(key.line, "the key '<<' stands twice in one mapping; merge a list of anchors instead")
                merged = value
                continue
            earlier = own.get(name.casefold())
            if earlier is not None:
                self._refuse(key.line, f"the key {name!r} stands twice in one mapping, first in line {earlier.line}")
            own[name.casefold()] = YamlItem(name, key.line, value)
        for source in self._merge_sources(merged):
            for folded, item in source.items.items():
                own.setdefault(folded, item)
        return YamlMapping(own, opened.line)

    def _merge_sources(self, merged: YamlNode | None) -> list[YamlMapping]:
        """The mappings to merge, the strongest first."""
        if merged is None:
            return []
        sources = merged.items if isinstance(merged, YamlSequence) else (merged,)
        found: list[YamlMapping] = []
        for source in sources:
            if not isinstance(source, YamlMapping):
                self._refuse(merged.line, "only mappings can be merged with '<<'")
            # Why: once is enough, and a chain of doubled merges would take time that doubles with each.
            if not any(source is other for other in found):
                found.append(source)
        return found

    def _aliased(self, event: Any) -> YamlNode:
        node = self._anchors.get(event.anchor)
        if node is None:
            self._refuse(_line(event), f"there is no anchor {event.anchor!r} before this alias")
        return node

    def _check_tag(self, event: Any) -> None:
        if event.tag is not None and event.tag != "!":
            self._refuse(_line(event), "tags are not part of an inventory definition")

    def _refuse(self, line: int, problem: str) -> NoReturn:
        raise InvalidInputError(source=self._source, line=line, problem=problem)


def _line(event: Any) -> int:
    return int(event.start_mark.line) + 1
