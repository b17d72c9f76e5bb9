"""From arguments to requests and back, from results to answers and back: what client and server agree upon, once for both."""

from collections.abc import Iterable, Mapping
from enum import Enum
from functools import cache
from types import MappingProxyType, NoneType, UnionType
from typing import Annotated, Any, Final, NamedTuple, Union, get_args, get_origin, get_type_hints
from urllib.parse import quote

import msgspec

from keyplan.errors import InvalidArgumentError, InvalidInputError
from keyplan.operations.declare import Operation, Parameter, Place, WordForm
from keyplan.operations.schema import Schema

__all__ = [
    "PRESENT",
    "Asked",
    "ask",
    "body_type",
    "read_answer",
    "read_body",
    "read_headers",
    "read_path",
    "read_words",
    "whole_number",
    "without_notes",
    "words",
    "write_answer",
]


class Asked(NamedTuple):
    """A request as it is sent. `body` is None where there is none."""

    method: str
    path: str
    query: dict[str, str | list[str]]
    body: Any
    headers: Mapping[str, str] = MappingProxyType({})


# ---- the client's side -----------------------------------------------------------------------------------------------


def ask(operation: Operation, arguments: Mapping[str, Any]) -> Asked:
    """Return the request that calls an operation with these arguments; those that are not given are left out."""
    path, words, fields, whole = operation.path, dict[Place, dict[str, Any]](), {}, None
    for parameter in operation.parameters:
        if parameter.name not in arguments:
            continue
        value = arguments[parameter.name]
        if parameter.place is Place.BODY:
            fields[parameter.word] = value
        elif parameter.place is Place.WHOLE_BODY:
            whole = value
        elif parameter.is_many:
            write = _forms_of(operation)[parameter.name].write
            words.setdefault(parameter.place, {}).update({parameter.word: [*map(write, value)]} if value else {})
        elif value is None or (word := _forms_of(operation)[parameter.name].write(value)) is None:
            continue
        elif parameter.place is Place.PATH:
            path = path.replace(f"{{{parameter.word}}}", quote(word, safe=""))
        else:
            words.setdefault(parameter.place, {})[parameter.word] = word
    if operation.body is not None:
        body = operation.body.write(fields)
    elif operation.at(Place.BODY):
        body = msgspec.to_builtins(fields)
    else:
        body = msgspec.to_builtins(whole)
    return Asked(operation.method, path, words.get(Place.QUERY, {}), body, words.get(Place.HEADER, {}))


def read_answer(operation: Operation, found: Any) -> Any:
    """Return what an operation returned, from the JSON of its answer. Raises InvalidInputError when it is none of its kind."""
    try:
        if operation.answer is not None:
            return operation.answer.read(found)
        return _read(operation.returns, found)
    except (msgspec.ValidationError, KeyError, TypeError, ValueError) as error:
        raise InvalidInputError(source="the server's answer", problem=str(error)) from error


def _read(kind: Any, found: Any) -> Any:
    plain = get_args(kind)[0] if get_origin(kind) is Annotated else kind
    if hasattr(plain, "from_json"):
        return plain.from_json(found)
    if hasattr(plain, "_fields"):
        return plain(**msgspec.structs.asdict(msgspec.convert(found, _struct_of(plain))))
    return msgspec.convert(found, plain)


@cache
def _struct_of(kind: Any) -> type[msgspec.Struct]:
    """A struct with the fields of a named tuple: msgspec reads these from arrays alone."""
    hints = get_type_hints(kind)
    return msgspec.defstruct(kind.__name__, [(name, hints[name]) for name in kind._fields])


# ---- the server's side -----------------------------------------------------------------------------------------------


def read_path(operation: Operation, parts: Mapping[str, str]) -> dict[str, Any]:
    """Return the arguments that a path has. Raises what the forms of its parts raise."""
    return _read_given(operation, Place.PATH, parts)


def read_headers(operation: Operation, headers: Mapping[str, str]) -> dict[str, Any]:
    """Return the arguments that headers have, whose names `headers` finds in any case."""
    return _read_given(operation, Place.HEADER, headers)


def read_words(
    operation: Operation,
    words: Iterable[tuple[str, str]],
    *,
    knows_all: bool = True,
    beside: Mapping[str, WordForm] = MappingProxyType({}),
) -> dict[str, Any]:
    """Return the arguments that a query has. `beside` are the forms of words that who answers looks at, and no operation.

    Raises InvalidArgumentError for a word that is none of these, which may be a misspelt filter, for one that is given twice,
    and for one that cannot be read. Without `knows_all` the first are passed over, and the last of two counts.
    """
    known = _words_of(operation)
    given: dict[str, Any] = {}
    for word, text in words:
        if knows_all and word not in known and word not in beside:
            raise InvalidArgumentError(
                argument=word, problem=f"the parameters are {', '.join(sorted({*known, *beside})) or 'none'}"
            )
        if known.get(word):
            given.setdefault(word, []).append(text)
        elif knows_all and word in given:
            raise InvalidArgumentError(argument=word, problem="it is given twice")
        else:
            given[word] = text
    for word, form in beside.items():
        if word in given:
            form.read(word, given[word])
    return _read_given(operation, Place.QUERY, given)


@cache
def _words_of(operation: Operation) -> Mapping[str, bool]:
    """The words of an operation's query, each with whether it may stand several times."""
    return {parameter.word: parameter.is_many for parameter in operation.at(Place.QUERY)}


def _read_given(operation: Operation, place: Place, given: Mapping[str, Any]) -> dict[str, Any]:
    """Read the parameters of one place. One that is needed and lacks is empty to its own form, which says what to do."""
    arguments: dict[str, Any] = {}
    forms = _forms_of(operation)
    for parameter in operation.at(place):
        text = given.get(parameter.word)
        if text is None:
            if not parameter.is_required:
                continue
            if parameter.form is None:
                raise InvalidArgumentError(argument=parameter.word, problem="it is needed")
        read = forms[parameter.name].read
        arguments[parameter.name] = (
            tuple(read(parameter.word, one) for one in text)
            if isinstance(text, list)
            else read(parameter.word, text or "")
        )
    return arguments


@cache
def body_type(operation: Operation) -> Any:
    """Return the type that the body of a request is decoded as; None where an operation has no body."""
    if operation.body is not None:
        return operation.body.type
    for parameter in operation.at(Place.WHOLE_BODY):
        return without_notes(parameter.type)[0]
    fields = [
        (parameter.name, parameter.type)
        if parameter.is_required
        else (parameter.name, parameter.type, parameter.default)
        for parameter in operation.at(Place.BODY)
    ]
    words = {parameter.name: parameter.word for parameter in operation.at(Place.BODY)}
    if not fields:
        return None
    is_closed = not operation.takes_unknown_fields
    return msgspec.defstruct(operation.name, fields, kw_only=True, forbid_unknown_fields=is_closed, rename=words)


def read_body(operation: Operation, body: Any) -> dict[str, Any]:
    """Return the arguments that a body has, which was decoded as `body_type`. Raises InvalidArgumentError."""
    if operation.body is not None:
        return dict(operation.body.read(body))
    for parameter in operation.at(Place.WHOLE_BODY):
        return {parameter.name: body}
    return msgspec.structs.asdict(body)


def write_answer(operation: Operation, result: Any) -> Any:
    """Return the JSON of an answer, in values that msgspec encodes."""
    if operation.answer is not None:
        return operation.answer.write(result)
    if hasattr(result, "to_json"):
        return result.to_json()
    return result._asdict() if hasattr(result, "_fields") else result


# ---- words -----------------------------------------------------------------------------------------------------------


def whole_number(argument: str, text: str, *, least: int, most: int) -> int:
    """Read a whole number in decimal. Raises InvalidArgumentError."""
    number = int(text) if text.isascii() and text.isdigit() and len(text) <= len(str(most)) else -1
    if not least <= number <= most:
        raise InvalidArgumentError(argument=argument, problem=f"a whole number from {least} to {most}")
    return number


def words(values: Mapping[str, Any]) -> WordForm:
    """Return the form of a few values, each with its word; a value without one is left out of a query."""
    known = " or ".join(values)
    written = {value: word for word, value in values.items()}

    def read(argument: str, text: str) -> Any:
        if text not in values:
            raise InvalidArgumentError(argument=argument, problem=f"it is {known}")
        return values[text]

    return WordForm(read, written.get, {"enum": [*values]})


def _flag(argument: str, text: str) -> bool:
    # Why not whatever it says: who writes cascade=false means that nothing else be deleted.
    if text not in {"", "true", "false"}:
        raise InvalidArgumentError(argument=argument, problem="it stands by itself, or is true or false")
    return text != "false"


PRESENT: Final = WordForm(_flag, lambda value: "" if value else None, {"enum": ["", "true", "false"]})
"""The form of a flag: it stands by itself, `?cascade`, and says no when it is false."""


@cache
def _forms_of(operation: Operation) -> dict[str, WordForm]:
    """The forms of what stands in an operation's path, query and headers, by the names of the parameters."""
    return {
        parameter.name: _form_of(parameter)
        for parameter in operation.parameters
        if parameter.place not in {Place.BODY, Place.WHOLE_BODY}
    }


def _form_of(parameter: Parameter) -> WordForm:
    """The form that is declared, else that of the type: text as it is, whole numbers in decimal, members by their values."""
    if parameter.form is not None:
        return parameter.form
    kind, keywords = without_notes(parameter.type)
    if parameter.is_many:
        kind = get_args(kind)[0]
    if kind is int:
        least, most = keywords["minimum"], keywords["maximum"]
        return WordForm(lambda argument, text: whole_number(argument, text, least=least, most=most), str)
    if issubclass(kind, Enum):
        members = {str(member.value): member for member in kind}
        return WordForm(lambda argument, text: _member(members, argument, text), lambda member: str(member.value))
    return WordForm(lambda _argument, text: text, str)


def without_notes(kind: Any) -> tuple[Any, dict[str, Any]]:
    """A type without None and what is annotated, and the keywords of its schema."""
    keywords: dict[str, Any] = {}
    while get_origin(kind) in {Annotated, Union, UnionType}:
        parts = get_args(kind)
        if get_origin(kind) is Annotated:
            keywords = {
                **{k: v for note in parts[1:] if isinstance(note, Schema) for k, v in note.keywords.items()},
                **keywords,
            }
            parts = parts[:1]
        (kind,) = [part for part in parts if part is not NoneType]
    return kind, keywords


def _member(members: Mapping[str, Enum], argument: str, text: str) -> Enum:
    found = members.get(text)
    if found is None:
        raise InvalidArgumentError(argument=argument, problem=f"it is one of {', '.join(members)}")
    return found
