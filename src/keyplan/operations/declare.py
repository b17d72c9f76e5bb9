"""An operation is declared once: as a method of an interface, whose signature, docstring and decorator say all there is to it.

    class Counters:
        @operation("POST", "/counters/{id}:add", name="addToCounter", answers="The new value.", needs=Need(Act.WRITE, ITSELF))
        def add(self, name: Annotated[str, In("id")], *, amount: int = 1) -> Count:
            "Add to a counter."
            raise NotImplementedError

The HTTP route (`keyplan.server.Responder`), its place in the OpenAPI description (`described`), the method of the typed client
(`keyplan.client.Remote`) and the row of the reference page are made of it. A parameter that the path does not name is a word of
the query where the method has no body or the parameter a form as a word, else a field of the body; `In` and `Whole` say
otherwise. A method of a server may be a coroutine; it returns the result alone, or `Answered` with what HTTP says beside it.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum, auto
from functools import cached_property
from types import MappingProxyType
from typing import Annotated, Any, Final, Generic, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

from keyplan.errors import KeyplanError
from keyplan.operations.needs import Act, Change, Disclosure, Need

__all__ = [
    "JSON",
    "AnswerForm",
    "Answered",
    "BodyForm",
    "CallerKind",
    "Declared",
    "In",
    "Operation",
    "Outcome",
    "Parameter",
    "Place",
    "Whole",
    "WordForm",
    "operation",
    "operations_of",
]

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

JSON: Final = "application/json"
"""The content type of bodies and answers that say no other."""

_ATTRIBUTE: Final = "keyplan_operation"
_WITHOUT_BODY: Final = frozenset({"GET", "DELETE"})


class CallerKind(StrEnum):
    """Who may call an operation. A request of anybody else is refused before it is performed.

    A service with tokens asks everybody for one. SESSION: whoever says in the request for which user and where it is made. A
    service may have kinds of its own.
    """

    ANYBODY = auto()
    SESSION = auto()
    ADMINISTRATOR = auto()


class Place(StrEnum):
    """Where in a request a parameter stands. The last two: it is a field of the body, or all of it."""

    PATH = auto()
    QUERY = auto()
    HEADER = auto()
    BODY = auto()
    WHOLE_BODY = auto()


class WordForm(NamedTuple):
    """How a value is a word of a path, a query or a header. `read` takes the parameter's name and the word.

    It raises InvalidArgumentError, or an error of its service. `write` is its inverse; None leaves the word out. `keywords` are
    those of its JSON schema, beside the type string.
    """

    read: Callable[[str, str], Any]
    write: Callable[[Any], str | None]
    keywords: Mapping[str, Any] = MappingProxyType({})


class In(NamedTuple):
    """How a parameter stands in a request, for `Annotated`: its name there, its form as a word, and its place."""

    name: str = ""
    form: WordForm | None = None
    place: Place | None = None


Whole = Annotated[T, In(place=Place.WHOLE_BODY)]
"""A parameter that is the whole body."""


class BodyForm(NamedTuple):
    """A body that is not simply an object of the parameters: the type that it is read as, and the way to the parameters.

    `schema` is the class that describes it; None: an object of the parameters. `media` has the schemas of its other forms, by
    their content types. A body of another `content_type` than JSON is read as bytes. Of one with `bytes_max`
    so many bytes are taken, whatever the server takes of others.
    """

    type: Any
    read: Callable[[Any], Mapping[str, Any]]
    write: Callable[[Mapping[str, Any]], Any]
    schema: Any = None
    description: str = ""
    media: Mapping[str, Any] = MappingProxyType({})
    content_type: str = JSON
    bytes_max: int | None = None


class AnswerForm(NamedTuple):
    """An answer that is not simply the JSON of what the method returns; `schema` is the class that describes it.

    One of another `content_type` than JSON is written as bytes. `media` has the schemas of its other forms, by their content
    types.
    """

    write: Callable[[Any], Any]
    read: Callable[[Any], Any]
    schema: Any
    content_type: str = JSON
    media: Mapping[str, Any] = MappingProxyType({})


class Outcome(NamedTuple):
    """What a success means whose answer is of a type of its own; None: it has no content."""

    meaning: str
    type: Any = None


class Answered(NamedTuple, Generic[T_co]):
    """A result with what HTTP says beside it: the status, where it is not the operation's, and headers."""

    result: T_co
    status: int | None = None
    headers: Mapping[str, str] = MappingProxyType({})


class Parameter(NamedTuple):
    """A parameter of an operation: its name in Python and in requests, its annotated type, and its default."""

    name: str
    word: str
    place: Place
    type: Any
    default: Any
    form: WordForm | None

    @property
    def is_required(self) -> bool:
        """True when a request has to have it."""
        return self.default is inspect.Parameter.empty

    @property
    def is_many(self) -> bool:
        """True when its word may stand several times, once for each member of its tuple."""
        kind = get_args(self.type)[0] if get_origin(self.type) is Annotated else self.type
        return get_origin(kind) is tuple


@dataclass(frozen=True, eq=False, kw_only=True)
class Declared:
    """What is declared of an operation, whatever it is spoken in: a method, its docstring, and who may call it.

    `caller` is who the service itself lets in, `needs` what has to be granted. An audit log notes its `change`; of one that
    changes nothing and shows what is kept from others, what it `discloses`. Raises ValueError for one that changes something
    and does not say what, and for a need or a subject of no parameter of the method that a request has to have.
    """

    name: str
    function: Callable[..., Any]
    needs: Need
    change: Change | None = None
    discloses: Disclosure | None = None
    caller: StrEnum = CallerKind.ANYBODY

    def __post_init__(self) -> None:
        if self.changes is not (self.change is not None):
            problem = "changes something: it says what" if self.changes else "changes nothing, and says what it changes"
            raise ValueError(f"{self.name} {problem}")
        if self.changes and self.discloses is not None:
            raise ValueError(f"{self.name} changes something, and is noted for that: leave out what it discloses")
        parameters = inspect.signature(self.function).parameters.values()
        if any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters):
            return  # Why: the names are those of a message, whose fields a table has.
        named = {self.needs.on.parameter} | (self.noted.named if self.noted else frozenset())
        # Why none that may be left out: then nothing would be decided on, or the note of an act that was made would fail.
        given = {one.name for one in parameters if one.default is inspect.Parameter.empty}
        missing = named - given - {"", "answer"}
        if missing:
            raise ValueError(f"{self.name} has no parameter {', '.join(sorted(missing))} that is always given")

    @property
    def changes(self) -> bool:
        """True unless it only reads, as all do for which reading or auditing is granted."""
        return self.needs.act not in {Act.READ, Act.AUDIT}

    @property
    def noted(self) -> Change | None:
        """What an audit log notes: the change, or what is disclosed; None for what only reads."""
        return self.discloses if self.change is None else self.change

    @property
    def attribute(self) -> str:
        """The name of the method."""
        return self.function.__name__

    @property
    def summary(self) -> str:
        """The first paragraph of the docstring, in one line."""
        return " ".join((inspect.getdoc(self.function) or "").partition("\n\n")[0].split())

    @cached_property
    def returns(self) -> Any:
        """The type of the result, with what is annotated."""
        kind = get_type_hints(self.function, include_extras=True)["return"]
        return get_args(kind)[0] if get_origin(kind) is Answered else kind


@dataclass(frozen=True, eq=False, kw_only=True)
class Operation(Declared):
    """An operation that is spoken in HTTP. `method` and `path` are HTTP's; with `has_slash` the path may also end in one.

    `raises` are the errors that are answers of its contract, `failures` the statuses of those whose class does not say its own.
    `answers` names a success, `status` is its status, and `also` has further ones, of the same type where they are no Outcome;
    `headers` are those of a success, with what they mean. `is_quick` for what reads a record or two, `is_polled` for what is
    asked again and again, and leaves no line in a log. `seconds` is how long a caller waits where that is longer than usual.
    `body_name` is that of the body's schema, where the parameters are its fields; with `takes_unknown_fields` it may have
    others.
    """

    method: str
    path: str
    answers: str
    raises: tuple[type[KeyplanError], ...] = ()
    failures: tuple[int, ...] = ()
    status: int = 200
    also: Mapping[int, str | Outcome] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    has_slash: bool = False
    is_quick: bool = False
    is_polled: bool = False
    takes_unknown_fields: bool = False
    seconds: float | None = None
    body: BodyForm | None = None
    body_name: str = ""
    answer: AnswerForm | None = None

    @property
    def changes(self) -> bool:
        """True unless it only reads: what GET asks for changes nothing, whatever is needed for it."""
        return self.method != "GET" and super().changes

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """The parameters, in the order of the signature."""
        hints = get_type_hints(self.function, include_extras=True)
        named = list(inspect.signature(self.function).parameters.values())[1:]
        return tuple(self._parameter(one.name, hints[one.name], one.default) for one in named)

    @cached_property
    def _placed(self) -> Mapping[Place, tuple[Parameter, ...]]:
        return {place: tuple(one for one in self.parameters if one.place is place) for place in Place}

    def at(self, place: Place) -> tuple[Parameter, ...]:
        """Return the parameters of one place."""
        return self._placed[place]

    def _parameter(self, name: str, kind: Any, default: Any) -> Parameter:
        notes = get_args(kind)[1:] if get_origin(kind) is Annotated else ()
        told = next((note for note in reversed(notes) if isinstance(note, In)), In())
        word = told.name or name
        if told.place is not None:
            place = told.place
        elif f"{{{word}}}" in self.path:
            place = Place.PATH
        else:
            is_word = self.method in _WITHOUT_BODY or told.form is not None
            place = Place.QUERY if is_word else Place.BODY
        return Parameter(name, word, place, kind, default, told.form)


def operation(method: str, path: str, **facts: Any) -> Callable[[F], F]:
    """Declare that a method is an operation; `facts` are the further fields of `Operation`."""

    def declare(function: F) -> F:
        setattr(function, _ATTRIBUTE, Operation(function=function, method=method, path=path, **facts))
        return function

    return declare


def operations_of(interface: type) -> dict[str, Operation]:
    """Return the operations that an interface declares, by the names of their methods, in their order."""
    found = {}
    for kind in reversed(interface.__mro__):
        for name, member in vars(kind).items():
            declared = getattr(member, _ATTRIBUTE, None)
            if declared is not None:
                found[name] = declared
    return found
