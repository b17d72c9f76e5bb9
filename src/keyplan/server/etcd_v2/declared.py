"""The operations of the v2 keys API, each declared: where it is, what its caller needs, what it changes.

The routes and the OpenAPI description are made of it. Requests are read, and answers written, in etcd's own forms, which stand
in forms.py and answers.py: what is declared of them is that they are JSON, or text.
"""

from typing import Any, Final

from keyplan.operations import ITSELF, NOTHING, Act, Change, Contract, Need, needs_of, operation, prefix

__all__ = ["CONTRACT", "NEEDS", "PREFIX", "Keys", "Members"]

PREFIX: Final = "/v2/keys"

CONTRACT: Final = Contract(
    "etcd-v2",
    always=(),
    other_failures={"description": "`errorCode`, `message`, `cause`, `index`; of what is no key, `message`."},
)

_KEY: Final = f"{PREFIX}/{{path}}"
_EVENT: Final = "An event or a node, as etcd's v2 API writes it."
_TO_WRITE: Final = Need(Act.WRITE, prefix("path"))
# Why on nothing: clients look for the gateways before they ask for keys, and are told nothing of what is stored.
_TO_ASK: Final = Need(Act.READ, NOTHING)


class Keys:
    """The operations on keys. The path is that of a key or a directory, without the slash that it begins with."""

    @operation("GET", _KEY, name="getEtcdKey", needs=Need(Act.READ, prefix("path")), answers=_EVENT)
    def get(self, path: str) -> Any:
        """Read a key or a directory, or wait for its next event."""
        raise NotImplementedError

    @operation("PUT", _KEY, name="setEtcdKey", needs=_TO_WRITE, change=Change("set", "{path}"), answers=_EVENT)
    def put(self, path: str) -> Any:
        """Set, create, update, compare and swap, or refresh a key."""
        raise NotImplementedError

    @operation("POST", _KEY, name="createEtcdKey", needs=_TO_WRITE, change=Change("create", "{path}"), answers=_EVENT)
    def post(self, path: str) -> Any:
        """Create a key under a name made of its index."""
        raise NotImplementedError

    @operation("DELETE", _KEY, name="deleteEtcdKey", needs=_TO_WRITE, change=Change("delete", "{path}"), answers=_EVENT)
    def delete(self, path: str) -> Any:
        """Delete a key or a directory, or compare and delete."""
        raise NotImplementedError


class Members:
    """What the gateways tell of themselves, as etcd's members; `MembersRoutes` has the methods."""

    @operation("GET", "/v2/machines", name="getEtcdMachines", needs=_TO_ASK, answers="It.")
    def machines(self) -> str:
        """The addresses of the gateways, as text."""
        raise NotImplementedError

    @operation("GET", "/v2/members", name="getEtcdMembers", needs=_TO_ASK, answers="It.", has_slash=True)
    def members(self) -> Any:
        """The gateways as members of an etcd cluster."""
        raise NotImplementedError

    @operation("GET", "/v2/members/leader", name="getEtcdLeader", needs=_TO_ASK, answers="It.")
    def leader(self) -> Any:
        """The member that leads."""
        raise NotImplementedError

    @operation("GET", "/v2/stats/self", name="getEtcdOwnStatistics", needs=_TO_ASK, answers="It.")
    def own_statistics(self) -> Any:
        """Who answers, and since when."""
        raise NotImplementedError

    @operation("GET", "/v2/stats/store", name="getEtcdStoreStatistics", needs=Need(Act.READ, ITSELF), answers="It.")
    def store_statistics(self) -> Any:
        """Counters of requests."""
        raise NotImplementedError

    @operation("GET", "/v2/stats/leader", name="getEtcdLeaderStatistics", needs=_TO_ASK, answers="It.")
    def leader_statistics(self) -> Any:
        """Followers of the leader: none."""
        raise NotImplementedError


NEEDS: Final = needs_of(Keys, Members)
"""What each needs, for `keyplan.access`."""
