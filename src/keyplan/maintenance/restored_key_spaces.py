"""Key spaces brought back from a backup: everything is checked first, then each is filled while nobody can open it.

A key space that is being filled is RESTORING until its pairs were read back and their count and digest are those of the file.
Whatever stops the work before leaves it so, and the same call finishes it. What it meets: restore_plan.py.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
from msgspec import structs

from keyplan.engine import SYSTEM_CLOCK, Clock, Commit, Engine, Put, open_engine
from keyplan.errors import (
    CommitConflictError,
    CorruptionError,
    GenerationMismatchError,
    InvalidInputError,
    KeyplanError,
    KeySpaceDeletingError,
    KeySpaceNotFoundError,
    RestoreConflictError,
    TargetTakenError,
)
from keyplan.jobs import FixedConditions, Progress, Stop, StopCheck, Teller, begun
from keyplan.keyspace import (
    PREFIX_BYTES_MAX,
    PROFILES,
    Acts,
    Configuration,
    Founding,
    Header,
    JoinedWrites,
    KeySpace,
    KeySpaceEngine,
    KeySpaceRecord,
    KeySpaces,
    MarkKind,
    PrefixHolder,
    RegistryTransaction,
    Stage,
    State,
    Sweeper,
    open_restoring,
)
from keyplan.layout import BoundLayout, Only
from keyplan.maintenance.backup import open_backup, refuse_other_kind
from keyplan.maintenance.backup_file import BackupHeader, BackupReader, BackupSection
from keyplan.maintenance.claims import CLAIM_FORM, Claim, space_claim, standing_claim
from keyplan.maintenance.embedded_keys import EmbeddedKeys
from keyplan.maintenance.restore import RestoreReport
from keyplan.maintenance.restore_plan import (
    RestoreAction,
    RestorePolicy,
    RestoreStep,
    bare_section,
    plan_restore,
    record_of,
)
from keyplan.maintenance.restore_registry import RegistryRestore
from keyplan.maintenance.restored_indexes import IndexesAfterwards, put_indexes_right
from keyplan.maintenance.transfers import Target, Written, check_fits
from keyplan.store import Backoff

__all__ = ["KeySpacesRestored", "SpaceRestored", "restore_key_spaces"]

_CLAIM_KIND: Final = "restore"

_LOOKS_MAX: Final = 10_000
"""Why: a deletion waits for clients for as long as their leases live, which is a minute, and an hour at most."""

_NO_QUOTA: Final[dict[str, int | None]] = {}


@dataclass(frozen=True, slots=True)
class SpaceRestored:
    """What became of one key space. `report` None: it has no data."""

    step: RestoreStep
    keyspace: KeySpace | None
    report: RestoreReport | None


@dataclass(frozen=True, slots=True)
class KeySpacesRestored:
    """What became of each key space of the backup that was asked for, in the backup's order.

    `is_registry_kept`: the store has a registry of its own, and the backup's switches, marks and audit log stay in the file.
    """

    header: BackupHeader
    spaces: tuple[SpaceRestored, ...]
    is_registry_kept: bool = False


def restore_key_spaces(
    engine: Engine,
    path: Path,
    *,
    names: Collection[str] = (),
    policy: RestorePolicy | None = None,
    layout: BoundLayout | None = None,
    actor: str = "restore",
    stop: Stop | None = None,
    command: Sequence[str] = (),
    clock: Clock = SYSTEM_CLOCK,
    backoff: Backoff | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> KeySpacesRestored:
    """Bring key spaces back from a backup: all in it, or those named.

    First the file is read to its end and every key space is looked at: damage, limits of the engine and all conflicts are told
    before anything is written. Then each is made or taken out of use, filled, read back, and opened to its application.

    A backup of all key spaces into a store without a registry brings the registry back as it was: switches, generations,
    places in the list, marks, history, the audit log. Beside another registry a key space keeps its generation and time of
    creation, and gets a later generation where the name has had one: generations never go back.

    layout: what the key spaces hold; keys in values are rewritten when a prefix changes, indexes are checked and put right.
    stop: when this is set the restore ends between two commits, with StoppedError, and goes on when it is called again.
    command: the words behind `keyplan` that go on with this restore when it is stopped, for who looks at the store's jobs.
    progress: told of its stage, and of which key space: checking, writing, verifying, examining.

    Raises InvalidInputError, EngineLimitError, RestoreConflictError; KeySpaceNotFoundError for a name that is not in the
    backup; TargetTakenError, CorruptionError, and what the registry raises, with that key space in the state RESTORING.
    """
    stops = StopCheck(stop, "the restore of key spaces")
    work = _Restore(
        engine, path, layout, actor, stops, command, clock, backoff if backoff is not None else Backoff(), progress
    )
    allowed = policy if policy is not None else RestorePolicy()
    header, sections = work.look(frozenset(names))
    is_all = not names and not allowed.rename_to
    whole = RegistryRestore.of(engine, path, header, clock, command) if is_all else None
    if whole is not None and whole.is_begun:
        whole.carry_out(actor, work.backoff, stops, command)
    is_fresh = whole is not None and not whole.has_registry
    steps, conflicts = work.plan(header, sections, allowed)
    if conflicts:
        raise RestoreConflictError(conflicts=tuple(str(conflict) for conflict in conflicts))
    work.rehearse(header, steps, sections)
    work.check(header, steps)
    coming = steps
    if whole is not None and is_fresh and _is_as_it_was(steps):
        whole.carry_out(actor, work.backoff, stops, command)
        coming, _ = work.plan(header, sections, allowed)
    made = work.found() if whole is not None and is_fresh and coming is steps else None
    done = work.carry_out(header, coming)
    is_kept = whole is not None and coming is steps and not whole.is_begun
    if whole is not None and made is not None:
        is_kept = not work.configure(made, whole.kept.configuration)
    planned = {step.name: step for step in steps}
    spaces = tuple(replace(space, step=planned[space.step.name]) for space in done)
    return KeySpacesRestored(header, spaces, is_kept)


def _is_as_it_was(steps: list[RestoreStep]) -> bool:
    """Tell whether every key space comes back under its own name and prefix: then the registry can, too."""
    return all(
        step.action is RestoreAction.TOMBSTONE
        or (step.action is RestoreAction.CREATE and step.prefix and not step.holders)
        for step in steps
    )


class _Restore:
    def __init__(
        self,
        engine: Engine,
        path: Path,
        layout: BoundLayout | None,
        actor: str,
        stops: StopCheck,
        command: Sequence[str],
        clock: Clock,
        backoff: Backoff,
        progress: Callable[[Progress], None] | None,
    ) -> None:
        self._engine = engine
        self._path = path
        self._layout = layout
        self._stops = stops
        self._command = command
        self._clock = clock
        self.backoff = backoff
        self._progress = progress
        self._told = Teller(progress)
        self._actor = actor
        self._registry = KeySpaces(engine, actor=actor, clock=clock, backoff=backoff)

    # ---- before anything is written -----------------------------------------------------------------------------------------

    def look(self, names: frozenset[str]) -> tuple[BackupHeader, list[BackupSection]]:
        """Read the file to its end, and return its sections."""
        with open_backup(self._path) as reader:
            refuse_other_kind(reader, self._path, has_key_spaces=True)
            # Why as its records: what a file has beside them is no part of the plan, and is not kept in memory.
            every = (bare_section(section) for section in reader.sections())
            found = [section for section in every if not names or record_of(section).name in names]
            missing = names - {record_of(section).name for section in found}
            if missing:
                raise KeySpaceNotFoundError(name=", ".join(sorted(missing)), problem="not in this backup")
            return reader.header, found

    def plan(
        self, header: BackupHeader, sections: list[BackupSection], policy: RestorePolicy
    ) -> tuple[list[RestoreStep], list[KeyplanError]]:
        """Return the steps and the conflicts; from here on a registry that is made is made as the backup's was."""
        self._registry = KeySpaces(
            self._engine,
            actor=self._actor,
            founding=self._founding(header),
            clock=self._clock,
            backoff=self.backoff,
        )
        return plan_restore(self._engine, self._registry, header.id, sections, policy)

    def _founding(self, header: BackupHeader) -> Founding:
        profile = self._engine.profile.name if self._engine.profile.name in PROFILES else "none"
        made = self._registry.header()
        return Founding((made.prefix_codec if made is not None else header.prefix_codec) or "uvarint", profile)

    def rehearse(self, header: BackupHeader, steps: list[RestoreStep], sections: list[BackupSection]) -> None:
        """Make every key space in a registry of its own, in memory. Raises InvalidInputError for what no registry takes.

        Why: a file may say anything, and what is wrong with a name or a quota must not come out in the middle.
        """
        quotas = {record_of(section).name: section.quota for section in sections}
        founding = self._founding(header)
        with open_engine("memory:") as engine:
            try:
                registry = KeySpaces(engine, founding=founding)
                for step in steps:
                    if step.action in (RestoreAction.TOMBSTONE, RestoreAction.LEFT):
                        _leave_tombstone(registry, step)
                        continue
                    is_new = step.action is RestoreAction.CREATE
                    _begin(registry, step if is_new else replace(step, action=RestoreAction.CREATE, prefix=None))
                    quota = quotas[step.record.name]
                    if quota is not None:
                        registry.set_quota(step.name, keys=quota.get("keys"), bytes=quota.get("bytes"))
            except KeyplanError as error:
                raise InvalidInputError(
                    source=str(self._path), problem=f"a key space that cannot be: {error}"
                ) from error

    def check(self, header: BackupHeader, steps: list[RestoreStep]) -> None:
        """Read every pair as it would be written. Raises EngineLimitError, InvalidInputError."""
        by_name = {step.record.name: step for step in steps}
        with open_backup(self._path, of=header) as reader:
            for section in reader.sections():
                step = by_name.get(record_of(section).name)
                if step is not None:
                    # Why the longest: which prefix a new one is, is known only when it is made. Text, as nearly all are.
                    prefix = step.prefix if step.prefix is not None else b"\x7f" * PREFIX_BYTES_MAX
                    held = self._held(section, prefix)
                    self._told("checking", item=step.name)
                    pairs = self._stops.each(reader.pairs())
                    pairs = pairs if held is None else held.rewritten(pairs)
                    check_fits(self._engine, prefix, pairs, source=header.id, command=self._command)

    # ---- step by step -------------------------------------------------------------------------------------------------------

    def carry_out(self, header: BackupHeader, steps: list[RestoreStep]) -> list[SpaceRestored]:
        """Carry the steps out in the order of the file."""
        by_name = {step.record.name: step for step in steps}
        done: list[SpaceRestored] = []
        with open_backup(self._path, of=header) as reader:
            for section in reader.sections():
                step = by_name.get(record_of(section).name)
                if step is not None:
                    self._stops.check()
                    done.append(self._step(header, step, section, reader))
        return done

    def found(self) -> Header | None:
        """Make the registry, and return its header; None where somebody has made one since it was looked for."""
        return self._registry.init_absent()

    def configure(self, made: Header, configuration: Configuration) -> bool:
        """Set the switches as they were, in the registry that this restore has made; False where somebody has set them."""

        def work(transaction: RegistryTransaction) -> bool:
            now = transaction.registry.configuration.get(Only())
            # Why: whether printable prefixes are passed over is decided when a registry is made.
            is_as_made = now == Configuration(skip_printable=getattr(now, "skip_printable", False))
            if not is_as_made or transaction.registry.header.get(Only()) != made:
                return False
            before, wanted = msgspec.to_builtins(now), msgspec.to_builtins(configuration)
            if configuration != now:
                transaction.registry.configuration.put(Only(), configuration)
                transaction.note(
                    Acts.CONFIGURE, {name: value for name, value in wanted.items() if before[name] != value}
                )
            return True

        return self._registry.transactions.run(work)

    def _step(
        self, header: BackupHeader, step: RestoreStep, section: BackupSection, reader: BackupReader
    ) -> SpaceRestored:
        match step.action:
            case RestoreAction.LEFT:
                return SpaceRestored(step, None, None)
            case RestoreAction.TOMBSTONE:
                _leave_tombstone(self._registry, step)
                return SpaceRestored(step, None, None)
            case RestoreAction.FINISHED:
                return SpaceRestored(step, self._registry.get(step.name), None)
            case _:
                return self._filled(header, step, section, reader)

    def _filled(
        self, header: BackupHeader, step: RestoreStep, section: BackupSection, reader: BackupReader
    ) -> SpaceRestored:
        for holder in step.holders:
            self._delete_holder(holder)
        kept = Claim(kind=_CLAIM_KIND, source=header.id)
        claim = begun(kept, command=self._command, clock=self._clock, stage="begun")

        def claimed(keyspace: KeySpace) -> Commit:
            """The claim, in the commit that begins the restore: it names the generation, and so no later restore."""
            return Commit((), (_claim_written(step.name, structs.replace(claim, generation=keyspace.generation)),))

        keyspace = _begin(self._registry, step, joined=claimed)
        claim = structs.replace(claim, generation=keyspace.generation)
        with open_restoring(self._engine, keyspace, backoff=self.backoff) as opened:
            share = opened.engine
            assert isinstance(share, KeySpaceEngine)
            fenced = FixedConditions(lambda: (share.fence.guard,))
            seen = standing_claim(self._engine, space_claim(step.name))
            if step.action is RestoreAction.RESUME and seen.record is not None:
                earlier = seen.record
                claim = structs.replace(claim, begun_at=earlier.begun_at, command=claim.command or earlier.command)
            # Why the fence: whoever has ended the same restore meanwhile has left a claim that says so, and it stays.
            target = Target.claimed(
                self._engine,
                keyspace.raw_prefix,
                seen,
                claim,
                guards=fenced.guards(),
                conditions=fenced,
                stops=self._stops,
            )
            held = self._held(section, keyspace.raw_prefix)
            pairs = reader.pairs()
            wanted = pairs if held is None else held.rewritten(pairs)
            told = partial(self._told, item=step.name)
            written = target.reconcile(wanted, only_adds=False, progress=partial(told, "writing"))
            told("verifying", written.tally.count)
            target.read_back(written.tally)
            indexes = self._put_indexes_right(share)
        quota = section.quota or _NO_QUOTA
        self._registry.set_quota(
            step.name, keys=quota.get("keys"), bytes=quota.get("bytes"), expected=keyspace.identity
        )
        restored = self._finished(step, keyspace, target)
        return SpaceRestored(step, restored, self._report(step.name, keyspace, written, held, indexes))

    def _finished(self, step: RestoreStep, keyspace: KeySpace, target: Target) -> KeySpace:
        """Open the key space, and let the claim say that the work is done, in one commit."""
        state = State.DISABLED if step.record.state is State.DISABLED else State.ENABLED
        done = structs.replace(target.claim, is_done=True)
        held = target.job.held
        ended = Commit((held.guard,), (_claim_written(step.name, done),), held.epoch)
        try:
            return self._registry.finish_restore(step.name, keyspace.generation, state=state, joined=lambda _: ended)
        except CommitConflictError as error:
            problem = "another process does this work now"
            raise TargetTakenError(prefix=keyspace.prefix, problem=problem) from error

    def _put_indexes_right(self, share: Engine) -> IndexesAfterwards | None:
        if self._layout is None:
            return None
        return put_indexes_right(share, self._layout, stops=self._stops, progress=self._progress)

    def _held(self, section: BackupSection, prefix: bytes) -> EmbeddedKeys | None:
        return None if self._layout is None else EmbeddedKeys(self._layout, bytes.fromhex(section.prefix), prefix)

    @staticmethod
    def _report(
        name: str, keyspace: KeySpace, written: Written, held: EmbeddedKeys | None, indexes: IndexesAfterwards | None
    ) -> RestoreReport:
        return RestoreReport(name, keyspace.raw_prefix, written, 0 if held is None else held.count, indexes)

    # ---- what is in the way, and what is no more ----------------------------------------------------------------------------

    def _delete_holder(self, holder: KeySpace) -> None:
        """Delete a key space that the caller named, to its end, and free its prefix at once.

        Raises GenerationMismatchError, OwnerConflictError when the name is another's by now; KeySpaceDeletingError when the
        deletion does not end.
        """
        name, prefix = holder.name, holder.raw_prefix
        self._registry.delete(name, expected=holder.identity)
        sweeper = Sweeper(self._registry, by="restore")
        progress = sweeper.sweep(name, stop=self._stops)
        for _ in range(_LOOKS_MAX):
            if progress.stage in (Stage.COMPLETED, Stage.NOT_DELETING):
                break
            self._stops.check()
            self.backoff.sleep(1.0)
            progress = sweeper.sweep(name, stop=self._stops)
        else:
            raise KeySpaceDeletingError(name=name, problem=f"its deletion waits for {progress.waits_for}")

        def work(transaction: RegistryTransaction) -> None:
            record, mark = transaction.registry.records.get(name), transaction.registry.marks.get(prefix)
            if record is None or (record.generation, record.state) != (holder.generation, State.DELETED):
                raise GenerationMismatchError(
                    name=name, generation=holder.generation, current=None if record is None else record.generation
                )
            if mark is not None and mark.kind is MarkKind.COOLING_DOWN and mark.epoch == record.prefix_epoch:
                # Why: its sessions have ended, its fence refuses every handle, and an administrator named it.
                transaction.registry.marks.put(prefix, structs.replace(mark, until=transaction.at))
                transaction.note(Acts.FREE, {"prefix": prefix.hex()}, name=name)

        self._registry.transactions.run(work)


def _claim_written(name: str, claim: Claim) -> Put:
    return Put(space_claim(name), CLAIM_FORM.encode(claim))


def _begin(registry: KeySpaces, step: RestoreStep, *, joined: JoinedWrites | None = None) -> KeySpace:
    """Make the key space, or take it out of use; it is RESTORING then."""
    record = step.record
    if step.action is RestoreAction.RESUME:
        assert step.live is not None
        return step.live
    if step.action is RestoreAction.OVERWRITE:
        assert step.live is not None
        return registry.begin_overwrite(
            step.name,
            application=record.application,
            description=record.description,
            past=step.past,
            expected=step.live.identity,
            joined=joined,
        )
    return registry.begin_restore(
        step.name,
        record.application,
        description=record.description,
        prefix=None if step.prefix is None else step.prefix.hex(),
        allow_legacy_prefix=step.prefix is not None and record.prefix_number is None,
        past=step.past,
        joined=joined,
    )


def _leave_tombstone(registry: KeySpaces, step: RestoreStep) -> None:
    """Keep the record of a key space that was deleted, or was being deleted, when the backup was made."""
    record: KeySpaceRecord = step.record

    def work(transaction: RegistryTransaction) -> None:
        if transaction.registry.records.get(step.name) is not None:
            return
        gone = structs.replace(
            record,
            id=step.name,
            name=step.name,
            state=State.DELETED,
            sequence=transaction.number,
            deleted_at=record.deleted_at or transaction.at,
            delete_completed_at=record.delete_completed_at or transaction.at,
        )
        fence = transaction.registry.fences.get(step.name)
        later = [key.generation for key, _ in transaction.seen.history.list(step.name, reverse=True, limit=1)]
        later += [] if fence is None else [fence.generation + (fence.state is not State.DELETED)]
        if max(later, default=0) > gone.generation:
            # Why: the record is lost, and is no sign that nobody has had the name since.
            problem = "its record is lost, and it has had a later generation: run `keyplan doctor --repair` first"
            raise CorruptionError(problem=problem, name=step.name)
        transaction.registry.records.insert(step.name, gone)
        transaction.registry.order.insert(transaction.number, PrefixHolder(step.name, gone.generation))
        transaction.registry.fences.put(step.name, transaction.fence_of(gone))
        fields = ("prefix", "application", "generation", "created_at", "deleted_at", "delete_completed_at")
        told = {"state": str(State.DELETED)} | {field: getattr(gone, field) for field in fields}
        transaction.note(Acts.RESTORE, told, name=step.name)

    registry.init()
    registry.transactions.run(work)
