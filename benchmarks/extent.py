"""How much is measured: the sizes of the stores, the rounds, and the share of each benchmark's operations."""

from dataclasses import dataclass
from typing import Final

from benchmarks.stand import Stands

__all__ = ["FULL", "QUICK", "TINY", "Amount", "Extent"]


@dataclass(frozen=True, slots=True)
class Amount:
    """What a run may take. `share` scales the operations of a round."""

    sizes: tuple[int, ...]
    rounds: int
    share: float
    processes: int
    """Rounds of benchmarks that start a process for each."""


QUICK: Final = Amount(sizes=(1_000, 10_000), rounds=7, share=0.25, processes=3)
FULL: Final = Amount(sizes=(1_000, 10_000, 100_000, 1_000_000), rounds=9, share=0.5, processes=5)
TINY: Final = Amount(sizes=(50,), rounds=1, share=0.002, processes=1)
"""For the test that everything runs."""


@dataclass(frozen=True, slots=True)
class Extent:
    """What a benchmark is given."""

    amount: Amount
    stands: Stands

    @property
    def sizes(self) -> tuple[int, ...]:
        return self.amount.sizes

    @property
    def rounds(self) -> int:
        return self.amount.rounds

    def operations(self, number: int) -> int:
        """Return how many operations a round has that has `number` in a full run."""
        return max(1, round(number * self.amount.share))
