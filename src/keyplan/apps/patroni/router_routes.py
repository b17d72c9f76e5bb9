"""Where each public port leads: a pure function of what the store holds. Nothing here touches a store or a socket."""

from collections.abc import Mapping
from ipaddress import ip_address
from types import MappingProxyType
from typing import NamedTuple
from urllib.parse import urlsplit

from keyplan.apps.patroni.catalog import NODES_MAX
from keyplan.apps.patroni.clusters import RUNNING
from keyplan.apps.patroni.layout import MemberKey
from keyplan.apps.patroni.records import Member

__all__ = [
    "Candidate",
    "Leader",
    "ReplicaRoute",
    "Route",
    "Seen",
    "candidates",
    "health_of",
    "is_local",
    "place_of",
    "replica_routes",
    "routes",
]


class Seen(NamedTuple):
    """What a router reads of the store, as of one revision."""

    allocations: Mapping[str, int]
    leaders: Mapping[str, str]
    members: Mapping[MemberKey, Member]
    replica_ports: Mapping[str, int] = MappingProxyType({})


class Leader(NamedTuple):
    """A place that takes an instance's connections: PostgreSQL's host and port, and where its health is asked, `host:port`."""

    host: str
    port: int
    health: str = ""


class Candidate(NamedTuple):
    """The member that holds an instance's leader key, as the store has it: not asked yet whether it takes writes."""

    member: str
    leader: Leader


class Route(NamedTuple):
    """An instance's public port and where it leads; None: to nobody, and connections are refused at once."""

    instance: str
    port: int
    leader: Leader | None


class ReplicaRoute(NamedTuple):
    """An instance's port for reads. It leads to replicas alone; to none of them, and connections are refused at once.

    `asked` are all members that say by their REST interface whether they follow: a switchover changes nothing about them.
    `following` are those that follow as far as the store knows, and `leader` is who does not.
    """

    instance: str
    port: int
    asked: tuple[Leader, ...]
    following: tuple[Leader, ...]
    leader: Leader | None = None

    @property
    def servers(self) -> tuple[Leader, ...]:
        """Whom somebody who asks them chooses among: all that can be asked, and of the others those that follow."""
        return self.asked + tuple(place for place in self.following if not place.health)


def candidates(seen: Seen) -> dict[str, Candidate]:
    """Return who leads each routed instance, by its leader key and that member's address; instances without one are absent."""
    found: dict[str, Candidate] = {}
    for instance in seen.allocations:
        name = seen.leaders.get(instance)
        member = seen.members.get(MemberKey(instance, name)) if name else None
        place = place_of(member) if member is not None else None
        if name is not None and place is not None:
            found[instance] = Candidate(name, place)
    return found


def place_of(member: Member) -> Leader | None:
    """Return where a member takes connections, and where it is asked; None where its record names no place."""
    if member.address is None:
        return None
    host, _, port = member.address.rpartition(":")
    return Leader(host, int(port), health_of(member, host))


def routes(seen: Seen, confirmed: Mapping[str, Candidate]) -> tuple[Route, ...]:
    """Return a route for each allocated port, by instance: the listener stays when there is nobody to lead to (1.6, 7)."""
    return tuple(
        Route(instance, port, confirmed[instance].leader if instance in confirmed else None)
        for instance, port in sorted(seen.allocations.items())
    )


def replica_routes(seen: Seen) -> tuple[ReplicaRoute, ...]:
    """Return a route for each port for reads, by instance; members by name.

    Where nobody is known to lead, nobody is known to follow: `leaders` has who led last while nobody does.
    """
    members: dict[str, list[tuple[str, Member]]] = {}
    for key, member in sorted(seen.members.items()):
        members.setdefault(key.cluster, []).append((key.member, member))
    found: list[ReplicaRoute] = []
    for instance, port in sorted(seen.replica_ports.items()):
        asked: list[Leader] = []
        following: list[Leader] = []
        leader: Leader | None = None
        led_by = seen.leaders.get(instance)
        there = members.get(instance, []) if led_by is not None else []
        if len(there) > NODES_MAX:
            # Why bounded: whoever has the cluster's token writes as many as they like, and each is checked every second.
            there = sorted(there, key=lambda each: (each[0] != led_by, each[0]))[:NODES_MAX]
        for name, member in there:
            place = place_of(member)
            if place is None:
                continue
            if place.health:
                asked.append(place)
            if name == led_by:
                leader = place
            elif member.role == "replica" and member.state in RUNNING:
                following.append(place)
        found.append(ReplicaRoute(instance, port, tuple(asked), tuple(following), leader))
    return tuple(found)


def health_of(member: Member, host: str) -> str:
    """The `host:port` of a member's REST interface; empty when the router cannot ask there.

    The document's own `api_url` is on loopback, which on another machine is another program (1.6, 8): it counts only where
    PostgreSQL itself is on loopback, and so on this machine.
    """
    try:
        place = urlsplit(member.api_url or "")
        if not place.hostname or place.port is None:
            return ""
    except ValueError:
        return ""
    if is_local(place.hostname) and not is_local(host):
        return ""
    return f"[{place.hostname}]:{place.port}" if ":" in place.hostname else f"{place.hostname}:{place.port}"


def is_local(host: str) -> bool:
    """Whether a host means the machine that asks."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"
