"""`keyplan audit-log URL`: the log of a running server, read and verified over HTTP, by who is granted to audit."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from keyplan.audit_log import AuditLog, AuditRecord, Event, read_lines, verified_files
from keyplan.client import HttpAuditLog
from keyplan.engine import MemoryEngine
from keyplan.errors import AccessDeniedError, EngineUnavailableError, InvalidInputError, UnauthorizedError
from keyplan.server import Access, PolicyAccess, Role, Token
from tests.attacks.world import TOKENS, World
from tests.cli.conftest import Keyplan
from tests.servers.gateways import GatewayServer

T0 = 1_795_225_800.0
CHANGES = 1_203
"""More than a page."""


@pytest.fixture
def log(tmp_path: Path) -> Iterator[AuditLog]:
    with AuditLog(tmp_path / "audit.log", wall=lambda: T0, syncs=False) as opened:
        yield opened


@pytest.fixture
def server(log: AuditLog, tmp_path: Path) -> Iterator[GatewayServer]:
    for name in ("auditor", "shop"):
        (tmp_path / name).write_text(TOKENS[name] + "\n")
    with MemoryEngine() as engine:
        access = PolicyAccess.of_file(World(engine, tmp_path / "access.toml").file)
        with GatewayServer(engine, access=access, audit_log=log) as served:
            yield served


def change(server: GatewayServer, number: int, who: str = "shop") -> None:
    with httpx.Client(headers={"Authorization": f"Bearer {TOKENS[who]}"}, timeout=60) as client:
        for at in range(number):
            assert client.put(f"{server.url}/v2/keys/shop/{at}", data={"value": "1"}).is_success


def test_it_is_shown_as_its_file_is(run: Keyplan, server: GatewayServer, log: AuditLog) -> None:
    change(server, 3)
    by_file = run("audit-log", str(log.path))
    by_url = run("audit-log", server.url, "--token-file", "auditor")
    assert (by_url.code, by_url.err) == (0, "")
    assert by_url.out == by_file.out
    assert len(by_url.lines) == 4
    for words in (("--who", "shop", "--limit", "2"), ("--after", "4"), ("--json",), ("--subject", "/shop/1")):
        found = run("audit-log", server.url, "--token-file", "auditor", *words)
        assert found.out == run("audit-log", str(log.path), *words).out != by_file.out


def test_it_is_verified_over_many_pages_and_to_the_head_that_its_file_has(
    run: Keyplan, server: GatewayServer, log: AuditLog
) -> None:
    for number in range(CHANGES):
        _noted(log, number)
    change(server, 1)
    verified = run("audit-log", server.url, "--token-file", "auditor", "--verify")
    assert (verified.code, verified.out) == (0, run("audit-log", str(log.path), "--verify").out)
    assert f"lines 1 to {CHANGES + 3}" in verified.out
    head = verified_files([log.path]).head
    assert run("audit-log", server.url, "--token-file", "auditor", "--verify", "--head", head).code == 0
    wrong = run("audit-log", server.url, "--token-file", "auditor", "--verify", "--head", "0" * 64)
    assert (wrong.code, "no line has the digest that was kept" in wrong.out) == (1, True)


def test_a_line_that_was_edited_is_named(run: Keyplan, server: GatewayServer, log: AuditLog) -> None:
    change(server, 3)
    lines = log.path.read_bytes().splitlines(keepends=True)
    lines[2] = lines[2].replace(b'"shop"', b'"bank"')
    with log.path.open("r+b") as file:
        file.write(b"".join(lines))
    verified = run("audit-log", server.url, "--token-file", "auditor", "--verify")
    assert (verified.code, verified.out.startswith("broken at line 3, in " + server.url)) == (1, True), verified.out


def test_it_is_for_who_may_audit(run: Keyplan, server: GatewayServer, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = run("audit-log", server.url, "--token-file", "shop", "--verify")
    assert (refused.code, refused.out) == (11, "")
    assert run("audit-log", server.url).code == 11
    monkeypatch.setenv("KEYPLAN_TOKEN", TOKENS["auditor"])
    assert run("audit-log", server.url).code == 0
    with HttpAuditLog(server.url, token=TOKENS["shop"]) as log, pytest.raises(AccessDeniedError):
        next(log.records())
    with HttpAuditLog(server.url, token="no token of anybody at all here") as log, pytest.raises(UnauthorizedError):
        next(log.records())


@pytest.mark.parametrize(
    "words",
    [
        ("http://127.0.0.1:1", "audit.log"),
        ("audit.log", "--token-file", "auditor"),
        ("http://127.0.0.1:1", "--store", "memory:"),
    ],
)
def test_what_cannot_be_meant_is_refused(run: Keyplan, words: tuple[str, ...], tmp_path: Path) -> None:
    refused = run("audit-log", *words)
    assert (refused.code, refused.out) == (5, ""), refused.err


def test_a_server_without_a_log_says_so() -> None:
    access = Access([Token.of_text(Role.ADMIN, "ada", TOKENS["ada"])])
    with (
        MemoryEngine() as engine,
        GatewayServer(engine, access=access) as server,
        HttpAuditLog(server.url, token=TOKENS["ada"]) as log,
        pytest.raises(InvalidInputError, match="keeps no audit log"),
    ):
        next(log.records())


class Repeating(HttpAuditLog):
    """A server that tells the same page for ever."""

    def audit_log(self, *, after: int = 0, limit: int = 100) -> list[AuditRecord]:
        return [line.record for line in read_lines([Path("audit.log")]) if line.record is not None]


def test_a_server_that_tells_a_line_twice_is_not_listened_to_for_ever(log: AuditLog) -> None:
    _noted(log, 1)
    with Repeating("http://127.0.0.1:1") as repeating, pytest.raises(EngineUnavailableError, match="twice"):
        list(repeating.records())


def test_who_does_not_reach_a_log_is_told_of_the_log_and_of_no_registry() -> None:
    with HttpAuditLog("http://127.0.0.1:1") as log, pytest.raises(EngineUnavailableError, match="audit log over http"):
        next(log.records())


def _noted(log: AuditLog, number: int) -> None:
    log.append(Event.DONE, who="ada", act="note", subject=str(number)).result()
