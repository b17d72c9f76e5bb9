"""So many at once, and one more every few seconds: for each of many keys, in bounded memory."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

__all__ = ["Allowances"]

_ROUNDING: Final = 1e-6
"""Why: what was spent is a difference of times."""

K = TypeVar("K", bound=Hashable)


class Allowances(Generic[K]):
    """What each key has left of `number`, of which one comes back every `seconds_each`. Not for several threads.

    Of more than `keys_max` keys that have taken something, the one that took longest ago is forgotten: it has all of it again.
    """

    def __init__(self, number: int, seconds_each: float, *, keys_max: int, monotonic: Callable[[], float]) -> None:
        self.number = number
        self.seconds_each = seconds_each
        self._keys_max = keys_max
        self._monotonic = monotonic
        self._whole_at: OrderedDict[K, float] = OrderedDict()
        """When a key has all of it again; only of those that have not."""

    def spent(self, key: K) -> float:
        """Return how much a key has taken that has not come back: a fraction while one of them is coming."""
        whole_at = self._whole_at.get(key)
        if whole_at is None:
            return 0.0
        spent = (whole_at - self._monotonic()) / self.seconds_each
        if spent <= 0:
            del self._whole_at[key]
            return 0.0
        return spent

    def take(self, key: K) -> float:
        """Take one, also where none is left; return what was spent before."""
        spent = self.spent(key)
        self._whole_at[key] = self._monotonic() + (spent + 1) * self.seconds_each
        self._whole_at.move_to_end(key)
        if len(self._whole_at) > self._keys_max:
            self._whole_at.popitem(last=False)
        return spent

    def take_if_left(self, key: K) -> bool:
        """Take one if one is left; return whether it was."""
        if self.spent(key) > self.number - 1 + _ROUNDING:
            return False
        self.take(key)
        return True
