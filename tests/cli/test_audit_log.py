"""`keyplan audit-log` about the files of a server's log."""

from pathlib import Path

import pytest

from keyplan.audit_log import AuditLog, Event, Head, Rotation
from tests.cli.conftest import Keyplan

T0 = 1_795_225_800.0  # 2026-11-21T01:50:00Z


@pytest.fixture
def head() -> Head:
    """A log of three changes, an hour apart, the last of which did not end; the head of its first file."""
    now = [T0]
    log = AuditLog(Path("audit.log"), syncs=False, wall=lambda: now[0])

    def change(end: Event | None, **fields: object) -> None:
        now[0] += 3_600
        begun = log.append(Event.BEGUN, **fields).result()
        if end is not None:
            log.append(
                end, of=begun, **fields, **({"code": "x"} if end is Event.FAILED else {"revisions": (7, 9)})
            ).result()

    with log:
        change(Event.DONE, who="ada", address="::1", service="keyspaces", act="create", subject="orders")
        Path("audit.log").rename("audit.log.1")
        old = log.reopen().result()
        change(Event.FAILED, who="eve", service="etcd-v2", act="set", subject="/a")
        change(None, who="eve", service="runm", act="create object", subject="")
    return old


FILES = ("audit.log", "audit.log.1")


def test_changes_are_shown_by_their_outcome_and_what_has_none_comes_last(run: Keyplan, head: Head) -> None:
    answer = run("audit-log", *FILES)
    assert (answer.code, answer.err) == (0, "")
    assert [line.split("\t") for line in answer.lines] == [
        ["1", "2026-11-21T01:50:00.000000Z", "", "", "", "", "", "opened", ""],
        ["3", "2026-11-21T02:50:00.000000Z", "ada", "::1", "keyspaces", "create", "orders", "done", "7 9"],
        ["4", "2026-11-21T02:50:00.000000Z", "", "", "", "", "", "opened", ""],
        ["6", "2026-11-21T03:50:00.000000Z", "eve", "", "etcd-v2", "set", "/a", "failed: x", ""],
        ["8", "2026-11-21T04:50:00.000000Z", "", "", "", "", "", "closed", ""],
        ["7", "2026-11-21T04:50:00.000000Z", "eve", "", "runm", "create object", "", "begun", ""],
    ]


@pytest.mark.parametrize(
    ("options", "numbers"),
    [
        (("--who", "eve"), [6, 7]),
        (("--act", "create"), [3]),
        (("--service", "runm"), [7]),
        (("--subject", "/*"), [6]),
        (("--subject", "/"), []),
        (("--who", "eve", "--since", "2026-11-21T04:00"), [7]),
        (("--who", "eve", "--until", "2026-11-21T05:00:00+01:00"), [6]),
        (("--after", "4"), [6, 8, 7]),
        (("--limit", "2"), [1, 3]),
    ],
)
def test_filters(run: Keyplan, head: Head, options: tuple[str, ...], numbers: list[int]) -> None:
    answer = run("audit-log", *FILES, *options, "--json")
    assert [document["number"] for document in answer.documents] == numbers
    assert answer.code == 0


def test_a_log_is_verified_over_its_files(run: Keyplan, head: Head) -> None:
    whole = run("audit-log", *FILES, "--verify")
    assert whole.code == 0
    assert whole.lines[0].startswith("lines 1 to 8, each follows from the one before; the last has the digest ")
    assert run("audit-log", *FILES, "--verify", "--head", head.digest).code == 0
    assert run("audit-log", "audit.log", "--verify", "--behind", head.digest).code == 0
    lost = run("audit-log", *FILES, "--verify", "--head", "0" * 64)
    assert (lost.code, lost.lines[0]) == (
        1,
        "broken at line 9, in audit.log: it is missing: no line has the digest that was kept",
    )


def test_a_broken_line_is_named(run: Keyplan, head: Head) -> None:
    file = Path("audit.log")
    file.write_text(file.read_text().replace("/a", "/b", 1))
    answer = run("audit-log", *FILES, "--verify")
    problem = "it is not as it was written: the entry behind it has another digest"
    assert (answer.code, answer.lines) == (1, [f"broken at line 5, in audit.log: {problem}"])
    verdict = run("audit-log", *FILES, "--verify", "--json").document
    assert (verdict["is_whole"], verdict["broken_at"], verdict["last"]) == (False, 5, 4)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("audit.log", "--head", "f" * 64), "it is for --verify"),
        (("audit.log", "--verify", "--head", "f"), "64 digits"),
        (("audit.log", "--store", "memory:"), "FILE is the log of a server"),
        (("audit.log", "--since", "yesterday"), "2026-11-23T09:00:00Z"),
        (("none.log",), "cannot be read"),
        (("--store", "memory:", "--verify", "--behind", "f" * 64), "leave it out"),
    ],
)
def test_what_cannot_be_meant_is_refused(run: Keyplan, head: Head, words: tuple[str, ...], problem: str) -> None:
    answer = run("audit-log", *words)
    assert answer.code == 5
    assert problem in answer.err


def test_the_older_files_beside_a_log_are_read_and_what_was_removed_is_said(run: Keyplan) -> None:
    with AuditLog(Path("audit.log"), syncs=False, wall=lambda: T0, rotation=Rotation(500, 1)) as log:
        for _ in range(10):
            log.append(Event.DONE, act="put", subject="a\nb\x1b[31m", of=1).result()
    (older,) = (path.name for path in Path().glob("audit.log.*"))
    answer = run("audit-log", "audit.log", "--verify")
    assert (answer.code, len(answer.lines)) == (0, 2)
    first = int(older.removeprefix("audit.log.").partition("-")[0])
    assert answer.lines[0].startswith(f"lines {first} to {log.head.number}, each follows from the one before")
    assert answer.lines[1] == f"lines 1 to {first - 1} were removed by the server that wrote them, and a line says so"
    assert run("audit-log", "audit.log", "--verify", "--json").document["removed"] == first - 1
    shown = run("audit-log", "audit.log")
    assert {line.split("\t")[6] for line in shown.lines if "\tput\t" in line} == {r"a\nb\x1b[31m"}
    removed = [line.split("\t") for line in shown.lines if "\tremoved\t" in line]
    assert removed
    assert all(fields[6].startswith("audit.log.") for fields in removed)
    # A copy of one file alone lacks what no line of it tells.
    assert run("audit-log", older, "--verify").code == 1
