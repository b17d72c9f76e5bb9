"""Leaders that lead on while nobody holds their cluster's leader key: in Patroni's failsafe mode, without their store.

Where a gateway is away for longer than the TTL, what its clusters have on leases is gone, and Patroni leads on where
all members agree. The router may see the store all the same. It asks who led last, and believes who says so. A file tells
the next router whom to ask, also for reads; of who leads, and who follows, it says nothing.
"""

from collections.abc import Mapping, Set
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from keyplan.apps.patroni.catalog import NODES_MAX
from keyplan.apps.patroni.layout import MemberKey
from keyplan.apps.patroni.logs import LOGGER
from keyplan.apps.patroni.records import Member
from keyplan.apps.patroni.router_checks import FailsafeChecks, PrimaryChecks, is_member_replica
from keyplan.apps.patroni.router_routes import Candidate, Leader, Seen, candidates, place_of
from keyplan.codec import Secret
from keyplan.engine import SYSTEM_CLOCK
from keyplan.errors import InvalidInputError
from keyplan.files import write_whole

__all__ = ["FailsafeLeaders"]

_ASKED_SECONDS: Final = 60.0
"""How long who says no is asked in each look. Why at all: Patroni may notice that its store is away after its key has gone."""
_ASKED_AGAIN_SECONDS: Final = 10.0
"""How often after that. Why still: who could not be asked, as while a network was cut, may lead on all the same."""
_ASKING_SECONDS: Final = 2.0
"""For how long each time. Why: a question has a second."""
_PLACED_SECONDS: Final = 10.0
"""How often it is noted where members are. Why not in each look: it reads the addresses of all of them."""


class _Noted(NamedTuple):
    """Whom the next router asks of a cluster: who led last, and all who were members then."""

    leader: Candidate
    members: dict[str, Leader]


class FailsafeLeaders:
    """Remembers clusters as they were while somebody led, for as long as that leader says that it leads on."""

    def __init__(self, file: Path | None = None) -> None:
        """`file` keeps who led last over the router's end; without it, who led before the router began is not asked."""
        self._checks = PrimaryChecks(FailsafeChecks().leads_on)
        self._replica_checks = PrimaryChecks(_is_replica)
        self._members: dict[MemberKey, Member] = {}
        self._file = file
        self._noted = {} if file is None else _kept(file)
        self._last = {name: noted.leader for name, noted in self._noted.items()}
        self._places = {name: noted.members for name, noted in self._noted.items()}
        self._placed_until = 0.0
        self._asked_until: dict[str, float] = {}
        self._leading: set[str] = set()

    @property
    def leaders(self) -> dict[str, str]:
        """The clusters that are led so now, by name, each with the member that leads it."""
        return {name: self._last[name].member for name in sorted(self._leading)}

    def beside(self, seen: Seen) -> tuple[Seen, dict[str, Candidate]]:
        """Return what is seen, with clusters whose leader leads on as they were; and who leads. Blocks for a moment at most."""
        led = candidates(seen)
        self._remember(seen, led)
        self._note()
        now = SYSTEM_CLOCK.monotonic()
        wanted = {name: last for name, last in self._last.items() if name not in led and self._is_asked(name, now)}
        leading = self._checks.confirmed(wanted)
        # Why those too: an answer that is under way is no other answer. A question has a second.
        leading |= self._leading & self._checks.pending & wanted.keys()
        for name in sorted(leading - self._leading):
            LOGGER.warning("%s of %s leads on in failsafe mode, and holds no leader key", wanted[name].member, name)
        self._leading = leading
        if not leading:
            return seen, led
        self._asked_until |= dict.fromkeys(leading, now + _ASKED_SECONDS)
        self._meet(leading)
        leaders = {**seen.leaders, **{name: wanted[name].member for name in leading}}
        members = {key: member for key, member in self._members.items() if key.cluster in leading}
        return (
            seen._replace(leaders=leaders, members={**members, **seen.members}),
            {**led, **{name: wanted[name] for name in leading}},
        )

    def _remember(self, seen: Seen, led: Mapping[str, Candidate]) -> None:
        self._asked_until = {name: until for name, until in self._asked_until.items() if name not in led}
        # Why by the leader's name alone: who leads now makes who led before nobody, also before its member's record is there.
        former = {
            name: last
            for name, last in self._last.items()
            if name in seen.allocations and seen.leaders.get(name) in {None, last.member} and last.leader.health
        }
        self._last = {**former, **led}
        self._places = {name: places for name, places in self._places.items() if name in self._last}
        now = SYSTEM_CLOCK.monotonic()
        if now >= self._placed_until:
            self._placed_until = now + _PLACED_SECONDS
            self._places |= _places(seen, led)
        kept = {
            key: member for key, member in self._members.items() if key.cluster in former and key.cluster not in led
        }
        self._members = {**kept, **seen.members}

    def _meet(self, leading: Set[str]) -> None:
        """Know the members of clusters that were led before this router began, and that say now that they are these."""
        wanted = {
            f"{name}/{other}": Candidate(other, place)
            for name in leading
            for other, place in self._places.get(name, {}).items()
            if MemberKey(name, other) not in self._members
        }
        for key in self._replica_checks.confirmed(wanted):
            self._members[MemberKey(*key.split("/"))] = _member(wanted[key].leader, "replica")
        for name in leading:
            member, place = self._last[name]
            self._members.setdefault(MemberKey(name, member), _member(place, "primary"))

    def _note(self) -> None:
        noted = {name: _Noted(last, self._places.get(name, {})) for name, last in self._last.items()}
        if self._file is None or noted == self._noted:
            return
        # Why also when it fails: the next change is written again, and no look is to wait for a broken disk.
        self._noted = noted
        try:
            write_whole(self._file, msgspec.json.encode(noted))
        except InvalidInputError as error:
            LOGGER.warning("who led last is not kept for the next router: %s", error)

    def _is_asked(self, name: str, now: float) -> bool:
        until = self._asked_until.setdefault(name, now + _ASKED_SECONDS)
        return now < until or (now - until) % _ASKED_AGAIN_SECONDS < _ASKING_SECONDS


def _places(seen: Seen, led: Mapping[str, Candidate]) -> dict[str, dict[str, Leader]]:
    """Return the members of each cluster that is led that can be asked, by name."""
    found: dict[str, dict[str, Leader]] = {name: {} for name in led}
    for key, member in sorted(seen.members.items()):
        places = found.get(key.cluster)
        # Why bounded: whoever has the cluster's token writes as many as they like.
        if places is None or len(places) >= NODES_MAX:
            continue
        place = place_of(member)
        if place is not None and place.health:
            places[key.member] = place
    return found


def _is_replica(key: str, candidate: Candidate) -> bool:
    return is_member_replica(key.partition("/")[0], candidate)


def _member(place: Leader, role: str) -> Member:
    """Return what a member's record would say that is at a place."""
    conn_url = Secret(f"postgres://{place.host}:{place.port}/postgres")
    return Member(role=role, state="running", conn_url=conn_url, api_url=f"http://{place.health}/patroni")


def _kept(file: Path) -> dict[str, _Noted]:
    """Return whom the router before could have asked. What is not readable is as good as nothing: it is asked of nobody."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=dict[str, _Noted])
    except (OSError, ValueError, RecursionError):
        return {}
