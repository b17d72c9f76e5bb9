"""What requests and answers have beyond words and fields: headers, whole bodies, texts, statuses by outcome, own failures."""

from collections.abc import Sequence
from enum import StrEnum, auto
from typing import Annotated, Any

import msgspec
import pytest

from keyplan.errors import InvalidArgumentError
from keyplan.operations import (
    ITSELF,
    PRESENT,
    Act,
    Answered,
    AnswerForm,
    Asked,
    BodyForm,
    Change,
    Contract,
    Failures,
    In,
    Need,
    Outcome,
    Place,
    Refused,
    Schema,
    Whole,
    WordForm,
    ask,
    body_type,
    described,
    operation,
    operations_of,
    read_body,
    read_headers,
    read_path,
    read_words,
    schema_of,
    words,
)


class Who(StrEnum):
    ANYBODY = auto()
    KEEPER = auto()


class Page(msgspec.Struct, kw_only=True):
    text: Annotated[str, msgspec.Meta(min_length=1, max_length=9)]


class Told(msgspec.Struct):
    why: str


def revision(argument: str, text: str) -> int:
    if not text.isdigit():
        raise InvalidArgumentError(argument=argument, problem="a revision is needed")
    return int(text)


Revision = Annotated[int, In("If-Match", WordForm(revision, str), Place.HEADER)]
Lower = Annotated[str, In("page", WordForm(lambda _argument, text: text.lower(), str))]


class Pages:
    """An interface with what HTTP has besides."""

    @operation(
        "PUT",
        "/pages/{page}",
        name="putPage",
        needs=Need(Act.WRITE, ITSELF),
        change=Change("write"),
        answers="It.",
        also={201: "It was made.", 304: Outcome("It was so.")},
        caller=Who.KEEPER,
        failures=(409,),
    )
    def put(
        self,
        name: Lower,
        page: Whole[Page],
        *,
        expected: Revision,
        lax: Annotated[bool, In(form=PRESENT), Schema("At once.")] = False,
    ) -> Answered[Page | str]:
        """Write a page."""
        raise NotImplementedError

    @operation(
        "POST",
        "/pages",
        name="addPage",
        needs=Need(Act.WRITE, ITSELF),
        change=Change("write"),
        answers="It.",
        takes_unknown_fields=True,
    )
    def add(
        self, *, text: str, since: Annotated[int | None, In("If-Match", WordForm(revision, str), Place.HEADER)] = None
    ) -> str:
        """Add a page."""
        raise NotImplementedError


PUT, ADD = operations_of(Pages).values()


def test_a_request_has_headers_and_a_body_of_one_kind() -> None:
    asked = ask(PUT, {"name": "A b", "page": Page(text="t"), "expected": 7, "lax": True})
    assert asked == Asked("PUT", "/pages/A%20b", {"lax": ""}, {"text": "t"}, {"If-Match": "7"})
    assert ask(ADD, {"text": "t", "since": None}) == Asked("POST", "/pages", {}, {"text": "t"}, {})


def test_what_was_asked_is_read_again() -> None:
    assert read_path(PUT, {"page": "A b"}) == {"name": "a b"}
    assert read_headers(PUT, {"If-Match": "7"}) == {"expected": 7}
    for word, meant in (("", True), ("true", True), ("false", False)):
        assert read_words(PUT, [("lax", word)]) == {"lax": meant}
    with pytest.raises(InvalidArgumentError, match="it stands by itself, or is true or false"):
        read_words(PUT, [("lax", "0")])
    page = Page(text="t")
    assert (body_type(PUT), read_body(PUT, page)) == (Page, {"page": page})


def test_what_is_needed_and_lacks_is_refused_by_its_own_form() -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        read_headers(PUT, {})
    assert caught.value.facts == {"argument": "If-Match", "problem": "a revision is needed"}
    assert read_headers(ADD, {}) == {}


class Shelves:
    """A word that may stand several times, and an answer in two forms."""

    @operation(
        "GET",
        "/shelves",
        name="findShelves",
        needs=Need(Act.READ, ITSELF),
        answers="They.",
        answer=AnswerForm(list, list, list[str], media={"text/html": str}),
    )
    def find(self, *, tags: Annotated[tuple[str, ...], In("tag"), Schema("All of these.")] = ()) -> list[str]:
        """Find shelves."""
        raise NotImplementedError


(FIND,) = operations_of(Shelves).values()


@pytest.mark.parametrize("knows_all", [True, False])
def test_a_word_may_stand_several_times_for_the_members_of_a_tuple(knows_all: bool) -> None:  # noqa: FBT001
    assert ask(FIND, {"tags": ("a", "b c")}).query == {"tag": ["a", "b c"]}
    assert ask(FIND, {"tags": ()}).query == {}
    assert read_words(FIND, [("tag", "a"), ("tag", "b c")], knows_all=knows_all) == {"tags": ("a", "b c")}
    assert read_words(FIND, [("tag", "a")], knows_all=knows_all) == {"tags": ("a",)}
    assert read_words(FIND, [], knows_all=knows_all) == {}


def test_words_beside_those_of_the_operation_are_read_and_no_arguments() -> None:
    beside = {"format": words({"html": 1, "json": 2})}
    assert read_words(FIND, [("format", "json")], beside=beside) == {}
    for given, problem in (
        ([("format", "xml")], "it is html or json"),
        ([("format", "json"), ("format", "json")], "it is given twice"),
        ([("other", "")], "the parameters are format, tag"),
    ):
        with pytest.raises(InvalidArgumentError) as caught:
            read_words(FIND, given, beside=beside)
        assert caught.value.facts["problem"] == problem


def test_an_answer_of_two_forms_and_words_of_all_operations_are_described() -> None:
    word = {"name": "format", "in": "query", "schema": {"type": "string"}}
    found = described([FIND], Contract("shelves", always=(), words=(word,)))["paths"]["/shelves"]["get"]
    many = {"type": "array", "items": {"type": "string"}}
    tag = {"name": "tag", "in": "query", "required": False, "description": "All of these.", "schema": many}
    assert found["parameters"] == [tag, word]
    assert found["responses"]["200"]["content"] == {
        "application/json": {"schema": many},
        "text/html": {"schema": {"type": "string"}},
    }


def test_a_service_says_of_other_failures_what_it_will_and_which_operations_need_no_token() -> None:
    found = described(
        [FIND], Contract("shelves", always=(), other_failures={"description": "x"}, without_token=["findShelves"])
    )
    operation = found["paths"]["/shelves"]["get"]
    assert (operation["responses"]["default"], operation["security"]) == ({"description": "x"}, [])


def test_words_of_nobody_are_passed_over_where_not_all_are_known() -> None:
    assert read_words(PUT, [("lax", ""), ("lax", "true"), ("other", "c")], knows_all=False) == {"lax": True}
    with pytest.raises(InvalidArgumentError):
        read_words(PUT, [("other", "c")])


def test_a_body_may_have_fields_of_a_newer_client() -> None:
    body: Any = msgspec.json.decode(b'{"text": "t", "later": 1}', type=body_type(ADD))
    assert read_body(ADD, body) == {"text": "t"}


def test_a_description_has_what_the_operations_of_a_service_share() -> None:
    version = {"name": "X-Version", "in": "header", "required": True, "schema": {"type": "string"}}
    contract = Contract(
        "pages",
        Failures({401: "Who?", 403: "Not you.", 409: "Not now."}, Told),
        callers={Who.KEEPER: Refused(" For keepers.", 403)},
        headers={"/pages/": version},
        schemes={"log-in": {"type": "http", "scheme": "basic"}},
        other_failures=None,
    )
    description = described([PUT, ADD], contract)
    put, add = description["paths"]["/pages/{page}"]["put"], description["paths"]["/pages"]["post"]
    assert (put["summary"], put["security"]) == ("Write a page. For keepers.", [{"log-in": []}])
    assert [*put["responses"]] == ["200", "201", "304", "401", "403", "409"]
    assert put["responses"]["409"] == {
        "description": "Not now.",
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Told"}}},
    }
    text = {"text/plain; charset=utf-8": {"schema": {"type": "string"}}}
    page = {"application/json": {"schema": {"$ref": "#/components/schemas/Page"}}}
    assert put["responses"]["201"] == {"description": "It was made.", "content": page | text}
    assert put["responses"]["304"] == {"description": "It was so."}
    assert put["requestBody"] == {"required": True, "content": page}
    assert [(one["name"], one["in"], one["required"]) for one in put["parameters"]] == [
        ("lax", "query", False),
        ("If-Match", "header", True),
    ]
    assert description["paths"]["/pages/{page}"]["parameters"][1] == version
    assert ([*add["responses"]], add["responses"]["200"]["content"]) == (["200", "401"], text)
    components = description["components"]
    assert components["securitySchemes"] == {"log-in": {"type": "http", "scheme": "basic"}}
    assert components["schemas"]["Page"]["properties"]["text"] == {"type": "string", "minLength": 1, "maxLength": 9}
    assert "additionalProperties" not in components["schemas"]["AddPage"]


class Numbers:
    """Bodies and answers that are no JSON: numbers with commas between them."""

    @operation(
        "POST",
        "/sums",
        name="sum",
        needs=Need(Act.WRITE, ITSELF),
        change=Change("write"),
        answers="The sum.",
        body=BodyForm(
            bytes,
            lambda body: {"numbers": [int(one) for one in body.split(b",")]},
            lambda fields: b",".join(str(one).encode() for one in fields["numbers"]),
            schema=Annotated[bytes, Schema("Numbers.")],
            content_type="text/x-numbers",
        ),
        answer=AnswerForm(lambda total: b"%d" % total, int, Annotated[bytes, Schema("A number.")], "text/x-number"),
    )
    def sum(self, numbers: Sequence[int]) -> int:
        """Add numbers."""
        raise NotImplementedError


def test_a_body_and_an_answer_may_be_of_another_type_than_json() -> None:
    (declared,) = operations_of(Numbers).values()
    asked = ask(declared, {"numbers": [1, 20]})
    assert asked.body == b"1,20"
    assert read_body(declared, asked.body) == {"numbers": [1, 20]}
    found = described([declared], Contract("numbers"))["paths"]["/sums"]["post"]
    binary = {"type": "string", "format": "binary"}
    assert found["requestBody"]["content"] == {"text/x-numbers": {"schema": {**binary, "description": "Numbers."}}}
    answer = found["responses"]["200"]["content"]
    assert answer == {"text/x-number": {"schema": {**binary, "description": "A number."}}}


def test_values_of_a_map_are_described() -> None:
    assert schema_of(dict[str, list[int]], {}) == {
        "type": "object",
        "additionalProperties": {"type": "array", "items": {"type": "integer"}},
    }
    assert schema_of(dict[str, Any], {}) == schema_of(dict, {}) == {"type": "object"}
