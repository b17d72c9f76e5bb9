"""What codecs of variable length check alike: types, UTF-8, and the optional parameter `bytes_max`."""

from typing import Any

from keyplan.codec.element import Element, Parameter
from keyplan.codec.language import Language, Limited
from keyplan.codec.parameters import whole_parameter

__all__ = [
    "checked_bytes",
    "limit_parameters",
    "limited",
    "optional_limit",
    "utf8_bytes",
    "utf8_text",
    "within_limit",
]


def optional_limit(code: str, bytes_max: object, *, least: int) -> int | None:
    """Return the declared bound on the encoded length, or None. Raises TemplateError."""
    return None if bytes_max is None else whole_parameter(code, "bytes_max", bytes_max, least=least)


def limit_parameters(limit: int | None) -> dict[str, Parameter]:
    """The parameter as `Element.parameters` prints it."""
    return {} if limit is None else {"bytes_max": limit}


def limited(language: Language, limit: int | None) -> Language:
    """The language with its length bound, when there is one."""
    return language if limit is None else Limited(language, limit)


def within_limit(element: Element[Any], value: object, raw: bytes, limit: int | None) -> bytes:
    """Return `raw`, the encoding of `value`, unless it is longer than the bound."""
    if limit is not None and len(raw) > limit:
        element.refuse(value, "too long", bytes_max=limit, bytes_found=len(raw))
    return raw


def checked_bytes(element: Element[Any], value: object) -> bytes:
    """Return `value` when it is bytes."""
    if not isinstance(value, bytes):
        element.refuse(value, "not bytes", type_found=type(value).__name__)
    return bytes(value)


def utf8_bytes(element: Element[Any], value: object) -> bytes:
    """Return the UTF-8 of `value` when it is a string without lone surrogates."""
    if not isinstance(value, str):
        element.refuse(value, "not a string", type_found=type(value).__name__)
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        element.refuse(value, "a lone surrogate has no UTF-8", position=error.start)


def utf8_text(element: Element[Any], raw: bytes) -> str:
    """Return the text that `raw` spells in well-formed UTF-8."""
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        element.refuse(raw, "not UTF-8", position=error.start)
