"""A cluster of plain Patroni on another etcd is taken over without a stop: what the etcd keeps of it is copied, exactly.

Its nodes move by themselves afterwards, one by one, paused. What hangs on leases is not copied: members and leader say anew
where they are. Nothing is written into the other store.
"""

from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import quote

import msgspec
from msgspec import Struct, field

from keyplan.apps.patroni.cluster_keys import cluster_prefix
from keyplan.apps.patroni.dynamic_configuration import is_on
from keyplan.apps.patroni.layout import Broker
from keyplan.apps.patroni.refusals import RefusedError
from keyplan.engine import Commit, Delete, KeyAbsent, KeyRange, KeyUnchanged, Put, RangeEmpty
from keyplan.errors import CommitConflictError, CorruptionError
from keyplan.store import Store

__all__ = ["CopiedState", "copy_state", "keys_of_store", "keys_of_v2"]

_KEYS: Final = ("config", "initialize", "history", "status", "sync", "failsafe", "optime/leader")
"""What Patroni keeps of a cluster without a lease; a `failover` that is asked for is carried out first, or given up."""
_SECONDS_MAX: Final = 10.0


class _V2Node(Struct):
    key: str = ""
    value: str = ""
    dir: bool = False
    nodes: list["_V2Node"] = field(default_factory=list)


class _V2Answer(Struct):
    node: _V2Node = field(default_factory=_V2Node)


class CopiedState(Struct, frozen=True, kw_only=True):
    """What is copied: the keys below the cluster, and who leads it with which system identifier."""

    leader: str
    identifier: str
    keys: list[str]
    members: list[str]


Keys = Mapping[str, bytes]
"""The values below a cluster, leased ones too, by their keys without what all begin with."""


def keys_of_store(store: Store, cluster: str) -> Keys:
    """Read a cluster's keys from a store, as etcd's v3 keys are one."""
    prefix = cluster_prefix(cluster)
    with store.engine.snapshot() as state:
        return {
            entry.key.removeprefix(prefix).decode(errors="replace"): entry.value
            for entry in state.scan(KeyRange.of_prefix(prefix))
        }


def keys_of_v2(address: str, cluster: str) -> Keys:
    """Read a cluster's keys from etcd's v2 keys API, as Patroni's mode `etcd` writes them. Raises RefusedError (422)."""
    import httpx  # noqa: PLC0415  # Why here: routers and cells come through this module.

    place = address.rpartition("@")[2]
    try:
        answer = httpx.get(
            f"{address.rstrip('/')}/v2/keys/service/{quote(cluster, safe='')}",
            params={"recursive": "true"},
            timeout=_SECONDS_MAX,
        )
        if answer.status_code not in {200, 404}:
            raise RefusedError(422, f"{place} answers with status {answer.status_code}")
        found = msgspec.json.decode(answer.content, type=_V2Answer)
    # Why the last: this is ValueError's, and msgspec's, and of what is nested without an end.
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, RecursionError) as error:
        raise RefusedError(
            422, f"{place} does not answer as etcd's v2 keys API does: {type(error).__name__}"
        ) from error
    keys: dict[str, bytes] = {}
    nodes = [found.node]
    while nodes:
        node = nodes.pop()
        nodes += node.nodes
        if node.key and not node.dir:
            keys[node.key.removeprefix(f"/service/{cluster}/")] = node.value.encode()
    return keys


def copy_state(read: Callable[[], Keys], target: Store, cluster: str, *, is_trial: bool) -> CopiedState:
    """Copy what another store keeps of a paused cluster, in one commit, where there is nothing of it here; return what.

    Copied again while no member has come, it is as the source has it now. Raises RefusedError (422) where the cluster cannot be
    moved as it is, 409 where something of it is here that is not the same cluster's.
    """
    keys = read()
    copied = _movable(keys, cluster)
    prefix = cluster_prefix(cluster)
    bootstrap = prefix + b"initialize"
    # Why before it is looked at as a record: the commit is guarded by what was there then, or earlier.
    with target.engine.snapshot() as raw:
        entry, epoch = raw.get(bootstrap), raw.epoch
    with target.snapshot() as state:
        broker = Broker(state)
        if broker.instances.exists(cluster):
            raise RefusedError(409, "it is an instance of ours already, whose own cluster would be this one's")
        if broker.leaders.exists(cluster) or next(iter(broker.members.keys(cluster, limit=1)), None) is not None:
            raise RefusedError(409, "members of a cluster of this name are in this store already")
        try:
            there = broker.initializations.get(cluster)
        except CorruptionError as error:
            raise RefusedError(409, "a cluster of this name is in this store, and cannot be read") from error
    if there not in {None, copied.identifier}:
        raise RefusedError(
            409, f"a cluster of this name is in this store, with the system identifier {there or '(none)'}"
        )
    if not is_trial:
        members = KeyRange.of_prefix(prefix + b"members/")
        # Why the others go: an earlier copy may have had them, and an old `sync` names who may lead.
        changes = tuple(
            Put(prefix + name.encode(), keys[name]) if name in keys else Delete(prefix + name.encode())
            for name in _KEYS
        )
        guards = (
            KeyAbsent(prefix + b"leader"),
            KeyAbsent(Broker.bound().tables["instances"].keys.encode(cluster)),
            KeyAbsent(bootstrap) if entry is None else KeyUnchanged(bootstrap, entry.mod_revision),
            RangeEmpty(members),
        )
        try:
            target.engine.commit(Commit(guards, changes, epoch))
        except CommitConflictError as error:
            raise RefusedError(
                409, "something of the cluster has come to this store meanwhile; look, and try again"
            ) from error
    return copied


def _movable(keys: Keys, cluster: str) -> CopiedState:
    """Return what is to be copied. Raises RefusedError (422) with why it cannot be."""
    members = sorted(name.removeprefix("members/") for name in keys if name.startswith("members/"))
    leader, identifier = (keys.get(name, b"").decode(errors="replace") for name in ("leader", "initialize"))
    if not members:
        raise RefusedError(
            422, f"no member of {cluster} is below /service/{cluster}/ there; v2 keys are read from http://HOST:PORT"
        )
    if not leader or not identifier:
        raise RefusedError(422, "nobody leads it there, or it has no system identifier")
    if keys.get("failover", b"{}") not in {b"{}", b""}:
        raise RefusedError(422, "a failover is asked for; let it be carried out, or take it back by `patronictl flush`")
    if not _is_paused(keys.get("config", b"")):
        raise RefusedError(422, f"it is not paused: run `patronictl pause --wait {cluster}` first")
    unaware = [name for name in members if not _is_paused(keys[f"members/{name}"])]
    if unaware:
        raise RefusedError(422, f"{', '.join(unaware)} has not heard that it is paused; wait a moment")
    return CopiedState(
        leader=leader, identifier=identifier, keys=[name for name in _KEYS if name in keys], members=members
    )


def _is_paused(raw: bytes) -> bool:
    try:
        found = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return False
    return isinstance(found, dict) and is_on(found.get("pause"))
