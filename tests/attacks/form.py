"""The form of an attack: what somebody asks a protocol for, of a place that is not theirs, and how it is told that they got it.

A protocol is a Row. Its attacks are functions of an Attacker, which asks over a real socket and returns an Answer. The same
function is run as the owner of the place, who must get it, or else the attack shows nothing; and as all the others.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPResponse
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from msgspec import json

from keyplan.server import PolicyAccess, ServiceBuilder
from tests.attacks.world import MARKERS, SENTINEL, TOKENS, VALUE, Place, World, spellings
from tests.servers.gateways import GatewayServer

__all__ = ["ATTACKS", "Answer", "Attack", "Attacker", "Row", "Stream"]

ATTACKS: Final[Mapping[str, str]] = {
    "read": "what stands at a name that can be guessed",
    "list": "all that the place has",
    "list across": "a list that begins in the own place and ends in the other one",
    "list all": "everything that there is",
    "count": "how much the place has",
    "watch": "what changes in the place",
    "watch all": "what changes anywhere",
    "watch past": "what has changed in the place",
    "write": "to write there",
    "write beside": "to write there together with what is the own",
    "delete": "to remove one thing there",
    "delete all": "to remove all that is there",
    "condition": "to guess what is there by a condition of a write",
    "lease take-up": "to keep another's lease alive, or to hang something on it",
    "lease revoke": "to end another's lease",
    "compaction": "to take another's history away",
    "page token": "to go on with a list that somebody else began",
    "registry": "what keyplan keeps for itself",
    "encodings": "the same by other spellings",
    "long": "a name that is longer than anybody's",
}
"""What is tried on every protocol. One that has no such thing says so, and why, in Row.without."""

_SECONDS_MAX: Final = 45.0
_NUMBER: Final = re.compile(r"\d+")
_TOLD_APART: Final = re.compile(r'"(request_id|revision|index)":\s*"?[0-9a-f]+"?')


class Answer(NamedTuple):
    """What came back. `is_reached` says of what shows no text of the place, as a count, that it was got all the same."""

    status: int
    text: str
    is_reached: bool = False

    @property
    def shows(self) -> list[str]:
        """The hidden texts that stand in it, in any spelling."""
        return [marker for marker in MARKERS if any(one in self.text for one in spellings(marker))]

    @property
    def is_got(self) -> bool:
        """True when anything of the place came with it."""
        return bool(self.is_reached or self.shows)

    def masked(self, place: Place) -> tuple[int, str]:
        """Return it without the place's own names and without numbers: so it is compared."""
        text = self.text
        words = (place.known, place.hidden, place.prefix, place.prefix.strip("/"), place.keyspace, place.application)
        for word in words:
            digits = word.encode().hex()
            # Why in groups, too: so pages show hexadecimal digits.
            grouped = " ".join(digits[begin : begin + 8] for begin in range(0, len(digits), 8))
            for spelling in (*spellings(word), word.upper(), grouped):
                text = text.replace(spelling, "@")
        return self.status, _NUMBER.sub("#", _TOLD_APART.sub("#", text))

    def json(self) -> Any:
        """Return it decoded."""
        return json.decode(self.text)


class Stream:
    """An answer that goes on."""

    def __init__(self, connection: HTTPConnection, answer: HTTPResponse) -> None:
        self._connection = connection
        self._answer = answer
        self.status = answer.status
        self.text = ""
        self.is_cut = False

    def until(self, *texts: str) -> str:
        """Read until one of these stands there in any spelling, or to the end; return all that was read."""
        while not any(one in self.text for text in texts for one in spellings(text)):
            try:
                part = self._answer.read1(65_536)
            except (ConnectionError, ValueError, HTTPException):
                # Why told: a server cuts the stream of a caller who is gone, so that nobody takes it for whole.
                self.is_cut = True
                break
            if not part:
                break
            self.text += part.decode("utf-8", "replace")
        return self.text

    def rest(self) -> str:
        """Read to the end."""
        return self.until("\x00 a text that nobody sends")

    def close(self) -> None:
        """Go away."""
        self._answer.close()
        self._connection.close()


@dataclass
class Attacker:
    """Somebody who asks a protocol for a place. `headers` go with each request."""

    url: str
    who: str
    place: Place
    world: World
    headers: dict[str, str] = field(default_factory=dict)
    happening: Callable[["Attacker"], None] | None = None
    """What happens while they watch; by default something in the place, and then something that is their own."""

    # ---- asking ----------------------------------------------------------------------------------------------------------

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Answer:
        """Send one request, with the path as it stands, and return the whole answer."""
        connection, answer = self._sent(method, path, body, headers)
        try:
            text = answer.read().decode("utf-8", "replace")
            # Why with it: where a redirection leads may tell as much as a page.
            return Answer(answer.status, (answer.headers.get("Location") or "") + text)
        finally:
            connection.close()

    def post(self, path: str, message: object) -> Answer:
        """Send JSON."""
        return self.ask("POST", path, json.encode(message), **{"Content-Type": "application/json"})

    @contextmanager
    def stream(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Iterator[Stream]:
        """Send a request whose answer goes on."""
        stream = Stream(*self._sent(method, path, body, headers))
        try:
            yield stream
        finally:
            stream.close()

    def _sent(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]
    ) -> tuple[HTTPConnection, HTTPResponse]:
        connection = HTTPConnection(urlsplit(self.url).netloc, timeout=_SECONDS_MAX)
        token = TOKENS.get(self.who)
        own = {"Authorization": f"Bearer {token}"} if token else {}
        connection.request(method, path, body, {**own, **headers, **self.headers})
        return connection, connection.getresponse()

    # ---- others' doings --------------------------------------------------------------------------------------------------

    def owner(self) -> "Attacker":
        """The owner of the place, who does something first: opens a list, is granted a lease."""
        return Attacker(self.url, self.place.application, self.place, self.world)

    @property
    def own_key(self) -> str:
        """A key of their own; where they have none, one of nobody's."""
        try:
            return self.world.own_key_of(self.who)
        except KeyError:
            return "/elsewhere/sentinel"

    def happens(self) -> None:
        """Let something happen while they watch: in the place, and then, as the last of it, in what is their own."""
        if self.happening is not None:
            self.happening(self)
            return
        self.world.put({self.place.known: VALUE + " new"})
        if self.who in {"bank", "shop", "cell"}:
            self.world.put({self.own_key: SENTINEL})


Attack = Callable[[Attacker], Answer]


class Row:
    """A protocol: the services that speak it, its attacks, and which of ATTACKS it has no way to try."""

    def __init__(
        self,
        name: str,
        services: Mapping[str, ServiceBuilder],
        *,
        without: Mapping[str, str],
        settings: Mapping[str, str] | None = None,
        has_data: bool = True,
        has_places: bool = True,
    ) -> None:
        """`has_data`: what is deleted is gone. Without it, what the protocol shows outlives the data: a tombstone, a log.

        `has_places`: grants are on names and what begins with them. Without it, on operations, whatever they are asked about.
        """
        self.name = name
        self.services = services
        self.without = without
        self.settings = settings
        self.has_data = has_data
        self.has_places = has_places
        self.attacks: dict[str, Attack] = {}
        self.writing: set[str] = set()
        """Attacks that write: who may only read gets no further than others."""
        self.telling: dict[str, str] = {}
        """Attacks by which it can be told that a name is taken, and why that is so."""

    def attack(self, name: str, *, writes: bool = False, tells: str = "") -> Callable[[Attack], Attack]:
        """Say how one of ATTACKS is tried."""
        assert name in ATTACKS, name

        def add(function: Attack) -> Attack:
            self.attacks[name] = function
            if writes:
                self.writing.add(name)
            if tells:
                self.telling[name] = tells
            return function

        return add

    def settle(self, world: World) -> None:
        """Lay into the places what the protocol itself needs there. Keys of text are there already."""

    def served(self, world: World) -> AbstractContextManager[Any]:
        """Serve the world's store; what the block is given has a `url`."""
        access = PolicyAccess.of_file(world.file)
        return GatewayServer(world.engine, access=access, builders=self.services, settings=self.settings)
