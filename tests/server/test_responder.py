"""A service's responder: in which order a request is read, who performs it, and what becomes of the result."""

import asyncio
from collections.abc import Iterator
from enum import StrEnum, auto
from typing import Annotated, Any

import httpx
import pytest
from starlette.requests import Request

from keyplan.errors import InvalidArgumentError
from keyplan.operations import (
    ITSELF,
    Act,
    Answered,
    Change,
    In,
    Need,
    Operation,
    Outcome,
    Place,
    Whole,
    WordForm,
    operation,
    operations_of,
)
from keyplan.server import AnswerError, Application, Responder, Service, ServiceContext
from keyplan.store import open_store


class Who(StrEnum):
    ANYBODY = auto()
    KEEPER = auto()


def refusing(word: str) -> WordForm:
    """The form of a word that is refused where it is bad."""

    def read(argument: str, text: str) -> str:
        if text == "bad":
            raise InvalidArgumentError(argument=argument, problem=word)
        return text

    return WordForm(read, str)


class Things:
    """Every kind of method."""

    @operation(
        "PUT",
        "/things/{name}",
        name="putThing",
        needs=Need(Act.WRITE, ITSELF),
        change=Change("write"),
        answers="It.",
        also={201: "It was made."},
        caller=Who.KEEPER,
    )
    def put(
        self,
        name: Annotated[str, In(form=refusing("path"))],
        thing: Whole[dict[str, int]],
        *,
        version: Annotated[str, In("X-Version", refusing("header"), Place.HEADER)] = "",
        word: Annotated[str, In(form=refusing("query"))] = "",
    ) -> Answered[list[Any]]:
        """Put a thing."""
        return Answered([name, thing, version, word], 201, {"X-Made": "yes"})

    @operation(
        "GET",
        "/things/{name}",
        name="getThing",
        needs=Need(Act.READ, ITSELF),
        answers="It.",
        also={304: Outcome("It is known.")},
    )
    async def get(self, name: str) -> Answered[list[str] | None]:
        """Return a thing."""
        return Answered(None, 304, {"ETag": name}) if name == "known" else Answered([name])

    @operation(
        "POST",
        "/things/{name}:mirror",
        name="mirrorThing",
        needs=Need(Act.WRITE, ITSELF),
        change=Change("write"),
        answers="It.",
    )
    async def mirror(self, name: str, body: Annotated[bytes, In(place=Place.WHOLE_BODY)]) -> list[str]:
        """Return what was sent."""
        return [name, body.decode()]


class KeptResponder(Responder):
    async def admit(self, request: Request, operation: Operation) -> Things:
        if operation.caller is Who.KEEPER and request.headers.get("x-who") != "keeper":
            raise AnswerError(403, "forbidden", "not you")
        return Things()


class LaxResponder(KeptResponder):
    knows_all_words = False


def asked(kind: type[Responder], method: str, path: str, **more: Any) -> httpx.Response:
    """Ask a service that answers so."""

    def build(context: ServiceContext) -> Service:
        return Service("things", kind(context).routes(operations_of(Things).values()))

    async def ask(application: Application) -> httpx.Response:
        transport = httpx.ASGITransport(application.asgi, client=("127.0.0.1", 50_000))
        async with application.running(), httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return await client.request(method, path, **more)

    with open_store("memory:") as store:
        return asyncio.run(ask(Application.build(store.engine, {"things": build})))


def faults() -> Iterator[tuple[str, dict[str, Any], int, str]]:
    """Requests with all faults, then without those that were refused."""
    headers = {"X-Version": "bad", "Content-Type": "text/plain"}
    yield "/things/bad?word=bad", {"headers": headers}, 400, "path"
    yield "/things/a?word=bad", {"headers": headers}, 403, ""
    headers = {**headers, "X-Who": "keeper"}
    yield "/things/a?word=bad", {"headers": headers}, 400, "header"
    headers = {**headers, "X-Version": "2"}
    yield "/things/a?word=bad", {"headers": headers}, 400, "query"
    yield "/things/a?word=w", {"headers": headers}, 415, ""


@pytest.mark.parametrize(("path", "more", "status", "problem"), [*faults()])
def test_what_costs_least_is_refused_first_and_callers_before_their_bodies(
    path: str, more: dict[str, Any], status: int, problem: str
) -> None:
    answer = asked(KeptResponder, "PUT", path, content=b"no json", **more)
    assert (answer.status_code, answer.json()["error"]["detail"].get("problem", "")) == (status, problem)


def test_a_result_has_a_status_and_headers_of_its_outcome() -> None:
    headers = {"X-Who": "keeper", "x-version": "2"}
    answer = asked(KeptResponder, "PUT", "/things/a?word=w", json={"n": 1}, headers=headers)
    assert (answer.status_code, answer.headers["x-made"]) == (201, "yes")
    assert answer.json() == ["a", {"n": 1}, "2", "w"]


def test_an_outcome_may_have_no_content() -> None:
    answer = asked(KeptResponder, "GET", "/things/known")
    assert (answer.status_code, answer.headers["etag"], answer.content) == (304, "known", b"")
    assert asked(KeptResponder, "GET", "/things/other").json() == ["other"]
    assert asked(KeptResponder, "HEAD", "/things/other").content == b""


def test_a_body_of_bytes_is_not_decoded_and_a_verb_stands_before_a_name() -> None:
    assert asked(KeptResponder, "POST", "/things/a:mirror", content=b"{").json() == ["a", "{"]


def test_a_slash_in_a_name_parts_nothing() -> None:
    assert asked(KeptResponder, "GET", "/things/a%2Fb").json() == ["a/b"]
    assert asked(KeptResponder, "GET", "/things/a%2fb%20c%252F").json() == ["a/b c%2F"]
    assert asked(KeptResponder, "POST", "/things%2Fa:mirror", content=b"").status_code == 404
    assert asked(KeptResponder, "POST", "/things/%2Fa:mirror", content=b"x").json() == ["/a", "x"]


def test_words_of_nobody_are_refused_or_passed_over() -> None:
    assert asked(KeptResponder, "GET", "/things/a?other=1").status_code == 400
    assert asked(LaxResponder, "GET", "/things/a?other=1").json() == ["a"]
    wrong_method = asked(KeptResponder, "DELETE", "/things/a")
    assert (wrong_method.status_code, sorted(wrong_method.headers["allow"].split(", "))) == (
        405,
        ["GET", "HEAD", "PUT"],
    )
