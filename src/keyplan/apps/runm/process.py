"""`keyplan runm serve` as a process: the store waited for, the start keys, the server, the registry, the end."""

import logging
import os
import signal
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import Final, TypeVar

from keyplan.access import AccessFile, idle_grants
from keyplan.apps.runm.callers import Callers
from keyplan.apps.runm.deployment import Deployment, Rulings
from keyplan.apps.runm.figures import Figures
from keyplan.apps.runm.figures_port import figures_served
from keyplan.apps.runm.group_member import Member
from keyplan.apps.runm.identity import checked_code
from keyplan.apps.runm.logs import LOGGER, set_up_logging, set_up_registry_logging
from keyplan.apps.runm.records import ObjectType, ProviderType
from keyplan.apps.runm.refusal import RefusedError
from keyplan.apps.runm.registry import registered
from keyplan.apps.runm.server import Listening, is_local_address, serving
from keyplan.apps.runm.settings import ServeSettings
from keyplan.apps.runm.start import ensure_started, unreadable_indexes
from keyplan.apps.runm.store_health import followed_health
from keyplan.audit_log import NO_ROTATION, AuditLog, Notice, Rotation
from keyplan.engine import SYSTEM_CLOCK, Capability, Clock, Engine, EngineUrl, open_engine
from keyplan.errors import EngineUnavailableError, InvalidInputError, StoreUnreachableError
from keyplan.secret_keys import KeysOnDemand
from keyplan.server import ServiceAudit, Token, note_access_file, read_tokens, tokens_of_environment
from keyplan.signals import call_from_signal, told_by_signals, wait_for
from keyplan.store import Store

__all__ = ["ServeChoices", "audited", "ended_in_time", "known_callers", "run_server", "set_up_logs"]

T = TypeVar("T")

_WAIT_SECONDS_FIRST: Final = 0.2
_WAIT_SECONDS_MAX: Final = 10.0

_END_SECONDS_MAX: Final = 4.5
"""Why: whoever stops a service waits five seconds for it, then kills it."""


@dataclass(frozen=True, slots=True)
class ServeChoices:
    """What the original has no setting for."""

    access: Path | None = None
    audit_log: Path | None = None
    audit_syncs: bool = True
    audit_rotation: Rotation = NO_ROTATION
    tokens: Path | None = None
    tls_client_authority: Path | None = None
    is_open_to_anyone: bool = False
    has_enforced_definitions: bool = False
    is_isolated: bool = False
    is_registered: bool = True
    deleted_kept_seconds: int = 0
    metrics_listen: str | None = None
    object_types: tuple[ObjectType, ...] = ()
    provider_types: tuple[ProviderType, ...] = ()


def run_server(
    settings: ServeSettings,
    choices: ServeChoices,
    stop: Event,
    *,
    announce: Callable[[str], object],
    member: Member | None = None,
) -> None:
    """Serve until a signal comes or `stop` is set; return when calls have ended and the endpoint is out of the registry.

    `member` is what a process has that serves beside others. Raises InvalidInputError, for an address that others can reach
    without tokens too; EngineError when the store cannot be reached in time.
    """
    callers = known_callers(choices)
    tokens, access = callers.tokens, callers.access
    if choices.tls_client_authority and not (access and settings.certificate):
        problem = "certificates of clients are known by an access file, over TLS: give --access and --use-tls"
        raise InvalidInputError(source="--tls-client-ca", problem=problem)
    _require_safe(settings.addresses, tokens, is_open=choices.is_open_to_anyone or access is not None)
    _require_codes([*choices.object_types, *choices.provider_types])
    set_up_logs(settings)
    if access is not None:
        _tell_idle_grants(access)
    # Why signals first: one that comes during the start ends it in order, too.
    with told_by_signals(stop, logger=LOGGER), ExitStack() as stack:
        audit = _audit(choices, member, stack)
        if access is not None and audit.log is not None:
            note_access_file(audit.log, access)
        keys = KeysOnDemand.of_environment(os.environ)
        store = stack.enter_context(Store(audit.noting(_reached(settings, stop)), secrets=keys))
        rulings = Rulings(
            has_enforced_definitions=choices.has_enforced_definitions,
            is_isolated=choices.is_isolated,
            bootstrap_token=settings.bootstrap_token,
            deleted_kept_seconds=choices.deleted_kept_seconds,
        )
        if rulings.deleted_kept_seconds and not store.engine.profile.claims(Capability.LEASES):
            raise InvalidInputError(source="--keep-deleted", problem="the store's engine has no leases to keep them on")
        deployment = Deployment(store, settings.prefix, rulings, url=EngineUrl.parse(settings.store).text)
        ensure = partial(
            ensure_started, deployment, object_types=choices.object_types, provider_types=choices.provider_types
        )
        _insisted(ensure, settings.connect_timeout_seconds, stop)
        for name, state in unreadable_indexes(deployment).items():
            words = "%s is %s: searches do without it until `%s` was run"
            LOGGER.warning(words, name, state, deployment.command("reindex"))
        listening = Listening(
            settings.addresses, settings.certificate, choices.tls_client_authority, is_shared=member is not None
        )
        figures, own_addresses = Figures() if choices.metrics_listen is not None else None, list[str]()
        if figures is not None and member is not None:
            member.give_figures(figures.registry)
        elif figures is not None and choices.metrics_listen is not None:
            port = figures_served(figures.registry, choices.metrics_listen, callers, settings.certificate)
            own_addresses.append(stack.enter_context(port))
        running = stack.enter_context(
            serving(deployment, listening, tokens, access=access, audit=audit, figures=figures)
        )
        if choices.is_registered and (member is None or member.is_first):
            # Invariant: entered after the server, and so taken out before it stops: nobody is sent here any more.
            stack.enter_context(_entered(settings, store, running.addresses[:1]))
        look = partial(store.engine.value, deployment.bound.root)  # Why: any key; it is the answer that counts.

        def tell(answers: bool) -> None:  # noqa: FBT001  # Why: what it is called with is its only word.
            running.tell_health(answers)
            if figures is not None:
                figures.tell_store(answers)

        stack.enter_context(followed_health(look, tell))
        for address in (*running.addresses, *own_addresses):
            announce(address)
        wait_for(stop)


def _entered(settings: ServeSettings, store: Store, addresses: Sequence[str]) -> AbstractContextManager[None]:
    registry = settings.registry
    return registered(
        partial(_opened, registry.store) if registry.store else lambda: store,
        is_own=registry.store is not None,
        prefix=registry.prefix,
        service=settings.service_name,
        addresses=addresses,
        lease_seconds=registry.lease_seconds,
        connect_timeout_seconds=registry.connect_timeout_seconds,
    )


@contextmanager
def ended_in_time(stop: Event, seconds: float = _END_SECONDS_MAX) -> Generator[None, None, None]:
    """End the process so many seconds after `stop` is set, with exit code 0, if it has not ended by then.

    What is under way then is left as a kill leaves it: each commit is whole or not there, and the lease in the registry ends by
    itself. For the block that is all that the process does.
    """
    over = Event()

    def watch() -> None:
        wait_for(stop)
        if not over.wait(seconds):
            LOGGER.warning("the store does not answer: the process ends without it")
            logging.shutdown()
            os._exit(0)

    Thread(target=watch, name="runm-end", daemon=True).start()
    try:
        yield
    finally:
        # Why not once it is to end: what Python does at its end waits, too, as for processes that were started.
        if not stop.is_set():
            over.set()


def _audit(choices: ServeChoices, member: Member | None, stack: ExitStack) -> ServiceAudit:
    if choices.audit_log is None:
        return ServiceAudit()
    return stack.enter_context(audited(choices, choices.audit_log)) if member is None else ServiceAudit("runm", member)


@contextmanager
def audited(choices: ServeChoices, path: Path) -> Generator[ServiceAudit, None, None]:
    """Open the audit log for the length of a block, in which SIGHUP has it go on in the file that has its name by then."""

    def told(notice: Notice) -> None:
        facts = " ".join(f"{name}={value!s}" for name, value in notice.facts.items())
        LOGGER.log(logging.ERROR if notice.is_problem else logging.WARNING, "%s: %s", notice.words, facts)

    with AuditLog(
        path,
        wall=SYSTEM_CLOCK.wall,
        syncs=choices.audit_syncs,
        rotation=choices.audit_rotation,
        on_notice=told,
    ) as log:
        before = signal.signal(signal.SIGHUP, lambda _number, _frame: call_from_signal(log.reopen))
        try:
            yield ServiceAudit("runm", log)
        finally:
            signal.signal(signal.SIGHUP, before)


def _reached(settings: ServeSettings, stop: Event) -> Engine:
    return _insisted(lambda: open_engine(settings.store, create=True), settings.connect_timeout_seconds, stop)


def _opened(url: str) -> Store:
    return Store(open_engine(url), secrets=KeysOnDemand.of_environment(os.environ))


def _insisted(work: Callable[[], T], seconds_max: int, stop: Event, clock: Clock = SYSTEM_CLOCK) -> T:
    """Do something; while the store cannot be reached, again, longer apart each time, up to the connect timeout.

    Given up at once where no host's name has an address.
    """
    deadline = clock.monotonic() + seconds_max
    wait_seconds = _WAIT_SECONDS_FIRST
    while True:
        try:
            return work()
        except (EngineUnavailableError, StoreUnreachableError) as error:
            if "unresolved" in error.facts:
                raise  # Why: a name that nobody knows is a mistake; servers that are not up yet have names (4.12).
            if clock.monotonic() + wait_seconds > deadline or stop.wait(wait_seconds):
                raise
            LOGGER.warning("the store cannot be reached; trying again: %s", error)
            wait_seconds = min(2 * wait_seconds, _WAIT_SECONDS_MAX)


def set_up_logs(settings: ServeSettings) -> None:
    """Let the loggers of the service and of its registry write as the settings say."""
    set_up_logging(settings.log_level)
    registry = settings.registry
    set_up_registry_logging(
        registry.log_level, has_microseconds=registry.has_microseconds, has_file_trace=registry.has_file_trace
    )


def known_callers(choices: ServeChoices) -> Callers:
    """Return who may ask: by the access file, by the tokens, or anybody. Raises InvalidInputError."""
    tokens = _tokens(choices.tokens)
    return Callers(tokens, _access(choices, tokens))


def _tokens(path: Path | None) -> Sequence[Token]:
    return [*(read_tokens(path) if path else ()), *tokens_of_environment(os.environ)]


def _access(choices: ServeChoices, tokens: Sequence[Token]) -> AccessFile | None:
    """Return the access file that says who may do what, if there is one: then nothing else says it."""
    if choices.access is None:
        return None
    if tokens or choices.is_open_to_anyone:
        others = "--tokens, --allow-anyone, KEYPLAN_ADMIN_TOKEN and KEYPLAN_CLIENT_TOKEN"
        problem = f"the access file alone says who may ask: leave out {others}"
        raise InvalidInputError(source="--access", problem=problem)

    def tell(error: InvalidInputError | None) -> None:
        if error is None:
            LOGGER.warning("the access file has changed: what it says now counts")
            _tell_idle_grants(file)
        else:
            LOGGER.error("the access file is not sound; what it said before goes on to count: %s", error)

    file = AccessFile(choices.access, monotonic=SYSTEM_CLOCK.monotonic, on_change=tell)
    return file


def _tell_idle_grants(file: AccessFile) -> None:
    for principal, grant, problem in idle_grants(file.policy):
        LOGGER.warning("%s:%d: a grant of %s lets nobody do anything: %s", file.path, grant.line, principal, problem)


def _require_safe(addresses: Sequence[str], tokens: Sequence[Token], *, is_open: bool) -> None:
    exposed = [address for address in addresses if not is_local_address(address)]
    if exposed and not tokens and not is_open:
        problem = (
            f"{exposed[0]} can be reached from other machines, and no tokens are configured: give --access FILE or"
            " --tokens FILE, set KEYPLAN_CLIENT_TOKEN, listen on 127.0.0.1, or say --allow-anyone"
        )
        raise InvalidInputError(source="--listen", problem=problem)


def _require_codes(types: Sequence[ObjectType | ProviderType]) -> None:
    for kind in types:
        try:
            checked_code(kind.code)
        except RefusedError as error:
            raise InvalidInputError(source=kind.code, problem=error.text) from error
