"""Partitions renamed and removed: a plan of what goes, nothing else gone, nothing made in it meanwhile.

tests/cli/test_jobs.py kills a removal at each of its commits.
"""

from dataclasses import replace
from typing import Final
from uuid import UUID

import pytest

from keyplan.apps.runm import Object, Partition, Property
from keyplan.apps.runm.bounds import UNBOUNDED
from keyplan.apps.runm.calls import GivenCall
from keyplan.apps.runm.definitions import Scope, set_definition
from keyplan.apps.runm.deployment import PROVIDER, Deployment
from keyplan.apps.runm.layout import Deleted, PartitionType, RunmBeside
from keyplan.apps.runm.migrate import migrate
from keyplan.apps.runm.original import Decisions
from keyplan.apps.runm.partition_calls import add_partition
from keyplan.apps.runm.partition_file import FORMAT, PartitionLine
from keyplan.apps.runm.partition_removal import (
    Removal,
    partition_to_remove,
    plan_removal,
    remove_partition,
    rename_partition,
    require_free_uuid,
)
from keyplan.apps.runm.records import ObjectDefinition
from keyplan.apps.runm.refusal import RefusedError
from keyplan.apps.runm.session import Caller
from keyplan.apps.runm.start import ensure_started
from keyplan.apps.runm.transfer import import_partition
from keyplan.apps.runm.verify import verify
from keyplan.engine import ALL_KEYS, MEMORY_PROFILE, Commit, Engine, MemoryEngine, Put, WrappedEngine
from keyplan.errors import AlreadyExistsError, InvalidInputError, NotFoundError
from keyplan.layout import shown_key
from keyplan.maintenance import ApplicationJobs, open_jobs
from keyplan.store import Store
from tests.apps.runm.partitions import DOOMED, KEPT, filled_partition

UNFIT_NAMES: Final = ("", KEPT.hex, "n" * 600, "\udcff")


@pytest.fixture
def deployment() -> Deployment:
    made = Deployment(Store(MemoryEngine()))
    ensure_started(made)
    filled_partition(made, made.store.lease(3_600, keep_alive=False))
    return made


def keys_of(engine: Engine) -> set[bytes]:
    with engine.snapshot() as snapshot:
        return {entry.key for entry in snapshot.scan(ALL_KEYS)}


def test_a_removal_takes_what_its_plan_says_and_nothing_else(deployment: Deployment) -> None:
    store = deployment.store
    before, revision = keys_of(store.engine), store.revision
    planned = plan_removal(store, "", "doomed")
    assert planned == Removal(Partition(DOOMED, "doomed"), {"runm.image": 3, "runm.provider": 1}, 2, 1, 1)
    assert store.revision == revision
    assert remove_partition(store, "", DOOMED.hex) == planned
    gone = before - keys_of(store.engine)
    assert keys_of(store.engine) < before
    assert not any(DOOMED.hex.encode() in key or f"{700:032x}".encode() in key for key in keys_of(store.engine))
    assert not any(KEPT.hex.encode() in key for key in gone)
    # The definition that both scopes pointed at is the other one's still.
    assert deployment.runm.definitions.exists(UUID(int=99))
    assert deployment.runm.definitions.exists(UUID(int=800))
    assert [one for one in verify(store, "") if one.code != "wrong-project"] == []
    with pytest.raises(NotFoundError):
        plan_removal(store, "", "doomed")


class Interrupted(WrappedEngine):
    """Ends after so many commits."""

    left = 1

    def commit(self, commit: Commit) -> int:
        if not self.left:
            raise KeyboardInterrupt
        self.left -= 1
        return self.inner.commit(commit)


def test_while_a_partition_goes_nothing_is_made_in_it_and_its_uuid_is_nobodys(deployment: Deployment) -> None:
    engine = deployment.store.engine
    with pytest.raises(KeyboardInterrupt):
        remove_partition(Store(Interrupted(engine)), "", "doomed", command=("runm", "remove", "doomed"))
    (job,) = open_jobs(engine)
    assert (job.subject, job.command) == ("the removal of runm's partition doomed", ("runm", "remove", "doomed"))
    with deployment.reading() as state:
        assert state.partitions.get(DOOMED) is None
        with pytest.raises(AlreadyExistsError):
            require_free_uuid(deployment, state, DOOMED)
        require_free_uuid(deployment, state, UUID(int=5))
    # What somebody made in the last moment goes as well.
    late = UUID(int=7_007)
    deployment.runm.objects.insert(late, Object(DOOMED, "runm.image", late, "late", "p"))
    remove_partition(deployment.store, "", "doomed")
    assert not deployment.runm.objects.exists(late)
    assert open_jobs(engine) == []
    with deployment.reading() as state:
        require_free_uuid(deployment, state, DOOMED)


def test_a_removal_that_is_given_again_by_name_takes_no_partition_that_has_the_name_by_then(
    deployment: Deployment,
) -> None:
    store, later = deployment.store, Partition(UUID(int=5), "doomed")
    with pytest.raises(KeyboardInterrupt):
        remove_partition(Store(Interrupted(store.engine)), "", "doomed")
    assert partition_to_remove(store, "", "doomed").uuid == DOOMED
    deployment.runm.partitions.insert(later.uuid, later)
    for act in (partition_to_remove, plan_removal, remove_partition):
        with pytest.raises(
            InvalidInputError, match=f"{DOOMED.hex}, which is being removed; {later.uuid.hex}, which is"
        ):
            act(store, "", "doomed")
    remove_partition(store, "", DOOMED.hex)
    assert plan_removal(store, "", "doomed").partition == later
    assert not any(DOOMED.hex.encode() in key for key in keys_of(store.engine))


def test_one_damaged_record_keeps_no_other_from_being_removed_set_or_verified(deployment: Deployment) -> None:
    store, table, beside = deployment.store, deployment.bound.table, RunmBeside.bound(prefix="")
    damaged = [
        table("partition_type_definitions").keys.encode(PartitionType(KEPT, "runm.image")),
        table("partitions").keys.encode(UUID(int=5)),
        beside.table("deleted").keys.encode(UUID(int=6)),
        ApplicationJobs.bound().table("jobs").keys.encode(b"other"),
    ]
    own = table("partition_type_definitions").keys.encode(PartitionType(DOOMED, "runm.image"))
    store.engine.commit(Commit((), tuple(Put(key, b"\xff") for key in (*damaged, own))))
    codes = {(one.code, one.key) for one in verify(store, "")}
    assert {("damaged-record", shown_key(key)) for key in (*damaged[:2], own)} <= codes
    caller = Caller("u", "p", KEPT, frozenset(), UNBOUNDED)
    set_definition(deployment, caller, Scope(KEPT, PROVIDER), "", ObjectDefinition(UUID(int=0), '{"type": "object"}'))
    remove_partition(store, "", "doomed")
    assert keys_of(store.engine) >= {*damaged}
    assert not any(DOOMED.hex.encode() in key for key in keys_of(store.engine))


def test_a_removal_stays_within_what_a_commit_takes_however_much_there_is_beside_it() -> None:
    deployment = Deployment(Store(MemoryEngine(profile=replace(MEMORY_PROFILE, commit_operations_max=128))))
    lease = deployment.store.lease(3_600, keep_alive=False)
    filled_partition(deployment, lease)
    for number in range(200):
        uuid = UUID(int=50_000 + number)
        one = Object(DOOMED, "runm.image", uuid, f"m{number}", "p", (Property("k", "v"),) * (number % 2))
        deployment.runm.objects.insert(uuid, one)
        deployment.beside.deleted.insert(uuid, Deleted(one, 0, "u"), lease=lease)
        deployment.runm.partitions.insert(uuid, Partition(uuid, f"other{number}"))
    remove_partition(deployment.store, "", "doomed")
    assert {record.partition for _, record in deployment.runm.objects.list()} == {KEPT}
    assert {one.object.partition for _, one in deployment.beside.deleted.list()} == {KEPT}


def test_a_partition_has_another_name_at_once_and_only_one_that_is_free(deployment: Deployment) -> None:
    store = deployment.store
    assert rename_partition(store, "", "doomed", "a/b") == Partition(DOOMED, "a/b")
    assert deployment.runm.partitions_by_name.key_of("a/b") == DOOMED
    assert deployment.runm.partitions_by_name.key_of("doomed") is None
    with pytest.raises(AlreadyExistsError):
        rename_partition(store, "", "a/b", "kept")
    revision = store.revision
    for name in UNFIT_NAMES:
        with pytest.raises(InvalidInputError, match="a partition's name"):
            rename_partition(store, "", "a/b", name)
    assert store.revision == revision
    with pytest.raises(NotFoundError):
        rename_partition(store, "", "doomed", "x")


@pytest.mark.parametrize("name", UNFIT_NAMES)
def test_no_call_and_no_command_gives_a_partition_a_name_that_another_refuses(
    deployment: Deployment, name: str
) -> None:
    store, uuid = deployment.store, UUID(int=70_000)
    call = GivenCall(deployment, None, UNBOUNDED, bool)
    with pytest.raises(RefusedError, match="name"):
        add_partition(call, name, uuid)
    brought = import_partition(store, "", lambda: [PartitionLine(FORMAT, uuid, name)], is_dry_run=False)
    assert [one for one in brought.conflicts if "a partition's name" in one]
    steps = migrate(store, "", is_dry_run=False, decisions=Decisions(names={KEPT.hex: name}))
    assert [step.is_left for step in steps if KEPT.hex in step.key] == [True]
    assert sorted(record.name for _, record in deployment.runm.partitions.list()) == ["doomed", "kept"]
