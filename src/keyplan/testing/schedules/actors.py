"""Waiting, for actors; and actors that are events: time that passes, forgotten history, a renewal, a restart."""

from collections.abc import Callable

from keyplan.store import Store
from keyplan.testing.schedules.parking import ParkingEngine
from keyplan.testing.schedules.running import current_actor
from keyplan.testing.schedules.scenario import Actor

__all__ = ["actor_waits", "compacts", "passes", "renews", "restarts"]


def actor_waits(condition: Callable[[], bool]) -> None:
    """Wait, in an actor, until `condition` is true in the latest state. It may read through the actor's stores, no more.

    Raises InvalidInputError outside an actor, or when the condition writes, and whatever the condition raises.
    """
    current_actor().wait_for(condition)


def passes(seconds: float, *, times: int = 1) -> Actor:
    """An actor that advances the clock, `times` times, each in one step: leases that are over by then end in that step."""

    def pass_time(*_stores: Store) -> None:
        for _ in range(times):
            current_actor().run.pass_time(seconds)

    return Actor(pass_time, f"passes {seconds:g}s", passes_time=True)


def compacts(*, keep: int = 0) -> Actor:
    """An actor that forgets all history but the latest `keep` revisions, of each store, each in one step."""

    def compact(*stores: Store) -> None:
        for store in stores:
            assert isinstance(store.engine, ParkingEngine)
            store.engine.compact_all_but(keep)

    return Actor(compact, "compacts")


def restarts(first: Actor) -> Actor:
    """An actor that runs another's function again, with a new store, once that one has crashed; else it is left out."""

    def begin_again(*stores: Store) -> object:
        actor_run = current_actor()
        actor_run.run.park("restarts", wait=actor_run.run.crash_of(first.name))
        return first.function(*stores)

    return Actor(begin_again, f"{first.name} again", first.answers, after_crash_of=first.name)


def renews(first: Actor) -> Actor:
    """An actor that renews, once, every lease that another actor holds then: what that one's keeper does from time to time.

    It looks which there are in a step of its own. A keeper dies with its actor: who has crashed renews nothing.
    """

    def renew(*_stores: Store) -> None:
        run = current_actor().run
        run.park("renews")
        for holder in run.actor_runs:
            if holder.actor.name == first.name and not holder.has_crashed:
                for keeper in holder.keepers:
                    keeper.renew()

    return Actor(renew, f"renews {first.name}", renews=first.name)
