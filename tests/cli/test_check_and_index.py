"""`keyplan check` with and without repairs, and `keyplan index`: what they print, and their exit codes."""

import os
import re
from collections.abc import Callable

import pytest

import keyplan
from keyplan.engine import Commit, Delete, Mutation, Put
from keyplan.engine.lmdb.turn import WriteTurn
from keyplan.errors import WriterBusyError
from tests.cli.conftest import Keyplan
from tests.cli.layouts import Site

Damage = Callable[..., None]


@pytest.fixture
def damage(site: Keyplan) -> Damage:
    """Write raw keys behind the layout's back."""

    def write(*mutations: Mutation) -> None:
        with keyplan.open(os.environ["KEYPLAN_STORE"]) as store:
            store.engine.commit(Commit((), mutations))

    return write


def test_a_healthy_store_has_nothing_to_find(site: Keyplan) -> None:
    answer = site("check")
    assert (answer.code, answer.out, answer.err) == (0, "13 keys examined, 0 findings remain\n", "")


@pytest.mark.leaves("missing-entry")
def test_a_finding_is_printed_and_fails(site: Keyplan, damage: Damage) -> None:
    damage(Delete(b"/site/by-name/cups"))
    answer = site("check")
    assert answer.code == 1
    assert answer.lines == [
        "missing-entry: /site/by-name/cups: the record has no index entry here (by_name, record /site/boxes/a/1)",
        "12 keys examined, 1 findings remain",
    ]


@pytest.mark.leaves("unknown-key")
def test_findings_as_json_have_stable_codes(site: Keyplan, damage: Damage) -> None:
    damage(Put(b"/site/what", b"secret"))
    finding, end = site("check", "--json").documents
    assert (finding["finding"], finding["key"], finding["is_repairable"]) == ("unknown-key", "/site/what", False)
    assert end == {"keys": 14, "remaining": 1, "resume": None, "unfinished": []}
    assert "secret" not in str(finding)


@pytest.mark.leaves("missing-entry")
def test_a_plan_is_printed_and_without_consent_nothing_is_written(site: Keyplan, damage: Damage) -> None:
    damage(Delete(b"/site/by-name/cups"))
    answer = site("check", "--repair")
    assert answer.code == 5
    assert "  write the entry, as the record calls for it" in answer.lines
    assert "--yes" in answer.err
    assert site("check").code == 1


@pytest.mark.leaves("unknown-key")
def test_repairs_are_carried_out_with_yes_and_what_needs_a_decision_remains(site: Keyplan, damage: Damage) -> None:
    damage(Delete(b"/site/by-name/cups"), Put(b"/site/by-tag/blue/z/9", b""), Put(b"/site/what", b""))
    answer = site("check", "--repair", "--yes")
    assert answer.code == 1
    assert answer.lines[-3:] == [
        "repaired: /site/by-name/cups",
        "repaired: /site/by-tag/blue/z/9",
        "14 keys examined, 1 findings remain",
    ]
    assert [line.split(":")[0] for line in site("check").lines[:-1]] == ["unknown-key"]


def test_yes_without_repair_is_refused(site: Keyplan) -> None:
    assert site("check", "--yes").code == 5


@pytest.mark.leaves("unknown-key")
def test_a_check_in_pieces_goes_on_by_its_token(site: Keyplan, damage: Damage) -> None:
    damage(*(Put(b"/site/what%d" % number, b"") for number in range(300)))
    first = site("check", "--keys", "10", "--json")
    token = first.documents[-1]["resume"]
    second = site("check", "--resume", token, "--json")
    found = [line["key"] for answer in (first, second) for line in answer.documents if "finding" in line]
    assert len(found) == len(set(found)) == 300
    assert second.documents[-1]["resume"] is None
    assert site("check", "--resume", "x.00").code == 5


def test_an_index_is_dropped_refused_built_and_read(site: Keyplan) -> None:
    assert site("index", "list").lines == ["by_name\tboxes\treadable\t", "by_tag\tboxes\treadable\t"]
    assert site("index", "drop", "by_tag").out == "by_tag is write-only: 3 entries removed\n"
    assert site("index", "list", "--json").documents[1]["state"] == "write-only"
    refused = site("list", "by_tag", "red")
    assert (refused.code, "not built yet" in refused.err) == (4, True)
    assert site("check").code == 0
    assert site("index", "build", "by_tag").out == "by_tag is readable: 3 entries written\n"
    assert len(site("list", "by_tag", "red").lines) == 2


@pytest.mark.leaves("index-not-ready")
def test_an_index_is_prepared_once(site: Keyplan) -> None:
    assert site("index", "prepare", "by_name").out == "by_name is write-only\n"
    assert site("index", "prepare", "by_name").code == 0
    assert site("index", "prepare", "nothing").code == 6


@pytest.mark.leaves("contested-entry", "index-not-ready", "missing-entry")
def test_a_build_that_finds_two_claims_fails_and_names_them(site: Keyplan, damage: Damage) -> None:
    assert site("index", "drop", "by_name").code == 0
    with keyplan.open(os.environ["KEYPLAN_STORE"]) as store, store.engine.snapshot() as snapshot:
        cups = snapshot.get(b"/site/boxes/a/1")
    assert cups is not None
    damage(Put(b"/site/boxes/z/9", cups.value))
    answer = site("index", "build", "by_name")
    assert answer.code == 1
    assert answer.lines[0].startswith("contested-entry: /site/by-name/cups")


@pytest.mark.leaves("stale-entry")
def test_explaining_a_stale_entry_says_so(site: Keyplan, damage: Damage) -> None:
    damage(Put(b"/site/by-tag/old/a/1", b""))
    answer = site("explain", "/site/by-tag/old/a/1")
    assert "  points at  /site/boxes/a/1: present, but does not call for this entry" in answer.lines
    assert any(line.startswith("  finding    stale-entry") for line in answer.lines)


def test_a_leased_record_is_explained_with_its_lease(site: Keyplan) -> None:
    with keyplan.open(os.environ["KEYPLAN_STORE"]) as store:
        lease = store.engine.lease(600.0)
        Site(store).holders.put("ann", "a", lease=lease.id)
    stored = site("explain", "/site/holders/ann", "--json").document["stored"]
    assert (stored["lease"], stored["lease_ttl_seconds"]) == (lease.id, 600.0)
    assert 500 < stored["lease_seconds_left"] <= 600
    (line,) = [line for line in site("explain", "/site/holders/ann").lines if line.startswith("  stored")]
    assert re.search(rf", lease {lease.id} of 600 s, \d+ left$", line)


@pytest.mark.parametrize("command", ["check", "doctor"])
def test_a_repair_that_finds_nothing_waits_for_nobody_who_writes(
    site: Keyplan, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    def busy(_turn: WriteTurn, _since: float | None = None) -> None:
        raise WriterBusyError(engine="lmdb", problem="it was stopped")

    with monkeypatch.context() as patched:
        patched.setattr(WriteTurn, "take", busy)
        answer = site(command, "--repair", "--yes")
    assert answer.code == 0, answer.err
