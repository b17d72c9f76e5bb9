"""Opening a key space by name (1.6): in the registry, made when missing if that is wanted, or under a default prefix."""

from collections.abc import Callable
from typing import Any, Final

from keyplan.codec import SecretCipher
from keyplan.engine import SYSTEM_CLOCK, Clock, Engine, WrappedEngine
from keyplan.errors import (
    AccessDeniedError,
    ForbiddenError,
    GenerationMismatchError,
    InvalidPrefixError,
    KeyplanError,
    KeySpaceApiDisabledError,
    KeySpaceApiUnavailableError,
    KeySpaceDeletedError,
    KeySpaceNotFoundError,
    PrefixMismatchError,
    RegistryMismatchError,
)
from keyplan.keyspace.answers import KeySpace
from keyplan.keyspace.fallback import FallbackFence
from keyplan.keyspace.fence import KeySpaceFence, refusal
from keyplan.keyspace.handle import KeySpaceStore, Mode, budgeted
from keyplan.keyspace.heartbeat import SessionHeartbeat
from keyplan.keyspace.names import checked_application, checked_name
from keyplan.keyspace.prefixes import SYSTEM_BYTE, bytes_of_hex
from keyplan.keyspace.records import State
from keyplan.keyspace.registry import KeySpaces
from keyplan.keyspace.roles import Registry, Role
from keyplan.keyspace.share import KeySpaceEngine, ReadOnlyShare
from keyplan.store import Backoff, LayoutCheck, Store, checked_reaction, open_store

__all__ = [
    "SESSION_SECONDS_DEFAULT",
    "open_for_care",
    "open_key_space",
    "open_keyspace_url",
    "open_restoring",
    "share_for_care",
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
    secrets: SecretCipher | None = None,
    layout_check: LayoutCheck = "warn",
    **options: str | int | bool,
) -> KeySpaceStore:
    """Open the key space of that name in the store that `url` names; see `open_key_space`. `options` are the URL's.

    Closing it closes the engine. Raises EngineOpenError, and what `open_key_space` raises.
    """
    reaction = checked_reaction(layout_check)
    engine = open_store(url, secrets=None, layout_check="off", **options).engine
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
            secrets=secrets,
            layout_check=reaction,
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
    secrets: SecretCipher | None = None,
    layout_check: LayoutCheck = "off",
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
    closes by itself when the key space is deleted or made anew: `on_close` is called with the error. `secrets` are the keys of
    sealed secrets, `layout_check` what becomes of layouts that are not the key space's; see `Store`.

    Raises KeySpaceNotFoundError, KeySpaceDisabledError, KeySpaceDeletingError, KeySpaceDeletedError, KeySpaceRestoringError,
    OwnerConflictError, PrefixMismatchError, KeySpaceApiUnavailableError, SelfRegistrationDisabledError, and engine errors.
    """
    name, application = checked_name(name), checked_application(application)
    fallback_prefix = None if default_prefix is None else _checked_default(default_prefix)
    administrator = KeySpaces(engine, actor=application, clock=clock, backoff=backoff)
    if registry is None:
        is_client = fallback_prefix is not None or require_keyspace_api
        registry = administrator.acting_as(Role.CLIENT, application) if is_client else administrator
    registry_is_own = isinstance(registry, KeySpaces) and registry.engine is engine
    inner = engine if closes_engine else WrappedShared(engine)
    of_store: dict[str, Any] = {"clock": clock, "backoff": backoff, "secrets": secrets, "layout_check": layout_check}
    try:
        if registry_is_own:
            found = _found(registry, name, application, create_if_missing=create_if_missing)
        else:
            found = _found_elsewhere(registry, administrator, name, application, create_if_missing=create_if_missing)
    except KeySpaceApiDisabledError as error:
        if require_keyspace_api or fallback_prefix is None:
            problem = "it is required" if require_keyspace_api else "and no default prefix was given"
            raise KeySpaceApiUnavailableError(name=name, problem=problem) from error
        return _fallback(inner, name, application, fallback_prefix, of_store)
    if fallback_prefix not in {None, found.raw_prefix} and not accept_registered_prefix:
        raise PrefixMismatchError(name=name, prefix=found.prefix, default_prefix=(fallback_prefix or b"").hex())
    fence = KeySpaceFence(engine, name, found.generation)
    share: KeySpaceEngine
    if found.application != application and not allow_foreign_write:
        share = ReadOnlyShare(inner, name, found.raw_prefix, fence, application=application, owner=found.application)
    else:
        share = KeySpaceEngine(inner, name, found.raw_prefix, fence)
    look = budgeted(share, administrator, found, clock, is_told=session_seconds is not None)
    look()
    of_store |= {"prefix": found.raw_prefix, "keyspace": found, "application": application}
    store = KeySpaceStore(share, mode=Mode.REGISTRY, **of_store)
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
    fence = KeySpaceFence(engine, keyspace.name, keyspace.generation, writable=State.RESTORING)
    share = KeySpaceEngine(WrappedShared(engine), keyspace.name, keyspace.raw_prefix, fence)
    return KeySpaceStore(
        share,
        prefix=keyspace.raw_prefix,
        mode=Mode.REGISTRY,
        keyspace=keyspace,
        application=keyspace.application,
        backoff=backoff,
    )


def open_for_care(
    engine: Engine,
    name: str,
    *,
    is_reading: bool,
    secrets: SecretCipher | None = None,
    layout_check: LayoutCheck = "off",
) -> Store:
    """Open a key space for an administrator's hand, whoever owns it, without a session; the store closes the engine.

    For reading, in every state that has data: disabled, being deleted or restored. Otherwise as its owner, behind the fence.
    Raises KeySpaceNotFoundError, KeySpaceDeletedError; for writing what `open_key_space` raises.
    """
    found = KeySpaces(engine).get(name)
    if found.state is State.DELETED:
        raise KeySpaceDeletedError(name=name)
    if is_reading:
        return Store(share_for_care(engine, found), secrets=secrets, layout_check=layout_check)
    return open_key_space(
        engine,
        name,
        found.application,
        session_seconds=None,
        closes_engine=True,
        secrets=secrets,
        layout_check=layout_check,
    )


def share_for_care(engine: Engine, keyspace: KeySpace, *, closes_engine: bool = True) -> Engine:
    """Return a key space's share of an engine for an administrator's eye: read in every state that has data, and fenced.

    Raises KeySpaceNotFoundError, KeySpaceDeletedError, GenerationMismatchError.
    """
    fence = KeySpaceFence(engine, keyspace.name, keyspace.generation, for_care=True)
    return KeySpaceEngine(engine, keyspace.name, keyspace.raw_prefix, fence, closes_inner=closes_engine)


def share_on(store: KeySpaceStore, engine: Engine) -> Engine:
    """Return the share that an open key space has of its store, on another engine of the same store, which it closes.

    For a twin of the handle, whose engine awaits. Refused is there what is refused here; the session stays here, and so does
    the quota. Raises what an engine raises, and the reason when the key space is no more.
    """
    share = store.engine
    assert isinstance(share, KeySpaceEngine), "an open key space is a share of its store"
    name, fence = share.name, share.fence.on(engine)
    if isinstance(share, ReadOnlyShare):
        owner = store.keyspace.application if store.keyspace is not None else ""
        return ReadOnlyShare(engine, name, store.prefix, fence, application=store.application, owner=owner)
    return KeySpaceEngine(engine, name, store.prefix, fence)


class WrappedShared(WrappedEngine):
    """An engine that somebody else closes. Reads and commits go straight through."""

    def __init__(self, inner: Engine) -> None:
        super().__init__(inner, closes_inner=False)
        # Why: no frame more in the path of every read and every commit.
        self.snapshot = inner.snapshot  # type: ignore[method-assign]
        self.commit = inner.commit  # type: ignore[method-assign]
        self.value = inner.value  # type: ignore[method-assign]
        self.fenced_value = inner.fenced_value  # type: ignore[method-assign]
        self.fenced_reader = inner.fenced_reader  # type: ignore[method-assign]
        self.fenced_snapshot = inner.fenced_snapshot  # type: ignore[method-assign]


def _checked_default(prefix: bytes | str) -> bytes:
    raw = bytes_of_hex(prefix) if isinstance(prefix, str) else prefix
    if not raw or raw.startswith(SYSTEM_BYTE):
        raise InvalidPrefixError(prefix=raw.hex(), reason="reserved" if raw else "empty")
    return raw


def _found(
    registry: Registry,
    name: str,
    application: str,
    *,
    create_if_missing: bool,
    before_making: Callable[[], object] = lambda: None,
) -> KeySpace:
    """Return the key space, made if that is wanted; it may be opened. Raises why it may not, or is not there."""
    try:
        found = registry.get(name)
    except KeySpaceNotFoundError:
        if not create_if_missing:
            raise
        before_making()
        found = registry.ensure(name, application).keyspace
    if found.state is State.DELETED:
        if not create_if_missing:
            raise KeySpaceDeletedError(name=name)
        before_making()
        found = registry.ensure(name, application).keyspace
    refused = refusal(name, found.generation, found)
    if refused is not None:
        raise refused
    return found


def _found_elsewhere(
    registry: Registry, own: KeySpaces, name: str, application: str, *, create_if_missing: bool
) -> KeySpace:
    """As `_found`, of a registry that is reached otherwise than through the engine: it must be the opened store's own.

    Raises RegistryMismatchError; GenerationMismatchError when the store knows another key space of the name by now.
    """

    def compare() -> None:
        asked, opened = _cluster(registry), _cluster(own)
        if asked is not None and asked != opened:
            raise RegistryMismatchError(name=name, registry=asked, store=opened)

    # Why before it makes one: in the registry of another store, nothing shall be made either.
    found = _found(registry, name, application, create_if_missing=create_if_missing, before_making=compare)
    compare()
    with own.transactions.look() as seen:
        record = seen.records.get(name)
    if record is None or (record.prefix, record.application) != (found.prefix, found.application):
        raise RegistryMismatchError(name=name, registry=_cluster(registry) or "", store=_cluster(own))
    if record.generation != found.generation:
        raise GenerationMismatchError(name=name, generation=found.generation, current=record.generation)
    return found


def _cluster(registry: Registry) -> str | None:
    """Return the id that a registry has; empty where there is none, None for one that does not tell applications."""
    try:
        header = registry.header()
    except (ForbiddenError, AccessDeniedError):
        # Why both: without an access file it is for administrators, with one it has to be granted.
        return None
    return "" if header is None else header.cluster


def _fallback(engine: Engine, name: str, application: str, prefix: bytes, of_store: dict[str, Any]) -> KeySpaceStore:
    return KeySpaceStore(
        KeySpaceEngine(engine, name, prefix, FallbackFence(engine, name, application, prefix)),
        prefix=prefix,
        mode=Mode.FALLBACK,
        keyspace=None,
        application=application,
        **of_store,
    )
