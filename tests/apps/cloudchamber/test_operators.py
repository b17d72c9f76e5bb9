"""What operators do with their own tools beside keyplan: etcdctl on its data, several processes on one rack."""

import os
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import IO

import pytest

import keyplan
from keyplan.apps.cloudchamber import CloudChamber, Rack, User
from keyplan.maintenance import check
from tests.apps.cloudchamber.conftest import raw_keys
from tests.servers.etcd import EtcdServer, etcdctl_environment, etcdctl_options

SECONDS_MAX = 20.0


def line_with(stream: IO[str], text: str) -> list[str]:
    """Read lines until one has `text`; return them all."""
    lines: list[str] = []
    until = time.monotonic() + SECONDS_MAX
    while not any(text in line for line in lines):
        ready, _, _ = select.select([stream], [], [], max(0.0, until - time.monotonic()))
        assert ready, f"no line with {text!r} in {lines}"
        # Why: unbuffered, so that `select` tells of everything that was not read.
        lines += os.read(stream.fileno(), 65_536).decode().splitlines()
    return lines


@pytest.mark.slow
def test_etcdctl_watches_and_purges_the_tests_and_leaves_production(etcd_server: EtcdServer) -> None:
    """R15, AC-21: the document's own commands, on what keyplan wrote."""
    below = "/CloudChamber/V0.1/Test/"
    with keyplan.open(etcd_server.emptied().url) as store:
        production = CloudChamber(store)
        tests = [CloudChamber(store, namespace=f"Test/{name}/") for name in ("Standard", "mine")]
        watching = subprocess.Popen(
            ["etcdctl", *etcdctl_options(etcd_server), "watch", "--prefix", below],
            stdout=subprocess.PIPE,
            text=True,
            env=etcdctl_environment(),
        )
        try:
            assert watching.stdout is not None
            # Why: etcdctl does not say when it watches; the first event that it shows does.
            lines: list[str] = []
            for number in range(200):
                tests[0].users.put("probe", User(user_id=number + 1))
                if select.select([watching.stdout], [], [], 0.1)[0]:
                    break
            production.users.insert("alice", User(name="alice"))
            for chamber in tests:
                chamber.users.insert("alice", User(name="alice"))
                chamber.racks.insert("rack1", Rack())
            tests[1].users.insert("last", User(name="last"))
            lines += line_with(watching.stdout, "users/last")
            assert {line for line in lines if line.startswith("/") and not line.endswith("probe")} == {
                f"{below}Standard/users/alice",
                f"{below}Standard/racks/rack1",
                f"{below}mine/users/alice",
                f"{below}mine/racks/rack1",
                f"{below}mine/users/last",
            }
            assert etcd_server.etcdctl("del", "--prefix", below).strip() == "6"
            lines = line_with(watching.stdout, "mine/users/last")
            assert "DELETE" in lines
            assert "PUT" not in lines
        finally:
            watching.terminate()
            watching.wait()
            assert watching.stdout is not None
            watching.stdout.close()
        assert raw_keys(store) == [b"/CloudChamber/V0.1/users/alice"]
        assert [list(chamber.users.keys()) for chamber in tests] == [[], []]


WRITER = """
import random, sys
import keyplan
from keyplan.apps.cloudchamber import Blade, BladeKey, Capacity, Pdu, Rack, RackDetails, Tor
from keyplan.apps.cloudchamber.chamber import Chamber, RackContents
from keyplan.errors import AlreadyExistsError, ConflictError
url, seed, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
chance = random.Random(seed)
with keyplan.open(url) as store:
    chamber = Chamber(store)
    for number in range(rounds):
        blades = {n: Blade(capacity=Capacity(cores=seed)) for n in range(1, chance.randint(2, 9))}
        contents = RackContents(Rack(details=RackDetails(notes=str(seed))), {0: Tor()}, {0: Pdu()}, blades)
        try:
            match chance.randint(0, 2):
                case 0: chamber.create_rack("rack1", contents)
                case 1: chamber.delete_rack("rack1")
                case 2:
                    there = chamber.layout.racks.versioned("rack1")
                    if there is not None:
                        chamber.layout.racks.update("rack1", contents.rack, expected_revision=there.revision)
        except (AlreadyExistsError, ConflictError, keyplan.errors.NotFoundError):
            pass
        found = chamber.read_rack("rack1")
        assert found is None or (found.tors and found.pdus and found.blades), "half a rack was seen"
"""


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["lmdb", "etcd"])
def test_four_processes_that_write_one_rack_leave_a_sound_store(
    engine: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """The short form of issue 6's minute."""
    if engine == "lmdb":
        url = f"lmdb:{tmp_path / 'kv'}?durability=none"
        keyplan.open(url).close()
    else:
        url = request.getfixturevalue("etcd_server").emptied().url
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, url, str(seed), "60"], stderr=subprocess.PIPE, text=True)
        for seed in range(4)
    ]
    complaints = [writer.communicate(timeout=50)[1] for writer in writers]
    assert complaints == [""] * 4
    with keyplan.open(url) as store:
        assert list(check(store, CloudChamber.bound())) == []
        assert store.revision > 20
        chamber = CloudChamber(store)
        has_rack = chamber.racks.exists("rack1")
        assert (chamber.tor.exists("rack1"), chamber.pdu.exists("rack1")) == (has_rack, has_rack)
        assert bool(chamber.blades.count("rack1")) is has_rack
