"""What both etcd gateways have: keys of their own, an identity, members, etcd's routes; and one thread that follows the store.

    00 65 32 69                  who we are: Identity
    00 65 32 ...                 what the v2 keys API counts: keyplan.server.etcd_v2.records

Everything below the byte 00 is keyplan's own (the registry of key spaces is there too); clients may read it and not write it.

Whatever the path, OPTIONS is answered with 200. etcd lets the pages of every site look (`Access-Control-Allow-Origin: *`); here
only those that the server is told of, whose answers the gate marks: a request from this machine needs no token.
"""

import posixpath
import secrets
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from typing import Annotated, Final, NamedTuple
from urllib.parse import quote

import msgspec
from starlette.datastructures import Headers
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Receive, Scope, Send

from keyplan.engine import ALL_KEYS, Backoff, Commit, Engine, Entry, Event, KeyAbsent, KeyUnchanged, Put, Watch
from keyplan.errors import EngineError, KeyplanError
from keyplan.server.access import caller_of
from keyplan.server.logs import LOGGER
from keyplan.settings import Setting, TextForm

__all__ = [
    "BOOKS",
    "NO_SPACE",
    "RESERVED",
    "SERVER_VERSION",
    "URLS_FORM",
    "EtcdRoute",
    "Follower",
    "Identity",
    "Member",
    "MemberSettings",
    "Membership",
    "answer_unknown",
    "cleaned_path",
    "has_caller",
    "insufficient_credentials",
    "is_reserved",
    "load_identity",
    "not_found_route",
    "redirect_to",
    "version_route",
]


# ---- reserved keys ----------------------------------------------------------------------------------------------------

RESERVED: Final = b"\x00"
"""What keyplan keeps for itself begins with this."""

BOOKS: Final = RESERVED + b"e2"
"""The gateways' part of it."""

IDENTITY_KEY: Final = BOOKS + b"i"


def is_reserved(key: bytes) -> bool:
    """Tell whether a key is keyplan's own: no client of a gateway may write it."""
    return key.startswith(RESERVED)


NO_SPACE: Final = "etcdserver: mvcc: database space exceeded"
"""Said of the quota of a key space: etcd has one for all that it holds, and its clients know this sentence."""


# ---- identity ---------------------------------------------------------------------------------------------------------

SERVER_VERSION: Final = "3.4.23"
"""Whose behaviour the gateways have. Why: Patroni picks the paths below /v3 by it, and wants plain dotted integers."""

CLUSTER_VERSION: Final = "3.4.0"

_TERM: Final = 2
"""Why constant: Patroni takes an answer with a lower term for one of a stale node; a single etcd begins at 2."""


_Id = Annotated[int, msgspec.Meta(ge=1, le=(1 << 63) - 1)]


class Identity(msgspec.Struct, frozen=True, array_like=True):
    """The ids that every gateway on one store gives, and the term, which never goes down."""

    cluster_id: _Id
    member_id: _Id
    term: _Id

    @property
    def cluster_hex(self) -> str:
        """The cluster's id as etcd spells it in headers."""
        return f"{self.cluster_id:x}"

    @property
    def member_hex(self) -> str:
        """The member's id as etcd spells it in the v2 API."""
        return f"{self.member_id:x}"


def load_identity(engine: Engine) -> Identity:
    """Return the store's identity; the first gateway on a store draws it, and all others find it.

    One that cannot be read is drawn anew: clients that see another cluster begin again with a read.
    """

    def attempt() -> Identity:
        with engine.snapshot() as snapshot:
            entry, epoch = snapshot.get(IDENTITY_KEY), snapshot.epoch
        found = None if entry is None else _identity_in(entry)
        if found is not None:
            return found
        # Why 63 bits and not zero: clients keep the ids in signed numbers.
        drawn = Identity(1 + secrets.randbits(62), 1 + secrets.randbits(62), _TERM)
        guard = KeyAbsent(IDENTITY_KEY) if entry is None else KeyUnchanged(IDENTITY_KEY, entry.mod_revision)
        engine.commit(Commit((guard,), (Put(IDENTITY_KEY, msgspec.msgpack.encode(drawn)),), epoch))
        return drawn

    return Backoff().until_committed(attempt)


def _identity_in(entry: Entry) -> Identity | None:
    try:
        return msgspec.msgpack.decode(entry.value, type=Identity)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        LOGGER.error("the gateways' identity cannot be read; another one is drawn")
        return None


# ---- members ----------------------------------------------------------------------------------------------------------


class Member(NamedTuple):
    """A gateway as a member of the cluster."""

    id: int
    name: str
    url: str


def _urls(text: str) -> tuple[str, ...]:
    urls = tuple(url.strip().rstrip("/") for url in text.split(",") if url.strip())
    for url in urls:
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"must be http:// or https:// addresses; {url!r} is none")
    return urls


URLS_FORM: Final = TextForm(_urls, "`URL,URL`")
"""Addresses of gateways, as a setting has them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSettings:
    """The settings that both gateways have."""

    advertise: Annotated[
        tuple[str, ...],
        Setting(
            "the addresses of all gateways on this store, the same list for each; Patroni replaces its own list by this one",
            form=URLS_FORM,
            default="the address that a client used itself",
        ),
    ] = ()


class Membership:
    """The gateways of one store.

    Patroni replaces the addresses that it was given by these, so each must be one that the client can reach. `advertised` are
    the URLs of all gateways on this store, in one order everywhere; empty: the client's own, from its request.
    """

    def __init__(self, identity: Identity, advertised: Sequence[str] = ()) -> None:
        self._identity = identity
        self._advertised = tuple(advertised)

    def members(self, scope: Scope) -> list[Member]:
        """Return the members as this request may know them; the first is the one that leads."""
        urls = self._advertised or (_own_address(scope),)
        return [
            Member(self._identity.member_id + position, f"keyplan{position}", url) for position, url in enumerate(urls)
        ]


def _own_address(scope: Scope) -> str:
    """Return the server's address as the client spelled it."""
    host = Headers(scope=scope).get("host")
    if not host:
        server = scope.get("server") or ("localhost", 0)
        host = f"{server[0]}:{server[1]}"
    return f"{scope.get('scheme', 'http')}://{host}"


# ---- routes -----------------------------------------------------------------------------------------------------------

_NOSNIFF: Final = {"X-Content-Type-Options": "nosniff"}

_VERSION: Final = msgspec.json.encode(
    {"etcdserver": SERVER_VERSION, "etcdcluster": CLUSTER_VERSION, "program": "keyplan", "version": version("keyplan")}
)

Endpoint = Callable[[Request], Awaitable[Response]]


class EtcdRoute(Route):
    """A path whose methods are etcd's: OPTIONS is answered with 200, any other with 405 in etcd's words.

    `methods` in the order in which etcd names them. With `needs_caller`, who is not known to the server is refused.
    """

    def __init__(
        self, path: str, endpoint: Endpoint, *, methods: Sequence[str] = ("GET",), needs_caller: bool = False
    ) -> None:
        super().__init__(path, endpoint)
        self._allowed = tuple(methods)
        self._needs_caller = needs_caller

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Match the path, whatever the method."""
        match, child_scope = super().matches(scope)
        return (Match.NONE if match is Match.NONE else Match.FULL), child_scope

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["method"] == "OPTIONS":
            await Response()(scope, receive, send)
        elif scope["method"] not in self._allowed:
            headers = {**_NOSNIFF, "Allow": ",".join(self._allowed)}
            await Response("Method Not Allowed\n", 405, headers, "text/plain")(scope, receive, send)
        elif self._needs_caller and not has_caller(scope):
            await insufficient_credentials()(scope, receive, send)
        else:
            await self.app(scope, receive, send)


def insufficient_credentials() -> Response:
    """Return what etcd answers of what is no key to those who may not ask for it."""
    return Response(b'{"message":"Insufficient credentials"}', 401, media_type="application/json")


def has_caller(scope: Scope) -> bool:
    """Tell whether the server knows who asks."""
    return caller_of(HTTPConnection(scope)) is not None


def version_route() -> Route:
    """Return the route by which clients find out what they talk to.

    Why not the shell's answer: Patroni looks for `etcdserver` and `etcdcluster`. Trap: it sends a body with its GET.
    """
    return EtcdRoute("/version", _tell_version, methods=("GET", "HEAD"))


async def _tell_version(_request: Request) -> Response:
    return Response(_VERSION, media_type="application/json")


def not_found_route(path: str, text: str = "404 page not found\n") -> Route:
    """Return the route of what etcd has nothing at."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        await _not_found(text, scope, receive, send)

    return Route(path, _Application(answer))


async def answer_unknown(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a request for a path that the server has nothing at; one that is not clean is led to the clean one."""
    path: str = scope["path"]
    if path.startswith("/") and scope["method"] != "OPTIONS" and (cleaned := cleaned_path(path)) != path:
        await redirect_to(cleaned, scope, receive, send)
    else:
        await _not_found("404 page not found\n", scope, receive, send)


async def _not_found(text: str, scope: Scope, receive: Receive, send: Send) -> None:
    is_asked_for_options = scope["method"] == "OPTIONS"
    answer = Response() if is_asked_for_options else Response(text, 404, _NOSNIFF, "text/plain")
    await answer(scope, receive, send)


class _Application:
    """An ASGI application as an object: Starlette takes a function for one that wants a Request."""

    def __init__(self, answer: Callable[[Scope, Receive, Send], Awaitable[None]]) -> None:
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._answer(scope, receive, send)


# ---- paths that are not clean -----------------------------------------------------------------------------------------


def cleaned_path(path: str) -> str:
    """Return the path as etcd wants it asked for: without empty segments and dots; a slash at the end may stay."""
    if "//" not in path and "/." not in path:
        return path
    cleaned = posixpath.normpath("/" + path.lstrip("/"))
    return cleaned + "/" if path.endswith("/") and cleaned != "/" else cleaned


async def redirect_to(cleaned: str, scope: Scope, receive: Receive, send: Send) -> None:
    """Lead a client to the clean path, as etcd does."""
    location = quote(cleaned, safe="/:@!$&'()*+,;=~-._")
    if scope["query_string"]:
        location += "?" + scope["query_string"].decode("latin-1")
    shown = location.replace("&", "&amp;").replace('"', "&#34;").replace("<", "&lt;").replace(">", "&gt;")
    body = f'<a href="{shown}">Moved Permanently</a>.\n\n' if scope["method"] == "GET" else ""
    media_type = "text/html" if scope["method"] in {"GET", "HEAD"} else None
    await Response(body, 301, {"Location": location}, media_type)(scope, receive, send)


# ---- following the store ----------------------------------------------------------------------------------------------

_POLL_SECONDS: Final = 1.0
"""Why: the bound on how long an end that nobody announced goes unnoticed; changes and `stop` wake the watch at once."""

_JOIN_SECONDS_MAX: Final = 10.0


class Follower:
    """Hands every batch of changes to `sink` with the revision that it reaches, in order, from its own thread.

    When the watch fails, `lost` is called once with the error, from that thread, which then ends; start another one.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        after: int,
        sink: Callable[[Sequence[Event], int], None],
        lost: Callable[[KeyplanError], None],
    ) -> None:
        """Open the watch. Raises HistoryCompactedError when the changes after `after` are no longer known."""
        self._sink = sink
        self._lost = lost
        self._is_stopping = False
        self._watch: Watch = engine.watch(ALL_KEYS, after=after)
        self._thread = threading.Thread(target=self._run, name="keyplan-follower", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        reached = self._watch.revision
        try:
            while not self._is_stopping:
                events = self._watch.poll(_POLL_SECONDS)
                if events or self._watch.revision != reached:
                    reached = self._watch.revision
                    self._sink(events, reached)
        except KeyplanError as error:
            self._lose(error)
        except Exception as error:
            # Why: nobody sees a thread end, and others would wait for its changes for ever.
            self._lose(EngineError(problem=f"changes cannot be followed: {type(error).__name__}: {error}"))
            raise
        finally:
            with suppress(KeyplanError):  # Why: a watch that is lost was told of above.
                self._watch.close()

    def _lose(self, error: KeyplanError) -> None:
        if not self._is_stopping:
            self._lost(error)

    def stop(self) -> None:
        """End the watch and wait for the thread. Stopping twice is harmless."""
        self._is_stopping = True
        with suppress(KeyplanError):  # Why: it ends either way, and nobody reads it any more.
            self._watch.close()
        if self._thread is not threading.current_thread():
            self._thread.join(_JOIN_SECONDS_MAX)
