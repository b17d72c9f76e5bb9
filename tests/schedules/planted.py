"""A put beside the build of an index, whose guard is left out: what is replayed in another process, also without greenlet."""

from keyplan.testing.schedules import Scenario, replay
from tests.maintenance.layouts import Site
from tests.schedules.scenes import build, guards_left_out, of_absent_entry, put_in_transaction, unbuilt

__all__ = ["planted_replay", "put_beside_build"]


def put_beside_build() -> Scenario:
    return Scenario(put_in_transaction, build, setup=unbuilt, layouts=[Site])


def planted_replay(text: str) -> str:
    with guards_left_out(of_absent_entry):
        return replay(put_beside_build(), text).script
