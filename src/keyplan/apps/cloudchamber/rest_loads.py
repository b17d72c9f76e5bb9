"""What is taken of blades over HTTP: a route of our own, for everybody who is logged in."""

from typing import Final

from keyplan.apps.cloudchamber.capacity import ACCELERATORS, CORES, DISK, MEMORY, NETWORK, Amounts, offer_of
from keyplan.apps.cloudchamber.namespace_store import InUseError
from keyplan.apps.cloudchamber.placement import BladeLoad, blade_load
from keyplan.apps.cloudchamber.refusals import RefusedError, quoted
from keyplan.apps.cloudchamber.rest_bodies import AcceleratorCount, BladeLoadView, PlacedInstance
from keyplan.apps.cloudchamber.rest_bodies import Amounts as ShownAmounts
from keyplan.apps.cloudchamber.rest_inventory import blade_number
from keyplan.apps.cloudchamber.rest_routes import Resource, Who, rest
from keyplan.apps.cloudchamber.rest_stored import RACKS, instance_uri
from keyplan.apps.cloudchamber.rest_words import Name

__all__ = ["Loads"]

_THOUSAND: Final = 1_000


class Loads(Resource):
    """The operation on what is taken of blades."""

    @rest("GET", f"{RACKS}/{{rack}}/blades/{{blade}}/load", Who.LOGGED_IN, 404, 409, has_slash=True)
    def read(self, rack: Name, blade: Name) -> BladeLoadView:
        """Tell what is taken of a blade, by which instances, and what is free."""
        number = blade_number(blade)
        try:
            load = None if number is None else blade_load(self.layout, rack, number)
        except InUseError as error:
            where = f"blade {blade} in rack {quoted(str(error.facts['rack']))}"
            raise RefusedError(409, f"{where} {error.facts['problem']}") from error
        if load is None:
            raise RefusedError(404, f"blade {blade} not found in rack {quoted(rack.lower())}")
        return _view(load)


def _view(load: BladeLoad) -> BladeLoadView:
    offered = offer_of(load.capacity).amounts
    free = {name: offered.get(name, 0) - load.taken.get(name, 0) for name in {**offered, **load.taken}}
    instances = [
        PlacedInstance(workload=one.workload, name=one.instance, uri=instance_uri(one)) for one in load.instances
    ]
    return BladeLoadView(capacity=load.capacity, taken=_shown(load.taken), free=_shown(free), instances=instances)


def _shown(amounts: Amounts) -> ShownAmounts:
    kinds = [name for name in amounts if name.startswith(ACCELERATORS)]
    return ShownAmounts(
        cores=amounts.get(CORES, 0) / _THOUSAND,
        memory_in_mb=amounts.get(MEMORY, 0),
        disk_in_gb=amounts.get(DISK, 0),
        network_bandwidth_in_mbps=amounts.get(NETWORK, 0),
        accelerators=[
            AcceleratorCount(kind=name.removeprefix(ACCELERATORS), count=amounts[name]) for name in sorted(kinds)
        ],
    )
