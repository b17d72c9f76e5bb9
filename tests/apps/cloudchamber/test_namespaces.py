"""Test name spaces: which is meant, what is cleaned and purged, and that production is left alone."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import keyplan
from keyplan.apps.cloudchamber import (
    CloudChamber,
    CloudChamberGo,
    StoreSettings,
    User,
    check_production_key,
    instance_timestamp,
    instances_of_tests,
    namespace_of,
    pre_clean,
    purge_production,
    purge_tests,
    timestamp_of_this_process,
)
from keyplan.apps.cloudchamber.cli import app
from keyplan.engine import Commit, KeyRange, Put
from keyplan.errors import InvalidInputError, InvalidKeyError
from keyplan.store import Store
from keyplan.testing.faults import FakeClock
from tests.apps.cloudchamber.conftest import CheckAfter, raw_keys

SETTINGS = StoreSettings(
    endpoints="localhost:2379",
    connect_timeout_seconds=5,
    request_timeout_seconds=5,
    use_test_namespace=True,
    use_unique_instance=False,
    pre_clean_store=False,
)
UNIQUE = replace(SETTINGS, use_unique_instance=True)
P = b"/CloudChamber/V0.1/"


def fill(store: Store, *keys: bytes) -> None:
    store.engine.commit(Commit((), tuple(Put(P + key, b"{}") for key in keys)))


def test_the_shared_instance_is_named_standard_and_production_does_not_see_it(store: Store) -> None:
    """AC-15."""
    assert namespace_of(SETTINGS) == "Test/Standard/"
    CloudChamber(store, namespace=namespace_of(SETTINGS)).users.insert("alice", User(name="alice"))
    assert raw_keys(store) == [b"/CloudChamber/V0.1/Test/Standard/users/alice"]
    assert list(CloudChamber(store).users.list()) == []


def test_production_is_meant_without_the_option_whatever_else_is_set() -> None:
    assert namespace_of(replace(SETTINGS, use_test_namespace=False, use_unique_instance=True, test_instance="x")) == ""


def test_an_instance_of_its_own_is_a_timestamp_that_sorts_and_is_taken_once() -> None:
    assert instance_timestamp(FakeClock()) == "2023-11-14T22:13:20.000000000Z"
    assert len(timestamp_of_this_process()) == 30
    assert namespace_of(UNIQUE) == namespace_of(UNIQUE) == f"Test/{timestamp_of_this_process()}/"


def test_a_run_of_its_own_is_kept_beside_the_others(store: Store) -> None:
    """AC-16, AC-17: all handles of one process write below one timestamp, and cleaning takes the shared instance alone."""
    for name in ("alice", "bob"):
        CloudChamber(store, namespace=namespace_of(UNIQUE)).users.insert(name, User(name=name))
    CloudChamber(store, namespace=namespace_of(SETTINGS)).users.insert("carol", User(name="carol"))
    assert pre_clean(store.engine, replace(SETTINGS, pre_clean_store=True)) == 1
    own = re.compile(rb"/CloudChamber/V0\.1/Test/\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z/users/(alice|bob)")
    found = [own.fullmatch(key) for key in raw_keys(store)]
    assert [match and match[1] for match in found] == [b"alice", b"bob"]
    assert list(CloudChamber(store).users.list()) == []


def test_another_process_takes_another_timestamp() -> None:
    program = "from keyplan.apps.cloudchamber import timestamp_of_this_process as t; print(t())"
    other = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=30)
    assert other.stdout.strip() != timestamp_of_this_process()


def test_cooperating_processes_may_name_their_instance() -> None:
    assert namespace_of(replace(UNIQUE, test_instance="night-7")) == "Test/night-7/"


@pytest.mark.parametrize("name", ["Standard", "a/b", "..", ".", "x" * 65, "a\nb"])
def test_a_name_that_cannot_be_one_is_refused(name: str) -> None:
    with pytest.raises(InvalidInputError):
        namespace_of(replace(UNIQUE, test_instance=name))


def test_cleaning_removes_the_shared_instance_and_nothing_beside_it(store: Store) -> None:
    fill(
        store,
        b"users/a",
        b"Test/Standard/users/a",
        b"Test/Standard/users/b",
        b"Test/StandardX/users/a",
        b"Test/Standard",
    )
    before = store.revision
    assert pre_clean(store.engine, replace(SETTINGS, pre_clean_store=True)) == 3
    assert raw_keys(store) == [P + b"Test/StandardX/users/a", P + b"users/a"]
    assert store.revision == before + 1


@pytest.mark.parametrize(
    "settings",
    [
        SETTINGS,
        replace(SETTINGS, pre_clean_store=True, use_test_namespace=False),
        replace(UNIQUE, pre_clean_store=True),
    ],
)
def test_nothing_is_cleaned_unless_all_options_say_so(store: Store, settings: StoreSettings) -> None:
    fill(store, b"users/a", b"Test/Standard/users/a")
    before = store.revision
    assert pre_clean(store.engine, settings) == 0
    assert store.revision == before


@pytest.mark.leaves("unknown-key")
def test_instances_are_found_with_their_sizes_and_ages(store: Store) -> None:
    fill(
        store,
        b"Test/2026-11-21T12:00:00.250000000Z/users/a",
        b"Test/2026-11-21T12:00:00.250000000Z/users/b",
        b"Test/Standard/racks/r",
        b"Test/zz\xff/x",
        b"users/a",
        b"Testing",
    )
    assert [tuple(found) for found in instances_of_tests(store.engine)] == [
        ("2026-11-21T12:00:00.250000000Z", 2, datetime(2026, 11, 21, 12, 0, 0, 250_000, tzinfo=UTC), "document"),
        ("Standard", 1, None, "document"),
        ("zz\\xff", 1, None, "document"),
    ]


@pytest.mark.leaves("unknown-key")
def test_a_purge_takes_all_tests_and_leaves_production(store: Store) -> None:
    """AC-21."""
    fill(store, b"users/a", b"Test/a/users/x", b"Test/b/users/x", b"Test0", b"Tes")
    changes = store.engine.watch(KeyRange.of_prefix(P + b"Test/"), after=store.revision)
    assert purge_tests(store.engine) == 2
    assert [event.key for event in changes.poll(5)] == [P + b"Test/a/users/x", P + b"Test/b/users/x"]
    changes.close()
    assert raw_keys(store) == [P + b"Tes", P + b"Test0", P + b"users/a"]


@pytest.mark.leaves("key-outside")
def test_a_purge_of_production_takes_all_but_the_tests(store: Store) -> None:
    """R15."""
    fill(store, b"users/a", b"racks/r", b"Test/a/users/x", b"Test0", b"Test", b"index/begun")
    store.engine.commit(Commit((), (Put(b"/CloudChamber/V0.10/users/a", b"{}"), Put(b"/CloudChamber/V0.1", b"{}"))))
    before = store.revision
    assert (purge_production(store.engine, is_dry_run=True), store.revision) == (5, before)
    assert (purge_production(store.engine), store.revision) == (5, before + 1)
    assert raw_keys(store) == [b"/CloudChamber/V0.1", P + b"Test/a/users/x", b"/CloudChamber/V0.10/users/a"]
    assert (purge_production(store.engine), store.revision) == (0, before + 1)


def test_a_handle_of_production_refuses_test_keys() -> None:
    with pytest.raises(InvalidKeyError):
        check_production_key(P + b"Test/Standard/users/a")
    check_production_key(P + b"users/Test")


# ---- the commands -------------------------------------------------------------------------------------------------------


@pytest.fixture
def url(tmp_path: Path, check_after: CheckAfter) -> Iterator[str]:
    url = f"lmdb:{tmp_path / 'chamber.kv'}"
    with keyplan.open(url) as store:
        CloudChamber(store).users.insert("alice", User(name="alice"))
        for instance in ("2020-01-01T00:00:00.000000000Z", "Standard"):
            CloudChamber(store, namespace=f"Test/{instance}/").users.insert("bob", User(name="bob"))
    yield url
    with check_after(keyplan.open(url), CloudChamber):
        pass


def run(*arguments: str) -> Result:
    answer = CliRunner().invoke(app, list(arguments))
    assert answer.exception is None, answer.exception
    return answer


def test_tests_are_listed_as_lines(url: str) -> None:
    lines = run("tests", "--store", url).output.splitlines()
    assert [line.split("\t")[:2] for line in lines] == [["2020-01-01T00:00:00.000000000Z", "1"], ["Standard", "1"]]
    assert lines[0].endswith("d\tdocument")


def test_tests_of_the_go_program_are_seen_and_purged_too(url: str) -> None:
    """AC-21, D12: its timestamps have the digits that are needed and the zone of its machine."""
    names = ("2020-06-01T10:00:00.5-08:00", "Standard")
    with keyplan.open(url) as store:
        for instance in names:
            CloudChamberGo(store, namespace=f"Test/{instance}/").users.insert("bob", User(name="bob"))
        CloudChamberGo(store).users.insert("alice", User(name="alice"))
    told = [json.loads(line) for line in run("tests", "--store", url, "--json").output.splitlines()]
    assert [(one["instance"], one["layout"]) for one in told[2:]] == [(name, "go") for name in names]
    assert told[2]["started_at"] == "2020-06-01T18:00:00.500000+00:00"
    assert (
        "2 keys of 2 test name spaces removed" in run("purge", "--tests", "--older-than", "30d", "--store", url).output
    )
    run("purge", "--instance", "Standard", "--store", url)
    with keyplan.open(url) as store:
        assert raw_keys(store) == [P + b"users/alice", b"/CloudChamber/v0.1/users/alice"]
        CloudChamberGo(store).users.delete("alice")


def test_old_instances_are_purged_by_age(url: str) -> None:
    answer = run("purge", "--tests", "--older-than", "30d", "--store", url, "--json")
    assert json.loads(answer.output) == {
        "removed_keys": 1,
        "instances": {"2020-01-01T00:00:00.000000000Z": 1},
        "dry_run": False,
    }
    with keyplan.open(url) as store:
        assert raw_keys(store) == [P + b"Test/Standard/users/bob", P + b"users/alice"]


def test_a_dry_run_removes_nothing(url: str) -> None:
    assert (
        "2 keys of 2 test name spaces would be removed" in run("purge", "--tests", "--dry-run", "--store", url).output
    )
    with keyplan.open(url) as store:
        assert len(raw_keys(store)) == 3


def test_production_is_purged_by_a_word_of_its_own(url: str) -> None:
    assert run("purge", "--production", "--dry-run", "--store", url).output == (
        "1 keys of production would be removed; this was a dry run.\n"
    )
    answer = run("purge", "--production", "--store", url, "--json")
    assert json.loads(answer.output) == {"removed_keys": 1, "instances": {}, "dry_run": False}
    with keyplan.open(url) as store:
        assert [key.startswith(P + b"Test/") for key in raw_keys(store)] == [True, True]


@pytest.mark.leaves("key-outside")
def test_a_purge_of_production_says_that_the_go_programs_stays(url: str) -> None:
    with keyplan.open(url) as store:
        store.engine.commit(Commit((), (Put(b"/CloudChamber/v0.1/Users/ada", b"{}"),)))
    both = CliRunner().invoke(app, ["purge", "--production", "--store", url])
    assert both.exit_code == 0
    assert "stays, as /CloudChamber/v0.1/Users/ada" in both.output
    alone = CliRunner().invoke(app, ["purge", "--production", "--store", url])
    assert isinstance(alone.exception, InvalidInputError)
    assert "/CloudChamber/v0.1/Users/ada" in str(alone.exception)
    with keyplan.open(url) as store:
        assert b"/CloudChamber/v0.1/Users/ada" in raw_keys(store)


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--older-than", "7d"],
        ["--production", "--tests"],
        ["--production", "--instance", "Standard"],
        ["--production", "--older-than", "7d"],
    ],
)
def test_a_purge_must_say_of_what(url: str, options: list[str]) -> None:
    answer = CliRunner().invoke(app, ["purge", *options, "--store", url])
    assert isinstance(answer.exception, InvalidInputError)
    with keyplan.open(url) as store:
        assert len(raw_keys(store)) == 3


def test_settings_are_shown_without_the_password(tmp_path: Path) -> None:
    shown = json.loads(run("settings", str(tmp_path), "--json").output)
    assert shown["store.etcdService.port"] == 2379
    assert shown["webServer.systemAccountPassword"] == "********"


def test_options_that_mean_nothing_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """D15."""
    monkeypatch.setenv("KEYPLAN_STORE_PRE_CLEAN_STORE", "1")
    monkeypatch.setenv("KEYPLAN_STORE_TEST_INSTANCE", "night")
    assert run("settings", str(tmp_path)).stderr.splitlines() == [
        "PreCleanStore means nothing without UseTestNamespace.",
        "KEYPLAN_STORE_TEST_INSTANCE means nothing without UseTestNamespace.",
    ]
    monkeypatch.setenv("KEYPLAN_STORE_USE_TEST_NAMESPACE", "1")
    monkeypatch.delenv("KEYPLAN_STORE_TEST_INSTANCE")
    assert run("settings", str(tmp_path)).stderr == ""
