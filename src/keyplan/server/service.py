"""What a service is, and what it is given: the contract between the server and what is mounted on it."""

from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

from prometheus_client import CollectorRegistry
from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from keyplan.access import Principal
from keyplan.codec import SecretCipher
from keyplan.engine import SYSTEM_CLOCK, Area, Clock, Engine, Leases, Outside, Profile, Reach
from keyplan.server.access import Access, Caller
from keyplan.server.auditing import ServiceAudit
from keyplan.server.closing import Closing
from keyplan.server.confined import CallerStore, Stores
from keyplan.server.edge import Edge
from keyplan.server.rpc import RpcPlace
from keyplan.server.workers import Workers
from keyplan.store import LayoutCheck

__all__ = ["SERVICE_GROUP", "Service", "ServiceBuilder", "ServiceContext", "ServiceSettings", "no_lifespan"]

T = TypeVar("T")

SERVICE_GROUP: Final = "keyplan.services"
"""Entry points of services: a name and a ServiceBuilder, `build(context) -> Service`."""


class ServiceSettings(Mapping[str, str]):
    """The settings that concern one service, without its name: `--setting NAME.KEY=VALUE` is `KEY` for the service NAME.

    A setting without a service's name is for all of them. Read settings while the service is built: the server refuses to start
    with a setting that no service has asked for, because it is a misspelt one.
    """

    def __init__(self, settings: Mapping[str, str], service: str) -> None:
        dotted = f"{service}."
        self._own = {name: name for name in settings if "." not in name}
        self._own |= {name.removeprefix(dotted): name for name in settings if name.startswith(dotted)}
        self._settings = settings
        self._dotted = dotted
        self._asked: set[str] = set()
        self._known: set[str] = set()

    @property
    def known(self) -> Collection[str]:
        """The settings that were asked for, given or not, with the service's name before them."""
        return frozenset(self._known)

    @property
    def asked(self) -> Collection[str]:
        """The given settings that were asked for, as they were given."""
        return frozenset(self._asked)

    def __getitem__(self, name: str) -> str:
        self._known.add(self._dotted + name)
        given = self._own[name]
        self._asked.add(given)
        # Why: a service's own setting hides the general one, which was then asked for as well.
        if name in self._settings:
            self._asked.add(name)
        return self._settings[given]

    def __iter__(self) -> Iterator[str]:
        return iter(self._own)

    def __len__(self) -> int:
        return len(self._own)


@dataclass(frozen=True)
class ServiceContext:
    """What a service is given when it is built: ways to parts of the store, and no engine.

    There are a store for each caller (`store_of`), what the service keeps for itself (`own`), and nothing else. `access` tells
    who asks, and what an access file grants them (see `caller_of`, `require_admin`, `Access.require`). `closing` ends streams
    and background work when the server stops. `workers` are threads for calls that block. `metrics` takes the service's own
    figures; `/metrics` shows them. `audit` notes changes: a `Responder` has it do so, and a service that opens an engine of its
    own has its commits noted too (`audit.noting`). `secrets` are the keys of sealed secrets, and `layout_check` what becomes of
    layouts that are not the store's, for the stores that it makes. `edge` bounds and tells of what is asked in another protocol
    than HTTP.
    """

    name: str
    stores: Stores = field(repr=False)
    settings: Mapping[str, str]
    access: Access
    closing: Closing
    workers: Workers
    metrics: CollectorRegistry
    clock: Clock = SYSTEM_CLOCK
    audit: ServiceAudit = field(default_factory=ServiceAudit)
    secrets: SecretCipher | None = field(default=None, repr=False)
    layout_check: LayoutCheck = "off"
    edge: Edge = field(default_factory=Edge, repr=False)

    # ---- what is stored --------------------------------------------------------------------------------------------------

    @property
    def profile(self) -> Profile:
        """What the server's engine can, and its limits."""
        return self.stores.profile

    async def store_of(self, caller: Caller) -> CallerStore:
        """Return the store of a caller, for one request: what was made or changed hands since the last one is found.

        With an access file it holds what they are granted; without one it is the whole store, at no cost.
        """
        store = self.stores.of(caller)
        # Why also where the registry is not asked: who asks for the reach in the event loop is not to wait for the store there.
        if store.granted is not None and store.granted.must_look:
            await self.read(store.granted.renewed)
        return store

    def with_books(self, books: Callable[[Reach], Reach], leases: Leases) -> "ServiceContext":
        """Return the same with stores of callers to which a service's books of their keys belong; see `Stores`."""
        return replace(self, stores=self.stores.with_books(books, leases))

    def own(self, *places: bytes | Area, outside: Outside = Outside.REFUSED) -> Engine:
        """Return what the service itself reads and writes: keys below prefixes, or areas, which may be for reading alone.

        Whoever asks, and with an access file or without one, no other key is reached. Its leases are the service's own. Reads
        of other keys are refused or find nothing, as `outside` says; writes are refused. Never close it.
        """
        return self.stores.own_of(self.name, places, outside)

    def whole_store(self) -> Engine:
        """Return the server's engine, for the services that WHOLE_STORE names. Raises InvalidInputError for all others."""
        return self.stores.whole_for(self.name)

    # ---- calls -----------------------------------------------------------------------------------------------------------

    async def read(self, call: Callable[..., T], *arguments: Any, **named: Any) -> T:
        """Return what a short read returns: made at once when the engine reads from this machine's memory, else in a thread.

        Why at once: an embedded engine answers in a microsecond, and a thread costs eighty. Long scans belong to `run`.
        """
        if self.profile.has_local_reads:
            return call(*arguments, **named)
        return await self.workers.run(call, *arguments, **named)

    async def run(self, call: Callable[..., T], *arguments: Any, **named: Any) -> T:
        """Return what a commit, a long read or any other blocking call returns, made in a thread of `workers`."""
        return await self.workers.run(call, *arguments, **named)


@asynccontextmanager
async def no_lifespan() -> AsyncIterator[None]:
    """The lifespan of a service that has nothing to start and nothing to end."""
    yield


@dataclass(frozen=True)
class Service:
    """What is mounted: routes with absolute paths, their OpenAPI 3.1 `paths` and `components`, and work beside the requests.

    `lifespan` is entered before the first request and left after the last one, with the engine still open; whatever it raises
    keeps the server from starting. Callers are known by the server's tokens before a route is reached. With `has_own_access`
    requests without a caller get through too: such a service, whose protocol has its own log-in, refuses them itself.
    `is_confined` says that the service shows and changes for a caller no more than they are granted, by stores of callers or
    by what its operations need; one that does not say it is, with an access file, for callers who are granted to read and
    write everything.
    `principals` returns who else may ask beside the access file's principals: the same object until they change.
    `unknown` answers paths that no service has a route for, in the words of its protocol; of several, the first named. With
    `is_unknown_open` it answers requests without a caller, too. `rpc` is where gRPC listens for those of the routes that are
    calls of it (`RpcRoute`); None: nowhere.
    """

    name: str
    routes: Sequence[BaseRoute] = ()
    openapi: Mapping[str, Any] = field(default_factory=dict)
    lifespan: Callable[[], AbstractAsyncContextManager[None]] = no_lifespan
    has_own_access: bool = False
    is_confined: bool = False
    principals: Callable[[], Sequence[Principal]] | None = None
    unknown: ASGIApp | None = None
    is_unknown_open: bool = False
    rpc: RpcPlace | None = None


ServiceBuilder = Callable[[ServiceContext], Service]
