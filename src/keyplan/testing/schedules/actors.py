"""Waiting, for actors; and actors that are events: time that passes, forgotten history, a renewal, a restart."""

from collections.abc import Callable

from keyplan.errors import InvalidInputError
from keyplan.store import Store
from keyplan.testing.schedules.parking import ParkingEngine
from keyplan.testing.schedules.running import current_actor
from keyplan.testing.schedules.scenario import Actor
from keyplan.testing.schedules.steps import Step, Wait

__all__ = ["actor_waits", "compacts", "passes", "renews", "restarts"]


def actor_waits(condition: Callable[[], bool]) -> None:
    """Wait, in an actor, until `condition` is true in the latest state. It may read through the actor's stores, no more.

    Raises InvalidInputError outside an actor, or when the condition writes, and whatever the condition raises.
    """
    actor_run = current_actor()
    run, seen = actor_run.run, Step(actor_run.place)
    raised: list[Exception] = []

    def is_over() -> bool:
        raised.clear()
        try:
            return run.look(condition, seen)
        except Exception as error:  # noqa: BLE001  # Why: it is asked by the scheduler, and is the actor's all the same.
            raised.append(error)
            return True

    step = run.park("waits", None, wait=Wait(is_over, seen))
    if raised:
        step.outcome = raised[0]
        raise raised[0]


def passes(seconds: float, *, times: int = 1) -> Actor:
    """An actor that advances the clock, `times` times, each in one step: leases that are over by then end in that step."""

    def pass_time(*_stores: Store) -> None:
        for _ in range(times):
            current_actor().run.pass_time(seconds)

    return Actor(pass_time, f"passes {seconds:g}s")


def compacts(*, keep: int = 0) -> Actor:
    """An actor that forgets all history but the latest `keep` revisions, of each store, each in one step."""

    def compact(*stores: Store) -> None:
        for store in stores:
            assert isinstance(store.engine, ParkingEngine)
            store.engine.compact_all_but(keep)

    return Actor(compact, "compacts")


def restarts(first: Actor) -> Actor:
    """An actor that runs another's function again, with a new store, once that one has crashed; else it is left out."""
    return Actor(first.function, f"{first.name} again", first.answers, first.name)


def renews(first: Actor) -> Actor:
    """An actor that renews, once, every lease that another actor holds then: what that one's keeper does from time to time."""

    def renew(*_stores: Store) -> None:
        actor_run = current_actor()
        holders = [other for other in actor_run.run.actor_runs if other.actor.name == first.name]
        if not holders:
            raise InvalidInputError(source="renews", problem=f"no actor is called {first.name}")
        for keeper in holders[0].keepers:
            keeper.renew()

    return Actor(renew, f"renews {first.name}")
