"""Key fields as words and records as plain JSON values, as keyplan.layout spells them, under the name that commands import."""

from keyplan.layout import (
    key_of_words,
    line_of_value,
    plain_key,
    plain_value,
    prefix_of_words,
    text_of_value,
    value_of_text,
)

__all__ = [
    "key_of_words",
    "line_of_value",
    "plain_key",
    "plain_value",
    "prefix_of_words",
    "text_of_value",
    "value_of_text",
]
