"""What a plain restore or copy may not stand beside: a migration of its keys, another transfer, key spaces of somebody."""

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from keyplan.engine import Clock, Engine, Guard, KeyRange, Snapshot
from keyplan.errors import (
    ConflictError,
    InvalidInputError,
    MigrationUnderWayError,
    PrefixConflictError,
    PrefixInUseError,
    TargetNotEmptyError,
    TargetTakenError,
)
from keyplan.jobs import StopCheck, as_read, begun
from keyplan.keyspace import KeySpaceRegistry
from keyplan.layout import Only, shown_key
from keyplan.maintenance.claims import Claim, prefix_claim, standing_claim, standing_claims
from keyplan.maintenance.migration.marks import Migrations, states_in
from keyplan.maintenance.pair_digest import PairSum
from keyplan.maintenance.registry_section import REGISTRY_ROOT
from keyplan.maintenance.transfers import Target, emptiness, refuse_occupied, require_untouched

__all__ = ["Transfer", "guard_of_turn", "refuse_beside", "refuse_registered"]


R = TypeVar("R")

# ---- transfers and migrations ----------------------------------------------------------------------------------------


def refuse_beside(engine: Engine, prefix: bytes) -> None:
    """Refuse to bring anything into a prefix of whose keys a migration is under way, or across another transfer.

    Why a migration: its marks stand outside of the prefix, and say of records what would no longer be true. A prefix that holds
    the system area replaces them as well. Raises MigrationUnderWayError, TargetTakenError.
    """
    with engine.snapshot() as snapshot:
        claims = [(other, claim) for other, claim in standing_claims(snapshot, [prefix]) if other != prefix]
        holds_marks = Migrations.bound().root.startswith(prefix)
        states = [] if holds_marks else [state for _, state in states_in(snapshot) if not state.is_cleaned]
    for state in states:
        for root in (state.old_root, state.new_root):
            if root.startswith(prefix) or prefix.startswith(root):
                raise MigrationUnderWayError(root=root, old=state.old, new=state.new)
    for other, claim in claims:
        problem = f"a {claim.kind} into {shown_key(other) or 'the whole store'}, across this prefix, is not finished"
        raise TargetTakenError(prefix=prefix, problem=problem)


class Transfer:
    """A plain restore or copy into a prefix: looked at before anything is written, then begun, or gone on with.

    One that is the same work as the claim that stands there is resumed. Raises what `refuse_beside` and `refuse_registered`
    raise, and TargetNotEmptyError: without `is_overwriting` when there are keys that this work has not written, which
    `found_complete` and `begin` look for.
    """

    def __init__(
        self, engine: Engine, prefix: bytes, kind: str, source: str, *, is_overwriting: bool, stops: StopCheck
    ) -> None:
        self._engine, self._prefix, self._kind, self._source = engine, prefix, kind, source
        self._stops = stops
        self._seen = standing_claim(engine, prefix_claim(prefix))
        before = self._seen.record
        self.before = before if before is not None and (before.kind, before.source) == (kind, source) else None
        refuse_beside(engine, prefix)
        self._beside = Unregistered(engine, prefix, is_resumed=self.is_resumed)
        self._is_overwriting = is_overwriting
        self._begins_empty = not is_overwriting and self.before is None
        if self.before is not None and self.before.verified and not is_overwriting and not self.before.is_mending:
            require_untouched(engine, prefix, self.before, stops)

    @property
    def is_resumed(self) -> bool:
        """Whether the same work was stopped here."""
        return self.before is not None

    @property
    def is_mending(self) -> bool:
        """Whether it was stopped when all pairs had been brought, and the indexes were being put right."""
        return self.before is not None and self.before.is_mending and not self._is_overwriting

    def found_complete(self, compared: Callable[[], R | None]) -> R | None:
        """Return the report of work that is done already: its place holds exactly what would be brought, and no claim.

        `compared` makes it, or None where they differ; it is called where the place is to be empty and is not. Raises
        TargetNotEmptyError then.
        """
        if not self._begins_empty:
            return None
        try:
            refuse_occupied(self._engine, self._prefix)
        except TargetNotEmptyError:
            # Why without a claim alone: with one the place is a part of something else.
            report = compared() if self._seen.record is None else None
            if report is None:
                raise
            return report
        return None

    def begin(self, clock: Clock, command: Sequence[str], **facts: Any) -> Target:
        """Write the claim, with further facts of it, and look once more; where the work has not begun, undo that.

        Raises StoppedError, nothing written, when the work is told to stop.

        Why: whoever begins looks before and after it has written that it begins; of two, at least one sees the other.
        """
        claim = begun(self._kept(), command=command, clock=clock, stage="begun", **facts)
        target = self._claimed(claim)
        try:
            refuse_beside(self._engine, self._prefix)
            refuse_registered(self._engine, self._prefix, is_resumed=self.is_resumed)
        except (ConflictError, InvalidInputError):
            if not self.is_resumed:
                # Why not only away: the part that other work has brought here is a part as long as its claim says so.
                target.job.end(leaving=self._seen.record)
            raise
        return target

    def _kept(self) -> Claim:
        """The claim as far as it stays from the last time that this work was begun."""
        # Why without an account when overwriting: what is there is somebody else's, and is to go.
        account = "" if self._is_overwriting else PairSum().text
        if self.before is None:
            return Claim(kind=self._kind, source=self._source, written=account)
        return Claim(
            kind=self._kind,
            source=self._source,
            begun_at=self.before.begun_at,
            command=self.before.command,
            written="" if self._is_overwriting else self.before.written,
            verified=self.before.verified if self.is_mending else "",
            is_mending=self.is_mending,
        )

    def _claimed(self, claim: Claim) -> Target:
        """Write the claim, of work that begins with an empty place in the commit that finds it empty.

        Why: whoever has done the same work meanwhile has left no claim, but its keys.
        """
        guards = emptiness(self._prefix) if self._begins_empty else ()
        try:
            return Target.claimed(
                self._engine,
                self._prefix,
                self._seen,
                claim,
                guards=guards,
                conditions=self._beside,
                stops=self._stops,
            )
        except TargetTakenError:
            if guards:
                refuse_occupied(self._engine, self._prefix)
            raise


# ---- key spaces: what is registered to somebody is not written to by its raw prefix ----------------------------------


_ADVICE = "restore into a key space with `keyplan keyspace restore`, or name a prefix that is nobody's"

_TABLES: Final = KeySpaceRegistry.bound().tables

_HOLDERS: Final = KeyRange(*_TABLES["holders"].keys.range(()))

_TURN: Final = _TABLES["audit_head"].keys.encode(Only())
"""Every act of the registry writes it."""


def refuse_registered(engine: Engine, prefix: bytes, *, is_resumed: bool) -> None:
    """Raise why a plain stream of pairs may not be brought below the prefix: a key space has it, begins it or continues it.

    The whole store takes one while it has no registry, or when the work has begun in it. Raises PrefixInUseError,
    PrefixConflictError, InvalidInputError for the registry's own keys.
    """
    if not prefix:
        if not is_resumed and _has_registry(engine):
            problem = "the whole store is written to, and it has a registry of key spaces"
            raise InvalidInputError(source="prefix", problem=problem, advice=f"empty the store first, or {_ADVICE}")
        return
    if prefix.startswith(REGISTRY_ROOT) or REGISTRY_ROOT.startswith(prefix):
        problem = "the registry of key spaces stands there"
        raise InvalidInputError(source="prefix", problem=problem, prefix=prefix.hex(), advice=_ADVICE)
    with engine.snapshot() as snapshot:
        _refuse_held(snapshot, prefix)


def _refuse_held(snapshot: Snapshot, prefix: bytes) -> None:
    for key in snapshot.keys(_HOLDERS):
        other = key[len(_HOLDERS.start) :]
        if other == prefix:
            raise PrefixInUseError(prefix=prefix.hex(), problem="a key space has it", advice=_ADVICE)
        if other.startswith(prefix) or prefix.startswith(other):
            raise PrefixConflictError(prefix=prefix.hex(), other=other.hex(), advice=_ADVICE)


def _has_registry(engine: Engine) -> bool:
    with engine.snapshot() as snapshot:
        return any(True for _ in snapshot.scan(KeyRange.of_prefix(REGISTRY_ROOT), limit=1, keys_only=True))


class Unregistered:
    """What a plain stream of pairs relies on in each of its commits: the prefix is no key space's.

    Every act of the registry has a turn, and the guard is that there was none since the prefixes were looked at. A commit that
    fails by it is made again when the prefix is still nobody's. The whole store has no such guard: its stream has the registry.
    """

    def __init__(self, engine: Engine, prefix: bytes, *, is_resumed: bool) -> None:
        """Raises as `refuse_registered`."""
        refuse_registered(engine, prefix, is_resumed=is_resumed)
        self._engine = engine
        self._prefix = prefix
        self._guards: tuple[Guard, ...] = ()
        self.look_again()

    def guards(self) -> tuple[Guard, ...]:
        """Return what has to hold in a commit."""
        return self._guards

    def look_again(self) -> bool:
        """Tell whether the registry has moved since the last look. Raises PrefixInUseError, PrefixConflictError."""
        if not self._prefix:
            return False
        before = self._guards
        with self._engine.snapshot() as snapshot:
            self._guards = (guard_of_turn(snapshot),)
            if self._guards != before:
                _refuse_held(snapshot, self._prefix)
        return self._guards != before


def guard_of_turn(snapshot: Snapshot) -> Guard:
    """Return the guard that the registry is as it is in this state, or that there is still none."""
    return as_read(_TURN, snapshot.get(_TURN))
