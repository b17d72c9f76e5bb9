"""Calls to a cluster: which server, with which token, how often, how long. What the calls mean is the engine's business.

There are no threads here and no lock is held over a call: several threads, or greenlets, may be in `call` at once, and what
they share are single assignments.
"""

import os
from typing import Final

from keyplan.engine.clock import SYSTEM_CLOCK
from keyplan.engine.etcd.crowds import Crowds
from keyplan.engine.etcd.failures import COMPACTED, FUTURE, NAME, Verdict, has_no_address, refusal, says, verdict
from keyplan.engine.etcd.lineage import Sightings
from keyplan.engine.etcd.options import EtcdOptions
from keyplan.engine.etcd.transport import (
    AUTHENTICATE,
    RANGE,
    STATUS,
    WATCH,
    Message,
    Metadata,
    Method,
    Stream,
    Transport,
    TransportError,
    messages,
)
from keyplan.errors import (
    CommitOutcomeUnknownError,
    EngineOpenError,
    EngineRefusedError,
    EngineUnavailableError,
    StoreUnreachableError,
)

__all__ = ["FIRST_KEY", "EtcdClient"]

FIRST_KEY: Final = b"\x00"
"""The smallest key there can be."""

_TRUST_SECONDS: Final = 2.0
"""A server that answered so recently is sent a commit at once; another one is asked for its status before. Why: a question
whose answer does not come harms nothing, while a commit whose answer does not come has an unknown outcome."""
_PROBE_SECONDS: Final = 1.0
_OPEN_SECONDS_MAX: Final = 3.0
_PAUSE_SECONDS_FIRST: Final = 0.02
_PAUSE_SECONDS_MAX: Final = 0.5
_RENEWALS_MAX: Final = 5
_LEADER: Final = ("hasleader", "true")
"""Asks a server that knows no leader to refuse at once, instead of waiting for one."""
_VERSION_MIN: Final = (3, 4, 0)
_ORDERED_PROGRESS: Final = ((3, 4, 25), (3, 5, 0), (3, 5, 8))
"""From 3.4.25 and 3.5.8, a progress notice that was asked for comes after the events before it (etcd issue 15220)."""


class EtcdClient:
    """A cluster that is spoken to through one transport."""

    def __init__(self, options: EtcdOptions, transport: Transport) -> None:
        self.transport = transport
        self.crowds = Crowds()
        self.sightings = Sightings()
        self.version = _VERSION_MIN
        self._options = options
        self._endpoint = options.endpoints[0]
        self._answered_at: dict[str, float] = {}
        self._metadata: Metadata | None = (_LEADER,) if options.user is None else None
        self._is_closed = False
        self._process = os.getpid()

    def connect(self) -> None:
        """Find a server that answers, learn its version, log in.

        Raises StoreUnreachableError when none answers, with the fact `unresolved` when none of their names has an address;
        EngineOpenError.
        """
        problems: list[str] = []
        unresolved: list[str] = []
        seconds = min(self._options.timeout_seconds, _OPEN_SECONDS_MAX)
        for endpoint in self._options.endpoints:
            try:
                status = self.transport.call(
                    endpoint, STATUS, messages.StatusRequest(), timeout_seconds=seconds, metadata=()
                )
            except TransportError as failure:
                problems.append(f"{endpoint}: {failure.details or failure.code}")
                if has_no_address(failure):
                    unresolved.append(endpoint)
                continue
            self._endpoint = endpoint
            now = self._answered_at[endpoint] = SYSTEM_CLOCK.monotonic()
            self.sightings.take(STATUS, messages.StatusRequest(), status, known=0, asked_at=now)
            self._learn_version(str(status.version))
            self._log_in()
            return
        facts = {"unresolved": unresolved} if len(unresolved) == len(problems) else {}
        problem = "no server answers; " + "; ".join(problems)
        raise StoreUnreachableError(url=self._options.shown_url, problem=problem, **facts)

    def _learn_version(self, version: str) -> None:
        numbers = [int(digits) for part in version.split(".")[:3] if (digits := part.partition("-")[0]).isdigit()]
        major, minor, patch = (*numbers, 0, 0, 0)[:3]
        self.version = (major, minor, patch)
        if self.version < _VERSION_MIN:
            problem = f"etcd {version} is too old; keyplan needs 3.4 or newer"
            raise EngineOpenError(url=self._options.shown_url, problem=problem)

    def _log_in(self) -> None:
        try:
            self._current_metadata(SYSTEM_CLOCK.monotonic() + self._options.timeout_seconds)
        except TransportError as failure:
            raise EngineOpenError(url=self._options.shown_url, problem=f"no log-in: {failure.details}") from failure

    @property
    def timeout_seconds(self) -> float:
        """How long a call may take that says nothing else."""
        return self._options.timeout_seconds

    @property
    def has_ordered_progress(self) -> bool:
        """True when an answer to a request for progress tells that everything before it was delivered."""
        first, second_line, second = _ORDERED_PROGRESS
        return first <= self.version < second_line or self.version >= second

    @property
    def endpoint(self) -> str:
        """The server that is spoken to at present."""
        return self._endpoint

    def leave(self, endpoint: str) -> None:
        """Speak to the next server from now on, unless another thread has moved on already."""
        self._answered_at.pop(endpoint, None)
        if self._endpoint == endpoint:
            endpoints = self._options.endpoints
            self._endpoint = endpoints[(endpoints.index(endpoint) + 1) % len(endpoints)]

    def check_open(self) -> None:
        """Raise EngineUnavailableError after `close`, and in a forked process: gRPC's threads are in its parent."""
        if self._is_closed:
            raise EngineUnavailableError(engine=NAME, problem="the engine was closed")
        if self.is_foreign:
            raise EngineUnavailableError(engine=NAME, problem="the process was forked; open the store again")

    @property
    def is_foreign(self) -> bool:
        """True in a process that was forked from the one that opened the engine: nothing of gRPC may be touched there."""
        return os.getpid() != self._process

    def close_to_calls(self) -> None:
        """Let no further call begin."""
        self._is_closed = True

    # ---- one call --------------------------------------------------------------------------------------------------------

    def call(
        self, method: Method, request: Message, *, mutations: int = 0, timeout_seconds: float | None = None
    ) -> Message:
        """Make a call at some server and return its response.

        Without `mutations` it may be carried out twice, and is tried again until the time is over. With them it is tried again
        only while it certainly was not carried out; CommitOutcomeUnknownError when it may have been. Raises EngineRefusedError
        when a server refuses, EngineUnavailableError when none answers in time: then nothing was carried out.
        """
        seconds = self._options.timeout_seconds if timeout_seconds is None else timeout_seconds
        give_up_at = SYSTEM_CLOCK.monotonic() + seconds
        pause_seconds = _PAUSE_SECONDS_FIRST
        renewals = 0
        while True:
            self.check_open()
            endpoint = self._endpoint
            known, asked_at = self.sightings.revision, SYSTEM_CLOCK.monotonic()
            is_sent = False
            try:
                self._probe(endpoint, give_up_at)
                metadata = self._metadata or self._current_metadata(give_up_at)
                remaining = give_up_at - SYSTEM_CLOCK.monotonic()
                is_sent = True
                response = self.transport.call(
                    endpoint,
                    method,
                    request,
                    timeout_seconds=remaining if mutations else self._patience(remaining),
                    metadata=metadata,
                )
            except TransportError as failure:
                self.sightings.forget()
                judged = verdict(failure)
                if judged is Verdict.REFUSED:
                    raise refusal(failure) from failure
                if judged is Verdict.RENEW:
                    renewals += 1
                    if self._options.user is None or renewals > _RENEWALS_MAX:
                        raise refusal(failure) from failure
                    self._metadata = None
                else:
                    if judged is Verdict.UNKNOWN and mutations and is_sent:
                        self.leave(endpoint)
                        raise self._unknown(failure, mutations) from failure
                    self.leave(endpoint)
                now = SYSTEM_CLOCK.monotonic()
                if now + pause_seconds >= give_up_at:
                    self.check_open()
                    raise self._unavailable(endpoint, failure, seconds) from failure
                self.transport.wait(pause_seconds)
                pause_seconds = min(pause_seconds * 2, _PAUSE_SECONDS_MAX)
            else:
                self._answered_at[endpoint] = SYSTEM_CLOCK.monotonic()
                self.sightings.take(method, request, response, known=known, asked_at=asked_at)
                return response

    def _patience(self, remaining_seconds: float) -> float:
        """How long one server may take to answer what another one could answer as well."""
        return remaining_seconds if len(self._options.endpoints) == 1 else max(remaining_seconds / 2, 0.5)

    def _probe(self, endpoint: str, give_up_at: float) -> None:
        """Ask a server that was not heard of lately for its status. Raises TransportError when it does not answer."""
        now = SYSTEM_CLOCK.monotonic()
        if now < self._answered_at.get(endpoint, -_TRUST_SECONDS) + _TRUST_SECONDS:
            return
        seconds = max(min(_PROBE_SECONDS, give_up_at - now), 0.05)
        self.transport.call(endpoint, STATUS, messages.StatusRequest(), timeout_seconds=seconds, metadata=())
        self._answered_at[endpoint] = SYSTEM_CLOCK.monotonic()

    def _current_metadata(self, give_up_at: float) -> Metadata:
        """Return what goes with each call; log in when there is no token. Raises TransportError."""
        if self._metadata is not None:
            return self._metadata
        request = messages.AuthenticateRequest(name=self._options.user, password=self._options.password)
        seconds = max(give_up_at - SYSTEM_CLOCK.monotonic(), 0.05)
        try:
            answer = self.transport.call(
                self._endpoint, AUTHENTICATE, request, timeout_seconds=seconds, metadata=(_LEADER,)
            )
        except TransportError as failure:
            if "authentication is not enabled" not in failure.details:
                raise
            metadata: Metadata = (_LEADER,)
        else:
            metadata = (_LEADER, ("token", str(answer.token)))
        self._metadata = metadata
        return metadata

    def renew_token(self) -> None:
        """Log in again before the next call."""
        if self._options.user is not None:
            self._metadata = None

    def _unknown(self, failure: TransportError, mutations: int) -> CommitOutcomeUnknownError:
        problem = f"{failure.code}: {failure.details}"
        return CommitOutcomeUnknownError(engine=NAME, mutations=mutations, problem=problem)

    def _unavailable(self, endpoint: str, failure: TransportError, seconds: float) -> EngineUnavailableError:
        problem = (
            f"no server answered within {seconds:g} s; the last one, {endpoint}: {failure.details or failure.code}"
        )
        return EngineUnavailableError(engine=NAME, problem=problem)

    # ---- streams, and what more than one part needs -----------------------------------------------------------------------

    def watch_stream(self) -> tuple[str, Stream]:
        """Open a stream of watches at the server that is spoken to; return the server, too. Raises TransportError."""
        self.check_open()
        metadata = self._metadata or self._current_metadata(SYSTEM_CLOCK.monotonic() + _PROBE_SECONDS)
        return self._endpoint, self.transport.stream(self._endpoint, WATCH, metadata=metadata)

    def revision(self, key: bytes = FIRST_KEY, *, timeout_seconds: float | None = None) -> int:
        """Return the store's revision, by agreement of the cluster, with a read that `key` may be used for."""
        request = messages.RangeRequest(key=key, limit=1, count_only=True)
        return int(self.call(RANGE, request, timeout_seconds=timeout_seconds).header.revision)

    def prove_epoch(self, key: bytes) -> str:
        """Return the epoch as it is now: the cluster is asked again unless it has just answered. `key` may be read."""
        if not self.sightings.is_proven:
            self.revision(key)
        return self.sightings.epoch

    def can_read_at(
        self, revision: int, key: bytes = FIRST_KEY, *, timeout_seconds: float | None = None
    ) -> bool | None:
        """Tell whether the history at `revision` is still kept; None when the store has not reached it."""
        request = messages.RangeRequest(key=key, limit=1, count_only=True, revision=max(revision, 1))
        try:
            self.call(RANGE, request, timeout_seconds=timeout_seconds)
        except EngineRefusedError as error:
            if says(error, COMPACTED):
                return False
            if says(error, FUTURE):
                return None
            raise
        return True
