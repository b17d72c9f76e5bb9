"""Secrets in clear from a server: to whom it is granted, by POST, noted in the audit log, also where it is refused."""

import asyncio
import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Final

import httpx
import pytest

from keyplan.access import sum_of_token
from keyplan.audit_log import AuditLog, read_lines
from keyplan.engine import Engine, MemoryEngine
from keyplan.files import write_whole
from keyplan.server import Access, Application, PolicyAccess, Role, Token, service_builders
from keyplan.server.auditing import REFUSALS_MAX
from tests.secrets.test_masked import FIRST
from tests.secrets.test_sealed_store import keys
from tests.secrets.vault import NAME, NEEDLE, Vault, filled, traces

ADA: Final = b"/vault/accounts/ada"
TOKENS: Final = {name: f"token-of-{name}-with-many-characters" for name in ("ada", "reader", "vera", "stranger")}
GRANTS: Final = {
    "ada": 'read = ["everything"]\naudit = ["operation:revealRecord"]',
    "reader": 'read = ["everything"]\nwrite = ["everything"]\nadminister = ["everything"]',
    "vera": 'audit = ["everything"]',
    "stranger": 'read = ["prefix:/other/"]\naudit = ["operation:revealRecord"]',
}


class Asked:
    """A server in this process, with an access file, keys and an audit log; who asks is a principal of the file."""

    def __init__(self, engine: Engine, folder: Path, runner: asyncio.Runner, *, access: Access | None = None) -> None:
        file = folder / "access.toml"
        tables = [
            f'[principals.{name}]\ntokens = ["sha256:{sum_of_token(TOKENS[name]).hex()}"]\n{grants}\n'
            for name, grants in GRANTS.items()
        ]
        write_whole(file, "\n".join(tables))
        self._log = folder / "audit.log"
        self.log = AuditLog(self._log, wall=lambda: 0.0, syncs=False)
        self.application = Application.build(
            engine,
            service_builders(["explorer"]),
            access=PolicyAccess.of_file(file) if access is None else access,
            settings={"keyspaces.sweep": "off", "explorer.layout": NAME},
            audit_log=self.log,
            secrets=keys("k1"),
        )
        self._runner = runner

    def __call__(self, who: str, method: str, path: str, accept: str = "application/json") -> httpx.Response:
        headers = {"accept": accept, **({"authorization": f"Bearer {TOKENS[who]}"} if who in TOKENS else {})}
        transport = httpx.ASGITransport(self.application.asgi, client=("127.0.0.1", 50_000))
        client = httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8210", headers=headers)
        return self._runner.run(client.request(method, path))

    def told(self) -> list[tuple[str, str, str, str, str]]:
        """What the audit log has of reveals: event, who, act, subject, code."""
        records = [line.record for line in read_lines([self._log]) if line.record is not None]
        return [(str(one.event), one.who, one.act, one.subject, one.code) for one in records if one.act]

    def text_of_log(self) -> str:
        return self._log.read_text()


def reveal(raw_key: bytes = ADA, area: str = "-", layout: str = "Vault") -> str:
    return f"/explore/in/{area}/reveal/{layout}?hex={raw_key.hex()}"


@pytest.fixture
def engine() -> Iterator[Engine]:
    with MemoryEngine() as opened:
        filled(opened, secrets=keys("k1"))
        yield opened


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as started:
        yield started


@pytest.fixture
def ask(engine: Engine, tmp_path: Path, runner: asyncio.Runner) -> Iterator[Asked]:
    asked = Asked(engine, tmp_path, runner)
    yield asked
    asked.application.workers.close()
    asked.log.close()


SUBJECT: Final = "- /vault/accounts/ada"


def test_whom_it_is_granted_is_shown_the_secrets_and_the_log_says_so(ask: Asked) -> None:
    answer = ask("ada", "POST", reveal())
    assert answer.status_code == 200
    assert answer.headers["cache-control"] == "no-store"
    told = answer.json()
    assert (told["item"], told["record"]["passWord"], told["record"]["pin"]) == (
        "accounts",
        NEEDLE,
        {"digits": NEEDLE, "tries": 3},
    )
    assert ask.told() == [("begun", "ada", "reveal", SUBJECT, ""), ("done", "ada", "reveal", SUBJECT, "")]
    page = ask("ada", "POST", reveal(), "text/html")
    assert NEEDLE in page.text
    assert page.headers["cache-control"] == "no-store"
    assert not traces(ask.text_of_log())


@pytest.mark.parametrize("table", list(Vault.spec.tables))
def test_a_record_of_each_form_is_revealed(ask: Asked, table: str) -> None:
    raw_key = Vault.bound().tables[table].keys.encode(FIRST[table] if len(FIRST[table]) > 1 else FIRST[table][0])
    answer = ask("ada", "POST", reveal(raw_key))
    assert answer.status_code == 200
    assert traces(answer.text)


@pytest.mark.parametrize("who", ["reader", "vera"])
def test_without_the_grant_it_is_refused_and_the_log_says_so(ask: Asked, who: str) -> None:
    granted = who == "vera"  # all operations, and nothing to read
    answer = ask(who, "POST", reveal())
    assert not traces(answer.text)
    if granted:
        assert answer.status_code == 404
        assert ask.told() == [
            ("begun", who, "reveal", SUBJECT, ""),
            ("failed", who, "reveal", SUBJECT, "not-found"),
        ]
        return
    assert answer.status_code == 403
    error = answer.json()["error"]
    assert (error["code"], error["detail"]["where"]) == ("access_denied", "operation:revealRecord")
    assert ask.told() == [("refused", who, "reveal", SUBJECT, "access-denied")]


def test_who_may_reveal_and_not_read_is_shown_nothing(ask: Asked) -> None:
    there, not_there = ask("stranger", "POST", reveal()), ask("stranger", "POST", reveal(b"/vault/accounts/nobody"))
    assert (there.status_code, not_there.status_code) == (404, 404)
    assert there.json()["error"]["code"] == not_there.json()["error"]["code"]


def test_nobody_reveals_by_get_and_nobody_without_a_token(ask: Asked) -> None:
    assert ask("ada", "GET", reveal()).status_code == 405
    assert ask("nobody", "POST", reveal()).status_code == 401
    assert ask.told() == []


def test_only_who_may_reveal_sees_the_button(ask: Asked) -> None:
    page = f"/explore/in/-/key?hex={ADA.hex()}"
    shown = ask("ada", "GET", page, "text/html").text
    [form] = re.findall(r'<form action="([^"]*)" method="post">', shown)
    assert ask("ada", "POST", unescape(form)).json()["record"]["passWord"] == NEEDLE
    assert ask("ada", "GET", page).json()["readings"][0]["reveal_href"] == unescape(form)
    assert 'method="post"' not in ask("reader", "GET", page, "text/html").text
    assert ask("reader", "GET", page).json()["readings"][0]["reveal_href"] == ""


def test_somebody_who_is_refused_again_and_again_does_not_fill_the_log(ask: Asked) -> None:
    statuses = [ask("reader", "POST", reveal()).status_code for _ in range(REFUSALS_MAX + 3)]
    assert statuses[:REFUSALS_MAX] == [403] * REFUSALS_MAX
    assert statuses[-1] == 429
    assert len(ask.told()) <= REFUSALS_MAX + 2
    assert ask("ada", "POST", reveal()).status_code == 200, "others are not held up by it"


def test_a_page_of_another_site_reveals_nothing(engine: Engine, tmp_path: Path, runner: asyncio.Runner) -> None:
    asked = Asked(engine, tmp_path, runner, access=Access(local_role=Role.ADMIN, is_open_to_other_users=True))
    with asked.log:
        transport = httpx.ASGITransport(asked.application.asgi, client=("127.0.0.1", 50_000))
        client = httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8210")
        site = {"origin": "https://evil.example", "sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
        assert runner.run(client.post(reveal(), headers=site)).status_code == 403
        assert runner.run(client.post(reveal())).status_code == 200
    asked.application.workers.close()


def test_without_an_access_file_only_administrators_reveal(
    engine: Engine, tmp_path: Path, runner: asyncio.Runner
) -> None:
    tokens = [
        Token.of_text(role, role.value, TOKENS[who]) for role, who in ((Role.ADMIN, "ada"), (Role.CLIENT, "vera"))
    ]
    asked = Asked(engine, tmp_path, runner, access=Access(tokens))
    with asked.log:
        assert asked("vera", "POST", reveal()).status_code == 403
        assert asked("ada", "POST", reveal()).status_code == 200
        assert [row[:2] for row in asked.told()] == [("refused", "client"), ("begun", "admin"), ("done", "admin")]
    asked.application.workers.close()


def test_without_an_audit_log_nothing_is_revealed(engine: Engine, runner: asyncio.Runner) -> None:
    access = Access([Token.of_text(Role.ADMIN, "ada", TOKENS["ada"])])
    settings = {"keyspaces.sweep": "off", "explorer.layout": NAME}
    application = Application.build(
        engine, service_builders(["explorer"]), access=access, settings=settings, secrets=keys("k1")
    )
    transport = httpx.ASGITransport(application.asgi, client=("127.0.0.1", 50_000))
    headers = {"authorization": f"Bearer {TOKENS['ada']}", "accept": "application/json"}
    client = httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8210", headers=headers)
    answer = runner.run(client.post(reveal()))
    assert (answer.status_code, answer.json()["error"]["code"]) == (501, "no_audit_log")
    application.workers.close()


def test_a_log_that_cannot_be_written_reveals_nothing(ask: Asked) -> None:
    ask.log.close()
    answer = ask("ada", "POST", reveal())
    assert answer.status_code == 503
    assert not traces(answer.text)
