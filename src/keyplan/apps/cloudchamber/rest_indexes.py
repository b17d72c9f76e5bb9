"""Finding records over HTTP by what they say, through the secondary indexes: the original has no such routes.

Who has a right: `GET /api/users?right=`, in rest_users.py.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from starlette.responses import Response

from keyplan.apps.cloudchamber.indexed import CloudChamberIndexed
from keyplan.apps.cloudchamber.layout import BladeKey, InstanceKey
from keyplan.apps.cloudchamber.records import Condition
from keyplan.apps.cloudchamber.refusals import invalid, no_indexes, quoted
from keyplan.apps.cloudchamber.rest_bodies import (
    BladeEntry,
    BladeList,
    PlacedInstance,
    PlacedInstanceList,
    message_answer,
)
from keyplan.apps.cloudchamber.rest_inventory import blade_number, spellings
from keyplan.apps.cloudchamber.rest_routes import AuthenticatedRequest, Handler, Operation, Query
from keyplan.apps.cloudchamber.rest_uris import RACKS, blade_uri, instance_uri

__all__ = ["index_operations"]

_FILTERS: Final = (
    Query("arch", "only blades of this architecture"),
    Query("condition", "only blades in this condition", tuple(Condition)),
)


def index_operations(handler: Handler) -> Sequence[Operation]:
    """Return the operations that look records up by an index."""
    found = _Found(handler)
    return [
        Operation(
            "GET",
            "/api/blades",
            found.blades,
            "List the blades of all racks, or those of an architecture or condition.",
            BladeList,
            queries=_FILTERS,
            failures="400 403 409",
            has_slash=True,
        ),
        Operation(
            "GET",
            f"{RACKS}/{{rack}}/blades/{{blade}}/instances",
            found.instances,
            "List the instances that are wanted on a blade.",
            PlacedInstanceList,
            failures="400 403 409",
            has_slash=True,
        ),
    ]


class _Found:
    def __init__(self, handler: Handler) -> None:
        self._layout = handler.chamber.layout
        self._run = handler.context.run

    async def blades(self, request: AuthenticatedRequest) -> Response:
        request.require_session()
        given = request.http.query_params
        arch, condition = given.get("arch"), given.get("condition")
        if condition is not None and condition not in tuple(Condition):
            raise invalid(f"there is no condition {quoted(condition)}")
        keys = await self._run(self._blades, arch, condition)
        entries = [BladeEntry(rack=key.rack, blade=key.blade, uri=blade_uri(key)) for key in sorted(keys)]
        return message_answer(BladeList(blades=entries))

    async def instances(self, request: AuthenticatedRequest) -> Response:
        request.require_session()
        number = blade_number(request)
        keys = [] if number is None else await self._run(self._instances, request.literal("rack"), number)
        entries = [
            PlacedInstance(
                workload=key.workload,
                name=key.instance,
                uri=instance_uri(key),
            )
            for key in keys
        ]
        return message_answer(PlacedInstanceList(instances=entries))

    def _blades(self, arch: str | None, condition: str | None) -> Iterable[BladeKey]:
        if arch is None and condition is None:
            return list(self._layout.blades.keys())
        # Why one state: a blade that changes between two looks would have had both at no time.
        with self._indexed().snapshot() as state:
            found: list[set[BladeKey]] = []
            if arch is not None:
                found.append(set(state.blades_by_arch.keys(arch)))
            if condition is not None:
                found.append(set(state.blades_by_condition.keys(condition)))
        return set.intersection(*found)

    def _instances(self, rack: str, number: int) -> list[InstanceKey]:
        with self._indexed().snapshot() as state:
            for spelled in spellings(rack):
                keys = list(state.instances_by_blade.keys(spelled, number))
                if keys:
                    return keys
        return []

    def _indexed(self) -> CloudChamberIndexed:
        if not isinstance(self._layout, CloudChamberIndexed):
            raise no_indexes()
        return self._layout
