"""The front end's calls and the filters of `runm`: what the original gets wrong with providers, and how it is here."""

import json
from typing import Any

import pytest

from keyplan.apps.runm import cli_client
from keyplan.apps.runm.expressions import object_expression, provider_expression
from keyplan.errors import InvalidInputError
from tests.apps.runm.client import EAST, PROJECT, SW, WEST, refused
from tests.apps.runm.conftest import Served

COMPUTE = "runm.compute"
PART0 = "us-west.example.com"


def make(running: Served, name: str, /, **given: Any) -> Any:
    document = {"partition": PART0, "provider_type": COMPUTE, "name": name, **given}
    return running.api.provider_create(SW, payload=json.dumps(document).encode()).provider


@pytest.mark.parametrize(
    ("change", "status", "text"),
    [
        ({"partition": ""}, "FAILED_PRECONDITION", "partition required"),
        ({"name": None}, "FAILED_PRECONDITION", "name required"),
        ({"provider_type": None}, "FAILED_PRECONDITION", "provider_type required"),
        ({"partition": "nowhere"}, "FAILED_PRECONDITION", "Partition nowhere not found"),
        ({"provider_type": "runm.none"}, "FAILED_PRECONDITION", "Provider type runm.none not found"),
        ({"parent": "nobody"}, "FAILED_PRECONDITION", "Parent provider nobody not found"),
        ({"colour": "red"}, "INVALID_ARGUMENT", None),
        ({"properties": {"location.site": "east"}}, "INVALID_ARGUMENT", None),  # the default allows letters and digits
        ({"properties": {"rack": 7}}, "INVALID_ARGUMENT", None),
        ({"tags": [1]}, "INVALID_ARGUMENT", None),
    ],
)
def test_a_provider_that_its_definition_does_not_allow_is_refused(
    west: Served, change: dict[str, Any], status: str, text: str | None
) -> None:
    before = west.dump()
    with refused(status, text):
        make(west, "n", **change)
    assert west.dump() == before


def test_a_provider_is_made_shown_found_and_deleted_with_what_stands_beside_it(west: Served) -> None:
    above = make(west, "above", properties={"site": "east1"}, tags=["compute"])
    below = make(west, "below", parent="above", provider_type="runm.storage.block")
    assert below.parent.uuid == above.uuid
    assert (below.provider_type.code, below.partition.name) == ("runm.storage.block", PART0)

    def found(**given: Any) -> list[str]:
        return [
            one.name for one in west.api.provider_list(SW, any=[given], options={"sort_fields": [{"field": "name"}]})
        ]

    assert found(provider_type_filter={"search": "runm.", "use_prefix": True}) == ["above", "below"]
    assert found(provider_type_filter={"search": COMPUTE}) == ["above"]
    assert found(property_filter={"require_keys": ["site"]}) == ["above"]
    assert found(primary_filter={"search": "be", "use_prefix": True}) == ["below"]
    assert found(primary_filter={"search": below.uuid[:6], "use_prefix": True}) == ["below"]
    assert found(partition_filter={"search": EAST}) == []
    before = west.dump()
    asks_nothing: list[list[Any]] = [[], [{}], [{"primary_filter": {}}]]
    for nothing in asks_nothing:
        with refused("FAILED_PRECONDITION"):
            west.api.provider_delete(SW, any=nothing)
    with refused("NOT_FOUND", "no matching records could be found."):
        west.api.provider_delete(SW, any=[{"primary_filter": {"search": "nobody"}}])
    assert west.dump() == before
    assert west.api.provider_delete(SW, any=[{"primary_filter": {"search": above.uuid}}]).num_deleted == 1
    assert [one.name for one in west.api.provider_list(SW)] == ["below"]
    with west.deployment.reading() as state:
        assert [uuid.hex for uuid in state.beside.providers.keys()] == [below.uuid]  # noqa: SIM118  # Why: a table, no dict.


def test_a_fallback_finds_the_definition_that_the_originals_front_end_does_not(west: Served) -> None:
    document = b"property_definitions: {location.site: {required: true, schema: {type: string}}}"
    west.api.provider_definition_set(SW, payload=document)
    assert make(west, "n", properties={"location.site": "east1"}).name == "n"
    with refused("NOT_FOUND"):
        west.api.provider_definition_get(SW, partition=PART0, provider_type=COMPUTE)


def test_a_filter_that_is_not_understood_is_refused() -> None:
    for text in ("", "uuid=", "name=a name=b", "uuid=a name=b", "=x", 'name="open'):
        with pytest.raises(InvalidInputError):
            provider_expression(text)
    assert provider_expression("uuid=ab* type=runm.compute").fields == {
        "primary_filter": {"search": "ab", "use_prefix": True},
        "provider_type_filter": {"search": "runm.compute", "use_prefix": False},
    }
    assert object_expression("tag=a tag=-b 'os=two words' has").fields == {
        "tag_filter": {"require": ["a"], "forbid": ["b"]},
        "property_filter": {"require_items": [{"key": "os", "value": "two words"}], "require_keys": ["has"]},
    }


def test_the_beginning_of_a_property_is_looked_at_by_the_client(
    west: Served, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    host, _, port = west.address.rpartition(":")
    for name, value in {"HOST": host, "PORT": port, "USER": "u", "PROJECT": PROJECT, "PARTITION": WEST}.items():
        monkeypatch.setenv(f"RUNM_{name}", value)
    for name, vendor in (("a", "AMD Epyc"), ("b", "Intel")):
        make(west, name, properties={"cpu": vendor})

    def runm(*words: str) -> tuple[int, str]:
        code = cli_client.main(words)
        captured = capsys.readouterr()
        return code, captured.out + captured.err

    assert [line.split("\t")[3] for line in runm("provider", "list", "--filter", "cpu=AMD*")[1].splitlines()] == ["a"]
    assert runm("provider", "delete", "--filter", "cpu=AMD*", "-v") == (0, "deleted 1 provider(s)\n")
    assert runm("provider", "delete", "--filter", "cpu=AMD*") == (
        5,
        "Error: no matching records could be found.\n",
    )
    assert runm("provider", "delete", "--filter", "uuid=")[0] == 1
    assert runm("provider", "get", "nobody")[0] == 5
    assert runm("provider", "list", "--user", "")[0] == 9
    assert runm("partition", "list", "--filter", "nowhere") == (0, "No records found matching search criteria.\n")
    assert [one.name for one in west.api.provider_list(SW)] == ["b"]


def test_the_beginnings_of_several_filters_are_kept_apart_and_a_limit_counts_what_fits(
    west: Served, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    port = west.address.rpartition(":")[2]
    for name, value in {"HOST": "127.0.0.1", "PORT": port, "USER": "u", "PROJECT": PROJECT, "PARTITION": WEST}.items():
        monkeypatch.setenv(f"RUNM_{name}", value)
    for number, (name, cpu, site) in enumerate(
        (("a", "Intel", "east"), ("b", "AMD Epyc", "west"), ("c", "AMD Ryzen", "west"), ("d", "Intel", "west"))
    ):
        properties = [{"key": "cpu", "value": cpu}, {"key": "site", "value": site}]
        image = {"partition": WEST, "object_type": "runm.image", "project": PROJECT, "name": name}
        west.client.object_create(SW, object={**image, "uuid": f"{number:032x}", "properties": properties})

    def names(*words: str) -> list[str]:
        assert cli_client.main(["object", "list", *words]) == 0
        return [line.split("\t")[3] for line in capsys.readouterr().out.splitlines()]

    assert names("--filter", "cpu=AMD*") == ["b", "c"]
    assert names("--filter", "cpu=AMD*", "--limit", "1") == ["b"]
    assert names("--filter", "cpu=AMD*", "--limit", "1", "--marker", f"{1:032x}") == ["c"]
    assert names("--filter", "site=east", "--filter", "cpu=AMD*", "--sort", "name:desc") == ["c", "b", "a"]


def test_the_program_says_what_to_do_and_deletes_by_name(
    west: Served, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    port = west.address.rpartition(":")[2]
    for name, value in (("HOST", "127.0.0.1"), ("PORT", port), ("USER", "admin"), ("PROJECT", PROJECT)):
        monkeypatch.setenv(f"RUNM_{name}", value)
    monkeypatch.delenv("RUNM_PARTITION", raising=False)
    assert cli_client.main(["partition", "list"]) == 9
    expected = "Error: partition is required in session. Give --partition or set RUNM_PARTITION.\n"
    assert capsys.readouterr().err == expected
    assert cli_client.main(["partition", "create", "-f", "nowhere.yaml"]) == 1
    assert capsys.readouterr().err == "Error: nowhere.yaml: No such file or directory\n"
    monkeypatch.setenv("RUNM_PARTITION", WEST)
    for name in ("a/b", "c"):
        image = {"partition": WEST, "object_type": "runm.image", "project": PROJECT, "name": name}
        west.client.object_create(SW, object=image)
    assert cli_client.main(["object", "delete", "a/b", "none", "--type", "runm.image"]) == 5
    assert len(west.client.object_find(SW)) == 2
    assert cli_client.main(["object", "delete", "a/b", "c", "--type", "runm.image", "-v"]) == 0
    assert capsys.readouterr().out == "deleted 2 objects\n"
    assert west.client.object_find(SW) == []
