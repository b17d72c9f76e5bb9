"""What a PostgreSQL URL says, and that nothing secret is shown again."""

import pytest

from keyplan.engine import Capability, EngineUrl, default_profile, open_engine
from keyplan.engine.postgres import PostgresOptions, options_of
from keyplan.errors import EngineOpenError


def options(url: str) -> PostgresOptions:
    """The options of a URL."""
    return options_of(EngineUrl.parse(url))


@pytest.mark.parametrize(
    ("url", "connection"),
    [
        ("postgres:", {}),
        ("postgres://", {}),
        ("postgres:///site", {"dbname": "site"}),
        ("postgres://db", {"host": "db"}),
        ("postgresql://db:5433/site", {"host": "db", "port": "5433", "dbname": "site"}),
        ("postgres://ann@db/site", {"user": "ann", "host": "db", "dbname": "site"}),
        (
            "postgres://ann:p%40s:s/w%3Frd@db/site",
            {"user": "ann", "password": "p@s:s/w?rd", "host": "db", "dbname": "site"},
        ),
        (
            "postgres://a:1,b/site",
            {"host": "a,b", "port": "1,", "dbname": "site", "target_session_attrs": "read-write"},
        ),
        ("postgres://a,b/site?readonly=true", {"host": "a,b", "port": ",", "dbname": "site"}),
        ("postgres://[::1]:7/site", {"host": "::1", "port": "7", "dbname": "site"}),
        ("postgres:///site?host=/run/postgresql", {"dbname": "site", "host": "/run/postgresql"}),
        ("postgres://db?user=ann&sslmode=verify-full", {"host": "db", "user": "ann", "sslmode": "verify-full"}),
    ],
)
def test_the_address_is_told_to_libpq(url: str, connection: dict[str, str]) -> None:
    assert options(url).connection == {"application_name": "keyplan", **connection}


def test_what_is_not_said_has_its_default() -> None:
    given = options("postgres://db")
    assert (given.schema, given.create, given.is_readonly, given.is_durable) == ("keyplan", True, False, True)
    assert (given.timeout_seconds, given.connections_max, given.history_revisions_max) == (10, 10, 100_000)
    assert given.has_notify


def test_the_options_of_the_store_are_read() -> None:
    given = options(
        "postgres://db?schema=Site-2&create=no&readonly=yes&durability=none&timeout=3&connections=2&history=7&notify=off"
    )
    assert (given.schema, given.create, given.is_readonly, given.is_durable) == ("Site-2", False, True, False)
    assert (given.timeout_seconds, given.connections_max, given.history_revisions_max) == (3, 2, 7)
    assert not given.has_notify


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("postgres://a b/site", "names its hosts"),
        ("postgres://a:70000", "names its hosts"),
        ("postgres://a:b", "names its hosts"),
        ("postgres://db?schema=", "takes a name"),
        ('postgres://db?schema=a"b', "takes a name"),
        ("postgres://db?schema=pg_catalog", "takes a name"),
        ("postgres://db?schema=" + "a" * 51, "takes a name"),
        ("postgres://ann@db?user=bob", "user is given twice"),
        ("postgres://db?timeout=0", "at least 1"),
        ("postgres://db?connections=0", "at least 1"),
        ("postgres://db?durability=some", "takes one of full, none"),
        ("postgres://db?options=-cfsync=off", "there is no option 'options'"),
    ],
)
def test_what_is_wrong_with_a_url_is_said(url: str, problem: str) -> None:
    with pytest.raises(EngineOpenError, match=problem):
        options(url)


def test_the_default_profile_is_that_of_an_engine_without_options() -> None:
    profile = default_profile("postgresql")
    assert profile.name == "postgres"
    assert profile.capabilities == frozenset(Capability)
    assert (profile.key_bytes_max, profile.value_bytes_max, profile.commit_bytes_max) == (2_600, 1 << 27, 1 << 28)
    assert profile.commit_operations_max is None
    assert not profile.empty_key


def test_a_store_that_nobody_serves_says_so_without_the_password() -> None:
    with pytest.raises(EngineOpenError) as caught:
        open_engine("postgres://root:secret@127.0.0.1:1/site?sslpassword=hidden")
    error = caught.value
    assert error.code == "store-unreachable"
    shown = f"{error} {error!r} {error.facts} {options('postgres://root:secret@db?sslpassword=hidden')}"
    assert "refused" in shown
    assert "secret" not in shown
    assert "hidden" not in shown
