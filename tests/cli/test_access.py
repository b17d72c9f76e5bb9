"""`keyplan access`: a token is shown once and known afterwards, an answer names its line, and an error writes nothing."""

import errno
import os
import re
import shlex
import stat
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from keyplan.access import read_access_text, read_policy
from tests.cli.conftest import Keyplan

NOW = datetime(2026, 11, 23, 3, 30, tzinfo=UTC)


def owner_of(token: str, *, at: datetime | None = None) -> str | None:
    found = read_policy(read_access_text(Path("a.toml")), source="a.toml").known_by_token(token, at=at or NOW)
    return found.name if found else None


@pytest.fixture
def token(run: Keyplan) -> str:
    """The token of the principal shop, which may read an application's key spaces and write one of them."""
    added = run(
        "access", "add", "shop", "--access", "a.toml", "--read", "application:shop", "--write", "keyspace:orders"
    )
    assert added.code == 0
    assert "shown this once" in added.err
    return added.out.strip()


def test_a_token_is_printed_once_and_known_by_its_sum_alone(token: str) -> None:
    path = Path("a.toml")
    assert re.fullmatch(r"kp_[A-Za-z0-9_-]{43}", token)
    assert owner_of(token) == "shop"
    assert token not in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_token_as_json(run: Keyplan) -> None:
    added = run("access", "add", "shop", "--access", "a.toml", "--json")
    assert added.document["principal"] == "shop"
    assert owner_of(added.document["token"]) == "shop"
    rotated = run("access", "rotate", "shop", "--access", "a.toml", "--json")
    assert owner_of(rotated.document["token"]) == "shop"


def test_a_principal_may_be_known_otherwise(run: Keyplan) -> None:
    words = ("--no-token", "--user", "1001", "--user", "shop", "--certificate", "DNS:shop.example", "--json")
    assert run("access", "add", "shop", "--access", "a.toml", *words).out == ""
    policy = read_policy(read_access_text(Path("a.toml")), source="a.toml")
    assert policy.known_by_user(1001, None) is policy.known_by_user(7, "shop") is policy.named("shop")
    assert run("access", "list", "--access", "a.toml", "--json").document == {
        "principal": "shop",
        "line": 4,
        "tokens": [],
        "certificates": ["DNS:shop.example"],
        "users": [1001, "shop"],
        "labels": [],
        "grants": [],
    }


def test_who_is_there_already_keeps_what_it_has(run: Keyplan, token: str) -> None:
    again = run("access", "add", "shop", "--access", "a.toml")
    assert again.code == 5
    assert again.out == ""
    assert "a.toml:4" in again.err
    assert "rotate" in again.err
    assert owner_of(token) == "shop"


@pytest.mark.parametrize(
    "words",
    [("--read", "orders"), ("--certificate", "CN=shop"), ("--user", "a b"), ("--audit", "prefix:")],
    ids=lambda words: words[0],
)
def test_what_no_file_may_have_is_refused_with_its_option_and_makes_no_file(
    run: Keyplan, words: tuple[str, str]
) -> None:
    refused = run("access", "add", "shop", "--access", "a.toml", *words, "--json")
    assert (refused.code, refused.out) == (5, "")
    assert refused.error["facts"]["source"] == words[0]
    assert not Path("a.toml").exists()


def test_rotated_tokens_count_until_they_are_revoked(run: Keyplan, token: str) -> None:
    second = run("access", "rotate", "shop", "--access", "a.toml").out.strip()
    assert [owner_of(one) for one in (token, second)] == ["shop", "shop"]
    beginnings = [row.split("\t")[3] for row in run("access", "list", "--access", "a.toml").lines if "\ttoken\t" in row]
    assert run("access", "revoke", "shop", "--token", beginnings[1], "--access", "a.toml").code == 0
    assert [owner_of(one) for one in (token, second)] == [None, "shop"]


def test_rotated_tokens_may_count_for_a_while(run: Keyplan, token: str) -> None:
    run("access", "rotate", "shop", "--keep-seconds", "600", "--access", "a.toml")
    (row,) = [row for row in run("access", "list", "--access", "a.toml").lines if " until " in row]
    assert row.startswith("shop\t4\ttoken\t")
    ends = datetime.fromisoformat(row.rpartition(" ")[2])
    assert owner_of(token, at=ends) is None
    assert owner_of(token, at=ends.replace(year=ends.year - 1)) == "shop"
    third = run("access", "rotate", "shop", "--keep-seconds", "0", "--access", "a.toml").out.strip()
    assert [owner_of(one, at=NOW) for one in (token, third)] == [None, "shop"]


def test_a_principal_is_revoked_with_all_it_has(run: Keyplan, token: str) -> None:
    assert run("access", "revoke", "shop", "--access", "a.toml").code == 0
    assert owner_of(token) is None
    gone = run("access", "explain", "shop", "read", "keyspace:orders", "--access", "a.toml")
    assert (gone.code, gone.out) == (1, "no: there is no principal shop\n")


def test_a_name_that_is_not_there_is_answered_with_one_that_is(run: Keyplan, token: str) -> None:
    for words in (("rotate", "shopp"), ("revoke", "shopp"), ("revoke", "shopp", "--token", "0" * 8)):
        answer = run("access", *words, "--access", "a.toml")
        assert answer.code != 0
        assert "did you mean 'shop'?" in answer.err
    assert owner_of(token) == "shop"


@pytest.mark.parametrize(
    ("words", "code", "line"),
    [
        (("read", "application:shop"), 0, 6),
        (("read", "keyspace:orders", "--application", "shop"), 0, 6),
        (("write", "keyspace:orders"), 0, 7),
        (("write", "keyspace:orders", "--application", "bank"), 0, 7),
        (("read", "keyspace:orders", "--application", "bank"), 1, None),
        (("write", "application:shop"), 1, None),
        (("administer", "everything"), 1, None),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_an_explanation_is_yes_or_no_with_the_line(
    run: Keyplan, token: str, words: tuple[str, ...], code: int, line: int | None
) -> None:
    answer = run("access", "explain", "shop", *words, "--access", "a.toml", "--json")
    assert answer.code == code
    assert answer.document["is_allowed"] == (code == 0)
    assert answer.document["line"] == line
    said = run("access", "explain", "shop", *words, "--access", "a.toml")
    assert said.out == f"{'no' if code else 'yes'}: {answer.document['reason']}\n"


def test_a_no_says_what_would_make_it_a_yes(run: Keyplan, token: str) -> None:
    answer = run("access", "explain", "shop", "read", "keyspace:orders", "--access", "a.toml")
    assert answer.code == 1
    assert answer.err == "keyplan: yes, if it is a key space of shop: line 6, --application shop\n"


# ---- grants that let nobody do anything ----------------------------------------------------------------------------------


def test_a_misspelt_operation_is_told_when_it_is_granted_explained_and_checked(run: Keyplan, token: str) -> None:
    added = run("access", "add", "eve", "--access", "a.toml", "--audit", "operation:getAduit")
    assert added.code == 0
    meant = "there is no operation getAduit; did you mean operation:getAudit?"
    line = Path("a.toml").read_text().splitlines().index('audit = ["operation:getAduit"]') + 1
    assert added.err.splitlines()[-1] == f"keyplan: a.toml:{line}: {meant}"
    explained = run("access", "explain", "eve", "audit", "operation:getAduit", "--access", "a.toml")
    assert (explained.code, explained.err) == (0, f"keyplan: {meant}\n")
    checked = run("access", "check", "--access", "a.toml")
    assert (checked.code, checked.out) == (1, f"a.toml:{line}: eve: {meant}\n")
    document = run("access", "check", "--access", "a.toml", "--json").document
    assert document["line"] == line
    assert document["problem"] == meant


def test_a_file_whose_grants_are_all_asked_for_is_sound(run: Keyplan, token: str) -> None:
    added = run("access", "add", "eve", "--access", "a.toml", "--audit", "operation:getAudit")
    assert len(added.err.splitlines()) == 1
    checked = run("access", "check", "--access", "a.toml")
    assert (checked.code, checked.out) == (0, "every grant is one that something may ask for\n")
    assert run("access", "check", "--access", "missing.toml").code == 5


@pytest.mark.parametrize("seconds", ["-1", "nan", "1e12"])
def test_old_tokens_are_kept_for_no_time_that_is_none(run: Keyplan, token: str, seconds: str) -> None:
    before = Path("a.toml").read_text()
    refused = run("access", "rotate", "shop", "--keep-seconds", seconds, "--access", "a.toml")
    assert refused.code in {2, 5}
    assert Path("a.toml").read_text() == before


def test_what_cannot_be_asked_is_refused(run: Keyplan, token: str) -> None:
    assert run("access", "explain", "shop", "own", "everything", "--access", "a.toml").code == 2
    assert run("access", "explain", "shop", "read", "orders", "--access", "a.toml").code == 5
    assert run("access", "list").code == 2
    assert run("access", "list", "--access", "missing.toml").code == 5


def test_a_file_that_others_may_read_is_refused_by_every_command(run: Keyplan, token: str) -> None:
    Path("a.toml").chmod(0o644)
    for words in (("list",), ("explain", "shop", "read", "everything"), ("rotate", "shop"), ("revoke", "shop")):
        answer = run("access", *words, "--access", "a.toml")
        assert answer.code == 5
        assert "chmod 600" in answer.err


# ---- of a principal that is there --------------------------------------------------------------------------------------


def explained(run: Keyplan, *words: str) -> bool:
    return run("access", "explain", *words, "--access", "a.toml").code == 0


def test_a_grant_comes_and_goes_by_commands(run: Keyplan, token: str) -> None:
    before = Path("a.toml").read_text()
    granted = run("access", "grant", "shop", "write", "prefix:/a/", "--access", "a.toml")
    assert (granted.code, granted.out) == (0, "")
    assert re.search(r"a\.toml: line \d+ grants shop to write prefix:/a/", granted.err)
    assert explained(run, "shop", "write", "prefix:/a/b")
    assert owner_of(token) == "shop"
    taken = run("access", "withdraw", "shop", "write", "prefix:/a/", "--access", "a.toml")
    assert "no line grants shop to write prefix:/a/" in taken.err
    assert Path("a.toml").read_text() == before


def test_who_has_a_wider_grant_too_is_told(run: Keyplan, token: str) -> None:
    assert run("access", "grant", "shop", "write", "prefix:/a/", "--access", "a.toml").code == 0
    assert run("access", "grant", "shop", "write", "everything", "--access", "a.toml").code == 0
    taken = run("access", "withdraw", "shop", "write", "prefix:/a/", "--access", "a.toml")
    assert re.search(r"shop may still write prefix:/a/: line \d+ grants shop to write everything", taken.err)


def test_a_grant_that_is_not_there_is_not_taken(run: Keyplan, token: str) -> None:
    before = Path("a.toml").read_text()
    refused = run("access", "withdraw", "shop", "write", "everything", "--access", "a.toml")
    assert refused.code != 0
    assert "keyspace:orders" in refused.err
    assert run("access", "grant", "sohp", "write", "everything", "--access", "a.toml").code != 0
    assert Path("a.toml").read_text() == before


def test_a_grant_that_lets_nobody_do_anything_is_told(run: Keyplan, token: str) -> None:
    assert "did you mean" in run("access", "grant", "shop", "audit", "operation:getAduit", "--access", "a.toml").err


def test_what_a_principal_is_known_by_changes_by_command(run: Keyplan, token: str) -> None:
    more = ("--add-user", "shop", "--add-user", "7", "--add-certificate", "dns:shop.example", "--add-label", "role:r")
    assert run("access", "change", "shop", *more, "--access", "a.toml").code != 0, "no certificate has this kind"
    more = ("--add-user", "shop", "--add-user", "7", "--add-certificate", "DNS:Shop.Example", "--add-label", "role:r")
    assert run("access", "change", "shop", *more, "--access", "a.toml").code == 0
    policy = read_policy(read_access_text(Path("a.toml")), source="a.toml")
    shop = policy.named("shop")
    assert shop is policy.known_by_user(7, None) is policy.known_by_certificate("", ["DNS:shop.example"])
    less = ("--remove-user", "7", "--remove-certificate", "DNS:shop.example", "--remove-label", "role:r")
    assert run("access", "change", "shop", *less, "--access", "a.toml").code == 0
    found = read_policy(read_access_text(Path("a.toml")), source="a.toml").named("shop")
    assert found is not None
    assert (found.users, found.certificates, found.labels) == (("shop",), (), ())
    assert run("access", "change", "shop", "--access", "a.toml").code != 0, "there is nothing to change"


# ---- a token that nobody sees ----------------------------------------------------------------------------------------


def into(output: int | None, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command whose standard output leads there; None: it is closed."""
    command = [sys.executable, "-c", "from keyplan.cli.start import run; run()", *words]
    if output is None:
        command = ["sh", "-c", f"{shlex.join(command)} >&-"]
    return subprocess.run(command, stdout=output, stderr=subprocess.PIPE, text=True, check=False)


@pytest.fixture(params=["a full disk", "a pipe without a reader", "nothing"])
def unseen(request: pytest.FixtureRequest) -> Iterator[int | None]:
    """An output that nobody sees."""
    if request.param == "nothing":
        yield None
        return
    reading, writing = os.pipe() if request.param != "a full disk" else (None, os.open("/dev/full", os.O_WRONLY))
    if reading is not None:
        os.close(reading)
    yield writing
    os.close(writing)


def test_a_token_that_cannot_be_shown_replaces_none(token: str, unseen: int | None) -> None:
    before = Path("a.toml").read_bytes()
    for words in (("rotate", "shop", "--keep-seconds", "0"), ("add", "bank")):
        ran = into(unseen, "access", *words, "--access", "a.toml")
        assert ran.returncode == 74
        assert "cannot be shown: a.toml is as it was" in ran.stderr
        assert "shown this once" not in ran.stderr
        assert Path("a.toml").read_bytes() == before


def test_a_token_that_was_shown_and_could_not_be_written_is_said_to_count_for_nothing(
    run: Keyplan, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(_self: Path, _target: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "replace", no_room)
    ran = run("access", "rotate", "shop", "--keep-seconds", "0", "--access", "a.toml")
    assert ran.code == 5
    assert owner_of(ran.out.strip()) is None
    assert owner_of(token) == "shop"
    assert "does not count: a.toml is as it was" in ran.err
