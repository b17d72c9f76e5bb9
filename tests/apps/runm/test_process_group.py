"""Several processes of the service behind one port: what they share, what dies, and how all of them end."""

import logging
import os
import signal
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing import Pipe
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import grpc
import pytest

import keyplan
from keyplan.apps.runm import process_group
from keyplan.apps.runm.deployment import Deployment
from keyplan.apps.runm.figures import Figures
from keyplan.apps.runm.group_member import (
    AskFigures,
    Failed,
    FiguresGiven,
    LineAsked,
    LineWritten,
    Member,
    Ready,
)
from keyplan.apps.runm.logs import LOGGER
from keyplan.apps.runm.process import ServeChoices
from keyplan.apps.runm.process_group import ProcessGroup, RunningProcess, gathered, reserved, run_group
from keyplan.apps.runm.settings import ServeSettings
from keyplan.apps.runm.verify import verify
from keyplan.audit_log import Event as LineEvent
from keyplan.audit_log import verified_files
from keyplan.errors import AuditLogIncompleteError, InvalidInputError
from keyplan.grpc_status import GrpcStatus
from keyplan.testing.engine_suite.promise import eventually
from tests.apps.runm.client import SW, WEST, Client, refused
from tests.apps.runm.processes import ServeProcess, free_address, server_process
from tests.processes import children_of, command_of, is_running

GROUP_TYPE = "runm.provider_group"


@pytest.mark.parametrize(
    ("store", "listen", "problem"),
    [("memory:", "127.0.0.1:0", "one process's own"), ("lmdb:x", "unix:/tmp/none", "cannot share unix:/tmp/none")],
)
def test_what_processes_cannot_share_is_refused_before_any_is_started(store: str, listen: str, problem: str) -> None:
    settings = ServeSettings.of({"listen": listen}, {}, store=store)
    with pytest.raises(InvalidInputError, match=problem):
        run_group(settings, ServeChoices(), 2, threading.Event(), announce=print)


def test_an_address_is_of_one_group() -> None:
    with reserved(["127.0.0.1:0", "127.0.0.1:0"]) as addresses:
        assert len(set(addresses)) == 2
        with socket.socket() as member, socket.socket() as late:
            for one in (member, late):
                one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            port = int(addresses[0].rpartition(":")[2])
            member.bind(("127.0.0.1", port))
            member.listen()
            with pytest.raises(InvalidInputError, match="cannot be listened on"), reserved(addresses[:1]):
                pass
            socket.create_connection(("127.0.0.1", port), timeout=10).close()
            late.bind(("127.0.0.1", port))
    with pytest.raises(InvalidInputError, match="cannot be listened on"), reserved(["127.0.0.1:99999"]):
        pass


def test_figures_of_processes_stand_side_by_side() -> None:
    texts = []
    for number in range(2):
        figures = Figures()
        for _ in range(number + 1):
            figures.ended("call", GrpcStatus.OK, 0.1)
        pipe, others = Pipe()
        Member(others, number, threading.Event()).give_figures(figures.registry)
        pipe.send(AskFigures())
        texts.append((number, pipe.recv().text))
        pipe.close()
    found = {
        (sample.name, sample.labels["process"]): sample.value for family in gathered(texts) for sample in family.samples
    }
    assert found["keyplan_runm_calls_total", "0"] == 1
    assert found["keyplan_runm_calls_total", "1"] == 2
    assert found["keyplan_runm_call_seconds_count", "1"] == 2
    names = [family.name for family in gathered(texts)]
    assert len(names) == len(set(names))


def test_a_process_that_hangs_is_asked_for_its_figures_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_group, "_FIGURES_SECONDS_MAX", 0.01)
    pipe, others = Pipe()
    process: Any = Dead()
    one = RunningProcess(0, process, pipe, None)
    assert [one.figures() for _ in range(3)] == [""] * 3
    assert others.recv() == AskFigures()
    assert not others.poll(), "a pipe that nobody reads must not fill"
    others.send(FiguresGiven("late"))

    def is_asked_again() -> bool:
        one.figures()
        return others.poll()

    eventually(is_asked_again)
    others.close()


def test_a_line_whose_writer_is_gone_is_an_error_and_the_member_stops() -> None:
    pipe, others = Pipe()
    stop = threading.Event()
    member = Member(others, 1, stop)
    written, lost = (member.append(LineEvent.DONE, who="w") for _ in range(2))
    assert pipe.recv() == LineAsked(1, LineEvent.DONE, {"who": "w"})
    pipe.send(LineWritten(1, 7))
    assert written.result(30) == 7
    pipe.close()
    assert stop.wait(30), "who started it is gone"
    assert isinstance(lost.exception(30), AuditLogIncompleteError)
    assert member.append(LineEvent.DONE).exception(30) is not None


class Dead:
    """A process that has ended by SIGKILL."""

    def __init__(self) -> None:
        self.exitcode = -signal.SIGKILL
        self.sentinel, other = Pipe()
        other.close()

    def is_alive(self) -> bool:
        return False


def test_what_dies_again_and_again_is_not_started_for_ever(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LOGGER, "propagate", True)
    begun: list[int] = []

    def begin(number: int) -> RunningProcess:
        begun.append(number)
        pipe, others = Pipe()
        others.send(Ready())
        others.send(Failed(InvalidInputError(source="--cert-path", problem="unreadable")))
        process: Any = Dead()
        return RunningProcess(number, process, pipe, None)

    group = ProcessGroup(begin)
    assert group.start(range(2), threading.Event())
    with caplog.at_level(logging.ERROR, LOGGER.name):
        assert not group.watch(threading.Event())
    assert len(begun) == 2 + 5
    assert all("--cert-path" in message for message in caplog.messages), "why it died is said"
    assert caplog.messages[-1].endswith("): that is 6 in 60 seconds, and the service ends")


# ---- the processes ---------------------------------------------------------------------------------------------------------


def members(server: ServeProcess) -> list[int]:
    """The processes that serve."""
    found = children_of(server.process.pid)
    return [one for one in found if is_running(one) and "spawn_main" in " ".join(command_of(one))]


@contextmanager
def ending(over: threading.Event) -> Iterator[None]:
    """Tell threads that it is over, however the block ends: what they go on with would fail in another test."""
    try:
        yield
    finally:
        over.set()


def none_runs(processes: list[int]) -> bool:
    return not any(map(is_running, processes))


def connected(address: str, count: int, stack: ExitStack) -> Iterator[Client]:
    """Clients, each with a connection of its own: gRPC shares them otherwise."""
    for _ in range(count):
        client = Client(address)
        client.channel.close()
        client.channel = grpc.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)])
        stack.callback(client.channel.close)
        yield client


def calls_by_process(address: str) -> set[str]:
    """Which processes have ended a create, by the figures."""
    page = urlopen(f"http://{address}/metrics").read().decode()
    lines = [
        line for line in page.splitlines() if line.startswith("keyplan_runm_calls_total") and "object_create" in line
    ]
    return {line.partition('process="')[2][0] for line in lines}


@pytest.mark.slow
def test_two_processes_are_one_service_and_one_that_is_killed_comes_again(tmp_path: Path) -> None:
    url, log, figures = f"lmdb:{tmp_path / 's'}?durability=none", tmp_path / "audit.log", free_address()
    options = ("--listen", "127.0.0.1:0", "--audit-log", str(log), "--metrics-listen", figures, "--processes", "2")
    with ExitStack() as stack:
        server = stack.enter_context(server_process("--store", url, *options))
        clients = list(connected(server.address, 6, stack))
        clients[0].partition_create(partition={"uuid": WEST, "name": "p"})
        made: list[str] = []

        def make(client: Client, number: int) -> None:
            given = {"partition": WEST, "object_type": GROUP_TYPE, "name": f"g{number}"}
            made.append(client.object_create(SW, object=given).object.uuid)

        make(clients[0], 0)
        watches = [
            client.stream("object_watch", SW, object_type_code=GROUP_TYPE, include_existing=True) for client in clients
        ]
        assert {next(watch).object.name for watch in watches} == {"g0"}
        for number in range(1, 24):
            make(clients[number % 6], number)
        for watch in watches:
            assert [next(watch).object.name for _ in range(1, 24)] == [f"g{number}" for number in range(1, 24)]
            watch.cancel()
        eventually(lambda: calls_by_process(figures) == {"0", "1"})
        # Why of every connection: what one process has committed, the other answers at once.
        for client in clients:
            assert {one.uuid for one in client.object_find(SW)} == set(made)

        permissions = [{"key": "os", "permissions": [{"permission": 1}]}]
        clients[0].definition_set(
            SW,
            scope={"partition_uuid": WEST, "object_type_code": GROUP_TYPE},
            object_definition={"schema": "{}", "property_permissions": permissions},
        )
        for client in clients:
            given = {"partition": WEST, "object_type": GROUP_TYPE, "name": "no"}
            with refused("PERMISSION_DENIED"):  # they are warm, and notice it
                client.object_create(SW, object={**given, "properties": [{"key": "os", "value": "7"}]})

        over = threading.Event()

        def go_on(client: Client, first: int) -> None:
            number = first
            while not over.is_set():
                with suppress(grpc.RpcError):  # its process was killed: another call goes to another one
                    make(client, number)
                number += 1

        with ThreadPoolExecutor(len(clients)) as threads, ending(over):
            running = [threads.submit(go_on, client, 1_000 * at) for at, client in enumerate(clients, 1)]
            before = len(made)
            eventually(lambda: len(made) > before + 20)
            killed = members(server)[0]
            os.kill(killed, signal.SIGKILL)
            eventually(lambda: len(members(server)) == 2 and killed not in members(server))
            at_restart = len(made)
            eventually(lambda: len(made) > at_restart + 20)
        for one in running:
            one.result()
        assert server.stop() == 0
        assert "is started again" in server.close()
    with keyplan.open(url) as store:
        assert not list(verify(store, ""))
        stored = {uuid.hex for uuid, _ in Deployment(store).runm.objects.list()}
        assert set(made) <= stored, "what was answered is there"
    assert verified_files([log]).is_whole


@pytest.mark.slow
def test_whoever_started_them_is_gone_and_so_are_they(tmp_path: Path) -> None:
    url = f"lmdb:{tmp_path / 's'}?durability=none"
    token = "a-token-of-a-client"
    options = ("--listen", "127.0.0.1:0", "--no-register", "--metrics-listen", "127.0.0.1:0", "--processes", "2")
    with server_process("--store", url, *options, KEYPLAN_CLIENT_TOKEN=token) as server:
        figures = server.next_address()
        serving = members(server)
        assert len(serving) == 2
        with pytest.raises(HTTPError, match="401"):
            urlopen(f"http://{figures}")
        asked = Request(f"http://{figures}", headers={"Authorization": f"Bearer {token}"})
        assert b'keyplan_runm_store_answers{process="1"} 1.0' in urlopen(asked).read()
        server.kill()
        eventually(lambda: none_runs(serving))


@pytest.mark.slow
def test_a_process_that_hangs_is_ended_with_the_others(tmp_path: Path) -> None:
    url = f"lmdb:{tmp_path / 's'}?durability=none"
    with server_process("--store", url, "--listen", "127.0.0.1:0", "--no-register", "--processes", "2") as server:
        serving = members(server)
        os.kill(serving[0], signal.SIGSTOP)
        assert server.stop() == 0
        eventually(lambda: none_runs(serving))
