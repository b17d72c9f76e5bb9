"""Opening a key space by name (1.6): in the registry, made when missing if that is wanted, or under a default prefix."""

from collections.abc import Callable
from typing import Final

from keyplan.engine import SYSTEM_CLOCK, Clock, Engine, PrefixedEngine, WrappedEngine
from keyplan.errors import (
    GenerationMismatchError,
    InvalidPrefixError,
    KeyplanError,
    KeySpaceApiDisabledError,
    KeySpaceApiUnavailableError,
    KeySpaceDeletedError,
    KeySpaceNotFoundError,
    OwnerConflictError,
    PrefixConflictError,
    PrefixInUseError,
    PrefixMismatchError,
)
from keyplan.keyspace.answers import KeySpace
from keyplan.keyspace.fence import FenceGuard, refusal
from keyplan.keyspace.handle import KeySpaceStore, Mode, budgeted
from keyplan.keyspace.heartbeat import SessionHeartbeat
from keyplan.keyspace.layout import KeySpaceRegistry
from keyplan.keyspace.names import checked_application, checked_name
from keyplan.keyspace.prefixes import SYSTEM_BYTE, bytes_of_hex
from keyplan.keyspace.records import Fence, State
from keyplan.keyspace.registry import KeySpaces
from keyplan.keyspace.roles import Registry, Role
from keyplan.keyspace.share import KeySpaceEngine, ReadOnlyShare
from keyplan.keyspace.transactions import configuration_of, header_of
from keyplan.store import Backoff, Store, open_store

__all__ = [
    "SESSION_SECONDS_DEFAULT",
    "open_for_care",
    "open_key_space",
    "open_keyspace_url",
    "open_restoring",
    "share_on",
]

SESSION_SECONDS_DEFAULT: Final = 60.0
"""1.6: a client that died is waited for so long."""


def open_keyspace_url(
    url: str,
    *,
    keyspace: str,
    application: str,
    create_if_missing: bool = False,
    default_prefix: bytes | str | None = None,
    require_keyspace_api: bool = False,
    accept_registered_prefix: bool = False,
    allow_foreign_write: bool = False,
    on_close: Callable[[KeyplanError], object] | None = None,
    **options: str | int | bool,
) -> KeySpaceStore:
    """Open the key space of that name in the store that `url` names; see `open_key_space`. `options` are the URL's.

    Closing it closes the engine. Raises EngineOpenError, and what `open_key_space` raises.
    """
    engine = open_store(url, **options).engine
    try:
        return open_key_space(
            engine,
            keyspace,
            application,
            create_if_missing=create_if_missing,
            default_prefix=default_prefix,
            require_keyspace_api=require_keyspace_api,
            accept_registered_prefix=accept_registered_prefix,
            allow_foreign_write=allow_foreign_write,
            on_close=on_close,
            closes_engine=True,
        )
    except BaseException:
        engine.close()
        raise


def open_key_space(
    engine: Engine,
    name: str,
    application: str,
    *,
    create_if_missing: bool = False,
    default_prefix: bytes | str | None = None,
    require_keyspace_api: bool = False,
    accept_registered_prefix: bool = False,
    allow_foreign_write: bool = False,
    registry: Registry | None = None,
    session_seconds: float | None = SESSION_SECONDS_DEFAULT,
    on_close: Callable[[KeyplanError], object] | None = None,
    closes_engine: bool = False,
    clock: Clock = SYSTEM_CLOCK,
    backoff: Backoff | None = None,
) -> KeySpaceStore:
    """Open a key space on an engine, as a store in which any layout runs.

    `create_if_missing` makes it in the registry. `default_prefix` (bytes, or hex) is what the application uses where there is
    no registry, which only positive evidence shows: a store without one, or one that is not open to applications yet; a failure
    is never taken for it. Refused are a prefix that is, begins or continues another's, and falling back beside a registry of
    the opened store that is open, or that has another state, owner or prefix for the name. `require_keyspace_api` refuses to
    fall back. A registered prefix other than the default is refused unless `accept_registered_prefix`. A key space of another
    application is for reading, unless `allow_foreign_write`.

    Giving `default_prefix` or `require_keyspace_api` asks as a client, for whom `keyspace-api-enabled` decides; otherwise
    whoever has the engine is an administrator. `registry` is one behind HTTP, or one with a role of the caller's choice.

    With a session (`session_seconds` None: without) a deletion waits for this handle to close, at most so long; and the handle
    closes by itself when the key space is deleted or made anew: `on_close` is called with the error.

    Raises KeySpaceNotFoundError, KeySpaceDisabledError, KeySpaceDeletingError, KeySpaceDeletedError, KeySpaceRestoringError,
    OwnerConflictError, PrefixMismatchError, KeySpaceApiUnavailableError, SelfRegistrationDisabledError, and engine errors.
    """
    name, application = checked_name(name), checked_application(application)
    fallback_prefix = None if default_prefix is None else _checked_default(default_prefix)
    administrator = KeySpaces(engine, actor=application, clock=clock, backoff=backoff)
    if registry is None:
        is_client = fallback_prefix is not None or require_keyspace_api
        registry = administrator.acting_as(Role.CLIENT, application) if is_client else administrator
    inner = engine if closes_engine else WrappedShared(engine)
    try:
        found = _found(registry, name, application, create_if_missing=create_if_missing)
    except KeySpaceApiDisabledError as error:
        if require_keyspace_api or fallback_prefix is None:
            problem = "it is required" if require_keyspace_api else "and no default prefix was given"
            raise KeySpaceApiUnavailableError(name=name, problem=problem) from error
        return _fallback(inner, administrator, name, application, fallback_prefix, clock=clock, backoff=backoff)
    if fallback_prefix not in {None, found.raw_prefix} and not accept_registered_prefix:
        raise PrefixMismatchError(name=name, prefix=found.prefix, default_prefix=(fallback_prefix or b"").hex())
    fence = FenceGuard(engine, name, found.generation)
    share: KeySpaceEngine
    if found.application != application and not allow_foreign_write:
        share = ReadOnlyShare(inner, name, found.raw_prefix, fence, application=application, owner=found.application)
    else:
        share = KeySpaceEngine(inner, name, found.raw_prefix, fence)
    look = budgeted(share, administrator, found, clock, is_told=session_seconds is not None)
    look()
    store = KeySpaceStore(
        share,
        prefix=found.raw_prefix,
        mode=Mode.REGISTRY,
        keyspace=found,
        application=application,
        backoff=backoff,
        clock=clock,
    )
    if session_seconds is not None:
        heartbeat = SessionHeartbeat(
            engine,
            name=name,
            generation=found.generation,
            application=application,
            fence=fence,
            ttl_seconds=session_seconds,
            clock=clock,
            on_end=on_close,
            on_look=look,
        )
        heartbeat.begin()
        store.keep_alive_by(heartbeat)
    return store


def open_restoring(engine: Engine, keyspace: KeySpace, *, backoff: Backoff | None = None) -> KeySpaceStore:
    """Open a key space in the state RESTORING, for the restore that has begun it: each commit is guarded by that state.

    Raises GenerationMismatchError, KeySpaceDeletingError, KeySpaceNotFoundError. The engine is not closed with it.
    """
    if keyspace.state is not State.RESTORING:
        raise GenerationMismatchError(name=keyspace.name, generation=keyspace.generation, problem="it is not restored")
    fence = FenceGuard(engine, keyspace.name, keyspace.generation, writable=State.RESTORING)
    share = KeySpaceEngine(WrappedShared(engine), keyspace.name, keyspace.raw_prefix, fence)
    return KeySpaceStore(
        share,
        prefix=keyspace.raw_prefix,
        mode=Mode.REGISTRY,
        keyspace=keyspace,
        application=keyspace.application,
        backoff=backoff,
    )


def open_for_care(engine: Engine, name: str, *, is_reading: bool) -> Store:
    """Open a key space for an administrator's hand, whoever owns it, without a session; the store closes the engine.

    For reading, in every state that has data: disabled, being deleted or restored. Otherwise as its owner, behind the fence.
    Raises KeySpaceNotFoundError, KeySpaceDeletedError; for writing what `open_key_space` raises.
    """
    found = KeySpaces(engine).get(name)
    if found.state is State.DELETED:
        raise KeySpaceDeletedError(name=name)
    if is_reading:
        return Store(PrefixedEngine(engine, found.raw_prefix))
    return open_key_space(engine, name, found.application, session_seconds=None, closes_engine=True)


def share_on(store: KeySpaceStore, engine: Engine) -> Engine:
    """Return the share that an open key space has of its store, on another engine of the same store, which it closes.

    For a twin of the handle, whose engine awaits. Refused is there what is refused here; the session stays here, and so does
    the quota. Raises what an engine raises, and the reason when the key space is no more.
    """
    share = store.engine
    if not isinstance(share, KeySpaceEngine) or store.keyspace is None:
        return PrefixedEngine(engine, store.prefix)
    name, owner = store.keyspace.name, store.keyspace.application
    fence = FenceGuard(engine, name, store.keyspace.generation)
    if isinstance(share, ReadOnlyShare):
        return ReadOnlyShare(engine, name, store.prefix, fence, application=store.application, owner=owner)
    return KeySpaceEngine(engine, name, store.prefix, fence)


class WrappedShared(WrappedEngine):
    """An engine that somebody else closes. Reads of a value go straight through."""

    def __init__(self, inner: Engine) -> None:
        super().__init__(inner, closes_inner=False)
        self.value = inner.value  # type: ignore[method-assign]  # Why: no frame more in the path of every single read.


def _checked_default(prefix: bytes | str) -> bytes:
    raw = bytes_of_hex(prefix) if isinstance(prefix, str) else prefix
    if not raw or raw.startswith(SYSTEM_BYTE):
        raise InvalidPrefixError(prefix=raw.hex(), reason="reserved" if raw else "empty")
    return raw


def _found(registry: Registry, name: str, application: str, *, create_if_missing: bool) -> KeySpace:
    """Return the key space, made if that is wanted; it may be opened. Raises why it may not, or is not there."""
    try:
        found = registry.get(name)
    except KeySpaceNotFoundError:
        if not create_if_missing:
            raise
        found = registry.ensure(name, application).keyspace
    if found.state is State.DELETED:
        if not create_if_missing:
            raise KeySpaceDeletedError(name=name)
        found = registry.ensure(name, application).keyspace
    refused = refusal(name, found.generation, Fence(found.generation, found.state))
    if refused is not None:
        raise refused
    return found


def _refuse_fallback(seen: KeySpaceRegistry, name: str, application: str, prefix: bytes) -> None:
    """Raise why an application may not use its default prefix beside what the opened store has in its own registry.

    The store's registry may be closed to applications: then what is registered is respected as it would be by opening it.
    """
    if header_of(seen) is not None and configuration_of(seen).keyspace_api_enabled:
        problem = "the registry that was asked is not there, and the opened store has one that is open to applications"
        raise KeySpaceApiUnavailableError(name=name, problem=problem)
    for other in seen.holders.keys():  # noqa: SIM118  # Why: a view, no dict.
        if not (other.startswith(prefix) or prefix.startswith(other)):
            continue
        holder = seen.holders.get(other)
        if holder is None or holder.name != name:
            facts = {"holder": holder.name} if holder is not None else {}
            if other == prefix:
                raise PrefixInUseError(prefix=prefix.hex(), **facts)
            raise PrefixConflictError(prefix=prefix.hex(), other=other.hex(), **facts)
    record = seen.records.get(name)
    if record is None or record.state is State.DELETED:
        return
    if record.application != application:
        raise OwnerConflictError(name=name, application=application, owner=record.application)
    if record.prefix != prefix.hex():
        raise PrefixMismatchError(name=name, prefix=record.prefix, default_prefix=prefix.hex())
    refused = refusal(name, record.generation, Fence(record.generation, record.state))
    if refused is not None:
        raise refused


def _fallback(
    engine: Engine,
    registry: KeySpaces,
    name: str,
    application: str,
    prefix: bytes,
    *,
    clock: Clock,
    backoff: Backoff | None,
) -> KeySpaceStore:
    with registry.transactions.look() as seen:
        _refuse_fallback(seen, name, application, prefix)
    return KeySpaceStore(
        PrefixedEngine(engine, prefix),
        prefix=prefix,
        mode=Mode.FALLBACK,
        keyspace=None,
        application=application,
        backoff=backoff,
        clock=clock,
    )
