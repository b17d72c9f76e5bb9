"""Wakes Patroni of a cell's nodes after the wall's clock was set back: it would sleep for as long as that.

Patroni plans its next look by the wall's clock. A leader that sleeps keeps up neither its lead nor its member record, and its
PostgreSQL goes on as a primary; of the others none leads where it is seen to be alive.
"""

from collections.abc import Iterable
from threading import Event, Thread
from typing import Final

from keyplan.apps.patroni.logs import LOGGER
from keyplan.apps.patroni.node_config import NodePlan
from keyplan.apps.patroni.patroni_rest import PatroniRefusedError, check_log_in
from keyplan.apps.patroni.records import Member
from keyplan.engine import Clock

__all__ = ["NodeWakeup"]

_STEP_SECONDS: Final = 1.0
"""Why: Patroni sleeps longer by as much, and so little does no harm. Clocks that are slewed are far slower."""
_TRIES: Final = 60
_AGAIN_SECONDS: Final = 2.0


class NodeWakeup:
    """Notices that the wall's clock was set back. Call `look` again and again: nothing in it waits."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ahead = clock.wall() - clock.monotonic()

    def look(self, plans: Iterable[NodePlan]) -> None:
        """Wake these nodes when the clock was set back since the last look."""
        before, self._ahead = self._ahead, self._clock.wall() - self._clock.monotonic()
        if self._ahead >= before - _STEP_SECONDS:
            return
        LOGGER.warning("the wall's clock was set back by %.0f s: Patroni of each node is woken", before - self._ahead)
        for plan in plans:
            # Why a thread: Patroni answers when its store does, and the cell's lease must be kept up meanwhile.
            Thread(target=_wake, args=(plan,), name=f"wake {plan.node}", daemon=True).start()


def _wake(plan: NodePlan) -> None:
    """Ask for a change of the configuration that changes nothing: Patroni looks at once after any, whenever it meant to."""
    member = Member(api_url=f"http://{plan.rest_place}/patroni")
    problem = ""
    for _ in range(_TRIES):
        try:
            check_log_in(member, plan.rest)
        except PatroniRefusedError as error:
            problem = str(error)
            Event().wait(_AGAIN_SECONDS)
        else:
            return
    LOGGER.error("Patroni of node %s was not woken: %s; restart it if the node does not follow", plan.node, problem)
