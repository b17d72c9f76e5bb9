"""Checks of the parameters that a codec is declared with; a wrong one is a mistake in the layout, not in a key."""

from keyplan.errors import TemplateError

__all__ = ["ascii_parameter", "flag_parameter", "whole_parameter"]


def whole_parameter(code: str, name: str, value: object, *, least: int, most: int | None = None) -> int:
    """Return `value` when it is a whole number from `least` to `most`. Raises TemplateError."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least or (most is not None and value > most):
        bounds = f"at least {least}" if most is None else f"from {least} to {most}"
        raise TemplateError(
            template=code, problem=f"{name} must be a whole number {bounds}", parameter=name, value=value
        )
    return value


def flag_parameter(code: str, name: str, value: object) -> bool:
    """Return `value` when it is true or false. Raises TemplateError."""
    if not isinstance(value, bool):
        raise TemplateError(template=code, problem=f"{name} must be true or false", parameter=name, value=value)
    return value


def ascii_parameter(code: str, name: str, value: object) -> str:
    """Return `value` when it is a string of printable ASCII characters. Raises TemplateError."""
    if not isinstance(value, str) or not value.isascii() or not value.isprintable():
        raise TemplateError(
            template=code, problem=f"{name} must be printable ASCII characters", parameter=name, value=value
        )
    return value
