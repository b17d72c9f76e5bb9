"""The registry of key spaces on a store: every operation of its contract, as Python. What each writes: creation, lifecycle."""

import builtins
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final, Self

from msgspec import structs

from keyplan.engine import SYSTEM_CLOCK, Clock, Engine
from keyplan.errors import (
    ForbiddenError,
    ImmutableFieldError,
    InvalidArgumentError,
    KeySpaceApiDisabledError,
    KeySpaceNotFoundError,
    SelfRegistrationDisabledError,
)
from keyplan.keyspace.acts import ONLY, Act, ActRunner, configuration_of, header_of
from keyplan.keyspace.allocation import PROFILES
from keyplan.keyspace.answers import AuditItem, Ensured, KeySpace, KeySpacePage, Owner, Usage
from keyplan.keyspace.audit import AuditVerdict, digest_of_entry, verified
from keyplan.keyspace.configuration import checked_configuration
from keyplan.keyspace.creation import Founding, Request, create, found
from keyplan.keyspace.layout import KeySpaceRegistry
from keyplan.keyspace.lifecycle import (
    begin_deletion,
    begin_overwrite,
    describe,
    finish_restore,
    move,
    undelete,
)
from keyplan.keyspace.listing import listed, owner_in
from keyplan.keyspace.names import checked_application, checked_description, checked_name, is_name
from keyplan.keyspace.prefixes import bytes_of_hex, prefix_codec
from keyplan.keyspace.records import (
    Configuration,
    Deletion,
    Fence,
    Header,
    Mark,
    Quota,
    Session,
    State,
)
from keyplan.keyspace.roles import Registry, Role
from keyplan.keyspace.usage import checked_quota, count_usage
from keyplan.store import Backoff, Store

__all__ = ["LIST_LIMIT_DEFAULT", "LIST_LIMIT_MAX", "KeySpaces"]

LIST_LIMIT_DEFAULT: Final = 100
LIST_LIMIT_MAX: Final = 1_000
"""Why: a page is held in memory whole; a thousand key spaces with long descriptions are 4 MiB."""


class KeySpaces(Registry):
    """The registry of key spaces in a store, below the byte 00.

    Every change is one commit, with its entry in the audit log. `actor` is who the log names. The engine is not closed. Safe
    for use by several threads and processes.

    A client's calls raise KeySpaceApiDisabledError while `keyspace-api-enabled` is false, or there is no registry; what only
    administrators may do raises ForbiddenError.
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
    ) -> None:
        self._engine = engine
        self._role = role
        self._clock = clock
        self._backoff = backoff if backoff is not None else Backoff()
        self._store = Store(engine, backoff=self._backoff, clock=clock)
        # Why: the engine's own name is looked up as data, where the profiles of stores stand; nothing depends on it.
        profile = engine.profile.name if engine.profile.name in PROFILES else "none"
        self._founding = founding if founding is not None else Founding(profile=profile)
        self._acts = ActRunner(self._store, clock=clock, actor=actor or str(role), backoff=self._backoff)

    def acting_as(self, role: Role, actor: str) -> Self:
        """Return the same registry for somebody else: the server makes one for each request."""
        return type(self)(
            self._engine, role=role, actor=actor, founding=self._founding, clock=self._clock, backoff=self._backoff
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
    def acts(self) -> ActRunner:
        """How this package's other modules act on the registry."""
        return self._acts

    # ---- the registry itself --------------------------------------------------------------------------------------------

    def init(self, founding: Founding | None = None) -> Header:
        """Make the registry where there is none, and return its header; `create` does so by itself.

        `founding` has the prefix code, the reservation profile and `skip_printable`; these are decided once, for ever. Raises
        InvalidArgumentError where there is a registry that was made otherwise.
        """
        self._require_admin("init")
        asked = founding if founding is not None else self._founding
        if asked.profile not in PROFILES:
            raise InvalidArgumentError(argument="profile", problem=f"it is one of {', '.join(sorted(PROFILES))}")

        def work(act: Act) -> Header:
            header, _, is_new = found(act, asked)
            if is_new:
                act.note("init", "", {"cluster": header.cluster})
            elif (header.prefix_codec, header.profile) != (asked.prefix_codec, asked.profile) and founding is not None:
                problem = f"the registry was made with {header.prefix_codec} and {header.profile}"
                raise InvalidArgumentError(argument="founding", problem=problem)
            return header

        return self._acts.run(work)

    def header(self) -> Header | None:
        """Return what was decided when the registry was made; None where there is none."""
        with self._acts.look() as registry:
            return header_of(registry)

    def configuration(self) -> Configuration:
        """Return the registry's switches."""
        with self._acts.look() as registry:
            return configuration_of(registry)

    def configure(self, changes: Mapping[str, object]) -> Configuration:
        """Change switches, by their names in JSON (`keyspace-api-enabled`), and return all.

        Raises InvalidArgumentError for an unknown name or an unfit value, ForbiddenError for clients.
        """
        self._require_admin("configure")

        def work(act: Act) -> Configuration:
            _, before, _ = found(act, self._founding)
            after = checked_configuration(before, changes)
            if after != before or header_of(act.seen) is None:
                act.registry.configuration.put(ONLY, after)
                act.note("configure", "", dict(changes))
            return after

        return self._acts.run(work)

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
        request = Request(
            checked_name(name),
            checked_application(application),
            checked_description(description),
            None if prefix is None else bytes_of_hex(prefix),
            adopt_existing_data,
            allow_legacy_prefix,
        )
        return self._created(request, if_not_exists=if_not_exists).keyspace

    def ensure(self, name: str, application: str, *, description: str = "", prefix: str | None = None) -> Ensured:
        """Make a key space, or return the one of this name and application that there is; say which. Raises as `create`."""
        raw_prefix = None if prefix is None else bytes_of_hex(prefix)
        description = checked_description(description)
        request = Request(checked_name(name), checked_application(application), description, raw_prefix)
        return self._created(request, if_not_exists=True)

    def adopt(
        self, name: str, application: str, prefix: str, *, description: str = "", allow_legacy_prefix: bool = False
    ) -> KeySpace:
        """Register a prefix that is in use, with its data: the second step of an upgrade (KS-51). Raises as `create`."""
        self._require_admin("adopt")
        return self.create(
            name,
            application,
            description=description,
            prefix=prefix,
            adopt_existing_data=True,
            allow_legacy_prefix=allow_legacy_prefix,
        )

    def _created(self, request: Request, *, if_not_exists: bool) -> Ensured:
        if self._role is not Role.ADMIN and (request.adopt_existing_data or request.allow_legacy_prefix):
            raise ForbiddenError(act="adopt")

        def work(act: Act) -> Ensured:
            self._check_open(act.registry)
            if self._role is not Role.ADMIN:
                self._check_self_registration(act, request, if_not_exists=if_not_exists)
            record, is_new = create(act, self._founding, request, if_not_exists=if_not_exists)
            return Ensured(KeySpace.of_record(record), is_new)

        return self._acts.run(work)

    def _check_self_registration(self, act: Act, request: Request, *, if_not_exists: bool) -> None:
        if configuration_of(act.registry).self_registration_enabled:
            return
        before = act.registry.records.get(request.name)
        if not if_not_exists or before is None or before.state is State.DELETED:
            raise SelfRegistrationDisabledError(name=request.name)

    # ---- reading --------------------------------------------------------------------------------------------------------

    def get(self, name: str) -> KeySpace:
        """Return the key space of that name, or its last tombstone. Raises KeySpaceNotFoundError."""
        with self._look() as registry:
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
        if limit is not None and not 1 <= limit <= LIST_LIMIT_MAX:
            raise InvalidArgumentError(argument="limit", problem=f"from 1 to {LIST_LIMIT_MAX}")
        with self._look() as registry:
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
            )

    def all(self, *, include_deleted: bool = False) -> Iterator[KeySpace]:
        """Yield every key space, page by page."""
        token = ""
        while True:
            page = self.list(include_deleted=include_deleted, limit=LIST_LIMIT_MAX, page_token=token)
            yield from page.keyspaces
            token = page.next_page_token
            if not token:
                return

    def history(self, name: str) -> builtins.list[KeySpace]:
        """Return the generations of the name that are no more, the oldest first; the current record is what `get` gives.

        Raises KeySpaceNotFoundError.
        """
        with self._look() as registry:
            if not is_name(name) or registry.records.get(name) is None:
                raise KeySpaceNotFoundError(name=name)
            return [KeySpace.of_record(record) for _, record in registry.history.list(name)]

    def owner_of(self, key: bytes) -> Owner:
        """Say whose a raw key of the store is: the registry's, a key space's or nobody's (R10)."""
        with self._acts.look() as registry:
            header = header_of(registry)
            return owner_in(registry, prefix_codec(header.prefix_codec if header else "uvarint"), key)

    def fence(self, name: str) -> Fence | None:
        """Return the generation and state that writes are guarded by."""
        with self._acts.look() as registry:
            return registry.fences.get(name) if is_name(name) else None

    def sessions(self, name: str) -> builtins.list[tuple[int, Session]]:
        """Return who has the key space open, by lease."""
        with self._look() as registry:
            return [(key.lease, session) for key, session in registry.sessions.list(name)] if is_name(name) else []

    def deletion(self, name: str) -> Deletion | None:
        """Return how far the deletion of the key space is; None when there is none under way."""
        with self._look() as registry:
            return registry.deletions.get(name) if is_name(name) else None

    def marks(self) -> builtins.list[tuple[bytes, Mark]]:
        """Return the prefixes that are nobody's and yet not free: cooling down, quarantined, legacy containers."""
        with self._look() as registry:
            return builtins.list(registry.marks.list())

    # ---- moves ----------------------------------------------------------------------------------------------------------

    def update(self, name: str, description: str | None, sent: Mapping[str, object] | None = None) -> KeySpace:
        """Change the description. `sent` are the other fields that came with it: they must be as they are stored (KS-20).

        Raises InvalidArgumentError without a description, KeySpaceNotFoundError, KeySpaceDeletedError, ImmutableFieldError.
        """
        text = checked_description(description)

        def work(act: Act) -> KeySpace:
            self._check_open(act.registry)
            record = act.registry.records.get(name) if is_name(name) else None
            if record is None:
                raise KeySpaceNotFoundError(name=name)
            stored = KeySpace.of_record(record).to_json()
            del stored["description"]
            wrong = sorted(
                field
                for field, value in (sent or {}).items()
                if field != "description" and (field not in stored or stored[field] != value)
            )
            if wrong:
                raise ImmutableFieldError(name=name, fields=wrong)
            return KeySpace.of_record(describe(act, name, text))

        return self._acts.run(work)

    def disable(self, name: str) -> KeySpace:
        """Refuse opens and writes; reads go on. Raises KeySpaceNotFoundError, IllegalTransitionError."""
        self._require_known("disable", name)
        return self._acts.run(lambda act: KeySpace.of_record(move(act, name, State.DISABLED, "disable")))

    def enable(self, name: str) -> KeySpace:
        """Allow opens and writes again. Raises KeySpaceNotFoundError, IllegalTransitionError."""
        self._require_known("enable", name)
        return self._acts.run(lambda act: KeySpace.of_record(move(act, name, State.ENABLED, "enable")))

    def delete(self, name: str) -> KeySpace:
        """Begin to delete the key space; a Sweeper does the rest. Once begun, it is returned as it is (KS-31).

        From this commit on nobody can open it or write to it. Raises KeySpaceNotFoundError, KeySpaceProtectedError.
        """
        self._require_known("delete", name)
        return self._acts.run(lambda act: KeySpace.of_record(begin_deletion(act, name)))

    def undelete(self, name: str) -> KeySpace:
        """Take a deletion back, until the first key was removed. Raises KeySpaceNotFoundError, IllegalTransitionError."""
        self._require_known("undelete", name)
        return self._acts.run(lambda act: KeySpace.of_record(undelete(act, name)))

    # ---- restoring ------------------------------------------------------------------------------------------------------

    def begin_restore(
        self,
        name: str,
        application: str,
        *,
        description: str = "",
        prefix: str | None = None,
        allow_legacy_prefix: bool = False,
    ) -> KeySpace:
        """Make a key space that a restore fills, in the state RESTORING: nobody can open it before `finish_restore`.

        Raises as `create`.
        """
        self._require_admin("restore")
        request = Request(
            checked_name(name),
            checked_application(application),
            checked_description(description),
            None if prefix is None else bytes_of_hex(prefix),
            allow_legacy_prefix=allow_legacy_prefix,
            state=State.RESTORING,
        )
        return self._created(request, if_not_exists=False).keyspace

    def begin_overwrite(self, name: str, *, application: str | None = None, description: str | None = None) -> KeySpace:
        """Take a key space out of use for a restore into its prefix: the next generation, in the state RESTORING.

        From this commit on no handle of the generation before can write. `application` takes the ownership. Its data is still
        there: `Sweeper.wipe` removes it. Raises KeySpaceNotFoundError, KeySpaceDeletingError, KeySpaceDeletedError.
        """
        self._require_known("restore", name)
        owner = None if application is None else checked_application(application)
        text = None if description is None else checked_description(description)
        return self._acts.run(
            lambda act: KeySpace.of_record(begin_overwrite(act, name, application=owner, description=text))
        )

    def finish_restore(self, name: str, generation: int, *, state: State = State.ENABLED) -> KeySpace:
        """Open the restored key space: RESTORING becomes ENABLED, or DISABLED.

        Raises GenerationMismatchError when another restore has begun since, IllegalTransitionError, KeySpaceNotFoundError.
        """
        self._require_known("restore", name)
        return self._acts.run(lambda act: KeySpace.of_record(finish_restore(act, name, generation, state)))

    # ---- usage, quota, audit --------------------------------------------------------------------------------------------

    def usage(self, name: str) -> Usage:
        """Count what the key space holds, now, in one state; the count is kept. Raises KeySpaceNotFoundError."""
        keyspace = self.get(name)
        return count_usage(self._store, keyspace, self._clock.wall())

    def quota(self, name: str) -> Quota:
        """Return what the key space may hold; without bounds where none was set."""
        with self._acts.look() as registry:
            return (registry.quotas.get(name) if is_name(name) else None) or Quota()

    def set_quota(self, name: str, *, keys: int | None = None, bytes: int | None = None) -> Quota:  # noqa: A002  # Why: the unit.
        """Bound what the key space may hold; None: no bound. Raises KeySpaceNotFoundError, InvalidArgumentError."""
        self._require_known("quota", name)
        quota = checked_quota(keys, bytes)

        def work(act: Act) -> Quota:
            if act.registry.records.get(name) is None:
                raise KeySpaceNotFoundError(name=name)
            act.registry.quotas.put(name, quota)
            act.note("quota", name, structs.asdict(quota))
            return quota

        return self._acts.run(work)

    def audit(self, *, after: int = 0, limit: int | None = None) -> Iterator[AuditItem]:
        """Yield the entries of the audit log behind the number `after`. For administrators."""
        self._require_admin("audit")
        with self._acts.look() as registry:
            for number, entry in registry.audit.list(at_least=after + 1, limit=limit):
                yield AuditItem(number, entry, digest_of_entry(number, entry))

    def verify_audit(self) -> AuditVerdict:
        """Go through the whole audit log and say whether it is whole. For administrators."""
        self._require_admin("audit")
        with self._acts.look() as registry:
            return verified(registry.audit.list())

    # ---- who may --------------------------------------------------------------------------------------------------------

    @contextmanager
    def _look(self) -> Iterator[KeySpaceRegistry]:
        with self._acts.look() as registry:
            self._check_open(registry)
            yield registry

    def _check_open(self, registry: KeySpaceRegistry) -> None:
        if self._role is Role.ADMIN:
            return
        if header_of(registry) is None:
            raise KeySpaceApiDisabledError(problem="there is no registry in this store")
        if not configuration_of(registry).keyspace_api_enabled:
            raise KeySpaceApiDisabledError(problem="keyspace-api-enabled is false")

    def _require_admin(self, act: str) -> None:
        if self._role is not Role.ADMIN:
            with self._acts.look() as registry:
                self._check_open(registry)
            raise ForbiddenError(act=act)

    def _require_known(self, act: str, name: str) -> None:
        self._require_admin(act)
        if not is_name(name):
            raise KeySpaceNotFoundError(name=name)
