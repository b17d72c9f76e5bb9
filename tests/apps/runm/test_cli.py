"""The program `runm` as its users type it: a day in the life (5.5) with the original's samples (5.4), and how it prints."""

import json
from collections.abc import Callable, Generator
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest

from keyplan.apps.runm import cli_client
from keyplan.apps.runm.deployment import Rulings
from keyplan.apps.runm.documents import object_document, read_document
from keyplan.apps.runm.rendering import permission_text
from keyplan.apps.runm.wire_table import messages
from keyplan.store import Store
from tests.apps.runm.client import I1, PROJECT, SW, WEST, refused
from tests.apps.runm.conftest import Served, served

Runm = Callable[..., tuple[int, str, str]]

COMPUTE = """
property_definitions:
  location.site: {required: true, schema: {type: string}}
  location.row: {schema: {type: integer}}
  location.rack: {schema: {type: integer}}
  location.rack_position: {schema: {type: integer}}
"""
BLOCK = "property_definitions: {vendor: {required: true, schema: {type: string, enum: [netapp, scaleio]}}}"


@pytest.fixture
def keeping(lmdb_store: Store) -> Generator[Served, None, None]:
    with served(lmdb_store, Rulings(deleted_kept_seconds=60)) as running:
        yield running


@pytest.fixture
def runm(keeping: Served, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Runm:
    """The program with the environment of an operator; gives its exit code and what it printed on both outputs."""
    port = keeping.address.rpartition(":")[2]
    for name, value in {
        "HOST": "127.0.0.1",
        "PORT": port,
        "USER": "admin",
        "PROJECT": "proj0",
        "PARTITION": "part0",
    }.items():
        monkeypatch.setenv(f"RUNM_{name}", value)

    def run(*words: str, document: str = "") -> tuple[int, str, str]:
        monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(document.encode())))
        code = cli_client.main(words)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def test_a_day_in_the_life(runm: Runm) -> None:
    assert runm("partition", "create", document=f"name: part0\nuuid: {WEST}")[:2] == (0, f"{WEST}\n")
    assert (
        runm("provider", "definition", "set", "--partition", "part0", "--type", "runm.compute", document=COMPUTE)[0]
        == 0
    )
    assert runm("provider", "definition", "set", "--type", "runm.storage.block", document=BLOCK)[0] == 0
    for site in ("east1", "west1"):
        for row in (1, 2):
            for rack in (1, 2):
                node = {
                    "partition": "part0",
                    "provider_type": "runm.compute",
                    "name": f"{site}-row{row}-rack{rack}-node1",
                    "properties": {"location.site": site, "location.row": row, "location.rack": rack},
                    "tags": ["compute"],
                }
                code, uuid, _ = runm("provider", "create", document=json.dumps(node))
                assert (code, len(uuid.strip())) == (0, 32)
    code, out, _ = runm("provider", "list", "--filter", "type=runm.compute location.site=east1 location.row=2")
    assert sorted(line.split("\t")[3] for line in out.splitlines()) == [
        "east1-row2-rack1-node1",
        "east1-row2-rack2-node1",
    ]
    wrong = "{partition: part0, provider_type: runm.storage.block, name: disk, properties: {vendor: other}}"
    code, _, error = runm("provider", "create", document=wrong)
    assert code == 3
    assert "/properties/vendor" in error
    assert runm("provider", "delete", "east1-row1-rack1-node1")[:2] == (0, "ok\n")
    assert len(runm("provider", "list")[1].splitlines()) == 7
    image = "{object_type: runm.image, name: db-server, tags: [latest, active], properties: {architecture: x86_64, os: linux}}"
    assert runm("object", "create", document=image)[0] == 0
    assert runm("object", "list", "--filter", "tag=active os=lin*")[1].split("\t")[3:] == ["db-server", "proj0\n"]


def test_identifiers_alone_whole_records_and_json(runm: Runm) -> None:
    assert (
        runm("partition", "create", "-v", document=f"{{name: part0, uuid: {WEST}}}")[1]
        == f"UUID: {WEST}\nName: part0\n"
    )
    assert runm("partition", "list", "-q")[1] == f"{WEST}\n"
    assert json.loads(runm("partition", "get", "part0", "--json")[1]) == {"uuid": WEST, "name": "part0"}
    assert runm("provider-type", "list", "-q")[1] == "runm.compute\nrunm.storage.block\n"
    assert runm("provider-type", "list", "-q", "--sort", "code:desc", "--limit", "1")[1] == "runm.storage.block\n"
    assert runm("object-type", "list", "-q", "--marker", "runm.machine", "--limit", "1")[1] == "runm.provider\n"
    assert runm("object-type", "get", "runm.image")[1].splitlines()[2] == "Scope: PROJECT"
    assert runm("partition", "get", "none")[::2] == (5, "Error: object could not be found.\n")
    assert runm("partition", "create", document="name: part0")[0] == 6
    assert runm("partition", "list", "--sort", "name:up")[0] == 1
    code, out, _ = runm("helpenv")
    assert (code, out.splitlines()[2]) == (0, "RUNM_PARTITION\t--partition\tpart0")


def test_what_was_deleted_is_listed_and_restored_by_command(runm: Runm) -> None:
    runm("partition", "create", document=f"{{name: part0, uuid: {WEST}}}")
    runm("object", "create", document=f"{{object_type: runm.image, name: a, uuid: {I1}}}")
    assert runm("object", "delete", I1)[0] == 0
    (line,) = runm("object", "deleted")[1].splitlines()
    assert line.split("\t")[1:] == ["admin", "runm.image", I1, "a", "proj0"]
    assert runm("object", "restore", I1)[:2] == (0, f"{I1}\n")
    assert runm("object", "restore", I1)[0] == 5
    assert runm("object", "deleted")[1:] == ("", "No records found matching search criteria.\n")


def test_a_property_that_is_no_pair_is_named(runm: Runm) -> None:
    code, _, text = runm("object", "set", I1, "--property", "os=linux", "--property", "linux")
    assert (code, "'linux' is not KEY=VALUE" in text) == (1, True), text


def test_earlier_definitions_are_listed_and_shown_by_command(runm: Runm, tmp_path: Path) -> None:
    runm("partition", "create", document=f"{{name: part0, uuid: {WEST}}}")
    for title in ("first", "second"):
        (tmp_path / "schema.json").write_text(f'{{"title": "{title}"}}')
        assert runm("definition", "set", "runm.image", "--schema", str(tmp_path / "schema.json"))[0] == 0
    (line,) = runm("definition", "history", "runm.image")[1].splitlines()
    assert line.split("\t")[0::2] == ["1", "admin"]
    assert '"title": "first"' in runm("definition", "history", "runm.image", "--number", "1")[1]
    assert runm("definition", "history", "runm.image", "--number", "7")[0] == 5


def test_an_object_is_got_by_its_name_alone_where_it_is_the_only_one(runm: Runm) -> None:
    runm("partition", "create", document=f"name: part0\nuuid: {WEST}")
    for kind in ("runm.image", "runm.machine"):
        assert runm("object", "create", document=f"object_type: {kind}\nname: {kind}")[0] == 0
        assert runm("object", "create", document=f"object_type: {kind}\nname: both")[0] == 0
    assert "Object Type: runm.machine" in runm("object", "get", "runm.machine")[1]
    code, _, text = runm("object", "get", "both")
    assert (code, text) == (
        9,
        "Error: 2 objects have the name both, of runm.image, runm.machine. Say which by --type.\n",
    )
    assert runm("object", "get", "both", "--type", "runm.image")[0] == 0
    assert runm("object", "get", "nothing")[0] == 5


def test_values_are_texts_as_json_writes_them_and_nothing_else_is_a_value() -> None:
    """S23."""
    document = read_document("{name: n, object_type: t, properties: {a: 1, b: 1.5, c: true, d: false, e: x, f: '1'}}")
    values = {one.key: one.value for one in object_document(document).properties}
    assert values == {"a": "1", "b": "1.5", "c": "true", "d": "false", "e": "x", "f": "1"}


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"permission": 3}, "GLOBAL READ/WRITE"),
        ({"project": "p", "permission": 1}, "PROJECT(p) READ"),
        ({"role": "r", "permission": 2}, "ROLE(r) WRITE"),
        ({"project": "p", "role": "r"}, "PROJECT(p) ROLE(r) NONE (Deny)"),
    ],
)
def test_a_permission_reads_as_the_original_prints_it(fields: dict[str, object], text: str) -> None:
    assert permission_text(messages.PropertyPermission(**fields)) == text


@pytest.mark.parametrize("uuid", ["-", "--", "g", "a" * 33, "0x1"])
def test_what_begins_no_uuid_is_no_filter(west: Served, uuid: str) -> None:
    given = {"uuid_filter": {"uuid": uuid, "use_prefix": True}}
    with refused("INVALID_ARGUMENT"):
        west.client.object_find({**SW, "project": PROJECT}, any=[given])
    with refused("INVALID_ARGUMENT"):
        west.client.partition_find(SW, any=[given])
