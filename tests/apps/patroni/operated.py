"""What operators do with the clusters of `up` that are backed up, and see of them: by commands, and by the store."""

import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any, Self

import msgspec
import psycopg

import keyplan
from keyplan.apps.patroni import Broker
from keyplan.apps.patroni.backups.books import newest_book
from keyplan.apps.patroni.backups.records import BackupBook
from keyplan.apps.patroni.catalog import BUILT_IN_CATALOG
from keyplan.apps.patroni.diagnosis import diagnose
from keyplan.apps.patroni.records import Operation
from tests.apps.patroni.up_process import UpProcess, psql, why_no_up
from tests.servers.patroni import until

ROWS = "select string_agg(n::text, ' ' order by n) from story"


def why_no_backups() -> str | None:
    """Why nothing can be backed up here, None when it can."""
    if shutil.which("pgbackrest") is None:
        return "pgBackRest is not installed: apt-get install pgbackrest"
    return why_no_up()


@contextmanager
def backup_folder() -> Iterator[Path]:
    """A folder of the user that PostgreSQL runs as, in memory, for the length of a block."""
    folder = Path(tempfile.mkdtemp(prefix="keyplan-backups-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    if os.geteuid() == 0:
        shutil.chown(folder, "postgres")
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def write_catalog(file: Path, repository: Mapping[str, Any]) -> None:
    """Write a catalog whose plans all back clusters up there from their first moment, with a log of a second at most."""
    catalog = msgspec.to_builtins(BUILT_IN_CATALOG)
    for plan in catalog["services"][0]["plans"]:
        plan["backups"] = {"repository": repository, "archive_seconds": 1}
    file.write_text(json.dumps(catalog))


def ids_of(everything: UpProcess, plan: str) -> dict[str, str]:
    """What a platform says of an instance of this plan."""
    service = everything.call("GET", "/v2/catalog")[1]["services"][0]
    number = next(each["id"] for each in service["plans"] if each["name"] == plan)
    return {"service_id": service["id"], "plan_id": number, "organization_guid": "o", "space_guid": "s"}


def provision(everything: UpProcess, plan: str) -> None:
    """Make f1, with its first backup where the plan says so."""
    asked = everything.call("PUT", "/v2/service_instances/f1?accepts_incomplete=true", ids_of(everything, plan))
    assert asked[0] == 202, asked
    assert everything.until_done("f1") == "succeeded", everything.logs()


def bind(everything: UpProcess, name: str, plan: str) -> str:
    """Bind a user to f1; return how it logs in."""
    status, answer = everything.call(
        "PUT", f"/v2/service_instances/f1/service_bindings/{name}", ids_of(everything, plan)
    )
    assert status == 201, answer
    return str(answer["credentials"]["uri"])


def command(everything: UpProcess, words: str) -> str:
    return everything.bash(f"keyplan patroni {words} --store lmdb:/srv/clusters/store")


def done(everything: UpProcess, words: str) -> None:
    """Run a command that begins an operation, which succeeds."""
    told = command(everything, words)
    assert told.splitlines()[-1] == "keyplan: done", told + everything.logs()


def superuser_uri(everything: UpProcess, instance: str, *, sslmode: str = "require") -> str:
    """How to log in as an instance's superuser, at its leader, in the database of its bindings."""
    with keyplan.open(everything.ready["store"]) as store:
        broker = Broker(store)
        state, port = broker.instances.require(instance), broker.allocations.require(instance)
    user = state.superuser_credentials
    return f"postgres://{user.username}:{user.password.reveal()}@127.0.0.1:{port}/postgres?sslmode={sslmode}"


def operation_of(everything: UpProcess, instance: str = "f1") -> Operation:
    """An instance's last operation."""
    with keyplan.open(everything.ready["store"]) as store:
        return Broker(store).operations.require(instance)


def book_of(everything: UpProcess) -> BackupBook:
    """The backups that there are of f1."""
    with keyplan.open(everything.ready["store"]) as store:
        found = newest_book(Broker(store), "f1")
    assert found is not None
    return found


def faults(everything: UpProcess) -> list[str]:
    """What the doctor finds."""
    with keyplan.open(everything.ready["store"]) as store:
        return [f"{fault.kind} {fault.subject}" for fault in diagnose(store)]


def now_in(everything: UpProcess, uri: str) -> str:
    """The time in the database, as commands take it, later than the second that f1's first backup had ended in."""
    ended = book_of(everything).backups[0].ended_at + 1
    until(lambda: psql(uri, f"select clock_timestamp() > to_timestamp({ended})") == "t", 30, everything.logs)
    return psql(uri, "select to_char(clock_timestamp() at time zone 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')")


class StoryWriter:
    """Writes numbers into `story` through the router, one transaction each.

    It knows which were acknowledged, and for how long none was.
    """

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._stop = Event()
        self._thread = Thread(target=self._run, name="writer")
        self.acknowledged: list[int] = []
        self.refused_seconds = 0.0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        number, last = 0, time.monotonic()
        while not self._stop.is_set():
            try:
                with psycopg.connect(self._uri, connect_timeout=2, autocommit=True) as connection:
                    while not self._stop.wait(0.02):
                        number += 1
                        connection.execute("insert into story values (%s)", (number,))
                        self.acknowledged.append(number)
                        now = time.monotonic()
                        self.refused_seconds, last = max(self.refused_seconds, now - last), now
            except psycopg.Error:
                self._stop.wait(0.1)
