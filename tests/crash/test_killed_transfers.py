"""Copies and restores killed with signal 9: what is left is sound, nothing half is opened, and the next run finishes."""

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from keyplan.engine import ALL_KEYS, Commit, Engine, KeyRange, Put, open_engine
from keyplan.errors import KeySpaceRestoringError
from keyplan.files import new_file
from keyplan.keyspace import KeySpaces, State, open_key_space
from keyplan.maintenance import back_up_key_spaces
from tests.crash.transfer import transfer
from tests.maintenance.backups import content_of, put_all, write_backup

KILLS = 4
REPOSITORY = Path(__file__).parents[2]
DATA = {b"%05d" % number: b"v" * (number % 50) for number in range(4_000)}


@pytest.fixture
def chance() -> random.Random:
    seed = int(os.environ.get("KEYPLAN_SEED") or random.SystemRandom().randrange(1 << 32))
    print(f"KEYPLAN_SEED={seed}")  # shown by pytest when it fails
    return random.Random(seed)


@pytest.fixture
def source(tmp_path: Path) -> Iterator[Engine]:
    """A registry with orders at 01, with data."""
    with open_engine(f"lmdb:{tmp_path}/source.kv") as engine:
        KeySpaces(engine).create("orders", "shop")
        put_all(engine, {b"\x01" + key: value for key, value in DATA.items()})
        yield engine


def killed_after(commits: int, kind: str, origin: str, url: str) -> bool:
    """Run a transfer and kill it after so many commits; False when it ended before."""
    command = [sys.executable, "-m", "tests.crash.transfer", kind, origin, url]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if int(line) == commits:
                process.kill()
                break
        process.stdout.read()
    return process.returncode == -9


def outside_claims(engine: Engine) -> dict[bytes, bytes]:
    return {key: value for key, value in content_of(engine).items() if not key.startswith(b"\x00kt")}


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("kind", ["copy", "restore"])
def test_a_killed_copy_or_restore_is_finished_by_the_next(
    kind: str, source: Engine, chance: random.Random, tmp_path: Path
) -> None:
    expected = content_of(source)
    origin = f"lmdb:{tmp_path}/source.kv" if kind == "copy" else str(write_backup(source, tmp_path / "all.kpb"))
    kills = 0
    for run in range(KILLS):
        url = f"lmdb:{tmp_path}/target{run}.kv"
        kills += killed_after(chance.randint(1, 7), kind, origin, url)
        with open_engine(url) as engine:
            part = outside_claims(engine)
            assert part.items() <= expected.items()
        transfer(kind, origin, url)
        with open_engine(url) as engine:
            assert content_of(engine) == expected
    assert kills > 0


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_killed_restore_of_a_key_space_opens_nothing_and_is_finished_by_the_next(
    source: Engine, chance: random.Random, tmp_path: Path
) -> None:
    path = tmp_path / "orders.kpb"
    with new_file(path) as file:
        back_up_key_spaces(source, file, name="orders")
    restoring = 0
    for run in range(KILLS):
        url = f"lmdb:{tmp_path}/target{run}.kv"
        with open_engine(url) as engine:
            KeySpaces(engine).create("orders", "shop")
            engine.commit(Commit((), (Put(b"\x01old", b"old"),)))
        killed_after(chance.randint(2, 9), "restore-key-spaces", str(path), url)
        with open_engine(url) as engine:
            assert KeySpaces(engine).diagnose().is_sound
            if KeySpaces(engine).get("orders").state is State.RESTORING:
                restoring += 1
                with pytest.raises(KeySpaceRestoringError):
                    open_key_space(engine, "orders", "shop", session_seconds=None)
        transfer("restore-key-spaces", str(path), url)
        with open_engine(url) as engine:
            registry = KeySpaces(engine)
            assert registry.get("orders").state is State.ENABLED
            assert registry.diagnose().is_sound
            found = content_of(engine, KeyRange(b"\x01", ALL_KEYS.end))
            assert found == {b"\x01" + key: value for key, value in DATA.items()}
    assert restoring > 0
