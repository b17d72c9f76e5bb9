"""What every codec of a key element publishes; the registry of codecs by name.

An element is one typed part of a key. The codecs themselves stand in the modules beside this one (numbers, text, ...);
docs/design/key-encoding.md lists each with its test vectors.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, Final, Generic, NamedTuple, NoReturn, TypeVar

from keyplan.codec.language import Language
from keyplan.errors import InvalidKeyError, TemplateError, UnknownNameError

__all__ = [
    "Element",
    "FastStruct",
    "FastText",
    "Parameter",
    "element_of_spec",
    "register_element",
    "registered_elements",
]

T = TypeVar("T")

Parameter = str | int | bool


class FastText(NamedTuple):
    """How generated code writes and reads a text element without calling the codec.

    `check` is a Python expression over `{v}`, the value; `parse` one over `{raw}`, the bytes of a member of the language.
    `format` is what stands between the braces of an f-string once `{v}` is replaced by the value's name, e.g. "{v}", "{v}.hex"
    or "{v}:04d". When `check` holds, it spells the same characters that `encode` would; otherwise generated code calls the
    codec, which encodes or names the mistake. Literal braces are doubled. `names` are the globals that the expressions use;
    keys must be unique to their object.
    """

    check: str
    format: str
    parse: str
    names: Mapping[str, object]


class FastStruct(NamedTuple):
    """How generated code packs and unpacks a fixed-width element as one item of a big-endian `struct.Struct`.

    `code` is the item's struct code. `pack` is an expression over `{v}` for the item's value; `parse` one over `{raw}`, the
    unpacked item. Whenever `check` (over `{v}`) holds and packing succeeds, the bytes must equal those of `encode`.
    `member` is an expression over `{raw}` that tells members of the language; empty when all bytes of the width are members.
    """

    code: str
    check: str
    pack: str
    parse: str
    names: Mapping[str, object]
    member: str = ""


class Element(ABC, Generic[T]):
    """One typed part of a key: values to bytes and back, and the language of those bytes.

    For every value v that `encode` takes: `decode(encode(v)) == v`; `encode(v)` is a member of `language`; and every member of
    `language` is spelled by exactly one value. Instances are immutable and compare equal when their `spec` is equal.
    """

    code: ClassVar[str]
    """The registered name, e.g. "u64". Never changes its meaning: it stands in stored layouts."""

    is_ordered: ClassVar[bool] = True
    """Whether bytes sort as the values do. When False, `disorder` says which values are out of order."""

    disorder: ClassVar[str] = ""

    attributes: ClassVar[Mapping[str, Callable[[object], object]]] = {}
    """What a template may derive from a value with a dot, e.g. `{path.level}`; checked, not stored, on decoding."""

    @property
    @abstractmethod
    def value_type(self) -> type:
        """The Python type of decoded values."""

    @property
    @abstractmethod
    def language(self) -> Language:
        """Exactly the byte strings that `encode` produces."""

    @abstractmethod
    def encode(self, value: T) -> bytes:
        """Return the bytes of `value`. Raises InvalidKeyError naming the rule that it breaks, before anything is written."""

    @abstractmethod
    def decode(self, raw: bytes) -> T:
        """Return the value that `raw`, the whole element, spells. Raises InvalidKeyError when it is not a member."""

    def encode_start(self, value: T) -> bytes:
        """Return the bytes with which exactly the encodings of values that start with `value` begin (`starts_with=`).

        Only prefix-preserving codecs have it; the others raise InvalidKeyError. An empty `value` gives no bytes.
        """
        self.refuse(value, "starts_with is not possible for this codec")

    def members_where(self, attribute: str, value: object) -> Language | None:
        """Exactly the members whose value has `value` as that attribute; None when they are no regular language.

        The lint divides templates with derived fields by it. A language without words is `Bytes(0)`.
        """
        del attribute, value
        return None

    def is_ended_by(self, attribute: str, following: int) -> bool:
        """Whether the value of the attribute tells where an encoding ends, when a byte of the class `following` comes next.

        Lists are read by the range alone where it does. False is always right.
        """
        del attribute, following
        return False

    def slices(self) -> Sequence[tuple[Language, Language]]:
        """The language divided into regular ones, when it is not regular itself; empty when no division is known.

        Each comes behind one that contains it and whose automaton is small, by which the lint rules most of them out.
        """
        return ()

    def parameters(self) -> dict[str, Parameter]:
        """The parameters that differ from their defaults, in a fixed order: what `spec` prints."""
        return {}

    def fast_text(self) -> FastText | None:
        """How generated code handles the element in a text layout; None when it must call the codec."""
        return None

    def fast_struct(self) -> FastStruct | None:
        """How generated code handles the element in a layout of fixed-width items; None when it must call the codec."""
        return None

    @cached_property
    def spec(self) -> str:
        """The codec as a template or a JSON layout writes it, e.g. "u64" or "decimal(width=4)"; see `element_of_spec`."""
        parameters = ",".join(f"{name}={_printed(value)}" for name, value in self.parameters().items())
        return f"{self.code}({parameters})" if parameters else self.code

    @property
    def width(self) -> int | None:
        """The number of bytes of every encoded value, when it is always the same."""
        return self.language.width

    @property
    def bytes_min(self) -> int:
        return self.language.bytes_min

    @property
    def bytes_max(self) -> int | None:
        return self.language.bytes_max

    def refuse(self, value: object, problem: str, **facts: object) -> NoReturn:
        """Raise InvalidKeyError for `value`; `facts` name the limits involved."""
        raise InvalidKeyError(element=self.spec, value=value, problem=problem, **facts)

    def refuse_as(self, error: InvalidKeyError) -> NoReturn:
        """Raise an inner codec's `error` under this codec's name."""
        raise InvalidKeyError(**{**error.facts, "element": self.spec}) from error

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Element) and other.spec == self.spec

    def __hash__(self) -> int:
        return hash(self.spec)

    def __repr__(self) -> str:
        return f"<element {self.spec}>"


# Why: Any, since a codec of one type of value is not one of `object`; the registry holds them all.
ElementType = TypeVar("ElementType", bound=type[Element[Any]])

_REGISTRY: dict[str, type[Element[object]]] = {}

_SPEC: Final = re.compile(r"(?P<code>[a-z][a-z0-9_]*)(?:\((?P<parameters>.*)\))?")
_PARAMETER: Final = re.compile(
    r"\s*(?P<name>[a-z_]+)\s*=\s*(?:(?P<number>-?\d+)|(?P<flag>true|false)|'(?P<text>(?:[^'\\]|\\.)*)')\s*(?:,|$)"
)


def register_element(kind: ElementType) -> ElementType:
    """Make the codec known under its `code` (a class decorator). Its keyword parameters are those of `parameters()`.

    Raises TemplateError when another class holds the code.
    """
    holder = _REGISTRY.setdefault(kind.code, kind)
    if holder is not kind:
        raise TemplateError(template=kind.code, problem="two codecs have the same code")
    return kind


def registered_elements() -> dict[str, type[Element[object]]]:
    """Every registered codec by its code, sorted."""
    return dict(sorted(_REGISTRY.items()))


def element_of_spec(spec: str) -> Element[object]:
    """Return the codec that `spec` names, e.g. "u64" or "text(bytes_max=64)".

    Raises UnknownNameError for a code that nobody registered and TemplateError for parameters that cannot be read.
    """
    match = _SPEC.fullmatch(spec.strip())
    if match is None:
        raise TemplateError(template=spec, problem="a codec is written name or name(parameter=value,...)")
    kind = _REGISTRY.get(match["code"])
    if kind is None:
        raise UnknownNameError(kind="codec", name=match["code"], known=sorted(_REGISTRY))
    try:
        return kind(**_parameters(spec, match["parameters"] or ""))
    except TypeError as error:
        raise TemplateError(template=spec, problem=f"the codec does not take these parameters ({error})") from error


def _parameters(spec: str, text: str) -> dict[str, Parameter]:
    parameters: dict[str, Parameter] = {}
    position = 0
    while position < len(text):
        match = _PARAMETER.match(text, position)
        if match is None:
            raise TemplateError(
                template=spec, position=position, problem="parameters are numbers, true, false or 'text'"
            )
        if match["name"] in parameters:
            raise TemplateError(template=spec, position=position, problem=f"parameter {match['name']} stands twice")
        if match["number"] is not None:
            parameters[match["name"]] = int(match["number"])
        elif match["flag"] is not None:
            parameters[match["name"]] = match["flag"] == "true"
        else:
            parameters[match["name"]] = re.sub(r"\\(.)", r"\1", match["text"])
        position = match.end()
    return parameters


def _printed(value: Parameter) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
