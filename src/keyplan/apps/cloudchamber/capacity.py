"""What blades offer and instances need, dimension by dimension, in whole numbers: so that sums are exact. Pure.

Dimensions go by the names of their fields in JSON. Cores are counted in thousandths. An instance's disk is that of its volumes,
but for those whose `uri` says where they are. Accelerators are counted by kind: `accelerators.v100`.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from decimal import ROUND_CEILING, Decimal
from typing import Final, NamedTuple

from keyplan.apps.cloudchamber.records import Accelerator, Capacity, Instance, RequiredCapacity
from keyplan.errors import InvalidInputError
from keyplan.protobuf import INT64_MAX

__all__ = [
    "ACCELERATORS",
    "ARCH",
    "CORES",
    "DISK",
    "MEMORY",
    "NETWORK",
    "Amounts",
    "Needs",
    "Shortage",
    "needs_of",
    "offer_of",
    "shortages",
    "shown_amount",
    "sum_of",
]

Amounts = Mapping[str, int]
"""How much of each dimension; what is not in it is 0. Cores are in thousandths."""

CORES: Final = "cores"
MEMORY: Final = "memoryInMb"
DISK: Final = "diskInGb"
NETWORK: Final = "networkBandwidthInMbps"
ACCELERATORS: Final = "accelerators."
ARCH: Final = "arch"

_THOUSANDTHS: Final = 1_000
_CORES_MAX: Final = INT64_MAX // _THOUSANDTHS


class Needs(NamedTuple):
    """What an instance needs of a blade, or a blade offers; `arch` is "" where none is named."""

    arch: str
    amounts: Amounts

    def exceeds(self, other: "Needs") -> bool:
        """Tell whether it needs more of anything, or another architecture."""
        more = any(wanted > other.amounts.get(dimension, 0) for dimension, wanted in self.amounts.items())
        return more or (self.arch not in {"", other.arch})


class Shortage(NamedTuple):
    """A dimension of which a blade has not enough: what is wanted, what is free, and what there is in all, as texts."""

    dimension: str
    wanted: str
    free: str
    total: str

    def __str__(self) -> str:
        if self.dimension == ARCH:
            return f"arch: {self.wanted} wanted, it is {self.total or 'not known'}"
        return f"{self.dimension}: {self.wanted} wanted, {self.free} of {self.total} free"


def needs_of(instance: Instance) -> Needs:
    """Return what an instance needs. Raises InvalidInputError for what is no amount, naming the field."""
    needed = instance.required_capacity or RequiredCapacity()
    volumes = {name: volume.size_in_gb for name, volume in instance.volumes.items() if not volume.uri}
    amounts = {
        CORES: _thousandths(needed.cores),
        MEMORY: _amount(MEMORY, needed.memory_in_mb),
        DISK: sum(_amount(f"volumes[{name}].sizeInGb", size) for name, size in volumes.items()),
        NETWORK: _amount(NETWORK, needed.network_bandwidth_in_mbps),
        **_accelerators(needed.accelerators),
    }
    return Needs(needed.arch, {dimension: amount for dimension, amount in amounts.items() if amount})


def offer_of(capacity: Capacity | None) -> Needs:
    """Return what a blade offers. What a definition file could not have, less than nothing, is nothing."""
    offered = capacity or Capacity()
    amounts = {
        CORES: offered.cores * _THOUSANDTHS,
        MEMORY: offered.memory_in_mb,
        DISK: offered.disk_in_gb,
        NETWORK: offered.network_bandwidth_in_mbps,
        **_accelerators(offered.accelerators),
    }
    return Needs(offered.arch, {dimension: max(amount, 0) for dimension, amount in amounts.items()})


def sum_of(all_needs: Iterable[Needs]) -> Amounts:
    """Return what several need together."""
    total: Counter[str] = Counter()
    for needs in all_needs:
        total.update(needs.amounts)
    return total


def shortages(needs: Needs, offer: Needs, taken: Amounts) -> Iterator[Shortage]:
    """Yield each dimension in which needs do not fit beside what is taken. What is not needed cannot lack."""
    if needs.arch not in {"", offer.arch}:
        yield Shortage(ARCH, needs.arch, "", offer.arch)
    for dimension, wanted in needs.amounts.items():
        total = offer.amounts.get(dimension, 0)
        free = total - taken.get(dimension, 0)
        if wanted > free:
            yield Shortage(
                dimension,
                shown_amount(dimension, wanted),
                shown_amount(dimension, max(free, 0)),
                shown_amount(dimension, total),
            )


def shown_amount(dimension: str, amount: int) -> str:
    """Return an amount as people write it: cores with as many decimals as they have."""
    if dimension != CORES:
        return str(amount)
    whole, rest = divmod(amount, _THOUSANDTHS)
    return f"{whole}.{rest:03d}".rstrip("0").rstrip(".")


def _thousandths(cores: float) -> int:
    """Count cores upwards. Why by the decimal that is written: 0.069 times 1000 is a little more than 69."""
    if not 0 <= cores <= _CORES_MAX:  # also what is no number
        problem = f"{CORES} is {cores!r}: give a number from 0 to {_CORES_MAX}"
        raise InvalidInputError(source="requiredCapacity", problem=problem)
    return int((Decimal(repr(cores)) * _THOUSANDTHS).to_integral_value(ROUND_CEILING))


def _amount(field: str, amount: int) -> int:
    if amount < 0:
        raise InvalidInputError(source="requiredCapacity", problem=f"{field} is {amount}: give 0 or more")
    return amount


def _accelerators(accelerators: Iterable[Accelerator]) -> Counter[str]:
    return Counter(ACCELERATORS + _kind_of(one) for one in accelerators)


def _kind_of(accelerator: Accelerator) -> str:
    """Return the kind of a card by the field that is set, also one of a newer program."""
    if accelerator.v100 is not None:
        return "v100"
    return next(iter(accelerator.unknown_fields), "unknown")
