"""What services have of the server's engine: stores of callers, and keys of their own. None has the engine itself but by name.

With an access file a caller's store is what their grants come to; without one it is the whole store, at no cost. What a service
keeps for itself is confined in either case: whoever asks, its code reaches no other key.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from typing import Any, Final, Self, TypeVar

from keyplan.access import Grant, Policy
from keyplan.engine import (
    ALL_KEYS,
    LEASE_MARKS,
    Area,
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
from keyplan.errors import InvalidInputError
from keyplan.keyspace import GrantedReach
from keyplan.layout import BoundLayout
from keyplan.server.access import Access, Caller
from keyplan.store import index_state_key, root_key

__all__ = ["WHOLE_STORE", "CallerStore", "Stores", "layout_areas", "layout_state_areas"]

T = TypeVar("T")

WHOLE_STORE: Final[Mapping[str, str]] = {
    "keyspaces": "it says whose each key is, looks whether a new prefix is free, and removes what deleted key spaces held",
    "etcd-v2": "its ledger numbers every change of the store, whoever makes it",
}
"""The services that have the server's engine, each with the reason."""

_HISTORY_FLOORS: Final = b"\x00acf"
"""Why below the byte 00: that is in nobody's reach but an administrator's."""

_EVERYTHING: Final = Reach.everything()

_SERVICE: Final = "\x00"
"""What the names of services begin with as owners of leases. Why so: no principal's name does."""


@dataclass(frozen=True, eq=False)
class CallerStore:
    """The store as one caller may see it: `engine` refuses what lies outside, in `shown` it is not there.

    `reach` is what that is now, the same object until it changes; `granted` is what it is made of. `readable_since` is that of
    ConfinedEngine. `who` is the caller, for errors.
    """

    engine: Engine
    shown: Engine
    reach: Callable[[], Reach]
    readable_since: Callable[[KeyRange], int | None]
    granted: GrantedReach | None = field(default=None, repr=False)
    who: str = ""
    _kept: dict[Any, Any] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def of_all(cls, engine: Engine) -> Self:
        """Return the store of somebody who may see everything."""
        return cls(engine, engine, lambda: _EVERYTHING, lambda _range: 0)

    @property
    def is_whole(self) -> bool:
        """True when there is nothing that the caller may not see."""
        return self.reach().is_everything

    @property
    def is_writable(self) -> bool:
        """True when the caller may write anything at all.

        To be asked before a change is noted: who may write nothing must not fill an audit log with what is refused.
        """
        return self.granted is None or self.granted().can_write

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


class Stores:
    """The ways to one engine. Each caller's store is made once, for all services, and for one that keeps books of keys.

    `books` returns a reach with that part of such books which goes with it. `leases` are those that a service grants itself,
    for all callers; by default each has their own.
    """

    def __init__(
        self,
        engine: Engine,
        access: Access,
        *,
        books: Callable[[Reach], Reach] = _as_it_is,
        leases: Leases | None = None,
    ) -> None:
        self._engine = engine
        self._access = access
        self._books = books
        self._leases = leases
        self._whole = CallerStore.of_all(engine)
        self._of_callers: dict[str, CallerStore] = {}
        self._policy: Policy | None = None

    def with_books(self, books: Callable[[Reach], Reach], leases: Leases) -> "Stores":
        """Return the same ways for a service that keeps books, and grants leases itself."""
        return Stores(self._engine, self._access, books=books, leases=leases)

    @property
    def profile(self) -> Profile:
        """What the engine can."""
        return self._engine.profile

    def of(self, caller: Caller) -> CallerStore:
        """Return the store of a caller, as it is known."""
        policy = self._access.policy
        if policy is None:
            return self._whole
        if policy is not self._policy:
            self._forget_all_but(policy)
        known = self._of_callers.get(caller.name)
        return known or self._of_callers.setdefault(caller.name, self._made_for(caller.name))

    def _forget_all_but(self, policy: Policy) -> None:
        """Forget the stores of those whom the access file does not name any more."""
        self._policy = policy
        self._of_callers = {name: held for name, held in self._of_callers.items() if policy.named(name) is not None}

    def own_of(self, service: str, places: Collection[bytes | Area], outside: Outside) -> Engine:
        """Return what a service keeps for itself; see `ServiceContext.own`. Raises InvalidInputError for all keys."""
        reach = Reach(
            place if isinstance(place, Area) else Area(KeyRange.of_prefix(place), can_write=True) for place in places
        )
        if any(stretch.range == ALL_KEYS for stretch in reach.stretches):
            problem = "all keys are nobody's own: name a prefix that is not empty"
            raise InvalidInputError(source=f"service {service}", problem=problem)
        return ConfinedEngine(
            self._engine,
            lambda: reach,
            outside=outside,
            who=service,
            leases=OwnedLeases(self._engine, _SERVICE + service, LEASE_MARKS),
            closes_inner=False,
        )

    def whole_for(self, service: str) -> Engine:
        """Return the engine for a service that may have it. Raises InvalidInputError for every other one."""
        if service not in WHOLE_STORE:
            problem = (
                f"the whole store is for {', '.join(WHOLE_STORE)} alone: ask for stores of callers, or for its own keys"
            )
            raise InvalidInputError(source=f"service {service}", problem=problem)
        return self._engine

    def _made_for(self, name: str) -> CallerStore:
        engine, access = self._engine, self._access

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
            leases=OwnedLeases(engine, name, LEASE_MARKS) if self._leases is None else self._leases,
            # Why a sum: a name may be longer than a key.
            history=OwnedHistory(engine, name, _HISTORY_FLOORS + sha256(name.encode()).digest()),
            closes_inner=False,
        )
        shown = confined(outside=Outside.ABSENT)
        return CallerStore(confined(outside=Outside.REFUSED), shown, reach, shown.readable_since, granted, name)


# ---- what a service with a layout calls its own ------------------------------------------------------------------------


def layout_state_areas(*layouts: BoundLayout) -> Iterator[Area]:
    """Yield where it stands how far the indexes of layouts are, and which layouts their roots note: both are read first."""
    for bound in layouts:
        yield Area(KeyRange.of_key(root_key(bound.root)))
        for index in bound.indexes.values():
            yield Area(KeyRange.of_key(index_state_key(index)))


def layout_areas(bound: BoundLayout, *, read_only: Collection[str] = ()) -> Iterator[Area]:
    """Yield what a program reads and writes that binds a layout: the keys of its items, of which some may be to read alone."""
    keys = {name: table.keys for name, table in bound.tables.items()}
    keys |= {name: index.keys for name, index in bound.indexes.items()}
    ranges = {name: KeyRange(*of_item.range(())) for name, of_item in keys.items()}
    ranges |= {name: KeyRange.of_key(counter.raw_key) for name, counter in bound.counters.items()}
    for name, key_range in ranges.items():
        yield Area(key_range, can_write=name not in read_only)
    yield from layout_state_areas(bound)
