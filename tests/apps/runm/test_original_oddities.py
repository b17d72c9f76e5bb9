"""Each thing that the original lets through: the start is refused, a migration mends it or asks, and then it is served."""

import re
import shlex
from pathlib import Path
from uuid import UUID

import pytest

import keyplan
from keyplan.apps.runm.deployment import Deployment
from keyplan.apps.runm.migrate import migrate
from keyplan.apps.runm.original import Decisions
from keyplan.apps.runm.records import ObjectType
from keyplan.apps.runm.start import ensure_started
from keyplan.apps.runm.verify import verify
from keyplan.apps.runm.wire_table import messages
from keyplan.cli.main import main
from keyplan.engine import ALL_KEYS, Commit, MemoryEngine, Put
from keyplan.errors import InvalidInputError
from keyplan.store import Store
from tests.apps.runm.client import EAST, PROJECT, WEST
from tests.apps.runm.conftest import ROOT
from tests.apps.runm.go_store import GoStore, hyphenated

U, V = "5" * 32, "6" * 32
ODD = hyphenated(PROJECT).upper()
POINTER = "definitions/by-type/runm.provider/default"

Keys = dict[str, bytes]


def go_store() -> GoStore:
    store = GoStore()
    store.start()
    store.partition_create("part0", WEST)
    return store


def image(name: str = "n", uuid: str = U, **fields: object) -> Keys:
    store = go_store()
    store.object_create(
        **{"partition": WEST, "object_type": "runm.image", "project": "p", **fields}, uuid=uuid, name=name
    )
    return store.keys


def lost(name: str, uuid: str) -> Keys:
    """An object whose name's entry a late delete of another has taken away."""
    store = go_store()
    made = messages.Object(partition=WEST, object_type="runm.image", project="p", uuid=uuid, name=name)
    store.object_create(partition=WEST, object_type="runm.image", project="p", uuid=uuid, name=name)
    store.late_delete(made)
    return store.keys


def defined(*partitions: str, project: str = "p") -> Keys:
    store = go_store()
    for number, partition in enumerate(partitions):
        entries = [{"key": "k", "permissions": [{"project": project, "permission": 3}]}]
        store.definition_set(partition, f"{number + 7}" * 32, property_permissions=entries)
    return store.keys


def opened(keys: Keys) -> Store:
    store = Store(MemoryEngine())
    store.engine.commit(Commit((), tuple(Put(ROOT + key.encode(), value) for key, value in keys.items())))
    return store


def dump(store: Store) -> Keys:
    with store.engine.snapshot() as snapshot:
        return {entry.key.removeprefix(ROOT).decode(): entry.value for entry in snapshot.scan(ALL_KEYS)}


def name_of(name: str, project: str = "p") -> str:
    return f"partitions/{WEST}/objects/by-type/runm.image/by-project/{project}/by-name/{name}"


IMAGE = {"partition": WEST, "object_type": "runm.image", "project": "p", "name": "n"}
MISSPELT = {f"objects/by-uuid/{hyphenated(U)}": messages.Object(**IMAGE, uuid=hyphenated(U)).SerializeToString()}
SLASHED = {
    f"partitions/by-uuid/{EAST}": messages.Partition(uuid=EAST, name="a/b").SerializeToString(),
    "partitions/by-name/a/b": EAST.encode(),
}

MENDED: list[tuple[Keys, str, str]] = [
    (image("a/b"), "raw-name", name_of("a%2Fb")),
    (image("a%2Fb"), "raw-name", name_of("a%252Fb")),
    (image("a/b", tags=[""]), "raw-name", name_of("a%2Fb")),
    (image("n/by-name/m", project="p/q"), "raw-name", name_of("n%2Fby-name%2Fm", "p%2Fq")),
    (image(project=ODD), "respelt", name_of("n", PROJECT)),
    (image(object_type="runm.provider_group"), "respelt", f"partitions/{WEST}/objects/by-type/runm.provider_group/by-name/n"),
    (lost("n", U), "unnamed", name_of("n")),
    (lost("n", V) | image(), "name-taken", name_of("n")),
    (go_store().keys | MISSPELT, "respelt", name_of("n")),
    (go_store().keys | SLASHED, "raw-name", "partitions/by-name/a%2Fb"),
    (defined(hyphenated(WEST).upper()), "misspelt-uuid", f"partitions/{WEST}/{POINTER}"),
    (defined(WEST, project=ODD), "misspelt-project", f"partitions/{WEST}/{POINTER}"),
]  # fmt: skip


@pytest.mark.parametrize(("keys", "code", "key"), MENDED)
def test_a_migration_mends_what_no_list_would_find(keys: Keys, code: str, key: str) -> None:
    store = opened(keys)
    before = store.revision
    with pytest.raises(InvalidInputError, match="keyplan runm migrate --yes"):
        ensure_started(Deployment(store))
    assert store.revision == before
    planned = [step.code for step in migrate(store, "", is_dry_run=True)]
    assert code in planned
    assert [step.code for step in migrate(store, "", is_dry_run=False)] == planned
    assert key in dump(store)
    if code != "name-taken":
        ensure_started(Deployment(store))
        assert {one.code for one in verify(store, "")} <= {"index-not-ready", "unindexable-record"}


DECIDED: list[tuple[Keys, str, Decisions, str]] = [
    (image(""), "no-name", Decisions(names={U: "given"}), name_of("given")),
    (image("x" * 300), "long-name", Decisions(names={U: "given"}), name_of("given")),
    (image(project=""), "no-project", Decisions(projects={U: "given"}), name_of("n", "given")),
    (image(project=""), "no-project", Decisions(project="given"), name_of("n", "given")),
    (image(uuid="not-A-uuid"), "odd-uuid", Decisions(uuids={"notauuid": UUID(V)}), f"objects/by-uuid/{V}"),
    (lost("n", V) | image(), "name-taken", Decisions(names={V: "given"}), name_of("given")),
    (lost("n", V) | lost("n", U), "name-taken", Decisions(names={V: "given"}), name_of("n")),
]


@pytest.mark.parametrize(("keys", "code", "decisions", "key"), DECIDED)
def test_what_takes_a_decision_is_left_until_it_is_decided(
    keys: Keys, code: str, decisions: Decisions, key: str
) -> None:
    store = opened(keys)
    left = [step for step in migrate(store, "", is_dry_run=False) if step.is_left]
    assert {step.code for step in left} == {code}
    assert code in {one.code for one in verify(store, "")}
    assert dump(store) == keys
    assert not [step for step in migrate(store, "", is_dry_run=False, decisions=decisions) if step.is_left]
    assert key in dump(store)
    ensure_started(Deployment(store))
    assert {one.code for one in verify(store, "")} == {"index-not-ready"}


def test_of_two_pointers_of_one_scope_neither_is_chosen_and_no_definition_is_lost() -> None:
    """R7: the one with hyphens and the plain one hold for different requests in the original."""
    keys = defined(WEST, hyphenated(WEST))
    store = opened(keys)
    (left,) = [step for step in migrate(store, "", is_dry_run=False) if step.code != "orphan-definition"]
    assert (left.code, left.is_left) == ("pointer-taken", True)
    assert dump(store) == keys


def test_a_pointer_that_names_nothing_keeps_what_it_may_have_named() -> None:
    keys = defined(WEST) | {f"partitions/{WEST}/{POINTER}": b"id133ac2327ae49e8a4d72a1b57e1ed0c"}
    store = opened(keys)
    assert [step.code for step in migrate(store, "", is_dry_run=False)] == ["damaged-pointer"]
    assert dump(store) == keys


def test_a_definition_stays_for_a_partition_whose_uuid_is_undecided() -> None:
    keys = {
        "partitions/by-uuid/part-0": b"\x0a\x06part-0\x12\x04east",
        f"partitions/part-0/{POINTER}": b"7" * 32,
        f"definitions/by-uuid/{'7' * 32}": b"\x0a\x20" + b"7" * 32 + b"\x12\x02{}",
    }
    store = opened(keys)
    assert [(step.code, step.is_left) for step in migrate(store, "", is_dry_run=False)] == [("odd-uuid", True)]
    assert dump(store) == keys
    assert "orphan-definition" not in {one.code for one in verify(store, "")}
    decided = Decisions(uuids={"part-0": UUID(V)})
    assert not [step for step in migrate(store, "", is_dry_run=False, decisions=decided) if step.is_left]
    assert dump(store)[f"partitions/{V}/{POINTER}"] == b"7" * 32
    assert f"definitions/by-uuid/{'7' * 32}" in dump(store)


def test_a_name_of_nobody_is_free_again() -> None:
    store = opened({key: value for key, value in image().items() if not key.startswith("objects/")})
    assert [step.code for step in migrate(store, "", is_dry_run=False)] == ["dangling-name"]


def test_an_object_of_a_type_that_is_not_there_waits_for_the_type() -> None:
    keys = image(object_type="runm.ghost", project="")
    store = opened(keys)
    with pytest.raises(InvalidInputError, match=r"--object-type runm\.ghost:SCOPE"):
        ensure_started(Deployment(store))
    ensure_started(Deployment(store), object_types=(ObjectType("runm.ghost"),))


def test_the_refusal_has_the_command_that_mends_the_store_as_it_is_to_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url, root = f"lmdb:{tmp_path / 'a store'}", b"/" + ROOT
    ghost = image(object_type="runm.ghost", project="")
    keys = go_store().keys | SLASHED | ghost
    with keyplan.open(url, create=True) as store:
        store.engine.commit(Commit((), tuple(Put(root + key.encode(), value) for key, value in keys.items())))
    place = ("--store", url, "--root", root.decode())
    serving = ("serve", "--listen", "127.0.0.1:0", "--object-type", "runm.ghost:PARTITION=a text")
    told = set()
    for words in (serving, ("export", "part0", "-f", str(tmp_path / "file")), ("reindex",)):
        assert main(["runm", *words, *place]) == 5
        told.add(re.findall("`(keyplan [^`]*)`", capsys.readouterr().err)[0])
    shortest, longest = sorted(told, key=len)
    assert longest.replace(" --object-type runm.ghost:PARTITION", "") == shortest
    assert main(shlex.split(longest.replace(" --yes", ""))[1:]) == 0
    assert capsys.readouterr().out.endswith("nothing was written: add --yes\n")
    assert main(shlex.split(longest)[1:]) == 0
    with keyplan.open(url) as store:
        ensure_started(Deployment(store, "/"), object_types=(ObjectType("runm.ghost"),))


def test_the_command_decides_and_says_what_is_left(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = f"lmdb:{tmp_path / 's'}"
    with keyplan.open(url, create=True) as store:
        store.engine.commit(Commit((), tuple(Put(ROOT + key.encode(), value) for key, value in image("").items())))
    assert main(["runm", "migrate", "--yes", "--store", url]) == 1
    assert capsys.readouterr().out.endswith(f"--rename {U}=NAME\n0 steps; 1 left to decide\n")
    assert main(["runm", "migrate", "--yes", "--store", url, "--rename", f"{hyphenated(U)}=given"]) == 0
    assert capsys.readouterr().out.endswith("\n1 step\n")
    for wrong in (
        ("--rename", "x=y"),
        ("--rename", f"{U}="),
        ("--uuid", f"{U}={V}"),
        ("--project", "p", "--project", "q"),
    ):
        assert main(["runm", "migrate", "--store", url, *wrong]) == 5
