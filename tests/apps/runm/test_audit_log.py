"""The audit log of runm: every call that changes something, over a real channel, and of the process with its signals."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import pytest

from keyplan.access import add_principal, change_access_file, change_principal, new_token
from keyplan.apps.runm.deployment import Deployment
from keyplan.apps.runm.operations import ApiOperations, MetadataOperations
from keyplan.apps.runm.server import Listening, serving
from keyplan.apps.runm.start import ensure_started
from keyplan.audit_log import AuditLog, AuditRecord, Event, read_lines, verified_files
from keyplan.engine import SYSTEM_CLOCK, Engine, open_engine
from keyplan.operations import Act, CallerKind, Rpc, rpcs_of
from keyplan.server import NotingEngine, Role, ServiceAudit, Token
from keyplan.store import Store
from tests.apps.runm.client import EAST, I1, SW, WEST, Client
from tests.servers.full_disk import full_disk
from tests.servers.patroni import until

TOKEN = "an-admin-token-of-a-test"
IMAGE = {"partition": WEST, "object_type": "runm.image", "project": SW["project"], "uuid": I1, "name": "rhel7.5.2"}


class Audited(NamedTuple):
    """A running service with an audit log."""

    engine: Engine
    address: str
    client: Client
    api: Client
    log: Path

    def records(self) -> list[AuditRecord]:
        return [line.record for line in read_lines([self.log]) if line.record is not None and line.record.act]

    def told(self) -> tuple[AuditRecord, AuditRecord]:
        """The two lines of the latest change."""
        begun, ended = self.records()[-2:]
        assert (begun.event, ended.of) == (Event.BEGUN, begun.number)
        return begun, ended


@pytest.fixture(params=["", TOKEN], ids=["by session", "by token"])
def audited(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Audited]:
    tokens = [Token.of_text(Role.ADMIN, "ada", TOKEN)] if request.param else []
    path = tmp_path / "audit.log"
    with (
        open_engine(f"lmdb:{tmp_path / 'runm'}?durability=none") as engine,
        AuditLog(path, wall=SYSTEM_CLOCK.wall, syncs=False) as log,
    ):
        deployment = Deployment(Store(NotingEngine(engine)))
        ensure_started(deployment)
        with serving(deployment, Listening(("127.0.0.1:0",)), tokens, audit=ServiceAudit("runm", log)) as running:
            client, api = (Client(running.addresses[0], name, request.param) for name in ("RunmMetadata", "RunmAPI"))
            client.partition_create(partition={"uuid": EAST, "name": "us-east.example.com"})
            client.partition_create(partition={"uuid": WEST, "name": "us-west.example.com"})
            yield Audited(engine, running.addresses[0], client, api, path)
            client.close()
            api.close()
    assert verified_files([path]).is_whole


def revision(audited: Audited) -> int:
    with audited.engine.snapshot() as snapshot:
        return snapshot.revision


def test_a_change_is_told_with_who_what_where_and_its_revision(
    audited: Audited, request: pytest.FixtureRequest
) -> None:
    begun, ended = audited.told()
    # Why nobody: a first partition is made without a session.
    who = ("ada", "token") if "by token" in request.node.name else ("", "session")
    assert (ended.who, ended.known_by) == who
    assert (ended.act, begun.subject, ended.subject) == ("create partition", "", WEST)
    before = revision(audited)
    audited.client.object_create(SW, object=IMAGE)
    begun, ended = audited.told()
    assert (ended.event, ended.act, begun.subject, ended.subject) == (Event.DONE, "create object", "", I1)
    assert ended.revisions == (revision(audited),) == (before + 1,)
    assert ended.who == (who[0] or SW["user"])
    assert ended.address.startswith("ipv4:127.0.0.1:")
    with pytest.raises(grpc.RpcError):
        audited.client.object_create(SW, object=IMAGE)
    _, ended = audited.told()
    assert (ended.event, ended.code, ended.revisions) == (Event.FAILED, "already_exists", ())
    audited.client.object_delete_by_uuids(SW, uuids=[I1])
    _, ended = audited.told()
    assert (ended.event, ended.act, ended.subject) == (Event.DONE, "delete objects", I1)
    document = {"partition": "us-west.example.com", "provider_type": "runm.compute", "name": "n1"}
    made = audited.api.provider_create(SW, payload=json.dumps(document).encode()).provider
    _, ended = audited.told()
    assert (ended.act, ended.subject) == ("create provider", made.uuid)


CHANGES = [
    (interface, name)
    for interface in (MetadataOperations, ApiOperations)
    for name, declared in rpcs_of(interface).items()
    if declared.change is not None
]


def test_every_declared_change_has_two_lines(audited: Audited) -> None:
    for interface, name in CHANGES:
        declared: Rpc = rpcs_of(interface)[name]
        client: Any = audited.client if interface is MetadataOperations else audited.api
        count = len(audited.records())
        with suppress(grpc.RpcError):  # Why: an empty request of most calls is refused, after it was let in.
            getattr(client, name)(SW if declared.caller is CallerKind.SESSION else None)
        news = audited.records()[count:]
        assert declared.change is not None
        assert [(one.operation, one.act, one.service) for one in news] == 2 * [(name, declared.change.act, "runm")]


def test_a_read_and_a_caller_who_is_not_let_in_have_no_line(audited: Audited, request: pytest.FixtureRequest) -> None:
    count = len(audited.records())
    audited.client.object_find(SW)
    audited.client.partition_find(SW)
    if "by token" in request.node.name:
        nobody = Client(audited.address, token="a-token-that-nobody-has")
        with pytest.raises(grpc.RpcError):
            nobody.partition_create(partition={"name": "mine"})
        nobody.close()
    assert len(audited.records()) == count


def test_on_a_full_disk_changes_are_refused_and_reads_go_on(audited: Audited) -> None:
    with full_disk(os.getpid(), file_bytes_max=audited.log.stat().st_size + 10):
        with pytest.raises(grpc.RpcError) as refused:
            audited.client.object_create(SW, object=IMAGE)
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
        assert refused.value.details() == "the audit log cannot be written, and nothing was changed."
        assert len(audited.client.partition_find(SW)) == 2
        assert audited.client.object_find(SW) == []
    assert audited.client.object_create(SW, object=IMAGE).object.uuid == I1


@pytest.mark.slow
def test_the_process_writes_a_log_and_goes_on_in_a_new_file_at_sighup(tmp_path: Path) -> None:
    log, url = tmp_path / "audit.log", f"lmdb:{tmp_path / 'runm'}?durability=none"
    words = ["runm", "serve", "--store", url, "--listen", "127.0.0.1:0", "--no-register", "--audit-log", str(log)]
    program = "from keyplan.cli.start import run; run()"
    with (
        (tmp_path / "err").open("w") as err,
        subprocess.Popen(
            [sys.executable, "-c", program, *words], stdout=subprocess.PIPE, stderr=err, text=True
        ) as server,
    ):
        try:
            assert server.stdout is not None
            address = server.stdout.readline().strip()
            assert address, (tmp_path / "err").read_text()
            client = Client(address)
            client.partition_create(partition={"uuid": WEST, "name": "us-west.example.com"})
            log.rename(tmp_path / "audit.log.1")
            server.send_signal(signal.SIGHUP)
            until(lambda: log.exists() and log.stat().st_size > 0, 60, (tmp_path / "err").read_text)
            client.object_create(SW, object=IMAGE)
            client.close()
        finally:
            server.send_signal(signal.SIGTERM)
            assert server.wait(60) == 0
    assert verified_files([log, tmp_path / "audit.log.1"]).is_whole
    subjects = [line.record.subject for line in read_lines([log]) if line.record and line.record.event is Event.DONE]
    assert subjects == [I1]


@pytest.mark.slow
def test_the_process_notes_what_changes_in_its_access_file(tmp_path: Path) -> None:
    log, url, access = tmp_path / "audit.log", f"lmdb:{tmp_path / 'runm'}?durability=none", tmp_path / "access.toml"
    token = new_token()
    grants = {Act.READ: ["operation:runm.*"], Act.WRITE: ["operation:runm.*"]}
    change_access_file(access, lambda text: add_principal(text, "ada", token=token, grants=grants, source="x"), new="")
    words = ["runm", "serve", "--store", url, "--listen", "127.0.0.1:0", "--no-register", "--audit-log", str(log)]
    program = "from keyplan.cli.start import run; run()"
    with (
        (tmp_path / "err").open("w") as err,
        subprocess.Popen(
            [sys.executable, "-c", program, *words, "--access", str(access)],
            stdout=subprocess.PIPE,
            stderr=err,
            text=True,
        ) as server,
    ):
        try:
            assert server.stdout is not None
            address = server.stdout.readline().strip()
            assert address, (tmp_path / "err").read_text()
            change_access_file(
                access, lambda text: change_principal(text, "ada", added={"audit": ["everything"]}, source="x")
            )
            client = Client(address, token=token)

            def is_told() -> bool:
                with suppress(grpc.RpcError):
                    client.object_create(SW, object=IMAGE)
                return b"accessFile" in log.read_bytes()

            until(is_told, 60, (tmp_path / "err").read_text)
            client.close()
        finally:
            server.send_signal(signal.SIGTERM)
            assert server.wait(60) == 0
    noted = [line.record for line in read_lines([log]) if line.record and line.record.operation == "accessFile"]
    assert [(one.act, one.subject) for one in noted] == [("change principal", "ada: audit +everything")]
