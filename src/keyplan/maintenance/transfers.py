r"""Writing a stream of pairs into a target so that it can be stopped anywhere and done again: what is not as wanted is changed.

    00 6b 74  72 "orders" 00       a restore into the key space "orders" is under way
    00 6b 74  63 "/site/"          a copy or a restore into the prefix "/site/" is under way

The claim stands in the target for as long as the work is not done, and every commit of the work is guarded by it: who takes the
work over writes it anew, and the other one ends. Whatever reads the target meanwhile sees a part of it.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

import msgspec

from keyplan.engine import (
    NO_LEASE,
    Commit,
    Delete,
    Engine,
    Entry,
    Guard,
    KeyRange,
    KeyUnchanged,
    Mutation,
    Put,
    Snapshot,
)
from keyplan.errors import (
    CommitConflictError,
    CommitOutcomeUnknownError,
    CorruptionError,
    EngineLimitError,
    TargetNotEmptyError,
    TargetTakenError,
)
from keyplan.layout import BoundTable, Layout, Table
from keyplan.maintenance.batches import operations_max
from keyplan.maintenance.pair_digest import PairDigest, Tally

__all__ = [
    "CLAIM_FORM",
    "TRANSFER_AREA",
    "Claim",
    "Target",
    "Transfers",
    "Written",
    "check_fits",
    "pairs_of",
    "prefix_claim",
    "read_claim",
    "refuse_occupied",
    "space_claim",
    "standing_claims",
]

TRANSFER_AREA: Final = KeyRange.of_prefix(b"\x00kt")
"""Where claims stand; they are of this store alone, and in no backup and no copy."""

_BYTES_MAX: Final = 1 << 20
"""Why: below what every engine with a bound takes, etcd's 1.5 MiB being the least."""

_UNKNOWN_TRIES_MAX: Final = 5

_CLAIM_BYTES: Final = 1200
"""Why: a commit is guarded by the claim, of at most 511 bytes, and by a key space's fence; and it may write the claim anew."""


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """Work under way. `source` is what is brought, as the same work begun again names it; `run` is the process that does it.

    `generation` is that of the key space restored into; `followed` the revision of the source that a copy has reached.
    `is_done`: the work has ended, and the claim tells of it, so that the same work begun again finds that nothing is left.
    """

    kind: str
    source: str
    run: str
    begun_at: str
    generation: int = 0
    followed: int = 0
    is_copied: bool = False
    is_done: bool = False


class Transfers(Layout, root=b"\x00kt"):
    """What is being brought into this store."""

    spaces = Table(
        b"r{name:text(allow='A-Za-z0-9_.-',bytes_max=64,dots=false)}\x00",
        key=str,
        value=Claim,
        note="a restore into a key space",
    )
    prefixes = Table(
        b"c{prefix:tail(empty=true,bytes_max=500)}",
        key=bytes,
        value=Claim,
        note="a copy or a restore into a prefix",
    )


CLAIM_FORM: Final = Transfers.bound().tables["spaces"].form


def space_claim(name: str) -> bytes:
    """Return the raw key of the claim on a key space."""
    return _table("spaces").keys.encode(name)


def prefix_claim(prefix: bytes) -> bytes:
    """Return the raw key of the claim on a prefix."""
    return _table("prefixes").keys.encode(prefix)


def _table(name: str) -> BoundTable:
    return Transfers.bound().tables[name]


def read_claim(engine: Engine, raw_key: bytes) -> Claim | None:
    """Return the claim that stands at the key."""
    with engine.snapshot() as snapshot:
        entry = snapshot.get(raw_key)
    return None if entry is None else _decoded(entry)


def _decoded(entry: Entry) -> Claim:
    claim: Claim = CLAIM_FORM.decode(entry.value)
    return claim


def standing_claims(snapshot: Snapshot, roots: Iterable[bytes]) -> list[tuple[bytes, Claim]]:
    """Return the prefixes that something is brought into and that lie above or below one of the roots, with their claims."""
    prefixes = _table("prefixes")
    found = []
    for entry in snapshot.scan(KeyRange(*prefixes.keys.range(()))):
        prefix = prefixes.keys.decode(entry.key)
        assert isinstance(prefix, bytes)
        if any(prefix.startswith(root) or root.startswith(prefix) for root in roots):
            found.append((prefix, _decoded(entry)))
    return found


@dataclass
class Written:
    """What was changed to make the target as wanted, and the tally of what was wanted."""

    puts: int = 0
    deletes: int = 0
    unchanged: int = 0
    tally: Tally = field(default_factory=lambda: Tally(0, 0, ""))


def pairs_of(
    snapshot: Snapshot, prefix: bytes, *, on_leased: Callable[[Entry], bool] | None = None
) -> Iterator[tuple[bytes, bytes]]:
    """Yield the pairs below a prefix in key order, the keys without it; claims are left out.

    on_leased: asked about each entry that hangs on a lease; False leaves it out. None keeps them.
    """
    size = len(prefix)
    for entry in snapshot.scan(KeyRange.of_prefix(prefix)):
        if entry.key in TRANSFER_AREA or (on_leased is not None and entry.lease != NO_LEASE and not on_leased(entry)):
            continue
        yield entry.key[size:], entry.value


def check_fits(engine: Engine, prefix: bytes, pairs: Iterable[tuple[bytes, bytes]]) -> None:
    """Go through pairs that are to be written below `prefix`, to see whether the target takes them.

    Raises EngineLimitError when the target does not take one of them, with the first one's key, the limit, and how many there
    are; nothing is written here.
    """
    profile = engine.profile
    key_max = profile.key_bytes_max
    value_max = profile.value_bytes_max
    if profile.commit_bytes_max is not None:
        value_max = min(value_max or profile.commit_bytes_max, profile.commit_bytes_max)
    first: dict[str, object] = {}
    count = 0
    for key, value in pairs:
        key_bytes = len(prefix) + len(key)
        # Why: where the bound is on a commit, key and claim count as well.
        value_bytes = len(value) + (key_bytes + _CLAIM_BYTES if value_max == profile.commit_bytes_max else 0)
        if key_max is not None and key_bytes > key_max:
            limit, allowed, actual = "key_bytes_max", key_max, key_bytes
        elif value_max is not None and value_bytes > value_max:
            limit, allowed, actual = "value_bytes_max", value_max, value_bytes
        elif not key_bytes and not profile.empty_key:
            limit, allowed, actual = "key_bytes_min", 1, 0
        else:
            continue
        count += 1
        first = first or {"limit": limit, "allowed": allowed, "actual": actual, "raw_key": (prefix + key).hex()}
    if count:
        raise EngineLimitError(**first, engine=profile.name, pairs_refused=count)


class Target:
    """The share of a store below a prefix, while one process brings something into it.

    `fence` gives a further guard for every commit. Each method raises TargetTakenError when somebody else has taken the work
    over, or the fence does not hold.
    """

    def __init__(
        self,
        engine: Engine,
        prefix: bytes,
        claim_key: bytes,
        claim: Claim,
        *,
        fence: Callable[[], tuple[Guard, ...]] = tuple,
    ) -> None:
        self.engine = engine
        self.prefix = prefix
        self._claim_key = claim_key
        self._fence = fence
        self.claim = claim
        self._claim_revision = self._claimed(claim)

    def _claimed(self, claim: Claim) -> int:
        """Write the claim over whatever claim there is; the last one to do so has the work."""
        self.engine.commit(Commit((), (Put(self._claim_key, CLAIM_FORM.encode(claim)),)))
        return self._own_revision(claim)

    def _own_revision(self, claim: Claim) -> int:
        with self.engine.snapshot() as snapshot:
            entry = snapshot.get(self._claim_key)
        if entry is None or _decoded(entry) != claim:
            raise TargetTakenError(prefix=self.prefix.hex(), problem="another process does this work now")
        return entry.mod_revision

    def commit(self, mutations: Iterable[Mutation], *, claim: Claim | None = None) -> None:
        """Write, guarded by the claim; with `claim`, which replaces it in the same commit."""
        writes = list(mutations)
        if claim is not None:
            writes.append(Put(self._claim_key, CLAIM_FORM.encode(claim)))
        self._send(tuple(writes), is_applied=lambda: claim is not None and self._stands(claim))
        if claim is not None:
            self.claim = claim
            self._claim_revision = self._own_revision(claim)

    @property
    def claim_guard(self) -> KeyUnchanged:
        """What holds while nobody else has taken the work over."""
        return KeyUnchanged(self._claim_key, self._claim_revision)

    def finish(self) -> None:
        """Take the claim away: the work is done. The fence is not asked any more."""
        self._fence = tuple
        self._send((Delete(self._claim_key),), is_applied=lambda: read_claim(self.engine, self._claim_key) is None)

    def _send(self, mutations: tuple[Mutation, ...], *, is_applied: Callable[[], bool]) -> None:
        for _ in range(_UNKNOWN_TRIES_MAX):
            guards = (KeyUnchanged(self._claim_key, self._claim_revision), *self._fence())
            try:
                self.engine.commit(Commit(guards, mutations))
            except CommitOutcomeUnknownError:
                # Why again: the same bytes at the same keys, under a guard that no later work leaves standing; should the lost
                # one arrive late, it changes nothing or is refused.
                if is_applied():
                    return
                continue
            except CommitConflictError as error:
                if is_applied():
                    return
                problem = "another process does this work now, or the key space was taken out of it"
                raise TargetTakenError(prefix=self.prefix.hex(), problem=problem) from error
            return
        raise CommitOutcomeUnknownError(engine=self.engine.profile.name, mutations=len(mutations))

    def _stands(self, claim: Claim) -> bool:
        return read_claim(self.engine, self._claim_key) == claim

    # ---- pairs -------------------------------------------------------------------------------------------------------------

    def reconcile(
        self, wanted: Iterable[tuple[bytes, bytes]], *, progress: Callable[[int], None] | None = None
    ) -> Written:
        """Make the share hold exactly these pairs, given in key order without the prefix, on no lease.

        What is there already and as wanted is not written again: so that work that was stopped goes on. Memory does not grow
        with the share.
        """
        written = Written()
        digest = PairDigest()
        with self.engine.snapshot() as snapshot:
            mutations = self._differences(wanted, snapshot, written, digest, progress)
            for batch in self.batches(mutations):
                self.commit(batch)
        written.tally = digest.tally()
        return written

    def _differences(
        self,
        wanted: Iterable[tuple[bytes, bytes]],
        snapshot: Snapshot,
        written: Written,
        digest: PairDigest,
        progress: Callable[[int], None] | None,
    ) -> Iterator[Mutation]:
        stored = (entry for entry in snapshot.scan(KeyRange.of_prefix(self.prefix)) if entry.key not in TRANSFER_AREA)
        current = next(stored, None)
        done = 0
        for key, value in wanted:
            raw_key = self.prefix + key
            while current is not None and current.key < raw_key:
                written.deletes += 1
                yield Delete(current.key)
                current = next(stored, None)
            digest.add(key, value)
            if current is not None and current.key == raw_key:
                is_same = current.value == value and current.lease == NO_LEASE
                current = next(stored, None)
                if is_same:
                    written.unchanged += 1
                    continue
            written.puts += 1
            yield Put(raw_key, value)
            done += 1
            if progress is not None and done % 256 == 0:
                progress(done + written.unchanged)
        for entry in chain(() if current is None else (current,), stored):
            written.deletes += 1
            yield Delete(entry.key)

    def batches(self, mutations: Iterable[Mutation]) -> Iterator[list[Mutation]]:
        """Yield the mutations in order, as many at a time as one commit takes beside the claim."""
        profile = self.engine.profile
        bytes_max = min(profile.commit_bytes_max or _BYTES_MAX, _BYTES_MAX) - 2 * _CLAIM_BYTES
        most = operations_max(profile) - 2
        batch: list[Mutation] = []
        size = 0
        for mutation in mutations:
            own = _size(mutation)
            if batch and (len(batch) >= most or size + own > bytes_max):
                yield batch
                batch, size = [], 0
            batch.append(mutation)
            size += own
        if batch:
            yield batch

    def read_back(self, expected: Tally) -> None:
        """Read the share from the start and compare it with what was brought. Raises CorruptionError when it differs."""
        with self.engine.snapshot() as snapshot:
            actual = PairDigest.of(pairs_of(snapshot, self.prefix))
        if actual != expected:
            raise CorruptionError(
                problem="what was read back is not what was written: somebody else writes below the prefix",
                prefix=self.prefix.hex(),
                pairs_expected=expected.count,
                pairs_found=actual.count,
            )


def refuse_occupied(engine: Engine, prefix: bytes) -> None:
    """Raise TargetNotEmptyError when there is a key below the prefix that is no claim."""
    with engine.snapshot() as snapshot:
        for entry in snapshot.scan(KeyRange.of_prefix(prefix), keys_only=True):
            if entry.key not in TRANSFER_AREA:
                advice = "name an empty place, or overwrite what is there"
                raise TargetNotEmptyError(prefix=prefix.hex(), first_key=entry.key.hex(), advice=advice)


def _size(mutation: Mutation) -> int:
    if isinstance(mutation, Put):
        return len(mutation.key) + len(mutation.value)
    return len(mutation.key) if isinstance(mutation, Delete) else 0
