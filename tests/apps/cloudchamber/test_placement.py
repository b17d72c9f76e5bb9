"""Instances are placed on blades by their capacity: what fits, what does not and why, and never more than there is."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from keyplan.apps.cloudchamber import (
    Accelerator,
    Blade,
    BladeDetails,
    BladeKey,
    Capacity,
    Chamber,
    CloudChamber,
    CloudChamberGo,
    Condition,
    GoBladeKey,
    GoRackKey,
    Instance,
    InstanceKey,
    InstanceTarget,
    InUseError,
    LayoutSide,
    MigrationOptions,
    NotPlacedError,
    Rack,
    RackDetails,
    RequiredCapacity,
    Volume,
    Workload,
    blade_load,
    create_instance,
    delete_instance,
    insert_target,
    migrate,
    on_chosen_blade,
    write_description,
    write_target,
)
from keyplan.apps.cloudchamber.capacity import needs_of, shown_amount
from keyplan.apps.cloudchamber.go_served import GoChamber
from keyplan.apps.cloudchamber.layout_keys import BLADE_NUMBER_MAX, TargetBlade
from keyplan.engine import Commit, Put
from keyplan.errors import InvalidInputError, NotFoundError, StaleRecordError
from keyplan.maintenance import RepairResult, carry_out, check, plan_repairs
from keyplan.store import Store, open_store
from tests.apps.cloudchamber.conftest import add_blades
from tests.apps.cloudchamber.placing import CARD, I1, I2, I3, chamber_of_document, chosen, needing, on
from tests.apps.cloudchamber.site import Site, site_of


def refused(act: Callable[[], object]) -> str:
    with pytest.raises(NotPlacedError) as error:
        act()
    return str(error.value.facts["problem"])


# ---- amounts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cores", "thousandths", "shown"),
    [(0.069, 69, "0.069"), (0.1, 100, "0.1"), (4, 4_000, "4"), (1.5, 1_500, "1.5"), (0.0001, 1, "0.001")],
)
def test_cores_are_counted_in_thousandths_upwards(cores: float, thousandths: int, shown: str) -> None:
    assert needs_of(needing(cores)).amounts == {"cores": thousandths}
    assert shown_amount("cores", thousandths) == shown


def test_an_instance_takes_the_disk_of_volumes_that_are_nowhere_else() -> None:
    volumes = {"boot": Volume(size_in_gb=3), "data": Volume(size_in_gb=4), "far": Volume(size_in_gb=9, uri="nfs://x")}
    assert needs_of(Instance(volumes=volumes)).amounts == {"diskInGb": 7}
    cards = [CARD, CARD, Accelerator(unknown_fields={"h100": {}}), Accelerator()]
    amounts = needs_of(Instance(required_capacity=RequiredCapacity(accelerators=cards))).amounts
    assert amounts == {"accelerators.v100": 2, "accelerators.h100": 1, "accelerators.unknown": 1}


@pytest.mark.parametrize(
    "wrong", [needing(-1), needing(math.nan), needing(math.inf), needing(1e300), needing(memory=-1), needing(disk=-1)]
)
def test_needs_that_are_no_amounts_are_refused_before_anything_is_written(wrong: Instance) -> None:
    chamber = chamber_of_document(b1=Capacity(cores=4))
    before = chamber.revision
    with pytest.raises(InvalidInputError, match=r"give .*0"):
        create_instance(chamber, I1, wrong, InstanceTarget())
    assert chamber.revision == before


# ---- a blade that is named -------------------------------------------------------------------------------------------


def test_the_error_names_everything_that_does_not_fit() -> None:
    chamber = chamber_of_document(b1=Capacity(cores=8, memory_in_mb=100, disk_in_gb=10, arch="X64"))
    create_instance(chamber, I1, needing(5.5, 60), on(1))
    before = chamber.revision
    with pytest.raises(NotPlacedError) as error:
        create_instance(chamber, I2, needing(4, 50, 11, arch="ARM", cards=1), on(1))
    assert error.value.facts == {
        "workload": "web",
        "instance": "i2",
        "rack": "r1",
        "blade": 1,
        "dimension": "arch",
        "wanted": "ARM",
        "free": "",
        "problem": 'blade 1 in rack "r1" has not enough: arch: ARM wanted, it is X64; cores: 4 wanted, 2.5 of 8 free;'
        " memoryInMb: 50 wanted, 40 of 100 free; diskInGb: 11 wanted, 10 of 10 free;"
        " accelerators.v100: 1 wanted, 0 of 0 free",
    }
    assert chamber.revision == before
    create_instance(chamber, I2, needing(2.5, 40, 10, arch="X64"), on(1))
    create_instance(chamber, I3, needing(), on(1))


@pytest.mark.parametrize(
    ("rack", "blade", "why"),
    [
        (None, None, "it is not there"),
        (RackDetails(), BladeDetails(), "its rack is not enabled"),
        (RackDetails(enabled=True, condition=Condition.RETIRING), BladeDetails(), "its rack is retiring"),
        (RackDetails(enabled=True, condition=Condition.OPERATIONAL), None, "it is not there"),
        (RackDetails(enabled=True, condition=Condition.OPERATIONAL), BladeDetails(), "it is not enabled"),
        (
            RackDetails(enabled=True, condition=Condition.OPERATIONAL),
            BladeDetails(enabled=True, condition=Condition.OUT_FOR_REPAIR),
            "it is out_for_repair",
        ),
    ],
)
def test_a_blade_takes_work_when_it_and_its_rack_are_enabled_and_operational(
    rack: RackDetails | None, blade: BladeDetails | None, why: str
) -> None:
    chamber = CloudChamber(open_store("memory:"))
    if rack is not None:
        chamber.racks.insert("r1", Rack(details=rack))
    if blade is not None:
        chamber.blades.insert(BladeKey("r1", 1), Blade(details=blade))
    told = f'blade 1 in rack "r1" takes no work: {why}'
    assert refused(lambda: create_instance(chamber, I1, Instance(), on(1))) == told


def test_who_stays_and_needs_no_more_is_not_asked_again() -> None:
    chamber = chamber_of_document(b1=Capacity(cores=4), b2=Capacity(cores=4))
    create_instance(chamber, I1, needing(3), on(1))
    too_small = Blade(details=BladeDetails(condition=Condition.RETIRED), capacity=Capacity(cores=1))
    chamber.blades.update(BladeKey("r1", 1), too_small)
    assert write_target(chamber, I1, on(1, state="off")).record.generation == 1
    assert write_target(chamber, I1, on(1, rack="R1", state="on")).record == InstanceTarget("on", "r1", 1, 2)
    write_description(chamber, I1, needing(2))
    assert refused(lambda: write_description(chamber, I1, needing(2.5))).endswith("it is not enabled")
    add_blades(chamber, "r1", 1, capacity=Capacity(cores=1))
    assert refused(lambda: write_description(chamber, I1, needing(2.5))).endswith("cores: 2.5 wanted, 1 of 1 free")
    with pytest.raises(StaleRecordError):
        write_description(chamber, I1, needing(9), expected_revision=1)
    with pytest.raises(NotFoundError):
        write_description(chamber, I2, needing(9))


def test_moving_and_removing_give_capacity_back() -> None:
    store = open_store("memory:")
    chamber = Chamber(store)
    layout = chamber.layout
    add_blades(layout, "r1", 1, 2, capacity=Capacity(cores=4))
    layout.workloads.insert("web", Workload())

    def taken(blade: int) -> tuple[int, list[str]]:
        load = blade_load(layout, "r1", blade)
        assert load is not None
        return load.taken.get("cores", 0), [key.instance for key in load.instances]

    create_instance(layout, I1, needing(3), on(1))
    create_instance(layout, I2, needing(4), on(2))
    assert "1 of 4 free" in refused(lambda: create_instance(layout, I3, needing(2), on(1)))
    write_target(layout, I2, InstanceTarget())
    write_target(layout, I1, on(2))
    assert (taken(1), taken(2)) == ((0, []), (3_000, ["i1"]))
    delete_instance(layout, I1)
    insert_target_of_other(layout)
    assert (taken(1), taken(2)) == ((4_000, ["i3"]), (0, []))
    create_instance(layout, I1, needing(4), on(2))
    chamber.delete_workload("web")
    assert (taken(1), taken(2)) == ((0, []), (0, []))
    assert blade_load(layout, "r1", 3) is None
    assert list(check(store, CloudChamber.bound())) == []


def insert_target_of_other(layout: CloudChamber) -> None:
    """Another program has left a description alone; its target is written then."""
    layout.instances.insert(I3, needing(4))
    assert insert_target(layout, I3, on(1)).record == on(1)


def test_a_workload_of_any_size_goes_by_its_range_and_its_entries() -> None:
    chamber = Chamber(open_store("memory:"))
    add_blades(chamber.layout, "r1", 1)
    chamber.layout.workloads.insert("web", Workload())
    for number in range(5):
        create_instance(chamber.layout, InstanceKey("web", f"p{number}"), Instance(), on(1))
        create_instance(chamber.layout, InstanceKey("web", f"q{number}"), Instance(), InstanceTarget())
    before = chamber.store.revision
    assert chamber.delete_workload("web") == before + 1
    assert chamber.layout.instances_by_blade.count() == 0


# ---- under the Go program's keys -------------------------------------------------------------------------------------


def test_the_go_programs_blades_take_instances_too() -> None:
    layout = GoChamber(open_store("memory:")).layout
    rack = GoRackKey("definition", "standard", "standard", "rack1")
    good: dict[str, Any] = {"enabled": True, "condition": Condition.OPERATIONAL}
    layout.racks.insert(rack, Rack(details=RackDetails(**good)))
    for number, cores in ((1, 4), (2, 2)):
        blade = Blade(details=BladeDetails(**good), capacity=Capacity(cores=cores))
        layout.blades.insert(GoBladeKey(*rack, number), blade)
    create_instance(layout, I1, needing(3), on(1, "Rack1"))
    assert layout.instance_target.require(I1) == on(1, "rack1")
    assert "1 of 4 free" in refused(lambda: create_instance(layout, I2, needing(2), on(1, "rack1")))
    assert chosen(layout, I2, needing(2)) == on(2, "rack1")
    load = blade_load(layout, "RACK1", 2)
    assert load is not None
    assert (load.key, load.instances) == (BladeKey("rack1", 2), (I2,))


def test_a_migration_carries_what_is_taken_and_no_guard() -> None:
    source, target = open_store("memory:"), open_store("memory:")
    chamber = CloudChamber(source)
    add_blades(chamber, "r1", 1, capacity=Capacity(cores=4))
    chamber.workloads.insert("web", Workload())
    create_instance(chamber, I1, needing(3), on(1))
    assert migrate(source, target, LayoutSide.DOCUMENT, MigrationOptions()).plan.leftovers == ()
    layout = CloudChamberGo(target)
    assert "1 of 4 free" in refused(lambda: create_instance(layout, I2, needing(2), on(1)))
    assert layout.blade_guards.count() == 0
    assert list(check(target, CloudChamberGo.bound())) == []


# ---- a blade that is chosen ------------------------------------------------------------------------------------------


def test_the_blade_is_chosen_of_which_least_is_left() -> None:
    large, small = Capacity(cores=8, memory_in_mb=80), Capacity(cores=4, memory_in_mb=80)
    cards = Capacity(cores=4, memory_in_mb=80, accelerators=[CARD])
    chamber = chamber_of_document(b1=large, b2=cards, b3=small, b4=small)
    add_blades(chamber, "r0", 9, capacity=large)
    # Left of 2 cores and 40 MB: of 1 and 9 it is 6/8 + 1/2, of 2 2/4 + 1/2 + 1, of 3 and 4 2/4 + 1/2; 3 is before 4.
    assert chosen(chamber, I1, needing(2, 40)) == on(3)
    # Blade 3 is left with 1/4 + 1/2, each other with more.
    assert chosen(chamber, I2, needing(1)) == on(3)
    assert chosen(chamber, I3, needing(2, 10, cards=1)) == on(2)
    assert chosen(chamber, InstanceKey("web", "i4"), needing(5)) == on(9, "r0")
    assert chosen(chamber, InstanceKey("web", "i5"), needing(5), rack="R1") == on(1)


def test_where_no_blade_has_enough_the_closest_are_named() -> None:
    chamber = chamber_of_document(
        b1=Capacity(cores=8, memory_in_mb=80), b2=Capacity(cores=2, memory_in_mb=80), b3=Capacity(cores=64)
    )
    chamber.blades.insert(BladeKey("r1", 4), Blade(capacity=Capacity(cores=64, memory_in_mb=640)))
    create_instance(chamber, I1, needing(4), on(1))
    told = refused(lambda: chosen(chamber, I2, needing(4.5, 80)))
    assert told == (
        "no blade has enough; of 4, 3 take work. The closest:"
        ' blade 2 in rack "r1" (cores: 4.5 wanted, 2 of 2 free);'
        ' blade 1 in rack "r1" (cores: 4.5 wanted, 4 of 8 free);'
        ' blade 3 in rack "r1" (memoryInMb: 80 wanted, 0 of 0 free)'
    )
    assert refused(lambda: chosen(chamber, I2, needing(1), rack="r9")) == ('there is no blade of rack "r9"')
    with pytest.raises(InvalidInputError, match="the target names blade 1: leave bladeid out"):
        on_chosen_blade(chamber, I2, Instance(), on(1), lambda target: target)


def test_a_blade_that_others_took_meanwhile_is_chosen_again() -> None:
    chamber = chamber_of_document(b1=Capacity(cores=1), b2=Capacity(cores=2))
    tried: list[int] = []

    def write(target: InstanceTarget) -> int:
        if not tried:
            create_instance(chamber, I1, needing(1), on(1))
        tried.append(target.bladeid)
        return create_instance(chamber, I2, needing(1), target)

    on_chosen_blade(chamber, I2, needing(1), InstanceTarget(), write)
    assert tried == [1, 2]


# ---- what other programs leave ---------------------------------------------------------------------------------------


def raw_put(chamber: CloudChamber, store: Store, table: str, key: object, value: bytes) -> None:
    store.engine.commit(Commit((), (Put(CloudChamber.bound().tables[table].keys.encode(key), value),)))


def test_a_target_that_another_program_wrote_is_found_by_a_check_and_counted_after_the_repair() -> None:
    store = open_store("memory:")
    chamber = CloudChamber(store)
    add_blades(chamber, "r1", 1, capacity=Capacity(cores=4))
    raw_put(chamber, store, "instances", I1, b'{"requiredCapacity":{"cores":3}}')
    raw_put(chamber, store, "instance_target", I1, b'{"rackid":"r1","bladeid":"1"}')
    [finding] = check(store, CloudChamber.bound())
    assert b"index/instances/by-blade/r1/1/web/i1" in finding.raw_key
    repairs = plan_repairs(store, CloudChamber.bound(), [finding])
    assert [outcome.result for outcome in carry_out(store, CloudChamber.bound(), repairs)] == [RepairResult.REPAIRED]
    assert list(check(store, CloudChamber.bound())) == []
    assert "1 of 4 free" in refused(lambda: create_instance(chamber, I2, needing(2), on(1)))


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (b"{broken", "its description cannot be read"),
        (b'{"requiredCapacity":{"cores":-1}}', "cores is -1.0: give a number from 0 to 9223372036854775"),
    ],
)
def test_nothing_is_placed_beside_what_cannot_be_counted(value: bytes, told: str) -> None:
    store = open_store("memory:")
    chamber = CloudChamber(store)
    add_blades(chamber, "r1", 1, 2, capacity=Capacity(cores=4))
    create_instance(chamber, I1, needing(1), on(1))
    raw_put(chamber, store, "instances", I1, value)
    why = f"holds instance web/i1, whose needs are not known: {told}"
    assert refused(lambda: create_instance(chamber, I2, needing(1), on(1))) == f'blade 1 in rack "r1" {why}'
    with pytest.raises(InUseError, match="are not known"):
        blade_load(chamber, "r1", 1)
    assert chosen(chamber, I2, needing(1)) == on(2)
    write_description(chamber, I1, needing(2))
    create_instance(chamber, I3, needing(2), on(1))


def test_damage_beside_keeps_nobody_from_the_blades_that_are_whole() -> None:
    store = open_store("memory:")
    chamber = CloudChamber(store)
    add_blades(chamber, "r1", 0, 1, 2, capacity=Capacity(cores=4))
    create_instance(chamber, I1, needing(4), on(1))
    raw_put(chamber, store, "blades", BladeKey("r1", 0), b"{broken")
    raw_put(chamber, store, "instance_target", I1, b"{broken")
    raw_put(chamber, store, "blade_guards", TargetBlade("r1", 2), b"{broken")
    assert chosen(chamber, I2, needing(1), rack="R1") == on(2), "blade 1 is taken, which its index alone knows"
    raw_put(chamber, store, "instances", I2, b"{broken")
    write_target(chamber, I2, InstanceTarget())
    assert list(chamber.instances_by_blade.keys("r1", 2)) == []


@pytest.mark.parametrize("number", [-1, BLADE_NUMBER_MAX + 1])
def test_a_number_that_no_blade_can_have_is_refused_by_its_name(number: int) -> None:
    with pytest.raises(InvalidInputError, match=f"bladeid is {number}: give a number from 0 to {BLADE_NUMBER_MAX}"):
        create_instance(chamber_of_document(), I1, needing(), on(number))


# ---- over HTTP -------------------------------------------------------------------------------------------------------


def test_instances_are_placed_over_http(tmp_path: Path) -> None:
    async def act(site: Site) -> None:
        chamber = CloudChamber(site.store)
        add_blades(chamber, "Rack1", 1, capacity=Capacity(cores=4, memory_in_mb=100, accelerators=[CARD]))
        add_blades(chamber, "Rack1", 2, capacity=Capacity(cores=2, memory_in_mb=100))
        admin = await site.logged_in()
        one, load = "/api/workloads/web/instances/", "/api/racks/Rack1/blades/1/load"
        needs = {"requiredCapacity": {"cores": 2.5, "memoryInMb": 60}}
        assert (await admin.post("/api/workloads/web", json={})).status_code == 200
        revision = site.store.revision
        made = await admin.post(f"{one}i1?place", json={"description": needs, "target": {"desiredState": "on"}})
        assert (made.status_code, made.text) == (200, 'Instance "i1" created on blade 1 in rack "Rack1"')
        found = (await admin.get(f"{one}i1/target")).json()
        assert found == {"desiredState": "on", "rackid": "Rack1", "bladeid": "1"}
        assert (await admin.get(load)).json() == {
            "capacity": {"cores": "4", "memoryInMb": "100", "accelerators": [{"v100": {}}]},
            "taken": {"cores": 2.5, "memoryInMb": "60"},
            "free": {"cores": 1.5, "memoryInMb": "40", "accelerators": [{"kind": "v100", "count": "1"}]},
            "instances": [{"workload": "web", "name": "i1", "uri": f"{one}i1"}],
        }
        assert (await admin.get("/api/racks/Rack1/blades/1/instances")).json()["instances"][0]["name"] == "i1"
        there = {"rackid": "rack1", "bladeid": 1}
        no_room = await admin.post(f"{one}i2", json={"description": needs, "target": there})
        assert no_room.status_code == 409
        assert no_room.text == (
            'CloudChamber: instance "i2" of workload "web" cannot be placed: blade 1 in rack "rack1" takes no work:'
            " it is not there\n"
        )
        no_room = await admin.post(f"{one}i2", json={"description": needs, "target": {**there, "rackid": "Rack1"}})
        assert no_room.text == (
            'CloudChamber: instance "i2" of workload "web" cannot be placed: blade 1 in rack "Rack1" has not enough:'
            " cores: 2.5 wanted, 1.5 of 4 free; memoryInMb: 60 wanted, 40 of 100 free\n"
        )
        assert (await admin.post(f"{one}i2", json={"description": needs})).status_code == 200
        target = (await admin.get(f"{one}i2/target")).headers["etag"]
        nowhere = await admin.put(f"{one}i2/target?place", json={}, headers={"If-Match": target})
        assert (nowhere.status_code, "The closest: blade 2" in nowhere.text) == (409, True)
        description = (await admin.get(f"{one}i2")).headers["etag"]
        less = {"requiredCapacity": {"cores": 2}}
        assert (await admin.put(f"{one}i2", json=less, headers={"If-Match": description})).status_code == 200
        somewhere = await admin.put(f"{one}i2/target?place", json={}, headers={"If-Match": target})
        assert somewhere.json() == {"rackid": "Rack1", "bladeid": "2", "generation": "1"}
        wrong = await admin.post(f"{one}i3", json={"description": {"requiredCapacity": {"memoryInMb": -1}}})
        assert (wrong.status_code, "memoryInMb is -1: give 0 or more" in wrong.text) == (400, True)
        for path in ("/api/racks/Rack1/blades/3/load", "/api/racks/none/blades/1/load"):
            assert (await admin.get(path)).status_code == 404
        changes = (await admin.get(f"/api/watch?revision={revision}")).json()["changes"]
        assert not [one["key"] for one in changes if one["key"].startswith("index/")]

    with site_of("memory:", tmp_path) as site:
        site.run(act)
