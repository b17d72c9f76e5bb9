"""Backups in a bucket, with real Patroni, PostgreSQL, pgBackRest and S3, which goes away and comes back."""

import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.apps.patroni.operated import (
    ROWS,
    command,
    done,
    faults,
    provision,
    superuser_uri,
    why_no_backups,
    write_catalog,
)
from tests.apps.patroni.up_process import UpProcess, psql, up_process
from tests.servers.authority import Authority
from tests.servers.patroni import until
from tests.servers.s3 import BUCKET, KEY, SECRET, S3Server, why_no_s3

ASKED_SECONDS_MAX = 90
"""How long somebody waits who asks for what S3 does not answer: four tries of five seconds, and what a busy machine adds."""


@pytest.fixture
def s3() -> Iterator[S3Server]:
    problem = why_no_backups() or why_no_s3()
    if problem is not None:
        pytest.skip(f"needs backups of PostgreSQL clusters in S3: {problem}")
    # Why not tmp_path: nodes' users read the authority's certificate, and may not enter there.
    folder = Path(tempfile.mkdtemp(prefix="keyplan-s3-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    folder.chmod(0o755)
    try:
        with S3Server(folder, Authority.create(folder / "authority")) as server:
            yield server
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def everything(s3: S3Server, tmp_path: Path) -> Iterator[UpProcess]:
    catalog, keys = tmp_path / "catalog.json", tmp_path / "keys"
    write_catalog(catalog, {"folder": "/clusters", "s3": s3.as_repository()})
    keys.touch(0o600)
    keys.write_text(f"{KEY}\n{SECRET}\n")
    with up_process(cells=1, settings=[f"catalog={catalog}"], options=("--bucket-keys", f"{BUCKET}={keys}")) as process:
        yield process


def asked(everything: UpProcess, words: str) -> str:
    """Ask for what cannot be done now; return what is said, which comes in bounded time."""
    began = time.monotonic()
    told = command(everything, words)
    seconds = time.monotonic() - began
    print(f"{words}: {seconds:.1f} s: {told}")
    assert seconds < ASKED_SECONDS_MAX
    return told


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_backups_lie_in_s3_which_may_go_away_and_all_is_caught_up_with_when_it_is_back(
    everything: UpProcess, s3: S3Server
) -> None:
    provision(everything, "solo")
    uri = superuser_uri(everything, "f1")
    until(
        lambda: psql(uri, "create table story (n int); insert into story values (1); select 1") == "1",
        60,
        everything.logs,
    )

    # It takes connections, and says nothing.
    s3.halt()
    assert psql(uri, "insert into story values (2); select 1") == "1"
    told = asked(everything, "verify-backup f1")
    assert "the verification of backup " in told
    assert f"timeout after 5000ms waiting for read from '{s3.endpoint}'" in told
    assert "archive-failing f1" in faults(everything)
    assert "a restore would lose what was written since" in command(everything, "status f1")
    s3.go_on()

    # Why written to: PostgreSQL tries again after a minute, or when there is more to archive.
    assert psql(uri, "insert into story values (3); select 1") == "1"
    until(lambda: "archive-failing f1" not in faults(everything), 90, everything.logs)
    done(everything, "verify-backup f1")
    until(lambda: faults(everything) == [], 60, everything.logs)
    done(everything, "restore f1 --as f2")
    assert psql(superuser_uri(everything, "f2"), ROWS) == "1 2 3"
