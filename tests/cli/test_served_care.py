"""init, sweep and doctor with --server: what they do to a store, the server does, and prints the same."""

import json
from pathlib import Path

import pytest

from keyplan.engine import Commit, Delete, Put, open_engine
from keyplan.keyspace import KeySpaceRegistry
from tests.cli.conftest import Answer, Keyplan
from tests.servers.keyplan_server import KeyplanServer

pytestmark = pytest.mark.slow

TOKEN = "an-admin-token-of-a-test"


def cared_for(run: Keyplan, damage: str, *at: str) -> list[Answer]:
    """Make a registry, delete a key space and sweep it; then examine, damage and repair the registry in the store `damage`."""
    answers = [
        run("keyspace", "init", "--prefix-codec", "ordered", "--json", *at),
        run("keyspace", "config", "max-client-lease-seconds=0", *at),
        run("keyspace", "create", "old", "-a", "x", *at),
        run("keyspace", "create", "new", "-a", "x", *at),
        run("keyspace", "delete", "old", "--yes", *at),
        run("keyspace", "sweep", "--json", *at),
        run("doctor", *at),
    ]
    with open_engine(damage) as engine:
        fence = KeySpaceRegistry.bound().tables["fences"].keys.encode("new")
        engine.commit(Commit((), (Delete(fence), Put(b"\x09k", b""))))
    return [*answers, run("doctor", *at), run("doctor", "--repair", "--yes", "--json", *at), run("doctor", *at)]


def test_care_through_a_server_is_care_for_the_store(run: Keyplan, tmp_path: Path) -> None:
    alone, served = f"lmdb:{tmp_path}/alone.kv", f"lmdb:{tmp_path}/served.kv"
    in_store = cared_for(run, alone, "--store", alone)
    token = tmp_path / "token"
    token.write_text(TOKEN)
    with KeyplanServer(
        served, "--setting", "keyspaces.sweep=off", environment={"KEYPLAN_ADMIN_TOKEN": TOKEN}
    ) as server:
        behind = cared_for(run, served, "--server", server.url, "--token-file", str(token))
        slow = run("keyspace", "sweep", "--keys-per-second", "5", "--server", server.url, "--token-file", str(token))
    assert [answer.code for answer in in_store] == [0, 0, 0, 0, 0, 0, 0, 1, 0, 0]
    assert [answer.code for answer in behind] == [answer.code for answer in in_store]
    assert [answer.out for answer in behind[5:]] == [answer.out for answer in in_store[5:]]
    assert json.loads(behind[5].out) == {"name": "old", "stage": "completed", "deleted_keys": 0, "waits_for": ""}
    assert behind[7].lines[0].startswith("repairable: fence new: ")
    assert json.loads(behind[0].out)["prefix_codec"] == "ordered"
    assert (slow.code, "keyspaces.sweep-keys-per-second" in slow.err) == (5, True)


def test_a_client_is_told_that_care_is_for_administrators(run: Keyplan, tmp_path: Path) -> None:
    with KeyplanServer(f"lmdb:{tmp_path}/served.kv", environment={"KEYPLAN_ADMIN_TOKEN": TOKEN}) as server:
        refused = run("doctor", "--json", "--server", server.url)
    assert (refused.code, refused.error["code"]) == (10, "forbidden")
