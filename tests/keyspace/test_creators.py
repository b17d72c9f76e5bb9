"""Many creators at once: distinct prefixes without gaps, one commit for each key space, nothing of a loser's stays."""

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from keyplan.engine import ALL_KEYS, Commit, DeleteRange, Engine, known_schemes, open_engine
from keyplan.errors import KeySpaceExistsError, PrefixInUseError
from keyplan.keyspace import Founding, KeySpaces, Mark
from tests.keyspace.stores import names_of

PROCESSES: Final = 4
SHARES: Final = (13, 13, 12, 12)


@pytest.fixture(params=["lmdb", "etcd"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "lmdb":
        yield f"lmdb:{tmp_path / 'store'}?durability=none"
        return
    if "etcd" not in known_schemes():
        pytest.skip("the etcd engine is not there")
    server_url = str(request.getfixturevalue("etcd_server").url)
    with open_engine(server_url) as engine:
        engine.commit(Commit((), (DeleteRange(ALL_KEYS),)))
    yield server_url


@pytest.mark.slow
def test_50_creators_of_4_processes_get_50_prefixes_without_gaps_and_make_50_commits(url: str) -> None:
    with open_engine(url) as engine:
        registry = KeySpaces(engine, founding=Founding(skip_printable=False))
        registry.init()
        before = revision(engine)
        made = dict(line.split() for line in created(url))
        assert sorted(made) == sorted(f"k{number}" for number in range(50))
        assert sorted(made.values()) == [f"{number:02x}" for number in range(1, 51)]
        assert revision(engine) == before + 50
        assert registry.diagnose().faults == []
        assert registry.verify_audit().entries == 51


def created(url: str) -> Iterator[str]:
    """Start the processes, let them go at once, and yield the lines that they print."""
    with ExitStack() as stack:
        processes = []
        first = 0
        for share in SHARES:
            command = [sys.executable, "-m", "tests.keyspace.creator", url, str(first), str(share)]
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            processes.append(stack.enter_context(process))
            first += share
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        for process in processes:
            output, _ = process.communicate(timeout=150)
            assert process.returncode == 0
            yield from output.splitlines()


def revision(engine: Engine) -> int:
    with engine.snapshot() as snapshot:
        return snapshot.revision


def test_ac_12_of_two_creators_of_one_name_one_wins_and_no_number_is_lost(engine: Engine, registry: KeySpaces) -> None:
    registry.init()

    def outcome(_: int) -> str:
        try:
            return registry.create("orders", "shop").prefix
        except KeySpaceExistsError as error:
            return error.code

    with ThreadPoolExecutor(4) as pool:
        outcomes = sorted(pool.map(outcome, range(4)))
    assert outcomes == ["01", *["keyspace_exists"] * 3]
    assert registry.create("next", "shop").prefix == "02"
    assert names_of(registry) == ["orders", "next"]


def test_of_two_creators_with_one_prefix_one_wins(registry: KeySpaces) -> None:
    registry.init()

    def outcome(name: str) -> str:
        try:
            return registry.create(name, "shop", prefix="6d").name
        except PrefixInUseError as error:
            return error.code

    with ThreadPoolExecutor(4) as pool:
        outcomes = list(pool.map(outcome, "abcd"))
    assert outcomes.count("prefix_in_use") == 3
    (winner,) = names_of(registry)
    assert winner in outcomes
    marks: list[tuple[bytes, Mark]] = registry.marks()
    assert marks == []
