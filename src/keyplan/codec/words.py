"""Text elements of a fixed shape: a word from a list, and a name that stands between fixed characters or is left out.

word(words='actual target')                                actual
enclosed(before='Test/',after='/',empty=true)              Test/Standard/   or nothing at all
"""

from collections.abc import Sequence
from typing import Final

from keyplan.codec.element import Element, FastText, Parameter, register_element
from keyplan.codec.language import Choice, Language, Series, literal
from keyplan.codec.limited import utf8_bytes, utf8_text
from keyplan.codec.parameters import ascii_parameter, flag_parameter, whole_parameter
from keyplan.codec.ranges import one_of
from keyplan.codec.text import Text
from keyplan.errors import InvalidKeyError, TemplateError
from keyplan.limits import TEXT_ELEMENT_BYTES_MAX

__all__ = ["Enclosed", "Word"]

WORDS_MAX: Final = 256
"""Why: a list of words is a spelled-out enumeration; more than a byte could number is a table of its own."""


@register_element
class Word(Element[str]):
    """One of the words in `words` (printable ASCII, separated by spaces); nothing else is a member."""

    code = "word"

    def __init__(self, *, words: str) -> None:
        self._words: Sequence[str] = sorted(set(ascii_parameter(self.code, "words", words).split()))
        if not 1 <= len(self._words) <= WORDS_MAX:
            raise TemplateError(template=self.code, problem=f"words must list 1 to {WORDS_MAX} words", value=words)
        self._known = frozenset(self._words)

    @property
    def value_type(self) -> type:
        return str

    @property
    def language(self) -> Language:
        return one_of([literal(word.encode()) for word in self._words])

    def encode(self, value: str) -> bytes:
        raw = utf8_bytes(self, value)
        self._check(value)
        return raw

    def decode(self, raw: bytes) -> str:
        value = utf8_text(self, raw)
        self._check(value)
        return value

    def encode_start(self, value: str) -> bytes:
        raw = utf8_bytes(self, value)
        if not any(word.startswith(value) for word in self._words):
            self.refuse(value, "no word starts so", words=list(self._words))
        return raw

    def parameters(self) -> dict[str, Parameter]:
        return {"words": " ".join(self._words)}

    def fast_text(self) -> FastText | None:
        # Why: names must be unique to their object, since a key's expressions share one set of globals.
        words = f"words_{id(self._known):x}"
        check = f"{{v}}.__class__ is str and {{v}} in {words}"
        return FastText(check=check, format="{v}", parse="{raw}.decode()", names={words: self._known})

    def _check(self, value: str) -> None:
        if value not in self._known:
            self.refuse(value, "not one of the words", words=list(self._words))


@register_element
class Enclosed(Element[str]):
    """A name as `text` writes it between the fixed characters `before` and `after`, which are part of the value.

    `empty=True` also allows the empty value, without `before` and `after`: a directory that may be left out. `exclude`,
    `bytes_max` and `dots` are those of `text` and apply to the name.
    """

    code = "enclosed"

    def __init__(
        self,
        *,
        before: str = "",
        after: str = "",
        exclude: str = "/",
        bytes_max: int = TEXT_ELEMENT_BYTES_MAX,
        dots: bool = True,
        empty: bool = False,
    ) -> None:
        self.before = ascii_parameter(self.code, "before", before)
        self.after = ascii_parameter(self.code, "after", after)
        self._exclude = "".join(sorted(set(ascii_parameter(self.code, "exclude", exclude))))
        self._limit = whole_parameter(self.code, "bytes_max", bytes_max, least=1)
        self._has_dots = dots
        self.is_empty_allowed = flag_parameter(self.code, "empty", empty)
        self.name = Text(exclude=exclude, bytes_max=bytes_max, dots=dots)
        if not before and not after:
            raise TemplateError(template=self.code, problem="nothing encloses the name; text does that")

    @property
    def value_type(self) -> type:
        return str

    @property
    def language(self) -> Language:
        whole = Series((literal(self.before.encode()), self.name.language, literal(self.after.encode())))
        return Choice((Series(()), whole)) if self.is_empty_allowed else whole

    def encode(self, value: str) -> bytes:
        raw = utf8_bytes(self, value)
        self._check(value)
        return raw

    def decode(self, raw: bytes) -> str:
        value = utf8_text(self, raw)
        self._check(value)
        return value

    def parameters(self) -> dict[str, Parameter]:
        declared: dict[str, Parameter] = {}
        if self.before:
            declared["before"] = self.before
        if self.after:
            declared["after"] = self.after
        if self._exclude != "/":
            declared["exclude"] = self._exclude
        if self._limit != TEXT_ELEMENT_BYTES_MAX:
            declared["bytes_max"] = self._limit
        if not self._has_dots:
            declared["dots"] = False
        if self.is_empty_allowed:
            declared["empty"] = True
        return declared

    def _check(self, value: str) -> None:
        if not value and self.is_empty_allowed:
            return
        start, end = len(self.before), len(value) - len(self.after)
        if end < start or not (value.startswith(self.before) and value.endswith(self.after)):
            self.refuse(
                value, "the name does not stand between the fixed characters", before=self.before, after=self.after
            )
        try:
            self.name.encode(value[start:end])
        except InvalidKeyError as error:
            self.refuse_as(error)
