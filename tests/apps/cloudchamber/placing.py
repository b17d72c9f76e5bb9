"""What tests of placements share: blades in memory, instances with needs, and the acts that take and give capacity."""

from typing import Final

from keyplan.apps.cloudchamber import (
    Accelerator,
    AcceleratorV100,
    Blade,
    BladeDetails,
    BladeKey,
    Capacity,
    CloudChamber,
    Condition,
    Instance,
    InstanceKey,
    InstanceTarget,
    RequiredCapacity,
    Volume,
    create_instance,
    on_chosen_blade,
)
from keyplan.apps.cloudchamber.layout import ServedLayout
from keyplan.apps.cloudchamber.placement import require_capacity
from keyplan.store import open_store
from tests.apps.cloudchamber.conftest import add_blades

I1, I2, I3 = (InstanceKey("web", name) for name in ("i1", "i2", "i3"))
CARD: Final = Accelerator(v100=AcceleratorV100())


def needing(cores: float = 0.0, memory: int = 0, disk: int = 0, *, arch: str = "", cards: int = 0) -> Instance:
    needed = RequiredCapacity(cores=cores, memory_in_mb=memory, arch=arch, accelerators=[CARD] * cards)
    return Instance(required_capacity=needed, volumes={"boot": Volume(size_in_gb=disk)} if disk else {})


def on(blade: int, rack: str = "r1", state: str = "") -> InstanceTarget:
    return InstanceTarget(desired_state=state, rackid=rack, bladeid=blade)


def chamber_of_document(**blades: Capacity) -> CloudChamber:
    """A store in memory with a rack r1, and b1, b2, ... as its blades."""
    chamber = CloudChamber(open_store("memory:"))
    add_blades(chamber, "r1")
    for name, capacity in blades.items():
        add_blades(chamber, "r1", int(name[1:]), capacity=capacity)
    return chamber


def chosen(layout: ServedLayout, key: InstanceKey, description: Instance, rack: str = "") -> InstanceTarget:
    def write(target: InstanceTarget) -> InstanceTarget:
        create_instance(layout, key, description, target)
        return target

    return on_chosen_blade(layout, key, description, InstanceTarget(rackid=rack), write)


def change_blade(chamber: CloudChamber, capacity: Capacity | None) -> None:
    """What a writer of definitions does: replaces blade 1, or deletes it."""
    key = BladeKey("r1", 1)

    def work(transaction: CloudChamber) -> None:
        require_capacity(chamber, transaction, key, capacity)
        if capacity is None:
            transaction.blades.delete(key)
        else:
            details = BladeDetails(enabled=True, condition=Condition.OPERATIONAL)
            transaction.blades.update(key, Blade(details=details, capacity=capacity))

    chamber.run(work)
