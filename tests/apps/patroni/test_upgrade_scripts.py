"""What is run beside PostgreSQL for an upgrade, on real servers of both versions: what stands in the way, and what is made."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from keyplan.apps.patroni.node_host import as_user
from keyplan.apps.patroni.upgrades.script import (
    PROBLEM_WORD,
    Asked,
    Versions,
    checking_script,
    making_script,
    settings_text,
)
from tests.apps.patroni.versions import FORMER, programs_of_18, why_no_upgrade
from tests.servers.postgres import PostgresServer, why_no_postgres

TABLE = "create table story (n int); insert into story select generate_series(1, 100)"


def versions() -> Versions:
    programs = programs_of_18()
    assert programs is not None
    return Versions(FORMER, programs, "18")


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    problem = why_no_upgrade() or why_no_postgres()
    if problem is not None:
        pytest.skip(f"needs PostgreSQL 15 and 18: {problem}")
    with PostgresServer(arguments=("-c", "max_prepared_transactions=2", "-c", "wal_level=logical")) as found:
        yield found
    shutil.rmtree(found.folder, ignore_errors=True)


def home_of(server: PostgresServer) -> Path:
    """A folder of the user that the server runs as."""
    made = server.folder / "home"
    if not made.exists():
        made.mkdir()
        if os.geteuid() == 0:
            shutil.chown(made, "postgres", "postgres")
    return made


def run(server: PostgresServer, text: str) -> "subprocess.CompletedProcess[str]":
    script = home_of(server) / "script.sh"
    script.write_text(text)
    command = ["/bin/sh", str(script)]
    command = as_user("postgres", *command) if os.geteuid() == 0 else command
    return subprocess.run(
        command,
        check=False,
        capture_output=True,
        text=True,
        cwd="/",
        timeout=60,
        env={"PATH": "/usr/bin:/bin", "LANG": "C"},
    )


def problems(
    server: PostgresServer, parameters: dict[str, str] | None = None, *, has_archive: bool = False
) -> list[str]:
    """What a check finds, of a schema of now."""
    settings = home_of(server) / "settings"
    settings.write_text(settings_text(parameters or {}))
    asked = Asked(str(server.folder), server.port, "postgres")
    text = checking_script(
        versions(), asked, home=server.folder, settings=settings, has_schema=True, has_archive=has_archive
    )
    ended = run(server, text)
    assert ended.returncode == 0, ended.stderr
    assert not (server.folder / "upgrade-check").exists()
    return [line.removeprefix(PROBLEM_WORD) for line in ended.stdout.splitlines() if line.startswith(PROBLEM_WORD)]


def test_all_that_stands_in_the_way_is_found_at_once_and_named(server: PostgresServer) -> None:
    server.query(TABLE)
    server.query('create role "odd ""name" login superuser; create materialized view seen as select n from story')
    found = problems(server, has_archive=True)
    if found:
        # Why either: Debian's pgBackRest 2.45 knows versions up to 15, and none may be installed.
        assert len(found) == 1
        assert "the cell's pgBackRest does not know PostgreSQL 18: install a newer one" in found[0]

    server.query("select pg_create_logical_replication_slot('fed', 'pgoutput')")
    server.query("create subscription heard connection 'dbname=none' publication p with (connect = false)")
    server.query("create database shut")
    server.query("alter database shut allow_connections false")
    server.query("create domain named as regproc; create table kept (n int, way named[])")
    server.query("create table above (n int); create table below () inherits (above)")
    server.query("alter table only above alter n set not null")
    server.query("begin; create table late (n int); prepare transaction 'p'")  # last: a slot waits for it
    server.query("create extension old_snapshot")  # Debian's 15 has it, and no version from 17 on.
    found = problems(server)
    for word in (
        "there are prepared transactions: commit them, or roll them back",
        "logical replication slots would be lost; drop them first: fed",
        "subscriptions would not know how far they are; drop them first: heard",
        "databases that take no connections cannot be read; allow them, or drop the databases: shut",
        "postgres.kept.way is of type named[], which is not kept: change it first",
        "postgres.below.n may be null, and not where it is inherited from: SET NOT NULL first",
    ):
        assert word in found, found
    (taken,) = (text for text in found if text.startswith("PostgreSQL 18 does not take the schema: "))
    assert 'extension "old_snapshot" is not available' in taken
    assert len(found) == 7, found

    (found[0],) = (text for text in problems(server, {"promote_trigger_file": "/gone"}) if "start" in text)
    assert found[0].startswith("PostgreSQL 18 does not start with the configuration")
    assert "promote_trigger_file" in found[0]


def test_data_are_made_of_a_copy_also_of_a_killed_server_and_again_and_the_former_stay(server: PostgresServer) -> None:
    server.query(f"{TABLE}; create sequence counted; select setval('counted', 41)")
    server.query("create role writer login password 'told'; alter table story owner to writer")
    server.kill()  # Why: what it has not written to its data yet is in its log alone.
    home = home_of(server)
    text = making_script(versions(), former_data=server.folder / "data", home=home)
    before = digests(server.folder / "data")
    # Another one was cut off before.
    (home / "upgrade" / "data").mkdir(parents=True)
    if os.geteuid() == 0:
        for path in (home / "upgrade", home / "upgrade" / "data"):
            shutil.chown(path, "postgres", "postgres")
    ended = run(server, text)
    assert ended.returncode == 0, ended.stderr
    assert digests(server.folder / "data") == before
    assert not (home / "upgrade").exists()
    assert (home / "data" / "PG_VERSION").read_text() == "18\n"
    asked = (
        "select count(*), sum(n) from story; select nextval('counted'); "
        "select tableowner from pg_tables where tablename = 'story'; show data_checksums\n"
    )
    single = [str(versions().programs / "postgres"), "--single", "-D", str(home / "data"), "postgres"]
    told = subprocess.run(
        as_user("postgres", *single) if os.geteuid() == 0 else single,
        input=asked,
        check=True,
        capture_output=True,
        text=True,
        cwd="/",
    ).stdout
    for word in ('count = "100"', 'sum = "5050"', 'nextval = "42"', 'tableowner = "writer"', 'data_checksums = "off"'):
        assert word in told


def test_data_that_cannot_be_made_are_told_of_each_time_and_nothing_is_left_in_their_place(
    server: PostgresServer,
) -> None:
    server.query("create table kept (way regproc)")
    server.stop()
    text = making_script(versions(), former_data=server.folder / "data", home=home_of(server))
    ended = run(server, text)
    assert ended.returncode == 1
    assert "FATAL:  pg_upgrade: " in ended.stderr
    assert not (home_of(server) / "data").exists()
    shutil.rmtree(server.folder / "data")  # Why: nothing is tried a second time.
    again = run(server, text)
    assert (again.returncode, again.stderr) == (1, ended.stderr)


def digests(folder: Path) -> dict[str, int]:
    """Each file of a folder, with what it holds."""
    return {str(path): hash(path.read_bytes()) for path in sorted(folder.rglob("*")) if path.is_file()}
