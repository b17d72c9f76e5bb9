"""The calls that answer once: key-value, lease and maintenance, each a blocking function of one record, giving one."""

from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import Any, Final

from keyplan.engine import ALL_KEYS, Backoff, Engine, Lease
from keyplan.errors import CommitConflictError, HistoryCompactedError, LeaseNotFoundError
from keyplan.grpc_status import GrpcStatus
from keyplan.protobuf import AlarmAction
from keyplan.server.etcd_member import SERVER_VERSION, Identity, is_reserved
from keyplan.server.etcd_v3.admission import check_put, check_transaction
from keyplan.server.etcd_v3.changes import Changes
from keyplan.server.etcd_v3.failures import CallFailure
from keyplan.server.etcd_v3.messages import RECORDS, header
from keyplan.server.etcd_v3.transaction import Answer, delete_range, look, put, transact

__all__ = ["Calls"]

_TTL_SECONDS_MIN: Final = 2
"""etcd raises shorter times to its own minimum; Patroni relies on being told which."""

_TTL_SECONDS_MAX: Final = 9_000_000_000

_LEASES_HELD_MAX: Final = 10_000

Request = Any
Response = Any
"""A record of the etcd table; its classes are made at run time."""


class Calls:
    """The calls on one store, or on what one caller may see of it: then `shown` is that without the rest being refused."""

    def __init__(
        self,
        engine: Engine,
        identity: Identity,
        *,
        shown: Engine | None = None,
        backoff: Backoff | None = None,
    ) -> None:
        self._engine = engine
        self._shown = engine if shown is None else shown
        self._identity = identity
        self._backoff = backoff or Backoff()
        self._leases = _Leases(engine)

    def header(self, revision: int) -> Response:
        """Return the header of an answer."""
        return header(self._identity, revision)

    @property
    def revision(self) -> int:
        """The store's revision now."""
        with self._engine.snapshot() as snapshot:
            return snapshot.revision

    # ---- keys -----------------------------------------------------------------------------------------------------------

    def range(self, request: Request) -> Response:
        """Read."""
        with self._engine.snapshot() as snapshot:
            return self._headed(look(snapshot, request), snapshot.revision)

    def put(self, request: Request) -> Response:
        """Write."""
        check_put(request)
        return self._commit(put, request)

    def delete_range(self, request: Request) -> Response:
        """Delete."""
        return self._commit(delete_range, request)

    def transact(self, request: Request) -> Response:
        """Compare and write."""
        check_transaction(request)
        return self._commit(transact, request)

    def _commit(self, plan: Callable[[Changes, Request], Answer], request: Request) -> Response:
        """Plan on a snapshot and commit with what was read as guards; again when somebody else was faster."""
        guards_max = self._engine.profile.commit_operations_max

        def attempt() -> Response:
            with self._engine.snapshot() as snapshot:
                changes = Changes(snapshot)
                answer = plan(changes, request)
                if not changes.has_writes:
                    return self._headed(answer, snapshot.revision)
                commit = changes.commit(guards_max=guards_max)
            return self._headed(answer, self._engine.commit(commit))

        try:
            return self._backoff.until_committed(attempt)
        except CommitConflictError as conflict:
            raise CallFailure(GrpcStatus.UNAVAILABLE, "etcdserver: too many requests") from conflict

    def _headed(self, answer: Answer, revision: int) -> Response:
        response = answer(revision)
        response.header = self.header(revision)
        return response

    def compact(self, request: Request) -> Response:
        """Forget history."""
        revision, now = request.revision, self.revision
        if revision > now:
            raise CallFailure(GrpcStatus.OUT_OF_RANGE, "etcdserver: mvcc: required revision is a future revision")
        if revision <= 0 or self._is_compacted(revision):
            raise CallFailure(GrpcStatus.OUT_OF_RANGE, "etcdserver: mvcc: required revision has been compacted")
        self._engine.compact(revision)
        return RECORDS.CompactionResponse(header=self.header(now))

    def _is_compacted(self, revision: int) -> bool:
        """Tell whether history is forgotten up to here: then no watch can begin before it."""
        try:
            self._shown.watch(ALL_KEYS, after=revision - 1).close()
        except HistoryCompactedError:
            return True
        return False

    # ---- leases ---------------------------------------------------------------------------------------------------------

    def grant(self, request: Request) -> Response:
        """Grant a lease. Its id is the engine's: one that the client chose is refused."""
        if request.ID:
            raise CallFailure(GrpcStatus.UNIMPLEMENTED, "keyplan: the id of a lease cannot be chosen")
        ttl_seconds = max(request.TTL, _TTL_SECONDS_MIN)
        if ttl_seconds > _TTL_SECONDS_MAX:
            raise CallFailure(GrpcStatus.OUT_OF_RANGE, "etcdserver: too large lease TTL")
        lease = self._leases.grant(ttl_seconds)
        return RECORDS.LeaseGrantResponse(header=self.header(self.revision), ID=lease.id, TTL=ttl_seconds)

    def keep_alive(self, request: Request) -> Response:
        """Start a lease's time again. One that is gone has no TTL in the answer: so clients learn of it."""
        response = RECORDS.LeaseKeepAliveResponse(ID=request.ID)
        try:
            response.TTL = max(1, int(self._leases.held(request.ID).keep_alive()))
        except LeaseNotFoundError:
            self._leases.forget(request.ID)
        response.header = self.header(self.revision)
        return response

    def revoke(self, request: Request) -> Response:
        """End a lease. Raises LeaseNotFoundError when there is none."""
        self._leases.forget(request.ID)
        self._leases.held(request.ID).revoke()
        self._leases.forget(request.ID)
        return RECORDS.LeaseRevokeResponse(header=self.header(self.revision))

    def time_to_live(self, request: Request) -> Response:
        """Tell how long a lease still lives, and with `keys` what hangs on it; a TTL of -1 says that there is no such lease."""
        response = RECORDS.LeaseTimeToLiveResponse(ID=request.ID)
        try:
            lease = self._leases.held(request.ID)
            left_seconds = int(lease.seconds_left())
        except LeaseNotFoundError:
            self._leases.forget(request.ID)
            response.TTL, response.header = -1, self.header(self.revision)
            return response
        response.header = self.header(self.revision)
        response.TTL, response.grantedTTL = max(0, left_seconds), round(lease.ttl_seconds)
        if request.keys:
            with self._shown.snapshot() as snapshot:
                keys = [entry.key for entry in snapshot.scan(ALL_KEYS, keys_only=True) if entry.lease == request.ID]
            response.keys = [key for key in keys if not is_reserved(key)]
        return response

    def leases(self, _request: Request) -> Response:
        """Tell the leases that live: those that keys hang on, and those that were granted or renewed here.

        Departure: an engine does not list its leases. One that has no key, was granted elsewhere or before this gateway began,
        and has not been renewed here is left out.
        """
        living = self._leases.living()
        with self._shown.snapshot() as snapshot:
            for entry in snapshot.scan(ALL_KEYS, keys_only=True):
                if entry.lease and not is_reserved(entry.key):
                    living.add(entry.lease)
            revision = snapshot.revision
        statuses = [RECORDS.LeaseStatus(ID=number) for number in sorted(living)]
        return RECORDS.LeaseLeasesResponse(header=self.header(revision), leases=statuses)

    # ---- the rest -------------------------------------------------------------------------------------------------------

    def alarms(self, request: Request) -> Response:
        """Tell that no alarm is raised: clients that ask whether all is well look. None can be raised."""
        if request.action is not AlarmAction.GET:
            raise CallFailure(GrpcStatus.UNIMPLEMENTED, "keyplan: there are no alarms to raise or to end")
        return RECORDS.AlarmResponse(header=self.header(self.revision))

    def status(self, _request: Request) -> Response:
        """Tell the version and where the store stands."""
        revision = self.revision
        return RECORDS.StatusResponse(
            header=self.header(revision),
            version=SERVER_VERSION,
            leader=self._identity.member_id,
            raftIndex=revision,
            raftTerm=self._identity.term,
        )


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

    def living(self) -> set[int]:
        """Return the numbers of those that live."""
        with self._lock:
            held = list(self._held.values())
        found: set[int] = set()
        for lease in held:
            try:
                lease.seconds_left()
            except LeaseNotFoundError:
                self.forget(lease.id)
            else:
                found.add(lease.id)
        return found

    def forget(self, number: int) -> None:
        with self._lock:
            self._held.pop(number, None)
