"""Stores that the original wrote, and damaged ones: acceptance cases 40 and 41."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import grpc
import pytest
from msgspec import structs

from keyplan.apps.runm.bounds import UNBOUNDED
from keyplan.apps.runm.definitions import Scope, set_definition
from keyplan.apps.runm.deployment import Deployment
from keyplan.apps.runm.layout import RunmBeside
from keyplan.apps.runm.migrate import migrate
from keyplan.apps.runm.partition_file import Line
from keyplan.apps.runm.records import ObjectDefinition
from keyplan.apps.runm.reindex import reindex
from keyplan.apps.runm.session import Caller
from keyplan.apps.runm.transfer import exported, import_partition
from keyplan.apps.runm.verify import verify
from keyplan.engine import Commit, Delete, MemoryEngine, Put, WrappedEngine
from keyplan.errors import AlreadyExistsError, InvalidInputError
from keyplan.layout import Only
from keyplan.maintenance import open_jobs
from keyplan.store import Store
from tests.apps.runm.client import GROUP, I1, I2, PROJECT, SW, WEST
from tests.apps.runm.conftest import ROOT, Served, served
from tests.apps.runm.golden import GOLDEN

W = f"partitions/{WEST}/"
IMAGES = f"{W}objects/by-type/runm.image/by-project/{PROJECT}/by-name/"
ARM = [{"property_filter": {"require_items": [{"key": "architecture", "value": "arm64"}]}}]
UNICORN = [{"tag_filter": {"require": ["unicorn"]}}]


def write(store: Store, entries: dict[str, bytes]) -> None:
    """Write raw keys below the root, as another program would."""
    store.engine.commit(Commit((), tuple(Put(ROOT + key.encode(), value) for key, value in entries.items())))


def original() -> dict[str, bytes]:
    """What the original writes of the document's scenario: no properties/, no tags/."""
    kept = {key: value for name, (key, value) in GOLDEN.items() if name != "H12"}
    return kept | {
        "partitions/by-name/us-east.example.com": b"d3873f99a21f45f5bce156c1f8b84b03",
        "partitions/by-name/us-west.example.com": WEST.encode(),
        f"{IMAGES}rhel7.5.2": I1.encode(),
        f"{IMAGES}debian-sid": I2.encode(),
        f"{W}objects/by-type/runm.provider_group/by-name/us-east1-row1-rack2": GROUP.encode(),
        "definitions/by-type/runm.provider/default": b"f3823e51dbfd420f807f3a1daac674f0",
        GOLDEN["H12"][0]: GOLDEN["H12"][1],
    }


MISSING = {
    f"{W}properties/by-type/runm.image/architecture/arm64/{I2}",
    f"{W}properties/by-type/runm.image/architecture/x86_64/{I1}",
    f"{W}tags/rainbow/{GROUP}",
    f"{W}tags/unicorn/{I1}",
    f"{W}tags/unicorn/{I2}",
}


def told(store: Store, code: str) -> set[str]:
    return {one.key.removeprefix(ROOT.decode()) for one in verify(store, "") if one.code == code}


def names(running: Served, filters: Any) -> list[str]:
    return [one.name for one in running.client.object_find(SW, any=filters)]


@pytest.mark.parametrize("has_served", [False, True], ids=["before the service", "after the service"])
def test_a_store_of_the_original_is_read_verified_and_indexed(store: Store, *, has_served: bool) -> None:
    """AC-40: what is not indexed is never left out of a search; reindex adds exactly what is missing."""
    write(store, original())
    if has_served:
        with served(store) as running:
            before = running.dump()
            assert before.keys() == original().keys()
            assert names(running, ARM) == ["debian-sid"]
            assert names(running, UNICORN) == ["rhel7.5.2", "debian-sid"]
            assert told(store, "index-not-ready") == {"objects_by_property", "objects_by_tag"}
    assert told(store, "missing-entry") == MISSING
    report = reindex(store, "")
    assert (report.is_readable, report.entries_written, report.in_the_way) == (True, 5, ())
    assert list(verify(store, "")) == []
    with served(store) as running:
        assert running.dump().keys() == original().keys() | MISSING
        assert names(running, ARM) == ["debian-sid"]
        assert names(running, UNICORN) == ["rhel7.5.2", "debian-sid"]


def test_what_is_written_while_the_indexes_are_not_ready_is_indexed_as_well(lmdb_store: Store) -> None:
    write(lmdb_store, original())
    with served(lmdb_store) as running:
        made = {"partition": WEST, "object_type": "runm.image", "project": PROJECT, "name": "new", "tags": ["unicorn"]}
        uuid = running.client.object_create(SW, object=made).object.uuid
        assert f"{W}tags/unicorn/{uuid}" in running.dump()
        assert set(names(running, UNICORN)) == {"new", "rhel7.5.2", "debian-sid"}
        assert reindex(lmdb_store, "").entries_written == 5
        assert set(names(running, UNICORN)) == {"new", "rhel7.5.2", "debian-sid"}


def test_an_object_that_no_index_can_hold_keeps_the_indexes_unread(lmdb_store: Store) -> None:
    long_tag = b"t" * 300
    record = GOLDEN["H10"][1].removesuffix(b"\x9a\x03\x07unicorn") + b"\x9a\x03\xac\x02" + long_tag
    write(lmdb_store, original() | {f"objects/by-uuid/{I2}": record})
    report = reindex(lmdb_store, "")
    assert (report.is_readable, report.in_the_way) == (False, (f"{ROOT.decode()}objects/by-uuid/{I2}",))
    with served(lmdb_store) as running:
        assert names(running, ARM) == ["debian-sid"]
        running.client.object_modify(SW, uuid=I2, remove_tags=[long_tag.decode()])
    assert reindex(lmdb_store, "").is_readable
    assert list(verify(lmdb_store, "")) == []


class Dying(WrappedEngine):
    """The process is killed instead of making one of its commits."""

    left = 0

    def commit(self, commit: Commit) -> int:
        if not self.left:
            raise KeyboardInterrupt
        self.left -= 1
        return self.inner.commit(commit)


def test_a_reindex_that_is_killed_is_an_open_job_until_searches_may_trust_the_indexes() -> None:
    for number in range(60):
        engine = MemoryEngine()
        write(Store(engine), original())
        dying = Dying(engine)
        dying.left = number
        try:
            report = reindex(Store(dying), "")
        except KeyboardInterrupt:
            note = RunmBeside(Store(engine), prefix="").indexes_kept.get(Only())
            assert note is None or note.is_kept or [job.kind for job in open_jobs(engine)], number
            continue
        assert report.is_readable
        assert number > 10
        return
    pytest.fail("it does not end")


# ---- damage ------------------------------------------------------------------------------------------------------------


@contextmanager
def scenario(store: Store) -> Iterator[Served]:
    write(store, original())
    reindex(store, "")
    with served(store) as running:
        yield running


def without(store: Store, *keys: str) -> None:
    store.engine.commit(Commit((), tuple(Delete(ROOT + key.encode()) for key in keys)))


HYPHENATED = "D79706E0-1FBD-4E48-AAE8-9209061CDB71"


def test_verify_names_each_kind_of_damage(lmdb_store: Store) -> None:
    """AC-41."""
    with scenario(lmdb_store):
        pass
    provider = "definitions/by-type/runm.provider/"
    write(
        lmdb_store,
        {
            f"{W}{provider}default": b"1" * 32,  # points at nothing
            "definitions/by-uuid/" + "2" * 32: b"\x0a\x20" + b"2" * 32 + b"\x12\x02{}",  # nothing points at it
            f"{W}tags/never/{I1}": b"",  # the record has no such tag
            f"{W}tags/": b"",  # a key that marks a place
            f"partitions/{HYPHENATED}/{provider}default": b"f3823e51dbfd420f807f3a1daac674f0",
        },
    )
    without(lmdb_store, f"{IMAGES}rhel7.5.2")
    found = {(one.code, one.key.removeprefix(ROOT.decode())) for one in verify(lmdb_store, "")}
    assert found == {
        ("dangling-pointer", f"definition of runm.provider in {WEST}"),
        ("orphan-definition", "2" * 32),
        ("stale-entry", f"{W}tags/never/{I1}"),
        ("namespace-key", f"{W}tags/"),
        ("misspelt-uuid", f"partitions/{HYPHENATED}/{provider}default"),
        ("missing-entry", f"{IMAGES}rhel7.5.2"),
    }


def test_before_the_first_start_no_type_of_the_services_own_is_missed() -> None:
    store = Store(MemoryEngine())
    write(store, {key: value for key, value in original().items() if not key.startswith("types/object/")})
    assert not told(store, "unknown-type")
    reindex(store, "")
    assert not told(store, "unknown-type")
    with served(store):
        assert not told(store, "unknown-type")
    Deployment(store).runm.object_types.delete("runm.image")
    assert told(store, "unknown-type") == {I1, I2}


def test_verify_names_records_that_break_the_rulings(lmdb_store: Store) -> None:
    with scenario(lmdb_store):
        pass
    group = GOLDEN["H11"][1]
    elsewhere = b"3" * 32
    write(
        lmdb_store,
        {
            f"objects/by-uuid/{GROUP}": group.replace(b"runm.provider_group", b"runm.provider_groups"[:19]).replace(
                b"\x12\x13runm.provider_group", b"\x12\x0arunm.image"
            ),
            "objects/by-uuid/" + "4" * 32: GOLDEN["H10"][1].replace(WEST.encode(), elsewhere),
        },
    )
    codes = {one.code for one in verify(lmdb_store, "")}
    assert {"wrong-project", "wrong-uuid", "unknown-partition"} <= codes


def test_migrate_rewrites_what_the_original_spelled_otherwise(lmdb_store: Store) -> None:
    """S14, C9, C10, S16: a dry run writes nothing, a run does each once, a second run has nothing to do."""
    name = b"\x0a\x20" + b"5" * 32 + b"\x12\x03a/b"
    image = GOLDEN["H10"][1].replace(I2.encode(), b"6" * 32).replace(b"\x2a\x0adebian-sid", b"\x2a\x0adebian/sid")
    pointer = "definitions/by-type/runm.provider/"
    write(
        lmdb_store,
        original()
        | {
            "partitions/by-uuid/" + "5" * 32: name,
            "partitions/by-name/a/b": b"5" * 32,
            "objects/by-uuid/" + "6" * 32: image,
            f"{IMAGES}debian/sid": b"6" * 32,
            f"partitions/{HYPHENATED}/{pointer}by-type/runm.compute": b"7" * 32,
            "definitions/by-uuid/" + "7" * 32: b"\x0a\x20" + b"7" * 32 + b"\x12\x02{}",
            "definitions/by-uuid/" + "8" * 32: b"\x0a\x20" + b"8" * 32 + b"\x12\x02{}",
            f"{W}{pointer}default": b"f3823e51dbfd420f807f3a1daac674f0",  # the global one's as well
            "partitions/": b"",
        },
    )
    before = lmdb_store.revision
    planned = sorted(one.code for one in migrate(lmdb_store, "", is_dry_run=True))
    assert lmdb_store.revision == before
    done = sorted(one.code for one in migrate(lmdb_store, "", is_dry_run=False))
    assert done == ["misspelt-uuid", "namespace-key", "orphan-definition", "raw-name", "raw-name", "shared-definition"]
    assert planned == done
    assert list(migrate(lmdb_store, "", is_dry_run=False)) == []
    reindex(lmdb_store, "")
    assert list(verify(lmdb_store, "")) == []
    with served(lmdb_store) as running:
        dump = running.dump()
        assert dump["partitions/by-name/a%2Fb"] == b"5" * 32
        assert dump[f"{IMAGES}debian%2Fsid"] == b"6" * 32
        assert dump[f"{W}{pointer}by-type/runm.compute"] == b"7" * 32
        assert running.client.object_get_by_name(SW, object_type_code="runm.image", name="debian/sid").uuid == "6" * 32


def test_a_definition_that_is_set_while_a_store_is_migrated_is_no_orphan() -> None:
    store = Store(MemoryEngine())
    write(store, original() | {"partitions/": b""})
    steps, deployment = migrate(store, "", is_dry_run=False), Deployment(store)
    assert next(steps).code == "namespace-key", "the pointers were looked at, the definitions' end is to come"
    scope, somebody = Scope(UUID(WEST), "runm.image"), Caller("u", PROJECT, UUID(WEST), frozenset(), UNBOUNDED)
    late = set_definition(deployment, somebody, scope, "", ObjectDefinition(UUID(int=0), "{}"))
    assert [one for one in steps if one.code == "orphan-definition"] == []
    assert deployment.runm.definitions.get(late.uuid) == late


def slashed() -> dict[str, bytes]:
    """What the original stores of an image whose name holds a slash: the record, and its name spelled raw."""
    image = GOLDEN["H10"][1].replace(I2.encode(), b"6" * 32).replace(b"\x2a\x0adebian-sid", b"\x2a\x0adebian/sid")
    return {"objects/by-uuid/" + "6" * 32: image, f"{IMAGES}debian/sid": b"6" * 32}


def test_a_store_whose_names_are_spelled_otherwise_is_refused_until_it_is_migrated(lmdb_store: Store) -> None:
    """Its lists would leave objects out, and their names could be taken again."""
    write(lmdb_store, original() | slashed())
    before = lmdb_store.revision
    for act in (
        lambda: served(lmdb_store).__enter__(),
        lambda: reindex(lmdb_store, ""),
        lambda: list(exported(lmdb_store, "", WEST)),
    ):
        with pytest.raises(InvalidInputError, match="keyplan runm migrate --yes"):
            act()
    assert lmdb_store.revision == before
    list(migrate(lmdb_store, "", is_dry_run=False))
    with served(lmdb_store) as running:
        assert "debian/sid" in names(running, [])
        taken = {"partition": WEST, "object_type": "runm.image", "project": PROJECT, "name": "debian/sid"}
        with pytest.raises(grpc.RpcError) as caught:
            running.client.object_create(SW, object=taken)
        assert caught.value.code() is grpc.StatusCode.ALREADY_EXISTS


def test_a_raw_name_that_another_record_has_meanwhile_is_left_and_told(lmdb_store: Store) -> None:
    image = GOLDEN["H9"][1].replace(b"\x2a\x09rhel7.5.2", b"\x2a\x0adebian/sid")
    another = {f"objects/by-uuid/{I1}": image, f"{IMAGES}debian%2Fsid": I1.encode()}
    write(lmdb_store, original() | slashed() | another)
    for is_dry_run in (True, False):
        codes = {step.code for step in migrate(lmdb_store, "", is_dry_run=is_dry_run)}
        assert "name-taken" in codes
        assert "raw-name" not in codes
    assert lmdb_store.engine.value(ROOT + f"{IMAGES}debian/sid".encode()) == b"6" * 32


def test_an_import_does_not_pass_over_an_object_that_came_meanwhile(lmdb_store: Store) -> None:
    """Between the comparison and the write, somebody else takes the UUID."""
    write(lmdb_store, original())
    with served(lmdb_store):
        pass
    lines = list(exported(lmdb_store, "", WEST))
    runm = Deployment(lmdb_store).runm
    stored = runm.objects.require(UUID(I2))
    runm.objects.delete(UUID(I2))
    given = 0

    def again() -> list[Line]:
        nonlocal given
        given += 1
        if given == 2:
            runm.objects.insert(UUID(I2), structs.replace(stored, name="somebody-elses"))
        return lines

    with pytest.raises(AlreadyExistsError):
        import_partition(lmdb_store, "", again, is_dry_run=False)
    assert runm.objects.require(UUID(I2)).name == "somebody-elses"
