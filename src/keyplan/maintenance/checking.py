"""A check: every key below a layout's root is examined, batch by batch, and what is wrong comes out as findings.

Nothing is written; see repair.py. What is wrong with single entries is judged in examine.py.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Self

from keyplan.engine import KeyRange, Snapshot
from keyplan.errors import InvalidInputError
from keyplan.jobs import Lookup, Progress, Teller, batch_of
from keyplan.layout import BoundLayout, Layout, bound_layout_of
from keyplan.maintenance.examine import Examiner
from keyplan.maintenance.findings import Finding, FindingKind
from keyplan.store import Store

__all__ = ["Check", "check"]


def check(
    store: Store,
    layout: Layout | BoundLayout,
    *,
    beside: Sequence[Layout | BoundLayout] = (),
    known: Sequence[Layout | BoundLayout] = (),
    resume: str = "",
    keys_max: int | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> "Check":
    """Return an iterator over what is wrong below the layout's root.

    Each batch of keys is judged in one snapshot, and what is found there once more in a fresh one: a finding was wrong in two
    states of the store, and a store that is being written to gives no false alarm. Memory does not grow with the store.

    beside: other layouts whose keys lie below the same root; keys that they can read are not unknown. Keys below other roots of
        the same layout, and what keyplan itself keeps, are passed over.
    known: layouts that may have written below the root as well, as the same one with its indexes; a key that one of them can
        read is a note, and not unknown.
    resume: a `cursor` of an earlier check of the same layout and root.
    keys_max: end after about so many keys; `cursor` then says where to go on.
    progress: called after each batch with the number of keys examined so far.

    Raises InvalidInputError for a cursor that is not of this layout.
    """
    examiner = Examiner(
        bound_layout_of(layout),
        beside=[bound_layout_of(other) for other in beside],
        known=[bound_layout_of(other) for other in known],
        key_bytes_max=store.engine.profile.key_bytes_max,
    )
    return Check(store, bound_layout_of(layout), examiner, resume=resume, keys_max=keys_max, progress=progress)


class Check(Iterator[Finding]):
    """A check under way. Not for use by two threads at once."""

    def __init__(
        self,
        store: Store,
        bound: BoundLayout,
        examiner: Examiner,
        *,
        resume: str,
        keys_max: int | None,
        progress: Callable[[Progress], None] | None,
    ) -> None:
        self._open: Callable[[], Snapshot] = store.engine.snapshot
        self._fingerprint = bound.fingerprint
        self._range = KeyRange.of_prefix(bound.root)
        self._examiner = examiner
        self._keys_max = keys_max
        self._told = Teller(progress)
        self._pending: deque[Finding] = deque()
        self._position = self._position_of(resume) if resume else self._range.start
        self._batch_start = self._position
        self._is_complete = False
        self.keys_examined = 0

    @property
    def cursor(self) -> str | None:
        """What `resume` takes to go on after the findings that were given so far; None when everything was examined.

        A batch of which not all findings were taken is examined again: a finding may come twice, but none is lost.
        """
        if self._is_complete and not self._pending:
            return None
        position = self._batch_start if self._pending else self._position
        return f"{self._fingerprint}.{position.hex()}"

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Finding:
        while not self._pending:
            is_enough = self._keys_max is not None and self.keys_examined >= self._keys_max
            if self._is_complete or is_enough:
                raise StopIteration
            self._examine_batch()
        return self._pending.popleft()

    def _examine_batch(self) -> None:
        self._batch_start = self._position
        with self._open() as snapshot:
            entries = batch_of(snapshot, KeyRange(self._position, self._range.end))
            findings = self._examiner.examine(entries, Lookup(snapshot)) if entries else []
        if findings:
            findings = self._confirmed(findings)
        self._pending.extend(findings)
        self.keys_examined += len(entries)
        if entries:
            self._position = entries[-1].key + b"\x00"
        self._is_complete = not entries
        self._told("examining", self.keys_examined)

    def _confirmed(self, findings: Sequence[Finding]) -> list[Finding]:
        """Those of the findings that a fresh snapshot shows as well, as it shows them.

        Why not of the same kind only: a writer that deletes the record makes a dangling entry of a stale one, and the entry is
        wrong in both states.
        """
        places = list(dict.fromkeys(place for finding in findings for place in (finding.origin, finding.raw_key)))
        with self._open() as snapshot:
            entries = [entry for entry in snapshot.get_many(places) if entry is not None]
            found = self._examiner.examine(entries, Lookup(snapshot))
        again = {finding.identity: finding for finding in found}
        at_key = {finding.raw_key: finding for finding in reversed(found)}
        confirmed: dict[tuple[FindingKind, bytes, bytes | None], Finding] = {}
        for finding in findings:
            now = again.get(finding.identity) or at_key.get(finding.raw_key)
            if now is not None:
                confirmed.setdefault(now.identity, now)
        return list(confirmed.values())

    def _position_of(self, cursor: str) -> bytes:
        fingerprint, dot, digits = cursor.partition(".")
        try:
            position = bytes.fromhex(digits)
        except ValueError as error:
            raise InvalidInputError(source="resume", problem="not a cursor of a check") from error
        if not dot or fingerprint != self._fingerprint:
            raise InvalidInputError(source="resume", problem="a cursor of another layout or root")
        if position < self._range.start or (self._range.end is not None and position > self._range.end):
            raise InvalidInputError(source="resume", problem="the cursor lies outside the layout's root")
        return position
