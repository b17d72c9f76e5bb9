"""Stores of callers: what a service is given that confines them, so that it has no other way to what is stored.

A service whose endpoints hold a ConfinedContext can ask for a caller's store and for its own keys, and for nothing else. With
an access file a caller's store is what their grants come to; without one it is the whole store, at no cost.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import Any, Final, TypeVar

from prometheus_client import CollectorRegistry

from keyplan.access import Grant
from keyplan.engine import (
    Area,
    Clock,
    ConfinedEngine,
    Engine,
    KeyRange,
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

    `reach` is what that is now, the same object until it changes.
    """

    engine: Engine
    shown: Engine
    reach: Callable[[], Reach]

    @property
    def is_whole(self) -> bool:
        """True when there is nothing that the caller may not see."""
        return self.reach().is_everything


class ConfinedContext:
    """A ServiceContext without its engine: in its place there is a store for each caller."""

    def __init__(self, context: ServiceContext) -> None:
        self._context = context
        self._whole = CallerStore(context.engine, context.engine, lambda: _EVERYTHING)
        self._stores: dict[str, tuple[GrantedReach, CallerStore]] = {}

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
        if self.access.policy is None:
            return self._whole
        known = self._stores.get(caller.name)
        granted, store = known or self._stores.setdefault(caller.name, self._made_for(caller.name))
        if granted.is_of_registry:
            await self.read(granted.renewed)
        return store

    def _made_for(self, name: str) -> tuple[GrantedReach, CallerStore]:
        engine, access = self._context.engine, self._context.access

        def grants() -> Sequence[Grant]:
            policy = access.policy
            return () if policy is None else policy.grants_of(name)

        reach = GrantedReach(engine, grants)
        confined = partial(
            ConfinedEngine,
            engine,
            reach,
            who=name,
            renewed=reach.renewed,
            leases=OwnedLeases(engine, name, _LEASE_MARKS),
            # Why a sum: a name may be longer than a key.
            history=OwnedHistory(engine, name, _HISTORY_FLOORS + sha256(name.encode()).digest()),
            closes_inner=False,
        )
        return reach, CallerStore(confined(outside=Outside.REFUSED), confined(outside=Outside.ABSENT), reach)
