"""What `/v2/stats/store` counts: how often each kind of request succeeded and failed, here, since the start."""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from keyplan.server.etcd_v2.records import Action

__all__ = ["StoreStatistics"]

_NAMES: Final = {
    Action.GET: "gets",
    Action.SET: "sets",
    Action.DELETE: "delete",
    Action.UPDATE: "update",
    Action.CREATE: "create",
    Action.COMPARE_AND_SWAP: "compareAndSwap",
    Action.COMPARE_AND_DELETE: "compareAndDelete",
}


class StoreStatistics:
    """Counters of one gateway."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def count(self, action: Action, *, is_success: bool) -> None:
        """Count a request."""
        if action in _NAMES:
            self._counts[_NAMES[action] + ("Success" if is_success else "Fail")] += 1

    def count_expiry(self) -> None:
        """Count a key or directory whose time was over."""
        self._counts["expireCount"] += 1

    @property
    def expired(self) -> int:
        """How many keys and directories ended by their TTL."""
        return self._counts["expireCount"]

    def operations(self) -> Iterator[tuple[str, str, int]]:
        """Yield kind, result and number of what was asked for."""
        for action, name in _NAMES.items():
            yield str(action), "success", self._counts[f"{name}Success"]
            yield str(action), "failure", self._counts[f"{name}Fail"]

    def report(self, watchers: int) -> dict[str, int]:
        """Return the counters as etcd names and orders them."""
        names = [name + outcome for name in _NAMES.values() for outcome in ("Success", "Fail")]
        return {name: self._counts[name] for name in [*names, "expireCount"]} | {"watchers": watchers}
