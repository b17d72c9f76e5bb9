"""The state machine without its rules: one dictionary and three stores, and what must be true of them after every step."""

import shutil
import tempfile
from pathlib import Path

from hypothesis.stateful import RuleBasedStateMachine, invariant

from keyplan.engine import MemoryEngine
from keyplan.engine.lmdb import Durability, LmdbEngine, LmdbOptions
from keyplan.store import Lease, Store
from keyplan.testing.checked import assert_healthy
from keyplan.testing.faults import FakeClock
from tests.model.agreement import check_reads, raw_keys
from tests.model.dictionary import Dictionary
from tests.model.operations import Operation, done_to
from tests.store.layouts import Site

__all__ = ["HOLDERS", "Stores", "is_for_all"]

TTL_SECONDS = (10, 4)
"""Why: what was granted later ends earlier, so that the order of ends is not that of ids."""
HOLDERS = len(TTL_SECONDS)


def is_for_all(operation: Operation) -> bool:
    """False for what is done to members: a store without revisions has no leases to put them on."""
    return not isinstance(getattr(operation, "key", None), str)


class Stores(RuleBasedStateMachine):
    """In memory, on LMDB, and on LMDB without history, which takes no part in what concerns members; all by one clock."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="keyplan-model-"))
        self.clock = FakeClock()
        history = LmdbOptions(durability=Durability.NONE, clock=self.clock)
        plain = LmdbOptions(durability=Durability.NONE, clock=self.clock, history_revisions_max=0)
        # Why: a store's thread notices the loss of a lease when it gets to it; by a clock that stands it never does, so that
        # who knows what of a lease does not depend on chance.
        standing = FakeClock()
        self.stores = [
            Store(engine, clock=standing)
            for engine in (
                MemoryEngine(clock=self.clock),
                LmdbEngine(self.folder / "history", history),
                LmdbEngine(self.folder / "plain", plain),
            )
        ]
        self.sites = [Site(store) for store in self.stores]
        self.model = Dictionary()
        self.leases: list[list[Lease]] = [[], [], []]
        for ttl_seconds in TTL_SECONDS:
            self.model.holders.append(self.model.grant(ttl_seconds))
            for store, leases in zip(self.stores[:2], self.leases, strict=False):
                leases.append(store.lease(ttl_seconds, keep_alive=False))

    def teardown(self) -> None:
        try:
            for store in self.stores:
                assert_healthy(store, Site)
        finally:
            for store in self.stores:
                store.close()
            shutil.rmtree(self.folder)

    # ---- pieces of the rules ---------------------------------------------------------------------------------------------

    def expected(self, place: int) -> Dictionary:
        """What the store at this place should hold: the one without leases has no members."""
        if place < 2:
            return self.model
        copy = self.model.copy()
        copy.records = {key: stored for key, stored in copy.records.items() if not isinstance(key, str)}
        return copy

    def outcomes(self, place: int, site: Site, work: list[Operation]) -> list[str]:
        """Do the work to a store or a transaction on it."""
        return [done_to(site, operation, self.leases[place]) for operation in self.fit(place, work)]

    def fit(self, place: int, work: list[Operation]) -> list[Operation]:
        """Leave out what the store at this place cannot do."""
        return [operation for operation in work if place < 2 or is_for_all(operation)]

    # ---- after every step ------------------------------------------------------------------------------------------------

    @invariant()
    def stores_say_what_the_dictionary_says(self) -> None:
        for place, site in enumerate(self.sites):
            check_reads(site, self.expected(place))

    @invariant()
    def stores_hold_these_keys_and_no_others(self) -> None:
        for place, store in enumerate(self.stores):
            assert raw_keys(store) == self.expected(place).raw_keys()

    @invariant()
    def stores_with_revisions_agree_on_history(self) -> None:
        memory, history = self.sites[:2]
        assert memory.revision == history.revision == len(self.model.revisions)
        assert list(memory.blades.entries()) == list(history.blades.entries())
        assert list(memory.members.entries()) == list(history.members.entries())
