"""Adopting what exists on the command line: infer a layout, lint it, audit the store with it."""

import json
from pathlib import Path

import lmdb
import pytest

from tests.cli.conftest import Keyplan

PERSON = b'{"name": "a", "age": 5}'


@pytest.fixture
def url(tmp_path: Path) -> str:
    """An LMDB file that another program filled."""
    path = tmp_path / "plant.lmdb"
    with lmdb.open(str(path), lib_version=0) as environment, environment.begin(write=True) as transaction:
        for number in range(12):
            transaction.put(b"/plant/people/p%d" % number, PERSON)
            transaction.put(b"/plant/by-age/%d/p%d" % (number, number), b"")
        transaction.put(b"/plant/next-badge", b"13")
    return f"lmdb:{path}?database="


def test_from_a_foreign_store_to_a_layout_that_explains_it(run: Keyplan, url: str) -> None:
    answer = run("infer", "--store", url, "--out", "plant.json")
    assert (answer.code, answer.err) == (0, "")
    assert answer.lines[:4] == [
        "25 keys, 3 tables below /plant/",
        "by_age\t12\tby-age/{age:decimal}/{name:text}\tempty",
        "next_badge\t1\tnext-badge\tdecimal",
        "people\t12\tpeople/{people:text}\tPeopleRecord",
    ]
    assert "  next_badge may be a counter: one key, whose value is a number" in answer.lines
    assert answer.lines[-1] == "wrote plant.json"

    linted = run("lint", "--layout", "plant.json", "--json").document
    assert {finding["rule"] for finding in linted["findings"]}.isdisjoint({"L1", "L2"})
    audited = run("audit", "--store", url, "--layout", "plant.json")
    assert (audited.code, audited.lines) == (
        0,
        [
            "100 % of 25 keys explained by Inferred",
            "by_age\ttable\t12\t220\t0\tby-age/{age}/{name}",
            "next_badge\ttable\t1\t19\t0\tnext-badge",
            "people\ttable\t12\t470\t0\tpeople/{people}",
        ],
    )
    assert run("get", "people", "p3", "--store", url, "--layout", "plant.json").document == {"name": "a", "age": 5}
    assert run("map", "--layout", "plant.json", "--json").document == json.loads(Path("plant.json").read_text())


def test_a_python_module_is_a_layout_like_any_other(run: Keyplan, url: str) -> None:
    assert run("infer", "--store", url, "--python", "--name", "Plant", "--out", "adopted_plant.py").code == 0
    audited = run("audit", "--store", url, "--layout", "adopted_plant:Plant")
    assert (audited.code, audited.lines[0]) == (0, "100 % of 25 keys explained by Plant")
    printed = run("infer", "--store", url, "--python", "--name", "Plant")
    assert printed.out == Path("adopted_plant.py").read_text()


def test_json_tells_the_layout_with_its_evidence(run: Keyplan, url: str) -> None:
    found = run("infer", "--store", url, "--json").document
    assert found["layout"]["root"] == "/plant/"
    assert (found["keys"], found["left_out"], found["errors"]) == (25, 0, [])
    assert found["table_keys"] == {"by_age": 12, "next_badge": 1, "people": 12}
    assert found["suggestions"] == [
        {"table": "next_badge", "kind": "counter", "of": None, "evidence": "one key, whose value is a number"},
        {
            "table": "by_age",
            "kind": "index",
            "of": "people",
            "evidence": "no values, and 12 of 12 sampled keys end in a key of people",
        },
    ]
    assert {
        "place": "/plant/people/",
        "decision": "a field",
        "reason": "12 records with the same fields: 'p0', 'p1', 'p10', 'p11', ...",
        "confidence": "high",
    } in found["notes"]


def test_an_audit_tells_what_is_not_explained_and_fails(run: Keyplan, url: str) -> None:
    run("infer", "--store", url, "--prefix", "/plant/people/", "--out", "people.json")
    audited = run("audit", "--store", url, "--layout", "people.json")
    assert (audited.code, audited.lines) == (
        1,
        [
            "48.00 % of 25 keys explained by Inferred",
            "people\ttable\t12\t470\t0\tpeople/{people}",
            "12 unknown behind by-age/, nearest is people: /plant/by-age/0/p0, /plant/by-age/1/p1, /plant/by-age/10/p10, ...",
            "1 unknown behind the root, nearest is people: /plant/next-badge",
        ],
    )
    assert run("audit", "--store", url, "--layout", "people.json", "--min-explained", "48").code == 0
    assert run("audit", "--store", url, "--layout", "people.json", "--min-explained", "48.1").code == 1
    assert run("audit", "--store", url, "--layout", "people.json", "--prefix", "/plant/people/").code == 0


def test_an_audit_as_json_counts_everything(run: Keyplan, url: str) -> None:
    run("infer", "--store", url, "--prefix", "/plant/people/", "--out", "people.json")
    report = run("audit", "--store", url, "--layout", "people.json", "--json", "--samples", "1").document
    assert (report["keys"], report["explained"], report["unknown"], report["percent"]) == (25, 12, 13, 48.0)
    assert report["departures"][0]["samples"] == ["/plant/by-age/0/p0"]


def test_keys_that_are_left_out_are_told_and_fail(run: Keyplan, tmp_path: Path) -> None:
    path = tmp_path / "mixed.lmdb"
    with lmdb.open(str(path), lib_version=0) as environment, environment.begin(write=True) as transaction:
        for number in range(9):
            transaction.put(b"/jobs/%d" % number, b"x")
        transaction.put(b"\x00\x01", b"")
    answer = run("infer", "--store", f"lmdb:{path}?database=")
    assert (answer.code, answer.lines[0]) == (1, "10 keys, 1 tables below /")
    assert "1 keys are left out: \\x00\\x01" in answer.err


def test_a_name_that_is_none_is_refused(run: Keyplan, url: str) -> None:
    answer = run("infer", "--store", url, "--name", "a-b")
    assert (answer.code, answer.out) == (5, "")
    assert run("infer", "--store", url, "--prefix", "\\q").code == 5
