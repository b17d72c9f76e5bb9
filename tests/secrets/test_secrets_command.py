"""`keyplan secrets`: keys are made, counted and rotated from the command line, and each command that writes seals with them."""

import json
import os
import pwd
import re
import shlex
import signal
from pathlib import Path
from typing import NamedTuple

import pytest

import keyplan
from keyplan import SecretKeys
from keyplan.audit_log import AuditLog
from keyplan.cli.main import main
from keyplan.engine import Commit, Put, open_engine
from keyplan.keyspace import KeySpaces
from tests.cli.test_jobs import told_at
from tests.secrets.test_masked import FIRST
from tests.secrets.test_sealed_store import ADA, stored
from tests.secrets.vault import NAME, NEEDLE, Vault, account, filled, traces


class Answer(NamedTuple):
    code: int
    out: str
    err: str


class Shell:
    """Runs commands; nothing that they print may hold the secret of the vault."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *words: str) -> Answer:
        self._capsys.readouterr()
        code = main(list(words))
        out, err = self._capsys.readouterr()
        assert not traces(out + err)
        return Answer(code, out, err)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    for name in ("CONFIG", "SERVER", "TOKEN", "SECRETS"):
        monkeypatch.delenv(f"KEYPLAN_{name}", raising=False)
    monkeypatch.setenv("KEYPLAN_STORE", "lmdb:./vault.kv")
    monkeypatch.setenv("KEYPLAN_LAYOUT", NAME)
    monkeypatch.chdir(tmp_path)
    with keyplan.open("lmdb:./vault.kv") as store:
        filled(store.engine)
    return Shell(capsys)


def revealed(keys: str = "vault.keys") -> str:
    with keyplan.open("lmdb:./vault.kv", secrets=SecretKeys.read(keys)) as store:
        assert Vault(store).accounts.require("ada") == account()
        return Vault(store).words.require("w1").reveal()


def clear_values() -> list[bytes]:
    with open_engine("lmdb:./vault.kv") as engine:
        return [key for key, value in stored(engine).items() if traces(value.decode("latin-1"))]


def stored_values() -> dict[bytes, bytes]:
    with open_engine("lmdb:./vault.kv") as engine:
        return stored(engine)


def test_from_clear_to_one_key_to_another(run: Shell) -> None:
    first = run("secrets", "new", "vault.keys")
    assert re.fullmatch(r"k[0-9a-f]{8}\n", first.out)
    assert "keep a copy" in first.err
    assert Path("vault.keys").stat().st_mode & 0o777 == 0o600
    at = ("--secrets", "vault.keys")
    assert run("secrets", "status", *at).code == 1
    assert len(clear_values()) == 7
    one = first.out.strip()
    done = run("secrets", "rotate", *at)
    assert (done.code, done.out) == (0, f"7 of 7 records sealed anew with {one}\n")
    assert clear_values() == []
    status = run("secrets", "status", *at)
    assert status.code == 0
    assert status.out.splitlines()[:2] == [f"accounts\t1\t5\t{one}", f"packed\t1\t5\t{one}"]
    assert run("secrets", "new", "vault.keys", "--id", "two").out == "two\n"
    assert run("secrets", "list", *at).out == f"two\tcurrent\n{one}\t\n"
    assert run("secrets", "status", *at).code == 1
    rotated = json.loads(run("secrets", "rotate", "--json", *at).out)
    assert rotated == {"key": "two", "records": 7, "written": 7, "failed": 0}
    status = run("secrets", "status", "--json")
    assert status.code == 0, "without keys, those that are found are the current ones"
    assert {table["table"]: table["sealed"] for table in json.loads(status.out)}["accounts"] == {"two": 5}
    assert revealed() == NEEDLE


def test_every_command_that_writes_seals_and_those_that_read_need_no_key(
    run: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("secrets", "new", "vault.keys", "--id", "one")
    monkeypatch.setenv("KEYPLAN_SECRETS", "vault.keys")
    assert run("secrets", "rotate").code == 0
    assert run("put", "words", "w2", "swordfish").code == 0
    assert (
        run("--secrets", "vault.keys", "put", "accounts", "eve", '{"userName": "eve", "passWord": "swordfish"}').code
        == 0
    )
    with open_engine("lmdb:./vault.kv") as engine:
        assert not any(b"swordfish" in value for value in stored(engine).values())
        KeySpaces(engine).create("vaults", "tests")
    inside = ("--keyspace", "vaults")
    assert run("put", "words", "w1", "swordfish", *inside).code == 0
    with open_engine("lmdb:./vault.kv") as engine:
        assert not any(b"swordfish" in value for value in stored(engine).values())
    assert "words\t1\t1\tone" in run("secrets", "status", *inside).out.splitlines()
    # Why a file that is not there: who only reads does not even look for it.
    monkeypatch.setenv("KEYPLAN_SECRETS", "gone.keys")
    shown = run("get", "accounts", "ada", "--json", "--value-only")
    assert (shown.code, json.loads(shown.out)["passWord"]) == (0, "***")
    assert run("list", "words").code == run("check").code == run("dump").code == 0
    refused = run("put", "words", "w3", "swordfish")
    assert refused.code == 5
    assert "gone.keys" in refused.err
    assert run("get", "words", "w3").code == 3


def test_a_new_store_is_begun_with_sealed_secrets(run: Shell) -> None:
    run("secrets", "new", "vault.keys")
    at = ("--store", "lmdb:./new.kv", "--secrets", "vault.keys")
    assert run("put", "words", "w1", "swordfish", *at).code == 0
    with keyplan.open("lmdb:./new.kv", secrets=SecretKeys.read("vault.keys")) as store:
        assert Vault(store).words.require("w1").reveal() == "swordfish"
        assert not any(b"swordfish" in value for value in stored(store.engine).values())


def test_keys_of_a_command(run: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    run("secrets", "new", "vault.keys", "--id", "one")
    monkeypatch.setenv("KEYPLAN_SECRETS", "command:cat vault.keys")
    assert run("secrets", "list").out == "one\tcurrent\n"
    assert run("secrets", "rotate").code == 0
    assert revealed() == NEEDLE
    monkeypatch.setenv("KEYPLAN_SECRETS", "command:false")
    failed = run("secrets", "rotate")
    assert (failed.code, "it ended with 1" in failed.err) == (5, True)


def test_what_does_not_open_is_named_and_ends_with_one(run: Shell) -> None:
    run("secrets", "new", "lost.keys", "--id", "lost")
    assert run("secrets", "rotate", "--secrets", "lost.keys").code == 0
    run("secrets", "new", "vault.keys", "--id", "one")
    left = run("secrets", "rotate", "--secrets", "vault.keys")
    assert (left.code, left.out) == (1, "0 of 7 records sealed anew with one\n")
    assert "accounts /vault/accounts/ada is left as it was" in left.err
    assert "no key of this id is known" in left.err


def test_without_keys_the_commands_that_need_them_say_so(run: Shell) -> None:
    for words in (["secrets", "list"], ["secrets", "rotate"]):
        refused = run(*words)
        assert refused.code == 5, words
    assert run("secrets", "status").code == 1
    run("secrets", "new", "vault.keys", "--id", "one")
    assert "there is a key 'one' already" in run("secrets", "new", "vault.keys", "--id", "one").err
    assert "no id of a key" in run("secrets", "new", "vault.keys", "--id", "One").err
    assert run("secrets", "list", "--secrets", "vault.keys").out == "one\tcurrent\n"


def test_a_rotation_that_is_told_to_stop_goes_on_with_the_command_that_it_prints(
    run: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run("secrets", "new", "vault.keys", "--id", "one")
    with told_at(monkeypatch, 1, signal.SIGTERM):
        stopped = run("secrets", "rotate", "--secrets", "vault.keys")
    assert stopped.code == 143
    again = re.search(r"`(keyplan secrets rotate .*)` goes on with it", stopped.err)
    assert again is not None, stopped.err
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    listed = json.loads(run("jobs", "--json").out)
    assert (listed["kind"], listed["problem"]) == ("rotation", None)
    monkeypatch.chdir(elsewhere)
    monkeypatch.setenv("KEYPLAN_STORE", "lmdb:./another.kv")
    for command in (listed["command"], again[1]):
        assert run(*shlex.split(command)[1:]).code == 0, command
    monkeypatch.chdir(tmp_path)
    assert clear_values() == []
    assert revealed() == NEEDLE


def test_secrets_are_left_in_clear_and_sealed_again(run: Shell) -> None:
    run("secrets", "new", "vault.keys", "--id", "one")
    at = ("--secrets", "vault.keys")
    in_clear = stored_values()
    assert run("secrets", "rotate", *at).code == 0
    asked = run("secrets", "open", *at)
    assert (asked.code, "not a terminal: pass --yes" in asked.err) == (5, True)
    assert clear_values() == []
    with_json = run("secrets", "open", "--yes", "--json", *at)
    assert json.loads(with_json.out) == {"key": "", "records": 7, "written": 7, "failed": 0}
    assert stored_values() == in_clear
    assert run("secrets", "open", "--yes", *at).out == "0 of 7 records opened\n"
    assert run("secrets", "rotate", *at).code == 0
    assert revealed() == NEEDLE


def test_an_opening_that_is_told_to_stop_goes_on_with_the_command_that_it_prints(
    run: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("secrets", "new", "vault.keys", "--id", "one")
    assert run("secrets", "rotate", "--secrets", "vault.keys").code == 0
    with told_at(monkeypatch, 1, signal.SIGTERM):
        stopped = run("secrets", "open", "--yes", "--secrets", "vault.keys")
    assert stopped.code == 143
    again = re.search(r"`(keyplan secrets open .*)` goes on with it", stopped.err)
    assert again is not None, stopped.err
    assert json.loads(run("jobs", "--json").out)["subject"] == "secrets below /vault/, to clear"
    assert run(*shlex.split(again[1])[1:]).code == 0
    assert len(clear_values()) == 7


def test_the_settings_file_names_the_keys(run: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run("secrets", "new", "vault.keys", "--id", "one")
    Path("keyplan.toml").write_text('secrets = "vault.keys"\n')
    assert run("secrets", "list").out == "one\tcurrent\n"
    assert run("put", "words", "w2", "swordfish").code == 0
    with open_engine("lmdb:./vault.kv") as engine:
        assert not any(b"swordfish" in value for value in stored(engine).values())
    monkeypatch.setenv("KEYPLAN_SECRETS", "other.keys")
    assert "other.keys" in run("secrets", "list").err, "the environment comes first"
    monkeypatch.delenv("KEYPLAN_SECRETS")
    (tmp_path / "elsewhere").mkdir()
    with told_at(monkeypatch, 1, signal.SIGTERM):
        stopped = run("secrets", "rotate")
    again = re.search(r"`(keyplan secrets rotate .*)` goes on with it", stopped.err)
    assert again is not None, stopped.err
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert run(*shlex.split(again[1])[1:]).code == 0


def test_a_layout_without_secrets_has_none_to_rotate_wherever_the_keys_are_named(
    run: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("secrets", "new", "vault.keys", "--id", "one")
    monkeypatch.setenv("KEYPLAN_LAYOUT", "keyplan.maintenance:SecretRotations")
    answers = [run("secrets", "rotate", "--secrets", "vault.keys")]
    Path("keyplan.toml").write_text('secrets = "vault.keys"\n')
    answers.append(run("secrets", "rotate"))
    assert [(each.code, each.out) for each in answers] == [(0, "0 of 0 records sealed anew with one\n")] * 2


def test_damage_is_counted(run: Shell) -> None:
    with keyplan.open("lmdb:./vault.kv") as store:
        value = stored(store.engine)[ADA]
        store.engine.commit(Commit((), (Put(ADA, value[:-1]),)))
    status = run("secrets", "status")
    assert status.code == 1
    assert "accounts\t1\t1\tdamaged" in status.out


@pytest.mark.parametrize("is_sealed", [False, True])
def test_one_record_is_printed_with_its_secrets_when_that_is_asked_for(
    run: Shell, capsys: pytest.CaptureFixture[str], *, is_sealed: bool
) -> None:
    run("secrets", "new", "vault.keys", "--id", "one")
    at = ["--secrets", "vault.keys"] if is_sealed else []
    if is_sealed:
        assert run("secrets", "rotate", *at).code == 0
        refused = run("get", "words", "w1", "--reveal")
        assert (refused.code, "the key of a sealed secret is not here" in refused.err) == (12, True)
    for table, fields in FIRST.items():
        capsys.readouterr()
        assert main(["get", table, *fields, "--reveal", *at]) == 0
        printed = capsys.readouterr()
        assert traces(printed.out), table
        assert "***" not in printed.out
        assert "the secrets of the record are printed in clear" in printed.err


def test_who_is_shown_secrets_of_a_store_can_be_noted_in_an_audit_log(
    run: Shell, capsys: pytest.CaptureFixture[str]
) -> None:
    noted = ["--reveal", "--audit-log", "audit.log"]
    assert main(["get", "accounts", "ada", *noted, "--json", "--value-only"]) == 0
    assert json.loads(capsys.readouterr().out)["passWord"] == NEEDLE
    assert main(["get", "words", "nothing", *noted]) == 3
    log = Path("audit.log").read_text()
    assert not traces(log)
    records = [json.loads(line) for line in log.splitlines()]
    user = pwd.getpwuid(os.getuid()).pw_name
    told = [(one["event"], one["who"], one["act"], one["subject"]) for one in records if "act" in one]
    assert told == [
        ("begun", user, "reveal", "- accounts ada"),
        ("done", user, "reveal", "- accounts ada"),
        ("begun", user, "reveal", "- words nothing"),
        ("failed", user, "reveal", "- words nothing"),
    ]
    assert run("audit-log", "audit.log", "--verify").code == 0
    refused = run("get", "words", "w1", "--audit-log", "audit.log")
    assert (refused.code, "give --reveal too" in refused.err) == (5, True)


def test_a_log_that_cannot_be_written_shows_no_secret(run: Shell) -> None:
    with AuditLog(Path("audit.log"), wall=lambda: 0.0):
        refused = run("get", "words", "w1", "--reveal", "--audit-log", "audit.log")
    assert refused.code == 5
    assert refused.out == ""


def test_another_key_of_the_same_id_is_told_as_such_and_with_a_remedy_that_destroys_nothing(run: Shell) -> None:
    assert run("secrets", "new", "vault.keys", "--id", "k1").code == 0
    assert run("secrets", "rotate", "--secrets", "vault.keys").code == 0
    Path("vault.keys").unlink()
    assert run("secrets", "new", "vault.keys", "--id", "k1").code == 0
    shown = run("get", "words", "w1", "--reveal", "--audit-log", "audit.log", "--secrets", "vault.keys")
    assert shown.code == 8
    assert "a sealed secret does not open with this key" in shown.err
    assert "another key of this id" in shown.err
    assert "give the key file that it was sealed with" in shown.err
    for destroying in ("raw delete", "quarantine", "--overwrite", "damaged"):
        assert destroying not in shown.err
