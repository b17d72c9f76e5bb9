"""Where each public port leads: a pure function of what the store holds. Nothing here touches a store or a socket."""

from collections.abc import Mapping
from ipaddress import ip_address
from typing import NamedTuple
from urllib.parse import urlsplit

from keyplan.apps.patroni.layout import MemberKey
from keyplan.apps.patroni.records import Member

__all__ = ["Candidate", "Leader", "Route", "Seen", "candidates", "health_of", "is_local", "routes"]


class Seen(NamedTuple):
    """What a router reads of the store, as of one revision."""

    allocations: Mapping[str, int]
    leaders: Mapping[str, str]
    members: Mapping[MemberKey, Member]


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


def candidates(seen: Seen) -> dict[str, Candidate]:
    """Return who leads each routed instance, by its leader key and that member's address; instances without one are absent."""
    found: dict[str, Candidate] = {}
    for instance in seen.allocations:
        name = seen.leaders.get(instance)
        member = seen.members.get(MemberKey(instance, name)) if name else None
        if name is None or member is None or member.address is None:
            continue
        host, _, port = member.address.rpartition(":")
        found[instance] = Candidate(name, Leader(host, int(port), health_of(member, host)))
    return found


def routes(seen: Seen, confirmed: Mapping[str, Candidate]) -> tuple[Route, ...]:
    """Return a route for each allocated port, by instance: the listener stays when there is nobody to lead to (1.6, 7)."""
    return tuple(
        Route(instance, port, confirmed[instance].leader if instance in confirmed else None)
        for instance, port in sorted(seen.allocations.items())
    )


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
