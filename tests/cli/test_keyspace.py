"""`keyplan keyspace` and `keyplan doctor`: over a store, and over a server, with the same output."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from keyplan.engine import Commit, Delete, Engine, KeyRange, Put, open_engine
from tests.cli.conftest import Answer, Keyplan, check_registry
from tests.servers.authority import Authority
from tests.servers.keyplan_server import KeyplanServer

TOKEN = "an-admin-token-of-a-test"


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"lmdb:{tmp_path}/shared.kv"


@pytest.fixture(params=["store", pytest.param("server", marks=pytest.mark.slow)])
def keyspace(
    request: pytest.FixtureRequest, run: Keyplan, url: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Keyplan]:
    """`keyplan keyspace` on a fresh store: itself, or behind a real server."""
    monkeypatch.delenv("KEYPLAN_SERVER", raising=False)
    if request.param == "store":
        monkeypatch.setenv("KEYPLAN_STORE", url)
        yield lambda *words: run("keyspace", *words)
        check_registry(url)
        return
    with KeyplanServer(url, environment={"KEYPLAN_ADMIN_TOKEN": TOKEN}) as server:
        monkeypatch.setenv("KEYPLAN_SERVER", server.url)
        monkeypatch.setenv("KEYPLAN_TOKEN", TOKEN)
        yield lambda *words: run("keyspace", *words)
    check_registry(url)


def done(answer: Answer) -> Answer:
    assert (answer.code, answer.err) == (0, ""), answer
    return answer


def raw_keys(url: str, *keys: bytes) -> None:
    with open_engine(url) as engine:
        engine.commit(Commit((), tuple(Put(key, b"v") for key in keys)))


def test_a_key_space_is_made_shown_changed_and_listed(keyspace: Keyplan) -> None:
    made = done(keyspace("create", "orders", "--application", "shop", "--description", "what was bought"))
    assert made.lines[:7] == [
        "name              orders",
        "application       shop",
        "description       what was bought",
        "state             ENABLED",
        "prefix            01 (1)",
        "range             01 to 02",
        "generation        1",
    ]
    assert re.fullmatch(r"created           \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", made.lines[7])
    assert done(keyspace("show", "orders", "--json")).document["prefix"] == "01"
    done(keyspace("create", "m", "-a", "tidb", "--prefix", "6D"))
    assert done(keyspace("update", "m", "-d", "meta", "--json")).document["description"] == "meta"
    assert done(keyspace("disable", "m", "--json")).document["state"] == "DISABLED"
    assert done(keyspace("list")).lines == ["orders\tENABLED\t01\tshop\twhat was bought", "m\tDISABLED\t6d\ttidb\tmeta"]
    assert done(keyspace("list", "--key", "6d41")).lines == ["m\tDISABLED\t6d\ttidb\tmeta"]
    assert done(keyspace("list", "--state", "enabled", "--json")).documents[0]["name"] == "orders"
    assert done(keyspace("list", "--application", "nobody")).out == ""
    assert done(keyspace("enable", "m", "--json")).document["state"] == "ENABLED"


def test_an_existing_one_is_an_error_or_the_answer(keyspace: Keyplan) -> None:
    first = done(keyspace("create", "orders", "-a", "shop", "--json")).document
    assert keyspace("create", "orders", "-a", "shop").code == 4
    assert done(keyspace("create", "orders", "-a", "shop", "--if-not-exists", "--json")).document == first
    other = keyspace("create", "orders", "-a", "bank", "--if-not-exists", "--json")
    assert (other.code, other.error["code"]) == (4, "owner_conflict")


REFUSED = (
    ("show none", 3, "keyspace_not_found"),
    ("create a/b -a x", 5, "invalid_name"),
    ("create a -a x --prefix 80", 5, "invalid_prefix"),
    ("config unknown=1", 5, "invalid_argument"),
    ("config keyspace-api-enabled", 5, "invalid-input"),
    ("config keyspace-api-enabled=yes", 5, "invalid-input"),
    ("list --state gone", 5, "invalid-input"),
    ("undelete none", 3, "keyspace_not_found"),
    ("usage none", 3, "keyspace_not_found"),
    ("quota none", 3, "keyspace_not_found"),
)


def test_errors_have_the_exit_code_of_their_kind(keyspace: Keyplan) -> None:
    done(keyspace("config", "keyspace-api-enabled=true"))
    answers = [(words, keyspace(*words.split(), "--json")) for words, _, _ in REFUSED]
    assert tuple((words, answer.code, answer.error["code"]) for words, answer in answers) == REFUSED


def test_prefixes_in_use_are_adopted(keyspace: Keyplan, url: str) -> None:
    raw_keys(url, b"\x6d01", b"/runm/a")
    refused = keyspace("create", "m", "-a", "tidb", "--prefix", "6d", "--json")
    assert (refused.code, refused.error["code"]) == (4, "prefix_not_empty")
    assert done(keyspace("adopt", "m", "-a", "tidb", "--prefix", "6d", "--json")).document["prefix"] == "6d"
    adopted = done(keyspace("adopt", "runm", "-a", "runm", "--prefix", "2f72756e6d2f", "--legacy"))
    assert "prefix            2f72756e6d2f ('/runm/')" in adopted.lines
    assert done(keyspace("usage")).lines == ["m\t1\t3\t\t", "runm\t1\t2\t\t"]


def test_quotas_are_printed_and_changed_one_by_one(keyspace: Keyplan) -> None:
    done(keyspace("create", "orders", "-a", "shop"))
    assert done(keyspace("quota", "orders")).lines == ["keys   unbounded", "bytes  unbounded"]
    done(keyspace("quota", "orders", "--keys", "5"))
    assert done(keyspace("quota", "orders", "--bytes", "100", "--json")).document == {"keys": 5, "bytes": 100}
    assert done(keyspace("quota", "orders", "--unbounded", "--keys", "7")).lines == ["keys   7", "bytes  unbounded"]
    assert done(keyspace("usage", "orders")).lines == ["orders\t0\t0\t7\t"]


def test_switches_are_printed_and_changed(keyspace: Keyplan) -> None:
    changed = done(keyspace("config", "keyspace-api-enabled=true", 'reservations=["6D"]', "--json")).document
    assert (changed["keyspace-api-enabled"], changed["reservations"]) == (True, ["6d"])
    assert 'reservations=["6d"]' in done(keyspace("config")).lines


def test_deletion_asks_is_carried_out_and_leaves_a_tombstone(keyspace: Keyplan, url: str) -> None:
    done(keyspace("config", "max-client-lease-seconds=0"))
    done(keyspace("create", "orders", "-a", "shop"))
    raw_keys(url, b"\x01a", b"\x01b", b"\x02other")
    unasked = keyspace("delete", "orders", "--json")
    assert (unasked.code, unasked.error["code"]) == (5, "invalid-input")
    deleted = done(keyspace("delete", "orders", "--yes", "--wait", "--json")).document
    assert deleted["state"] == "DELETED"
    assert deleted["delete_completed_at"] >= deleted["deleted_at"]
    with open_engine(url, create=False) as engine:
        assert data_keys(engine) == [b"\x02other"]
    assert done(keyspace("list")).out == ""
    assert done(keyspace("list", "--deleted", "--json")).documents == [deleted]
    assert done(keyspace("history", "orders")).out == ""
    again = done(keyspace("create", "orders", "-a", "shop", "--json")).document
    assert again["generation"] == 2
    assert done(keyspace("history", "orders", "--json")).documents == [deleted]
    assert done(keyspace("history", "orders")).lines[0].startswith("1\t01\tshop\t")
    assert done(keyspace("describe", "orders", "--json")).document["past_generations"] == [1]


def data_keys(engine: Engine) -> list[bytes]:
    with engine.snapshot() as snapshot:
        return [entry.key for entry in snapshot.scan(KeyRange(b"\x01", None), keys_only=True)]


def test_a_deletion_is_taken_back(keyspace: Keyplan) -> None:
    done(keyspace("config", "delete-grace-seconds=1000"))
    done(keyspace("create", "orders", "-a", "shop"))
    deleting = keyspace("delete", "orders", "--yes")
    assert "state             DELETING" in deleting.lines
    assert "keyplan keyspace sweep" in deleting.err
    assert done(keyspace("undelete", "orders", "--json")).document["state"] == "ENABLED"


def test_the_log_tells_who_did_what_and_whether_it_is_whole(keyspace: Keyplan, run: Keyplan) -> None:
    done(keyspace("create", "orders", "-a", "shop"))
    done(keyspace("disable", "orders"))
    entries = done(run("audit-log", "--json")).documents
    assert [entry["act"] for entry in entries] == ["create", "disable"]
    fields = done(run("audit-log", "--after", "1")).lines[0].split("\t")
    assert (fields[0], fields[3], fields[4], fields[6]) == ("2", "disable", "orders", str(entries[1]["revision"]))
    assert 0 < entries[0]["revision"] < entries[1]["revision"]
    assert done(run("audit-log", "--limit", "1", "--json")).documents == entries[:1]
    assert done(run("audit-log", "--act", "disable", "--who", entries[1]["actor"], "--json")).documents == entries[1:]
    for nothing in (("--subject", "bills"), ("--who", "eve"), ("--service", "etcd-v2"), ("--until", "2026-01-01")):
        assert done(run("audit-log", *nothing)).lines == []
    assert done(run("audit-log", "--subject", "or*", "--since", entries[0]["at"], "--json")).documents == entries
    verdict = done(run("audit-log", "--verify", "--json")).document
    assert (verdict["is_whole"], verdict["entries"], verdict["head"]) == (True, 2, entries[1]["digest"])
    assert done(run("audit-log", "--verify")).out.startswith("2 entries, each follows from the one before")
    assert done(run("audit-log", "--verify", "--head", entries[0]["digest"])).code == 0
    lost = run("audit-log", "--verify", "--head", "f" * 64)
    assert (lost.code, lost.lines) == (1, ["broken at entry 3: it is missing: no entry has the digest that was kept"])


# ---- apply -----------------------------------------------------------------------------------------------------------

DECLARATION = """
configuration:
  self-registration-enabled: false
keyspaces:
  - {name: orders, application: shop, description: what was ordered}
  - {name: bills, application: shop, quota: {keys: 1000}, state: DISABLED}
"""


def test_a_declaration_is_planned_then_applied_and_then_there_is_nothing_to_do(
    keyspace: Keyplan, tmp_path: Path
) -> None:
    (tmp_path / "spaces.yaml").write_text(DECLARATION)
    done(keyspace("create", "orders", "-a", "shop"))
    planned = keyspace("apply", "spaces.yaml")
    steps = [
        "~ configure self-registration-enabled=false",
        '~ update orders description="what was ordered"',
        "+ create bills application=shop",
        "~ quota bills keys=1000",
        "~ disable bills",
    ]
    assert planned.code == 1
    assert planned.lines == steps
    assert "--yes takes these steps" in planned.err
    assert done(keyspace("list")).lines == ["orders\tENABLED\t01\tshop\t"]
    applied = done(keyspace("apply", "spaces.yaml", "--yes"))
    assert applied.lines == [f"{line}: done" for line in steps]
    assert done(keyspace("apply", "spaces.yaml")).lines == ["nothing to do"]
    assert done(keyspace("apply", "spaces.yaml", "--yes", "--json")).out == ""


def test_json_and_toml_declare_as_well(keyspace: Keyplan, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps({"keyspaces": [{"name": "a", "application": "x"}]}))
    (tmp_path / "b.toml").write_text('[[keyspaces]]\nname = "b"\napplication = "x"\nprefix = "6d"\n')
    assert done(keyspace("apply", "a.json", "--yes")).lines == ["+ create a application=x: done"]
    assert done(keyspace("apply", "b.toml", "--yes", "--json")).documents[0]["kind"] == "create"
    assert done(keyspace("list")).lines == ["a\tENABLED\t01\tx\t", "b\tENABLED\t6d\tx\t"]


def test_what_is_not_possible_is_refused_before_anything_is_written(keyspace: Keyplan, tmp_path: Path) -> None:
    done(keyspace("create", "orders", "-a", "shop"))
    two = [{"name": "new", "application": "x"}, {"name": "orders", "application": "bank"}]
    (tmp_path / "a.json").write_text(json.dumps({"keyspaces": two}))
    refused = keyspace("apply", "a.json", "--yes")
    assert refused.code == 1
    assert "! refused orders: it belongs to shop, for ever" in refused.lines
    assert done(keyspace("list")).lines == ["orders\tENABLED\t01\tshop\t"]


# ---- on a store only -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("a.yaml", "keyspaces: [", "cannot be read"),
        ("a.yaml", "keyspaces: [{name: a, application: x, prefix: 1}]", "prefix"),
        ("a.yaml", "keyspaces: [{name: a, application: x, colour: red}]", "colour"),
        ("a.json", "{", "cannot be read"),
        ("a.toml", "=", "cannot be read"),
        ("a.txt", "", "*.yaml"),
        ("a.yaml", "keyspaces: [{name: a, application: x}, {name: a, application: x}]", "twice"),
    ],
)
def test_a_file_that_is_no_declaration_is_refused(
    run: Keyplan, url: str, tmp_path: Path, name: str, text: str, problem: str
) -> None:
    (tmp_path / name).write_text(text)
    answer = run("keyspace", "apply", name, "--store", url)
    assert answer.code == 5
    assert problem in answer.err


def test_reading_makes_no_store(run: Keyplan, url: str, tmp_path: Path) -> None:
    for words in (["list"], ["show", "a"], ["usage"], ["config"]):
        assert run("keyspace", *words, "--store", url).code == 7
    assert run("audit-log", "--store", url).code == 7
    assert run("doctor", "--store", url).code == 7
    assert not (tmp_path / "shared.kv").exists()


def test_the_prefix_code_is_chosen_once(run: Keyplan, url: str) -> None:
    made = done(run("keyspace", "init", "--prefix-codec", "ordered", "--profile", "etcd", "--store", url, "--json"))
    assert (made.document["prefix_codec"], made.document["profile"]) == ("ordered", "etcd")
    other = run("keyspace", "init", "--prefix-codec", "uvarint", "--store", url, "--json")
    assert (other.code, other.error["code"]) == (5, "invalid_argument")


def test_the_registry_is_made_once_and_printed_again(run: Keyplan, url: str) -> None:
    first = done(run("keyspace", "init", "--store", url, "--json")).document
    assert (first["prefix_codec"], first["profile"]) == ("uvarint", "lmdb")  # Why: as `create` would have made it.
    assert done(run("keyspace", "init", "--store", url, "--json")).document == first
    assert done(run("keyspace", "init", "--prefix-codec", "uvarint", "--store", url, "--json")).document == first
    assert run("keyspace", "init", "--prefix-codec", "ordered", "--store", url).code == 5
    assert run("keyspace", "init", "--profile", "tikv", "--store", url).code == 5


def test_a_sweep_removes_what_deleted_key_spaces_hold(run: Keyplan, url: str) -> None:
    for words in (["create", "a", "-a", "x"], ["config", "delete-grace-seconds=1000"], ["delete", "a", "--yes"]):
        assert run("keyspace", *words, "--store", url).code == 0
    waiting = done(run("keyspace", "sweep", "--store", url))
    assert waiting.out.startswith("a: waiting, 0 keys removed; it waits for the grace time, until 2")
    for words in (["undelete", "a"], ["config", "delete-grace-seconds=0"], ["delete", "a", "--yes"]):
        assert run("keyspace", *words, "--store", url).code == 0
    raw_keys(url, *(b"\x01%d" % number for number in range(1_000)))
    assert done(run("keyspace", "sweep", "a", "--store", url)).lines == ["a: completed, 1000 keys removed"]
    assert run("keyspace", "sweep", "none", "--store", url).code == 3
    assert done(run("keyspace", "sweep", "--store", url)).out == ""


def test_the_doctor_finds_keys_of_nobody_and_calls_that_no_fault(run: Keyplan, url: str) -> None:
    done(run("keyspace", "create", "a", "-a", "x", "--store", url))
    raw_keys(url, b"z\x01", b"z\x02")
    answer = done(run("doctor", "--store", url))
    assert answer.lines == [
        "unmanaged: 2 keys below 7a (number 122, first key z\\x01)",
        "sound: 1 key spaces, 1 entries of the audit log",
    ]
    assert done(run("doctor", "--no-unmanaged", "--store", url)).lines == answer.lines[1:]
    assert done(run("doctor", "--json", "--store", url)).document["unmanaged"][0]["prefix_number"] == 122


def test_the_doctor_repairs_what_the_records_decide(run: Keyplan, url: str) -> None:
    done(run("keyspace", "create", "a", "-a", "x", "--store", url))
    with open_engine(url) as engine:
        engine.commit(Commit((), (Delete(b"\x00kp\x03a\x00"),)))
    sick = run("doctor", "--store", url)
    assert sick.code == 1
    assert sick.lines[0].startswith("repairable: fence a: ")
    asked = run("doctor", "--repair", "--store", url)
    assert (asked.code, "pass --yes" in asked.err) == (5, True)
    healed = done(run("doctor", "--repair", "--yes", "--store", url))
    assert healed.lines[0].startswith("repaired: fence a: ")
    assert healed.lines[-1] == "sound: 1 key spaces, 2 entries of the audit log"
    assert run("doctor", "--yes", "--store", url).code == 5


def test_a_broken_log_is_said(run: Keyplan, url: str) -> None:
    for name in ("a", "b"):
        done(run("keyspace", "create", name, "-a", "x", "--store", url))
    with open_engine(url) as engine:
        engine.commit(Commit((), (Delete(b"\x00kp\x04" + (1).to_bytes(8, "big")),)))
    answer = run("audit-log", "--verify", "--store", url)
    assert (answer.code, answer.lines) == (1, ["broken at entry 1: it is missing"])
    assert run("doctor", "--store", url).code == 1


def test_a_token_without_a_server_is_a_mistake(run: Keyplan, url: str, tmp_path: Path) -> None:
    answer = run("keyspace", "list", "--store", url, "--token-file", str(tmp_path / "token"))
    assert (answer.code, "--server" in answer.err) == (5, True)


@pytest.mark.slow
def test_a_token_comes_from_a_file_and_a_server_comes_before_a_store(run: Keyplan, url: str, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN + "\n")
    with KeyplanServer("memory:", environment={"KEYPLAN_ADMIN_TOKEN": TOKEN}) as server:
        there = ("--server", server.url, "--store", url)
        done(run("keyspace", "create", "a", "-a", "x", *there, "--token-file", str(tmp_path / "token")))
        disabled = run("keyspace", "list", *there, "--json")
        assert (disabled.code, disabled.error["code"]) == (10, "keyspace_api_disabled")
    gone = run("keyspace", "list", *there, "--json")
    assert (gone.code, gone.error["code"]) == (7, "engine-unavailable")
    assert not (tmp_path / "shared.kv").exists()


def test_a_store_that_is_typed_comes_before_the_server_of_the_environment(
    run: Keyplan, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEYPLAN_SERVER", "http://127.0.0.1:1")
    done(run("keyspace", "create", "a", "-a", "x", "--store", url))
    assert done(run("keyspace", "list", "--store", url)).lines == ["a\tENABLED\t01\tx\t"]
    monkeypatch.setenv("KEYPLAN_STORE", url)
    unreachable = run("keyspace", "list", "--json")
    assert (unreachable.code, unreachable.error["code"]) == (7, "engine-unavailable")


@pytest.mark.slow
def test_a_server_with_a_certificate_of_a_private_authority(
    run: Keyplan, monkeypatch: pytest.MonkeyPatch, authority: Authority
) -> None:
    tls = ("--tls-certificate", str(authority.certificate("server")), "--tls-key", str(authority.key("server")))
    monkeypatch.setenv("KEYPLAN_TOKEN", TOKEN)
    with KeyplanServer("memory:", *tls, environment={"KEYPLAN_ADMIN_TOKEN": TOKEN}) as server:
        assert server.url.startswith("https://127.0.0.1:")
        unknown = run("keyspace", "list", "--server", server.url, "--json")
        assert (unknown.code, unknown.error["code"]) == (7, "engine-unavailable")
        monkeypatch.setenv("KEYPLAN_SERVER_CA", str(authority.ca))
        done(run("keyspace", "create", "a", "-a", "x", "--server", server.url))
        assert done(run("keyspace", "list", "--server", server.url)).lines == ["a\tENABLED\t01\tx\t"]
        monkeypatch.setenv("KEYPLAN_SERVER_CA", "/none/here.pem")
        assert run("keyspace", "list", "--server", server.url).code == 5


def test_an_act_is_on_the_key_space_that_was_meant(keyspace: Keyplan) -> None:
    done(keyspace("create", "a", "-a", "x"))
    done(keyspace("config", "delete-grace-seconds=1000"))
    for words in (["disable", "a"], ["enable", "a"], ["update", "a", "-d", "new"], ["quota", "a", "--keys", "1"]):
        assert keyspace(*words, "--expected", "2/x").code == 4
        assert keyspace(*words, "--expected", "1/y").code == 4
        assert keyspace(*words, "--expected", "x/1").code == 5
        done(keyspace(*words, "--expected", "1/x"))
    assert keyspace("delete", "a", "--yes", "--expected", "2/x").code == 4
    assert keyspace("delete", "a", "--yes", "--expected", "1/x").code == 0
    assert keyspace("undelete", "a", "--expected", "1/y").code == 4
    done(keyspace("undelete", "a", "--expected", "1/x"))
