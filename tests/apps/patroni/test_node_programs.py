"""Programs that a cell's tasks run: how they end with the cell's agent. No PostgreSQL runs here."""

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from keyplan.apps.patroni.backups.node_programs import TaskFailedError, TaskProcesses
from tests.servers.patroni import until

DEAF = "import pathlib, signal, sys; signal.signal({signal}, signal.SIG_IGN); pathlib.Path(sys.argv[1]).touch(); signal.pause()"


@pytest.mark.timeout(60)
@pytest.mark.parametrize("ignored", ["signal.SIGTERM", "signal.SIGUSR1"])
def test_a_program_that_hears_no_request_to_end_is_killed_with_the_agent(tmp_path: Path, ignored: str) -> None:
    processes, runs = TaskProcesses(), tmp_path / "runs"
    command = [sys.executable, "-c", DEAF.format(signal=ignored), str(runs)]
    with ThreadPoolExecutor(1) as pool:
        begun = pool.submit(processes.run, command, {})
        until(runs.exists, 30, lambda: "it has not begun")
        # Why so long for one that hears it: it has to be the request that ends it.
        processes.close(0.1 if ignored == "signal.SIGTERM" else 600)
        with pytest.raises(TaskFailedError, match="the agent ends"):
            begun.result(30)
    with pytest.raises(TaskFailedError, match="the agent ends"):
        processes.run(command, {})
