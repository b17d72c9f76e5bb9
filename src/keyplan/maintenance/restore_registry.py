"""The registry of a full backup, brought into a store that has none: all of it, before the first key space is filled.

Until it is complete it has no switches, and so nobody can use it; the commit that writes them says that it is restored. Key
spaces stand in it as RESTORING, each with the claim of this restore, so that filling them is going on with work that was begun.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Self

from msgspec import structs

from keyplan.engine import Clock, Commit, Delete, Engine, Guard, KeyAbsent, KeyRange, Mutation, Put, RangeEmpty
from keyplan.errors import CommitConflictError, TargetTakenError
from keyplan.jobs import FixedConditions, Job, Seen, StopCheck, begun, look
from keyplan.keyspace import Acts, KeySpaceRegistry, KeySpaces, RegistryTransaction
from keyplan.layout import Only
from keyplan.maintenance.backup import open_backup
from keyplan.maintenance.backup_file import BackupHeader, utc_text
from keyplan.maintenance.claims import CLAIM_FORM, Claim, prefix_claim, space_claim
from keyplan.maintenance.registry_section import REGISTRY_ROOT, RegistryKept, refuse_unsound
from keyplan.maintenance.transfers import Target, check_fits
from keyplan.store import Backoff

__all__ = ["RegistryRestore"]

_CLAIM_KIND: Final = "registry"

_CLAIM_KEY: Final = prefix_claim(REGISTRY_ROOT)

_REGISTRY: Final = KeyRange.of_prefix(REGISTRY_ROOT)

_HEADER_KEY: Final = KeySpaceRegistry.bound().tables["header"].keys.encode(Only())

_SWITCHES_KEY: Final = KeySpaceRegistry.bound().tables["configuration"].keys.encode(Only())


class RegistryRestore:
    """The registry of one backup, and how far its restore into one store is."""

    def __init__(self, engine: Engine, path: Path, header: BackupHeader, clock: Clock, kept: RegistryKept) -> None:
        self._engine = engine
        self._path = path
        self._header = header
        self._clock = clock
        self.kept = kept
        with engine.snapshot() as snapshot:
            self._seen: Seen[Claim] = look(snapshot, _CLAIM_KEY, CLAIM_FORM)
            found = snapshot.scan(_REGISTRY, limit=1, keys_only=True)
            self.has_registry = any(True for _ in found)
            is_open = snapshot.get(_SWITCHES_KEY) is not None
        before = self._seen.record
        is_claimed = before is not None and before.kind == _CLAIM_KIND
        self.is_begun = is_claimed and not is_open
        """A restore of a registry was stopped here, of this backup or another: it is done again from its beginning.

        Not where the registry has switches: somebody has opened it since, and may have made key spaces.
        """

    @classmethod
    def of(
        cls, engine: Engine, path: Path, header: BackupHeader, clock: Clock, command: Sequence[str] = ()
    ) -> Self | None:
        """Return the registry of a backup; None for one that has none. `command` is what `carry_out` will be given.

        Raises InvalidInputError for one that none can be, EngineLimitError.
        """
        with open_backup(path, of=header) as reader:
            section = next(reader.sections(with_registry=True), None)
            if section is None or not section.is_registry:
                return None
            kept = RegistryKept(reader.pairs(), source=str(path), at=header.created_at)
        found = cls(engine, path, header, clock, kept)
        found._check(command)
        return found

    def _check(self, command: Sequence[str]) -> None:
        with self._pairs() as pairs:
            refuse_unsound(pairs, self.kept.configuration, source=str(self._path))
        with self._pairs() as pairs:
            check_fits(self._engine, REGISTRY_ROOT, pairs, source=self._header.id, command=command)

    @contextmanager
    def _pairs(self) -> Iterator[Iterator[tuple[bytes, bytes]]]:
        """Give the entries as they are restored."""
        with open_backup(self._path, of=self._header) as reader:
            next(reader.sections(with_registry=True))
            yield self.kept.written(reader.pairs(), until=self._until())

    def _until(self) -> str | None:
        seconds = self.kept.configuration.reuse_cooldown_seconds
        return None if seconds is None else utc_text(self._clock, later_seconds=seconds)

    def carry_out(self, actor: str, backoff: Backoff, stops: StopCheck, command: Sequence[str] = ()) -> None:
        """Write the registry, and open it. Begun again after a stop it goes on.

        Raises TargetTakenError, CorruptionError, StoppedError.
        """
        stops.check()
        claim = begun(
            Claim(kind=_CLAIM_KIND, source=self._header.id), command=command, clock=self._clock, stage="begun"
        )
        first: tuple[tuple[Guard, ...], tuple[Mutation, ...]] = ((), ()) if self.is_begun else self._first_entry()
        # Why: while there are no switches, nobody can have made anything here that the backup does not know.
        closed = FixedConditions(lambda: (KeyAbsent(_SWITCHES_KEY),))
        try:
            job = Job.begin(
                self._engine,
                self._seen,
                claim,
                CLAIM_FORM,
                lost=_taken,
                guards=first[0],
                mutations=first[1],
                conditions=closed,
                stops=stops,
            )
        except CommitConflictError as error:
            raise _taken("somebody has made a registry meanwhile, or restores one") from error
        target = Target(job, REGISTRY_ROOT)
        with self._pairs() as pairs:
            written = target.reconcile(pairs, only_adds=False)
        target.read_back(written.tally)
        for claims in target.batches(
            self._claim_of(record.name, record.generation, claim) for record in self.kept.live()
        ):
            target.commit(claims)

        def opened(transaction: RegistryTransaction) -> None:
            transaction.write("configuration", Only(), self.kept.configuration)
            transaction.note(Acts.RESTORE, {"backup": self._header.id, "keyspaces": len(self.kept.records)})
            transaction.join(Commit((job.held.guard,), (Delete(_CLAIM_KEY),), job.held.epoch))

        KeySpaces(self._engine, actor=actor, clock=self._clock, backoff=backoff).transactions.run(opened)
        self.is_begun = False

    def _first_entry(self) -> tuple[tuple[Guard, ...], tuple[Mutation, ...]]:
        """The header, written with the claim while there is nothing of a registry: from here nobody else can make one."""
        with self._pairs() as pairs:
            header = next(Put(REGISTRY_ROOT + key, value) for key, value in pairs if REGISTRY_ROOT + key == _HEADER_KEY)
        return (RangeEmpty(_REGISTRY),), (header,)

    @staticmethod
    def _claim_of(name: str, generation: int, claim: Claim) -> Put:
        own = structs.replace(claim, kind="restore", generation=generation)
        return Put(space_claim(name), CLAIM_FORM.encode(own))


def _taken(problem: str) -> TargetTakenError:
    return TargetTakenError(prefix=REGISTRY_ROOT.hex(), problem=problem)
