"""What the campaign would find is found: a lost row, more log than allowed, two leaders, a secret; and nothing outlives it.

The campaign itself is scripts/patroni-campaign: hours of real clusters.
"""

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.apps.patroni.campaign.accounting import (
    Acknowledged,
    Loss,
    leaders_at_once,
    losses,
    lost_rows,
    stale,
    wal_position,
)
from tests.apps.patroni.campaign.faults import FAULTS
from tests.apps.patroni.campaign.hosts import why_no_hosts
from tests.apps.patroni.campaign.leaks import CommandLines, Leak, in_files, in_processes
from tests.apps.patroni.campaign.main import Lane, Waiting, is_kept, taken
from tests.apps.patroni.campaign.report import report_of
from tests.apps.patroni.campaign.wall_clock import WallClock, why_no_clock
from tests.processes import is_running
from tests.servers.patroni import until

ROOT = Path(__file__).parents[3]
SECRET = "a-secret-that-no-program-has"
needs_hosts = pytest.mark.skipif(why_no_hosts() is not None, reason=f"{why_no_hosts()}")


def row(sequence: int, at: float, *, server: str = "a", timeline: int = 1, position: int = 0) -> Acknowledged:
    return Acknowledged(0, sequence, at, at + 0.1, server, timeline, position)


# ---- rows ------------------------------------------------------------------------------------------------------------------


def test_a_row_that_is_not_there_is_lost_and_measured_from_where_its_timeline_was_left() -> None:
    rows = [row(number, number, position=number * 1000) for number in range(1, 41)]
    lost = lost_rows(rows, frozenset((0, number) for number in range(1, 37)))
    assert [each.sequence for each in lost] == [37, 38, 39, 40]
    measured = losses(lost, rows, {1: 36_500}, lag_bytes_max=500, ttl_seconds=20)
    # Of the last 20 s are the rows from 20 on; the last one ends at 40,000.
    assert measured == [Loss(1, 4, 3_500, 500 + 20_000)]
    assert measured[0].is_within_bound


def test_more_log_than_a_replica_may_lack_is_beyond_the_bound() -> None:
    rows = [row(number, number, position=number * 1000) for number in range(1, 41)]
    (measured,) = losses(rows[9:], rows, {1: 9_000}, lag_bytes_max=500, ttl_seconds=20)
    assert (measured.rows, measured.log_bytes, measured.is_within_bound) == (31, 31_000, False)


def test_a_row_lost_of_a_timeline_that_nobody_left_is_allowed_by_nothing() -> None:
    rows = [row(1, 1, timeline=3, position=10)]
    (measured,) = losses(rows, rows, {1: 5, 2: 7}, lag_bytes_max=1 << 20, ttl_seconds=20)
    assert not measured.is_within_bound


def test_a_former_leader_that_acknowledges_after_the_next_one_is_seen() -> None:
    began_before = Acknowledged(0, 3, 2.0, 9.0, "a", 1, 0)
    rows = [row(1, 1), row(2, 3, server="b", timeline=2), began_before, row(4, 5, server="a", timeline=1)]
    assert [each.sequence for each in stale(rows)] == [4], "what was asked for before the next one led is no mistake"


def test_two_servers_of_one_timeline_are_seen() -> None:
    assert leaders_at_once([row(1, 1), row(2, 2, server="b", timeline=2)]) == {}
    assert leaders_at_once([row(1, 1), row(2, 2, server="b")]) == {1: ["a", "b"]}


def test_a_position_is_read_as_postgresql_writes_it() -> None:
    assert wal_position("16/B374D848") == 0x16_B374D848


# ---- secrets ---------------------------------------------------------------------------------------------------------------


def test_a_secret_in_a_log_or_in_a_file_for_others_is_found_and_none_that_is_its_owners(tmp_path: Path) -> None:
    for name, mode in (("private", 0o600), ("log", 0o600), ("group.conf", 0o640), ("all.conf", 0o604)):
        (tmp_path / name).write_text(f"password={SECRET}\n")
        (tmp_path / name).chmod(mode)
    assert in_files({"one": SECRET, "absent": "x" * 40, "empty": ""}, tmp_path) == [
        Leak("one", "file of mode 604 all.conf"),
        Leak("one", "file of mode 640 group.conf"),
        Leak("one", "log log"),
    ]


def test_a_secret_is_found_wherever_it_stands_in_a_long_log(tmp_path: Path) -> None:
    place = (1 << 20) - len(SECRET) // 2
    (tmp_path / "long.log").write_bytes(b"x" * place + SECRET.encode() + b"y" * (65 << 20) + SECRET[::-1].encode())
    secrets = {"one": SECRET, "other": SECRET[::-1]}
    assert in_files(secrets, tmp_path) == [Leak("one", "log long.log"), Leak("other", "log long.log")]


@contextmanager
def waiting(*words: str, **environment: str) -> Iterator[None]:
    command = [sys.executable, "-c", "print(flush=True); input()", *words]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, **pipes, env={**os.environ, **environment}) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield
        finally:
            process.kill()


def test_a_secret_in_a_command_line_or_an_environment_is_found() -> None:
    secrets = {"one": SECRET[::-1]}  # Why: this process's own environment names the test, and may name more.
    program = os.path.basename(sys.executable)
    assert in_processes(secrets) == []
    with waiting(secrets["one"]), CommandLines(secrets) as seen:
        until(lambda: bool(seen.found), 30, lambda: "it is not seen")
        assert in_processes(secrets) == seen.found == [Leak("one", f"command line of {program}")]
    with waiting(PASSWORD=secrets["one"]):
        assert in_processes(secrets) == [Leak("one", f"environment of {program}")]


# ---- what is told ----------------------------------------------------------------------------------------------------------


def fault(**more: Any) -> dict[str, Any]:
    plain = {"kind": "fault", "store": "etcd", "mode": "async", "seed": 7, "number": 1, "fault": FAULTS[0].name}
    seen = {"acknowledged": 100, "lost": [], "lost_rows": 0, "stale": 0, "stale_and_lost": 0, "stale_seconds": 0.0}
    times = {"outage_seconds": 12.4, "whole_seconds": 3.0, "is_whole": True}
    return {**plain, **seen, **times, "two_leaders": {}, "differing": [], "notes": [], **more}


def loss(*, is_within_bound: bool) -> dict[str, Any]:
    lost = {"timeline": 1, "rows": 3, "log_bytes": 900, "log_bytes_max": 1000, "is_within_bound": is_within_bound}
    return {"lost": [lost], "lost_rows": 3}


@pytest.mark.parametrize(
    ("record", "expected", "told"),
    [
        (fault(), True, "| etcd itself | async | 1 | 100 | 0 |"),
        (
            fault(**loss(is_within_bound=True)),
            True,
            "3 acknowledged rows of timeline 1 lost, 900 bytes of log, within the bound",
        ),
        (fault(**loss(is_within_bound=False)), False, "**beyond what is allowed**"),
        (fault(mode="sync", **loss(is_within_bound=True)), False, "**beyond what is allowed**"),
        (fault(two_leaders={"4": ["a", "b"]}), False, "**two leaders of one timeline**"),
        (fault(differing=["cell2: it does not come"]), False, "**a replica differs**: cell2"),
        (fault(is_whole=False, state="cell1 -"), False, "**the cluster is not whole again**: cell1 -"),
        (
            {**fault(), "kind": "secrets", "searched": ["one"], "found": ["one: log x"], "open_to_others": []},
            False,
            "**a secret is found**: one: log x",
        ),
        ({**fault(), "kind": "stuck", "problem": "it does not come\nlog"}, False, "**given up**"),
        ({**fault(), "kind": "ended", "code": 1}, False, "**given up**"),
    ],
)
def test_the_report_and_the_exit_code_tell_of_it(record: dict[str, Any], told: str, *, expected: bool) -> None:
    assert is_kept(record) is expected
    assert told in report_of([record])


def test_a_loss_that_nothing_allows_is_the_worst_of_all_and_is_said_to_be_unmeasured() -> None:
    within = fault(**loss(is_within_bound=True))
    (unmeasured,) = losses([row(1, 1, timeline=3)], [row(1, 1, timeline=3)], {}, lag_bytes_max=1, ttl_seconds=20)
    lost = {**unmeasured._asdict(), "is_within_bound": unmeasured.is_within_bound}
    report = report_of([within, fault(number=2, lost=[lost], lost_rows=1)])
    assert "| 4 | of unknown length |" in report
    assert "-1" not in report
    assert "| 3 | 900 of 0 |" in report_of([fault(mode="sync", **loss(is_within_bound=True))])


def test_no_folder_of_the_machine_stands_in_the_report() -> None:
    notes = ["store ended by itself: lmdb:/some/where/store: http://10.77.0.1:8210/v2/keys; log /some/where/log"]
    report = report_of([fault(notes=notes), {**fault(), "kind": "stuck", "problem": "/some/where/psql: no\nmore"}])
    assert "store ended by itself: lmdb:store: http://10.77.0.1:8210/v2/keys; log log" in report
    assert "psql: no." in report
    assert "/some" not in report


def lane(*, first: int = 1, seconds: float = 60) -> Lane:
    process = subprocess.Popen(["true"], text=True)
    process.wait()
    return Lane(Waiting("etcd", "sync", 7, time.monotonic() + seconds, first), process)


def test_what_gave_up_goes_on_behind_its_own_last_fault_whatever_else_the_records_have() -> None:
    one = lane()
    records = io.StringIO()
    taken(one, json.dumps(fault(number=2)), records)
    taken(one, json.dumps({"kind": "secrets", "found": []}), records)
    assert one.rest(10) == one.begun._replace(first=3)
    assert one.rest(2) is None, "all is done"
    assert lane().rest(10) is None, "what told of nothing would not begin the next time either"
    late = lane(seconds=-1)
    taken(late, json.dumps(fault(number=2)), records)
    assert late.rest(10) is None, "its time is over"


# ---- clock and machines ------------------------------------------------------------------------------------------------


@pytest.mark.skipif(why_no_clock() is not None, reason=f"{why_no_clock()}")
def test_a_wall_clock_is_set_for_a_program_that_runs_and_no_other_clock(tmp_path: Path) -> None:
    clock = WallClock(tmp_path / "clock")
    program = (
        "import time\nwhile input() != 'end':\n print(time.time(), time.monotonic(), flush=True); time.sleep(0.01)"
    )
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", program], **pipes, env={**os.environ, **clock.environment}) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for off in (0, 3600, -45, 0):
            clock.set(off)
            process.stdin.write("what\n")
            process.stdin.flush()
            wall, monotonic = map(float, process.stdout.readline().split())
            assert abs(wall - time.time() - off) < 20
            assert abs(monotonic - time.monotonic()) < 20
        process.stdin.write("end\n")
    assert process.returncode == 0


MACHINES = """
import pathlib, socket, sys, tempfile
from tests.apps.patroni.campaign.hosts import CENTRE, Host, make_centre
from tests.servers.patroni import until
import subprocess

with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
    make_centre()
    one, other = (Host(number, pathlib.Path(folder) / str(number), disk_bytes=4 << 20, group=0) for number in (1, 2))
    server = socket.create_server((CENTRE, 7000))

    def reaches(host, port=7000):
        program = f"import socket; socket.create_connection(({CENTRE!r}, {port}), timeout=0.5)"
        return subprocess.run(host.within(sys.executable, "-c", program), capture_output=True).returncode == 0

    assert reaches(one) and reaches(other)
    with one.unplugged():
        assert not reaches(one) and reaches(other)
    until(lambda: reaches(one), 30, lambda: "it is not healed")
    with one.cut_from([CENTRE], [7000]):
        assert not reaches(one) and reaches(other)
    assert reaches(one)
    with one.full():
        try:
            (one.disk / "more").write_bytes(bytes(8192))
        except OSError as error:
            assert "space" in str(error), error
        else:
            raise AssertionError("it is not full")
        (other.disk / "more").write_bytes(bytes(8192))
    (one.disk / "more").write_bytes(bytes(8192))
    running = subprocess.Popen(one.within("sleep", "600"))
    until(lambda: one.processes() == [running.pid], 30, lambda: f"{one.processes()}")
    one.kill_all()
    assert running.wait() == -9 and other.processes() == []
    one.remove(), other.remove()
    for host in (one, other):
        subprocess.run(["umount", str(host.disk)], check=True)
"""


@needs_hosts
def test_what_is_done_to_one_machine_is_done_to_it_alone() -> None:
    done = subprocess.run(
        ["unshare", "--net", "--mount", "--pid", "--fork", "--mount-proc", sys.executable, "-c", MACHINES],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr


def below(pid: int) -> set[int]:
    """What a process has started, and what that has."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            parent = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[1]
            children.setdefault(int(parent), []).append(int(entry.name))
    found, asked = set[int](), [pid]
    while asked:
        asked = [child for each in asked for child in children.get(each, ())]
        found.update(asked)
    return found


@needs_hosts
@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_outlives_a_campaign_that_is_ended(number: signal.Signals) -> None:
    command = [
        sys.executable,
        "-m",
        "tests.apps.patroni.campaign.main",
        "1",
        "--store",
        "embedded-v3",
        "--mode",
        "async",
    ]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        started: set[int] = set()

        def is_up() -> bool:
            started.update(below(process.pid))
            # Why so many: the machines are made, and first programs run on them.
            return len(started) > 4 or process.poll() is not None

        until(is_up, 60, lambda: f"only {started} run")
        if process.poll() is not None:
            assert process.stderr is not None
            pytest.skip(process.stderr.read())
        process.send_signal(number)
        process.wait(60)
    until(lambda: not any(map(is_running, started)), 60, lambda: f"of {started} some run still")
