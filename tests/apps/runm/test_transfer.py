"""A partition written to a file and brought into another installation: byte for byte, conflicts told, nothing in halves."""

import json
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest
from msgspec import structs

import keyplan
from keyplan.apps.runm import Object, ObjectType, Partition, Runm
from keyplan.apps.runm.definitions import Scope, point, pointer_at
from keyplan.apps.runm.deployment import Deployment
from keyplan.apps.runm.partition_file import (
    FORMAT,
    Line,
    ObjectLine,
    PartitionLine,
    lines_read,
    lines_written,
)
from keyplan.apps.runm.partition_removal import remove_partition
from keyplan.apps.runm.start import ensure_started
from keyplan.apps.runm.transfer import ImportReport, exported, import_partition
from keyplan.apps.runm.verify import verify
from keyplan.cli.main import main
from keyplan.engine import ALL_KEYS, MEMORY_PROFILE, MemoryEngine
from keyplan.errors import AlreadyExistsError, ConflictError, InvalidInputError, NotFoundError
from keyplan.store import Store
from tests.apps.runm.client import EAST, GROUP, I1, I2, PROJECT, SW, WEST
from tests.apps.runm.conftest import Served

DEFINITION = {"schema": "{}", "property_permissions": [{"key": "secret", "permissions": [{"permission": 0}]}]}


@pytest.fixture
def filled(west: Served) -> Served:
    """Images of two projects, one with a property that nobody may read; a group; two providers; another partition."""
    client = west.client
    image = {"partition": WEST, "object_type": "runm.image", "name": "a/b"}
    client.object_create(SW, object={**image, "project": PROJECT, "uuid": I1, "tags": ["x"]})
    properties = [{"key": "secret", "value": "s"}, {"key": "os", "value": "linux/redhat"}]
    client.object_create(
        {**SW, "project": "p2"}, object={**image, "project": "p2", "uuid": I2, "properties": properties}
    )
    client.object_create(
        SW, object={"partition": WEST, "object_type": "runm.provider_group", "name": "g", "uuid": GROUP}
    )
    client.object_create({**SW, "partition": EAST}, object={**image, "partition": EAST, "project": PROJECT})
    for name, uuid, parent in (("above", "1" * 32, ""), ("below", "a2" * 16, "above")):
        document = {"partition": WEST, "provider_type": "runm.compute", "name": name, "uuid": uuid, "parent": parent}
        west.api.provider_create(SW, payload=json.dumps(document).encode())
    client.definition_set(
        SW, scope={"object_type_code": "runm.image", "partition_uuid": WEST}, object_definition=DEFINITION
    )
    return west


@pytest.fixture
def other(tmp_path: Path, check_after: Callable[..., AbstractContextManager[Store]]) -> Generator[Store, None, None]:
    """Another installation's store, empty."""
    with (
        keyplan.open(f"lmdb:{tmp_path / 'other'}?durability=none") as opened,
        check_after(opened, Runm(opened), has_others=True),
    ):
        yield opened


def written(store: Store, path: Path, partition: str = WEST) -> Path:
    path.write_bytes(b"".join(lines_written(exported(store, "", partition))))
    return path


def brought(store: Store, path: Path, *, is_dry_run: bool = False) -> ImportReport:
    def lines() -> list[Line]:
        with path.open("rb") as given:
            return list(lines_read(given, str(path)))

    return import_partition(store, "", lines, is_dry_run=is_dry_run)


def keys_of(store: Store, word: str) -> dict[bytes, bytes]:
    """The keys of the root and beside it that are not of the start, and hold the partition's or an object's UUID."""
    with store.engine.snapshot() as snapshot:
        return {entry.key: entry.value for entry in snapshot.scan(ALL_KEYS) if word.encode() in entry.key + entry.value}


def test_a_partition_is_the_same_keys_in_another_installation(filled: Served, other: Store, tmp_path: Path) -> None:
    path = written(filled.store, tmp_path / "west.jsonl")
    assert brought(other, path, is_dry_run=True) == ImportReport(7, 0, ())
    assert keys_of(other, "runm/") == {}
    assert brought(other, path) == ImportReport(7, 0, ())
    for word in (WEST, I1, I2, GROUP, "1" * 32, "a2" * 16):
        assert keys_of(other, word) == keys_of(filled.store, word) != {}
    assert list(verify(other, "")) == []
    assert keys_of(other, EAST) == {}


def test_an_import_that_was_interrupted_is_run_again(filled: Served, other: Store, tmp_path: Path) -> None:
    path = written(filled.store, tmp_path / "west.jsonl")
    brought(other, path)
    Deployment(other).runm.objects.delete(UUID(I2))
    assert brought(other, path, is_dry_run=True) == ImportReport(1, 6, ())
    assert brought(other, path) == ImportReport(1, 6, ())
    revision = other.revision
    assert brought(other, path) == ImportReport(0, 7, ())
    assert other.revision == revision


def test_what_is_in_the_way_is_told_whole_and_nothing_is_written(filled: Served, other: Store, tmp_path: Path) -> None:
    path = written(filled.store, tmp_path / "west.jsonl")
    deployment = Deployment(other)
    ensure_started(deployment)
    runm = deployment.runm
    runm.partitions.insert(UUID(WEST), Partition(UUID(WEST), "another name"))
    runm.objects.insert(UUID(I1), Object(UUID(WEST), "runm.image", UUID(I1), "changed", PROJECT))
    runm.objects.insert(UUID(int=1), Object(UUID(WEST), "runm.provider_group", UUID(int=1), "g"))
    with other.engine.snapshot() as before:
        whole = list(before.scan(ALL_KEYS))
        report = brought(other, path)
        with other.engine.snapshot() as after:
            assert list(after.scan(ALL_KEYS)) == whole
    assert set(report.conflicts) == {
        f"partition {WEST} has the name another name there",
        f"object {I1}: it is another one there, or was changed",
        f"object {GROUP}: its name g is another object's there",
    }


def test_a_name_or_type_that_does_not_fit_is_in_the_way(filled: Served, other: Store, tmp_path: Path) -> None:
    filled.deployment.runm.object_types.insert("acme.rack", ObjectType("acme.rack"))
    filled.client.object_create(
        SW, object={"partition": WEST, "object_type": "acme.rack", "name": "r", "uuid": "9" * 32}
    )
    path = written(filled.store, tmp_path / "west.jsonl", "us-west.example.com")
    deployment = Deployment(other)
    ensure_started(deployment)
    deployment.runm.partitions.insert(UUID(int=7), Partition(UUID(int=7), "us-west.example.com"))
    assert brought(other, path).conflicts == (
        "the name us-west.example.com is another partition's there",
        f"object {'9' * 32}: its type acme.rack is not registered there",
    )


@pytest.mark.parametrize("what", ["definition", "partition"])
def test_what_somebody_writes_while_a_file_is_brought_in_stays(filled: Served, other: Store, what: str) -> None:
    lines = list(exported(filled.store, "", WEST))
    deployment, scope = Deployment(other), Scope(UUID(WEST), "runm.image")
    runm, own = deployment.runm, Partition(UUID(WEST), "another")
    acts: dict[str, Callable[[], object]] = {
        "definition": lambda: point(runm, scope, UUID(int=3)),
        "partition": lambda: runm.partitions.insert(own.uuid, own),
    }
    looks = iter((list, acts[what]))  # Why: a file is read once to compare it with the store, and once to write it.

    def given() -> list[Line]:
        next(looks)()
        return lines

    with pytest.raises(AlreadyExistsError):
        import_partition(other, "", given, is_dry_run=False)
    assert pointer_at(runm, scope) == (UUID(int=3) if what == "definition" else None)
    assert runm.partitions.get(own.uuid) == (own if what == "partition" else None)
    assert list(runm.objects.keys()) == []


def test_nothing_is_brought_into_a_partition_that_is_removed_meanwhile() -> None:
    store = Store(MemoryEngine(profile=replace(MEMORY_PROFILE, commit_operations_max=40)))
    deployment, partition = Deployment(store), UUID(WEST)
    objects = [ObjectLine(Object(partition, "runm.image", UUID(int=n), f"n{n}", "p")) for n in range(1, 41)]
    lines: list[Line] = [PartitionLine(FORMAT, partition, "west"), *objects]

    def remove(_written: int) -> None:
        remove_partition(store, "", "west")

    with pytest.raises(ConflictError, match="was removed meanwhile"):
        import_partition(store, "", lambda: lines, is_dry_run=False, progress=remove)
    assert list(deployment.runm.objects.keys()) == []


def test_a_provider_with_something_else_beside_it_is_in_the_way(filled: Served, other: Store, tmp_path: Path) -> None:
    path = written(filled.store, tmp_path / "west.jsonl")
    brought(other, path)
    beside = Deployment(other).beside.providers
    beside.put(UUID("a2" * 16), structs.replace(beside.require(UUID("a2" * 16)), provider_type="runm.storage.block"))
    assert brought(other, path).conflicts == (f"object {'a2' * 16}: it is another one there, or was changed",)


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (lambda raw: raw[: raw.rindex(b'{"kind":"end"')], "cut off"),
        (lambda raw: raw.replace(b'"linux/redhat"', b'"linux/debian"'), "digest"),
        (lambda raw: raw.replace(b'"format":1', b'"format":2'), "form 2"),
        (lambda raw: b"\n".join(raw.splitlines()[1:]), "first line"),
        (lambda raw: raw[:-200] + b"\xff\n", "no line of"),
        (lambda _: b"", "cut off"),
        (lambda _: b"{}\n", "line 1"),
        (lambda _: b"[" * 100_000, "line 1"),
    ],
)
def test_a_file_that_is_not_as_it_was_written_brings_nothing(
    filled: Served, other: Store, tmp_path: Path, damage: Callable[[bytes], bytes], problem: str
) -> None:
    path = written(filled.store, tmp_path / "west.jsonl")
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(InvalidInputError, match=problem):
        brought(other, path)
    assert keys_of(other, "") == {}


def test_another_partitions_object_does_not_come_in_with_it(filled: Served, other: Store, tmp_path: Path) -> None:
    lines = list(exported(filled.store, "", WEST))
    foreign = list(exported(filled.store, "", EAST))[-1]
    path = tmp_path / "forged.jsonl"
    path.write_bytes(b"".join(lines_written([*lines, foreign])))
    with pytest.raises(InvalidInputError, match="not of this partition"):
        brought(other, path)
    with pytest.raises(NotFoundError):
        list(exported(filled.store, "", "nowhere"))


def test_the_commands_write_and_bring_a_file(
    filled: Served, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = written(filled.store, tmp_path / "first.jsonl"), tmp_path / "second.jsonl"
    target = ("--store", f"lmdb:{tmp_path / 'target'}")
    assert main(["runm", "import", "-f", str(first), *target, "--yes"]) == 0
    assert main(["runm", "import", "-f", str(first), *target, "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == {"written": 0, "present": 7, "conflicts": []}
    assert main(["runm", "export", "us-west.example.com", "-f", str(second), *target]) == 0
    assert capsys.readouterr().out == "7 records, with the 4 object types of the store\n"
    assert second.read_bytes() == first.read_bytes()
    assert main(["runm", "export", WEST, "-f", str(second), *target]) != 0
    assert "there is a file of this name" in capsys.readouterr().err
    with keyplan.open(target[1]) as opened:
        Deployment(opened).runm.objects.delete(UUID(GROUP))
        other = Object(UUID(WEST), "runm.provider_group", UUID(int=1), "g")
        Deployment(opened).runm.objects.insert(UUID(int=1), other)
    assert main(["runm", "import", "-f", str(first), *target, "--yes"]) == 1
    assert f"in the way: object {GROUP}: its name g is another object's there" in capsys.readouterr().out
