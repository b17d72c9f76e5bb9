"""What HAProxy can be told: addresses in place of host names, and ports that it can have.

HAProxy refuses a configuration as a whole for one port that it cannot listen at and for one name that it cannot find, and a
command that names a host. So what it cannot have is left out and named, and everything else is led.
"""

import os
import re
import socket
from collections.abc import Callable, Sequence
from ipaddress import ip_address

from keyplan.apps.patroni.logs import LOGGER
from keyplan.apps.patroni.router_routes import Leader, ReplicaRoute, Route

__all__ = ["Places"]


def _address_of(host: str) -> str:
    """Return the address of a host as HAProxy writes it. Raises OSError when it has none."""
    address = str(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0])
    return f"[{address}]" if ":" in address else address


def _is_address(host: str) -> bool:
    try:
        ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True


class Places:
    """Chooses among routes those that HAProxy can have, and says which it cannot, once for as long as they are the same."""

    def __init__(self, bind: str, *, look_up: Callable[[str], str] = _address_of) -> None:
        self._bind = bind
        self._look_up = look_up
        self._addresses: dict[str, str] = {}
        self._holders: dict[int, str] = {}
        self.problems: list[str] = []

    def possible(
        self, routes: Sequence[Route], replicas: Sequence[ReplicaRoute], *, held: set[int]
    ) -> tuple[list[Route], list[ReplicaRoute]]:
        """Return what HAProxy, which listens at `held` now, can have of these routes, in their order."""
        known, self.problems = frozenset(self.problems), []
        self._look_up_all(routes, replicas)
        # Why those first that have their port: of two that were given one port, who had it keeps it.
        asked: list[Route | ReplicaRoute] = [*routes, *replicas]
        asked.sort(key=lambda route: self._holders.get(route.port) != route.instance)
        holders: dict[int, str] = {}
        chosen = {id(route) for route in asked if self._takes(route, holders, held)}
        self._holders = holders
        for problem in self.problems:
            if problem not in known:
                LOGGER.error("%s; all other ports are led", problem)
        return (
            [self._led(route) for route in routes if id(route) in chosen],
            [self._read(route) for route in replicas if id(route) in chosen],
        )

    def _takes(self, route: Route | ReplicaRoute, holders: dict[int, str], held: set[int]) -> bool:
        """Whether a route gets its port."""
        if route.port in holders:
            self.problems.append(f"port {route.port} of {route.instance} is the port of {holders[route.port]} too")
            return False
        if route.port not in held and (problem := self._refusal(route.port)):
            self.problems.append(f"port {route.port} of {route.instance} cannot be listened at: {problem}")
            return False
        holders[route.port] = route.instance
        return True

    def _refusal(self, port: int) -> str:
        """Why nobody can listen at a port; nothing when one can."""
        try:
            family = socket.AF_INET6 if ":" in self._bind else socket.AF_INET
            host = self._bind.strip("[]")
            socket.create_server(("" if host == "*" else host, port), family=family).close()
        except OSError as error:
            return os.strerror(error.errno) if error.errno else str(error)
        return ""

    # ---- host names ------------------------------------------------------------------------------------------------------

    def _look_up_all(self, routes: Sequence[Route], replicas: Sequence[ReplicaRoute]) -> None:
        places = [route.leader for route in routes if route.leader is not None]
        places += [place for reads in replicas for place in (*reads.asked, *reads.following)]
        found: dict[str, str] = {}
        for host in sorted({place.host for place in places if not _is_address(place.host)}):
            try:
                found[host] = self._look_up(host)
            # Why the last: a member may have written what is no name, which is refused before it is looked up.
            except (OSError, ValueError) as error:
                problem = error.strerror if isinstance(error, OSError) and error.strerror else error
                self.problems.append(f"the address of {_shown(host)} cannot be found: {problem}")
                # Why: who answered there a moment ago is there still, as far as anybody knows.
                if host in self._addresses:
                    found[host] = self._addresses[host]
        self._addresses = found

    def _placed(self, place: Leader | None) -> Leader | None:
        if place is None or _is_address(place.host):
            return place
        address = self._addresses.get(place.host)
        return None if address is None else place._replace(host=address)

    def _led(self, route: Route) -> Route:
        return route._replace(leader=self._placed(route.leader))

    def _read(self, route: ReplicaRoute) -> ReplicaRoute:
        def placed(places: Sequence[Leader]) -> tuple[Leader, ...]:
            return tuple(found for place in places if (found := self._placed(place)) is not None)

        return route._replace(
            asked=placed(route.asked), following=placed(route.following), leader=self._placed(route.leader)
        )


def _shown(host: str) -> str:
    return re.sub(r"[^\x20-\x7e]", "?", host)
