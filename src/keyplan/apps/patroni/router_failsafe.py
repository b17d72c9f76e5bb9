"""Leaders that lead on while nobody holds their cluster's leader key: in Patroni's failsafe mode, without their store.

Where a gateway is away for longer than the TTL, what its clusters have on leases is gone, and Patroni leads on where
all members agree. The router may see the store all the same. It asks who led last, and believes who says so. A file tells
the next router whom to ask; of who leads it says nothing.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from keyplan.apps.patroni.layout import MemberKey
from keyplan.apps.patroni.logs import LOGGER
from keyplan.apps.patroni.records import Member
from keyplan.apps.patroni.router_checks import PrimaryChecks, is_failsafe_primary
from keyplan.apps.patroni.router_routes import Candidate, Seen, candidates
from keyplan.engine import SYSTEM_CLOCK
from keyplan.errors import InvalidInputError
from keyplan.files import write_whole

__all__ = ["FailsafeLeaders"]

_ASKED_SECONDS: Final = 60.0
"""How long who has said no is asked again. Why at all: Patroni may notice that its store is away after its key has gone."""


class FailsafeLeaders:
    """Remembers clusters as they were while somebody led, for as long as that leader says that it leads on."""

    def __init__(self, file: Path | None = None) -> None:
        """`file` keeps who led last over the router's end; without it, who led before the router began is not asked."""
        self._checks = PrimaryChecks(is_failsafe_primary)
        self._members: dict[MemberKey, Member] = {}
        self._file = file
        self._last = {} if file is None else _kept(file)
        self._noted = self._last
        self._asked_until: dict[str, float] = {}
        self._leading: set[str] = set()

    @property
    def leaders(self) -> dict[str, str]:
        """The clusters that are led so now, by name, each with the member that leads it."""
        return {name: self._last[name].member for name in sorted(self._leading)}

    def beside(self, seen: Seen) -> tuple[Seen, dict[str, Candidate]]:
        """Return what is seen, with clusters whose leader leads on as they were; and who leads. Blocks for a moment at most."""
        led = candidates(seen)
        self._remember(seen, led)
        self._note()
        now = SYSTEM_CLOCK.monotonic()
        wanted = {name: last for name, last in self._last.items() if name not in led and self._is_asked(name, now)}
        leading = self._checks.confirmed(wanted)
        # Why those too: an answer that is under way is no other answer. A question has a second.
        leading |= self._leading & self._checks.pending & wanted.keys()
        for name in sorted(leading - self._leading):
            LOGGER.warning("%s of %s leads on in failsafe mode, and holds no leader key", wanted[name].member, name)
        self._leading = leading
        if not leading:
            return seen, led
        self._asked_until |= dict.fromkeys(leading, now + _ASKED_SECONDS)
        leaders = {**seen.leaders, **{name: wanted[name].member for name in leading}}
        members = {key: member for key, member in self._members.items() if key.cluster in leading}
        return (
            seen._replace(leaders=leaders, members={**members, **seen.members}),
            {**led, **{name: wanted[name] for name in leading}},
        )

    def _remember(self, seen: Seen, led: Mapping[str, Candidate]) -> None:
        self._asked_until = {name: until for name, until in self._asked_until.items() if name not in led}
        # Why by the leader's name alone: who leads now makes who led before nobody, also before its member's record is there.
        former = {
            name: last
            for name, last in self._last.items()
            if name in seen.allocations and seen.leaders.get(name) in {None, last.member} and last.leader.health
        }
        self._last = {**former, **led}
        kept = {
            key: member for key, member in self._members.items() if key.cluster in former and key.cluster not in led
        }
        self._members = {**kept, **seen.members}

    def _note(self) -> None:
        if self._file is None or self._last == self._noted:
            return
        # Why also when it fails: the next change is written again, and no look is to wait for a broken disk.
        self._noted = self._last
        try:
            write_whole(self._file, msgspec.json.encode(self._last))
        except InvalidInputError as error:
            LOGGER.warning("who led last is not kept for the next router: %s", error)

    def _is_asked(self, name: str, now: float) -> bool:
        return now < self._asked_until.setdefault(name, now + _ASKED_SECONDS)


def _kept(file: Path) -> dict[str, Candidate]:
    """Return whom the router before could have asked. What is not readable is as good as nothing: it is asked of nobody."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=dict[str, Candidate])
    except (OSError, ValueError, RecursionError):
        return {}
