"""JSON Schema, draft 07, as definitions hold it: is a text one, and does an object's properties fit it.

References are followed inside the schema alone: nothing is ever fetched.
"""

import json
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from functools import lru_cache
from itertools import islice
from typing import Any, Final

from jsonschema import Draft7Validator
from jsonschema.exceptions import SchemaError, ValidationError
from jsonschema.validators import extend
from referencing import Registry
from referencing.exceptions import Unresolvable

from keyplan.apps.runm.formats import FORMATS
from keyplan.apps.runm.patterns import has_match
from keyplan.apps.runm.records import Property
from keyplan.apps.runm.refusal import invalid

__all__ = ["SCHEMA_BYTES_MAX", "PropertyCheck", "SchemaCheck", "checked_schema", "property_check", "violations"]

SCHEMA_BYTES_MAX: Final = 256 << 10
"""Why: a definition is read for every search that looks at permissions, and etcd takes 1.5 MiB in all."""

_VIOLATIONS_MAX: Final = 50

_REFERENCES_MAX: Final = 10_000
"""References followed for one document. Why: twenty lines that each refer twice to the next ask for a million looks."""

_references_left: ContextVar[int] = ContextVar("references_left", default=_REFERENCES_MAX)


@lru_cache(maxsize=64)
def checked_schema(text: str) -> Any:
    """Return the schema that a text spells, for reading only. Raises RefusedError, INVALID_ARGUMENT."""
    if len(text.encode()) > SCHEMA_BYTES_MAX:
        raise invalid(f"the schema has more than {SCHEMA_BYTES_MAX} bytes.")
    try:
        schema = json.loads(text)
        Draft7Validator.check_schema(schema, format_checker=FORMATS)
    except SchemaError as error:
        raise invalid(f"the schema is no JSON Schema of draft 07: at {_pointer(error.path)}.") from error
    except (ValueError, RecursionError) as error:
        raise invalid("the schema is not JSON.") from error
    return schema


class SchemaCheck:
    """A schema that documents are held against, any number of them; for all threads."""

    def __init__(self, schema: Any) -> None:
        self._validator = _Validator(schema, format_checker=FORMATS, registry=Registry())

    def violations(self, document: Any) -> list[str]:
        """Return what is wrong with a document, a line `<pointer>: <reason>` each; empty when it fits.

        Raises RefusedError, INVALID_ARGUMENT, for a schema that refers to what is not in it.
        """
        _references_left.set(_REFERENCES_MAX)
        try:
            return list(_lines(self._validator.iter_errors(document)))
        except (Unresolvable, RecursionError) as error:
            raise invalid("the definition's schema refers to what is not in it, or without end.") from error
        except ValueError as error:
            raise invalid("the definition's schema has an expression that cannot be matched in linear time.") from error


def violations(schema: Any, document: Any) -> list[str]:
    """Return what is wrong with one document, as `SchemaCheck` does."""
    return SchemaCheck(schema).violations(document)


class PropertyCheck:
    """The sub-schema `properties` of a definition, which the properties of objects are held against; for all threads.

    Values are texts; each is compared as the scalar that the schema declares for its key, where it spells one (ruling S28).
    """

    def __init__(self, schema: Any) -> None:
        own = schema.get("properties", {}).get("properties") if isinstance(schema, dict) else None
        self._check: SchemaCheck | None = None
        if not isinstance(own, dict):
            return
        declared = own.get("properties")
        self._kinds = declared if isinstance(declared, dict) else {}
        # Why: the sub-schema may refer to definitions of the whole.
        whole = {name: value for name, value in schema.items() if name in {"definitions", "$schema"}}
        self._check = SchemaCheck({**whole, "allOf": [own]})

    def violations(self, properties: Iterable[Property]) -> list[str]:
        """Return what is wrong with an object's properties. Raises RefusedError as `SchemaCheck` does."""
        if self._check is None:
            return []
        document = {one.key: _scalar(one.value, self._kinds.get(one.key)) for one in properties}
        return [f"properties{line}" for line in self._check.violations(document)]


@lru_cache(maxsize=64)
def property_check(text: str) -> PropertyCheck:
    """Return how properties are held against the schema that a text spells. Raises RefusedError as `checked_schema` does."""
    return PropertyCheck(checked_schema(text))


def _scalar(text: str, declared: Any) -> Any:
    kinds = declared.get("type", "string") if isinstance(declared, dict) else "string"
    for kind in kinds if isinstance(kinds, list) else [kinds]:
        if kind == "string":
            return text
        if kind == "boolean" and text in {"true", "false"}:
            return text == "true"
        if kind in {"integer", "number"}:
            number = _number(text)
            if number is not None and (kind == "number" or isinstance(number, int)):
                return number
    return text


def _number(text: str) -> int | float | None:
    if len(text) > 64:
        return None
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _lines(errors: Iterable[ValidationError]) -> Iterator[str]:
    for count, error in enumerate(errors):
        if count == _VIOLATIONS_MAX:
            yield "...: and more"
            return
        yield f"{_pointer(error.absolute_path)}: {_reason(error)}"


def _reason(error: ValidationError) -> str:
    """What a keyword asks for. Why not the library's message: it quotes the value."""
    wanted: Any = error.validator_value
    match error.validator:
        case "required":
            instance = error.instance if isinstance(error.instance, dict) else {}
            return "missing " + ", ".join(str(name) for name in wanted if name not in instance)
        case "additionalProperties":
            return "a property that the definition does not know: " + ", ".join(_strangers(error))
        case _:
            return f"does not fit {error.validator} {json.dumps(wanted, default=str)[:200]}"


def _strangers(error: ValidationError) -> list[str]:
    """The keys that the schema forbids. A key is a name, not a value."""
    schema, instance = error.schema, error.instance
    if not isinstance(schema, dict) or not isinstance(instance, dict):
        return []
    known, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    strangers = (str(key) for key in instance if key not in known)
    return list(islice((key for key in strangers if not any(has_match(one, key) for one in patterns)), 10))


def _pointer(path: Iterable[str | int]) -> str:
    return "".join(f"/{part}" for part in path) or "/"


# ---- keywords of our own: those with regular expressions, and references ------------------------------------------------


def _pattern(_validator: Any, wanted: Any, instance: Any, _schema: Any) -> Iterator[ValidationError]:
    if isinstance(instance, str) and not has_match(wanted, instance):
        yield ValidationError("does not match")


def _pattern_properties(validator: Any, wanted: Any, instance: Any, _schema: Any) -> Iterator[ValidationError]:
    for pattern, schema in wanted.items() if isinstance(instance, dict) else ():
        for key, value in instance.items():
            if has_match(pattern, key):
                yield from validator.descend(value, schema, path=key, schema_path=pattern)


def _additional_properties(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if not isinstance(instance, dict):
        return
    known, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    extra = [key for key in instance if key not in known and not any(has_match(one, key) for one in patterns)]
    if isinstance(wanted, dict):
        for key in extra:
            yield from validator.descend(instance[key], wanted, path=key)
    elif not wanted and extra:
        yield ValidationError("unknown properties")


def _reference(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    left = _references_left.get() - 1
    if left < 0:
        raise RecursionError
    _references_left.set(left)
    yield from Draft7Validator.VALIDATORS["$ref"](validator, wanted, instance, schema) or ()


_Validator: Any = extend(  # type: ignore[no-untyped-call]  # Why: the stubs give it no types.
    Draft7Validator,
    {
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
        "additionalProperties": _additional_properties,
        "$ref": _reference,
    },
)
