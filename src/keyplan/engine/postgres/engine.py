"""The PostgreSQL engine: the contract's eight methods over two pools of connections. How: see the modules beside this one."""

from collections.abc import Callable, Iterable
from typing import Final

from keyplan.engine.admission import admit_commit, admit_ttl, refuse_writing
from keyplan.engine.clock import SYSTEM_CLOCK
from keyplan.engine.fences import Fences, FencesHolder
from keyplan.engine.interface import NO_LEASE, Commit, Engine, KeyRange, Lease, Snapshot, Watch
from keyplan.engine.lineage import Lineage
from keyplan.engine.postgres.commits import Writer
from keyplan.engine.postgres.failures import ConnectionLostError, PostgresError
from keyplan.engine.postgres.fenced import AskedFences
from keyplan.engine.postgres.lease import Leases, PostgresLease
from keyplan.engine.postgres.lineage import Identity
from keyplan.engine.postgres.load import load
from keyplan.engine.postgres.notifier import CommitNotifier
from keyplan.engine.postgres.options import KEY_BYTES_MAX, PostgresOptions, options_of, profile_of
from keyplan.engine.postgres.pool import Pool, open_session
from keyplan.engine.postgres.session import Statement
from keyplan.engine.postgres.snapshot import PostgresSnapshot, Unread, can_be_stored
from keyplan.engine.postgres.statements import Statements
from keyplan.engine.postgres.tables import prepare
from keyplan.engine.postgres.watch import PostgresWatch
from keyplan.engine.profile import Profile
from keyplan.engine.url import EngineUrl
from keyplan.errors import EngineOpenError, StoreUnreachableError

__all__ = ["PostgresEngine", "open_postgres"]

_WORKERS_MAX: Final = 4
"""Why: commits of one process take turns on one connection; the others are for gets, watches and leases, which are short."""


class PostgresEngine(Engine):
    """A store in a PostgreSQL database. Opening it connects, and makes the tables where there are none and that is allowed.

    The engine refuses to work after a fork; open another one. Raises EngineOpenError.
    """

    def __init__(self, options: PostgresOptions) -> None:
        self._options = options
        self._statements = Statements(options.schema, has_notify=options.has_notify)
        self._latest_fences = AskedFences.of((), self._statements)
        """Fences that were asked for, and how. Why: who reads below fences reads below the same again."""
        self._identity = Identity(self._statements, is_readonly=options.is_readonly)
        self._readers = Pool(
            options,
            identity=self._identity,
            connections_max=options.connections_max,
            purpose="are in use by snapshots; close some, or let the URL say connections=",
            ends_idle_transactions=False,
        )
        self._workers = Pool(
            options,
            identity=self._identity,
            connections_max=_WORKERS_MAX,
            purpose="for single calls are in use",
            ends_idle_transactions=True,
        )
        self._unread = Unread()
        self._notifier = CommitNotifier(options, self._statements)
        self._writer = Writer(
            self._workers,
            self._statements,
            notifier=self._notifier,
            unread=self._unread,
            identity=self._identity,
            history_revisions_max=options.history_revisions_max,
        )
        self._leases = Leases(self._workers, self._statements, self._writer, can_end=not options.is_readonly)
        self._profile = profile_of(options, is_flushed=self._open())

    def _open(self) -> bool:
        """Connect, see to the tables, and tell whether the server flushes what is committed."""
        options = self._options
        try:
            session, is_flushed = open_session(options, seconds=options.timeout_seconds, ends_idle_transactions=True)
            try:
                prepare(session, options, self._statements)
                self._identity.check(session, give_up_at=SYSTEM_CLOCK.monotonic() + options.timeout_seconds)
            except BaseException:
                session.close()
                raise
        except PostgresError as failure:
            if isinstance(failure, ConnectionLostError) and not failure.is_refused:
                facts = (
                    {"unresolved": options.connection.get("host", "PGHOST").split(",")}
                    if failure.has_no_address
                    else {}
                )
                raise StoreUnreachableError(url=options.shown_url, problem=failure.text, **facts) from failure
            raise EngineOpenError(url=options.shown_url, problem=failure.text) from failure
        self._workers.add(session)
        return is_flushed

    @property
    def profile(self) -> Profile:
        return self._profile

    def lineage(self) -> Lineage:
        self._workers.check_open()
        return self._identity.lineage

    @property
    def is_closed(self) -> bool:
        """True after `close`."""
        return self._workers.is_closed

    def snapshot(self) -> Snapshot:
        self._workers.check_open()
        self._look_at_leases()
        return PostgresSnapshot(self._readers, self._statements, self._unread)

    def value(self, key: bytes) -> bytes | None:
        self._workers.check_open()
        self._look_at_leases()
        if not can_be_stored(key):
            return None
        # Why without a snapshot: one statement is one state, and needs no transaction around it.
        found = self._workers.call((self._statements.value, (key,)))[0].column()
        return found[0] if found else None

    def fenced_value(self, key: bytes, fences: Fences) -> tuple[bool, bytes | None]:
        asked = self._latest_fences
        if asked.fences is not fences:
            asked = self._latest_fences = AskedFences.of(fences, self._statements)
        if asked.statement is None or asked.is_entangled(key):
            return super().fenced_value(key, fences)
        self._workers.check_open()
        self._look_at_leases()
        # Why also for a key that cannot be stored: the fences count all the same, and nothing is found.
        parameters = (*asked.keys, key if can_be_stored(key) else b"")
        # Why one statement, and the comparing here: it is one state, and less work for the server than to compare there.
        return asked.judged(self._workers.call((asked.statement, parameters))[0], key)

    def fenced_reader(
        self, prefix: bytes, holder: FencesHolder, otherwise: Callable[[bytes], bytes | None]
    ) -> Callable[[bytes], bytes | None]:
        call, is_look_due = self._workers.call, self._leases.is_look_due
        # The fences, and of a single one how it is asked for: the statement, its key, its key with its value behind it.
        known: tuple[Fences, Statement | None, bytes, bytes] = ((), None, b"", b"")

        def value(key: bytes) -> bytes | None:
            # Why written out, for one fence: the path of every single read in a key space, and each frame is felt.
            nonlocal known
            fences, statement, fence, pair = known
            if fences is not holder.fences:
                fences = holder.fences
                statement, fence, pair = AskedFences.of(fences, self._statements).alone_below(prefix)
                known = (fences, statement, fence, pair)
            whole = prefix + key
            if statement is None or len(whole) > KEY_BYTES_MAX:
                holds, found = self.fenced_value(whole, fences)
                return found if holds else otherwise(key)
            if is_look_due():
                self._workers.check_open()
                self._leases.look()
            raw = call((statement, (fence, whole)))[0].raw
            rows = raw.ntuples
            if rows == 2:
                one: bytes = raw.get_value(0, 0)
                other: bytes = raw.get_value(1, 0)
                if one == pair:
                    return other[len(whole) :]
                if other == pair:
                    return one[len(whole) :]
            elif rows == 1 and raw.get_value(0, 0) == pair:
                return None
            return otherwise(key)

        return value

    def commit(self, commit: Commit) -> int:
        self._check_writable()
        admit_commit(self._profile, commit)
        self._look_at_leases()
        return self._writer.commit(commit)

    def watch(self, key_range: KeyRange, *, after: int) -> Watch:
        self._workers.check_open()
        return PostgresWatch(
            self._workers,
            self._statements,
            leases=self._leases,
            notifier=self._notifier,
            key_range=key_range,
            after=after,
        )

    def lease(self, ttl_seconds: float, *, resume: int = NO_LEASE) -> Lease:
        self._workers.check_open()
        admit_ttl(self._profile, ttl_seconds)
        if resume != NO_LEASE:
            # Why also where nothing can be written: what is left of a lease is worth knowing.
            return self._held(resume, self._leases.living(resume)[0])
        self._check_writable()
        return self._held(self._leases.grant(ttl_seconds), ttl_seconds)

    def _held(self, lease: int, ttl_seconds: float) -> PostgresLease:
        return PostgresLease(self._leases, lease, ttl_seconds=ttl_seconds, check_writable=self._check_writable)

    def compact(self, revision: int) -> None:
        self._check_writable()
        self._writer.compact(revision)

    def load(self, entries: Iterable[tuple[bytes, bytes]]) -> int:
        self._check_writable()
        return load(entries, self._profile, self._writer, self._statements)

    def close(self) -> None:
        self._readers.close()
        self._workers.close()
        self._notifier.close()

    def _check_writable(self) -> None:
        self._workers.check_open()
        if self._options.is_readonly:
            raise refuse_writing(self._profile)

    def _look_at_leases(self) -> None:
        if self._leases.is_look_due():
            self._leases.look()


def open_postgres(url: EngineUrl) -> Engine:
    """Open `postgres://user@host/database`; see `options_of` for what the URL may say.

    Raises EngineOpenError when the URL is wrong, no server answers, the user is not let in, or there is no store and none may
    be made.
    """
    return PostgresEngine(options_of(url))
