"""Several processes that serve one store behind one port: started, watched, started again, and ended together.

The process that starts them answers no calls. It keeps the port, writes the audit log, and gives the figures of all. The system
hands each connection to one of the processes that listen (SO_REUSEPORT), each of which opens the store for itself.

Why none is a fork: gRPC's threads, and the engines', would not be in it.
"""

import socket
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from queue import Empty, SimpleQueue
from signal import SIG_IGN, SIGHUP, signal
from threading import Event, Lock, Thread
from typing import Any, Final, NamedTuple

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from keyplan.apps.runm.figures_port import figures_served
from keyplan.apps.runm.group_member import (
    AskFigures,
    Failed,
    FiguresGiven,
    LineAsked,
    LineWritten,
    Member,
    Ready,
    SharedPipe,
)
from keyplan.apps.runm.logs import LOGGER
from keyplan.apps.runm.process import ServeChoices, audited, ended_in_time, known_callers, run_server, set_up_logs
from keyplan.apps.runm.settings import ServeSettings
from keyplan.audit_log import AuditLog
from keyplan.engine import SYSTEM_CLOCK
from keyplan.errors import AuditLogError, InvalidInputError, KeyplanError
from keyplan.signals import told_by_signals

__all__ = ["ProcessGroup", "RunningProcess", "gathered", "reserved", "run_group"]

_LOOK_SECONDS: Final = 0.2

_END_SECONDS_MAX: Final = 4.0
"""How long the processes may take to end. Why: each ends by itself in 4.5 seconds, and all are to be gone within five."""

_RESTARTS_MAX: Final = 5
_RESTARTS_SECONDS: Final = 60.0
"""Why: what dies by an accident does so now and then; what dies at every start is for somebody to look at."""

_FIGURES_SECONDS_MAX: Final = 1.0
"""Why: Prometheus waits for ten, and a process that hangs must not hide the others."""


def run_group(
    settings: ServeSettings, choices: ServeChoices, count: int, stop: Event, *, announce: Callable[[str], object]
) -> bool:
    """Serve by so many processes until a signal comes or `stop` is set; return when they have ended.

    A process that dies is started again; False when they died too often, and nothing is served any more. Raises what
    `run_server` does, and InvalidInputError for a store or an address that processes cannot share.
    """
    if settings.store.startswith("memory:"):
        problem = "a store in memory is one process's own: take lmdb, etcd or postgresql, or one process"
        raise InvalidInputError(source="--processes", problem=problem)
    set_up_logs(settings)
    callers = known_callers(choices)  # who may have the figures; each process finds out for itself whose calls it takes
    with told_by_signals(stop, logger=LOGGER), ExitStack() as stack:
        addresses = stack.enter_context(reserved(settings.addresses))
        log = None if choices.audit_log is None else stack.enter_context(audited(choices, choices.audit_log)).log
        own = replace(settings, listen=addresses[0], api_listen=addresses[1] if len(addresses) > 1 else None)
        assert log is None or isinstance(log, AuditLog)
        group = ProcessGroup(partial(_begun, own, choices, log))
        # Invariant: entered after the log, and so gone before it closes.
        stack.enter_context(group.ended())
        # Why one first: it writes what a first start writes, and says what is wrong with the store once.
        if not (group.start(range(1), stop) and group.start(range(1, count), stop)):
            return True
        if choices.metrics_listen is not None:
            port = figures_served(group.registry(), choices.metrics_listen, callers, settings.certificate)
            addresses.append(stack.enter_context(port))
        for address in addresses:
            announce(address)
        return group.watch(stop)


@contextmanager
def reserved(addresses: Sequence[str]) -> Generator[list[str], None, None]:
    """Hold addresses HOST:PORT for the processes of a group for the length of a block; give them with the ports that they have.

    Connections come only to who listens there. Raises InvalidInputError for one that is taken, also by another group.
    """
    with ExitStack() as stack:
        yield [_reserved(address, stack) for address in addresses]


def _reserved(address: str, stack: ExitStack) -> str:
    if address.startswith("unix:"):
        raise InvalidInputError(source="--processes", problem=f"processes cannot share {address}: listen on HOST:PORT")
    host, _, port_text = address.rpartition(":")
    try:
        port = int(port_text)
        found = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, protocol, _, place in found:
            one = stack.enter_context(socket.socket(family, kind, protocol))
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if place[0] == "::" else 1)
            one.bind((place[0], port, *place[2:]))
            # Why behind `bind`: with it, an address where another group listens would be ours as well.
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            port = one.getsockname()[1]
    except (OSError, OverflowError, ValueError) as error:
        raise InvalidInputError(source="--listen", problem=f"{address} cannot be listened on") from error
    return f"{host}:{port}"


class RunningProcess:
    """A process of the group, as whoever started it has it."""

    def __init__(self, number: int, process: SpawnProcess, pipe: "Connection[Any, Any]", log: AuditLog | None) -> None:
        self.number = number
        self.process = process
        self.standing: SimpleQueue[Ready | Failed | None] = SimpleQueue()
        """What it says of itself; None when the pipe has ended."""
        self._pipe = SharedPipe(pipe)
        self._log = log
        self._asking = Lock()
        self._figures: SimpleQueue[str] = SimpleQueue()
        self._is_asked = False
        Thread(target=self._hear, name="runm-member", daemon=True).start()

    def figures(self) -> str:
        """Return its figures; nothing where they do not come."""
        with self._asking, suppress(Empty):
            while not self._figures.empty():
                self._figures.get_nowait()  # one that came too late
                self._is_asked = False
            # Why not again before it answers: a pipe that nobody reads fills, and whoever sends then waits for ever.
            self._is_asked = self._is_asked or self._pipe.send(AskFigures())
            if self._is_asked:
                text = self._figures.get(timeout=_FIGURES_SECONDS_MAX)
                self._is_asked = False
                return text
        return ""

    def _hear(self) -> None:
        # Why all errors: a process that is killed may leave half a message.
        with suppress(Exception):
            while True:
                message = self._pipe.receive()
                if isinstance(message, LineAsked):
                    self._write(message)
                elif isinstance(message, FiguresGiven):
                    self._figures.put(message.text)
                else:
                    self.standing.put(message)
        self.standing.put(None)
        self._pipe.close()

    def _write(self, asked: LineAsked) -> None:
        """Have a line written; the answer goes back when it is."""
        try:
            if self._log is None:
                raise AuditLogError(problem="there is none")
            future = self._log.append(asked.event, **asked.fields)
        except KeyplanError as error:
            self._pipe.send(LineWritten(asked.number, error))
            return
        future.add_done_callback(partial(self._written, asked.number))

    def _written(self, number: int, future: Any) -> None:
        error = future.exception()
        if error is not None and not isinstance(error, KeyplanError):
            error = AuditLogError(problem=type(error).__name__)
        self._pipe.send(LineWritten(number, future.result() if error is None else error))


class ProcessGroup:
    """The processes of one service; `begin` starts the one of a number."""

    def __init__(self, begin: Callable[[int], RunningProcess]) -> None:
        self._begin = begin
        self._running: dict[int, RunningProcess] = {}
        self._died_at: deque[float] = deque(maxlen=_RESTARTS_MAX)
        self._restarts = Counter(
            "keyplan_runm_process_restarts", "Processes that died and were started again.", registry=None
        )

    def start(self, numbers: Iterable[int], stop: Event) -> bool:
        """Start processes, and return when they take calls; False when they are to stop before. Raises what one raises."""
        started = [self._started(number) for number in numbers]
        for one in started:
            standing = None
            while standing is None:
                if stop.is_set():
                    return False
                with suppress(Empty):
                    standing = one.standing.get(timeout=_LOOK_SECONDS)
                    if standing is None:
                        one.process.join()
                        problem = f"a process ended at its start, {_ending(one)}"
                        raise InvalidInputError(source="--processes", problem=problem)
            if isinstance(standing, Failed):
                raise standing.error
        return True

    def watch(self, stop: Event) -> bool:
        """Start again what dies until `stop` is set; False when that is too often."""
        while not stop.is_set():
            wait([one.process.sentinel for one in self._running.values()], timeout=_LOOK_SECONDS)
            for one in [one for one in self._running.values() if not one.process.is_alive()]:
                if stop.is_set():
                    break
                now = SYSTEM_CLOCK.monotonic()
                if len(self._died_at) == _RESTARTS_MAX and now - self._died_at[0] < _RESTARTS_SECONDS:
                    LOGGER.error(
                        "process %d ended, %s: that is %d in %g seconds, and the service ends",
                        one.number,
                        _ending(one),
                        _RESTARTS_MAX + 1,
                        _RESTARTS_SECONDS,
                    )
                    return False
                self._died_at.append(now)
                LOGGER.error("process %d ended, %s: it is started again", one.number, _ending(one))
                self._restarts.inc()
                self._started(one.number)
        return True

    @contextmanager
    def ended(self) -> Iterator[None]:
        """End all processes at the end of a block: those that do not end in time by SIGKILL."""
        try:
            yield
        finally:
            running = [one.process for one in self._running.values()]
            for process in running:
                process.terminate()
            deadline = SYSTEM_CLOCK.monotonic() + _END_SECONDS_MAX
            for process in running:
                process.join(max(0.0, deadline - SYSTEM_CLOCK.monotonic()))
            for process in running:
                if process.is_alive():
                    LOGGER.warning("process %s has not ended in time, and is killed", process.pid)
                    process.kill()

    def registry(self) -> CollectorRegistry:
        """Return the figures of all processes, each with a label `process`, asked for when they are collected."""
        registry = CollectorRegistry()
        registry.register(_Gathering(self._texts))
        registry.register(self._restarts)
        return registry

    def _texts(self) -> list[tuple[int, str]]:
        return [(one.number, one.figures()) for one in list(self._running.values())]

    def _started(self, number: int) -> RunningProcess:
        one = self._running[number] = self._begin(number)
        return one


def _begun(settings: ServeSettings, choices: ServeChoices, log: AuditLog | None, number: int) -> RunningProcess:
    spawn = get_context("spawn")
    own, others = spawn.Pipe()
    process = spawn.Process(target=_serve, args=(others, settings, choices, number), name=f"runm-{number}", daemon=True)
    process.start()
    # Why: the pipe is to end with the process, and so nobody else may hold its end.
    others.close()
    return RunningProcess(number, process, own, log)


def _ending(one: RunningProcess) -> str:
    """How a process ended, and what it has said of that."""
    code = one.process.exitcode or 0
    how, standing = f"by signal {-code}" if code < 0 else f"with exit code {code}", None
    # Why waited for: what it said last may still be in the pipe.
    with suppress(Empty):
        while (standing := one.standing.get(timeout=_LOOK_SECONDS)) is not None:
            if isinstance(standing, Failed):
                return f"{how} ({standing.error})"
    return how


def _serve(pipe: "Connection[Any, Any]", settings: ServeSettings, choices: ServeChoices, number: int) -> None:
    """Serve as one process of a group."""
    # Why: it is for the process that has the audit log, and comes to all of a terminal's.
    signal(SIGHUP, SIG_IGN)
    stop = Event()
    member = Member(pipe, number, stop)
    answered: list[str] = []

    def announce(address: str) -> None:
        answered.append(address)
        if len(answered) == len(settings.addresses):
            member.tell(Ready())

    with ended_in_time(stop):
        try:
            run_server(settings, choices, stop, announce=announce, member=member)
        except KeyplanError as error:
            # Why no line in the log: whoever started it says it, once.
            member.tell(Failed(error))
            raise SystemExit(1) from None


# ---- figures ---------------------------------------------------------------------------------------------------------------


class _Gathering(NamedTuple):
    """A collector, as prometheus_client asks for one."""

    texts: Callable[[], list[tuple[int, str]]]

    def collect(self) -> Iterable[Metric]:
        """Return the figures of all processes."""
        return gathered(self.texts())

    def describe(self) -> Iterable[Metric]:
        """Return nothing: what there is, the processes say when they are asked."""
        return ()


def gathered(texts: Iterable[tuple[int, str]]) -> list[Metric]:
    """Return the figures of processes, given by their number with the text of each, as one: with a label `process`."""
    found: dict[str, Metric] = {}
    for number, text in texts:
        for family in text_string_to_metric_families(text):
            whole = found.setdefault(family.name, Metric(family.name, family.documentation, family.type))
            for sample in family.samples:
                labels = {**sample.labels, "process": str(number)}
                whole.samples.append(sample._replace(labels=labels))
    return list(found.values())
