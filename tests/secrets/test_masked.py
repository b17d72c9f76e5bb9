"""Wherever keyplan shows records, their secrets are masked: every command, every page, every raw value whose layout is known.

The commands are those of the command line's own table, so that a new one has to be thought of here.
"""

import asyncio
import hashlib
import json
import re
from html import unescape
from pathlib import Path

import httpx
import pytest

import keyplan
from keyplan import Secret
from keyplan.cli.main import COMMANDS, main
from keyplan.engine import Commit, Engine, MemoryEngine, Put
from keyplan.keyspace import KeySpaces, KeySpaceStore, open_key_space
from keyplan.keyspace.rows import key_of
from keyplan.layout import Only, describe
from keyplan.maintenance import back_up_store, carry_out_change, plan_quarantine
from keyplan.server import Access, Application, Role, Token, service_builders
from keyplan.store import Store
from tests.secrets.test_sealed_store import ADA
from tests.secrets.vault import NAME, NEEDLE, Vault, account, filled, traces

TABLES = list(Vault.spec.tables)
FIRST = {"doors": ("h1", "d1")} | {
    name: (key,)
    for name, key in zip(
        ["accounts", "packed", "locks", "papers", "words", "bytes_"],
        ["ada", "ada", "l1", "p1", "w1", "b1"],
        strict=True,
    )
}

# What is asked of each command; a reason instead, where it shows no records or is there to show bytes as they are.
ASKED: dict[str, list[list[str]] | str] = {
    "ls": [["ls"], *(["ls", name] for name in TABLES)],
    "tree": [["tree", name] for name in TABLES],
    "get": [
        [*words, *more]
        for name in TABLES
        for words in [["get", name, *FIRST[name]]]
        for more in ([], ["--json"], ["--json", "--value-only"])
    ],
    "list": [["list", name, *more] for name in (*TABLES, "by_user") for more in ([], ["--json"])],
    "watch": [["watch", name, "--after", "0", "--limit", "1", *more] for name in TABLES for more in ([], ["--json"])]
    + [["watch", name, "--follow-from-start", "--limit", "1"] for name in TABLES],
    "count": [["count", name] for name in TABLES],
    "put": [["put", "words", "w1", NEEDLE, "--explain", *more] for more in ([], ["--json"])],
    "delete": [["delete", name, *FIRST[name], "--explain", *more] for name in TABLES for more in ([], ["--json"])],
    "explain": [
        ["explain", f"/vault/{name.rstrip('_')}/{'/'.join(FIRST[name])}", *more]
        for name in TABLES
        for more in ([], ["--json"])
    ],
    "check": [["check"], ["check", "--json"]],
    # `raw get` shows bytes as they are, and is for who may see them.
    "raw": [
        ["raw", *words, *more]
        for words in (
            ["put", "/vault/accounts/bob", NEEDLE, "--yes"],
            ["quarantine", "/vault/words/aside", "--yes"],
            ["quarantined"],
            ["release", "/vault/words/aside", "--dry-run"],
            ["delete", "/vault/accounts/ada", "--dry-run"],
        )
        for more in ([], ["--json"])
        if words[0] != "quarantine" or not more
    ],
    "extract": [
        ["extract", "vault.backup", *words, *more]
        for words in ([], ["--table", "accounts"], ["--key", "/vault/accounts/bob"])
        for more in ([], ["--json"])
    ],
    "index": [["index", "list"], ["index", "list", "--json"]],
    "diff": [
        ["diff", "--against", NAME],
        ["diff", "--against", "vault.json", "--json"],
        ["diff", "--against", NAME, "--format", "github"],
    ],
    "lock": [["lock"], ["lock", "--write", "-"]],
    "migrate": [
        ["migrate", word, "--from", old, "--to", f"tests.secrets.vault:{new}", *more]
        for word in ("plan", "try")
        for old in (NAME, "vault.json")
        for new in ("MovedVault", "OpenVault")
        for more in ([], ["--json"])
    ],
    "dump": [["dump"]],
    "backup": "its file holds the bytes as they are",
    "restore": "it brings the bytes of a file",
    "copy": "it brings the bytes of a store",
    "keyspace": [["keyspace", "list"]],
    "doctor": [["doctor"]],
    "jobs": [["jobs"]],
    "who": [["who"]],
    "region": "it is about key ranges",
    "lint": [["lint"], ["lint", "--json"]],
    "infer": [["infer"], ["infer", "--json"], ["infer", "--python"]],
    "audit": [["audit"], ["audit", "--json"]],
    "map": [["map"]],
    "docs": [["docs"]],
    "serve": "its pages are below",
    "access": "it is about an access file",
    "audit-log": "it prints lines that name operations and keys, and hold no values",
    "secrets": [["secrets", "status"], ["secrets", "status", "--json"]],
    "completion": "it prints a script",
}


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store with a record in each table, one of them written again, one damaged; named to the command line."""
    url = f"lmdb:{tmp_path}/vault.kv"
    with keyplan.open(url) as opened:
        vault = filled(opened.engine)
        vault.accounts.put("ada", account())
        damaged = b'{"userName":5,"passWord":"' + NEEDLE.encode() + b'"}'
        opened.engine.commit(Commit((), (Put(b"/vault/accounts/bob", damaged),)))
        vault.words.insert("aside", Secret(NEEDLE))
        with (tmp_path / "vault.backup").open("wb") as file:
            back_up_store(opened.engine, file)
    (tmp_path / "vault.json").write_text(json.dumps(describe(Vault.spec)))
    for name in ("LAYOUT", "CONFIG", "SERVER", "TOKEN"):
        monkeypatch.delenv(f"KEYPLAN_{name}", raising=False)
    monkeypatch.setenv("KEYPLAN_STORE", url)
    monkeypatch.setenv("KEYPLAN_LAYOUT", NAME)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_command_of_the_command_line_is_thought_of() -> None:
    assert ASKED.keys() == COMMANDS.keys()


@pytest.mark.parametrize("layout", [NAME, "vault.json"])
@pytest.mark.parametrize("command", [name for name, asked in ASKED.items() if isinstance(asked, list)])
def test_a_command_shows_no_secret(
    store: Path, command: str, layout: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEYPLAN_LAYOUT", layout)
    for words in ASKED[command]:
        capsys.readouterr()
        code = main(words)
        printed = capsys.readouterr()
        assert code in (0, 1, 8), (words, printed.err)
        assert not traces(printed.out + printed.err), words
        if words[0] in ("get", "list") and code == 0 and words[1] != "by_user":
            assert "***" in printed.out, words


def test_a_record_as_it_was_shown_is_not_written_back(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("accounts", "doors", "papers"):
        capsys.readouterr()
        assert main(["get", name, *FIRST[name], "--json", "--value-only"]) == 0
        shown = capsys.readouterr().out.strip()
        assert main(["put", name, *FIRST[name], shown]) != 0
        assert "is a mask, not the secret: write the secret itself" in capsys.readouterr().err
    assert main(["put", "words", "w1", "***"]) != 0
    assert main(["put", "words", "w1", "another"]) == 0
    assert main(["put", "accounts", "eve", '{"userName":"eve","passWord":"so"}']) == 0
    with keyplan.open(f"lmdb:{store}/vault.kv") as opened:
        vault = Vault(opened)
        assert vault.words.require("w1").reveal() == "another"
        assert vault.accounts.require("eve").pass_word.reveal() == "so"
        assert vault.accounts.require("ada") == account()


def test_a_model_that_is_not_taken_is_not_quoted(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["put", "papers", "p2", '{"title": 7, "text": ["' + NEEDLE + '"]}']) == 5
    shown = capsys.readouterr().err
    assert "string_type at text" in shown
    assert not traces(shown)


# ---- pages -----------------------------------------------------------------------------------------------------------------


class Pages:
    """The explorer in this process, asked as somebody on this machine."""

    def __init__(self, engine: Engine, runner: asyncio.Runner) -> None:
        access = Access([Token.of_text(Role.ADMIN, "ada", "an-admin-token-of-a-test")])
        settings = {"keyspaces.sweep": "off", "explorer.layout": NAME, "explorer.layout.vaults": NAME}
        self._application = Application.build(engine, service_builders(["explorer"]), access=access, settings=settings)
        self._runner = runner

    def get(self, path: str, accept: str) -> str:
        transport = httpx.ASGITransport(self._application.asgi, client=("127.0.0.1", 50_000))
        client = httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8210", headers={"accept": accept})
        return self._runner.run(client.get(path)).text


SET_ASIDE = b"\x00kq" + hashlib.sha256(b"/vault/words/aside").digest()[:16]


def in_key_space(engine: Engine) -> KeySpaceStore:
    """A key space with a record in each table, opened."""
    KeySpaces(engine).ensure("vaults", "bank")
    store = open_key_space(engine, "vaults", "bank", session_seconds=None)
    filled(store.engine)
    return store


def test_no_page_of_the_explorer_shows_a_secret() -> None:
    with MemoryEngine() as engine, asyncio.Runner() as runner:
        filled(engine)
        damaged = b'{"userName":5,"passWord":"' + NEEDLE.encode() + b'"}'
        engine.commit(Commit((), (Put(b"/vault/accounts/bob", damaged),)))
        pages = Pages(engine, runner)
        own = in_key_space(engine)
        for place in (engine, own.engine):
            Vault(Store(place)).words.insert("aside", Secret(NEEDLE))
            carry_out_change(place, plan_quarantine(place, b"/vault/words/aside", past_fence=True))
        seen: dict[str, str] = {}
        waiting = ["/explore/"]
        while waiting and len(seen) < 600:
            path = waiting.pop()
            if path in seen or "/changes" in path:
                continue
            seen[path] = pages.get(path, "text/html")
            twin = pages.get(path, "application/json")
            assert not traces(unescape(seen[path])), path
            assert not traces(twin), path
            waiting += [unescape(href).partition("#")[0] for href in re.findall(r'href="(/explore[^"]*)"', seen[path])]
    keys = [path for path in seen if "/key?" in path]
    for area in ("-", "vaults"):
        assert len([path for path in keys if f"/in/{area}/" in path]) >= len(TABLES)
    for raw_key in (ADA, own.prefix + ADA, SET_ASIDE, own.prefix + SET_ASIDE):
        assert any(f"/in/-/key?hex={raw_key.hex()}" in path for path in keys), raw_key
    assert any("***" in seen[path] for path in keys)


@pytest.mark.parametrize("damaged", [key_of("header", Only()), key_of("records", "vaults")])
@pytest.mark.parametrize("accept", ["text/html", "application/json"])
def test_where_a_damaged_registry_cannot_tell_whose_a_key_is_nothing_is_shown(damaged: bytes, accept: str) -> None:
    with MemoryEngine() as engine, asyncio.Runner() as runner:
        own = in_key_space(engine)
        pages = Pages(engine, runner)
        page = f"/explore/in/-/key?hex={(own.prefix + ADA).hex()}"
        assert "***" in pages.get(page, accept)
        engine.commit(Commit((), (Put(damaged, b"nonsense"),)))
        shown = pages.get(page, accept)
        assert not traces(unescape(shown))
        assert "***" in shown
        assert "nonsense" in pages.get(f"/explore/in/-/key?hex={damaged.hex()}", accept), "it is there to be repaired"
