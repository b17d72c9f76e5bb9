"""`keyplan cloudchamber import` as people and programs see it."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import keyplan
from keyplan.apps.cloudchamber import BladeKey, CloudChamber, Condition, LayoutSide, MultiplicityError
from keyplan.apps.cloudchamber.cli import app
from keyplan.engine import Commit, Delete
from keyplan.errors import InvalidInputError, KeyplanError
from tests.apps.cloudchamber.conftest import CheckAfter, definition_yaml, raw_keys


@pytest.fixture
def url(tmp_path: Path, check_after: CheckAfter) -> Iterator[str]:
    """Where a store can be made, which is checked at the end if it was."""
    folder = tmp_path / "chamber.kv"
    yield f"lmdb:{folder}"
    if folder.exists():
        with check_after(keyplan.open(f"lmdb:{folder}"), CloudChamber):
            pass


@pytest.fixture
def sample(repository: Path) -> Path:
    """The sample that the README imports."""
    return repository / "examples" / "inventory.yaml"


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["import", *map(str, arguments)])


def lines(result: Result) -> list[str]:
    assert result.exception is None, result.exception
    return result.output.splitlines()


def test_the_sample_is_imported_and_told_rack_by_rack(url: str, sample: Path) -> None:
    assert lines(run(sample, "--store", url)) == [
        "Harbour Street",
        f"{sample}: 1 region, 1 zone, 2 racks, 4 blades",
        "  + ada    rack, pdu, tor, 2 blades",
        "  + grace  rack, pdu, tor, 2 blades",
        "10 created, in one commit. The store is at revision 1.",
    ]
    with keyplan.open(url) as store:
        blade = CloudChamber(store).blades.require(BladeKey("grace", 2))
    assert blade.details is not None
    assert blade.capacity is not None
    assert (blade.details.condition, blade.capacity.disk_in_gb) == (Condition.OUT_FOR_REPAIR, 61_440)


def test_a_second_import_has_nothing_to_do(url: str, sample: Path) -> None:
    run(sample, "--store", url)
    assert lines(run(sample, "--store", url))[2:] == [
        "Nothing to do: the store has all 10 records as the file says, and stays at revision 1."
    ]


def test_a_dry_run_tells_the_changes_and_writes_nothing(url: str, sample: Path, tmp_path: Path) -> None:
    run(sample, "--store", url)
    changed = tmp_path / "changed.yaml"
    text = sample.read_text().replace("- Name: grace", "- Name: hedy").replace("Cores: 48", "Cores: 64")
    changed.write_text(text)
    assert lines(run(changed, "--store", url, "--dry-run"))[2:] == [
        "  ~ ada    blade 1 (capacity.cores), blade 2 (capacity.cores)",
        "  - grace  rack, pdu, tor, 2 blades",
        "  + hedy   rack, pdu, tor, 2 blades",
        "5 to create, 2 to update, 5 to delete, 3 unchanged. This was a dry run: nothing was written.",
    ]
    with keyplan.open(url) as store:
        assert store.revision == 1


def test_a_dry_run_makes_no_store(sample: Path, tmp_path: Path) -> None:
    said = run(sample, "--store", f"lmdb:{tmp_path / 'none.kv'}", "--dry-run")
    assert lines(said)[-1] == "10 to create. This was a dry run: nothing was written."
    assert not (tmp_path / "none.kv").exists()


def test_json_has_every_change_and_no_value(url: str, sample: Path, tmp_path: Path) -> None:
    run(sample, "--store", url)
    changed = tmp_path / "changed.yaml"
    changed.write_text(sample.read_text().replace("Notes: Mixed", "Notes: Secret"))
    result = run(changed, "--store", url, "--json")
    assert json.loads(result.output) == {
        "create": [],
        "update": [{"table": "racks", "rack": "grace", "fields": ["details.notes"]}],
        "delete": [],
        "unchanged": 9,
        "dry_run": False,
        "commits": 1,
        "revision": 2,
    }


def test_a_long_plan_shows_fifty_racks_and_counts_the_rest(url: str, tmp_path: Path) -> None:
    file = tmp_path / "many.yaml"
    file.write_bytes(definition_yaml(*(f"rack{number:02}" for number in range(60))))
    told = lines(run(file, "--store", url))
    assert told[2] == "  + rack00  rack, pdu, tor, 1 blade"
    assert told[52:] == ["    and 10 racks more", "240 created, in one commit. The store is at revision 1."]


def test_a_test_instance_is_named_in_place_of_production(url: str, sample: Path) -> None:
    lines(run(sample, "--store", url, "--namespace", "Test/Standard"))
    with keyplan.open(url) as store:
        assert all(key.startswith(b"/CloudChamber/V0.1/Test/Standard/rack") for key in raw_keys(store))


def test_the_store_can_come_from_the_environment(url: str, sample: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEYPLAN_STORE", url)
    assert lines(run(sample))[-1].startswith("10 created")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("--namespace", "Production"), KeyplanError),
        (("--store", "nowhere:"), KeyplanError),
        (("--store", ""), InvalidInputError),
    ],
)
def test_what_cannot_be_done_is_an_error_of_keyplan(
    url: str, sample: Path, arguments: tuple[str, ...], error: type[KeyplanError]
) -> None:
    result = run(sample, "--store", url, *arguments)
    assert isinstance(result.exception, error)


def test_several_zones_are_imported_with_both_options(url: str, samples: Path) -> None:
    """AC-45."""
    refused = run(samples / "Extended.yaml", "--store", url)
    assert isinstance(refused.exception, MultiplicityError)
    options = ("--extra-devices", "extend", "--rack-ids", "region.zone.rack")
    assert lines(run(samples / "Extended.yaml", "--store", url, *options))[-1].startswith("288 created")


@pytest.mark.parametrize("side", LayoutSide)
def test_what_stands_alone_is_listed_under_either_programs_keys(tmp_path: Path, sample: Path, side: LayoutSide) -> None:
    url = f"lmdb:{tmp_path / 'kv'}?durability=none"
    run(sample, "--store", url, "--into", side.value)

    def orphans(*options: str) -> Result:
        return CliRunner().invoke(app, ["orphans", "--store", url, *options])

    assert (orphans().exit_code, orphans().output) == (0, "Nothing stands alone.\n")
    with keyplan.open(url) as store:
        own = [
            key for key in raw_keys(store) if key.endswith((b"/data/region/north/zone/cellar/rack/ada", b"racks/ada"))
        ]
        store.engine.commit(Commit((), tuple(map(Delete, own))))
        parts = sorted(key.decode() for key in raw_keys(store) if b"rack/ada/" in key and b"index" not in key)
    found = orphans()
    assert (found.exit_code, found.output.splitlines()[-1]) == (1, "4 keys to look at.")
    told = [json.loads(line) for line in orphans("--json").output.splitlines()]
    assert sorted(one["key"] for one in told) == parts
    assert {one["problem"] for one in told} == {"a part belongs to a rack that is not there"}
