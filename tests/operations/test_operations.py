"""Operations declared once: what clients ask for is what servers read, and what servers answer is what clients read."""

from enum import StrEnum
from typing import Annotated, Any, ClassVar, NamedTuple
from urllib.parse import unquote

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.routing import compile_path

from keyplan.errors import ConflictError, InvalidArgumentError, InvalidInputError, NotFoundError
from keyplan.keyspace import KeySpaceIdentity, RegistryOperations, State
from keyplan.operations import (
    ITSELF,
    Act,
    Asked,
    CallerKind,
    Change,
    Contract,
    In,
    Need,
    Operation,
    Schema,
    ask,
    body_type,
    described,
    key_space,
    operation,
    operations_of,
    read_answer,
    read_body,
    read_words,
    words,
    write_answer,
)


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Count(msgspec.Struct, frozen=True, rename="kebab"):
    schema_name: ClassVar[str] = "CounterCount"
    counted_value: Annotated[int, Schema("How many.", minimum=0)]
    colour: Colour | None = None
    note: str | msgspec.UnsetType = msgspec.UNSET


class Total(NamedTuple):
    counters: int
    is_whole: bool


class Counters:
    """An interface with every kind of parameter."""

    @operation(
        "POST",
        "/counters/{id}:add",
        name="addToCounter",
        needs=Need(Act.WRITE, key_space("name")),
        change=Change("add", "{name}"),
        answers="The new value.",
        raises=(NotFoundError, ConflictError),
        also={201: "It was made."},
        headers={"Location": "Where it is."},
    )
    def add(
        self,
        name: Annotated[str, In("id"), Schema("The counter.", pattern="^[^/]+$")],
        *,
        amount: Annotated[int, Schema(minimum=1)] = 1,
        reason: str,
    ) -> Count:
        """Add to a counter,
        and return it.

        More is said here.
        """
        raise NotImplementedError

    @operation(
        "GET",
        "/counters",
        name="total",
        needs=Need(Act.READ, ITSELF),
        answers="It.",
        caller=CallerKind.ADMINISTRATOR,
        seconds=60.0,
    )
    def total(
        self,
        *,
        colour: Annotated[Colour | None, Schema("Of this colour.")] = None,
        limit: Annotated[int | None, Schema("At most.", minimum=1, maximum=9)] = None,
        everything: Annotated[bool, In("include", words({"all": True}))] = False,
    ) -> Total:
        """Count the counters."""
        raise NotImplementedError


OPERATIONS = operations_of(Counters)
ADD, TOTAL = OPERATIONS["add"], OPERATIONS["total"]


# ---- what is asked ---------------------------------------------------------------------------------------------------


def test_a_request_has_each_parameter_in_its_place() -> None:
    assert ask(ADD, {"name": "a b/c", "reason": "r"}) == Asked("POST", "/counters/a%20b%2Fc:add", {}, {"reason": "r"})
    assert ask(TOTAL, {"colour": Colour.RED, "limit": 3, "everything": True}) == Asked(
        "GET", "/counters", {"colour": "red", "limit": "3", "include": "all"}, None
    )
    assert ask(TOTAL, {"colour": None, "everything": False}).query == {}


@pytest.mark.parametrize(
    ("given", "argument", "problem"),
    [
        ([("color", "red")], "color", "the parameters are colour, include, limit"),
        ([("limit", "1"), ("limit", "2")], "limit", "it is given twice"),
        ([("limit", "10")], "limit", "a whole number from 1 to 9"),
        ([("limit", "1" * 5_000)], "limit", "a whole number from 1 to 9"),
        ([("limit", "x")], "limit", "a whole number from 1 to 9"),
        ([("limit", "\u0663")], "limit", "a whole number from 1 to 9"),
        ([("colour", "green")], "colour", "it is one of red, blue"),
        ([("include", "none")], "include", "it is all"),
    ],
)
def test_words_that_cannot_be_read_are_refused(given: list[tuple[str, str]], argument: str, problem: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        read_words(TOTAL, given)
    assert caught.value.facts == {"argument": argument, "problem": problem}


def test_a_body_has_the_fields_of_the_operation_and_no_others() -> None:
    body = msgspec.json.decode(b'{"reason": "r"}', type=body_type(ADD))
    assert read_body(ADD, body) == {"amount": 1, "reason": "r"}
    with pytest.raises(msgspec.ValidationError, match="unknown field"):
        msgspec.json.decode(b'{"reason": "r", "amuont": 2}', type=body_type(ADD))
    with pytest.raises(msgspec.ValidationError, match="missing required field"):
        msgspec.json.decode(b"{}", type=body_type(ADD))
    assert body_type(TOTAL) is None


REGISTRY = operations_of(RegistryOperations)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
NUMBER = st.none() | st.integers(0, 1 << 62)
ARGUMENTS: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "create": {"name": TEXT, "application": TEXT, "description": TEXT, "prefix": TEXT, "if_not_exists": st.booleans()},
    "list": {
        "name": TEXT,
        "prefix": TEXT,
        "state": st.sampled_from(State),
        "include_deleted": st.just(True),  # a value
        "limit": st.integers(1, 1000),
        "page_token": TEXT,
    },
    "delete": {"expected": st.builds(KeySpaceIdentity, st.integers(1, 10**17), TEXT.filter(lambda t: len(t) < 128))},
    "set_quota": {"keys": NUMBER, "bytes": NUMBER},
    "init": {"prefix_codec": TEXT, "skip_printable": st.booleans()},
    "diagnose": {"with_unmanaged": st.booleans()},
    "configure": {"changes": st.dictionaries(TEXT, NUMBER)},
    "audit_page": {"after": st.integers(0, 1 << 62), "limit": st.integers(1, 1000)},
}


@given(st.data())
def test_what_a_client_asks_the_registry_for_is_what_its_server_reads(data: st.DataObject) -> None:
    declared = data.draw(st.sampled_from([*REGISTRY.values()]))
    wanted = ARGUMENTS.get(declared.attribute, {})
    arguments = {parameter.name: data.draw(TEXT) for parameter in declared.parameters if parameter.is_required}
    arguments |= {name: data.draw(strategy) for name, strategy in wanted.items()}
    found = arguments_read(declared, ask(declared, arguments))
    assert {name: found[name] for name in arguments} == arguments


def arguments_read(declared: Operation, asked: Asked) -> dict[str, Any]:
    """What a server reads of a request."""
    pattern, _, _ = compile_path(declared.path)
    matched = pattern.match(asked.path)
    assert matched is not None
    named = {parameter.word: parameter.name for parameter in declared.parameters}
    arguments: dict[str, Any] = {named[word]: unquote(text) for word, text in matched.groupdict().items()}
    kind = body_type(declared)
    if kind is not None:
        arguments |= read_body(declared, msgspec.json.decode(msgspec.json.encode(asked.body), type=kind))
    return arguments | read_words(declared, [(word, str(text)) for word, text in asked.query.items()])


# ---- what is answered ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("declared", "result", "shown"),
    [
        (ADD, Count(3, Colour.RED), {"counted-value": 3, "colour": "red"}),
        (ADD, Count(0, note="n"), {"counted-value": 0, "colour": None, "note": "n"}),
        (TOTAL, Total(2, is_whole=True), {"counters": 2, "is_whole": True}),
    ],
)
def test_what_a_server_answers_is_what_a_client_reads(declared: Operation, result: object, shown: object) -> None:
    answer = msgspec.json.decode(msgspec.json.encode(write_answer(declared, result)))
    assert answer == shown
    assert read_answer(declared, answer) == result


@pytest.mark.parametrize("answer", [{}, [], None, {"counted-value": "3"}])
def test_an_answer_of_another_form_is_told(answer: object) -> None:
    with pytest.raises(InvalidInputError):
        read_answer(ADD, answer)
    with pytest.raises(InvalidInputError):
        read_answer(TOTAL, answer)


# ---- what is described -----------------------------------------------------------------------------------------------


def test_the_description_is_made_of_the_declaration() -> None:
    description = described(OPERATIONS.values(), Contract("counters"))
    add = description["paths"]["/counters/{id}:add"]["post"]
    assert (add["operationId"], add["summary"]) == ("addToCounter", "Add to a counter, and return it.")
    assert [*add["responses"]] == ["200", "201", "401", "404", "409", "default"]
    assert add["responses"]["201"]["headers"] == {
        "Location": {"description": "Where it is.", "schema": {"type": "string"}}
    }
    assert description["paths"]["/counters/{id}:add"]["parameters"] == [
        {
            "name": "id",
            "in": "path",
            "required": True,
            "description": "The counter.",
            "schema": {"type": "string", "pattern": "^[^/]+$"},
        }
    ]
    total = description["paths"]["/counters"]["get"]
    assert total["summary"] == "Count the counters. For administrators."
    assert "403" in total["responses"]
    assert [(one["name"], one["schema"]) for one in total["parameters"]] == [
        ("colour", {"type": "string", "enum": ["red", "blue"]}),
        ("limit", {"type": "integer", "minimum": 1, "maximum": 9}),
        ("include", {"type": "string", "enum": ["all"]}),
    ]
    assert description["components"]["schemas"] == {
        "AddToCounter": {
            "type": "object",
            "required": ["reason"],
            "properties": {"amount": {"type": "integer", "minimum": 1, "default": 1}, "reason": {"type": "string"}},
            "additionalProperties": False,
        },
        "CounterCount": {
            "type": "object",
            "required": ["counted-value", "colour"],
            "properties": {
                "counted-value": {"type": "integer", "description": "How many.", "minimum": 0},
                "colour": {"type": ["string", "null"], "enum": ["red", "blue", None]},
                "note": {"type": "string"},
            },
            "additionalProperties": False,
        },
        "Total": {
            "type": "object",
            "required": ["counters", "is_whole"],
            "properties": {"counters": {"type": "integer"}, "is_whole": {"type": "boolean"}},
            "additionalProperties": False,
        },
    }
