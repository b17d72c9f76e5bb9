"""The calls that answer once: key-value, lease, cluster and maintenance, each a blocking function of one message."""

from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import Any, Final

from keyplan.engine import ALL_KEYS, Engine, KeyRange, Lease
from keyplan.errors import CommitConflictError, HistoryCompactedError, LeaseNotFoundError
from keyplan.grpc_status import GrpcStatus
from keyplan.limits import COMMIT_RETRIES_MAX
from keyplan.server.etcd_member import RESERVED, SERVER_VERSION, Identity, is_reserved
from keyplan.server.etcd_v3.changes import Changes
from keyplan.server.etcd_v3.failures import CallFailure
from keyplan.server.etcd_v3.fields import Fields, header, shown_bytes
from keyplan.server.etcd_v3.transaction import Answer, delete_range, put, read_range, transact

__all__ = ["Calls"]

_TTL_SECONDS_MIN: Final = 2
"""etcd raises shorter times to its own minimum; Patroni relies on being told which."""

_TTL_SECONDS_MAX: Final = 9_000_000_000

_LEASES_HELD_MAX: Final = 10_000

Body = dict[str, Any]


class Calls:
    """The calls on one store."""

    def __init__(self, engine: Engine, identity: Identity) -> None:
        self._engine = engine
        self._identity = identity
        self._leases = _Leases(engine)

    def header(self, revision: int) -> Body:
        """Return an answer that has only its header."""
        return {"header": header(self._identity, revision)}

    @property
    def revision(self) -> int:
        """The store's revision now."""
        with self._engine.snapshot() as snapshot:
            return snapshot.revision

    # ---- keys -----------------------------------------------------------------------------------------------------------

    def range(self, fields: Fields) -> Body:
        """Read."""
        with self._engine.snapshot() as snapshot:
            answer = read_range(Changes(snapshot), fields)
            return self.header(snapshot.revision) | answer(snapshot.revision)

    def put(self, fields: Fields) -> Body:
        """Write."""
        return self._commit(put, fields)

    def delete_range(self, fields: Fields) -> Body:
        """Delete."""
        return self._commit(delete_range, fields)

    def transact(self, fields: Fields) -> Body:
        """Compare and write."""
        return self._commit(transact, fields)

    def _commit(self, plan: Callable[[Changes, Fields], Answer], fields: Fields) -> Body:
        """Plan on a snapshot and commit with what was read as guards; again when somebody else was faster."""
        guards_max = self._engine.profile.commit_operations_max
        for _ in range(COMMIT_RETRIES_MAX):
            with self._engine.snapshot() as snapshot:
                changes = Changes(snapshot)
                answer = plan(changes, fields)
                if not changes.has_writes:
                    return self.header(snapshot.revision) | answer(snapshot.revision)
                commit = changes.commit(guards_max=guards_max)
            try:
                revision = self._engine.commit(commit)
            except CommitConflictError:
                continue
            return self.header(revision) | answer(revision)
        raise CallFailure(GrpcStatus.UNAVAILABLE, "etcdserver: too many requests")

    def compact(self, fields: Fields) -> Body:
        """Forget history."""
        revision, now = fields.number("revision"), self.revision
        if revision > now:
            raise CallFailure(GrpcStatus.OUT_OF_RANGE, "etcdserver: mvcc: required revision is a future revision")
        if revision <= 0 or self._is_compacted(revision):
            raise CallFailure(GrpcStatus.OUT_OF_RANGE, "etcdserver: mvcc: required revision has been compacted")
        self._engine.compact(revision)
        return self.header(now)

    def _is_compacted(self, revision: int) -> bool:
        """Tell whether history is forgotten up to here: then no watch can begin before it."""
        try:
            self._engine.watch(KeyRange.of_key(RESERVED), after=revision - 1).close()
        except HistoryCompactedError:
            return True
        return False

    # ---- leases ---------------------------------------------------------------------------------------------------------

    def grant(self, fields: Fields) -> Body:
        """Grant a lease. Its id is the engine's: one that the client chose is refused."""
        if fields.number("ID"):
            raise CallFailure(GrpcStatus.UNIMPLEMENTED, "keyplan: the id of a lease cannot be chosen")
        ttl_seconds = max(fields.number("TTL"), _TTL_SECONDS_MIN)
        if ttl_seconds > _TTL_SECONDS_MAX:
            raise CallFailure(GrpcStatus.OUT_OF_RANGE, "etcdserver: too large lease TTL")
        lease = self._leases.grant(ttl_seconds)
        return self.header(self.revision) | {"ID": str(lease.id), "TTL": str(ttl_seconds)}

    def keep_alive(self, fields: Fields) -> Body:
        """Start a lease's time again. One that is gone has no TTL in the answer: so clients learn of it."""
        number = fields.number("ID")
        shown = {"ID": str(number)} if number else {}
        try:
            left_seconds = self._leases.held(number).keep_alive()
        except LeaseNotFoundError:
            self._leases.forget(number)
            return self.header(self.revision) | shown
        return self.header(self.revision) | shown | {"TTL": str(max(1, int(left_seconds)))}

    def revoke(self, fields: Fields) -> Body:
        """End a lease. Raises LeaseNotFoundError when there is none."""
        number = fields.number("ID")
        self._leases.forget(number)
        self._leases.held(number).revoke()
        self._leases.forget(number)
        return self.header(self.revision)

    def time_to_live(self, fields: Fields) -> Body:
        """Tell how long a lease still lives, and with `keys` what hangs on it; a TTL of -1 says that there is no such lease."""
        number = fields.number("ID")
        shown = {"ID": str(number)} if number else {}
        try:
            lease = self._leases.held(number)
            left_seconds = int(lease.seconds_left())
        except LeaseNotFoundError:
            self._leases.forget(number)
            return self.header(self.revision) | shown | {"TTL": "-1"}
        body = self.header(self.revision) | shown | {"grantedTTL": str(round(lease.ttl_seconds))}
        if left_seconds > 0:
            body["TTL"] = str(left_seconds)
        if fields.flag("keys"):
            with self._engine.snapshot() as snapshot:
                keys = [entry.key for entry in snapshot.scan(ALL_KEYS, keys_only=True) if entry.lease == number]
            body |= {"keys": [shown_bytes(key) for key in keys if not is_reserved(key)]} if keys else {}
        return body

    # ---- the rest -------------------------------------------------------------------------------------------------------

    def status(self, _fields: Fields) -> Body:
        """Tell the version and where the store stands."""
        revision = self.revision
        return self.header(revision) | {
            "version": SERVER_VERSION,
            "leader": str(self._identity.member_id),
            "raftIndex": str(revision),
            "raftTerm": str(self._identity.term),
        }


class _Leases:
    """Handles of leases, so that a heartbeat is one commit; the oldest are let go of and found again by their number."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._held: OrderedDict[int, Lease] = OrderedDict()
        self._lock = Lock()

    def grant(self, ttl_seconds: float) -> Lease:
        return self._keep(self._engine.lease(ttl_seconds))

    def held(self, number: int) -> Lease:
        """Return a lease. Raises LeaseNotFoundError when it is known to be gone; a held one may be gone too."""
        with self._lock:
            lease = self._held.get(number)
        if lease is not None:
            return lease
        if number <= 0:
            raise LeaseNotFoundError(lease=number)
        # Why one second: a lease that is taken up keeps the time that it was granted with.
        return self._keep(self._engine.lease(1.0, resume=number))

    def _keep(self, lease: Lease) -> Lease:
        with self._lock:
            self._held[lease.id] = lease
            while len(self._held) > _LEASES_HELD_MAX:
                self._held.popitem(last=False)
        return lease

    def forget(self, number: int) -> None:
        with self._lock:
            self._held.pop(number, None)
