"""An upgrade of a cluster that is backed up, from PostgreSQL 15 to 18, and restores to times before it and after it.

It takes a pgBackRest that knows both versions, which Debian 12's 2.45 does not: `KEYPLAN_PGBACKREST` names one.
"""

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.apps.patroni.operated import (
    StoryWriter,
    backup_folder,
    bind,
    book_of,
    command,
    done,
    faults,
    now_in,
    operation_of,
    provision,
    superuser_uri,
    why_no_backups,
    write_catalog,
)
from tests.apps.patroni.up_process import UpProcess, psql, up_process
from tests.apps.patroni.versions import FORMER, programs_of_18, why_no_upgrade
from tests.servers.patroni import until

VARIABLE = "KEYPLAN_PGBACKREST"
KNOWS_18_SINCE = (2, 57)


def named_pgbackrest() -> str | None:
    return os.environ.get(VARIABLE) or shutil.which("pgbackrest")


def why_not() -> str | None:
    """Why no cluster that is backed up can be upgraded here, None when one can."""
    if problem := why_no_upgrade() or why_no_backups():
        return problem
    program = named_pgbackrest()
    assert program is not None
    said = subprocess.run([program, "version"], capture_output=True, text=True, check=False).stdout
    found = re.match(r"pgBackRest (\d+)\.(\d+)", said)
    if found is None or (int(found[1]), int(found[2])) < KNOWS_18_SINCE:
        return f"{program} does not know PostgreSQL 18: {VARIABLE}=PROGRAM names one that does, and 15 too ({said.strip()})"
    return None


@pytest.fixture
def everything(tmp_path: Path) -> Iterator[UpProcess]:
    problem = why_not()
    if problem is not None:
        pytest.skip(f"needs PostgreSQL 15 and 18, Patroni, and a pgBackRest that knows both: {problem}")
    file = tmp_path / "catalog.json"
    with backup_folder() as folder:
        # Why there: nodes find programs in this folder first, and tmp_path is closed to their user.
        programs = folder / "15"
        programs.mkdir()
        for program in FORMER.iterdir():
            (programs / program.name).symlink_to(program)
        (programs / "pgbackrest").symlink_to(str(named_pgbackrest()))
        (repository := folder / "backups").mkdir()
        if os.geteuid() == 0:
            shutil.chown(repository, "postgres")
        write_catalog(file, {"folder": str(repository)})
        options = ("--postgresql", str(programs), "--also-postgresql", str(programs_of_18()))
        settings = [f"catalog={file}"]
        # Why without TLS: the wheel's programs are built without it.
        with up_process(
            cells=1, settings=settings, options=options, has_instance_users=False, has_tls=False
        ) as process:
            yield process


def uri_of(everything: UpProcess, instance: str = "f1") -> str:
    return superuser_uri(everything, instance, sslmode="disable")


def version_of(everything: UpProcess, instance: str = "f1") -> str:
    return psql(uri_of(everything, instance), "show server_version").partition(".")[0]


def numbers_in(everything: UpProcess, instance: str = "f1") -> set[int]:
    return {int(line) for line in psql(uri_of(everything, instance), "select n from story").split()}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_cluster_that_is_backed_up_is_upgraded_and_restored_to_times_before_and_after(everything: UpProcess) -> None:
    provision(everything, "solo")
    bound = bind(everything, "b1", "solo")
    until(lambda: psql(bound, "create table story (n int primary key); select 1") == "1", 60, everything.logs)
    former = book_of(everything)
    with StoryWriter(bound) as writer:
        until(lambda: len(writer.acknowledged) > 10, 60, everything.logs)
        first = [*writer.acknowledged]
        before = now_in(everything, uri_of(everything))
        command(everything, "upgrade f1 --to 18 --yes --no-wait")
        until(lambda: step_of(everything) == "wait_upgraded", 150, everything.logs)
        for name in ("broker", "cell1"):
            everything.part(name).send(signal.SIGKILL)
        assert everything.until_done("f1") == "succeeded", f"{operation_of(everything).message}\n{everything.logs()}"
        count = len(writer.acknowledged)
        until(lambda: len(writer.acknowledged) > count + 10, 60, everything.logs)
    written = set(writer.acknowledged)
    assert (version_of(everything), numbers_in(everything) >= written) == ("18", True)
    # What was not acknowledged may be there, too.
    written = numbers_in(everything)

    # It has an archive of its own, with a backup; that of before stays, and knows its version.
    latter = book_of(everything)
    assert (former.version, latter.version, len(latter.backups)) == ("15", "18", 1)
    assert latter.archive.stanza != former.archive.stanza
    assert psql(uri_of(everything), "insert into story values (-1); select 1") == "1"
    after = now_in(everything, uri_of(everything))
    assert psql(uri_of(everything), "insert into story values (-2); select 1") == "1"
    done(everything, "backup f1 --kind incremental")
    done(everything, "verify-backup f1")
    assert faults(everything) == []

    done(everything, f"restore f1 --as f2 --to {before}")
    assert version_of(everything, "f2") == "15"
    restored = numbers_in(everything, "f2")
    assert set(first) <= restored < written
    done(everything, f"restore f1 --as f3 --to {after}")
    assert version_of(everything, "f3") == "18"
    assert numbers_in(everything, "f3") == {*written, -1}

    done(everything, "upgrade f1 --back --yes")
    assert version_of(everything) == "15"
    back = numbers_in(everything)
    assert restored < back < written
    done(everything, "backup f1")
    done(everything, "upgrade f1 --back --yes")
    assert (version_of(everything), numbers_in(everything)) == ("18", {*written, -1, -2})
    done(everything, "backup f1")
    done(everything, "upgrade f1 --finish --yes")
    assert faults(everything) == []


def step_of(everything: UpProcess) -> str:
    found = operation_of(everything)
    assert found.status == "in-progress", found.message
    return found.steps[found.completed_steps].kind if found.completed_steps < len(found.steps) else ""
