"""Placements at once: no order of them, no number of writers and no killed one takes more of a blade than there is."""

import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations
from pathlib import Path
from typing import Final

import httpx
import pytest

import keyplan
from keyplan.apps.cloudchamber import (
    BladeKey,
    Capacity,
    Chamber,
    CloudChamber,
    InstanceKey,
    InUseError,
    InventoryKey,
    InventoryRecord,
    NotPlacedError,
    RequiredCapacity,
    blade_load,
    create_instance,
    delete_instance,
    inventory_records,
    read_definition,
    reconcile,
    write_description,
    write_target,
)
from keyplan.errors import ConflictError, NotFoundError
from keyplan.maintenance import check
from keyplan.store import Store, open_store
from keyplan.testing.schedules import Outcome, Scenario, actor, as_in_some_order, check_schedules, healthy
from tests.apps.cloudchamber.conftest import add_blades, definition_yaml
from tests.apps.cloudchamber.definitions import (
    CAPACITY,
    DETAILS,
    SIDES,
    WHATEVER,
    as_admin,
    assert_sound,
    put,
    said,
    site_with,
)
from tests.apps.cloudchamber.placing import I1, I2, I3, chamber_of_document, change_blade, chosen, needing, on

# ---- definitions -----------------------------------------------------------------------------------------------------


def test_a_blade_neither_goes_nor_shrinks_below_what_is_wanted_there() -> None:
    chamber = chamber_of_document(b1=Capacity(cores=8, memory_in_mb=80, arch="X64"))
    create_instance(chamber, I1, needing(3, 40, arch="X64"), on(1))
    create_instance(chamber, I2, needing(2.5), on(1))

    def told(capacity: Capacity | None) -> str:
        with pytest.raises(InUseError) as error:
            change_blade(chamber, capacity)
        return str(error.value.facts["problem"])

    assert told(Capacity(cores=5, memory_in_mb=39, arch="ARM")) == (
        "arch: X64 taken, it would have ARM; cores: 5.5 taken, it would have 5; memoryInMb: 40 taken, it would have 39"
    )
    assert told(None) == "web/i1, web/i2 are wanted there: move or delete them first"
    change_blade(chamber, Capacity(cores=6, memory_in_mb=40, arch="X64"))
    for key in (I1, I2):
        delete_instance(chamber, key)
    change_blade(chamber, None)
    assert chamber.blade_guards.count() == 0


def test_an_import_leaves_room_for_what_is_wanted(tmp_path: Path) -> None:
    def wanted(*racks: str, blades: int = 1) -> Mapping[InventoryKey, InventoryRecord]:
        (tmp_path / "site.yaml").write_bytes(definition_yaml(*racks, blades=blades))
        return inventory_records(read_definition(tmp_path / "site.yaml"))

    chamber = chamber_of_document(b1=Capacity(cores=2), b2=Capacity(cores=2))
    create_instance(chamber, I1, needing(1.5), on(1))
    before = chamber.revision
    for racks, problem in ((["r1"], "cores: 1.5 taken, it would have 1"), (["r2"], "web/i1 is wanted there: move")):
        with pytest.raises(InUseError) as error:
            reconcile(chamber, wanted(*racks))
        assert str(error.value.facts["problem"]).startswith(problem)
    assert chamber.revision == before
    delete_instance(chamber, I1)
    reconcile(chamber, wanted("r2"))
    assert not chamber.racks.exists("r1")


@pytest.mark.parametrize("side", SIDES)
def test_definitions_over_http_leave_room_for_what_is_wanted(tmp_path: Path, side: str) -> None:
    async def act(admin: httpx.AsyncClient) -> None:
        for path, body in (("racks/ada", {"details": DETAILS}), ("racks/bob", {"details": DETAILS})):
            assert (await put(admin, path, body)).status_code == 201
            assert (await put(admin, f"{path}/blades/1", {"details": DETAILS, "capacity": CAPACITY})).status_code == 201
        await admin.post("/api/workloads/web", json={})
        needs = {"requiredCapacity": {"cores": 3}}
        one = "/api/workloads/web/instances/i1"
        target = {"rackid": "ada", "bladeid": 1}
        assert (await admin.post(one, json={"description": needs, "target": target})).status_code == 200
        blade, small = "racks/ada/blades/1", {"details": DETAILS, "capacity": {**CAPACITY, "cores": "2"}}
        in_use = 'CloudChamber: blade 1 of rack "ada" is in use: '
        wanted = "web/i1 is wanted there: move or delete it first"
        assert said(await put(admin, blade, small, WHATEVER)) == (409, f"{in_use}cores: 3 taken, it would have 2")
        assert said(await admin.delete(f"/api/{blade}/definition", headers=WHATEVER)) == (409, in_use + wanted)
        whole = await admin.delete("/api/racks/ada/definition?cascade", headers=WHATEVER)
        assert said(whole) == (409, f'CloudChamber: rack "ada" is in use: {wanted}')
        enough = {"details": {"condition": "retired"}, "capacity": {**CAPACITY, "cores": "3", "arch": "ARM"}}
        assert (await put(admin, blade, enough, WHATEVER)).status_code == 200
        assert (await admin.delete("/api/racks/bob/definition?cascade", headers=WHATEVER)).status_code == 200
        assert (await admin.delete(one)).status_code == 200
        assert (await put(admin, blade, small, WHATEVER)).status_code == 200
        assert (await admin.delete("/api/racks/ada/definition?cascade", headers=WHATEVER)).status_code == 200

    with site_with(side, tmp_path) as site:
        as_admin(site, act)
        assert_sound(site.store)


# ---- at once ---------------------------------------------------------------------------------------------------------


def four_cores(store: Store) -> None:
    chamber = CloudChamber(store)
    add_blades(chamber, "r1", 1, capacity=Capacity(cores=4))
    create_instance(chamber, I1, needing(1), on(1))


def place(key: InstanceKey, cores: float) -> Callable[[Store], str]:
    def act(store: Store) -> str:
        try:
            create_instance(CloudChamber(store), key, needing(cores), on(1))
        except NotPlacedError:
            return "no room"
        return "placed"

    return act


def grow(store: Store) -> str:
    try:
        write_description(CloudChamber(store), I1, needing(3))
    except NotPlacedError:
        return "no room"
    return "grown"


def leave(store: Store) -> str:
    delete_instance(CloudChamber(store), I1)
    return "left"


def shrink(store: Store) -> str:
    try:
        change_blade(CloudChamber(store), Capacity(cores=2))
    except InUseError:
        return "in use"
    return "shrunk"


def remove(store: Store) -> str:
    try:
        change_blade(CloudChamber(store), None)
    except (InUseError, NotFoundError):
        return "in use"
    return "removed"


ACTS: Final[dict[str, Callable[[Store], str]]] = {
    "place": place(I2, 2),
    "grow": grow,
    "leave": leave,
    "shrink": shrink,
    "remove": remove,
}


def taken_by_force(chamber: CloudChamber) -> Counter[tuple[BladeKey, str]]:
    """What is taken, counted over every target and description that is there, without the index."""
    total: Counter[tuple[BladeKey, str]] = Counter()
    for key, target in chamber.instance_target.list():
        if target.rackid:
            needed = chamber.instances.require(key).required_capacity or RequiredCapacity()
            blade = BladeKey(target.rackid, target.bladeid)
            total.update({(blade, "cores"): round(needed.cores * 1000), (blade, "memory"): needed.memory_in_mb})
    return total


def assert_nothing_is_exceeded(chamber: CloudChamber) -> None:
    with chamber.snapshot() as state:
        for (blade, dimension), taken in taken_by_force(state).items():
            found = state.blades.get(blade)
            assert found is not None, f"{blade} is gone, and something is wanted there"
            capacity = found.capacity or Capacity()
            offered = capacity.cores * 1000 if dimension == "cores" else capacity.memory_in_mb
            assert taken <= offered, f"{blade} has {offered} of {dimension}, and {taken} are taken"


def fits(outcome: Outcome) -> None:
    assert_nothing_is_exceeded(CloudChamber(outcome.store))


@pytest.mark.parametrize(("one", "other"), [*combinations(ACTS, 2), ("place", "again")])
def test_no_order_of_two_acts_takes_more_than_there_is(one: str, other: str) -> None:
    second = place(I3, 2) if other == "again" else ACTS[other]
    scenario = Scenario(
        actor(ACTS[one], one, answers=True),
        actor(second, other, answers=True),
        setup=four_cores,
        layouts=[CloudChamber],
        invariants=[fits, healthy(CloudChamber), as_in_some_order],
    )
    check_schedules(scenario, complete=True)


class Placer:
    """Places, moves, changes and removes instances by chance."""

    def __init__(self, url_or_store: Store, seed: int) -> None:
        self._chamber = Chamber(url_or_store).layout
        self._chance = random.Random(seed)
        self.done: Counter[str] = Counter()

    def act(self) -> None:
        key = InstanceKey("web", f"i{self._chance.randrange(24)}")
        description = needing(self._chance.choice([0.5, 1, 1.1, 2, 3]), self._chance.randrange(40))
        target = on(self._chance.randint(1, 3))
        chamber = self._chamber
        acts: dict[str, Callable[[], object]] = {
            "create": lambda: create_instance(chamber, key, description, target),
            "choose": lambda: chosen(chamber, key, description),
            "move": lambda: write_target(chamber, key, target),
            "change": lambda: write_description(chamber, key, description),
            "delete": lambda: delete_instance(chamber, key),
        }
        name = self._chance.choice(list(acts))
        try:
            acts[name]()
        except NotPlacedError:
            self.done["no room"] += 1
        except (ConflictError, NotFoundError):
            self.done["refused"] += 1
        else:
            self.done[name] += 1
        assert_nothing_is_exceeded(chamber)


def three_blades(chamber: CloudChamber) -> None:
    for number in range(1, 4):
        add_blades(chamber, "r1", number, capacity=Capacity(cores=4, memory_in_mb=100))


def test_many_writers_at_once_never_exceed_a_blade() -> None:
    store = open_store("memory:")
    chamber = CloudChamber(store)
    three_blades(chamber)
    placers = [Placer(store, seed) for seed in range(4)]

    def run(placer: Placer) -> None:
        for _ in range(300):
            placer.act()

    with ThreadPoolExecutor(len(placers)) as pool:
        for run_of_one in [pool.submit(run, placer) for placer in placers]:
            run_of_one.result()
    done = sum((placer.done for placer in placers), Counter())
    assert min(done[name] for name in ("create", "choose", "move", "change", "delete", "no room")) > 0, done
    assert list(check(store, CloudChamber.bound())) == []


def placing_for_ever(url: str, seed: int) -> None:
    with keyplan.open(url) as store:
        placer = Placer(store, seed)
        print("ready", flush=True)
        while True:
            placer.act()


def test_a_writer_that_is_killed_leaves_nothing_half(tmp_path: Path) -> None:
    url = f"lmdb:{tmp_path / 'kv'}?durability=none"
    command = [sys.executable, "-c", f"from {__name__} import placing_for_ever; placing_for_ever({url!r}, 1)"]
    root = Path(__file__).resolve().parents[3]
    with keyplan.open(url) as store:
        chamber = CloudChamber(store)
        three_blades(chamber)
        with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            assert process.stdout.readline() == "ready\n", process.stderr.read()
            with Chamber(store).watch("instance_target", after=store.revision) as watch:
                written = 0
                while written < 10 and process.poll() is None:
                    written += len(watch.poll(5))
            process.kill()
            assert process.stderr.read() == ""
        assert list(check(store, CloudChamber.bound())) == []
        assert_nothing_is_exceeded(chamber)
        by_force = taken_by_force(chamber)
        for number in range(1, 4):
            load = blade_load(chamber, "r1", number)
            assert load is not None
            assert load.taken.get("cores", 0) == by_force[load.key, "cores"]
