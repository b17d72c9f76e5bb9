"""The registry of key spaces on a store: every operation of its contract, as Python. What each writes: creation, lifecycle."""

import builtins
from collections.abc import Iterator, Mapping
from typing import Any, Self

from keyplan.engine import SYSTEM_CLOCK, Clock, Engine
from keyplan.errors import KeySpaceConflictError, KeySpaceNotFoundError
from keyplan.keyspace.allocation import PROFILES, refuse_held
from keyplan.keyspace.answers import AuditItem, Ensured, KeySpace, KeySpaceIdentity, KeySpacePage, Owner, Usage
from keyplan.keyspace.audit import Acts, AuditVerdict, digest_of_entry
from keyplan.keyspace.configuration import checked_configuration
from keyplan.keyspace.creation import Founding, Request, check_self_registration, create, found, founded_detail, init
from keyplan.keyspace.doctor import Diagnosis, diagnose, repair, verified_in
from keyplan.keyspace.generations import NO_PAST, JoinedWrites, Past
from keyplan.keyspace.lifecycle import (
    Overwriting,
    begin_deletion,
    begin_overwrite,
    describe,
    finish_restore,
    move,
    undelete,
)
from keyplan.keyspace.listing import LIST_LIMIT_DEFAULT, Sees, listed, owner_in, sees_all, told_to
from keyplan.keyspace.names import checked_application, checked_description, is_name, time_text
from keyplan.keyspace.operations import RegistryOperations
from keyplan.keyspace.prefixes import bytes_of_hex
from keyplan.keyspace.records import Configuration, Deletion, Fence, Header, Mark, Quota, Session, State
from keyplan.keyspace.removal import Removal, SweepProgress
from keyplan.keyspace.roles import Permissions, Role
from keyplan.keyspace.soundness import Fault
from keyplan.keyspace.transactions import (
    ONLY,
    RegistryTransaction,
    RegistryTransactions,
    codec_of,
    configuration_of,
    header_of,
)
from keyplan.keyspace.usage import checked_quota, count_usage, set_quota
from keyplan.store import Backoff, Store

__all__ = ["KeySpaces"]


class KeySpaces(RegistryOperations):
    """The registry of key spaces in a store, below the byte 00.

    Every change is one commit, with its entry in the audit log. `actor` is who the log names. The engine is not closed. Safe
    for use by several threads and processes.

    A client's calls raise KeySpaceApiDisabledError while `keyspace-api-enabled` is false, or there is no registry; what only
    administrators may do raises ForbiddenError.

    `expected`, where an act takes it, is the key space that is meant (`KeySpace.identity`): the act raises
    GenerationMismatchError or OwnerConflictError, and writes nothing, when the name is another's by then.

    `sees` tells of a name and its application (None: not known) whether they are shown: lists are as if there were no others.
    Of one that is not, who wants its name or prefix is told that it is taken, and no more.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        role: Role = Role.ADMIN,
        actor: str = "",
        founding: Founding | None = None,
        clock: Clock = SYSTEM_CLOCK,
        backoff: Backoff | None = None,
        sees: Sees = sees_all,
    ) -> None:
        self._engine = engine
        self._role = role
        self._sees = sees
        self._clock = clock
        self._backoff = backoff if backoff is not None else Backoff()
        self._store = Store(engine, backoff=self._backoff, clock=clock)
        # Why: the engine's own name is looked up as data, where the profiles of stores stand; nothing depends on it.
        profile = engine.profile.name if engine.profile.name in PROFILES else "none"
        self._founding = founding if founding is not None else Founding(profile=profile)
        self._transactions = RegistryTransactions(
            self._store, clock=clock, actor=actor or str(role), backoff=self._backoff
        )
        self._may = Permissions(role, self._transactions)

    def acting_as(self, role: Role, actor: str, *, sees: Sees = sees_all) -> Self:
        """Return the same registry for somebody else, who is shown what `sees` says: the server makes one for each caller."""
        return type(self)(
            self._engine,
            role=role,
            actor=actor,
            founding=self._founding,
            clock=self._clock,
            backoff=self._backoff,
            sees=sees,
        )

    @property
    def engine(self) -> Engine:
        """The engine below."""
        return self._engine

    @property
    def store(self) -> Store:
        """The engine as a store; do not close it while the engine is in use."""
        return self._store

    @property
    def clock(self) -> Clock:
        """Where the time comes from."""
        return self._clock

    @property
    def founding(self) -> Founding:
        """How `create` makes the registry where there is none."""
        return self._founding

    @property
    def transactions(self) -> RegistryTransactions:
        """How this package's other modules act on the registry."""
        return self._transactions

    # ---- the registry itself --------------------------------------------------------------------------------------------

    def init(
        self, *, prefix_codec: str | None = None, profile: str | None = None, skip_printable: bool | None = None
    ) -> Header:
        """Make the registry where there is none, and return its header; `create` does so by itself.

        Prefix code and reservation profile are decided once, for ever; what is not given is as the engine suggests. Raises
        InvalidArgumentError where there is a registry that was made, or is now, otherwise than given.
        """
        self._may.require_admin(Acts.INIT.act)
        asked = {"prefix_codec": prefix_codec, "profile": profile, "skip_printable": skip_printable}
        given: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
        return self._transactions.run(lambda transaction: init(transaction, self._founding._replace(**given), given))

    def init_absent(self) -> Header | None:
        """Make the registry, if there is none, and return its header; None where there is one: it is somebody else's."""
        self._may.require_admin(Acts.INIT.act)

        def work(transaction: RegistryTransaction) -> Header | None:
            return init(transaction, self._founding, {}) if header_of(transaction.registry) is None else None

        return self._transactions.run(work)

    def header(self) -> Header | None:
        """Return what was decided when the registry was made; None where there is none."""
        with self._transactions.look() as registry:
            return header_of(registry)

    def configuration(self) -> Configuration:
        """Return the registry's switches."""
        with self._transactions.look() as registry:
            return configuration_of(registry)

    def configure(self, changes: Mapping[str, object]) -> Configuration:
        """Change switches, by their names in JSON (`keyspace-api-enabled`), and return all.

        Raises InvalidArgumentError for an unknown name or an unfit value, ForbiddenError for clients; PrefixInUseError and
        PrefixConflictError for a reservation of what a key space has.
        """
        self._may.require_admin(Acts.CONFIGURE.act)

        def work(transaction: RegistryTransaction) -> Configuration:
            header, before, is_founded = found(transaction, self._founding)
            after = checked_configuration(before, changes)
            for prefix in after.reservations:
                if prefix not in before.reservations:
                    refuse_held(transaction, bytes.fromhex(prefix))
            if after != before or is_founded:
                transaction.registry.configuration.put(ONLY, after)
                made = {"founded": founded_detail(header, before)} if is_founded else {}
                transaction.note(Acts.CONFIGURE, {**changes, **made})
            return after

        return self._transactions.run(work)

    # ---- making ---------------------------------------------------------------------------------------------------------

    def create(
        self,
        name: str,
        application: str,
        *,
        description: str = "",
        prefix: str | None = None,
        if_not_exists: bool = False,
        adopt_existing_data: bool = False,
        allow_legacy_prefix: bool = False,
    ) -> KeySpace:
        """Make a key space and return it; the prefix is chosen unless it is given in hex.

        With `if_not_exists`, one of this name and application that exists is returned. `adopt_existing_data` lets a given
        prefix have keys below it already; `allow_legacy_prefix` lets it be any bytes that lie within one codeword. Both are for
        administrators.

        Raises InvalidNameError, InvalidArgumentError, InvalidPrefixError; KeySpaceExistsError, KeySpaceDeletingError,
        OwnerConflictError; PrefixInUseError, PrefixConflictError, PrefixNotEmptyError, PrefixExhaustedError;
        SelfRegistrationDisabledError for clients.
        """
        more = {"adopt_existing_data": adopt_existing_data, "allow_legacy_prefix": allow_legacy_prefix}
        request = Request.checked(name, application, description, prefix, **more)
        return self._created(request, if_not_exists=if_not_exists).keyspace

    def ensure(self, name: str, application: str, *, description: str = "", prefix: str | None = None) -> Ensured:
        """Make a key space, or return the one of this name and application that there is; say which. Raises as `create`."""
        return self._created(Request.checked(name, application, description, prefix), if_not_exists=True)

    def _created(self, request: Request, *, if_not_exists: bool) -> Ensured:
        if request.adopt_existing_data or request.allow_legacy_prefix:
            self._may.require_admin("adopt")

        def work(transaction: RegistryTransaction) -> Ensured:
            self._may.check_open(transaction.registry)
            if self._role is not Role.ADMIN:
                check_self_registration(transaction, request, if_not_exists=if_not_exists)
            try:
                record, is_new = create(transaction, self._founding, request, if_not_exists=if_not_exists)
            except KeySpaceConflictError as error:
                raise told_to(self._sees, transaction.registry, error) from None
            return Ensured(KeySpace.of_record(record), is_new)

        return self._transactions.run(work)

    # ---- reading --------------------------------------------------------------------------------------------------------

    def get(self, name: str) -> KeySpace:
        """Return the key space of that name, or its last tombstone. Raises KeySpaceNotFoundError."""
        with self._may.look() as registry:
            record = registry.records.get(name) if is_name(name) else None
            if record is None:
                raise KeySpaceNotFoundError(name=name)
            return KeySpace.of_record(record)

    def list(
        self,
        *,
        name: str | None = None,
        prefix: str | None = None,
        key: str | None = None,
        application: str | None = None,
        state: State | None = None,
        include_deleted: bool = False,
        limit: int | None = None,
        page_token: str = "",
    ) -> KeySpacePage:
        """Return the key spaces that agree with all that is given, in the order in which they were made.

        `prefix` and `key` are hex: whose prefix it is, whose key. Those whose deletion is completed are left out unless
        `include_deleted` or the state asks for them. At most `limit` (default 100, at most 1000), from the page token on.
        Raises InvalidArgumentError, InvalidPrefixError, InvalidPageTokenError.
        """
        with self._may.look() as registry:
            return listed(
                registry,
                name=name,
                prefix=None if prefix is None else bytes_of_hex(prefix),
                key=None if key is None else bytes_of_hex(key, argument="key"),
                application=application,
                state=state,
                is_deleted_shown=include_deleted or state is State.DELETED,
                limit=limit if limit is not None else LIST_LIMIT_DEFAULT,
                page_token=page_token,
                sees=self._sees,
            )

    def history(self, name: str) -> builtins.list[KeySpace]:
        """Return the generations of the name that are no more, the oldest first; the current record is what `get` gives.

        Raises KeySpaceNotFoundError.
        """
        with self._may.look() as registry:
            if not is_name(name) or registry.records.get(name) is None:
                raise KeySpaceNotFoundError(name=name)
            # Why asked of each: a name may have been another application's.
            past = [record for _, record in registry.history.list(name) if self._sees(name, record.application)]
            return [KeySpace.of_record(record) for record in past]

    def owner_of(self, key: bytes) -> Owner:
        """Say whose a raw key of the store is: the registry's, a key space's or nobody's (R10)."""
        with self._transactions.look() as registry:
            return owner_in(registry, codec_of(header_of(registry)), key)

    def fence(self, name: str) -> Fence | None:
        """Return the generation and state that writes are guarded by."""
        with self._transactions.look() as registry:
            return registry.fences.get(name) if is_name(name) else None

    def sessions(self, name: str) -> builtins.list[tuple[int, Session]]:
        """Return who has the key space open, by lease."""
        with self._may.look() as registry:
            return [(key.lease, session) for key, session in registry.sessions.list(name)] if is_name(name) else []

    def deletion(self, name: str) -> Deletion | None:
        """Return how far the deletion of the key space is; None when there is none under way."""
        with self._may.look() as registry:
            return registry.deletions.get(name) if is_name(name) else None

    def marks(self) -> builtins.list[tuple[bytes, Mark]]:
        """Return the prefixes that are nobody's and yet not free: cooling down, quarantined, legacy containers."""
        with self._may.look() as registry:
            return builtins.list(registry.marks.list())

    # ---- moves ----------------------------------------------------------------------------------------------------------

    def update(
        self,
        name: str,
        description: str | None,
        sent: Mapping[str, object] | None = None,
        *,
        expected: KeySpaceIdentity | None = None,
    ) -> KeySpace:
        """Change the description. `sent` are the other fields that came with it: they must be as they are stored (KS-20).

        Raises InvalidArgumentError without a description, KeySpaceNotFoundError, KeySpaceDeletedError, ImmutableFieldError.
        """
        text = checked_description(description)

        def work(transaction: RegistryTransaction) -> KeySpace:
            self._may.check_open(transaction.registry)
            if not is_name(name):
                raise KeySpaceNotFoundError(name=name)
            return KeySpace.of_record(describe(transaction, name, text, sent or {}, expected))

        return self._transactions.run(work)

    def disable(self, name: str, *, expected: KeySpaceIdentity | None = None) -> KeySpace:
        """Refuse opens and writes; reads go on. Raises KeySpaceNotFoundError, IllegalTransitionError."""
        self._require_known(Acts.DISABLE.act, name)
        return self._transactions.run(
            lambda transaction: KeySpace.of_record(move(transaction, name, State.DISABLED, Acts.DISABLE, expected))
        )

    def enable(self, name: str, *, expected: KeySpaceIdentity | None = None) -> KeySpace:
        """Allow opens and writes again. Raises KeySpaceNotFoundError, IllegalTransitionError."""
        self._require_known(Acts.ENABLE.act, name)
        return self._transactions.run(
            lambda transaction: KeySpace.of_record(move(transaction, name, State.ENABLED, Acts.ENABLE, expected))
        )

    def delete(self, name: str, *, expected: KeySpaceIdentity | None = None) -> KeySpace:
        """Begin to delete the key space; a Sweeper does the rest. Once begun, it is returned as it is (KS-31).

        From this commit on nobody can open it or write to it. Raises KeySpaceNotFoundError, KeySpaceProtectedError.
        """
        self._require_known(Acts.DELETE.act, name)
        return self._transactions.run(
            lambda transaction: KeySpace.of_record(begin_deletion(transaction, name, expected))
        )

    def undelete(self, name: str, *, expected: KeySpaceIdentity | None = None) -> KeySpace:
        """Take a deletion back, until the first key was removed. Raises KeySpaceNotFoundError, IllegalTransitionError."""
        self._require_known(Acts.UNDELETE.act, name)
        return self._transactions.run(lambda transaction: KeySpace.of_record(undelete(transaction, name, expected)))

    def sweep(self, name: str) -> SweepProgress:
        """Remove a batch of what a deleted key space holds, or end its deletion, or say what it waits for. Safe to repeat.

        At no bounded speed; a Sweeper has one. Raises KeySpaceNotFoundError.
        """
        self._require_known("sweep", name)
        self.get(name)
        return Removal(self._store, self._transactions, self._clock).step(name)

    # ---- restoring ------------------------------------------------------------------------------------------------------

    def begin_restore(
        self,
        name: str,
        application: str,
        *,
        description: str = "",
        prefix: str | None = None,
        allow_legacy_prefix: bool = False,
        past: Past = NO_PAST,
        joined: JoinedWrites | None = None,
    ) -> KeySpace:
        """Make a key space that a restore fills, in the state RESTORING: nobody can open it before `finish_restore`.

        `past` is what the key space was where it comes from; `joined` is written in the same commit. Raises as `create`.
        """
        self._may.require_admin(Acts.RESTORE.act)
        more = {"allow_legacy_prefix": allow_legacy_prefix, "state": State.RESTORING, "past": past, "joined": joined}
        request = Request.checked(name, application, description, prefix, **more)
        return self._created(request, if_not_exists=False).keyspace

    def begin_overwrite(
        self,
        name: str,
        *,
        application: str | None = None,
        description: str | None = None,
        past: Past = NO_PAST,
        expected: KeySpaceIdentity | None = None,
        joined: JoinedWrites | None = None,
    ) -> KeySpace:
        """Take a key space out of use for a restore into its prefix: the next generation, in the state RESTORING.

        From this commit on no handle of the generation before can write. `application` takes the ownership. Its data is still
        there: `Sweeper.wipe` removes it. `past` is what it was where it comes from; `joined` is written in the same commit.
        Raises KeySpaceNotFoundError, KeySpaceDeletingError, KeySpaceDeletedError, KeySpaceProtectedError.
        """
        self._require_known(Acts.RESTORE.act, name)
        owner = None if application is None else checked_application(application)
        text = None if description is None else checked_description(description)
        coming = Overwriting(owner, text, past, joined)
        return self._transactions.run(
            lambda transaction: KeySpace.of_record(begin_overwrite(transaction, name, coming, expected))
        )

    def finish_restore(
        self, name: str, generation: int, *, state: State = State.ENABLED, joined: JoinedWrites | None = None
    ) -> KeySpace:
        """Open the restored key space: RESTORING becomes ENABLED, or DISABLED. `joined` is written in the same commit.

        Raises GenerationMismatchError when another restore has begun since, IllegalTransitionError, KeySpaceNotFoundError.
        """
        self._require_known(Acts.RESTORE.act, name)
        return self._transactions.run(
            lambda transaction: KeySpace.of_record(finish_restore(transaction, name, generation, state, joined=joined))
        )

    # ---- usage, quota, audit --------------------------------------------------------------------------------------------

    def usage(self, name: str) -> Usage:
        """Count what the key space holds, now, in one state; the count is kept. Raises KeySpaceNotFoundError."""
        keyspace = self.get(name)
        return count_usage(self._store, keyspace, self._clock.wall())

    def quota(self, name: str) -> Quota:
        """Return what the key space may hold; without bounds where none was set. Raises KeySpaceNotFoundError."""
        with self._may.look() as registry:
            if not is_name(name) or registry.records.get(name) is None:
                raise KeySpaceNotFoundError(name=name)
            return registry.quotas.get(name) or Quota()

    def set_quota(
        self,
        name: str,
        *,
        keys: int | None = None,
        bytes: int | None = None,  # noqa: A002  # Why: the unit.
        expected: KeySpaceIdentity | None = None,
    ) -> Quota:
        """Bound what the key space may hold; None: no bound.

        Raises KeySpaceNotFoundError, KeySpaceDeletingError, KeySpaceDeletedError, InvalidArgumentError.
        """
        self._require_known(Acts.QUOTA.act, name)
        quota = checked_quota(keys, bytes)
        return self._transactions.run(lambda transaction: set_quota(transaction, name, quota, expected))

    def audit(self, *, after: int = 0, limit: int | None = None) -> Iterator[AuditItem]:
        """Yield the entries of the audit log behind the number `after`. For administrators."""
        self._may.require_admin("audit")
        with self._transactions.look() as registry:
            for found in registry.audit.entries(at_least=after + 1, limit=limit):
                digest = digest_of_entry(found.key, found.record)
                yield AuditItem(found.key, found.record, digest, found.revision)

    def audit_page(self, *, after: int = 0, limit: int = 100) -> builtins.list[AuditItem]:
        """Return the entries of the audit log behind the number `after`, at most `limit`. For administrators."""
        return [*self.audit(after=after, limit=limit)]

    def verify_audit(self) -> AuditVerdict:
        """Go through the whole audit log and say whether it is whole. For administrators."""
        self._may.require_admin("audit")
        with self._engine.snapshot() as snapshot:
            return verified_in(snapshot)

    # ---- the doctor -----------------------------------------------------------------------------------------------------

    def diagnose(self, *, with_unmanaged: bool = True) -> Diagnosis:
        """Examine the whole registry in one state, whatever is in it; and, if wanted, find the keys that are nobody's.

        For administrators. Reads every entry of the registry, and one key or more of each prefix in use.
        """
        self._may.require_admin("doctor")
        return diagnose(self._engine, with_unmanaged=with_unmanaged, now=time_text(self._clock.wall()))

    def repair(self) -> builtins.list[Fault]:
        """Put right what can be, in commits with an entry in the audit log each; return what was wrong and is right now.

        What is right is taken from the records of the key spaces and from the audit log, never from an entry that cannot be
        read. Nothing outside the registry is touched. For administrators.
        """
        self._may.require_admin(Acts.REPAIR.act)
        return repair(self._transactions)

    def _require_known(self, act: str, name: str) -> None:
        self._may.require_admin(act)
        if not is_name(name):
            raise KeySpaceNotFoundError(name=name)
