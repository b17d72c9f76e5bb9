"""What the keys of a template begin with whose first fields are given: generated, as keys are, for each number of fields."""

from collections.abc import Callable
from functools import cached_property
from itertools import takewhile
from typing import Any

from keyplan.codec import Element
from keyplan.errors import InvalidKeyError
from keyplan.layout.generated import REFUSALS, generated_function, key_expression
from keyplan.layout.template import Field, Literal, Template, encoded_part

__all__ = ["KeyPrefix", "element_named", "encoded_field"]


class KeyPrefix:
    """The beginning of a template's keys as far as their first `count` fields say it: up to the field after these."""

    def __init__(self, template: Template, count: int) -> None:
        names = template.field_names[:count]
        parts = tuple(takewhile(lambda part: isinstance(part, Literal) or part.name in names, template.parts))
        following = template.parts[len(parts)] if len(parts) < len(template.parts) else None
        self._template = template
        self._prefix = Template(parts, template.is_text)
        self._names = names
        self.is_whole = following is None
        """Whether it is the whole key."""
        self.next_field = following if isinstance(following, Field) and not following.is_derived else None
        """The field that comes right after it: None where the key is complete, or a derived one comes first."""

    @cached_property
    def encode(self) -> Callable[[tuple[object, ...]], bytes]:
        """The function of the fields' values that gives the bytes. It raises InvalidKeyError."""
        if not self._names:
            literals = (
                self._prefix.literal_bytes
            )  # Why nothing is generated: every item of every layout that is bound asks.
            return lambda _: literals
        expression = key_expression(self._prefix)
        if expression is None:
            return self._encoded_slowly
        source = f"""
def encode_prefix(values):
    try:
        {"".join(f"f_{name}, " for name in self._names)} = values
        if {expression.check}:
            return {expression.raw}
    except refusals:
        pass
    return slow(values)
"""
        scope = {**expression.names, "slow": self._encoded_slowly, "refusals": REFUSALS}
        return generated_function("encode_prefix", source, scope)

    def _encoded_slowly(self, values: tuple[object, ...]) -> bytes:
        given = dict(zip(self._names, values, strict=True))
        return b"".join(
            part.raw if isinstance(part, Literal) else encoded_field(self._template, part, given)
            for part in self._prefix.parts
        )


def encoded_field(template: Template, field: Field, given: dict[str, object]) -> bytes:
    """Return the bytes of a field in a key whose fields have these values. Raises InvalidKeyError, which names the field."""
    element, value = element_named(template, field.name), given[field.name]
    try:
        if field.is_derived:
            # Why first: the field's own mistake is named before that of something derived from it.
            element.encode(value)
        return encoded_part(field, element, value)
    except InvalidKeyError as error:
        raise InvalidKeyError(template=template.source, field=field.name, **error.facts) from error


def element_named(template: Template, name: str) -> Element[Any]:
    """Return the codec of the template's field of that name."""
    return next(field.element for field in template.fields if field.name == name)
