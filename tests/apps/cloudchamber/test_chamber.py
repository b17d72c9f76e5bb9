"""Racks and workloads as wholes; AC and R numbers are those of the specification."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import keyplan
from keyplan.apps.cloudchamber import (
    ANY,
    NEW,
    REQUIRED,
    Address,
    Blade,
    BladeKey,
    CloudChamber,
    CloudChamberIndexed,
    Instance,
    InstanceActual,
    InstanceKey,
    InstanceTarget,
    Pdu,
    Rack,
    RackDetails,
    StoreSettings,
    Tor,
    Workload,
    at_revision,
    begin_indexes,
    delete_records,
    read_records,
    write_records,
)
from keyplan.apps.cloudchamber.chamber import Chamber, RackContents
from keyplan.apps.cloudchamber.namespace_store import DeletePolicy, PartsExistError
from keyplan.apps.cloudchamber.readable import DocumentRacks
from keyplan.apps.cloudchamber.workloads import (
    InstanceDifference,
    InstanceStates,
    Orphan,
    OrphanKind,
    create_instance,
    delete_instance,
    differences_of,
    find_orphans,
    list_instances,
    read_instance,
    write_target,
)
from keyplan.engine import MEMORY_PROFILE, Commit, MemoryEngine, Put, WrappedEngine
from keyplan.errors import (
    AlreadyExistsError,
    CommitOutcomeUnknownError,
    ConflictError,
    CorruptionError,
    EngineLimitError,
    EngineOpenError,
    EngineUnavailableError,
    NotFoundError,
    StaleRecordError,
)
from keyplan.store import Store
from tests.apps.cloudchamber.conftest import add_blades, raw_entries, raw_keys
from tests.servers.etcd import EtcdServer

WEB1 = InstanceKey("web", "i1")


def rack_of(blades: int, *, tors: int = 1) -> RackContents:
    details = RackDetails(enabled=True)
    return RackContents(
        Rack(details=details),
        {number: Tor() for number in range(tors)},
        {0: Pdu()},
        {number: Blade() for number in range(1, blades + 1)},
    )


@pytest.fixture
def racks(store: Store) -> Chamber:
    return Chamber(store)


def test_a_rack_is_created_and_read_with_its_parts_in_numeric_order(racks: Chamber, store: Store) -> None:
    """AC-03, R10."""
    revision = racks.create_rack("rack1", rack_of(11, tors=2))
    racks.create_rack("rack10", rack_of(1))
    assert {
        entry.mod_revision for entry in raw_entries(store) if b"rack1/" in entry.key or entry.key.endswith(b"rack1")
    } == {revision}
    found = racks.read_rack("rack1")
    assert found is not None
    assert (list(found.tors), list(found.pdus), list(found.blades)) == ([0, 1], [0], list(range(1, 12)))
    assert [one.key.blade for one in racks.list_blades("rack1")] == list(range(1, 12))
    assert list(racks.read_racks()) == ["rack1", "rack10"]
    assert racks.read_rack("rack2") is None


def test_a_rack_whose_blade_is_there_is_not_created_at_all(racks: Chamber, store: Store) -> None:
    racks.layout.blades.insert(BladeKey("rack1", 2), Blade())
    with pytest.raises(AlreadyExistsError):
        racks.create_rack("rack1", rack_of(3))
    assert raw_keys(store) == [b"/CloudChamber/V0.1/rack/rack1/blades/2"]


def test_deleting_a_rack_takes_its_parts_and_nothing_of_a_neighbour(racks: Chamber, store: Store) -> None:
    """R17; orphans go as well, which the original leaves behind."""
    racks.create_rack("rack1", rack_of(2, tors=2))
    racks.create_rack("rack10", rack_of(1))
    before = racks.layout.revision
    assert racks.delete_rack("rack1") == before + 1
    assert raw_keys(store) == [
        b"/CloudChamber/V0.1/rack/rack10/blades/1",
        b"/CloudChamber/V0.1/rack/rack10/pdu",
        b"/CloudChamber/V0.1/rack/rack10/tor",
        b"/CloudChamber/V0.1/racks/rack10",
    ]
    racks.layout.tor.insert("rack1", Tor())
    racks.delete_rack("rack1")
    assert racks.layout.tor.get("rack1") is None


def test_a_rack_with_parts_is_kept_when_the_delete_restricts(racks: Chamber, store: Store) -> None:
    """R17."""
    racks.create_rack("rack1", rack_of(1))
    before = raw_entries(store)
    with pytest.raises(PartsExistError):
        racks.delete_rack("rack1", delete_policy=DeletePolicy.RESTRICT)
    assert raw_entries(store) == before
    racks.layout.racks.insert("empty", Rack())
    racks.delete_rack("empty", delete_policy=DeletePolicy.RESTRICT)
    assert not racks.layout.racks.exists("empty")


def test_a_rack_is_deleted_at_the_revision_expected_only(racks: Chamber) -> None:
    revision = racks.create_rack("rack1", rack_of(1))
    with pytest.raises(StaleRecordError) as caught:
        racks.delete_rack("rack1", expected_revision=revision + 7)
    assert caught.value.actual_revision == revision
    racks.delete_rack("rack1", expected_revision=revision)
    before = racks.layout.revision
    with pytest.raises(NotFoundError):
        racks.delete_rack("rack1", missing_ok=False)
    assert racks.delete_rack("rack1") == before


@pytest.mark.slow
def test_a_rack_of_200_blades_needs_leave_to_be_written_in_steps_on_etcd(
    etcd_server: EtcdServer, etcd_program: None
) -> None:
    """AC-31."""
    with keyplan.open(etcd_server.emptied().url) as store:
        chamber = Chamber(store)
        with pytest.raises(EngineLimitError) as caught:
            chamber.create_rack("rack1", rack_of(200))
        assert (caught.value.limit, caught.value.allowed) == ("commit_operations_max", 128)
        assert raw_keys(store) == []
        chamber.create_rack("rack1", rack_of(200), in_steps=True)
        assert len(raw_keys(store)) == 203
        with pytest.raises(AlreadyExistsError):
            chamber.create_rack("rack1", rack_of(200), in_steps=True)
        before = chamber.layout.revision
        assert chamber.delete_rack("rack1") == before + 1
        assert raw_keys(store) == []


class _Interrupted(WrappedEngine):
    """Calls something in place of its last commit."""

    left = 3  # one is tried as a whole, one deletes the record
    act: Callable[[], object]

    def commit(self, commit: Commit) -> int:
        self.left -= 1
        if not self.left:
            self.act()
        return self.inner.commit(commit)


def test_a_delete_in_steps_that_is_cut_off_goes_on_when_it_is_given_again() -> None:
    def dies() -> None:
        raise KeyboardInterrupt

    engine = MemoryEngine(profile=replace(MEMORY_PROFILE, commit_operations_max=8))
    begin_indexes(Store(engine))
    chamber = Chamber(Store(engine), layout=CloudChamberIndexed)
    revision = chamber.create_rack("rack1", rack_of(12), in_steps=True)
    interrupted = _Interrupted(engine)
    interrupted.act = dies
    with pytest.raises(KeyboardInterrupt):
        Chamber(Store(interrupted), layout=CloudChamberIndexed).delete_rack("rack1", in_steps=True)
    assert not chamber.layout.racks.exists("rack1")
    assert {one.problem for one in find_orphans(chamber.layout)} == {OrphanKind.PART_WITHOUT_RACK}
    with pytest.raises(NotFoundError):
        chamber.delete_rack("rack1", delete_policy=DeletePolicy.RESTRICT, missing_ok=False)
    chamber.delete_rack("rack1", expected_revision=revision, missing_ok=False, in_steps=True)
    assert find_orphans(chamber.layout) == []


def test_a_delete_in_steps_takes_nothing_of_what_is_made_anew_meanwhile() -> None:
    engine = MemoryEngine(profile=replace(MEMORY_PROFILE, commit_operations_max=8))
    begin_indexes(Store(engine))
    chamber = Chamber(Store(engine), layout=CloudChamberIndexed)
    chamber.create_rack("rack1", rack_of(12), in_steps=True)
    interrupted = _Interrupted(engine)
    interrupted.act = lambda: write_records(chamber.layout, {Address("racks", "rack1"): (Rack(), NEW)})
    with pytest.raises(ConflictError):
        Chamber(Store(interrupted), layout=CloudChamberIndexed).delete_rack("rack1", in_steps=True)
    assert len(chamber.list_blades("rack1")) == 12


@pytest.mark.parametrize("name", ["lmdb", "etcd"])
def test_a_closed_store_refuses_everything_and_closing_it_again_is_harmless(
    name: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """AC-32, for a store that was open; a handle that never was is in test_connection.py."""
    store = keyplan.open(f"lmdb:{tmp_path / 'kv'}" if name == "lmdb" else request.getfixturevalue("etcd_server").url)
    chamber = Chamber(store)
    store.close()
    store.close()
    acts: list[Callable[[], object]] = [
        lambda: chamber.read_rack("rack1"),
        lambda: chamber.create_rack("rack1", rack_of(1)),
        lambda: list(chamber.layout.users.list()),
        lambda: chamber.layout.racks.delete("rack1"),
        lambda: chamber.delete_rack("rack1"),
        chamber.layout.users.watch,
    ]
    for act in acts:
        with pytest.raises(EngineUnavailableError):
            act()


@pytest.mark.slow
def test_nothing_that_listens_is_an_error_and_no_hang(own_servers: Callable[[EtcdServer], EtcdServer]) -> None:
    """AC-33: with the settings' request timeout, for conditional writes and reads of several records, which hang in Go."""
    server = own_servers(EtcdServer())
    settings = StoreSettings(
        server.client_endpoint, 2, 2, use_test_namespace=False, use_unique_instance=False, pre_clean_store=False
    )
    one, two = (Address("blades", BladeKey("rack1", number)) for number in (1, 2))
    with keyplan.open(settings.url) as store:
        chamber = CloudChamber(store)
        revision = write_records(chamber, {one: (Blade(), NEW)})
        server.kill()
        acts: list[Callable[[], object]] = [
            lambda: write_records(chamber, {one: (Blade(), at_revision(revision)), two: (Blade(), NEW)}),
            lambda: read_records(chamber, {one: REQUIRED, two: ANY}),
            lambda: delete_records(chamber, {one: at_revision(revision)}),
        ]
        for act in acts:
            begun = time.monotonic()
            with pytest.raises((EngineUnavailableError, CommitOutcomeUnknownError)):
                act()
            # Why so wide: the machine may be busy; what is refused here is waiting without end.
            assert time.monotonic() - begun < 40
    with pytest.raises(EngineOpenError):
        keyplan.open(settings.url)


# ---- workloads -------------------------------------------------------------------------------------------------------


def test_an_instance_is_created_and_deleted_whole(racks: Chamber, store: Store) -> None:
    """AC-07, R1."""
    chamber = racks.layout
    chamber.workloads.insert("web", Workload(name="web"))
    description, target, actual = Instance(config="c"), InstanceTarget(desired_state="on"), InstanceActual(state="off")
    revision = create_instance(chamber, WEB1, description, target, actual, needs_workload=True)
    assert {entry.key: entry.mod_revision for entry in raw_entries(store) if b"/workload/" in entry.key} == {
        b"/CloudChamber/V0.1/workload/web/instances/i1": revision,
        b"/CloudChamber/V0.1/workload/web/instance/i1/target": revision,
        b"/CloudChamber/V0.1/workload/web/instance/i1/actual": revision,
    }
    assert read_instance(chamber, WEB1) == InstanceStates(description, target, actual)
    with pytest.raises(AlreadyExistsError):
        create_instance(chamber, WEB1, description, target)
    with pytest.raises(NotFoundError):
        create_instance(chamber, InstanceKey("other", "i1"), description, target, needs_workload=True)
    with pytest.raises(StaleRecordError):
        delete_instance(chamber, WEB1, expected_revision=revision + 1)
    delete_instance(chamber, WEB1, expected_revision=revision)
    assert raw_keys(store) == [b"/CloudChamber/V0.1/workloads/web"]


def test_deleting_a_workload_takes_its_instances(racks: Chamber, store: Store) -> None:
    for workload in ("web", "web2"):
        racks.layout.workloads.insert(workload, Workload(name=workload))
        create_instance(racks.layout, InstanceKey(workload, "i1"), Instance(), InstanceTarget(), InstanceActual())
    with pytest.raises(PartsExistError):
        racks.delete_workload("web", delete_policy=DeletePolicy.RESTRICT)
    racks.delete_workload("web")
    assert raw_keys(store) == [
        b"/CloudChamber/V0.1/workload/web2/instance/i1/actual",
        b"/CloudChamber/V0.1/workload/web2/instance/i1/target",
        b"/CloudChamber/V0.1/workload/web2/instances/i1",
        b"/CloudChamber/V0.1/workloads/web2",
    ]


def test_instances_that_have_a_state_alone_are_listed_when_asked_for(chamber: CloudChamber) -> None:
    """R1: other programs may write the documented keys only."""
    create_instance(chamber, WEB1, Instance(), InstanceTarget())
    chamber.instance_actual.insert(InstanceKey("web", "i0"), InstanceActual())
    assert list_instances(chamber, "web") == ["i1"]
    assert list_instances(chamber, "web", derive=True) == ["i0", "i1"]


def test_what_stands_alone_is_found(chamber: CloudChamber) -> None:
    chamber.workloads.insert("web", Workload())
    create_instance(chamber, WEB1, Instance(), InstanceTarget())
    chamber.racks.insert("rack1", Rack())
    chamber.tor.insert("rack1", Tor())
    assert find_orphans(chamber) == []
    chamber.instance_target.delete(WEB1)
    chamber.instance_actual.insert(InstanceKey("web", "i2"), InstanceActual())
    chamber.instances.insert(InstanceKey("gone", "i3"), Instance())
    chamber.instance_target.insert(InstanceKey("gone", "i3"), InstanceTarget())
    chamber.blades.insert(BladeKey("rack2", 1), Blade())
    assert find_orphans(chamber) == [
        Orphan("instance_actual", InstanceKey("web", "i2"), OrphanKind.STATE_WITHOUT_DESCRIPTION),
        Orphan("instances", WEB1, OrphanKind.DESCRIPTION_WITHOUT_TARGET),
        Orphan("instances", InstanceKey("gone", "i3"), OrphanKind.INSTANCE_WITHOUT_WORKLOAD),
        Orphan("blades", BladeKey("rack2", 1), OrphanKind.PART_WITHOUT_RACK),
    ]


def test_a_change_of_the_wish_raises_its_generation_and_shows_as_a_difference(chamber: CloudChamber) -> None:
    add_blades(chamber, "rack1", 2)
    add_blades(chamber, "rack2", 2)
    target = InstanceTarget(desired_state="on", rackid="rack1", bladeid=2)
    create_instance(chamber, WEB1, Instance(), target, InstanceActual(state="on", rackid="rack1", bladeid=2))
    assert differences_of(chamber) == []
    again = write_target(chamber, WEB1, target)
    assert again.record.generation == 0
    moved = write_target(chamber, WEB1, InstanceTarget(desired_state="on", rackid="rack2", bladeid=2, generation=99))
    assert moved.record.generation == 1
    assert differences_of(chamber, "web") == [
        InstanceDifference(WEB1, {"rackid": "rack2", "generation": 1}, {"rackid": "rack1", "generation": 0})
    ]
    with pytest.raises(StaleRecordError):
        write_target(chamber, WEB1, target, expected_revision=again.revision)
    with pytest.raises(NotFoundError):
        write_target(chamber, InstanceKey("web", "i2"), target)


def test_a_target_that_was_made_with_the_last_generation_can_change(chamber: CloudChamber) -> None:
    create_instance(chamber, WEB1, Instance(), InstanceTarget(generation=2**63 - 1))
    assert write_target(chamber, WEB1, InstanceTarget(desired_state="on")).record.generation == 1
    assert write_target(chamber, WEB1, InstanceTarget(desired_state="off")).record.generation == 2


def test_writing_over_a_damaged_target_says_what_to_do(chamber: CloudChamber, store: Store) -> None:
    create_instance(chamber, WEB1, Instance(), InstanceTarget())
    (raw_key,) = [key for key in raw_keys(store) if key.endswith(b"/target")]
    store.engine.commit(Commit((), (Put(raw_key, b"{broken"),)))
    with pytest.raises(CorruptionError, match="delete the instance and create it again"):
        write_target(chamber, WEB1, InstanceTarget(desired_state="on"))
    delete_instance(chamber, WEB1)
    create_instance(chamber, WEB1, Instance(), InstanceTarget())
    assert write_target(chamber, WEB1, InstanceTarget(desired_state="on")).record.generation == 1


def test_a_damaged_blade_of_a_rack_is_none_of_another_ones_in_capitals() -> None:
    with keyplan.open("memory:") as store:
        chamber = Chamber(store)
        for rack in ("r", "R"):
            chamber.layout.blades.put(BladeKey(rack, 1), Blade())
        raw_key = CloudChamber.bound(namespace="").table("blades").keys.encode(BladeKey("r", 1))
        store.engine.commit(Commit((), (Put(raw_key, b"\xff"),)))
        racks = DocumentRacks(chamber)
        assert racks.blade("R", 1) == Blade()
        with pytest.raises(CorruptionError):
            racks.blade("r", 1)
