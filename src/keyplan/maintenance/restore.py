"""A plain backup brought into a store: below its own prefix or another one. Key spaces: restored_key_spaces.py."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from keyplan.engine import SYSTEM_CLOCK, Clock, Engine
from keyplan.errors import InvalidInputError
from keyplan.jobs import Progress, Stop, StopCheck, Teller
from keyplan.layout import BoundLayout, shown_key
from keyplan.maintenance.backup import open_backup, refuse_other_kind
from keyplan.maintenance.backup_file import BackupHeader, BackupSection, kept_migrations, kept_states
from keyplan.maintenance.beside import Transfer
from keyplan.maintenance.embedded_keys import EmbeddedKeys
from keyplan.maintenance.index_states_kept import has_index_states, put_index_states
from keyplan.maintenance.migrations_kept import has_migrations, put_migrations, rerooted
from keyplan.maintenance.pair_digest import PairDigest, Tally
from keyplan.maintenance.restored_indexes import IndexesAfterwards, put_indexes_right
from keyplan.maintenance.transfers import Written, check_fits, held_exactly

__all__ = ["RestoreReport", "restore_store"]


@dataclass(frozen=True, slots=True)
class RestoreReport:
    """What was brought below a prefix: its tally, verified by reading it back, and what was done for it.

    `keys_rewritten` counts values whose keys were put below the new prefix; `indexes` tells of the check afterwards.
    `was_complete`: the share held exactly this before, and no pair was written.
    """

    name: str
    prefix: bytes
    written: Written
    keys_rewritten: int = 0
    indexes: IndexesAfterwards | None = None
    was_complete: bool = False

    @property
    def tally(self) -> Tally:
        """The pairs that the share holds now."""
        return self.written.tally


def restore_store(
    engine: Engine,
    path: Path,
    *,
    prefix: bytes | None = None,
    is_overwriting: bool = False,
    layout: BoundLayout | None = None,
    stop: Stop | None = None,
    command: Sequence[str] = (),
    clock: Clock = SYSTEM_CLOCK,
    progress: Callable[[Progress], None] | None = None,
) -> RestoreReport:
    """Bring a plain backup into the store, and verify its count and digest by reading it back.

    First the file is read to its end: damage, limits of the engine and a target that is not empty are told before anything is
    written. A restore that was stopped is finished by the same call; a share that holds exactly the backup's pairs is told to
    be complete.

    prefix: another one than that of the backup; keys in values are then rewritten, where `layout` says which they are.
    is_overwriting: what is below the prefix is replaced, and keys that the backup does not have are removed. Otherwise nothing
        that is there is changed, also when a stopped restore goes on: a write of somebody else ends it, also of what the backup
        has.
    layout: its indexes are checked afterwards, and put right, when it lies below the prefix.
    stop: when this is set the restore ends between two commits, with StoppedError, and goes on when it is called again.
    command: the words behind `keyplan` that go on with this restore when it is stopped, for who looks at the store's jobs.
    progress: told of its stage: checking, writing, verifying, examining.

    Indexes below the prefix that were not readable when the backup was made are not readable afterwards.

    Raises InvalidInputError, EngineLimitError, TargetNotEmptyError, TargetTakenError, MigrationUnderWayError, CorruptionError;
    PrefixInUseError, PrefixConflictError when the prefix is registered.
    """
    header, section = _look(path)
    old = bytes.fromhex(section.prefix)
    new = old if prefix is None else prefix
    held = EmbeddedKeys(layout, old, new, root_below=new) if layout is not None else None
    stops = StopCheck(stop, f"the restore into {shown_key(new) or 'the whole store'}")
    told = Teller(progress)
    told("checking")
    _check(engine, path, header, new, held, command, stops)
    transfer = Transfer(engine, new, "restore", header.id, is_overwriting=is_overwriting, stops=stops)

    own = layout if layout is not None and layout.root.startswith(new) else None
    mended = partial(put_indexes_right, engine, stops=stops, progress=progress)
    complete = transfer.found_complete(lambda: _compared(engine, path, header, new, held, stops))
    if complete is not None:
        # Why no stop behind a repair: no claim tells of this work, and what was repaired is no longer what would be brought.
        return replace(complete, indexes=None if own is None else mended(own, is_resumed=False))
    target = transfer.begin(clock, command)
    if not transfer.is_mending:
        # Why first: whoever reads meanwhile must not be told that an index is whole.
        put_index_states(target, kept_states(section))
        put_migrations(target, rerooted(kept_migrations(section), old, new))
    with open_backup(path, of=header) as reader:
        written = Written()
        for _ in reader.sections():
            pairs = reader.pairs()
            wanted = pairs if held is None else held.rewritten(pairs)
            if transfer.is_mending:
                tally = PairDigest.of(stops.each(wanted))
                written = Written(unchanged=tally.count, tally=tally)
            else:
                written = target.reconcile(wanted, only_adds=not is_overwriting, progress=partial(told, "writing"))
    if not transfer.is_mending:
        told("verifying", written.tally.count)
        target.read_back(written.tally)
        target.verified(written.tally, is_mending=own is not None)
    indexes = None if own is None else mended(own)
    target.finish()
    return RestoreReport("", new, written, 0 if held is None else held.count, indexes)


def _look(path: Path) -> tuple[BackupHeader, BackupSection]:
    with open_backup(path) as reader:
        refuse_other_kind(reader, path, has_key_spaces=False)
        first = next(reader.sections(), None)
        if first is None:
            raise InvalidInputError(source=str(path), problem="a backup without a section")
        return reader.header, first


def _check(
    engine: Engine,
    path: Path,
    header: BackupHeader,
    new: bytes,
    held: EmbeddedKeys | None,
    command: Sequence[str],
    stops: StopCheck,
) -> None:
    """Read the whole file, as it would be written. Raises InvalidInputError, EngineLimitError."""
    with open_backup(path, of=header) as reader:
        for number, _ in enumerate(reader.sections()):
            if number:
                raise InvalidInputError(source=str(path), problem="a plain backup has one section")
            pairs = stops.each(reader.pairs())
            wanted = pairs if held is None else held.rewritten(pairs)
            check_fits(engine, new, wanted, source=header.id, command=command)
    if held is not None:
        held.count = 0


def _compared(
    engine: Engine, path: Path, header: BackupHeader, new: bytes, held: EmbeddedKeys | None, stops: StopCheck
) -> RestoreReport | None:
    """Report a share that holds exactly what would be brought; None when it differs."""
    with open_backup(path, of=header) as reader:
        section = next(reader.sections())
        pairs = stops.each(reader.pairs())
        tally = held_exactly(engine, new, pairs if held is None else held.rewritten(pairs))
    if tally is None or not has_index_states(engine, new, kept_states(section)):
        return None
    if not has_migrations(engine, new, rerooted(kept_migrations(section), bytes.fromhex(section.prefix), new)):
        return None
    return RestoreReport("", new, Written(unchanged=tally.count, tally=tally), was_complete=True)
