"""`keyplan who`, and what `keyplan doctor` says of files that are open to others."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from keyplan.engine import Commit, Put, open_engine, store_users
from keyplan.testing.engine_suite import eventually

HOLDS = """
import os, signal, sys
from keyplan.engine import *
engine = open_engine(sys.argv[1])
snapshot = engine.snapshot()
def work(target):
    print("writing", flush=True)
    sys.stdin.read()
engine._environment.write(work)
"""


def keyplan(*arguments: str) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "COLUMNS": "200"}
    environment.pop("KEYPLAN_STORE", None)
    return subprocess.run(
        [Path(sys.executable).with_name("keyplan"), *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )


def made(folder: Path) -> str:
    url = f"lmdb:{folder}"
    with open_engine(url) as engine:
        engine.commit(Commit((), (Put(b"a", b""),)))
    return url


def test_who_writes_and_who_reads_is_told_while_it_does(tmp_path: Path) -> None:
    url = made(tmp_path / "store")
    command = [sys.executable, "-c", HOLDS, url]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        assert writer.stdin is not None
        assert writer.stdout.readline() == "writing\n"
        told = keyplan("who", "--store", url, "--json")
        as_text = keyplan("who", "--store", url)
        writer.stdin.close()
    users = {user["activity"]: user for user in json.loads(told.stdout)["users"]}
    assert set(users) == {"writing", "reading"}
    assert {user["process"] for user in users.values()} == {writer.pid}
    assert users["writing"]["since"].startswith("20")
    assert users["writing"]["is_alive"]
    assert f"process {writer.pid}, writing since 20" in as_text.stdout


def test_who_waits_for_a_process_that_writes_alone_is_told_as_waiting(tmp_path: Path) -> None:
    url = made(tmp_path / "store")
    command = [sys.executable, "-c", HOLDS, url]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        assert writer.stdin is not None
        assert writer.stdout.readline() == "writing\n"
        waits = [sys.executable, "-c", "import sys, keyplan; keyplan.open(sys.argv[1]).close()", url]
        with subprocess.Popen(waits) as waiting:

            def activities() -> dict[int, str]:
                return {user.process: user.activity for user in store_users(url) if user.activity != "reading"}

            eventually(lambda: waiting.pid in activities())
            eventually(lambda: activities().get(waiting.pid) != "open for writing")
            assert activities() == {writer.pid: "writing", waiting.pid: "waiting to write"}
            writer.stdin.close()
            assert waiting.wait() == 0


def test_a_reader_that_was_killed_is_told_as_dead(tmp_path: Path) -> None:
    url = made(tmp_path / "store")
    command = [sys.executable, "-c", HOLDS, url]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "writing\n"
        # Why: who opens a store that nobody else has open begins with an empty table of readers.
        with open_engine(f"{url}?readonly=true"):
            reader.kill()
            reader.wait()
            eventually(lambda: not Path(f"/proc/{reader.pid}").exists())
            told = keyplan("who", "--store", url, "--json")
    (user,) = json.loads(told.stdout)["users"]
    assert (user["process"], user["activity"], user["is_alive"]) == (reader.pid, "reading", False)


@pytest.mark.parametrize("command", ["who", "doctor"])
def test_files_that_are_open_to_others_are_named_with_the_remedy(tmp_path: Path, command: str) -> None:
    url = made(tmp_path / "store")
    assert "open to others" not in (done := keyplan(command, "--store", url)).stdout + done.stderr
    (tmp_path / "store/data.mdb").chmod(0o644)
    (tmp_path / "store").chmod(0o755)
    done = keyplan(command, "--store", url)
    told = done.stdout + done.stderr
    assert f"{tmp_path}/store/data.mdb has mode 0644; run: chmod 0600 {tmp_path}/store/data.mdb" in told
    assert f"{tmp_path}/store has mode 0755; run: chmod 0700 {tmp_path}/store" in told
    done = keyplan(command, "--store", f"{url}?mode=0644")
    assert "open to others" not in done.stdout + done.stderr


def test_other_engines_have_no_such_list(tmp_path: Path) -> None:
    done = keyplan("who", "--store", "memory:")
    assert done.returncode != 0
    assert "only lmdb:PATH tells who has it open" in done.stderr
    assert "there is no store here" in keyplan("who", "--store", f"lmdb:{tmp_path}/none").stderr
    assert not (tmp_path / "none").exists()


def test_who_looks_in_a_process_that_has_the_store_open_takes_none_of_its_locks_away(tmp_path: Path) -> None:
    url = made(tmp_path / "store")
    with open_engine(url) as engine, engine.snapshot() as snapshot:
        assert snapshot.get(b"a") is not None
        assert store_users(url) == []
        told = json.loads(keyplan("who", "--store", url, "--json").stdout)["users"]
    assert {(user["process"], user["activity"]) for user in told} == {
        (os.getpid(), "open for writing"),
        (os.getpid(), "reading"),
    }
