"""What `keyplan migrate status` prints: the files that are done, the one under way step by step, and what comes next."""

from typing import Any, Final, NamedTuple

from keyplan.cli.migration_plans import FileSource
from keyplan.engine import Engine
from keyplan.maintenance import MigrationPlace, pause_of, steps_of, under_way_at

__all__ = ["Status", "status_of"]

_WHEN: Final = {
    "run": "beside programs of the old layout",
    "switch": "when no program writes by the old layout any more",
    "finish": "when no program needs the old layout any more",
    "rollback": "goes on: something is left to take back",
}


class Status(NamedTuple):
    """The status as a JSON document, and as lines for people."""

    document: dict[str, Any]
    lines: list[str]


def status_of(source: FileSource, engine: Engine) -> Status:
    """Return where a store stands among the files of a folder. Nothing is written."""
    folder, place = source.folder, source.place(engine)
    states = dict.fromkeys((file.name for file in folder.files), "due")
    states |= dict.fromkeys((file.name for file in folder.files[: place.done]), "done")
    if place.leg is not None and place.stage:
        states |= dict.fromkeys((file.name for file in place.leg.files), f"under way, {place.stage}")
    found = under_way_at(engine, source.roots)
    pause = None if found is None else pause_of(engine, found.migration)
    steps = steps_of(folder, place, source.bind)
    document = {
        "folder": str(folder.path),
        "files": [{"name": name, "state": state} for name, state in states.items()],
        "leg": None if place.leg is None else [file.name for file in place.leg.files],
        "stage": place.stage or None,
        "done": 0 if place.state is None else place.state.done,
        "tables": {} if place.state is None else {name: stage.value for name, stage in place.state.tables.items()},
        "is_paused": pause is not None,
        "steps": [
            {"phase": step.phase.name.lower(), "item": step.item, "what": step.what, "state": state}
            for step, state in steps
        ],
        "next": None if place.leg is None else f"keyplan migrate {place.next_command}",
    }
    width = max(map(len, states), default=0)
    lines = [f"{name:{width}}  {state}" for name, state in states.items()]
    lines += [f"  {step.item}: {step.what}: {state}" for step, state in steps if place.stage]
    if place.state is not None:
        lines += [f"  {name}: {stage}" for name, stage in place.state.tables.items()]
    if pause is not None:
        rests = f"paused at {pause.paused_at} by {pause.by}"
        return Status({**document, "next": "keyplan migrate resume"}, [*lines, rests, "next: `keyplan migrate resume`"])
    return Status(document, [*lines, *_next(place)])


def _next(place: MigrationPlace) -> list[str]:
    if place.leg is None:
        return ["nothing is due"]
    command = place.next_command
    together = f" takes {place.leg.name} as one" if len(place.leg.files) > 1 else ""
    lines = [f"next: `keyplan migrate {command}`{together}, {_WHEN[command]}"]
    if place.later and place.why:
        lines.append(f"afterwards {place.later[0].name}: {place.why}")
    return lines
