"""Decoding by every split that the languages of a template's parts allow: for keys that its pattern alone reads wrongly."""

from collections.abc import Callable, Iterator

from keyplan.errors import InvalidKeyError
from keyplan.layout.spec import KeyShape
from keyplan.layout.template import Field, Template, encoded_part

__all__ = ["exact_decoder"]


def exact_decoder(
    template: Template, shape: KeyShape, encode: Callable[[object], bytes]
) -> Callable[[bytes], object | None]:
    """Return a function that gives the key for its bytes, None for bytes that are no key, and that never raises.

    `encode` has the last word: a key is one that it encodes to the same bytes.
    """

    def decode_exactly(raw: bytes) -> object | None:
        for values in _Splits(template, raw).found():
            try:
                key = values[0] if shape.is_scalar else shape.make(*values)
                if encode(key) == raw:
                    return key
            except InvalidKeyError:
                continue  # Why: what a codec refuses is not this split.
        return None

    return decode_exactly


class _Splits:
    """The divisions of one raw key into parts, those left out early whose derived fields are not what their sources say."""

    def __init__(self, template: Template, raw: bytes) -> None:
        self._parts = template.parts
        self._raw = raw
        self._elements = {field.name: field.element for field in template.fields}
        self._names = {part.name for part in template.parts if isinstance(part, Field) and part.is_derived}
        self._hopeless: set[tuple[object, ...]] = set()

    def found(self) -> Iterator[tuple[object, ...]]:
        """Yield the values of the template's fields, in their order, of each division."""
        return self._rest(0, 0, (), ())

    def _rest(
        self, number: int, start: int, values: tuple[object, ...], bound: tuple[tuple[Field, object], ...]
    ) -> Iterator[tuple[object, ...]]:
        """The divisions from `start` on. `bound`: what was read of fields that are derived or that others are derived from."""
        if number == len(self._parts):
            if start == len(self._raw):
                yield values
            return
        state = (number, start, *((field.reference, repr(value)) for field, value in bound))
        if state in self._hopeless:
            return
        is_hopeless = True
        part = self._parts[number]
        for end in sorted(part.language.ends(self._raw, start), reverse=True):
            if not isinstance(part, Field):
                found = self._rest(number + 1, end, values, bound)
            else:
                spelled = self._raw[start:end]
                try:
                    value = part.element.decode(spelled)
                    if part.name in self._names and not self._agrees(part, spelled, value, bound):
                        continue
                except InvalidKeyError:
                    continue
                read = values if part.is_derived else (*values, value)
                kept = (*bound, (part, spelled if part.is_derived else value)) if part.name in self._names else bound
                found = self._rest(number + 1, end, read, kept)
            for whole in found:
                is_hopeless = False
                yield whole
        if is_hopeless:
            self._hopeless.add(state)

    def _agrees(self, part: Field, spelled: bytes, value: object, bound: tuple[tuple[Field, object], ...]) -> bool:
        """Whether a part is what those read before it say, of the same field."""
        element = self._elements[part.name]
        for other, known in bound:
            if other.name != part.name:
                continue
            if part.is_derived and not other.is_derived and encoded_part(part, element, known) != spelled:
                return False
            if other.is_derived and not part.is_derived and encoded_part(other, element, value) != known:
                return False
        return True
