"""The commands `keyplan region ...`: captured files, a PD over HTTP, a registry in a store, PD's metadata."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from keyplan.engine import Commit, Put, open_engine
from keyplan.keyspace import KeySpaces
from tests.cli.conftest import Keyplan
from tests.regions.pd_server import FakePd, fake_pd
from tests.regions.scenarios import S1_BOUNDS, S1_SPACES
from tests.regions.test_metadata import CONTENT


@pytest.fixture
def pd() -> Iterator[FakePd]:
    with fake_pd() as server:
        server.put_regions(*S1_BOUNDS)
        yield server


@pytest.fixture
def captured(tmp_path: Path) -> Path:
    """Scenario 1 in files."""
    with fake_pd() as server:
        server.put_regions(*S1_BOUNDS)
        (tmp_path / "regions.json").write_text(json.dumps({"count": 7, "regions": server.regions}))
    spaces = [{"name": space.name, "prefix": space.prefix.hex(), "state": "ENABLED"} for space in S1_SPACES]
    (tmp_path / "spaces.json").write_text(json.dumps({"keyspaces": spaces, "next_page_token": ""}))
    return tmp_path


@pytest.fixture
def registry(tmp_path: Path) -> str:
    """A store with a registry: orders at 01 with a key, users at 02 without one."""
    url = f"lmdb:{tmp_path}/site.kv"
    with open_engine(url) as engine:
        spaces = KeySpaces(engine)
        spaces.create("orders", "shop", prefix="01")
        spaces.create("users", "shop", prefix="02")
        engine.commit(Commit((), (Put(b"\x01key", b"value"),)))
    return url


def test_a_plan_from_files_prints_splits_and_rules(run: Keyplan, captured: Path) -> None:
    answer = run("region", "plan", "--regions", "regions.json", "--key-spaces", "spaces.json", "--cluster", "c0ffee")
    assert answer.code == 0
    assert answer.lines == [
        "split   0200000000000000F8",
        "split   6E00000000000000F8",
        "split   7400000000000000F8",
        "split   7500000000000000F8",
        "set     keyplan/c0ffee/orders  0100000000000000f8 to 0200000000000000f8",
        "set     keyplan/c0ffee/tidb-data  7400000000000000f8 to 7500000000000000f8",
        "set     keyplan/c0ffee/tidb-meta  6d00000000000000f8 to 6e00000000000000f8",
        "set     keyplan/c0ffee/users  0200000000000000f8 to 0300000000000000f8",
        "4 splits, 4 rules to set, 0 to delete",
    ]


def test_a_plan_as_json_has_the_documents_form(run: Keyplan, captured: Path) -> None:
    words = ("region", "plan", "--regions", "regions.json", "--key-spaces", "spaces.json", "--cluster", "c0ffee")
    plan = run(*words, "--json").document
    assert plan["ok"] is False
    assert plan["violations"][0] == {
        "kind": "spans_keyspaces",
        "region_id": 12,
        "keyspaces": ["orders", "users"],
        "split_keys": ["0200000000000000F8"],
    }
    assert plan["holes"] == plan["overlaps"] == []
    assert plan["guards"] is None
    assert [space["covered"] for space in plan["keyspaces"]] == [False, False, False, False]


def test_verify_tells_every_violation_and_fails(run: Keyplan, captured: Path) -> None:
    words = ("region", "verify", "--regions", "regions.json", "--key-spaces", "spaces.json", "--cluster", "c0ffee")
    answer = run(*words)
    assert answer.code == 1
    assert answer.lines[:3] == [
        "spans_keyspaces  region 12  orders, users  0200000000000000F8",
        "spans_keyspaces  region 15  tidb-meta, tidb-data  6E00000000000000F8 7400000000000000F8",
        "crosses_boundary  region 16  tidb-data  7500000000000000F8",
    ]
    (captured / "rules.json").write_text("[]")
    assert "guard_missing  no rule  orders  0100000000000000F8" in run(*words, "--rules", "rules.json").lines


def test_a_registrys_key_spaces_are_applied_to_pd_and_verified(run: Keyplan, pd: FakePd, registry: str) -> None:
    answer = run("region", "apply", "--pd", pd.url, "--store", registry)
    assert answer.code == 0
    assert "no region spans key spaces: 3 boundaries, each is guarded" in answer.lines
    assert len(pd.regions) == 8
    (rule_id, other) = sorted(pd.rules)
    assert rule_id.startswith("keyplan/")
    assert rule_id.endswith("/orders")
    assert other.endswith("/users")
    assert run("region", "verify", "--pd", pd.url, "--store", registry).code == 0
    assert run("region", "plan", "--pd", pd.url, "--store", registry).lines == ["0 splits, 0 rules to set, 0 to delete"]
    assert run("region", "apply", "--pd", pd.url, "--store", registry, "--skip-empty", "--json").document["ok"] is True
    assert list(pd.rules) == [rule_id]


@pytest.mark.slow
def test_an_apply_that_pd_does_not_carry_out_fails(run: Keyplan, pd: FakePd, registry: str) -> None:
    pd.refused = [10] * 100
    answer = run("region", "apply", "--pd", pd.url, "--store", registry, "--json")
    assert answer.code == 1
    assert answer.document["after"]["split_keys"] == ["0200000000000000F8"]


def test_pds_own_key_spaces_are_planned(run: Keyplan, pd: FakePd) -> None:
    pd.spaces = [{"id": 1, "name": "foo", "state": "ENABLED"}]
    answer = run("region", "plan", "--pd", pd.url, "--from-pd", "--mode", "both")
    assert [line for line in answer.lines if line.startswith("split")] == [
        "split   7200000100000000FB",
        "split   7200000200000000FB",
        "split   7800000100000000FB",
        "split   7800000200000000FB",
    ]


def test_pds_metadata_is_imported_into_a_file_that_plan_reads(run: Keyplan, tmp_path: Path, captured: Path) -> None:
    url = f"lmdb:{tmp_path}/pd.kv"
    with open_engine(url) as engine:
        engine.commit(Commit((), tuple(Put(key, value) for key, value in CONTENT.items())))
    answer = run("region", "import", "--store", url, "--output", "imported.json")
    assert (answer.code, answer.lines) == (0, ["wrote imported.json: 3 key spaces of cluster 7281"])
    plan = run("region", "plan", "--regions", "regions.json", "--key-spaces", "imported.json")
    assert "set     keyplan/7281/foo  7800000100000000fb to 7800000200000000fb" in plan.lines
    with open_engine(url) as engine:
        engine.commit(Commit((), (Put(b"/pd/7281/keyspaces/meta/00000077", b"\xff"),)))
    broken = run("region", "import", "--store", url)
    assert broken.code == 1
    assert broken.document["problems"] == [broken.err.strip().removeprefix("keyplan: ")]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("plan",), "name key spaces"),
        (("apply", "--key-spaces", "spaces.json"), "name the PD"),
        (("plan", "--key-spaces", "spaces.json", "--cluster", "c"), "name regions"),
        (("plan", "--key-spaces", "spaces.json", "--regions", "regions.json"), "names no cluster"),
        (("plan", "--key-spaces", "none.json"), "No such file"),
        (("plan", "--key-spaces", "spaces.json", "--mode", "odd"), "one of txn, raw, both"),
        (("plan", "--from-pd"), "needs --pd"),
    ],
)
def test_options_that_do_not_fit_together_are_refused(
    run: Keyplan, captured: Path, words: tuple[str, ...], problem: str
) -> None:
    answer = run("region", *words)
    assert answer.code == 5
    assert problem in answer.err


def test_a_store_without_a_registry_has_no_key_spaces_to_plan(run: Keyplan, pd: FakePd, tmp_path: Path) -> None:
    url = f"lmdb:{tmp_path}/empty.kv"
    open_engine(url).close()
    answer = run("region", "plan", "--pd", pd.url, "--store", url)
    assert answer.code == 3
    assert "no registry" in answer.err
