"""The etcd engine: the contract's eight methods over one client. How they are carried out: see the modules beside this one."""

from collections.abc import Iterable
from itertools import chain
from typing import Final

from keyplan.engine.admission import admit_commit, admit_ttl, admitted_batches
from keyplan.engine.clock import SYSTEM_CLOCK
from keyplan.engine.etcd.client import EtcdClient
from keyplan.engine.etcd.failures import COMPACTED, FUTURE, WENT_BACK, says
from keyplan.engine.etcd.grpc_transport import GrpcTransport
from keyplan.engine.etcd.horizon import Horizons
from keyplan.engine.etcd.lease import EtcdLease, grant_lease, granted_seconds
from keyplan.engine.etcd.options import EtcdOptions, options_of, profile_of
from keyplan.engine.etcd.snapshot import EtcdSnapshot
from keyplan.engine.etcd.transactions import failed_guards, fenced_read, has_changed, transaction_of
from keyplan.engine.etcd.transport import COMPACT, TRANSACTION, Message, TransportFactory, messages
from keyplan.engine.etcd.watch import EtcdWatch
from keyplan.engine.fences import Fences
from keyplan.engine.interface import (
    NO_LEASE,
    Commit,
    Engine,
    KeyRange,
    Lease,
    Put,
    Snapshot,
    Watch,
)
from keyplan.engine.lineage import Lineage
from keyplan.engine.profile import Profile
from keyplan.engine.sorted_keys import parts_of
from keyplan.engine.sorted_writes import put_absent
from keyplan.engine.url import EngineUrl
from keyplan.errors import (
    CommitConflictError,
    EngineLimitError,
    EngineRefusedError,
    InvalidInputError,
    LeaseNotFoundError,
)

__all__ = ["EtcdEngine", "open_etcd"]

_ENVELOPE_BYTES: Final = 128
"""What etcd adds to a request before it compares it with its limit: who sent it, and with which token's user."""
_LOAD_BYTES_MAX: Final = 1 << 19
"""Why: half a MiB is written in a few milliseconds, and does not hold up what other clients propose meanwhile."""

_LOAD_PAIR_BYTES: Final = 64
"""What a put and its guard take beside key and value, at most."""

_CLOSING_SLICE_SECONDS: Final = 0.005


class EtcdEngine(Engine):
    """A cluster of etcd servers. Opening it finds a server that answers, and logs in. Raises EngineOpenError.

    The engine refuses to work after a fork; open another one. `close` waits for commits under way, as long as they may take.
    """

    def __init__(self, options: EtcdOptions, transport: TransportFactory = GrpcTransport) -> None:
        self._options = options
        self._profile = profile_of(options)
        self._horizons = Horizons()
        self._commits: set[object] = set()
        self._client = EtcdClient(options, transport(options))
        try:
            self._client.connect()
        except BaseException:
            self._client.transport.close()
            raise

    @property
    def profile(self) -> Profile:
        return self._profile

    def lineage(self) -> Lineage:
        self._client.check_open()
        return self._client.sightings.lineage

    @property
    def server_version(self) -> tuple[int, int, int]:
        """The version of the server that answered when the engine was opened."""
        return self._client.version

    def snapshot(self) -> Snapshot:
        self._client.check_open()
        return EtcdSnapshot(self._client, self._options, self._horizons.take())

    def fenced_value(self, key: bytes, fences: Fences) -> tuple[bool, bytes | None]:
        bytes_max = self._options.request_bytes_max
        if not fences or not all(0 < len(fence) <= bytes_max for fence, _ in fences):
            return super().fenced_value(key, fences)
        self._client.check_open()
        is_storable = 0 < len(key) <= bytes_max
        response = self._client.call(TRANSACTION, fenced_read(key if is_storable else None, fences))
        if not response.succeeded:
            return False, None
        pairs = response.responses[0].response_range.kvs
        return True, pairs[0].value if pairs else None

    # ---- commits ---------------------------------------------------------------------------------------------------------

    def commit(self, commit: Commit) -> int:
        self._client.check_open()
        admit_commit(self._profile, commit)
        request = transaction_of(commit)
        if not request.compare and not request.success:
            return self._client.revision()
        self._admit_request(request)
        if commit.epoch and request.compare and commit.epoch != self._client.prove_epoch(bytes(request.compare[0].key)):
            raise CommitConflictError(failed=(), problem=WENT_BACK)
        begun = self._horizons.begin()
        response = self._send(commit, request)
        if not response.succeeded:
            raise CommitConflictError(failed=failed_guards(commit, response))
        revision = int(response.header.revision)
        if has_changed(commit, response):
            self._horizons.fix(begun, revision - 1)
        return revision

    def _admit_request(self, request: Message) -> None:
        actual = request.ByteSize() + _ENVELOPE_BYTES
        if actual > self._options.request_bytes_max:
            raise EngineLimitError(limit="request_bytes_max", allowed=self._options.request_bytes_max, actual=actual)

    def _send(self, commit: Commit, request: Message) -> Message:
        under_way = object()
        self._commits.add(under_way)
        try:
            # Why after the mark: `close` waits for marks, and a commit that is marked later sees that it is closed.
            return self._client.call(TRANSACTION, request, mutations=len(request.success))
        except EngineRefusedError as error:
            raise self._translated(commit, request, error) from error
        finally:
            self._commits.discard(under_way)

    def _translated(self, commit: Commit, request: Message, error: EngineRefusedError) -> Exception:
        """Return what a refused commit is called: the limits of servers that are stricter than the URL says, dead leases."""
        if says(error, "lease not found"):
            return LeaseNotFoundError(lease=self._dead_lease(commit))
        if says(error, "too many operations"):
            actual = max(len(request.compare), len(request.success), len(request.failure))
            return EngineLimitError(limit="operations_max of the server", allowed="less", actual=actual)
        if says(error, "request is too large") or says(error, "larger than max"):
            return EngineLimitError(limit="request_bytes_max of the server", allowed="less", actual=request.ByteSize())
        return error

    def _dead_lease(self, commit: Commit) -> int:
        leases = sorted({put.lease for put in commit.mutations if isinstance(put, Put) and put.lease != NO_LEASE})
        for lease in leases[:-1]:
            try:
                granted_seconds(self._client, lease)
            except LeaseNotFoundError:
                return lease
        return leases[-1]

    def load(self, entries: Iterable[tuple[bytes, bytes]]) -> int:
        self._client.check_open()
        loaded = 0
        batches = parts_of(
            chain.from_iterable(admitted_batches(entries, self._profile)),
            pairs_max=self._profile.commit_operations_max or 1,
            bytes_max=min(_LOAD_BYTES_MAX, self._profile.commit_bytes_max or _LOAD_BYTES_MAX),
            key_times=3,  # Why: it is written, guarded, and read when the guard fails.
            beside_bytes=_LOAD_PAIR_BYTES,
        )
        for batch in batches:
            put_absent(self.commit, batch)
            loaded += len(batch)
        return loaded

    # ---- the rest --------------------------------------------------------------------------------------------------------

    def watch(self, key_range: KeyRange, *, after: int) -> Watch:
        watch = EtcdWatch(self._client, key_range, after)
        try:
            watch.open(self._options.timeout_seconds)
        except BaseException:
            watch.close()
            raise
        return watch

    def lease(self, ttl_seconds: float, *, resume: int = NO_LEASE) -> Lease:
        self._client.check_open()
        admit_ttl(self._profile, ttl_seconds)
        if resume == NO_LEASE:
            lease, granted = grant_lease(self._client, ttl_seconds)
        else:
            lease, granted = resume, granted_seconds(self._client, resume)
        return EtcdLease(self._client, lease, ttl_seconds=granted, before_revoke=self._settle)

    def _settle(self) -> None:
        """Let snapshots that have read nothing yet read what is there now. Why: revoking tells no revision of its own."""
        begun = self._horizons.begin()
        self._horizons.fix(begun, self._client.revision())

    def compact(self, revision: int) -> None:
        self._client.check_open()
        if revision <= 0:
            return
        try:
            self._client.call(COMPACT, messages.CompactionRequest(revision=revision))
        except EngineRefusedError as error:
            if says(error, FUTURE):
                problem = f"the store is at revision {self._client.revision()}"
                raise InvalidInputError(source="revision", problem=problem) from error
            if not says(error, COMPACTED):
                raise

    def close(self) -> None:
        self._client.close_to_calls()
        if self._client.is_foreign:
            return
        give_up_at = SYSTEM_CLOCK.monotonic() + self._options.timeout_seconds
        # Why: a commit whose connection is taken away would have an unknown outcome.
        while self._commits and SYSTEM_CLOCK.monotonic() < give_up_at:
            self._client.transport.wait(_CLOSING_SLICE_SECONDS)
        self._client.transport.close()


def open_etcd(url: EngineUrl, transport: TransportFactory = GrpcTransport) -> Engine:
    """Open `etcd://host:2379,...`; see `options_of` for what the URL may say. `transport` is how calls are made.

    Raises EngineOpenError when the URL is wrong, no server answers, or the user is not let in.
    """
    return EtcdEngine(options_of(url), transport)
