"""Stores of callers: what a service is given that confines them, so that it has no other way to what is stored.

A service whose endpoints hold a ConfinedContext can ask for a caller's store and for its own keys, and for nothing else. With
an access file a caller's store is what their grants come to; without one it is the whole store, at no cost.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from typing import Any, Final, Self, TypeVar

from prometheus_client import CollectorRegistry

from keyplan.access import Grant, Policy
from keyplan.engine import (
    Area,
    Clock,
    ConfinedEngine,
    Engine,
    KeyRange,
    Leases,
    Outside,
    OwnedHistory,
    OwnedLeases,
    Profile,
    Reach,
)
from keyplan.keyspace import GrantedReach
from keyplan.server.access import Access, Caller
from keyplan.server.auditing import ServiceAudit
from keyplan.server.closing import Closing
from keyplan.server.service import ServiceContext

__all__ = ["CallerStore", "ConfinedContext"]

T = TypeVar("T")

# Why below the byte 00: that is in nobody's reach but an administrator's.
_LEASE_MARKS: Final = b"\x00acl"
_HISTORY_FLOORS: Final = b"\x00acf"

_EVERYTHING: Final = Reach.everything()


@dataclass(frozen=True, eq=False)
class CallerStore:
    """The store as one caller may see it: `engine` refuses what lies outside, in `shown` it is not there.

    `reach` is what that is now, the same object until it changes. `readable_since` is that of ConfinedEngine.
    """

    engine: Engine
    shown: Engine
    reach: Callable[[], Reach]
    readable_since: Callable[[KeyRange], int | None]
    _kept: dict[Any, Any] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def of_all(cls, engine: Engine) -> Self:
        """Return the store of somebody who may see everything."""
        return cls(engine, engine, lambda: _EVERYTHING, lambda _range: 0)

    @property
    def is_whole(self) -> bool:
        """True when there is nothing that the caller may not see."""
        return self.reach().is_everything

    def kept(self, make: "Callable[[CallerStore], T]") -> T:
        """Return what `make` makes of this store, made once. It goes with the store, when its caller is named no more."""
        found: T | None = self._kept.get(make)
        return self._kept.setdefault(make, make(self)) if found is None else found


def _as_it_is(reach: Reach) -> Reach:
    return reach


class _ReachWithBooks:
    """A caller's reach with what of a service's own keys goes with it; the same object until the reach changes."""

    def __init__(self, granted: GrantedReach, books: Callable[[Reach], Reach]) -> None:
        self._granted = granted
        self._books = books
        self._made = (Reach(), books(Reach()))

    def __call__(self) -> Reach:
        return self._with_books(self._granted())

    def renewed(self) -> Reach:
        return self._with_books(self._granted.renewed())

    def _with_books(self, reach: Reach) -> Reach:
        known, made = self._made
        if known is not reach:
            made = reach if reach.is_everything else self._books(reach)
            self._made = (reach, made)
        return made


class ConfinedContext:
    """A ServiceContext without its engine: in its place there is a store for each caller.

    Where a service keeps books of keys, `books` returns a reach with that part of them which goes with it. `leases` are those
    that the service grants itself, for all callers; by default each has their own.
    """

    def __init__(
        self,
        context: ServiceContext,
        *,
        books: Callable[[Reach], Reach] = _as_it_is,
        leases: Leases | None = None,
    ) -> None:
        self._context = context
        self._books = books
        self._leases = leases
        self._whole = CallerStore.of_all(context.engine)
        self._stores: dict[str, tuple[GrantedReach, CallerStore]] = {}
        self._policy: Policy | None = None

    @property
    def profile(self) -> Profile:
        """What the engine can."""
        return self._context.engine.profile

    @property
    def access(self) -> Access:
        """As the service's."""
        return self._context.access

    @property
    def closing(self) -> Closing:
        """As the service's."""
        return self._context.closing

    @property
    def clock(self) -> Clock:
        """As the service's."""
        return self._context.clock

    @property
    def metrics(self) -> CollectorRegistry:
        """As the service's."""
        return self._context.metrics

    @property
    def audit(self) -> ServiceAudit:
        """As the service's."""
        return self._context.audit

    @property
    def settings(self) -> Mapping[str, str]:
        """As the service's."""
        return self._context.settings

    async def read(self, call: Callable[..., T], *arguments: Any, **named: Any) -> T:
        """As `ServiceContext.read`."""
        return await self._context.read(call, *arguments, **named)

    async def run(self, call: Callable[..., T], *arguments: Any, **named: Any) -> T:
        """As `ServiceContext.run`."""
        return await self._context.run(call, *arguments, **named)

    def own(self, prefix: bytes) -> Engine:
        """Return what the service keeps for itself, below a prefix of its own."""
        reach = Reach([Area(KeyRange.of_prefix(prefix), can_write=True)])
        return ConfinedEngine(self._context.engine, lambda: reach, outside=Outside.REFUSED, closes_inner=False)

    async def store_of(self, caller: Caller) -> CallerStore:
        """Return the store of a caller, for one request: what was made or changed hands since the last one is found."""
        policy = self.access.policy
        if policy is None:
            return self._whole
        if policy is not self._policy:
            self._forget_all_but(policy)
        known = self._stores.get(caller.name)
        granted, store = known or self._stores.setdefault(caller.name, self._made_for(caller.name))
        if granted.is_of_registry:
            await self.read(granted.renewed)
        return store

    def _forget_all_but(self, policy: Policy) -> None:
        """Forget the stores of those whom the access file does not name any more."""
        self._policy = policy
        self._stores = {name: held for name, held in self._stores.items() if policy.named(name) is not None}

    def _made_for(self, name: str) -> tuple[GrantedReach, CallerStore]:
        engine, access = self._context.engine, self._context.access

        def grants() -> Sequence[Grant]:
            policy = access.policy
            return () if policy is None else policy.grants_of(name)

        granted = GrantedReach(engine, grants)
        reach = granted if self._books is _as_it_is else _ReachWithBooks(granted, self._books)
        confined = partial(
            ConfinedEngine,
            engine,
            reach,
            who=name,
            renewed=reach.renewed,
            leases=OwnedLeases(engine, name, _LEASE_MARKS) if self._leases is None else self._leases,
            # Why a sum: a name may be longer than a key.
            history=OwnedHistory(engine, name, _HISTORY_FLOORS + sha256(name.encode()).digest()),
            closes_inner=False,
        )
        shown = confined(outside=Outside.ABSENT)
        return granted, CallerStore(confined(outside=Outside.REFUSED), shown, reach, shown.readable_since)
