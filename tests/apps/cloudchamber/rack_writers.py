"""Processes that write one rack and one workload at once, and the proof that nothing acknowledged was lost.

Each writer notes, for every write that was acknowledged, its revision and what it changed. In the order of revisions these
notes are the whole history: played again, every condition must hold, and in the end there must be the records of the store.
"""

import json
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import keyplan
from keyplan.apps.cloudchamber import (
    NEW,
    Address,
    Blade,
    BladeDetails,
    BladeKey,
    Capacity,
    Chamber,
    CloudChamber,
    Condition,
    Instance,
    InstanceActual,
    InstanceKey,
    InstanceTarget,
    Pdu,
    Rack,
    RackContents,
    RackDetails,
    Tor,
    Workload,
    at_revision,
    create_instance,
    delete_instance,
    find_orphans,
    layout_in_use,
    write_records,
    write_target,
)
from keyplan.engine import ALL_KEYS
from keyplan.errors import ConflictError, NotFoundError
from keyplan.maintenance import check

__all__ = ["Note", "Written", "played", "run_writers", "verified"]

RACK: Final = "rack1"
WORKLOAD: Final = "web"
BLADES_MAX: Final = 8
_START_SECONDS_MAX: Final = 60.0

Place: TypeAlias = tuple[str, tuple[Any, ...]]
"""A table, and the key in it as a tuple."""


class Note(NamedTuple):
    """One acknowledged write: the records that it put, each with the revision it was said to replace (0: none), and deleted.

    `deleted` names single records; `cleared` is the rack or workload that went with all its parts.
    """

    revision: int
    act: str
    put: list[tuple[str, list[Any], int | None]]
    deleted: list[tuple[str, list[Any]]]
    cleared: str = ""


class Written(NamedTuple):
    """What the writers did, and what the store holds of it. `turns`: how often another writer's commit came next."""

    acts: dict[str, int]
    refused: int
    read: int
    turns: int
    keys: int
    seconds: float


# ---- one writer ------------------------------------------------------------------------------------------------------


class Writer:
    """Writes by chance, reads after each write, and keeps notes."""

    def __init__(self, chamber: Chamber, seed: int) -> None:
        self._chamber = chamber
        self._layout = chamber.layout
        self._chance = random.Random(seed)
        self._stamp = seed * 1_000_000
        self._act = ""
        self.notes: list[Note] = []
        self.refused = 0
        self.read = 0

    def act(self) -> None:
        """Do one thing, which may be refused, and look whether the rack is whole."""
        acts = (
            self._create_rack,
            self._delete_rack,
            self._update_rack,
            self._update_blade,
            self._update_blade,
            self._add_blade,
            self._create_instance,
            self._create_instance,
            self._write_target,
            self._delete_instance,
            self._clear_workload,
        )
        act = self._chance.choice(acts)
        self._act = act.__name__.removeprefix("_")
        try:
            act()
        except (ConflictError, NotFoundError):
            self.refused += 1
        found = self._chamber.read_rack(RACK)
        assert found is None or (found.tors and found.pdus and 1 in found.blades), "half a rack was seen"
        self.read += 1

    def _note(self, revision: int, put: dict[Place, int | None], *deleted: Place, cleared: str = "") -> None:
        puts = [(table, list(key), replaced) for (table, key), replaced in put.items()]
        self.notes.append(Note(revision, self._act, puts, [(table, list(key)) for table, key in deleted], cleared))

    def _blade(self) -> Blade:
        self._stamp += 1
        # Why mostly so: what takes no work is refused to instances.
        condition = self._chance.choice([*Condition, *([Condition.OPERATIONAL] * 12)])
        arch = self._chance.choice(("X64", "ARM", ""))
        return Blade(
            details=BladeDetails(enabled=True, condition=condition), capacity=Capacity(cores=self._stamp, arch=arch)
        )

    def _rack(self) -> Rack:
        return Rack(details=RackDetails(enabled=True, condition=Condition.OPERATIONAL, notes=str(self._stamp)))

    def _create_rack(self) -> None:
        blades = {number: self._blade() for number in range(1, self._chance.randint(2, BLADES_MAX))}
        contents = RackContents(self._rack(), {0: Tor()}, {0: Pdu()}, blades)
        revision = self._chamber.create_rack(RACK, contents)
        places: list[Place] = [("racks", (RACK,)), ("tor", (RACK,)), ("pdu", (RACK,))]
        places += [("blades", (RACK, number)) for number in blades]
        self._note(revision, dict.fromkeys(places, 0))

    def _delete_rack(self) -> None:
        if self._chance.random() < 0.5:  # Why: or else the others would find no rack most of the time.
            self._note(self._chamber.delete_rack(RACK, missing_ok=False), {}, cleared="rack")

    def _update_rack(self) -> None:
        there = self._layout.racks.versioned(RACK)
        if there is not None:
            self._stamp += 1
            rack = self._rack()
            revision = self._layout.racks.update(RACK, rack, expected_revision=there.revision)
            self._note(revision, {("racks", (RACK,)): there.revision})

    def _update_blade(self) -> None:
        key = BladeKey(RACK, self._chance.randint(1, BLADES_MAX))
        there = self._layout.blades.versioned(key)
        if there is not None:
            condition = at_revision(there.revision)
            revision = write_records(self._layout, {Address("blades", key): (self._blade(), condition)})
            self._note(revision, {("blades", key): there.revision})

    def _add_blade(self) -> None:
        """To a rack that is there: the transaction is refused when the rack goes meanwhile."""
        key, blade = BladeKey(RACK, self._chance.randint(2, BLADES_MAX)), self._blade()

        def work(transaction: CloudChamber) -> CloudChamber:
            transaction.racks.require(RACK)
            transaction.blades.insert(key, blade)
            return transaction

        self._note(self._layout.run(work).revision, {("blades", key): 0})

    def _instance(self) -> InstanceKey:
        return InstanceKey(WORKLOAD, f"i{self._chance.randint(1, 6)}")

    def _target(self) -> InstanceTarget:
        self._stamp += 1
        # Why not always on a blade: most of the time there is no rack, or not that blade.
        if self._chance.random() < 0.6:
            return InstanceTarget(str(self._stamp))
        return InstanceTarget(str(self._stamp), RACK, self._chance.randint(1, 3))

    def _create_instance(self) -> None:
        if not self._layout.workloads.exists(WORKLOAD):
            revision = write_records(self._layout, {Address("workloads", WORKLOAD): (Workload(name=WORKLOAD), NEW)})
            self._note(revision, {("workloads", (WORKLOAD,)): 0})
        key, actual = self._instance(), InstanceActual() if self._chance.random() < 0.5 else None
        revision = create_instance(self._layout, key, Instance(), self._target(), actual, needs_workload=True)
        tables = ("instances", "instance_target", *(() if actual is None else ("instance_actual",)))
        self._note(revision, {(table, key): 0 for table in tables})

    def _write_target(self) -> None:
        key = self._instance()
        there = self._layout.instance_target.versioned(key)
        if there is not None:
            is_bound = self._chance.random() < 0.5
            expected = there.revision if is_bound else None
            written = write_target(self._layout, key, self._target(), expected_revision=expected)
            self._note(written.revision, {("instance_target", key): expected})

    def _delete_instance(self) -> None:
        key = self._instance()
        revision = delete_instance(self._layout, key, missing_ok=False)
        places = [(table, key) for table in ("instances", "instance_target", "instance_actual")]
        self._note(revision, {}, *places)

    def _clear_workload(self) -> None:
        if self._chance.random() < 0.2:
            self._note(self._chamber.delete_workload(WORKLOAD, missing_ok=False), {}, cleared="workload")


def write(url: str, seed: int, *, acts: int, seconds: float, notes: Path) -> None:
    """Be one writer, for so many acts or so long, and leave the notes in a file."""
    with keyplan.open(url) as store:
        writer = Writer(Chamber(store, layout=layout_in_use(store)), seed)
        # Why: a line to the parent, and one from it, so that all begin at once.
        print("ready", flush=True)
        sys.stdin.readline()
        until = time.monotonic() + seconds
        for _ in range(acts):
            if time.monotonic() >= until:
                break
            writer.act()
    notes.write_text(json.dumps([writer.refused, writer.read, writer.notes]))


# ---- all of them -----------------------------------------------------------------------------------------------------


def run_writers(url: str, folder: Path, *, processes: int, acts: int, seconds: float, seed: int) -> list[Path]:
    """Let writers write until each has done its acts or its time is up; return their notes. Raises AssertionError."""
    files = [folder / f"notes-{number}.json" for number in range(processes)]
    writers = [
        subprocess.Popen(
            [sys.executable, "-m", __name__, url, str(seed + number), str(acts), str(seconds), str(file)],
            cwd=Path(__file__).resolve().parents[3],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number, file in enumerate(files)
    ]
    try:
        for writer in writers:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "ready\n", writer.communicate()[1]
        for writer in writers:
            assert writer.stdin is not None
            writer.stdin.write("go\n")
            writer.stdin.flush()
        complaints = [writer.communicate(timeout=seconds + _START_SECONDS_MAX)[1] for writer in writers]
    finally:
        for writer in writers:
            writer.kill()
            writer.wait()
    assert complaints == [""] * processes, "\n".join(complaints)
    return files


def verified(url: str, files: Sequence[Path], *, revision_before: int) -> Written:
    """Compare the store with the notes, and have it checked. Raises AssertionError with what is lost or unsound."""
    read = [json.loads(file.read_text()) for file in files]
    owned = sorted((note[0], writer) for writer, (_, _, written) in enumerate(read) for note in written)
    writers = [writer for _, writer in owned]
    notes = sorted((Note(*note) for _, _, written in read for note in written), key=lambda note: note.revision)
    begun = time.monotonic()
    with keyplan.open(url) as store:
        layout = layout_in_use(store)
        assert list(check(store, layout.bound())) == []
        seconds = time.monotonic() - begun
        chamber = layout(store)
        assert find_orphans(chamber) == []
        with chamber.snapshot() as state:
            found = dict(_revisions_of(state))
            revision = state.revision
        with store.engine.snapshot() as snapshot:
            keys = sum(1 for _ in snapshot.keys(ALL_KEYS))
    told = [note.revision for note in notes]
    assert told == list(range(revision_before + 1, revision + 1)), "a commit nobody was told of, or one told of twice"
    assert played(notes) == found, "the store is not what was acknowledged"
    return Written(
        dict(sorted(Counter(note.act for note in notes).items())),
        sum(refused for refused, _, _ in read),
        sum(count for _, count, _ in read),
        sum(before != after for before, after in pairwise(writers)),
        keys,
        seconds,
    )


def played(notes: Sequence[Note]) -> dict[Place, int]:
    """The records that these writes leave, each with its revision. Raises AssertionError where a condition did not hold."""
    records: dict[Place, int] = {}
    for note in notes:
        for table, key, replaced in note.put:
            place = table, tuple(key)
            if replaced is not None:
                assert records.get(place, 0) == replaced, f"{note} replaced another revision"
            records[place] = note.revision
        for table, key in note.deleted:
            records.pop((table, tuple(key)), None)
        if note.cleared:
            is_of_rack = note.cleared == "rack"
            records = {place: at for place, at in records.items() if (place[1][0] == RACK) != is_of_rack}
    return records


def _revisions_of(state: CloudChamber) -> Iterator[tuple[Place, int]]:
    for table in ("racks", "tor", "pdu", "blades", "workloads", "instances", "instance_target", "instance_actual"):
        for one in state.view(table).entries():
            key: Any = one.key
            yield (table, (key,) if isinstance(key, str) else tuple(key)), one.revision


if __name__ == "__main__":
    write(sys.argv[1], int(sys.argv[2]), acts=int(sys.argv[3]), seconds=float(sys.argv[4]), notes=Path(sys.argv[5]))
