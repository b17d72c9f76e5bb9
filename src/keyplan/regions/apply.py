"""A plan carried out on PD, and verified from what PD says afterwards."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from keyplan.regions.placement_driver import PlacementDriver
from keyplan.regions.plan import RegionPlan, plan_regions
from keyplan.regions.spaces import Space, StoreMode
from keyplan.store import Backoff

__all__ = ["Applied", "apply_plan", "plan_with"]

_SPLIT_KEYS_MAX: Final = 64
"""Why: PD answers a request when all its keys are split or given up; a larger batch would only wait for longer."""

_RULES_MAX: Final = 500
"""Why: a request of 500 rules is some 150 KiB; PD writes all of one request in one step."""

_ATTEMPTS_MAX: Final = 6
"""Why: PD itself tries five times, for minutes, before it answers; what it still refuses then is for an operator to look at."""


@dataclass(frozen=True, slots=True)
class Applied:
    """What was planned, what was sent, and how things stood afterwards."""

    plan: RegionPlan
    split_requests: int
    after: RegionPlan

    @property
    def is_proven(self) -> bool:
        """True when the verification at the end found nothing."""
        return self.after.proof.is_proven and not self.after.is_needed

    def data(self) -> dict[str, Any]:
        """The whole as JSON data."""
        return {
            "ok": self.is_proven,
            "planned": self.plan.data(),
            "split_requests": self.split_requests,
            "after": self.after.data(),
        }


def plan_with(
    driver: PlacementDriver,
    spaces: Iterable[Space],
    *,
    cluster: str,
    modes: Sequence[StoreMode] = (StoreMode.TRANSACTIONAL,),
    guards_empty: bool = True,
) -> RegionPlan:
    """Return the plan for the regions and rules that PD has now; see `plan_regions`."""
    return plan_regions(
        spaces, driver.regions(), driver.rules(), cluster=cluster, modes=modes, guards_empty=guards_empty
    )


def apply_plan(
    driver: PlacementDriver,
    spaces: Iterable[Space],
    *,
    cluster: str,
    modes: Sequence[StoreMode] = (StoreMode.TRANSACTIONAL,),
    guards_empty: bool = True,
    backoff: Backoff | None = None,
) -> Applied:
    """Set and delete rules, split what must be split, read everything again and verify it.

    After each round of splits the regions are read, and only boundaries that are still missing are asked for again, at most
    six times with growing waits: PD passes over regions that move or have no leader. It is for the caller to look at
    `is_proven`; calling it again goes on. Stopped in between it leaves a part of the splits, which harm nobody.
    """
    known = list(spaces)
    waits = backoff if backoff is not None else Backoff()
    plan = plan_with(driver, known, cluster=cluster, modes=modes, guards_empty=guards_empty)
    _set_rules(driver, plan)
    after, requests = plan, 0
    for attempt in range(_ATTEMPTS_MAX):
        if attempt:
            after = plan_with(driver, known, cluster=cluster, modes=modes, guards_empty=guards_empty)
        if not after.split_keys:
            break
        if attempt > 1:
            waits.sleep(0.05 * 2**attempt)
        for start in range(0, len(after.split_keys), _SPLIT_KEYS_MAX):
            driver.split(after.split_keys[start : start + _SPLIT_KEYS_MAX])
            requests += 1
    return Applied(plan, requests, plan_with(driver, known, cluster=cluster, modes=modes, guards_empty=guards_empty))


def _set_rules(driver: PlacementDriver, plan: RegionPlan) -> None:
    """Why first: from the moment that the rules are there, PD merges nothing across a boundary."""
    steps = max(len(plan.rules_to_set), len(plan.rules_to_delete))
    for start in range(0, steps, _RULES_MAX):
        chosen = slice(start, start + _RULES_MAX)
        driver.patch_rules(to_set=plan.rules_to_set[chosen], to_delete=plan.rules_to_delete[chosen])
    driver.accelerate(pair for rule in plan.rules_to_set for pair in rule.ranges)
