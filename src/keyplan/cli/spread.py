"""Records of options: what many commands ask alike is declared once, as a NamedTuple whose fields are the options."""

from collections.abc import Callable, Iterator
from functools import wraps
from inspect import Parameter, signature
from typing import Any, TypeVar, get_type_hints

__all__ = ["spread"]

R = TypeVar("R")


def spread(command: Callable[..., R]) -> Callable[..., R]:
    """Return a command that takes the fields of its records one by one, as typer wants options to be declared.

    A parameter whose type is a NamedTuple stands for that record's fields, with their types, options and defaults. The command
    itself is called with the record.
    """
    own = signature(command, eval_str=True)
    records = {name: parameter.annotation for name, parameter in own.parameters.items() if _is_record(parameter)}

    @wraps(command)
    def with_records(**given: Any) -> R:
        for name, kind in records.items():
            given[name] = kind(**{field: given.pop(field) for field in kind._fields})
        return command(**given)

    parameters = [
        spread_out
        for parameter in own.parameters.values()
        for spread_out in (_fields(parameter.annotation) if parameter.name in records else (parameter,))
    ]
    with_records.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]  # inspect's own protocol
    with_records.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return with_records


def _is_record(parameter: Parameter) -> bool:
    kind = parameter.annotation
    return isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields")


def _fields(kind: Any) -> Iterator[Parameter]:
    for name, hint in get_type_hints(kind, include_extras=True).items():
        default = kind._field_defaults.get(name, Parameter.empty)
        yield Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=hint)
